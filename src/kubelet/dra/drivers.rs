//! The registered plugins of DRA drivers.
//!
//! Several instances of a driver may be registered at once while it is updated. Calls go to the newest instance that has
//! a connection, or to the newest.

use std::cell::Cell;
use std::rc::Rc;

use super::DraManager;
use super::error::DraError;
use super::health;
use super::plugin::{Plugin, version};
use crate::platform::plugin_manager::{PluginHandler, PluginInfo};
use crate::platform::rpc::Client;
use crate::platform::rt;
use crate::state::objects::DEVICE_FILES_DRIVER;
use crate::state::pods::SyncEvent;

/// A registered plugin, and the task that follows its connection and health.
pub(super) struct RegisteredPlugin {
    plugin: Rc<Plugin>,
    #[expect(dead_code, reason = "dropping the task ends it")]
    follower: rt::Task<()>,
}

impl DraManager {
    /// The plugin watcher's handler for DRA drivers.
    pub(crate) fn plugin_handler(self: &Rc<Self>) -> PluginHandler {
        let (registering, deregistering) = (Rc::clone(self), Rc::clone(self));
        PluginHandler {
            kind: "DRAPlugin",
            register: Box::new(move |plugin| {
                let manager = Rc::clone(&registering);
                Box::pin(async move { Ok(manager.register(plugin).await?) })
            }),
            deregister: Box::new(move |plugin| deregistering.deregister(plugin)),
        }
    }

    async fn register(self: &Rc<Self>, plugin: PluginInfo) -> Result<(), DraError> {
        let version = version(&plugin.supported_versions)?;
        let PluginInfo { name: driver, endpoint: socket, .. } = plugin;
        if driver == DEVICE_FILES_DRIVER {
            return Err(DraError::OwnDriver);
        }
        let client = Client::new(&socket);
        let (driver_name, socket, is_connected) = (driver.clone(), socket.into(), Cell::new(false));
        let calls = Rc::clone(&self.calls);
        let plugin = Rc::new(Plugin { driver: driver_name, client, socket, version, is_connected, calls });
        let follower = rt::spawn(health::follow(Rc::clone(self), Rc::clone(&plugin)));
        self.add(driver, RegisteredPlugin { plugin, follower });
        self.changed.notify();
        // Pods that wait for the driver retry at once. The receiver is gone only at shutdown.
        let _ = self.inbox.send(SyncEvent::DevicesChanged).await;
        Ok(())
    }

    fn add(&self, driver: String, new: RegisteredPlugin) {
        let mut drivers = self.drivers.borrow_mut();
        let instances = drivers.entry(driver).or_default();
        instances.retain(|instance| instance.plugin.socket != new.plugin.socket);
        instances.push(new);
    }

    /// The plugin's socket was removed.
    fn deregister(&self, plugin: &PluginInfo) {
        let mut drivers = self.drivers.borrow_mut();
        let Some(instances) = drivers.get_mut(&plugin.name) else { return };
        instances.retain(|instance| *instance.plugin.socket != *plugin.endpoint);
        if instances.is_empty() {
            drivers.remove(&plugin.name);
        }
        drop(drivers);
        self.health.borrow_mut().forget(&plugin.name, &plugin.endpoint);
        self.changed.notify();
    }

    pub(super) fn plugin(&self, driver: &str) -> Result<Rc<Plugin>, DraError> {
        let drivers = self.drivers.borrow();
        let instances = drivers.get(driver).map_or(&[][..], Vec::as_slice);
        let connected = instances.iter().rev().find(|instance| instance.plugin.is_connected.get());
        let chosen = connected.or_else(|| instances.last()).map(|instance| Rc::clone(&instance.plugin));
        chosen.ok_or_else(|| DraError::NotRegistered { driver: driver.to_owned() })
    }

    /// Whether an instance of the driver is registered and has a connection.
    pub(super) fn is_usable(&self, driver: &str) -> bool {
        if driver == DEVICE_FILES_DRIVER {
            return self.devices.has_rules();
        }
        let drivers = self.drivers.borrow();
        drivers.get(driver).is_some_and(|instances| instances.iter().any(|instance| instance.plugin.is_connected.get()))
    }

    /// The names of the drivers that are registered.
    pub(super) fn registered(&self) -> Vec<String> {
        self.drivers.borrow().keys().cloned().collect()
    }
}
