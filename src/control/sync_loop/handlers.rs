//! What each event changes.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use crate::control::pod_workers::{Identity, Kind, State};
use crate::control::server::Doing;
use crate::control::sync_loop::activity::doing;
use crate::control::sync_loop::{SyncLoop, adoption, orphans};
use crate::kubelet::logs::{KeptLog, link_name};
use crate::kubelet::status::{StatusInput, deadline_exceeded, pod_status};
use crate::platform::host::clock;
use crate::platform::rt;
use crate::state::objects::{ObjectKey, references};
use crate::state::pods::{
    EventObject, Look, NodeEvent, ObservedContainer, ObservedPod, PodDirs, PodEvent, ProbeResult, Relist, RuntimeState,
    SourceName, SourceProblem, SourceUpdate, SyncEvent, Taken, Told, WorkDone, WorkResult,
};
use crate::types::api::{EventKind, ObjectKind, ObjectMeta, Pod, PodUid, Reason};
use crate::types::sorted::SortedSet;

impl SyncLoop {
    pub(super) fn handle(&mut self, event: SyncEvent, now: Instant) {
        self.health.begin(doing(&event));
        match event {
            SyncEvent::Sources(update) => self.on_sources(update, now),
            SyncEvent::Observed(observation) => self.take_in(observation.pod, &observation.look),
            SyncEvent::Relisted(relist) => {
                self.on_relist(relist, now);
                self.image_garbage.relisted(now);
                self.node_watch.relisted();
                if self.node_watch.limits_storage() {
                    self.storage_limits.relisted();
                }
            }
            SyncEvent::Runtime(state) => self.on_runtime(state, now),
            SyncEvent::WorkDone(done) => self.on_work_done(done, now),
            SyncEvent::Probed(result) => self.on_probed(result),
            SyncEvent::Happened(event) => self.on_happened(event, now),
            SyncEvent::NodeHappened(event) => self.on_node_happened(event, now),
            SyncEvent::NodeHeard(terms) => self.on_node_heard(terms),
            SyncEvent::OomKilled(kill) => self.on_oom_kill(kill, now),
            SyncEvent::Groupless(uid, sandbox) => self.workers.found_groupless(&uid, sandbox),
            SyncEvent::MemoryStalled => self.node_watch.stalled(),
            SyncEvent::PressureLooked(look) => self.on_pressure_looked(look, now),
            SyncEvent::OverStorageLimits(evictions) => self.evict_all(evictions, now),
            SyncEvent::Object(news) => self.on_object(news),
            SyncEvent::ImagesCame => self.on_images_came(now),
            SyncEvent::DevicesChanged => self.on_devices_changed(),
            SyncEvent::CsiDriversChanged => self.on_csi_drivers_changed(),
            SyncEvent::DevicesRefused(uid, why) => self.on_devices_refused(&uid, &why, now),
            SyncEvent::VolumesRefused(uid, message) => self.on_volumes_refused(&uid, message, now),
            SyncEvent::Reported(done) => self.on_reported(&done, now),
            // What waits is begun with what else this round begins.
            SyncEvent::StatusesAdmitted => {
                if let Some(reporter) = &mut self.reporter {
                    reporter.admitted();
                }
            }
            SyncEvent::Mirrored(done) => self.on_mirrored(done, now),
            SyncEvent::RestartRequest(asked) => self.workers.restart(asked),
            SyncEvent::VersionAsked(asked) => self.on_version_asked(asked, now),
            SyncEvent::VersionsKept(fault) => self.on_versions_kept(fault, now),
            SyncEvent::Placed(placed) => self.on_placed(placed),
            SyncEvent::NodeShutsDown(shuts_down) => self.on_node_shuts_down(shuts_down, now),
            SyncEvent::Beat => {}
        }
    }

    /// Objects count at once: pods that come with them find them.
    fn take_in_objects(&mut self) {
        let objects = self.books.borrow().sources.objects();
        let changes = self.runtime.objects.borrow_mut().replace(&objects);
        let refused = changes.refused.into_iter().map(|(object, what)| SourceProblem {
            origin: object.origin,
            what,
            keeps_last_good: false,
            since: object.since,
        });
        let refused = self.books.borrow_mut().sources.refuse(refused.collect());
        for SourceProblem { origin, what, .. } in refused {
            log!(warn, "manifest problem", file = origin, problem = what);
        }
        let changed: SortedSet<ObjectKey> = changes.keys;
        let refers = |pod: &Pod| !pod.is_of_cluster() && references(pod).iter().any(|key| changed.contains(key));
        self.workers.objects_changed(refers);
    }

