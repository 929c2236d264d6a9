//! One worker per pod: sync, terminating, terminated, finished.
//!
//! [`PodWorkers`] holds the workers and starts their work; each piece of work is a task that ends with a
//! [`SyncEvent::WorkDone`](crate::state::pods::SyncEvent) to the sync loop. At most one piece of work of a pod is under way;
//! what arrives meanwhile changes the worker, and so its next piece.

mod entry;
mod refresh_volumes;
mod relist_pod;
mod requested_restart;
mod restart_backoff;
mod start_gate;
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

use crate::control::pod_workers::entry::{Entry, Running};
use crate::control::pod_workers::restart_backoff::{Key, RestartBackoff};
use crate::control::pod_workers::worker::{Next, Work};
use crate::kubelet::container_manager::ContainerManager;
use crate::kubelet::csi::Csi;
use crate::kubelet::devices::Devices;
use crate::kubelet::kuberuntime::{Action, Cancel, Plan, PodRuntime, remains};
use crate::kubelet::probes::Probes;
use crate::platform::rt;
use crate::state::pods::{
    ObservedCache, ObservedContainer, ObservedPod, PodEvent, RuntimeState, SyncEvent, WorkResult,
};
use crate::types::api::{Container, EventKind, Pod, PodUid, Reason};
use crate::types::metrics::{self, Count};
use crate::types::sorted::{SortedMap, SortedSet};

pub(crate) use entry::Resizing;
pub(crate) use state::State;
pub(crate) use worker::{Identity, Kind, Worker};

pub(crate) struct PodWorkers {
    workers: SortedMap<PodUid, Entry>,
    /// Workers to look at in this round.
    touched: SortedSet<PodUid>,
    backoff: RestartBackoff,
    /// Pods that the runtime has and that could not be looked at, as it lists them.
    unseen: Vec<ObservedPod>,
    runtime: Rc<PodRuntime>,
    groups: Rc<ContainerManager>,
    devices: Rc<Devices>,
    csi: Rc<Csi>,
    inbox: Sender<SyncEvent>,
}

/// What pod workers work with.
pub(crate) struct Dependencies {
    pub(crate) runtime: Rc<PodRuntime>,
    pub(crate) groups: Rc<ContainerManager>,
    pub(crate) devices: Rc<Devices>,
    pub(crate) csi: Rc<Csi>,
    /// The sync loop's.
    pub(crate) inbox: Sender<SyncEvent>,
}

impl PodWorkers {
    pub(crate) fn new(dependencies: Dependencies, longest_restart_wait: Duration) -> Self {
        let Dependencies { runtime, groups, devices, csi, inbox } = dependencies;
        Self {
            workers: SortedMap::new(),
            touched: SortedSet::new(),
            backoff: RestartBackoff::new(longest_restart_wait),
            unseen: Vec::new(),
            runtime,
            groups,
            devices,
            csi,
            inbox,
        }
    }

