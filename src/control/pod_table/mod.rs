//! The pods of the node: their workers, their observed state, and the node's decisions about them.
//!
//! Parts of the sync loop read the table and return effects. Only [`PodTable::apply`] admits and ends pods.

mod adoption;
mod allocation;
mod apply;
mod effect;
mod event_dedup;
mod invariants;
mod node_reports;
mod observe;
mod records;
mod sources;
mod status;
#[cfg(test)]
pub(crate) mod testing;
mod unreplaced;
mod work;

use std::cell::{Ref, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use async_channel::Sender;

use crate::control::cluster::EventSender;
use crate::control::pleg::{Observer, Pleg};
use crate::control::pod_sources::merge::Sources;
use crate::control::pod_workers::{PodWorkers, State, Worker};
use crate::kubelet::allocation::Allocations;
use crate::kubelet::kuberuntime::PodRuntime;
use crate::kubelet::logs::{LogLimits, LogManager};
use crate::kubelet::node::{StatusInputs, StatusView};
use crate::kubelet::probes::Probes;
use crate::kubelet::status::{OwnCondition, PodFailure};
use crate::platform::config::{Config, Gate};
use crate::state::objects::Objects;
use crate::state::pods::{EventRing, NodeError, ObservedCache, SyncEvent};
use crate::types::api::{Pod, PodUid};
use crate::types::owned::{Owned, View};
use crate::types::sorted::{SortedMap, SortedSet};

pub(crate) use effect::{Effect, EndCause, EndPod, NodeStatusChange};
pub(crate) use records::PodRecords;

use node_reports::NodeReports;

/// Longest delay of background work while pods are starting.
const MAX_BACKGROUND_DELAY: Duration = Duration::from_secs(10);

pub(crate) struct PodTable {
    records: Owned<PodRecords>,
    observed: Owned<ObservedCache>,
    runtime: Rc<PodRuntime>,
    /// The objects that pods refer to.
    objects: View<Objects>,
    allocations: Rc<Allocations>,
    workers: PodWorkers,
    probes: Probes,
    pleg: Pleg,
    logs: LogManager,
    reports: NodeReports,
    /// Why the node ended pods that their source still has.
    failed: SortedMap<PodUid, PodFailure>,
    /// Conditions that upstream does not have.
    own_conditions: SortedMap<PodUid, Vec<OwnCondition>>,
    /// Pods that have a place on the node.
    admitted: SortedSet<PodUid>,
    /// Pods whose status is recomputed in this round.
    dirty: SortedSet<PodUid>,
    /// Statuses have the health of devices.
    shows_device_health: bool,
    /// And the message of their driver.
    shows_health_messages: bool,
    /// Statuses have the condition `PodReadyToStartContainers`.
    shows_sandbox: bool,
    /// A relist has completed: a pod that the runtime did not list does not run.
    relisted: bool,
    /// A resize has completed: it may have freed resources.
    resized: bool,
    /// The pods must be reconciled with their sources.
    reconcile: bool,
    /// Errors for the local socket.
    errors: Vec<NodeError>,
}

/// What the pod table owns and reads from the start.
pub(crate) struct PodInputs {
    pub(crate) sources: Sources,
    pub(crate) observed: Owned<ObservedCache>,
    pub(crate) objects: View<Objects>,
}

impl PodTable {
    pub(crate) fn new(
        config: &Config,
        runtime: Rc<PodRuntime>,
        workers: PodWorkers,
        of_pods: PodInputs,
        inbox: Sender<SyncEvent>,
    ) -> Self {
        let PodInputs { sources, observed, objects } = of_pods;
        let observer = Observer { runtime: Rc::clone(&runtime), observed: observed.view() };
        let limits = LogLimits {
            file_bytes: config.logs.max_bytes,
            files: config.logs.max_files,
            workers: config.logs.max_workers,
            interval: config.logs.monitor_interval,
        };
        Self {
            records: Owned::new(PodRecords::new(sources)),
            workers,
            probes: Probes::new(runtime.cri(), runtime.dialer(), runtime.node.node_ips.clone(), inbox.clone()),
            pleg: Pleg::new(observer, config.pods.sync_frequency, inbox),
            observed,
            objects,
            logs: LogManager::start(runtime.cri(), limits),
            allocations: runtime.allocations(),
            runtime,
            reports: NodeReports::default(),
            failed: SortedMap::new(),
            own_conditions: SortedMap::new(),
            admitted: SortedSet::new(),
            dirty: SortedSet::new(),
            shows_device_health: config.gates.is_on(Gate::ResourceHealthStatus),
            shows_health_messages: config.gates.is_on(Gate::ResourceHealthStatusMessage),
            shows_sandbox: config.gates.is_on(Gate::PodReadyToStartContainersCondition),
            relisted: false,
            resized: false,
            reconcile: false,
            errors: Vec::new(),
        }
    }

    /// Records events in this ring. `sender` sends them to the API server; `None` without a cluster.
    pub(crate) fn set_events(&mut self, ring: Rc<RefCell<EventRing>>, sender: Option<EventSender>) {
        self.reports.events = ring;
        self.reports.sender = sender;
    }

    pub(crate) fn set_status_inputs(&mut self, inputs: Rc<StatusInputs>) {
        self.reports.status = inputs;
    }

    pub(crate) fn status_view(&self) -> StatusView {
        StatusView::new(&self.reports.status)
    }

    pub(crate) fn runtime(&self) -> &Rc<PodRuntime> {
        &self.runtime
    }

    pub(crate) fn workers(&self) -> &PodWorkers {
        &self.workers
    }

    pub(crate) fn worker(&self, uid: &PodUid) -> Option<&Worker> {
        self.workers.worker(uid)
    }

    /// The pod's worker, unless the pod is ending.
    pub(crate) fn syncing(&self, uid: &PodUid) -> Option<&Worker> {
        self.worker(uid).filter(|worker| worker.state == State::Sync)
    }

    /// The pod's worker has not stopped all of its containers.
    pub(crate) fn may_run(&self, uid: &PodUid) -> bool {
        self.worker(uid).is_some_and(|worker| matches!(worker.state, State::Sync | State::Terminating { .. }))
    }

    pub(crate) fn observed(&self) -> Ref<'_, ObservedCache> {
        self.observed.read()
    }

    pub(crate) fn observed_view(&self) -> View<ObservedCache> {
        self.observed.view()
    }

    pub(crate) fn records(&self) -> Ref<'_, PodRecords> {
        self.records.read()
    }

    pub(crate) fn view(&self) -> View<PodRecords> {
        self.records.view()
    }

    pub(crate) fn failed(&self) -> impl Iterator<Item = (&PodUid, &PodFailure)> {
        self.failed.iter()
    }

    /// The static pods that admission rejected, and whose workers have ended them.
    pub(crate) fn rejected_static_pods(&self) -> Vec<PodUid> {
        let rejected = self.failed.iter().filter(|(_, failure)| failure.is_rejection()).map(|(uid, _)| uid);
        let has_ended = |uid: &&PodUid| {
            self.worker(uid).is_some_and(|worker| {
                worker.wanted
                    && worker.state == State::Finished
                    && worker.successor.is_none()
                    && worker.pod.as_ref().is_some_and(|pod| pod.is_static())
            })
        };
        rejected.filter(has_ended).cloned().collect()
    }

    pub(crate) fn is_admitted(&self, uid: &PodUid) -> bool {
        self.admitted.contains(uid)
    }

    pub(crate) fn is_relisted(&self) -> bool {
        self.relisted
    }

    /// True once after `Effect::Reconcile`.
    pub(crate) fn take_reconcile(&mut self) -> bool {
        std::mem::take(&mut self.reconcile)
    }

    /// The errors since the last call.
    pub(crate) fn take_errors(&mut self) -> Vec<NodeError> {
        std::mem::take(&mut self.errors)
    }

    /// True once after a resize has completed.
    pub(crate) fn take_resized(&mut self) -> bool {
        std::mem::take(&mut self.resized)
    }

    pub(crate) fn all_sources_ready(&self) -> bool {
        self.records.read().sources.all_ready()
    }

    /// A worker has the pod, or a source that cannot read it.
    pub(crate) fn knows(&self, uid: &PodUid) -> bool {
        self.workers.worker(uid).is_some() || self.records.read().sources.unread().any(|unread| unread == uid)
    }

    /// The pods that [`Self::knows`], and those of which the runtime has reported only the name.
    pub(crate) fn known_uids(&self) -> Vec<PodUid> {
        self.workers.uids().chain(self.records.read().sources.unread()).cloned().collect()
    }

    /// Without the runtime every attempt would only count as a failure of the pod.
    pub(crate) fn can_work(&self) -> bool {
        self.relisted && self.records.read().runtime.ready
    }

    /// Whether background work requested at `since` may start: no worker is busy, or the work has waited for
    /// [`MAX_BACKGROUND_DELAY`].
    pub(crate) fn is_idle(&self, since: Instant, now: Instant) -> bool {
        let is_late = now.saturating_duration_since(since) >= MAX_BACKGROUND_DELAY;
        is_late || self.workers.iter().all(|worker| worker.busy.is_none())
    }

    /// The runtime lists the pod but has not reported its containers yet.
    pub(crate) fn is_unknown(&self, uid: &PodUid) -> bool {
        self.workers.is_unseen(uid) && self.observed.read().pod(uid).is_none()
    }

    /// The pods whose specs match `refers`.
    pub(crate) fn uids_where(&self, refers: impl Fn(&Pod) -> bool) -> Vec<PodUid> {
        let referring = self.workers.iter().filter(|worker| worker.pod.as_ref().is_some_and(|pod| refers(pod)));
        referring.map(|worker| worker.identity.uid.clone()).collect()
    }
}