    /// What a source wants counts once the runtime has been looked at: until then a pod that runs cannot be told from
    /// one that must be started.
    fn on_sources(&mut self, update: SourceUpdate, now: Instant) {
        let update = self.with_versions(update);
        let mut books = self.books.borrow_mut();
        for problem in &update.problems {
            books.note_error(&problem.to_string(), clock::now());
        }
        let shown = update.relisted.then(|| update.pods.clone());
        let has_objects = update.source != SourceName::Api;
        books.sources.receive(update);
        if books.sources.all_ready() {
            books.versions.all_told();
        }
        drop(books);
        if has_objects {
            self.take_in_objects();
        }
        if let Some(shown) = shown {
            self.see_all_anew(&shown);
        }
        if self.relisted {
            self.reconcile_sources(now);
        }
    }

    /// Removal comes before addition.
    pub(super) fn reconcile_sources(&mut self, now: Instant) {
        let changes = {
            let seen = self.seen.borrow();
            let runs = |uid: &PodUid| seen.pod(uid).is_some() || self.workers.is_unseen(uid);
            self.books.borrow_mut().sources.changes(runs)
        };
        for (pod, problem) in &changes.ignored {
            self.tell_of_ignored(pod, problem, now);
        }
        for uid in &changes.removed {
            let uid = self.books.borrow_mut().takeovers.remove(uid).unwrap_or_else(|| uid.clone());
            self.workers.unwanted(&uid);
            self.note_ending(&uid);
            self.dirty.insert(uid);
        }
        for pod in &changes.updated {
            let pod = self.under_its_running_uid(pod);
            self.see_api_pod(&pod);
            if pod.metadata.deletion_timestamp.is_some() {
                self.end_deleted(&pod);
                continue;
            }
            if self.begins_anew(&pod) {
                self.workers.unwanted(&pod.metadata.uid);
                self.take_in_new(&pod, now);
                continue;
            }
            let pod = self.with_given_resources(&pod, now);
            self.workers.wanted(&pod);
            self.dirty.insert(pod.metadata.uid.clone());
        }
        for pod in &changes.reconciled {
            self.see_api_pod(pod);
            self.workers.told(pod);
            self.dirty.insert(pod.metadata.uid.clone());
        }
        let added = changes.added.iter().map(|pod| self.under_its_running_uid(pod)).collect();
        for pod in self.in_order_of_admission(added) {
            self.take_in_new(&pod, now);
        }
        self.weigh = true;
        self.see_mirrors();
        self.follow_objects();
        self.end_orphans();
    }

    /// The pod as it is, or under the uid that another kubelet started it with.
    fn under_its_running_uid(&mut self, pod: &Arc<Pod>) -> Arc<Pod> {
        let manifest_uid = &pod.metadata.uid;
        let mut books = self.books.borrow_mut();
        let uid = match books.takeovers.get(manifest_uid) {
            Some(uid) => uid.clone(),
            None => {
                let seen = self.seen.borrow();
                let all = seen.iter().map(|rc| &**rc).chain(self.workers.all_unseen());
                if all.clone().any(|observed| observed.uid == *manifest_uid) {
                    return Arc::clone(pod);
                }
                let free = all.filter(|observed| self.workers.worker(&observed.uid).is_none());
                match adoption::running_uid(pod, free) {
                    Some(uid) => uid,
                    None => return Arc::clone(pod),
                }
            }
        };
        books.takeovers.insert(manifest_uid.clone(), uid.clone());
        let mut taken = Pod::clone(pod);
        taken.metadata.uid = uid;
        Arc::new(taken)
    }

    fn on_relist(&mut self, relist: Relist, now: Instant) {
        let listed: SortedSet<PodUid> = relist.pods.iter().chain(&relist.unseen).map(|pod| pod.uid.clone()).collect();
        let gone: Vec<ObservedPod> = {
            let seen = self.seen.borrow();
            let gone = seen.iter().filter(|pod| !listed.contains(&pod.uid));
            gone.map(|pod| ObservedPod::new(pod.uid.clone(), &pod.namespace, &pod.name)).collect()
        };
        self.workers.unseen(relist.unseen);
        for pod in relist.pods.into_iter().chain(gone) {
            self.take_in(pod, &relist.look);
        }
        if self.relisted {
            self.end_orphans();
            self.retry_resizes(now);
        } else {
            self.relisted = true;
            self.learn_processors();
            self.learn_devices();
            self.reconcile_sources(now);
        }
        self.placing.look_again();
        self.look_after_groups();
        let objects = self.runtime.objects.borrow();
        self.workers.volumes_due(|pod| objects.is_republished(pod));
        drop(objects);
        self.follow_growth();
        // Pods that need nothing are looked at again too: this is the periodic sync, one timer for all of them.
        self.workers.touch_all();
    }

