//! One worker per pod: sync, terminating, terminated, finished.
//!
//! [`PodWorkers`] holds the workers and starts their work. Each piece of work is a task that ends with a
//! [`SyncEvent::WorkDone`](crate::state::pods::SyncEvent) to the sync loop. A pod has at most one piece of work
//! running. Events that arrive meanwhile change the worker, and so its next work.

mod entry;
mod error;
#[cfg(test)]
pub(crate) mod hostile_pods;
mod invariants;
mod refresh_volumes;
mod relist_pod;
mod requested_restart;
mod resize_pod;
mod restart_backoff;
mod start_gate;
mod start_work;
mod state;
mod sync_input;
mod sync_latency;
mod sync_pod;
mod sync_terminated_pod;
mod sync_terminating_pod;
mod termination;
mod worker;

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_channel::Sender;

use crate::control::pod_workers::entry::Entry;
use crate::control::pod_workers::restart_backoff::Key;
use crate::kubelet::container_manager::ContainerManager;
use crate::kubelet::csi::Csi;
use crate::kubelet::devices::Devices;
use crate::kubelet::dra::DraManager;
use crate::kubelet::kuberuntime::{PodRuntime, WorkViews, all_containers};
use crate::platform::rt;
use crate::state::pods::{ObservedCache, ObservedPod, StartingContainer, SyncEvent, WorkResult};
use crate::types::api::{Pod, PodUid};
use crate::types::metrics::{self, Count};
use crate::types::sorted::{SortedMap, SortedSet};

pub(crate) use entry::Resizing;
pub(crate) use restart_backoff::RestartBackoff;
pub(crate) use state::State;
pub(crate) use worker::{Identity, Kind, Worker};

pub(crate) struct PodWorkers {
    workers: SortedMap<PodUid, Entry>,
    /// Workers to check in this round.
    touched: SortedSet<PodUid>,
    backoff: RestartBackoff,
    /// Pods whose resize has completed, with its generation.
    resized: Vec<(PodUid, i64)>,
    /// Pods that the runtime lists but that could not be observed.
    unseen: Vec<ObservedPod>,
    runtime: Rc<PodRuntime>,
    groups: Rc<ContainerManager>,
    devices: Rc<Devices>,
    csi: Rc<Csi>,
    dra: Rc<DraManager>,
    views: WorkViews,
    inbox: Sender<SyncEvent>,
}

/// What the pod workers depend on.
pub(crate) struct Dependencies {
    pub(crate) runtime: Rc<PodRuntime>,
    pub(crate) groups: Rc<ContainerManager>,
    pub(crate) devices: Rc<Devices>,
    pub(crate) csi: Rc<Csi>,
    pub(crate) dra: Rc<DraManager>,
    pub(crate) views: WorkViews,
    /// The sync loop's inbox.
    pub(crate) inbox: Sender<SyncEvent>,
}

impl PodWorkers {
    pub(crate) fn new(dependencies: Dependencies, backoff: RestartBackoff) -> Self {
        let Dependencies { runtime, groups, devices, csi, dra, views, inbox } = dependencies;
        for label in ["", "true"] {
            metrics::expose(Count::RestartedPods, &[label]);
        }
        Self {
            workers: SortedMap::new(),
            touched: SortedSet::new(),
            backoff,
            resized: Vec::new(),
            unseen: Vec::new(),
            runtime,
            groups,
            devices,
            csi,
            dra,
            views,
            inbox,
        }
    }

