//! When it is looked at what the node has left, and what becomes of the answer.
//!
//! Far from every threshold that is beside a relist, which needs no timer. Near one it is every ten seconds, as upstream
//! does at all times; and at once when the kernel tells that processes wait for memory.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_channel::Sender;

use crate::control::pod_workers::State;
use crate::control::sync_loop::SyncLoop;
use crate::kubelet::admission::{Rejection, check_pressure};
use crate::kubelet::eviction::{
    self, Candidate, Layout, Measure, Measured, Observations, Places, PodUsage, Starved, ThresholdState, is_close,
    is_resolved, node_was_low, rank,
};
use crate::kubelet::kuberuntime::PodRuntime;
use crate::kubelet::status::Failed;
use crate::platform::cgroups::CgroupName;
use crate::platform::config::{Eviction, Threshold};
use crate::platform::host::clock;
use crate::platform::host::memory_pressure::{MEMORY_PRESSURE, MemoryStalls};
use crate::platform::rt;
use crate::state::pods::{NodeEvent, PodEvent, PodEviction, PressureObservation, SyncEvent};
use crate::types::api::{EventKind, Pod, PodUid, Reason};
use crate::types::error::ErrorChain;
use crate::types::metrics::{self, Count};

/// As often as upstream looks.
const PERIOD: Duration = Duration::from_secs(10);
/// So long nobody else goes while a pod that was ended has not gone yet.
const CLEANUP: Duration = Duration::from_secs(30);
/// So long the removal of dead containers may take before it is looked again.
const GIVING_BACK: Duration = Duration::from_secs(2);
/// For all pods to be measured when a disk is full.
const MEASURING: Duration = Duration::from_secs(10);
/// Images are not searched for what can go more often.
const RECLAIM_PERIOD: Duration = Duration::from_secs(60);
/// What a pod has to stop when it goes at once.
pub(super) const AT_ONCE: Duration = Duration::from_secs(1);
/// A kernel that has much to tell wakes the agent no more often.
const STALL_REST: Duration = Duration::from_secs(2);

/// The looks at what the node has left.
pub(super) struct EvictionManager {
    settings: Rc<Eviction>,
    memory: Rc<RefCell<Memory>>,
    task: Option<rt::Task<()>>,
    /// The next look that no relist brings.
    due: Option<Instant>,
    asked: bool,
    /// The kernel tells when memory is short, or nobody wants to know.
    hears_of_memory: bool,
    /// Pods that were ended, and until when they are waited for.
    leaving: Option<(Vec<PodUid>, Instant)>,
    #[expect(dead_code, reason = "dropping the task ends it")]
    stalls: Option<rt::Task<()>>,
}

/// What is known from earlier looks.
#[derive(Debug, Default)]
struct Memory {
    thresholds: ThresholdState,
    /// What is being won back, as was told.
    told: Option<Starved>,
    reclaimed: Option<Instant>,
}

impl EvictionManager {
    pub(super) fn new(settings: &Eviction, inbox: Sender<SyncEvent>) -> Self {
        let has_memory = settings.thresholds.iter().any(|t| Starved::of(t.signal) == Starved::Memory);
        let stalls = if has_memory { MemoryStalls::watch(Path::new(MEMORY_PRESSURE)).ok() } else { None };
        if has_memory && stalls.is_none() {
            log!(info, "this kernel does not tell when memory is short: it is looked at every ten seconds then");
        }
        Self {
            settings: Rc::new(settings.clone()),
            memory: Rc::default(),
            task: None,
            due: None,
            asked: false,
            hears_of_memory: !has_memory || stalls.is_some(),
            leaving: None,
            stalls: stalls.map(|stalls| rt::spawn(follow(stalls, inbox))),
        }
    }

    /// Everything has been looked at: this belongs to it.
    pub(super) fn relisted(&mut self) {
        self.asked = true;
    }

