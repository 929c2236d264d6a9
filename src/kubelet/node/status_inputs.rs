//! What happens to the node, for those who tell an API server of it: they wait for it here.

use std::cell::{Cell, RefCell};
use std::time::Instant;

use super::RuntimeHealth;
use crate::platform::rpc::Signal;
use crate::state::pods::{PressureCondition, RuntimeState};
use crate::types::api::{NodeAddress, ResourceList};

/// Shared by the sync loop, which tells, and the tasks that pass it on.
#[derive(Debug, Default)]
pub(crate) struct StatusInputs {
    pub(super) runtime: RefCell<RuntimeHealth>,
    /// Empty before the first look at what the node has left.
    pub(super) pressures: RefCell<Vec<PressureCondition>>,
    pub(super) shuts_down: Cell<bool>,
    /// What there is of devices, and what of it pods can get.
    pub(super) devices: RefCell<[ResourceList; 2]>,
    /// The volumes that controllers attach and that pods have or want, in order.
    pub(super) volumes_in_use: RefCell<Vec<String>>,
    /// Of the node's object; empty while there is none, or none is known.
    uid: RefCell<String>,
    /// What pods may ask of the node is known, so far as there is somebody who can tell it.
    heard: Cell<bool>,
    /// The server could not be asked, or did not answer as it should.
    away: Cell<bool>,
    /// As they stand in the node's object, or will; empty before they are known.
    addresses: RefCell<Vec<NodeAddress>>,
    pub(crate) addresses_changed: Signal,
    /// Of anything that is to be told of the node.
    pub(super) changed: Signal,
}

impl StatusInputs {
    pub(crate) fn runtime(&self, state: RuntimeState, now: Instant) {
        self.runtime.borrow_mut().note(state, now);
        self.changed.notify();
    }

    pub(crate) fn pressures(&self, conditions: Vec<PressureCondition>) {
        if *self.pressures.borrow() != conditions {
            self.pressures.replace(conditions);
            self.changed.notify();
        }
    }

    pub(crate) fn volumes_in_use(&self, names: Vec<String>) {
        if *self.volumes_in_use.borrow() != names {
            self.volumes_in_use.replace(names);
            self.changed.notify();
        }
    }

    pub(crate) fn devices(&self, amounts: [ResourceList; 2]) {
        if *self.devices.borrow() != amounts {
            self.devices.replace(amounts);
            self.changed.notify();
        }
    }

    pub(super) fn set_heard(&self) {
        if !self.heard.replace(true) {
            self.changed.notify();
        }
    }

    /// Waits until pods of the cluster can be asked whether they may be on the node.
    pub(crate) async fn heard(&self) {
        loop {
            let seen = self.changed.changes();
            if self.heard.get() {
                return;
            }
            self.changed.beyond(seen).await;
        }
    }

    pub(crate) fn is_heard(&self) -> bool {
        self.heard.get()
    }

    pub(super) fn set_away(&self) {
        if !self.away.replace(true) {
            self.changed.notify();
        }
    }

    /// Waits until asking for the node has failed for the first time.
    pub(crate) async fn away(&self) {
        loop {
            let seen = self.changed.changes();
            if self.away.get() {
                return;
            }
            self.changed.beyond(seen).await;
        }
    }

    pub(crate) fn shuts_down(&self, shuts_down: bool) {
        if self.shuts_down.replace(shuts_down) != shuts_down {
            self.changed.notify();
        }
    }

    pub(super) fn set_uid(&self, uid: &str) {
        if *self.uid.borrow() != uid {
            uid.clone_into(&mut self.uid.borrow_mut());
            self.changed.notify();
        }
    }

    pub(super) fn set_addresses(&self, addresses: Vec<NodeAddress>) {
        if *self.addresses.borrow() != addresses {
            self.addresses.replace(addresses);
            self.addresses_changed.notify();
        }
    }

    pub(crate) fn addresses(&self) -> Vec<NodeAddress> {
        self.addresses.borrow().clone()
    }

    pub(crate) fn uid(&self) -> String {
        self.uid.borrow().clone()
    }
}