    pub(crate) fn worker(&self, uid: &PodUid) -> Option<&Worker> {
        self.workers.get(uid).map(|entry| &entry.worker)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Worker> {
        self.workers.values().map(|entry| &entry.worker)
    }

    /// The pods known from a source or from the runtime.
    pub(crate) fn uids(&self) -> impl Iterator<Item = &PodUid> {
        self.workers.keys().chain(self.unseen.iter().map(|pod| &pod.uid))
    }

    pub(crate) fn backing_off(&self, uid: &PodUid) -> &[(String, Duration)] {
        self.workers.get(uid).map_or(&[], |entry| &entry.backing_off)
    }

    /// Starting containers whose `postStart` hook has not completed.
    pub(crate) fn hooked(&self, uid: &PodUid) -> &[StartingContainer] {
        self.workers.get(uid).map_or(&[], |entry| &entry.hooked)
    }

    /// Ids of the instances that the pod's running work replaces.
    pub(crate) fn replaced(&self, uid: &PodUid) -> &[String] {
        self.workers.get(uid).map_or(&[], |entry| &entry.replaced)
    }

    pub(crate) fn resizing(&self, uid: &PodUid) -> &Resizing {
        self.workers.get(uid).map_or(&Resizing::No, |entry| &entry.resizing)
    }

    /// A source added or changed the pod.
    pub(crate) fn update_pod(&mut self, pod: &Arc<Pod>) {
        let uid = &pod.metadata.uid;
        match self.workers.get_mut(uid) {
            Some(entry) => entry.worker.update_pod(Arc::clone(pod)),
            None => {
                let mut worker = Worker::new(Arc::clone(pod));
                // What runs of it is not known: a plan now could start its containers a second time.
                worker.stale = self.is_unseen(uid);
                self.workers.insert(uid.clone(), Entry::new(worker, false));
            }
        }
        self.touch(uid);
    }

    /// Other resources were allocated to the pod. Its resize is in progress until a plan finds nothing to resize.
    pub(crate) fn resize(&mut self, pod: &Arc<Pod>, generation: i64) {
        self.update_pod(pod);
        if let Some(entry) = self.workers.get_mut(&pod.metadata.uid) {
            entry.resizing = Resizing::InProgress { generation };
            // The running work has been planned before.
            entry.resizes = false;
        }
    }

    /// The pods whose resize has completed since the last call, with its generation.
    pub(crate) fn take_resized(&mut self) -> Vec<(PodUid, i64)> {
        std::mem::take(&mut self.resized)
    }

    /// The source changed only the pod's status.
    pub(crate) fn update_status(&mut self, pod: &Arc<Pod>) {
        let uid = &pod.metadata.uid;
        if let Some(entry) = self.workers.get_mut(uid).filter(|entry| entry.worker.pod.is_some()) {
            entry.worker.pod = Some(Arc::clone(pod));
        }
    }

    /// The source deletes the pod with this grace period, and waits until it has ended.
    pub(crate) fn deleted(&mut self, uid: &PodUid, grace: Duration) {
        let Some(entry) = self.workers.get_mut(uid) else { return };
        if entry.worker.terminate(grace) {
            entry.cancel();
        }
        self.touch(uid);
    }

    /// No source has the pod any more.
    pub(crate) fn unwanted(&mut self, uid: &PodUid) {
        let Some(entry) = self.workers.get_mut(uid) else { return };
        if entry.worker.unwanted(entry.grace()) {
            entry.cancel();
        }
        self.touch(uid);
    }

    /// Requests the removal of finished pods' dead containers.
    pub(crate) fn give_back(&mut self, cache: &ObservedCache) {
        for (uid, entry) in &mut self.workers {
            let dead = cache.pod(uid).filter(|_| entry.worker.can_give_back()).map(|pod| all_containers(pod));
            if let Some(dead) = dead.filter(|dead| !dead.is_empty()) {
                entry.worker.give_back(dead);
                self.touched.insert(uid.clone());
            }
        }
    }

    /// Whether finished pods have dead containers to remove.
    pub(crate) fn can_give_back(&self, cache: &ObservedCache) -> bool {
        self.workers.iter().any(|(uid, entry)| {
            entry.worker.can_give_back() && cache.pod(uid).is_some_and(|pod| !all_containers(pod).is_empty())
        })
    }

    /// Objects that these pods refer to were added, changed or removed.
    pub(crate) fn objects_changed(&mut self, refers: impl Fn(&Pod) -> bool) {
        for (uid, entry) in &mut self.workers {
            if entry.worker.pod.as_ref().is_some_and(|pod| refers(pod)) {
                entry.worker.objects_changed();
                self.touched.insert(uid.clone());
            }
        }
    }

    /// Requests a refresh of these pods' volumes, changed or not.
    /// A relist does, which then checks every worker: none is touched here.
    pub(crate) fn volumes_due(&mut self, refers: impl Fn(&Pod) -> bool) {
        for entry in self.workers.values_mut().filter(|entry| entry.worker.pod.as_ref().is_some_and(|pod| refers(pod)))
        {
            entry.worker.volumes_due();
        }
    }

    /// Creates a worker that ends a pod of the runtime that no worker knows.
    pub(crate) fn orphan(&mut self, observed: &ObservedPod) {
        if self.workers.contains_key(&observed.uid) {
            return;
        }
        metrics::count(Count::OrphanedPods, &[]);
        let worker = Worker::orphan(Identity::of(observed), observed.grace().unwrap_or(DEFAULT_GRACE));
        self.workers.insert(observed.uid.clone(), Entry::new(worker, true));
        self.touch(&observed.uid);
    }

    /// A relist found these pods, of which only the list entry could be observed.
    pub(crate) fn unseen(&mut self, pods: Vec<ObservedPod>) {
        for pod in &pods {
            if let Some(entry) = self.workers.get_mut(&pod.uid) {
                entry.worker.stale = true;
                self.touched.insert(pod.uid.clone());
            }
        }
        let gone: Vec<Identity> =
            self.unseen.iter().filter(|was| pods.iter().all(|pod| pod.uid != was.uid)).map(Identity::of).collect();
        self.unseen = pods;
        gone.iter().for_each(|identity| self.touch_namesakes(identity));
    }

    pub(crate) fn all_unseen(&self) -> impl Iterator<Item = &ObservedPod> + Clone {
        self.unseen.iter()
    }

    pub(crate) fn is_unseen(&self, uid: &PodUid) -> bool {
        self.unseen.iter().any(|pod| pod.uid == *uid)
    }

    /// The pod was observed.
    pub(crate) fn seen(&mut self, uid: &PodUid) {
        let Some(index) = self.unseen.iter().position(|pod| pod.uid == *uid) else { return };
        let pod = self.unseen.swap_remove(index);
        self.touch_namesakes(&Identity::of(&pod));
    }

    /// Checks this worker in the coming round.
    pub(crate) fn touch(&mut self, uid: &PodUid) {
        self.touched.insert(uid.clone());
    }

    /// This sandbox of the pod runs outside the pod's cgroup.
    pub(crate) fn found_without_cgroup(&mut self, uid: &PodUid, sandbox: String) {
        let Some(entry) = self.workers.get_mut(uid) else { return };
        log!(warn, "pod cgroup is gone, recreating the sandbox", pod = uid, sandbox = sandbox);
        entry.groupless = Some(sandbox);
        self.touch(uid);
    }

    pub(crate) fn touch_all(&mut self) {
        self.touched.extend(self.workers.keys().cloned());
    }

    /// When the next round without an event is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.workers.values().filter_map(|entry| entry.wake).min()
    }