    pub(crate) fn worker(&self, uid: &PodUid) -> Option<&Worker> {
        self.workers.get(uid).map(|entry| &entry.worker)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Worker> {
        self.workers.values().map(|entry| &entry.worker)
    }

    /// The pods that are known, from a source or from the runtime.
    pub(crate) fn uids(&self) -> impl Iterator<Item = &PodUid> {
        self.workers.keys().chain(self.unseen.iter().map(|pod| &pod.uid))
    }

    pub(crate) fn backing_off(&self, uid: &PodUid) -> &[(String, Duration)] {
        self.workers.get(uid).map_or(&[], |entry| &entry.backing_off)
    }

    /// Containers that count as started only when their hook is over, which it is not.
    pub(crate) fn hooked(&self, uid: &PodUid) -> &[String] {
        self.workers.get(uid).map_or(&[], |entry| &entry.hooked)
    }

    pub(crate) fn resizing(&self, uid: &PodUid) -> &Resizing {
        self.workers.get(uid).map_or(&Resizing::No, |entry| &entry.resizing)
    }

    /// A source has this pod, new or changed.
    pub(crate) fn wanted(&mut self, pod: &Arc<Pod>) {
        let uid = &pod.metadata.uid;
        match self.workers.get_mut(uid) {
            Some(entry) => entry.worker.wanted(Arc::clone(pod)),
            None => {
                let mut worker = Worker::new(Arc::clone(pod));
                worker.stale = self.is_unseen(uid);
                self.workers.insert(uid.clone(), Entry::new(worker, false));
            }
        }
        self.touch(uid);
    }

    /// Its source tells another status of the pod, and nothing else that is new.
    pub(crate) fn told(&mut self, pod: &Arc<Pod>) {
        let uid = &pod.metadata.uid;
        if let Some(entry) = self.workers.get_mut(uid).filter(|entry| entry.worker.pod.is_some()) {
            entry.worker.pod = Some(Arc::clone(pod));
        }
    }

    /// Its source wants the pod to end, within so much time, and waits until it has.
    pub(crate) fn deleted(&mut self, uid: &PodUid, grace: Duration) {
        let Some(entry) = self.workers.get_mut(uid) else { return };
        if entry.worker.terminate(grace) {
            entry.cancel();
        }
        self.touch(uid);
    }

    /// No source has this pod any more.
    pub(crate) fn unwanted(&mut self, uid: &PodUid) {
        let Some(entry) = self.workers.get_mut(uid) else { return };
        if entry.worker.unwanted(entry.grace()) {
            entry.cancel();
        }
        self.touch(uid);
    }

    /// Pods that have ended for good give back what is left of their containers. True if there is anything.
    pub(crate) fn give_back(&mut self, cache: &ObservedCache) -> bool {
        let mut gives = false;
        for (uid, entry) in &mut self.workers {
            let dead = cache.pod(uid).filter(|_| entry.worker.can_give_back()).map(|pod| remains(pod));
            if let Some(dead) = dead.filter(|dead| !dead.is_empty()) {
                entry.worker.give_back(dead);
                self.touched.insert(uid.clone());
                gives = true;
            }
        }
        gives
    }

    /// Objects that these pods refer to came, changed or went.
    pub(crate) fn objects_changed(&mut self, refers: impl Fn(&Pod) -> bool) {
        for (uid, entry) in &mut self.workers {
            if entry.worker.pod.as_ref().is_some_and(|pod| refers(pod)) {
                entry.worker.objects_changed();
                self.touched.insert(uid.clone());
            }
        }
    }

    /// What these pods have of volumes is brought up to date, whether it has changed or not.
    pub(crate) fn volumes_due(&mut self, refers: impl Fn(&Pod) -> bool) {
        for entry in self.workers.values_mut().filter(|entry| entry.worker.pod.as_ref().is_some_and(|pod| refers(pod)))
        {
            entry.worker.volumes_due();
        }
    }

    /// The runtime has something of a pod that no worker knows.
    pub(crate) fn orphan(&mut self, observed: &ObservedPod) {
        if self.workers.contains_key(&observed.uid) {
            return;
        }
        metrics::count(Count::OrphanedPods, &[]);
        let worker = Worker::orphan(Identity::of(observed), observed.grace().unwrap_or(DEFAULT_GRACE));
        self.workers.insert(observed.uid.clone(), Entry::new(worker, true));
        self.touch(&observed.uid);
    }

    /// The runtime was looked at, and it has these pods, of which nothing but what it lists could be seen.
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

    /// The pod was looked at.
    pub(crate) fn seen(&mut self, uid: &PodUid) {
        let Some(place) = self.unseen.iter().position(|pod| pod.uid == *uid) else { return };
        let pod = self.unseen.swap_remove(place);
        self.touch_namesakes(&Identity::of(&pod));
    }

    /// Look at this worker in the coming round.
    pub(crate) fn touch(&mut self, uid: &PodUid) {
        self.touched.insert(uid.clone());
    }

    /// This sandbox of the pod is in no control group of its.
    pub(crate) fn found_groupless(&mut self, uid: &PodUid, sandbox: String) {
        let Some(entry) = self.workers.get_mut(uid) else { return };
        log!(warn, "the pod's control group is gone: it begins anew", pod = uid, sandbox = sandbox);
        entry.groupless = Some(sandbox);
        self.touch(uid);
    }

    pub(crate) fn touch_all(&mut self) {
        self.touched.extend(self.workers.keys().cloned());
    }

    /// The moment of the next round that no event asks for.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.workers.values().filter_map(|entry| entry.wake).min()
    }

