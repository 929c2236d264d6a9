//! Registered CSI drivers, and calls to a driver.

use std::rc::Rc;
use std::time::Duration;

use super::Csi;
use super::error::{CallError, CsiError};
use super::v1::{Empty, NodeGetCapabilitiesResponse, NodeGetInfoResponse};
use crate::platform::plugin_manager::{PluginHandler, PluginInfo};
use crate::platform::rpc::Client;
use crate::protocol::protobuf::{Message, decode_into, encode};
use crate::state::pods::SyncEvent;
use crate::types::sorted::SortedMap;

pub(super) struct Driver {
    client: Client,
    socket: String,
    pub(super) node_id: String,
    /// 0: unknown.
    pub(super) max_volumes: i64,
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
const CSI_CALL_TIMEOUT: Duration = Duration::from_secs(120);

impl Driver {
    #[cfg(test)]
    pub(super) fn named(node_id: &str, topology: &[(&str, &str)], max_volumes: i64) -> Self {
        let topology = topology.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let (client, node_id) = (Client::new("/nowhere"), node_id.to_owned());
        Self { client, socket: String::new(), node_id, max_volumes, topology, capabilities: Vec::new() }
    }

    pub(super) fn can(&self, capability: i32) -> bool {
        self.capabilities.contains(&capability)
    }

    /// Repeats NodeGetInfo; returns the driver with the new answer if it has changed.
    pub(super) async fn refreshed(&self) -> Result<Option<Self>, CsiError> {
        let info = node_info(&self.client).await?;
        let topology = info.accessible_topology.unwrap_or_default().segments;
        if (&info.node_id, info.max_volumes_per_node, &topology) == (&self.node_id, self.max_volumes, &self.topology) {
            return Ok(None);
        }
        Ok(Some(Self {
            client: self.client.clone(),
            socket: self.socket.clone(),
            node_id: info.node_id,
            max_volumes: info.max_volumes_per_node,
            topology,
            capabilities: self.capabilities.clone(),
        }))
    }

    pub(super) async fn call(
        &self,
        path: &'static str,
        request: Vec<u8>,
        response: &mut dyn Message,
    ) -> Result<(), CallError> {
        call(&self.client, path, request, response).await
    }
}

async fn node_info(client: &Client) -> Result<NodeGetInfoResponse, CsiError> {
    let mut info = NodeGetInfoResponse::default();
    let answered = call(client, method!("NodeGetInfo"), encode(&Empty {}), &mut info).await;
    answered.map_err(CsiError::from).map_err(CsiError::during("error during CSI NodeGetInfo() call"))?;
    if info.node_id.is_empty() {
        return Err(CsiError::NoNodeId);
    }
    Ok(info)
}

async fn call(
    client: &Client,
    path: &'static str,
    request: Vec<u8>,
    response: &mut dyn Message,
) -> Result<(), CallError> {
    let bytes = client.unary(path, request, CSI_CALL_TIMEOUT).await.map_err(CallError::Rpc)?;
    decode_into(response, &bytes).map_err(|source| CallError::Answer { path, source })
}

impl Csi {
    /// The plugin watcher's handler for CSI drivers.
    pub(crate) fn plugin_handler(self: &Rc<Self>) -> PluginHandler {
        let (registering, deregistering) = (Rc::clone(self), Rc::clone(self));
        PluginHandler {
            kind: "CSIPlugin",
            register: Box::new(move |plugin| {
                let csi = Rc::clone(&registering);
                Box::pin(async move { Ok(csi.take(plugin).await?) })
            }),
            deregister: Box::new(move |plugin| deregistering.remove(plugin)),
        }
    }

    async fn take(&self, plugin: PluginInfo) -> Result<(), CsiError> {
        let PluginInfo { name, endpoint, supported_versions: versions, .. } = plugin;
        if !versions.iter().any(|version| version.trim_start_matches('v').split('.').next() == Some("1")) {
            return Err(CsiError::UnsupportedVersions { driver: name, versions });
        }
        // The name is also used as a directory name.
        if name.is_empty()
            || name.len() > MAX_DRIVER_NAME_BYTES
            || name.starts_with('.')
            || !name.bytes().all(is_of_name)
        {
            return Err(CsiError::BadName { name });
        }
        let failed = CsiError::during("plugin registration failed with err");
        let client = Client::new(&endpoint);
        let info = node_info(&client).await.map_err(&failed)?;
        let mut can = NodeGetCapabilitiesResponse::default();
        let answered = call(&client, method!("NodeGetCapabilities"), encode(&Empty {}), &mut can).await;
        answered
            .map_err(CsiError::from)
            .map_err(CsiError::during("error during CSI NodeGetCapabilities() call"))
            .map_err(&failed)?;
        let driver = Driver {
            client,
            socket: endpoint,
            node_id: info.node_id,
            max_volumes: info.max_volumes_per_node,
            topology: info.accessible_topology.unwrap_or_default().segments,
            capabilities: can.capabilities.into_iter().filter_map(|capability| Some(capability.rpc?.kind)).collect(),
        };
        self.drivers.borrow_mut().insert(name, Some(Rc::new(driver)));
        self.changed.notify();
        // The receiver is gone only at shutdown.
        let _ = self.inbox.send(SyncEvent::CsiDriversChanged).await;
        Ok(())
    }

    /// The driver's socket was removed.
    fn remove(&self, plugin: &PluginInfo) {
        let mut drivers = self.drivers.borrow_mut();
        let Some(registration) = drivers.get_mut(&plugin.name) else { return };
        // A new instance may have registered at another socket before the former one's is removed.
        if registration.as_ref().is_some_and(|driver| driver.socket == plugin.endpoint) {
            *registration = None;
            self.recurrences.borrow_mut().retain(|update| update.driver != plugin.name);
            self.changed.notify();
        }
    }

    pub(super) fn driver(&self, name: &str) -> Result<Rc<Driver>, CsiError> {
        let drivers = self.drivers.borrow();
        let driver = drivers.get(name).and_then(Clone::clone);
        driver.ok_or_else(|| CsiError::NotRegistered { driver: name.to_owned() })
    }
}

fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.')
}

/// The limit in the CSI specification.
const MAX_DRIVER_NAME_BYTES: usize = 63;