    fn on_runtime(&mut self, state: RuntimeState, now: Instant) {
        self.news.runtime(state.clone(), now);
        self.groups.use_driver(self.runtime.cgroup_driver());
        let mut books = self.books.borrow_mut();
        if !state.message.is_empty() {
            books.note_error(&state.message, clock::now());
        }
        books.runtime = state;
        drop(books);
        self.look_after_groups();
        self.workers.touch_all();
    }

    fn on_work_done(&mut self, done: WorkDone, now: Instant) {
        let WorkDone { uid, observation, result } = done;
        let seen = observation.is_some();
        if let Some(observation) = observation {
            self.take_in(observation.pod, &observation.look);
        }
        if let WorkResult::Synced { failure: Some(failure), .. } | WorkResult::Failed { failure } = &result {
            let name = self.workers.worker(&uid).map_or_else(|| uid.to_string(), |worker| worker.identity.to_string());
            if !matches!(&result, WorkResult::Synced { warnings, .. } if !warnings.is_empty()) {
                log!(warn, "pod not synced", pod = name, error = failure);
            }
            self.books.borrow_mut().note_error(&format!("{name}: {failure}"), clock::now());
        }
        self.tell_failure(&uid, &result, now);
        if let WorkResult::Synced { warnings, .. } | WorkResult::Refreshed { warnings, .. } = &result {
            for (reason, message) in warnings {
                let event = PodEvent::of_pod(&uid, EventKind::Warning, reason.clone(), message.as_str());
                self.on_happened(event, now);
            }
        }
        let resizing = self.workers.resizing(&uid).clone();
        self.workers.work_done(&uid, seen, &result, now);
        self.note_resizing(&uid, &resizing, now);
        self.release_devices();
        self.dirty.insert(uid);
    }

    /// What upstream has an event for, beyond what was told when it happened.
    fn tell_failure(&mut self, uid: &PodUid, result: &WorkResult, now: Instant) {
        let busy = self.workers.worker(uid).and_then(|worker| worker.busy);
        let (reason, message) = match (busy, result) {
            (Some(Kind::Look), WorkResult::Synced { failure: Some(failure), .. }) => {
                (Reason::FAILED_SYNC, format!("error determining status: {failure}"))
            }
            (Some(Kind::Stop), WorkResult::Failed { failure }) => {
                (Reason::FAILED_KILL_POD, format!("error killing pod: {failure}"))
            }
            _ => return,
        };
        self.on_happened(PodEvent::of_pod(uid, EventKind::Warning, reason, message), now);
    }

    fn on_probed(&mut self, result: ProbeResult) {
        if self.probes.take_in(&result) {
            self.workers.touch(&result.pod);
            self.dirty.insert(result.pod);
        }
    }

    pub(super) fn on_happened(&mut self, event: PodEvent, now: Instant) {
        // A pod that is gone has nothing to be told of.
        let Some(worker) = self.workers.worker(&event.pod) else { return };
        let Identity { uid, namespace, name } = worker.identity.clone();
        self.happenings.tell(&worker.identity.to_string(), &event);
        let told =
            Told::of_pod(EventObject { kind: ObjectKind::Pod, namespace, name, uid }, worker.pod.as_deref(), event);
        self.note_event(told, now);
    }

    /// The pod has no worker: it never counted.
    fn tell_of_ignored(&self, pod: &Pod, problem: &SourceProblem, now: Instant) {
        log!(warn, "manifest problem", file = problem.origin, problem = problem.what);
        let ObjectMeta { uid, namespace, name, .. } = &pod.metadata;
        let object =
            EventObject { kind: ObjectKind::Pod, namespace: namespace.clone(), name: name.clone(), uid: uid.clone() };
        let event = PodEvent::of_pod(uid, EventKind::Warning, Reason::FAILED_VALIDATION, problem.what.as_str());
        self.note_event(Told::of_pod(object, Some(pod), event), now);
    }

    pub(super) fn on_node_happened(&mut self, event: NodeEvent, now: Instant) {
        match event.kind {
            EventKind::Normal => log!(info, &event.message, reason = event.reason),
            EventKind::Warning => log!(warn, &event.message, reason = event.reason),
        }
        self.note_event(Told::of_node(&self.runtime.node.node_name, event), now);
    }

