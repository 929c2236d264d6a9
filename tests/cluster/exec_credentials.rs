//! A kubeconfig whose user's credential is that of an exec plugin.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use super::joined::{Joined, LEASE, NODE, condition};
use super::node::{Manifest, NODE_NAME};
use crate::fake_api::certificates::Validity;
use crate::fake_api::identity::Identity;
use crate::fake_api::kubeconfig::Credentials;

const VERSION: &str = "client.authentication.k8s.io/v1";

/// A plugin that notes what it is told, and returns what `answer` has: a response, or nothing and a failure.
struct Plugin {
    folder: PathBuf,
}

impl Plugin {
    fn new(folder: &Path) -> Self {
        let plugin = Self { folder: folder.join("plugin") };
        fs::create_dir_all(&plugin.folder).unwrap();
        let script = "#!/bin/sh\ncd \"${0%/*}\" || exit 9\nprintf '%s\\n' \"$KUBERNETES_EXEC_INFO $1 $GREETING\" >>asked\n\
                      cat answer || { echo 'no answer today' >&2; exit 3; }\n";
        fs::write(plugin.folder.join("login"), script).unwrap();
        fs::set_permissions(plugin.folder.join("login"), fs::Permissions::from_mode(0o755)).unwrap();
        plugin
    }

    fn answer(&self, status: &Value) {
        let answer = json!({"kind": "ExecCredential", "apiVersion": VERSION, "status": status});
        fs::write(self.folder.join("new"), answer.to_string()).unwrap();
        fs::rename(self.folder.join("new"), self.folder.join("answer")).unwrap();
    }

    fn asked(&self) -> Vec<String> {
        let text = fs::read_to_string(self.folder.join("asked")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

/// Starts a node whose kubeconfig has the plugin.
fn start(joined: &mut Joined) {
    let kubeconfig = joined.api.kubeconfig(joined.node.folder(), &Credentials::Token("x".to_owned()));
    let exec = format!(
        "    exec:\n      apiVersion: {VERSION}\n      command: ./plugin/login\n      args: [token]\n      \
         env: [{{name: GREETING, value: hello}}]\n      interactiveMode: Never\n      provideClusterInfo: true\n"
    );
    let text = fs::read_to_string(&kubeconfig).unwrap().replace("    token: x\n", &exec);
    fs::write(&kubeconfig, text).unwrap();
    joined.node.configure("runtimeRequestTimeout: 1s\nimageGCHighThresholdPercent: 100\nevictionHard: {}\n");
    joined.node.start_agent_with(|command| {
        command.arg("--kubeconfig").arg(kubeconfig).arg("--make-iptables-util-chains=false");
    });
}

#[test]
fn plugin_is_told_about_the_cluster_and_asked_once() {
    let mut joined = Joined::new();
    joined.api.add_token("first", &Identity::node(NODE_NAME));
    let plugin = Plugin::new(joined.node.folder());
    plugin.answer(&json!({"token": "first"}));
    start(&mut joined);
    joined.wait_until_ready();
    joined.api.go_away();
    joined.api.wait_for_requests("PATCH", LEASE, 1);
    let asked = plugin.asked();
    let [line] = asked.as_slice() else { panic!("{asked:?}") };
    let info = line.strip_suffix(" token hello").unwrap();
    let info: Value = serde_json::from_str(info).unwrap();
    assert_eq!((&info["kind"], &info["apiVersion"]), (&json!("ExecCredential"), &json!(VERSION)));
    assert_eq!(info["spec"]["interactive"], false);
    assert_eq!(info["spec"]["cluster"]["server"], json!(joined.api.url()));
    assert!(info["spec"]["cluster"]["certificate-authority-data"].is_string(), "{info}");
}

#[test]
fn plugin_may_return_a_client_certificate() {
    let mut joined = Joined::new();
    let plugin = Plugin::new(joined.node.folder());
    let now = joined.api.look(|world| world.now());
    let certified = joined.api.client_certificate(&Identity::node(NODE_NAME), Validity::a_day(now));
    let (certificate, key) = (certified.certificate_pem(), certified.key_pem());
    plugin.answer(&json!({"clientCertificateData": certificate, "clientKeyData": key}));
    start(&mut joined);
    joined.wait_until_ready();
}

#[test]
fn expiring_token_is_replaced_without_a_new_connection() {
    let mut joined = Joined::new();
    for token in ["first", "second"] {
        joined.api.add_token(token, &Identity::node(NODE_NAME));
    }
    let plugin = Plugin::new(joined.node.folder());
    plugin.answer(&json!({"token": "first", "expirationTimestamp": "2026-01-01T00:00:00Z"}));
    start(&mut joined);
    joined.wait_until_ready();
    let connections = joined.api.connections_so_far();
    plugin.answer(&json!({"token": "second"}));
    joined.node.wait_until("the plugin to be asked again", |_| plugin.asked().len() == 2);
    joined.api.remove_token("first");
    let renewals = joined.api.count("PATCH", LEASE);
    joined.api.wait_for_requests("PATCH", LEASE, renewals + 1);
    assert_eq!((joined.api.connections_so_far(), plugin.asked().len()), (connections, 2));
}

#[test]
fn refused_token_is_replaced() {
    let mut joined = Joined::new();
    joined.api.add_token("second", &Identity::node(NODE_NAME));
    let plugin = Plugin::new(joined.node.folder());
    plugin.answer(&json!({"token": "first"}));
    start(&mut joined);
    joined.node.wait_until("the plugin to be asked", |_| !plugin.asked().is_empty());
    plugin.answer(&json!({"token": "second"}));
    wait_for_next_list(&joined);
}

#[test]
fn failing_plugin_keeps_no_static_pod_from_running() {
    let mut joined = Joined::new();
    joined.api.add_token("first", &Identity::node(NODE_NAME));
    let plugin = Plugin::new(joined.node.folder());
    joined.node.apply(&Manifest::new("web").container("main", ""));
    start(&mut joined);
    joined.node.wait_until_ready("web");
    let message = || joined.node.status()["apiServer"]["message"].as_str().unwrap_or_default().to_owned();
    joined.node.wait_until("the plugin's error", |_| message().contains("no answer today"));
    assert!(message().contains("/plugin/login failed with exit status: 3"), "{}", message());
    plugin.answer(&json!({"token": "first"}));
    wait_for_next_list(&joined);
}

/// The node is ready after its next list, which is tried again after up to 30 s, and by chance up to twice that.
#[track_caller]
fn wait_for_next_list(joined: &Joined) {
    let is_ready = |node: &Value| condition(node, "Ready")["status"] == "True";
    joined.api.wait_within(Duration::from_secs(90), NODE, "the node to be ready", is_ready);
}
