//! Registered CSI drivers, and calls to a driver.

use std::rc::Rc;
use std::time::Duration;

use super::Csi;
use super::v1::{Empty, NodeGetCapabilitiesResponse, NodeGetInfoResponse};
use crate::platform::plugin_manager::{PluginInfo, Taker};
use crate::platform::rpc::{self, Client};
use crate::protocol::grpc::{Code, Status};
use crate::protocol::protobuf::{Message, decode_into, encode};
use crate::state::pods::SyncEvent;
use crate::types::error::ErrorChain;
use crate::types::sorted::SortedMap;

pub(super) struct Driver {
    client: Client,
    socket: String,
    pub(super) node_id: String,
    /// 0: unknown.
    pub(super) most_volumes: i64,
    pub(super) topology: SortedMap<String, String>,
    capabilities: Vec<i32>,
}

/// Expands to the path of a method.
macro_rules! method {
    ($method:literal) => {
        concat!("/csi.v1.Node/", $method)
    };
}
pub(super) use method;

/// Upstream's timeout of each call.
const ANSWER: Duration = Duration::from_secs(120);

impl Driver {
    #[cfg(test)]
    pub(super) fn named(node_id: &str, topology: &[(&str, &str)], most_volumes: i64) -> Self {
        let topology = topology.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let (client, node_id) = (Client::new("/nowhere"), node_id.to_owned());
        Self { client, socket: String::new(), node_id, most_volumes, topology, capabilities: Vec::new() }
    }

    pub(super) fn can(&self, capability: i32) -> bool {
        self.capabilities.contains(&capability)
    }

    /// Repeats NodeGetInfo; returns the driver with the new answer if it has changed.
    pub(super) async fn asked_again(&self) -> Result<Option<Self>, String> {
        let info = node_info(&self.client).await?;
        let topology = info.accessible_topology.unwrap_or_default().segments;
        if (&info.node_id, info.max_volumes_per_node, &topology) == (&self.node_id, self.most_volumes, &self.topology) {
            return Ok(None);
        }
        Ok(Some(Self {
            client: self.client.clone(),
            socket: self.socket.clone(),
            node_id: info.node_id,
            most_volumes: info.max_volumes_per_node,
            topology,
            capabilities: self.capabilities.clone(),
        }))
    }

    pub(super) async fn ask(
        &self,
        path: &'static str,
        request: Vec<u8>,
        answer: &mut dyn Message,
    ) -> Result<(), String> {
        ask(&self.client, path, request, answer).await
    }

    /// Like [`Self::ask`], for callers that need the error code.
    pub(super) async fn ask_for(
        &self,
        path: &'static str,
        request: Vec<u8>,
        answer: &mut dyn Message,
    ) -> Result<(), Refusal> {
        call(&self.client, path, request, answer).await
    }
}

pub(super) struct Refusal {
    /// The driver's status code, if it answered.
    pub(super) code: Option<Code>,
    /// The message in upstream's format.
    pub(super) text: String,
}

async fn node_info(client: &Client) -> Result<NodeGetInfoResponse, String> {
    let mut info = NodeGetInfoResponse::default();
    let asked = ask(client, method!("NodeGetInfo"), encode(&Empty {}), &mut info).await;
    asked.map_err(|why| format!("error during CSI NodeGetInfo() call: {why}"))?;
    if info.node_id.is_empty() {
        return Err("error adding CSI driver node info: driverNodeID must not be empty".to_owned());
    }
    Ok(info)
}

async fn ask(client: &Client, path: &'static str, request: Vec<u8>, answer: &mut dyn Message) -> Result<(), String> {
    call(client, path, request, answer).await.map_err(|refusal| refusal.text)
}

async fn call(client: &Client, path: &'static str, request: Vec<u8>, answer: &mut dyn Message) -> Result<(), Refusal> {
    let (code, text) = match client.unary(path, request, ANSWER).await {
        Ok(bytes) => match decode_into(answer, &bytes) {
            Ok(()) => return Ok(()),
            Err(error) => (None, format!("{path}: the answer cannot be read: {error}")),
        },
        Err(rpc::Error::Status(Status { code, message, .. })) => {
            (Some(code), format!("rpc error: code = {code} desc = {message}"))
        }
        Err(rpc::Error::DeadlineExceeded) => {
            (None, "rpc error: code = DeadlineExceeded desc = context deadline exceeded".to_owned())
        }
        Err(error) => (None, format!("rpc error: code = Unavailable desc = {}", ErrorChain(&error))),
    };
    Err(Refusal { code, text })
}

impl Csi {
    /// The plugin watcher's handler for CSI drivers.
    pub(crate) fn taker(self: &Rc<Self>) -> Taker {
        let (takes, leaves) = (Rc::clone(self), Rc::clone(self));
        Taker {
            kind: "CSIPlugin",
            takes: Box::new(move |plugin| {
                let csi = Rc::clone(&takes);
                Box::pin(async move { csi.take(plugin).await })
            }),
            leaves: Box::new(move |plugin| leaves.left(plugin)),
        }
    }

    async fn take(&self, plugin: PluginInfo) -> Result<(), String> {
        let PluginInfo { name, endpoint, supported_versions: versions, .. } = plugin;
        if !versions.iter().any(|version| version.trim_start_matches('v').split('.').next() == Some("1")) {
            return Err(format!(
                "plugin validation failed with err: CSI driver {name} has no version that is supported among {versions:?}: \
                 expected 1.x"
            ));
        }
        // The name is also used as a directory name.
        if name.is_empty() || name.len() > LONGEST_NAME || name.starts_with('.') || !name.bytes().all(is_of_name) {
            return Err(format!("plugin validation failed with err: {name:?} is not a valid CSI driver name"));
        }
        let failed = |why| format!("plugin registration failed with err: {why}");
        let client = Client::new(&endpoint);
        let info = node_info(&client).await.map_err(failed)?;
        let mut can = NodeGetCapabilitiesResponse::default();
        ask(&client, method!("NodeGetCapabilities"), encode(&Empty {}), &mut can)
            .await
            .map_err(|why| failed(format!("error during CSI NodeGetCapabilities() call: {why}")))?;
        let driver = Driver {
            client,
            socket: endpoint,
            node_id: info.node_id,
            most_volumes: info.max_volumes_per_node,
            topology: info.accessible_topology.unwrap_or_default().segments,
            capabilities: can.capabilities.into_iter().filter_map(|one| Some(one.rpc?.kind)).collect(),
        };
        self.drivers.borrow_mut().insert(name, Some(Rc::new(driver)));
        self.changed.notify();
        // The receiver is gone only at shutdown.
        let _ = self.inbox.send(SyncEvent::CsiDriversChanged).await;
        Ok(())
    }

    /// The driver's socket was removed.
    fn left(&self, plugin: &PluginInfo) {
        let mut drivers = self.drivers.borrow_mut();
        let Some(known) = drivers.get_mut(&plugin.name) else { return };
        if known.as_ref().is_some_and(|driver| driver.socket == plugin.endpoint) {
            *known = None;
            self.recurrences.borrow_mut().retain(|one| one.driver != plugin.name);
            self.changed.notify();
        }
    }

    pub(super) fn driver(&self, name: &str) -> Result<Rc<Driver>, String> {
        let drivers = self.drivers.borrow();
        let driver = drivers.get(name).and_then(Clone::clone);
        driver.ok_or_else(|| format!("driver name {name} not found in the list of registered CSI drivers"))
    }
}

fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.')
}

/// The limit in the CSI specification.
const LONGEST_NAME: usize = 63;