    /// Takes in how a piece of work ended.
    pub(crate) fn work_done(&mut self, uid: &PodUid, seen: bool, result: &WorkResult, now: Instant) {
        let Some(entry) = self.workers.get_mut(uid) else { return };
        entry.task = None;
        entry.hooked.clear();
        let Some(kind) = entry.worker.busy else { return };
        let stretch = |wait| crate::types::time::jitter(wait, 0.5, rt::random());
        match result {
            WorkResult::Synced { containers, failure, .. } => {
                // One that was not come to, because something before it failed, has not been tried.
                let tried = |key: &Key| containers.iter().any(|(name, _)| *name == key.container);
                for key in std::mem::take(&mut entry.restarts).into_iter().filter(tried) {
                    self.backoff.restarts(key, now);
                }
                for (name, waiting) in containers {
                    entry.worker.tried(name.clone(), waiting.clone(), now, stretch);
                }
                entry.worker.stale = !seen;
                if entry.resizing != Resizing::No {
                    entry.resizing = failure.clone().map_or(Resizing::No, Resizing::Failed);
                }
                entry.pace.synced(containers.iter().all(|(_, waiting)| waiting.is_none()) && failure.is_none(), now);
                match failure {
                    Some(failure) => entry.worker.failed(failure.clone(), now, stretch),
                    None => entry.worker.succeeded(kind, false, now),
                }
            }
            WorkResult::Refreshed { all: true, .. } => entry.worker.succeeded(kind, false, now),
            WorkResult::Refreshed { all: false, .. } => entry.worker.not_refreshed(now, stretch),
            WorkResult::Collected { all } => {
                entry.worker.stale = !seen;
                match all {
                    true => entry.worker.succeeded(kind, false, now),
                    false => entry.worker.not_collected(now, stretch),
                }
            }
            WorkResult::Stopped => {
                entry.overdue = None;
                entry.worker.succeeded(kind, false, now);
            }
            WorkResult::Cleaned { purged } => entry.worker.succeeded(kind, *purged, now),
            WorkResult::Failed { failure } => entry.worker.failed(failure.clone(), now, stretch),
        }
        self.touch_waiting(uid);
        self.touch(uid);
    }

    /// The pod begins when these have ended.
    pub(crate) fn wait_for(&mut self, uid: &PodUid, others: Vec<PodUid>) {
        if let Some(entry) = self.workers.get_mut(uid) {
            entry.waits_for = others;
        }
    }

    /// Starts what is next for every worker that was touched or is due. Returns the pods whose workers ended for good,
    /// each with the pod that has come under its uid meanwhile.
    pub(crate) fn start_work(
        &mut self,
        cache: &ObservedCache,
        probes: &Probes,
        state: &RuntimeState,
        now: Instant,
    ) -> Vec<(PodUid, Option<Arc<Pod>>)> {
        let due = self.workers.iter().filter(|(_, entry)| entry.wake.is_some_and(|moment| moment <= now));
        let due: Vec<PodUid> = due.map(|(uid, _)| uid.clone()).collect();
        self.touched.extend(due);
        let mut ended = Vec::new();
        // A worker that ends touches those that have waited for it.
        while let Some(uid) = self.touched.pop_first() {
            if self.consider(&uid, cache, probes, state, now) {
                let successor = self.forget(&uid);
                ended.push((uid, successor));
            }
        }
        ended
    }