    /// Handles the end of a piece of work.
    pub(crate) fn work_done(&mut self, uid: &PodUid, is_observed: bool, result: &WorkResult, now: Instant) {
        let Some(entry) = self.workers.get_mut(uid) else { return };
        entry.task = None;
        entry.hooked.clear();
        entry.replaced.clear();
        let Some(kind) = entry.worker.busy else { return };
        debug_assert!(kind.ends_with(result), "{}: {kind:?} ended with {result:?}", entry.worker.identity);
        let stretch = |wait| crate::types::time::jitter(wait, 0.5, rt::random());
        match result {
            WorkResult::Synced { containers, failure, resize_failure, .. } => {
                // Containers that were not reached because of an earlier failure were not tried.
                let names: SortedSet<&str> = containers.iter().map(|(name, _)| name.as_str()).collect();
                let tried = |key: &Key| names.contains(key.container.as_str());
                for key in std::mem::take(&mut entry.restarts).into_iter().filter(tried) {
                    self.backoff.restarts(key, now);
                }
                for (name, waiting) in containers {
                    entry.worker.tried(name.clone(), waiting.clone(), now, stretch);
                }
                entry.worker.stale = !is_observed;
                entry.resize_ends(resize_failure.as_deref(), now, stretch);
                entry.pace.synced(containers.iter().all(|(_, waiting)| waiting.is_none()) && failure.is_none(), now);
                match failure {
                    Some(failure) => entry.worker.failed(failure.clone(), now, stretch),
                    None => entry.worker.succeeded(kind, false, now),
                }
            }
            WorkResult::Refreshed { all_refreshed: true, .. } => entry.worker.succeeded(kind, false, now),
            WorkResult::Refreshed { all_refreshed: false, .. } => entry.worker.not_refreshed(now, stretch),
            WorkResult::Collected { all_removed } => {
                entry.worker.stale = !is_observed;
                match all_removed {
                    true => entry.worker.succeeded(kind, false, now),
                    false => entry.worker.not_collected(now, stretch),
                }
            }
            WorkResult::Stopped => {
                entry.overdue = None;
                entry.worker.succeeded(kind, false, now);
            }
            WorkResult::Cleaned { purged, .. } => entry.worker.succeeded(kind, *purged, now),
            WorkResult::NotPurged { failure } => {
                entry.worker.not_purged(failure.clone(), now, stretch);
                let identity = entry.worker.identity.clone();
                self.touch_namesakes(&identity);
            }
            WorkResult::Failed { failure } => entry.worker.failed(failure.clone(), now, stretch),
        }
        self.touch_waiting(uid);
        self.touch(uid);
    }