    pub(super) fn stalled(&mut self) {
        self.asked = true;
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Eviction has something to keep.
    fn is_on(&self) -> bool {
        !self.settings.thresholds.is_empty() || self.settings.local_storage
    }

    /// Pods are held to their own limits of local storage.
    pub(super) fn limits_storage(&self) -> bool {
        self.settings.local_storage
    }

    fn is_busy(&self) -> bool {
        self.task.as_ref().is_some_and(|task| !task.is_finished())
    }

    fn is_spared(&self, pod: &Pod) -> bool {
        pod.is_spared(self.settings.static_pods)
    }
}

impl SyncLoop {
    /// Begins a look if one is due.
    pub(super) fn watch_node(&mut self, now: Instant) {
        if self.node_watch.leaving.is_none() {
            self.watch_storage_limits();
        }
        let watch = &mut self.node_watch;
        if watch.due.is_some_and(|due| due <= now) {
            watch.due = None;
            watch.asked = true;
        }
        if let Some((leaving, until)) = &watch.leaving {
            let is_here = |uid: &PodUid| {
                self.workers.worker(uid).is_some_and(|worker| worker.wanted && worker.state != State::Finished)
            };
            if *until > now && leaving.iter().any(is_here) {
                return;
            }
            watch.leaving = None;
            watch.asked = true;
        }
        if !watch.asked || watch.is_busy() || !watch.is_on() || !self.can_work() {
            return;
        }
        let watch = &mut self.node_watch;
        watch.asked = false;
        let (settings, memory) = (Rc::clone(&watch.settings), Rc::clone(&watch.memory));
        let all_ready = self.books.borrow().sources.all_ready();
        let pods = self.pods_with_images();
        let look = Look {
            settings,
            memory,
            runtime: Rc::clone(&self.runtime),
            candidates: self.candidates(),
            has_dead: self.has_dead(),
            // A source that has not told everything may have a pod for any image.
            pods: all_ready.then_some(pods),
        };
        let inbox = self.sender.clone();
        self.node_watch.task = Some(rt::spawn(async move {
            // The loop outlives its tasks.
            let _ = inbox.send(SyncEvent::PressureLooked(look.look().await)).await;
        }));
    }

    fn has_dead(&self) -> bool {
        let seen = self.seen.borrow();
        self.workers
            .iter()
            .filter(|worker| worker.can_give_back())
            .any(|worker| seen.pod(&worker.identity.uid).is_some_and(|pod| !pod.containers.is_empty()))
    }

    /// The pods that may be ended and that use something.
    pub(super) fn candidates(&self) -> Vec<Candidate> {
        let seen = self.seen.borrow();
        let candidate = |worker: &crate::control::pod_workers::Worker| {
            let pod = worker.pod.as_ref().filter(|_| worker.state == State::Sync && worker.wanted)?;
            let observed = seen.pod(&pod.metadata.uid).filter(|observed| !observed.is_gone())?;
            (!self.node_watch.is_spared(pod)).then(|| Candidate { pod: Arc::clone(pod), observed: Rc::clone(observed) })
        };
        self.workers.iter().filter_map(candidate).collect()
    }

    pub(super) fn on_pressure_looked(&mut self, look: PressureObservation, now: Instant) {
        let changed = {
            let node = &self.runtime.node.node_name;
            let mut books = self.books.borrow_mut();
            let changed = books.pressures.set(&look.pressures, node, clock::now());
            self.news.pressures(books.pressures.conditions().collect());
            changed
        };
        for event in changed.into_iter().chain(look.events) {
            self.on_node_happened(event, now);
        }
        let is_calm = look.pressures.is_empty() && !look.is_close && self.node_watch.hears_of_memory;
        self.node_watch.due = (!is_calm).then(|| now + PERIOD);
        if look.wants_dead && self.workers.give_back(&self.seen.borrow()) {
            self.node_watch.due = Some(now + GIVING_BACK);
        }
        self.evict_all(look.evictions, now);
    }

