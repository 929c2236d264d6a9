//! The eviction manager: schedules node pressure checks, and evicts pods.
//!
//! Far from every threshold a check follows each relist, without a timer. Near a threshold a check runs every ten
//! seconds, as upstream's always does, and at once when the kernel reports a memory stall.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_channel::Sender;

use super::pressure_check::{Memory, PressureCheck};
use crate::control::eviction::{Candidate, Starved};
use crate::control::pod_table::{Effect, EndCause, EndPod, NodeStatusChange, PodTable};
use crate::control::pod_workers::{State, Worker};
use crate::control::versions::{PodVersions, UpdateLocks};
use crate::kubelet::admission::{Rejection, check_pressure};
use crate::kubelet::status::PodFailure;
use crate::platform::config::Eviction;
use crate::platform::host::clock;
use crate::platform::host::memory_pressure::{MEMORY_PRESSURE_FILE, MemoryStalls};
use crate::platform::rt;
use crate::state::pods::{NodePressures, PodEvent, PodEviction, PressureObservation, SyncEvent};
use crate::types::api::{EventKind, Pod, PodUid, Reason};
use crate::types::error::ErrorChain;
use crate::types::metrics::{self, Count};
use crate::types::owned::{Owned, View};

/// Upstream's monitoring interval.
const EVICTION_MONITORING_INTERVAL: Duration = Duration::from_secs(10);
/// Longest wait for an evicted pod to end before the next eviction.
const EVICTION_CLEANUP_TIMEOUT: Duration = Duration::from_secs(30);
/// Wait for the removal of dead containers before the next check.
const CONTAINER_REMOVAL_WAIT: Duration = Duration::from_secs(2);
/// Shortest time between two reported memory stalls.
const STALL_REPORT_INTERVAL: Duration = Duration::from_secs(2);

pub(crate) struct EvictionManager {
    settings: Rc<Eviction>,
    pressures: Owned<NodePressures>,
    memory: Rc<RefCell<Memory>>,
    inbox: Sender<SyncEvent>,
    task: Option<rt::Task<()>>,
    /// The next check that no relist triggers.
    due: Option<Instant>,
    check_requested: bool,
    /// The kernel reports memory stalls, or no threshold concerns memory.
    watches_memory: bool,
    /// Evicted pods, and how long the next eviction waits for their end.
    leaving: Option<(Vec<PodUid>, Instant)>,
    #[expect(dead_code, reason = "dropping the task ends it")]
    stalls: Option<rt::Task<()>>,
}

impl EvictionManager {
    pub(crate) fn new(settings: &Eviction, inbox: Sender<SyncEvent>) -> Self {
        let has_memory = settings.thresholds.iter().any(|t| Starved::of(t.signal) == Starved::Memory);
        let stalls = if has_memory { MemoryStalls::watch(Path::new(MEMORY_PRESSURE_FILE)).ok() } else { None };
        if has_memory && stalls.is_none() {
            log!(info, "kernel reports no memory stalls, checking memory every ten seconds near a threshold");
        }
        Self {
            settings: Rc::new(settings.clone()),
            pressures: Owned::default(),
            memory: Rc::default(),
            inbox: inbox.clone(),
            task: None,
            due: None,
            check_requested: false,
            watches_memory: !has_memory || stalls.is_some(),
            leaving: None,
            stalls: stalls.map(|stalls| rt::spawn(follow(stalls, inbox))),
        }
    }

    /// Checks follow the relists, so that a node at rest needs no timer for them.
    pub(crate) fn on_relisted(&mut self) {
        self.check_requested = true;
    }

    pub(crate) fn on_memory_stalled(&mut self) {
        self.check_requested = true;
    }

    pub(crate) fn pressures(&self) -> View<NodePressures> {
        self.pressures.view()
    }

    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether pods are held to their own local storage limits.
    pub(crate) fn limits_storage(&self) -> bool {
        self.settings.local_storage
    }

    /// No evicted pod is still ending.
    pub(crate) fn is_settled(&self) -> bool {
        self.leaving.is_none()
    }

    fn is_on(&self) -> bool {
        !self.settings.thresholds.is_empty() || self.settings.local_storage
    }

    fn is_busy(&self) -> bool {
        self.task.as_ref().is_some_and(|task| !task.is_finished())
    }

