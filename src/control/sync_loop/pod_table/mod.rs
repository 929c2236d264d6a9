//! The pods of the node: their workers, their observed state, and the node's decisions about them.
//!
//! Parts of the sync loop read the table and return effects. Only [`PodTable::apply`] admits and ends pods.

mod allocation;
mod apply;
mod event_dedup;
mod invariants;
mod node_reports;
mod observe;
mod status;
mod work;

use std::cell::{Ref, RefCell, RefMut};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_channel::Sender;

use crate::control::cluster::EventSender;
use crate::control::pleg::Pleg;
use crate::control::pod_workers::{PodWorkers, State, Worker};
use crate::control::sync_loop::NodeState;
use crate::kubelet::allocation::Allocations;
use crate::kubelet::kuberuntime::PodRuntime;
use crate::kubelet::logs::{LogLimits, LogManager};
use crate::kubelet::node::StatusInputs;
use crate::kubelet::probes::Probes;
use crate::kubelet::status::PodFailure;
use crate::platform::config::{Config, Gate};
use crate::state::pods::{ObservedCache, SyncEvent};
use crate::types::api::{Pod, PodUid};
use crate::types::sorted::{SortedMap, SortedSet};

use node_reports::NodeReports;

/// Longest delay of background work while pods are starting.
const PODS_FIRST: Duration = Duration::from_secs(10);

pub(super) struct PodTable {
    node_state: Rc<RefCell<NodeState>>,
    observed: Rc<RefCell<ObservedCache>>,
    runtime: Rc<PodRuntime>,
    allocations: Rc<Allocations>,
    workers: PodWorkers,
    probes: Probes,
    pleg: Pleg,
    logs: LogManager,
    reports: NodeReports,
    /// Why the node ended pods that their source still has.
    failed: SortedMap<PodUid, PodFailure>,
    /// Pods that have a place on the node.
    admitted: SortedSet<PodUid>,
    /// Pods whose status is recomputed in this round.
    dirty: SortedSet<PodUid>,
    /// Statuses have the health of devices.
    shows_device_health: bool,
    /// A relist has completed: a pod that the runtime did not list does not run.
    relisted: bool,
    /// A resize has completed: it may have freed resources.
    resized: bool,
    /// The pods must be reconciled with their sources.
    reconcile: bool,
}

impl PodTable {
    pub(super) fn new(
        config: &Config,
        runtime: Rc<PodRuntime>,
        workers: PodWorkers,
        node_state: Rc<RefCell<NodeState>>,
        inbox: Sender<SyncEvent>,
    ) -> Self {
        let limits = LogLimits {
            file_bytes: config.logs.max_bytes,
            files: config.logs.max_files,
            workers: config.logs.max_workers,
            interval: config.logs.monitor_interval,
        };
        Self {
            node_state,
            observed: runtime.seen(),
            workers,
            probes: Probes::new(runtime.cri(), runtime.dialer(), runtime.node.node_ips.clone(), inbox.clone()),
            pleg: Pleg::new(Rc::clone(&runtime), config.pods.sync_frequency, inbox),
            logs: LogManager::start(runtime.cri(), limits),
            allocations: runtime.allocations(),
            runtime,
            reports: NodeReports::default(),
            failed: SortedMap::new(),
            admitted: SortedSet::new(),
            dirty: SortedSet::new(),
            shows_device_health: config.gates.is_on(Gate::ResourceHealthStatus),
            relisted: false,
            resized: false,
            reconcile: false,
        }
    }

    pub(super) fn set_event_sender(&mut self, sender: Option<EventSender>) {
        self.reports.sender = sender;
    }

    pub(super) fn set_status_inputs(&mut self, inputs: Rc<StatusInputs>) {
        self.reports.status = inputs;
    }

    pub(super) fn runtime(&self) -> &Rc<PodRuntime> {
        &self.runtime
    }

    pub(super) fn workers(&self) -> &PodWorkers {
        &self.workers
    }

    pub(super) fn worker(&self, uid: &PodUid) -> Option<&Worker> {
        self.workers.worker(uid)
    }

    /// The pod's worker, unless the pod is ending.
    pub(super) fn syncing(&self, uid: &PodUid) -> Option<&Worker> {
        self.worker(uid).filter(|worker| worker.state == State::Sync)
    }

    /// The pod's worker has not stopped all of its containers.
    pub(super) fn may_run(&self, uid: &PodUid) -> bool {
        self.worker(uid).is_some_and(|worker| matches!(worker.state, State::Sync | State::Terminating { .. }))
    }

    pub(super) fn observed(&self) -> Ref<'_, ObservedCache> {
        self.observed.borrow()
    }

    pub(super) fn node_state(&self) -> Ref<'_, NodeState> {
        self.node_state.borrow()
    }

    /// For the parts of the node state that a part of the loop owns.
    pub(super) fn node_state_mut(&self) -> RefMut<'_, NodeState> {
        self.node_state.borrow_mut()
    }

    pub(super) fn shared_node_state(&self) -> Rc<RefCell<NodeState>> {
        Rc::clone(&self.node_state)
    }

    pub(super) fn failed(&self) -> impl Iterator<Item = (&PodUid, &PodFailure)> {
        self.failed.iter()
    }

    pub(super) fn is_admitted(&self, uid: &PodUid) -> bool {
        self.admitted.contains(uid)
    }

    pub(super) fn is_relisted(&self) -> bool {
        self.relisted
    }

    /// True once after `Effect::Reconcile`.
    pub(super) fn take_reconcile(&mut self) -> bool {
        std::mem::take(&mut self.reconcile)
    }

    /// True once after a resize has completed.
    pub(super) fn take_resized(&mut self) -> bool {
        std::mem::take(&mut self.resized)
    }

    pub(super) fn all_sources_ready(&self) -> bool {
        self.node_state.borrow().sources.all_ready()
    }

    /// Without the runtime every attempt would only count as a failure of the pod.
    pub(super) fn can_work(&self) -> bool {
        self.relisted && self.node_state.borrow().runtime.ready
    }

    /// Whether background work requested at `since` may start: no worker is busy, or the work has waited for
    /// [`PODS_FIRST`].
    pub(super) fn is_idle(&self, since: Instant, now: Instant) -> bool {
        let is_late = now.saturating_duration_since(since) >= PODS_FIRST;
        is_late || self.workers.iter().all(|worker| worker.busy.is_none())
    }

    /// The runtime lists the pod but has not reported its containers yet.
    pub(super) fn is_unknown(&self, uid: &PodUid) -> bool {
        self.workers.is_unseen(uid) && self.observed.borrow().pod(uid).is_none()
    }

    /// The pods whose specs match `refers`.
    pub(super) fn uids_where(&self, refers: impl Fn(&Pod) -> bool) -> Vec<PodUid> {
        let referring = self.workers.iter().filter(|worker| worker.pod.as_ref().is_some_and(|pod| refers(pod)));
        referring.map(|worker| worker.identity.uid.clone()).collect()
    }

    /// The pods whose images are needed: all that exist, and the versions that may run again.
    pub(super) fn pods_with_images(&self) -> Vec<Arc<Pod>> {
        let node_state = self.node_state.borrow();
        let pods = self.workers.iter().filter_map(|worker| worker.pod.as_ref());
        pods.chain(node_state.versions.kept()).map(Arc::clone).collect()
    }
}