    fn note_event(&self, told: Told, now: Instant) {
        self.books.borrow().events.borrow_mut().note(told, clock::now(), now);
        if let Some(sender) = &self.event_sender {
            sender.noted();
        }
    }

    fn take_in(&mut self, mut pod: ObservedPod, look: &Look) {
        let uid = pod.uid.clone();
        self.note_oom_kills(&mut pod);
        let taken = self.seen.borrow_mut().observe(pod, look);
        if taken != Taken::TooLate {
            self.workers.seen(&uid);
        }
        if taken != Taken::News {
            return;
        }
        let seen = self.seen.borrow();
        self.books.borrow_mut().followers.see(&uid, seen.pod(&uid).map(|pod| &**pod));
        match seen.pod(&uid) {
            Some(pod) => {
                self.pleg.watch(pod);
                self.placing.look_again();
                self.logs.keep(&uid, kept_logs(&self.runtime.dirs, pod));
            }
            None => {
                self.pleg.forget(&uid);
                self.logs.keep(&uid, Vec::new());
            }
        }
        drop(seen);
        self.workers.touch(&uid);
        self.dirty.insert(uid);
    }

    /// Ends what runs for no pod of any source, once every source has said what it wants. A manifest that has changed
    /// says so for its former pod at once: the new one waits for that.
    fn end_orphans(&mut self) {
        let all_ready = self.books.borrow().sources.all_ready();
        let orphans: Vec<ObservedPod> = {
            let seen = self.seen.borrow();
            let free = seen.iter().map(|pod| &**pod).chain(self.workers.all_unseen());
            let free = free.filter(|pod| self.workers.worker(&pod.uid).is_none());
            let is_static = |pod: &ObservedPod| pod.source.as_deref().is_some_and(|source| source != "api");
            let is_former = |pod: &ObservedPod| is_static(pod) && self.workers.has_namesake(pod);
            free.filter(|pod| all_ready || is_former(pod)).cloned().collect()
        };
        for pod in orphans {
            log!(info, "ending a pod that no source has", pod = pod.uid, name = pod.name);
            self.workers.orphan(&pod);
        }
        if !all_ready {
            return;
        }
        if self.strays.as_ref().is_none_or(|task| task.is_finished() && self.strays_failed.take()) {
            let known = self.workers.uids().cloned().collect();
            let (runtime, books) = (Rc::clone(&self.runtime), Rc::clone(&self.books));
            let (csi, failed) = (Rc::clone(&self.csi), Rc::clone(&self.strays_failed));
            self.strays = Some(rt::spawn(orphans::remove(runtime, csi, known, books, failed)));
        }
    }

    /// A pod that its source does not have any more is shown until it is gone.
    fn note_ending(&mut self, uid: &PodUid) {
        let Some(pod) = self.workers.worker(uid).and_then(|worker| worker.pod.as_ref()) else { return };
        let mut pod = Pod::clone(pod);
        pod.metadata.deletion_timestamp = Some(clock::now());
        self.books.borrow_mut().ending.insert(uid.clone(), Arc::new(pod));
    }

    /// Starts the work that is next everywhere, and brings the statuses up to date.
    pub(super) fn start_work(&mut self, now: Instant) {
        self.health.begin(Doing::Deadlines);
        self.end_overdue(now);
        self.health.begin(Doing::Shutdown);
        self.shut_down(now);
        self.health.begin(Doing::Probes);
        self.update_probes(now);
        if self.can_work() {
            loop {
                self.health.begin(Doing::StartingWork);
                let ended = {
                    let state = &self.books.borrow().runtime;
                    self.workers.start_work(&self.seen.borrow(), &self.probes, state, now)
                };
                if ended.is_empty() {
                    break;
                }
                for (uid, successor) in ended {
                    self.forget(&uid);
                    if let Some(pod) = successor {
                        self.take_in_new(&pod, now);
                    }
                }
                self.health.begin(Doing::PendingResizes);
                // What they had, others may have waited for.
                self.retry_resizes(now);
            }
            self.health.begin(Doing::CpuAssignment);
            self.weigh_burstable();
            self.place();
        }
        self.health.begin(Doing::Volumes);
        self.tell_volumes_in_use();
        self.health.begin(Doing::Images);
        self.collect_images(now);
        self.health.begin(Doing::NodePressure);
        self.watch_node(now);
        self.health.begin(Doing::Statuses);
        for uid in std::mem::take(&mut self.dirty) {
            // Of a pod that was not seen yet, a status would say that its containers are lost.
            if !self.is_unknown(&uid) {
                self.refresh_status(&uid);
            }
            self.note_deadline(&uid, now);
        }
        self.health.begin(Doing::Versions);
        self.judge_versions(now);
        self.health.begin(Doing::Reporting);
        if let Some(reporter) = &mut self.reporter {
            reporter.start(now);
            self.books.borrow_mut().untold = reporter.untold();
        }
        self.health.begin(Doing::ShutdownEnd);
        self.let_machine_go(now);
    }