    fn is_spared(&self, pod: &Pod) -> bool {
        pod.is_spared(self.settings.static_pods)
    }

    pub(crate) fn round(&mut self, pods: &PodTable, versions: &PodVersions, locks: &UpdateLocks, now: Instant) {
        if self.due.is_some_and(|due| due <= now) {
            self.due = None;
            self.check_requested = true;
        }
        // The evicted pods take up the resource until they have ended: a check before that would evict further ones.
        if let Some((leaving, until)) = &self.leaving {
            let is_here =
                |uid: &PodUid| pods.worker(uid).is_some_and(|worker| worker.wanted && worker.state != State::Finished);
            if *until > now && leaving.iter().any(is_here) {
                return;
            }
            self.leaving = None;
            self.check_requested = true;
        }
        if self.check_requested && !self.is_busy() && self.is_on() && pods.can_work() {
            self.check_requested = false;
            self.begin(pods, versions, locks);
        }
    }

    fn begin(&mut self, pods: &PodTable, versions: &PodVersions, locks: &UpdateLocks) {
        let check = PressureCheck {
            settings: Rc::clone(&self.settings),
            memory: Rc::clone(&self.memory),
            runtime: Rc::clone(pods.runtime()),
            candidates: self.candidates(pods),
            held: locks.checks(pods),
            has_dead: has_dead(pods),
            // A source that is not ready may have a pod for any image.
            pods: pods.all_sources_ready().then(|| versions.pods_with_images(pods)),
        };
        let inbox = self.inbox.clone();
        self.task = Some(rt::spawn(async move {
            // The loop outlives its tasks.
            let _ = inbox.send(SyncEvent::PressureChecked(check.run().await)).await;
        }));
    }

    /// Running pods that may be evicted.
    pub(crate) fn candidates(&self, pods: &PodTable) -> Vec<Candidate> {
        let seen = pods.observed();
        let candidate = |worker: &Worker| {
            let pod = worker.pod.as_ref().filter(|_| worker.state == State::Sync && worker.wanted)?;
            let observed = seen.pod(&pod.metadata.uid).filter(|observed| !observed.is_gone())?;
            (!self.is_spared(pod)).then(|| Candidate {
                pod: Arc::clone(pod),
                observed: Rc::clone(observed),
                claims: pods.writable_claims(pod),
            })
        };
        pods.workers().iter().filter_map(candidate).collect()
    }

    /// A check has completed.
    pub(crate) fn on_observation(
        &mut self,
        observation: PressureObservation,
        pods: &PodTable,
        now: Instant,
    ) -> Vec<Effect> {
        let (changed, conditions) = {
            let mut pressures = self.pressures.write();
            let changed = pressures.set(&observation.pressures, &pods.runtime().node.node_name, clock::now());
            (changed, pressures.conditions().collect())
        };
        let mut effects = vec![Effect::NodeStatus(NodeStatusChange::Pressures(conditions))];
        effects.extend(changed.into_iter().chain(observation.events).map(Effect::RecordNode));
        let is_calm = observation.pressures.is_empty() && !observation.is_close && self.watches_memory;
        self.due = (!is_calm).then(|| now + EVICTION_MONITORING_INTERVAL);
        if observation.wants_dead && pods.workers().can_give_back(&pods.observed()) {
            effects.push(Effect::RemoveDeadContainers);
            self.due = Some(now + CONTAINER_REMOVAL_WAIT);
        }
        effects.extend(self.on_evictions(observation.evictions, pods, now));
        effects
    }

    /// Ends the chosen pods that are still running. No check ends others until these have ended.
    pub(crate) fn on_evictions(&mut self, evictions: Vec<PodEviction>, pods: &PodTable, now: Instant) -> Vec<Effect> {
        let runs = |eviction: &PodEviction| pods.syncing(&eviction.uid).is_some_and(|worker| worker.wanted);
        let counted = |eviction: &PodEviction| metrics::count(Count::Evictions, &[eviction.signal]);
        let ends: Vec<EndPod> = evictions.into_iter().filter(runs).inspect(counted).map(evict).collect();
        if !ends.is_empty() {
            self.due = Some(now + EVICTION_CLEANUP_TIMEOUT);
            self.leaving = Some((ends.iter().map(|end| end.uid.clone()).collect(), now + EVICTION_CLEANUP_TIMEOUT));
        }
        ends.into_iter().map(Effect::End).collect()
    }