    /// Delays the pod's start until it is admitted.
    pub(crate) fn hold(&mut self, uid: &PodUid) {
        if let Some(entry) = self.workers.get_mut(uid) {
            entry.is_held = true;
        }
    }

    /// Delays the pod's start until these pods have ended.
    pub(crate) fn wait_for(&mut self, uid: &PodUid, predecessors: Vec<PodUid>) {
        if let Some(entry) = self.workers.get_mut(uid) {
            entry.waits_for = predecessors;
            if std::mem::take(&mut entry.is_held) {
                self.touch(uid);
            }
        }
    }

    fn forget(&mut self, uid: &PodUid) -> Option<Arc<Pod>> {
        self.backoff.forget(uid);
        let entry = self.workers.remove(uid)?;
        self.touch_namesakes(&entry.worker.identity);
        self.touch_waiting(uid);
        entry.worker.successor
    }
}

/// The API's default, for a pod whose spec and containers state no grace period.
const DEFAULT_GRACE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::kubelet::images::Images;
    use crate::kubelet::kuberuntime::golden;
    use crate::kubelet::probes::Probes;
    use crate::platform::config::Config;
    use crate::platform::cri::{ImageService, RuntimeService};
    use crate::platform::net::Dialer;
    use crate::platform::rpc::Client;
    use crate::state::objects::{ObjectEvent, Objects};
    use crate::state::pods::{HostIps, RuntimeState};
    use crate::types::api::Container;
    use crate::types::owned::Owned;

    /// Workers with a runtime that does not answer.
    async fn workers(inbox: Sender<SyncEvent>) -> PodWorkers {
        workers_with(&Owned::default(), inbox).await
    }

    async fn workers_with(objects: &Owned<Objects>, inbox: Sender<SyncEvent>) -> PodWorkers {
        let client = Client::new("/nowhere");
        let cri = RuntimeService::new(client.clone(), Duration::from_secs(1));
        let images = ImageService::new(client, Duration::from_secs(1));
        let images = Images::new(images, &Config::default(), inbox.clone());
        let runtime = Rc::new(PodRuntime::new(cri, images, golden::node(), inbox.clone()));
        let groups = Rc::new(ContainerManager::new(Path::new("/nowhere"), None));
        let devices = Devices::open(Path::new("/nowhere"), Vec::new(), inbox.clone()).await;
        let csi = Csi::new(Path::new("/nowhere"), "n", inbox.clone(), None);
        let dra = DraManager::open(Path::new("/nowhere"), Rc::clone(&devices), inbox.clone()).await;
        let (observed, placements) = (Owned::default().view(), Owned::default().view());
        let views = WorkViews { objects: objects.view(), host_names: Owned::default().view(), observed, placements };
        let dependencies = Dependencies { runtime, groups, devices, csi, dra, views, inbox };
        PodWorkers::new(dependencies, RestartBackoff::new(Duration::from_secs(300)))
    }

    fn pod(uid: &str) -> Arc<Pod> {
        let mut pod = Pod::default();
        pod.metadata.uid = uid.into();
        pod.metadata.name = uid.to_owned();
        Arc::new(pod)
    }

    #[test]
    fn pod_that_waits_for_room_is_not_due() {
        let due = rt::simulate(1, |_| async {
            let (inbox, _events) = async_channel::bounded(100);
            let mut workers = workers(inbox.clone()).await;
            let probes = Probes::new(workers.runtime.cri(), Dialer::new(), HostIps::default(), inbox);
            let (waits, ends) = (pod("waits"), pod("ends"));
            workers.update_pod(&waits);
            workers.update_pod(&ends);
            workers.deleted(&ends.metadata.uid, Duration::from_secs(30));
            workers.wait_for(&waits.metadata.uid, vec![ends.metadata.uid.clone()]);
            let now = rt::now();
            workers.workers.get_mut(&waits.metadata.uid).unwrap().wake = Some(now);
            workers.start_work(&ObservedCache::default(), &probes, &RuntimeState::default(), now);
            workers.workers.get(&waits.metadata.uid).unwrap().wake.is_some()
        });
        assert_eq!(due, Ok(false));
    }

    #[test]
    fn pods_with_many_containers_are_planned_in_several_turns() {
        let left = rt::simulate(1, |_| async {
            let (inbox, _events) = async_channel::bounded(100);
            let mut workers = workers(inbox.clone()).await;
            let probes = Probes::new(workers.runtime.cri(), Dialer::new(), HostIps::default(), inbox);
            for number in 0..10 {
                let mut large = Pod::clone(&pod(&format!("pod-{number}")));
                large.spec.containers.resize(200, Container::default());
                workers.update_pod(&Arc::new(large));
            }
            let mut left = Vec::new();
            while workers.has_work_to_start() {
                workers.start_work(&ObservedCache::default(), &probes, &RuntimeState::default(), rt::now());
                left.push(workers.touched.len());
            }
            left
        });
        assert_eq!(left, Ok(vec![7, 4, 1, 0]));
    }

    #[test]
    fn pod_waits_for_a_namesake_but_not_for_its_stuck_containers() {
        let seen = rt::simulate(1, |_| async {
            let (inbox, _events) = async_channel::bounded(100);
            let mut workers = workers(inbox).await;
            let former = pod("former");
            let mut next = Pod::clone(&pod("next"));
            next.metadata.name = "former".to_owned();
            let cache = ObservedCache::default();
            workers.update_pod(&former);
            workers.workers.get_mut(&former.metadata.uid).unwrap().begun = true;
            workers.unwanted(&former.metadata.uid);
            workers.update_pod(&Arc::new(next));
            let mut seen = Vec::new();
            let failed = || WorkResult::Failed { failure: "busy".to_owned() };
            let steps = [
                (Kind::Stop, failed()),
                (Kind::Stop, WorkResult::Stopped),
                (Kind::CleanUp, failed()),
                (Kind::CleanUp, WorkResult::NotPurged { failure: "busy".to_owned() }),
            ];
            for (kind, result) in steps {
                let entry = workers.workers.get_mut(&former.metadata.uid).unwrap();
                entry.worker.busy = Some(kind);
                workers.touched.clear();
                workers.work_done(&former.metadata.uid, false, &result, rt::now());
                seen.push((
                    workers.waits_for_namesake(&"next".into(), &cache),
                    workers.touched.contains(&PodUid::from("next")),
                ));
            }
            seen
        });
        assert_eq!(seen, Ok(vec![(true, false), (true, false), (true, false), (false, true)]));
    }

    #[test]
    fn images_of_a_waiting_cluster_pod_are_pulled_until_it_is_deleted() {
        let seen = rt::simulate(1, |_| async {
            let (inbox, _events) = async_channel::bounded(100);
            let mut objects = Owned::default();
            let mut workers = workers_with(&objects, inbox.clone()).await;
            let probes = Probes::new(workers.runtime.cri(), Dialer::new(), HostIps::default(), inbox);
            let ends = pod("ends");
            let annotated = |uid: &str, annotations: &[(&'static str, &str)]| {
                let mut pod = Pod::clone(&pod(uid));
                let all = annotations.iter().map(|(key, value)| (*key, (*value).to_owned()));
                pod.metadata.annotations = all.collect();
                Arc::new(pod)
            };
            let api = annotated("api", &[("kubernetes.io/config.source", "api")]);
            let refused =
                annotated("last", &[("kubernetes.io/config.source", "api"), ("coracle.dev/pull-first", "false")]);
            let file = annotated("file", &[("kubernetes.io/config.source", "file")]);
            workers.update_pod(&ends);
            workers.deleted(&ends.metadata.uid, Duration::from_secs(30));
            for pod in [&api, &refused, &file] {
                workers.update_pod(pod);
                workers.wait_for(&pod.metadata.uid, vec![ends.metadata.uid.clone()]);
            }
            let start = |workers: &mut PodWorkers| {
                workers.start_work(&ObservedCache::default(), &probes, &RuntimeState::default(), rt::now());
                let pulls = |pod: &Arc<Pod>| {
                    workers.workers.get(&pod.metadata.uid).is_some_and(|entry| entry.early_pull.is_some())
                };
                [&api, &refused, &file].map(pulls)
            };
            let topics = objects.read().topics(&api);
            for topic in topics {
                objects.write().on_event(ObjectEvent::Failed(topic, "away".to_owned()));
            }
            let before = start(&mut workers);
            workers.deleted(&api.metadata.uid, Duration::ZERO);
            (before, start(&mut workers))
        });
        assert_eq!(seen, Ok(([true, false, false], [false; 3])));
    }

    #[test]
    fn resize_allocated_during_other_work_stays_in_progress() {
        let seen = rt::simulate(1, |_| async {
            let (inbox, _events) = async_channel::bounded(100);
            let mut workers = workers(inbox).await;
            let (pod, now) = (pod("a"), rt::now());
            let uid = &pod.metadata.uid;
            workers.update_pod(&pod);
            let mut seen = Vec::new();
            for failure in [None, Some("no image".to_owned())] {
                workers.workers.get_mut(uid).unwrap().worker.busy = Some(Kind::Sync);
                workers.resize(&pod, 2);
                let (containers, warnings) = (Vec::new(), Vec::new());
                let done = WorkResult::Synced { containers, failure, resize_failure: None, warnings };
                workers.work_done(uid, true, &done, now);
                seen.push(workers.resizing(uid).clone());
            }
            (seen, workers.take_resized().len())
        });
        assert_eq!(seen, Ok((vec![Resizing::InProgress { generation: 2 }; 2], 0)));
    }

    #[test]
    fn failed_resize_is_news_once_whatever_numbers_its_retries_name() {
        let failures = ["limit (100) below current usage (4096)", "limit (100) below current usage (81)", "no answer"];
        let seen = rt::simulate(1, move |_| async move {
            let (inbox, _events) = async_channel::bounded(100);
            let mut workers = workers(inbox).await;
            let (pod, now) = (pod("a"), rt::now());
            let uid = &pod.metadata.uid;
            workers.resize(&pod, 2);
            let mut seen = Vec::new();
            for failure in failures {
                let entry = workers.workers.get_mut(uid).unwrap();
                entry.resizes = true;
                entry.resize_ends(Some(failure), now, |wait| wait);
                seen.push(entry.resizing.clone());
            }
            seen
        });
        let failed = |failure: &str| Resizing::Failed { generation: 2, failure: failure.to_owned() };
        assert_eq!(seen, Ok([0, 0, 2].map(|at| failed(failures[at])).to_vec()));
    }
}