    /// Before the work: what is next for a pod depends on whether what runs is known to have started.
    fn update_probes(&mut self, now: Instant) {
        for uid in &self.dirty {
            let Some(worker) = self.workers.worker(uid) else { continue };
            let Some(pod) = &worker.pod else { continue };
            self.probes.update(pod, &self.seen_as_started(uid), worker.state != State::Sync, now);
        }
    }

    /// The pod as it is seen, but that a container does not run yet whose hook after the start is not over.
    fn seen_as_started(&self, uid: &PodUid) -> Rc<ObservedPod> {
        let Some(seen) = self.seen.borrow().pod(uid).cloned() else {
            return Rc::new(ObservedPod::new(uid.clone(), "", ""));
        };
        match self.workers.hooked(uid) {
            [] => seen,
            hooked => Rc::new(seen.without_running(hooked)),
        }
    }

    /// The runtime has the pod, and has not told yet what is in it.
    fn is_unknown(&self, uid: &PodUid) -> bool {
        self.workers.is_unseen(uid) && self.seen.borrow().pod(uid).is_none()
    }

    fn note_deadline(&mut self, uid: &PodUid, now: Instant) {
        let Some(worker) = self.workers.worker(uid).filter(|worker| worker.state == State::Sync) else { return };
        if let Some(pod) = &worker.pod {
            self.deadlines.note(pod, now, clock::now());
        }
    }

    fn end_overdue(&mut self, now: Instant) {
        for uid in self.deadlines.take_overdue(now) {
            let Some(worker) = self.workers.worker(&uid).filter(|worker| worker.state == State::Sync) else { continue };
            let message = "Pod was active on the node longer than the specified deadline";
            let event = PodEvent::of_pod(&worker.identity.uid, EventKind::Normal, Reason::DEADLINE_EXCEEDED, message);
            self.on_happened(event, now);
            self.failed.insert(uid.clone(), deadline_exceeded());
            self.workers.end(&uid);
            self.dirty.insert(uid);
        }
    }

    fn forget(&mut self, uid: &PodUid) {
        self.pleg.forget(uid);
        self.probes.forget(uid);
        self.happenings.forget(uid);
        let mut books = self.books.borrow_mut();
        books.statuses.forget(uid);
        books.ending.remove(uid);
        drop(books);
        if let Some(reporter) = &mut self.reporter {
            reporter.forget(uid);
        }
        self.dirty.remove(uid);
        self.failed.remove(uid);
        self.admitted.remove(uid);
        self.deadlines.forget(uid);
        self.resizes.forget(uid);
        self.weigh = true;
        log!(info, "pod gone", uid = uid);
    }

    fn refresh_status(&mut self, uid: &PodUid) {
        let Some(worker) = self.workers.worker(uid) else { return };
        let Some(pod) = &worker.pod else { return };
        let seen = self.seen_as_started(uid);
        let mut books = self.books.borrow_mut();
        let status = pod_status(&StatusInput {
            pod,
            observed: &seen,
            previous: books.statuses.status(uid).map(|status| &**status),
            waiting: &worker.waiting,
            backing_off: self.workers.backing_off(uid),
            probed: self.probes.probed(uid),
            host_ips: &self.runtime.node.node_ips,
            runtime_name: &books.runtime.name,
            now: clock::now(),
            ended: worker.state != State::Sync,
            failed: self.failed.get(uid),
            resize: self.resizes.of(uid, self.workers.resizing(uid)),
            devices: &self.devices.shown(uid),
        });
        let status = self.last_word(worker, status);
        books.statuses.set(uid, status);
        drop(books);
        self.tell_status(uid);
    }
}

/// The log of each container that the runtime has of a pod.
fn kept_logs(dirs: &PodDirs, pod: &ObservedPod) -> Vec<KeptLog> {
    let (namespace, name) = (&pod.namespace, &pod.name);
    let kept = |run: &ObservedContainer| KeptLog {
        container_id: run.id.clone(),
        log: dirs.log(namespace, name, &pod.uid, &run.name, run.restart_count),
        link: dirs.log_links().join(link_name(namespace, name, &run.name, &run.id)),
        runs: run.is_running(),
    };
    pod.containers.iter().map(kept).collect()
}
