//! Registered DRA drivers, and calls to a driver.
//!
//! Several instances of a driver may be registered at once while it is updated. Calls go to the newest instance that has
//! a connection, or to the newest.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use super::DraManager;
use super::error::DraError;
use super::v1::{Claim, ClaimsRequest, PrepareResponse, UnprepareResponse};
use crate::platform::plugin_manager::{PluginInfo, Taker};
use crate::platform::rpc::{Client, Error};
use crate::platform::rt;
use crate::protocol::grpc::Code;
use crate::protocol::protobuf::{Message, decode, encode};
use crate::state::pods::SyncEvent;
use crate::types::metrics::{self, Timed};

pub(super) struct Plugin {
    pub(super) driver: String,
    pub(super) client: Client,
    socket: String,
    version: Version,
    pub(super) is_connected: Cell<bool>,
}

/// A registered plugin, and the task that follows its connection and health.
pub(super) struct Registered {
    plugin: Rc<Plugin>,
    #[expect(dead_code, reason = "dropping the task ends it")]
    follower: rt::Task<()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1,
    V1Beta1,
}

/// The services that the kubelet can call, as plugins name them.
pub(super) const SERVICES: [&str; 2] = ["v1.DRAPlugin", "v1beta1.DRAPlugin"];
pub(super) const PREPARE: &str = "NodePrepareResources";
pub(super) const UNPREPARE: &str = "NodeUnprepareResources";
/// Upstream's timeout of each call.
const ANSWER: Duration = Duration::from_secs(45);

impl Plugin {
    pub(super) async fn prepare(&self, claims: &[Claim]) -> Result<PrepareResponse, DraError> {
        let path = match self.version {
            Version::V1 => "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources",
            Version::V1Beta1 => "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodePrepareResources",
        };
        self.call(PREPARE, path, claims).await
    }

    pub(super) async fn unprepare(&self, claims: &[Claim]) -> Result<UnprepareResponse, DraError> {
        let path = match self.version {
            Version::V1 => "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources",
            Version::V1Beta1 => "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodeUnprepareResources",
        };
        self.call(UNPREPARE, path, claims).await
    }

    async fn call<M: Message + Default>(
        &self,
        method: &'static str,
        path: &'static str,
        claims: &[Claim],
    ) -> Result<M, DraError> {
        let begun = rt::now();
        let request = encode(&ClaimsRequest { claims: claims.to_vec() });
        let answer = self.client.unary(path, request, ANSWER).await;
        let code = match &answer {
            Ok(_) => Code::Ok,
            Err(Error::Status(status)) => status.code,
            Err(Error::DeadlineExceeded) => Code::DeadlineExceeded,
            Err(_) => Code::Unavailable,
        };
        metrics::took(Timed::DraGrpcOperations, &[&self.driver, path, &code.to_string()], rt::elapsed(begun));
        let answer = answer.and_then(|bytes| decode(&bytes).map_err(|_| Error::Protocol("malformed answer")));
        answer.map_err(|source| DraError::Call { method, source })
    }
}

/// The first service that the plugin lists and the kubelet can call.
fn version(services: &[String]) -> Result<Version, DraError> {
    if services.is_empty() {
        return Err(DraError::NoVersions);
    }
    let [v1, v1beta1] = SERVICES;
    let chosen = services.iter().find_map(|service| match service.as_str() {
        name if name == v1 => Some(Version::V1),
        name if name == v1beta1 => Some(Version::V1Beta1),
        _ => None,
    });
    chosen.ok_or_else(|| DraError::UnsupportedVersions { versions: services.to_vec() })
}

impl DraManager {
    /// The plugin watcher's handler for DRA drivers.
    pub(crate) fn taker(self: &Rc<Self>) -> Taker {
        let (takes, leaves) = (Rc::clone(self), Rc::clone(self));
        Taker {
            kind: "DRAPlugin",
            takes: Box::new(move |plugin| {
                let manager = Rc::clone(&takes);
                Box::pin(async move { Ok(manager.register(plugin).await?) })
            }),
            leaves: Box::new(move |plugin| leaves.deregister(plugin)),
        }
    }

    async fn register(self: &Rc<Self>, plugin: PluginInfo) -> Result<(), DraError> {
        let version = version(&plugin.supported_versions)?;
        let PluginInfo { name: driver, endpoint: socket, .. } = plugin;
        let client = Client::new(&socket);
        let plugin =
            Rc::new(Plugin { driver: driver.clone(), client, socket, version, is_connected: Cell::new(false) });
        let follower = rt::spawn(super::health::follow(Rc::clone(self), Rc::clone(&plugin)));
        self.add(driver, Registered { plugin, follower });
        self.changed.notify();
        // Pods that wait for the driver retry at once. The receiver is gone only at shutdown.
        let _ = self.inbox.send(SyncEvent::DevicesChanged).await;
        Ok(())
    }

    fn add(&self, driver: String, new: Registered) {
        let mut drivers = self.drivers.borrow_mut();
        let instances = drivers.entry(driver).or_default();
        instances.retain(|one| one.plugin.socket != new.plugin.socket);
        instances.push(new);
    }

    /// The plugin's socket was removed.
    fn deregister(&self, plugin: &PluginInfo) {
        let mut drivers = self.drivers.borrow_mut();
        let Some(instances) = drivers.get_mut(&plugin.name) else { return };
        instances.retain(|one| one.plugin.socket != plugin.endpoint);
        if instances.is_empty() {
            drivers.remove(&plugin.name);
            self.health.borrow_mut().forget(&plugin.name);
        }
        drop(drivers);
        self.changed.notify();
    }

    pub(super) fn plugin(&self, driver: &str) -> Result<Rc<Plugin>, DraError> {
        let drivers = self.drivers.borrow();
        let instances = drivers.get(driver).map_or(&[][..], Vec::as_slice);
        let connected = instances.iter().rev().find(|one| one.plugin.is_connected.get());
        let chosen = connected.or_else(|| instances.last()).map(|one| Rc::clone(&one.plugin));
        chosen.ok_or_else(|| DraError::NotRegistered { driver: driver.to_owned() })
    }

    /// Whether an instance of the driver is registered and has a connection.
    pub(super) fn is_usable(&self, driver: &str) -> bool {
        let drivers = self.drivers.borrow();
        drivers.get(driver).is_some_and(|instances| instances.iter().any(|one| one.plugin.is_connected.get()))
    }

    /// The names of the drivers that are registered.
    pub(super) fn registered(&self) -> Vec<String> {
        self.drivers.borrow().keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugin_chooses_among_the_services_that_the_kubelet_can_call() {
        let chosen = |services: &[&str]| {
            let services: Vec<String> = services.iter().map(|service| (*service).to_owned()).collect();
            version(&services).map_err(|error| error.to_string())
        };
        assert_eq!(chosen(&["v1beta1.DRAPlugin", "v1.DRAPlugin"]), Ok(Version::V1Beta1));
        assert_eq!(chosen(&["v2.DRAPlugin", "v1.DRAPlugin"]), Ok(Version::V1));
        let text = "none of services supported by the plugin ([\"1.0.0\"]) are supported by the kubelet \
                    ([\"v1.DRAPlugin\", \"v1beta1.DRAPlugin\"])";
        assert_eq!(chosen(&["1.0.0"]), Err(text.to_owned()));
        assert_eq!(chosen(&[]), Err("empty list of supported gRPC services (aka supported versions)".to_owned()));
    }
}