    /// Ends these pods; no look ends others until they have gone.
    pub(super) fn evict_all(&mut self, evictions: Vec<PodEviction>, now: Instant) {
        let mut leaving = Vec::new();
        for eviction in evictions {
            leaving.extend(self.evict(eviction, now));
        }
        if !leaving.is_empty() {
            self.node_watch.due = Some(now + CLEANUP);
            self.node_watch.leaving = Some((leaving, now + CLEANUP));
        }
    }

    /// Ends the pod, if it has not ended meanwhile.
    fn evict(&mut self, eviction: PodEviction, now: Instant) -> Option<PodUid> {
        let PodEviction { uid, message, grace, is_disruption } = eviction;
        self.workers.worker(&uid).filter(|worker| worker.state == State::Sync && worker.wanted)?;
        let event = PodEvent::of_pod(&uid, EventKind::Warning, Reason::EVICTED, message.as_str());
        self.on_happened(event, now);
        let disruption = is_disruption.then(|| message.clone().into());
        self.failed.insert(uid.clone(), Failed { reason: Reason::EVICTED, message: message.into(), disruption });
        self.admitted.remove(&uid);
        self.workers.kill(&uid, grace);
        self.dirty.insert(uid.clone());
        Some(uid)
    }

    /// Whether the node is short of something and so takes no pod that it would have to end first. What runs has been
    /// taken before.
    pub(super) fn admit_under_pressure(&self, pod: &Pod) -> Result<(), Rejection> {
        if self.seen.borrow().pod(&pod.metadata.uid).is_some_and(|observed| !observed.is_gone()) {
            return Ok(());
        }
        check_pressure(pod, &self.books.borrow().pressures.held(), self.node_watch.is_spared(pod))
    }
}

/// One look, and what is done before pods have to go.
struct Look {
    settings: Rc<Eviction>,
    memory: Rc<RefCell<Memory>>,
    runtime: Rc<PodRuntime>,
    candidates: Vec<Candidate>,
    /// Something is left of the containers of pods that have ended.
    has_dead: bool,
    /// All pods of all sources, once they have told.
    pods: Option<Vec<Arc<Pod>>>,
}

impl Look {
    async fn look(self) -> PressureObservation {
        let (seen, layout) = observe(&self.runtime).await;
        let thresholds = layout.thresholds(&self.settings.thresholds);
        let now = rt::now();
        let verdict = self.memory.borrow_mut().thresholds.take(&thresholds, &seen, self.settings.transition, now);
        let mut look = PressureObservation {
            pressures: verdict.pressures,
            is_close: is_close(&thresholds, &seen),
            ..PressureObservation::default()
        };
        let Some(first) = verdict.starved.first() else {
            self.memory.borrow_mut().told = None;
            return look;
        };
        let starved = Starved::of(first.signal);
        log!(debug, "the node is short of something", signal = first.signal.as_str(), disks = format!("{layout:?}"));
        if self.memory.borrow_mut().told.replace(starved) != Some(starved) {
            let message = format!("Attempting to reclaim {}", starved.as_str());
            look.events.push(NodeEvent::new(EventKind::Warning, Reason::EVICTION_THRESHOLD_MET, message));
        }
        look.wants_dead = self.has_dead && layout.reclaims(first.signal).dead_containers;
        if self.reclaims(first, layout, &thresholds, now).await || look.wants_dead {
            return look;
        }
        look.evictions.extend(self.first_to_go(first, layout, &verdict.starved, &seen).await);
        look
    }