    /// True when the worker has ended and can be forgotten.
    fn consider(
        &mut self,
        uid: &PodUid,
        cache: &ObservedCache,
        probes: &Probes,
        state: &RuntimeState,
        now: Instant,
    ) -> bool {
        // The end of those that it waits for touches it.
        if let Some(entry) = self.workers.get_mut(uid) {
            entry.wake = None;
        }
        if self.waits_for_namesake(uid, cache) || self.waits_for_room(uid) {
            return false;
        }
        let Some(entry) = self.workers.get_mut(uid) else { return false };
        let observed = cache.pod(uid).cloned();
        if let Some(observed) = &observed {
            // What does not run any more has had its end.
            entry.asked.retain(|id| observed.containers.iter().any(|one| one.id == *id && one.is_running()));
        }
        let pod = entry.worker.pod.clone();
        let backoff = &mut self.backoff;
        let before = entry.backing_off.clone();
        let backing_off = &mut entry.backing_off;
        let worker = &entry.worker;
        let runtime = &self.runtime;
        let next = worker.next(now, || match &pod {
            Some(pod) => {
                let held_until = |name: &str| worker.held_until(name);
                let probed = probes.probed(uid);
                let resize_of = |container: &Container, is_init, running: &ObservedContainer| {
                    runtime.resize_of(pod, container, is_init, running)
                };
                let known = sync_input::Known {
                    observed: observed.as_deref(),
                    probed,
                    held_until: &held_until,
                    resize_of: &resize_of,
                    groupless: entry.groupless.as_deref(),
                    asked: &entry.asked,
                };
                let plan = sync_input::plan(pod, &known, backoff, now);
                *backing_off = sync_input::backing_off(pod, &plan, backoff);
                plan
            }
            None => Plan::default(),
        });
        self.tell_backing_off(uid, &before);
        let Some(entry) = self.workers.get_mut(uid) else { return false };
        match next {
            Next::Rest => {
                if entry.worker.busy.is_none() {
                    entry.worker.rests();
                }
                false
            }
            Next::Wait(moment) => {
                entry.wake = Some(moment);
                false
            }
            Next::Work(Work::Sync(plan)) if plan.completed && plan.actions.is_empty() => {
                entry.worker.completed();
                self.consider(uid, cache, probes, state, now)
            }
            // It goes on as soon as everything that it refers to was heard of.
            Next::Work(Work::Sync(_) | Work::Refresh)
                if !pod.as_ref().is_none_or(|pod| self.runtime.objects.borrow().are_heard(pod)) =>
            {
                false
            }
            // The runtime's network is told of when it comes.
            Next::Work(Work::Sync(plan)) if !state.network_ready && needs_network(&plan, pod.as_deref()) => {
                let why = &state.message;
                let message = format!("network is not ready: container runtime network not ready: {why}");
                self.tell(PodEvent::of_pod(uid, EventKind::Warning, Reason::NETWORK_NOT_READY, message));
                false
            }
            Next::Work(work) => {
                self.begin(uid, work, observed, now);
                false
            }
            Next::Forget => true,
        }
    }

    /// Each wait is told once, as it begins.
    fn tell_backing_off(&self, uid: &PodUid, before: &[(String, Duration)]) {
        let Some(entry) = self.workers.get(uid) else { return };
        let Identity { namespace, name, .. } = &entry.worker.identity;
        for wait in entry.backing_off.iter().filter(|wait| !before.contains(wait)) {
            let container = &wait.0;
            let message = format!("Back-off restarting failed container {container} in pod {name}_{namespace}({uid})");
            self.tell(PodEvent::of_container(uid, container, EventKind::Warning, Reason::BACK_OFF, message));
        }
    }

    fn tell(&self, event: PodEvent) {
        // Nothing depends on it: when the inbox is full it is dropped.
        let _ = self.inbox.try_send(SyncEvent::Happened(event));
    }

    fn begin(&mut self, uid: &PodUid, work: Work, observed: Option<Rc<ObservedPod>>, now: Instant) {
        let Some(entry) = self.workers.get_mut(uid) else { return };
        entry.begun = true;
        let begun = entry.pace.begins(&work, observed.is_some(), now);
        entry.worker.begun(&work, now);
        let identity = entry.worker.identity.clone();
        let observed = observed
            .unwrap_or_else(|| Rc::new(ObservedPod::new(identity.uid.clone(), &identity.namespace, &identity.name)));
        let cancel = Cancel::new();
        let watch = cancel.watch();
        let runtime = Rc::clone(&self.runtime);
        let (groups, devices) = (Rc::clone(&self.groups), Rc::clone(&self.devices));
        let csi = Rc::clone(&self.csi);
        let inbox = self.inbox.clone();
        let pod = entry.worker.pod.clone();
        if let (Work::Sync(plan), Some(pod)) = (&work, &pod) {
            entry.restarts = sync_input::restarts(pod, plan, &observed);
            entry.hooked = sync_input::hooked(pod, plan);
            if plan.resizes() && entry.resizing == Resizing::No {
                entry.resizing = Resizing::Goes;
            }
        }
        let task = rt::spawn(async move {
            let done = match (work, pod) {
                (Work::Sync(plan), Some(pod)) => {
                    let (devices, csi) = (&devices, &csi);
                    let with = sync_pod::With { runtime: &runtime, groups: &groups, devices, csi, cancel: &watch };
                    sync_pod::sync_pod(with, &inbox, &pod, &plan, &observed).await
                }
                // A pod without a spec never syncs: its worker begins in Terminating.
                (Work::Sync(_) | Work::Refresh, None) => return,
                (Work::Refresh, Some(pod)) => refresh_volumes::refresh_volumes(&runtime, &csi, &pod, watch).await,
                (Work::Look, _) => relist_pod::look_at_pod(&runtime, &observed).await,
                (Work::Collect(garbage), _) => relist_pod::collect(&runtime, &observed, &garbage).await,
                (Work::Stop { grace, by_lists }, pod) => {
                    sync_terminating_pod::stop_pod(&runtime, pod.as_deref(), &observed, grace, by_lists).await
                }
                (Work::CleanUp { purge }, _) => {
                    sync_terminated_pod::clean_up_pod(&runtime, &groups, &csi, &observed, purge).await
                }
            };
            begun.ended();
            // The loop outlives its workers; it is gone only when the process ends.
            let _ = inbox.send(SyncEvent::WorkDone(done)).await;
        });
        entry.task = Some(Running { task, cancel });
    }

