//! Shared inputs of the node status; tasks wait for changes here.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use super::status::{faults, readiness};
use super::{BoardHealth, BoardMoment, RuntimeHealth};
use crate::platform::rpc::Signal;
use crate::platform::rt;
use crate::state::pods::{NodeEvent, PressureCondition, RuntimeState};
use crate::types::api::{AgentSpec, Map, NodeAddress, Reason, ResourceList};
use crate::types::board::BoardReadings;

/// URL of the program that this node is to run. `{arch}` in it stands for the architecture.
pub(crate) const UPGRADE_ANNOTATION: &str = "coracle.dev/upgrade";

/// URL of the configuration that this node is to have.
pub(crate) const CONFIG_ANNOTATION: &str = "coracle.dev/config";

/// Condition of the node: the last trial of a program or configuration was accepted.
pub(crate) const UPGRADE_CONDITION: &str = "AgentUpgraded";

/// When the certificates end, by their kind.
pub(crate) const CERTIFICATE_ANNOTATIONS: [&str; 2] =
    ["coracle.dev/client-certificate-expires", "coracle.dev/serving-certificate-expires"];

/// Pods of the node that do not run the version of their manifest, and why; pods of the cluster that were rejected.
pub(crate) const HELD_ANNOTATION: &str = "coracle.dev/held";

/// How the node exchanges data with the cluster, unless it watches.
pub(crate) const SYNC_ANNOTATION: &str = "coracle.dev/sync";

/// Written by the sync loop and by the tasks that know the node's uid, addresses, board and wanted versions; read by the
/// tasks that report to the API server.
#[derive(Debug, Default)]
pub(crate) struct StatusInputs {
    pub(super) runtime: RefCell<RuntimeHealth>,
    /// Empty before the first node-pressure check.
    pub(super) pressures: RefCell<Vec<PressureCondition>>,
    /// Notified after each node-pressure check.
    pub(super) pressure_checks: Signal,
    pub(crate) board: RefCell<BoardHealth>,
    pub(super) shuts_down: Cell<bool>,
    /// Capacity and allocatable devices.
    pub(super) devices: RefCell<[ResourceList; 2]>,
    /// Controller-attached volumes that pods use or want, sorted.
    pub(super) volumes_in_use: RefCell<Vec<String>>,
    /// Uid of the Node object; empty while it does not exist or is not known.
    uid: RefCell<String>,
    /// The Node object is known, or there is none and this node does not create it.
    node_known: Cell<bool>,
    /// A request to the API server has failed at least once.
    away: Cell<bool>,
    /// The addresses in the Node object, or those about to be written; empty before they are known.
    addresses: RefCell<Vec<NodeAddress>>,
    /// A pod waits for the Node object to be read again.
    wants_read: Cell<bool>,
    /// Notified when the Node object has been read again, or could not be read.
    node_read: Signal,
    pub(crate) addresses_changed: Signal,
    pub(crate) uid_changed: Signal,
    /// The annotation [`UPGRADE_ANNOTATION`] of the Node object.
    wanted_upgrade: RefCell<String>,
    /// The annotation [`CONFIG_ANNOTATION`].
    wanted_config: RefCell<String>,
    /// The version of the agent that the manifests of the URL ask for.
    wanted_agent: RefCell<Option<Arc<AgentSpec>>>,
    /// Notified when one of the three has changed.
    pub(crate) wanted_upgrade_changed: Signal,
    /// Annotations with what the node reports of itself; see [`Self::report`].
    pub(super) reports: RefCell<Map<String>>,
    /// Notified on every change of the node status.
    pub(super) changed: Signal,
    /// Notified when a pod, or readiness or addresses of the node, may have changed.
    pods_or_addresses_changed: Signal,
}

/// What parts of the sync loop may ask. They change the inputs by `Effect::NodeStatus` alone.
#[derive(Clone)]
pub(crate) struct StatusView(Rc<StatusInputs>);

impl StatusView {
    pub(crate) fn new(inputs: &Rc<StatusInputs>) -> Self {
        Self(Rc::clone(inputs))
    }

    pub(crate) fn is_on_battery(&self) -> bool {
        self.0.board.borrow().readings().is_on_battery()
    }

    /// See [`StatusInputs::fresh_node`].
    pub(crate) async fn fresh_node(&self) {
        self.0.fresh_node().await;
    }
}

impl StatusInputs {
    pub(crate) fn set_runtime(&self, state: RuntimeState, now: Instant) {
        self.runtime.borrow_mut().note(state, now);
        self.changed.notify();
        self.pods_or_addresses_changed.notify();
    }

    /// A pod's status may have changed, or a pod is gone.
    pub(crate) fn pods_changed(&self) {
        self.pods_or_addresses_changed.notify();
    }

    pub(crate) fn pods_or_addresses_changes(&self) -> u64 {
        self.pods_or_addresses_changed.changes()
    }

    /// Waits until a pod, or readiness or addresses of the node, may have changed.
    pub(crate) async fn pods_or_addresses_beyond(&self, generation: u64) {
        let due = self.runtime.borrow().due(rt::now());
        let changed = self.pods_or_addresses_changed.beyond(generation);
        match due {
            Some(due) => rt::either(rt::sleep_until(due), changed).await,
            None => changed.await,
        }
    }

