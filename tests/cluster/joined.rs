//! A node that belongs to a cluster.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::Command;

use serde_json::Value;

use super::node::{NODE_NAME, Node};
use crate::fake_api::kubeconfig::Credentials;
use crate::fake_api::request_log::Request;
use crate::fake_api::{FakeApi, Options};

/// The agent on its machine, and its API server.
pub(crate) struct Joined {
    pub(crate) node: Node,
    pub(crate) api: FakeApi,
}

pub(crate) const NODE: &str = "/api/v1/nodes/node-a";
pub(crate) const NODES: &str = "/api/v1/nodes";
pub(crate) const STATUS: &str = "/api/v1/nodes/node-a/status";
pub(crate) const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-a";
pub(crate) const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

/// Short runtime timeouts, and no garbage collection or eviction however full this machine's disk is.
const CALM: &str = "runtimeRequestTimeout: 1s\nimageGCHighThresholdPercent: 100\nevictionHard: {}\n";

impl Joined {
    /// A node whose agent has not started.
    pub(crate) fn new() -> Self {
        Self::beside(Options::default())
    }

    /// A node beside an API server with these options.
    pub(crate) fn beside(options: Options) -> Self {
        Self { node: Node::new(), api: FakeApi::start(options) }
    }

    /// Number of full reads of a path: lists, and watches that begin with the current state.
    pub(crate) fn lists(&self, path: &str) -> usize {
        let whole = |request: &Request| request.verb == "list" || request.parameter("sendInitialEvents").is_some();
        self.api.requests_of("GET", path).iter().filter(|request| whole(request)).count()
    }

    pub(crate) fn start(&mut self, configuration: &str, arguments: &[&str]) {
        self.start_with(configuration, |command| {
            command.args(arguments);
        });
    }

    /// Starts the agent and lets `change` modify its command line or environment.
    pub(crate) fn start_with(&mut self, configuration: &str, change: impl FnOnce(&mut Command)) {
        self.node.configure(&format!("{CALM}{configuration}"));
        let kubeconfig = self.api.kubeconfig(self.node.folder(), &Credentials::of_node(NODE_NAME));
        self.node.start_agent_with(|command| {
            command.arg("--kubeconfig").arg(kubeconfig).arg("--make-iptables-util-chains=false");
            change(command);
        });
    }

    #[track_caller]
    pub(crate) fn wait_until_ready(&self) -> Value {
        self.api.wait(NODE, "the node to be ready", |node| condition(node, "Ready")["status"] == "True")
    }

    /// The page with the agent's metrics.
    pub(crate) fn metrics(&self) -> String {
        let mut socket = UnixStream::connect(self.node.folder().join("coracle.sock")).unwrap();
        socket.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut page = String::new();
        socket.read_to_string(&mut page).unwrap();
        page
    }
}

/// Waits for an event of any object whose message has this part.
#[track_caller]
pub(crate) fn wait_for_event(joined: &Joined, reason: &str, part: &str) {
    joined.api.wait_for(&format!("the event {reason}: {part}"), |world| {
        let events = world.list("/api/v1/events");
        events.iter().any(|event| event["reason"] == reason && event["message"].as_str().unwrap().contains(part))
    });
}

/// A condition of a node; null if the node has none of this type.
pub(crate) fn condition<'a>(node: &'a Value, kind: &str) -> &'a Value {
    let conditions = node["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    conditions.iter().find(|condition| condition["type"] == kind).unwrap_or(&Value::Null)
}