    fn forget(&mut self, uid: &PodUid) -> Option<Arc<Pod>> {
        self.backoff.forget(uid);
        let entry = self.workers.remove(uid)?;
        self.touch_namesakes(&entry.worker.identity);
        self.touch_waiting(uid);
        entry.worker.successor
    }
}

fn needs_network(plan: &Plan, pod: Option<&Pod>) -> bool {
    let own_network = pod.is_some_and(|pod| !pod.spec.host_network);
    own_network && plan.actions.iter().any(|action| matches!(action, Action::CreateSandbox { .. }))
}

/// Where neither a spec nor a container tells: the API's default.
const DEFAULT_GRACE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::path::Path;

    use super::*;
    use crate::kubelet::images::Images;
    use crate::kubelet::kuberuntime::golden;
    use crate::platform::config::Config;
    use crate::platform::cri::{ImageService, RuntimeService};
    use crate::platform::net::Dialer;
    use crate::platform::rpc::Client;

    /// Workers of a runtime that does not answer.
    async fn workers(inbox: Sender<SyncEvent>) -> PodWorkers {
        let client = Client::new("/nowhere");
        let cri = RuntimeService::new(client.clone(), Duration::from_secs(1));
        let images = ImageService::new(client, Duration::from_secs(1));
        let images = Images::new(images, &Config::default(), inbox.clone());
        let runtime = Rc::new(PodRuntime::new(cri, images, golden::node(), Rc::default(), inbox.clone()));
        let groups = Rc::new(ContainerManager::new(Path::new("/nowhere"), None));
        let devices = Devices::open(Path::new("/nowhere"), Vec::new(), inbox.clone()).await;
        let csi = Csi::new(Path::new("/nowhere"), "n", inbox.clone(), None);
        PodWorkers::new(Dependencies { runtime, groups, devices, csi, inbox }, Duration::from_secs(300))
    }

    fn pod(uid: &str) -> Arc<Pod> {
        let mut pod = Pod::default();
        pod.metadata.uid = uid.into();
        pod.metadata.name = uid.to_owned();
        Arc::new(pod)
    }

    #[test]
    fn a_pod_that_waits_for_room_is_not_due() {
        let due = rt::simulate(1, |_| async {
            let (inbox, _events) = async_channel::bounded(100);
            let mut workers = workers(inbox.clone()).await;
            let (cri, address) = (workers.runtime.cri(), IpAddr::from([127, 0, 0, 1]));
            let probes = Probes::new(cri, Dialer::new(), address, inbox);
            let (waits, ends) = (pod("waits"), pod("ends"));
            workers.wanted(&waits);
            workers.wanted(&ends);
            workers.deleted(&ends.metadata.uid, Duration::from_secs(30));
            workers.wait_for(&waits.metadata.uid, vec![ends.metadata.uid.clone()]);
            let now = rt::now();
            workers.workers.get_mut(&waits.metadata.uid).unwrap().wake = Some(now);
            workers.start_work(&ObservedCache::default(), &probes, &RuntimeState::default(), now);
            workers.workers.get(&waits.metadata.uid).unwrap().wake.is_some()
        });
        assert_eq!(due, Ok(false));
    }
}