    /// Whether the condition `Ready` holds, its reason and its message.
    pub(crate) fn readiness(&self, now: Instant) -> (bool, Reason, String) {
        let faults = faults(&self.runtime.borrow(), self.shuts_down.get(), now);
        let (reason, message) = readiness(&faults);
        (faults.is_empty(), reason, message)
    }

    pub(crate) fn set_pressures(&self, conditions: Vec<PressureCondition>) {
        self.pressure_checks.notify();
        if *self.pressures.borrow() != conditions {
            self.pressures.replace(conditions);
            self.changed.notify();
        }
    }

    /// Takes readings of the board. Returns the events of what changed.
    pub(super) fn note_board(&self, readings: BoardReadings, board_times: &BoardMoment) -> Vec<NodeEvent> {
        let mut board = self.board.borrow_mut();
        let before = board.known_conditions().map(<[_]>::to_vec);
        let events = board.note(readings, board_times);
        if before.as_deref() != board.known_conditions() {
            self.changed.notify();
        }
        events
    }

    /// Sets an annotation of the Node object, which is written when it changes. An empty one is removed.
    pub(crate) fn report(&self, name: &str, value: &str) {
        if self.reports.borrow().get(name).is_none_or(|before| before != value) {
            self.reports.borrow_mut().insert(name, value.to_owned());
            self.changed.notify();
        }
    }

    pub(crate) fn set_volumes_in_use(&self, names: Vec<String>) {
        if *self.volumes_in_use.borrow() != names {
            self.volumes_in_use.replace(names);
            self.changed.notify();
        }
    }

    pub(crate) fn set_devices(&self, amounts: [ResourceList; 2]) {
        if *self.devices.borrow() != amounts {
            self.devices.replace(amounts);
            self.changed.notify();
        }
    }

    pub(super) fn set_node_known(&self) {
        if !self.node_known.replace(true) {
            self.changed.notify();
        }
    }

    /// Waits until admission of the cluster's pods is possible.
    pub(crate) async fn admission_is_possible(&self) {
        loop {
            let seen = self.changed.changes();
            if self.node_known.get() {
                return;
            }
            self.changed.beyond(seen).await;
        }
    }

    pub(crate) fn node_is_known(&self) -> bool {
        self.node_known.get()
    }

    pub(super) fn set_away(&self) {
        if !self.away.replace(true) {
            self.changed.notify();
        }
    }

    /// Waits for the first failed request to the API server.
    pub(crate) async fn away(&self) {
        loop {
            let seen = self.changed.changes();
            if self.away.get() {
                return;
            }
            self.changed.beyond(seen).await;
        }
    }

    /// Waits until the Node object has been read again, or the read has failed.
    pub(crate) async fn fresh_node(&self) {
        let seen = self.node_read.changes();
        self.wants_read.set(true);
        self.changed.notify();
        self.node_read.beyond(seen).await;
    }

    pub(crate) fn take_wanted_read(&self) -> bool {
        self.wants_read.take()
    }

    pub(crate) fn set_node_read(&self) {
        self.node_read.notify();
    }

    pub(crate) fn set_shuts_down(&self, shuts_down: bool) {
        if self.shuts_down.replace(shuts_down) != shuts_down {
            self.changed.notify();
            self.pods_or_addresses_changed.notify();
        }
    }

    pub(super) fn set_uid(&self, uid: &str) {
        if *self.uid.borrow() != uid {
            uid.clone_into(&mut self.uid.borrow_mut());
            self.uid_changed.notify();
            self.changed.notify();
        }
    }

    /// What the annotations ask for; empty for those that are not there.
    pub(super) fn set_wanted(&self, upgrade: &str, config: &str) {
        for (url, wanted) in [(upgrade, &self.wanted_upgrade), (config, &self.wanted_config)] {
            if *wanted.borrow() != url {
                url.clone_into(&mut wanted.borrow_mut());
                self.wanted_upgrade_changed.notify();
            }
        }
    }

    /// The URL of the configuration that this node is to have; empty if the cluster asks for none.
    pub(crate) fn wanted_config(&self) -> String {
        self.wanted_config.borrow().clone()
    }

    pub(crate) fn set_wanted_agent(&self, agent: Option<Arc<AgentSpec>>) {
        if *self.wanted_agent.borrow() != agent {
            self.wanted_agent.replace(agent);
            self.wanted_upgrade_changed.notify();
        }
    }

    pub(crate) fn wanted_agent(&self) -> Option<Arc<AgentSpec>> {
        self.wanted_agent.borrow().clone()
    }

    /// The URL of the program that this node is to run; empty if the cluster asks for none.
    pub(crate) fn wanted_upgrade(&self) -> String {
        self.wanted_upgrade.borrow().clone()
    }

    pub(super) fn set_addresses(&self, addresses: Vec<NodeAddress>) {
        if *self.addresses.borrow() != addresses {
            self.addresses.replace(addresses);
            self.addresses_changed.notify();
            self.pods_or_addresses_changed.notify();
        }
    }

    pub(crate) fn addresses(&self) -> Vec<NodeAddress> {
        self.addresses.borrow().clone()
    }

    pub(crate) fn uid(&self) -> String {
        self.uid.borrow().clone()
    }
}