    /// Whether what the node itself can give back was enough.
    async fn reclaims(&self, first: &Threshold, layout: Layout, thresholds: &[Threshold], now: Instant) -> bool {
        let lately = |last: Instant| now.saturating_duration_since(last) < RECLAIM_PERIOD;
        if !layout.reclaims(first.signal).images || self.memory.borrow().reclaimed.is_some_and(lately) {
            return false;
        }
        let Some(pods) = &self.pods else { return false };
        self.memory.borrow_mut().reclaimed = Some(now);
        match self.runtime.free_images(pods).await {
            Ok(bytes) => log!(info, "images that nothing needs were removed for want of room", bytes = bytes),
            Err(error) => log!(warn, "images not removed for want of room", error = format!("{error:?}")),
        }
        let (seen, _) = observe(&self.runtime).await;
        is_resolved(thresholds, &seen)
    }

    /// The one pod that goes now; `None` if none may.
    async fn first_to_go(
        &self,
        first: &Threshold,
        layout: Layout,
        starved: &[Threshold],
        seen: &Observations,
    ) -> Option<PodEviction> {
        let (measure, parts) = (measure(&self.runtime), layout.parts(first.signal));
        let end = rt::now() + MEASURING;
        let resource = Starved::of(first.signal);
        let mut usages: Vec<Option<PodUsage>> = Vec::new();
        for candidate in &self.candidates {
            usages.push(match resource {
                Starved::Memory | Starved::Pids => measure.memory(candidate).await,
                Starved::Storage | Starved::Inodes => {
                    let left = end.saturating_duration_since(rt::now());
                    rt::deadline(left, measure.disk(candidate, parts.layers)).await.ok()
                }
            });
        }
        // Where one disk hangs, a pod goes that was measured.
        let any = matches!(resource, Starved::Storage | Starved::Inodes) && usages.iter().any(Option::is_some);
        let measured = self.candidates.iter().zip(&usages).filter(|(_, usage)| usage.is_some() || !any);
        let mut pods: Vec<Measured<'_>> =
            measured.map(|(candidate, usage)| Measured { pod: &candidate.pod, usage: usage.as_ref() }).collect();
        rank(&mut pods, resource, parts);
        let gone = pods.first()?;
        metrics::count(Count::Evictions, &[first.signal.as_str()]);
        Some(PodEviction {
            uid: gone.pod.metadata.uid.clone(),
            message: node_was_low(resource, starved, seen, gone),
            grace: if first.is_hard() { AT_ONCE } else { self.settings.max_pod_grace },
            is_disruption: true,
        })
    }
}

/// What the node has left, and how its disks are laid out.
pub(super) async fn observe(runtime: &PodRuntime) -> (Observations, Layout) {
    let node = &runtime.node;
    let disks = runtime.disks().await;
    let (images, layers) = disks.map_or((None, None), |(images, layers)| (Some(images), layers));
    let driver = runtime.cgroup_driver();
    let kubepods = node
        .pod_cgroups
        .as_ref()
        .map(|groups| CgroupName::kubepods(&groups.root).path(driver.unwrap_or(groups.driver)));
    let places = Places { cgroup_v2: node.cgroup_v2, kubepods, node: node.root_dir.clone(), images, layers };
    rt::blocking(move || eviction::observe(&places)).await
}

pub(super) fn measure(runtime: &PodRuntime) -> Measure {
    let driver = runtime.cgroup_driver();
    let groups = runtime.node.pod_cgroups.as_ref();
    let groups = groups.map(|groups| (driver.unwrap_or(groups.driver), groups.root.clone()));
    Measure { cri: runtime.cri(), dirs: runtime.dirs.clone(), groups }
}

/// Tells the sync loop of each time that processes wait for memory.
async fn follow(stalls: MemoryStalls, inbox: Sender<SyncEvent>) {
    loop {
        if let Err(error) = stalls.happened().await {
            log!(warn, "it is not told any more when memory is short", error = ErrorChain(&error));
            return;
        }
        log!(debug, "processes wait for memory");
        if inbox.send(SyncEvent::MemoryStalled).await.is_err() {
            return;
        }
        rt::sleep(STALL_REST).await;
    }
}