    /// Under pressure the node admits no pod that it would have to evict. Running pods were already admitted.
    pub(crate) fn admits(&self, pod: &Pod, pods: &PodTable) -> Result<(), Rejection> {
        if pods.observed().pod(&pod.metadata.uid).is_some_and(|observed| !observed.is_gone()) {
            return Ok(());
        }
        self.admits_growth(pod)
    }

    /// Whether a running pod may get more resources.
    pub(crate) fn admits_growth(&self, pod: &Pod) -> Result<(), Rejection> {
        check_pressure(pod, &self.pressures.read().active(), self.is_spared(pod))
    }
}

fn evict(PodEviction { uid, message, grace, is_disruption, .. }: PodEviction) -> EndPod {
    let event = PodEvent::of_pod(&uid, EventKind::Warning, Reason::EVICTED, message.as_str());
    let disruption = is_disruption.then(|| message.clone().into());
    let failed = PodFailure { reason: Reason::EVICTED, message: message.into(), disruption };
    EndPod { uid, cause: EndCause::Evicted, failed, grace, event: Some(event) }
}

fn has_dead(pods: &PodTable) -> bool {
    let seen = pods.observed();
    let finished = pods.workers().iter().filter(|worker| worker.can_give_back());
    finished.into_iter().any(|worker| seen.pod(&worker.identity.uid).is_some_and(|pod| !pod.containers.is_empty()))
}

/// Reports each memory stall to the sync loop.
async fn follow(stalls: MemoryStalls, inbox: Sender<SyncEvent>) {
    loop {
        if let Err(error) = stalls.happened().await {
            log!(warn, "failed to watch memory stalls", error = ErrorChain(&error));
            return;
        }
        log!(debug, "processes wait for memory");
        if inbox.send(SyncEvent::MemoryStalled).await.is_err() {
            return;
        }
        rt::sleep(STALL_REPORT_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::super::pressure_check::IMMEDIATE_EVICTION_GRACE;
    use super::*;
    use crate::control::pod_table::testing::{pod, with_node};

    fn eviction(uid: &str) -> PodEviction {
        let (uid, message) = (uid.into(), "The node was low on resource: memory.".to_owned());
        PodEviction { uid, signal: "memory.available", message, grace: IMMEDIATE_EVICTION_GRACE, is_disruption: true }
    }

    #[test]
    fn ended_pod_is_not_evicted_and_evicted_pod_is_awaited() {
        with_node(|mut node| {
            let now = rt::now();
            node.pods.apply([Effect::Update(pod("a"))], now);
            let mut manager = EvictionManager::new(&Eviction::default(), node.inbox.clone());
            let versions = PodVersions::new(Default::default(), node.inbox.clone());
            let gone = PodEviction { signal: "pid.available", ..eviction("gone") };
            let effects = manager.on_evictions(vec![eviction("a"), gone], &node.pods, now);
            assert_eq!(effects, [Effect::End(evict(eviction("a")))]);
            assert_eq!(metrics::labels_of(Count::Evictions), ["memory.available"]);
            assert_eq!(manager.next_due(), Some(now + EVICTION_CLEANUP_TIMEOUT));
            node.pods.apply(effects, now);
            let locks = UpdateLocks::without_state(node.inbox.clone());
            manager.round(&node.pods, &versions, &locks, now);
            assert!(!manager.is_settled());
            manager.round(&node.pods, &versions, &locks, now + EVICTION_CLEANUP_TIMEOUT);
            assert!(manager.is_settled());
        });
    }

    #[test]
    fn check_far_from_pressure_schedules_no_check() {
        with_node(|node| {
            let now = rt::now();
            let settings = Eviction { thresholds: Vec::new(), ..Eviction::default() };
            let mut manager = EvictionManager::new(&settings, node.inbox.clone());
            let effects = manager.on_observation(PressureObservation::default(), &node.pods, now);
            assert!(matches!(effects.as_slice(), [Effect::NodeStatus(NodeStatusChange::Pressures(_))]), "{effects:?}");
            assert_eq!(manager.next_due(), None);
            let close = PressureObservation { is_close: true, ..PressureObservation::default() };
            manager.on_observation(close, &node.pods, now);
            assert_eq!(manager.next_due(), Some(now + EVICTION_MONITORING_INTERVAL));
        });
    }
}
