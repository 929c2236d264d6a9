//! Starts the work of the pod workers.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::entry::{Resizing, RunningWork};
use super::sync_pod::SyncContext;
use super::worker::{Identity, Next, Work};
use super::{
    PodWorkers, State, refresh_volumes, relist_pod, sync_input, sync_pod, sync_terminated_pod, sync_terminating_pod,
};
use crate::kubelet::kuberuntime::{Action, Cancel, Plan, PodIndex};
use crate::kubelet::probes::Probes;
use crate::platform::rt::{self, TurnWork};
use crate::state::pods::{ObservedCache, ObservedPod, PodEvent, RuntimeState, SyncEvent};
use crate::types::api::{EventKind, Pod, PodUid, Reason};
use crate::types::metrics::{self, Count};
use crate::types::sorted::SortedSet;

/// Containers whose pods are planned in a turn of the executor. A pod with more has a turn of its own.
const PLANNED_CONTAINERS_OF_A_TURN: usize = 500;

impl PodWorkers {
    /// Starts the next work of the workers that were touched or are due, as far as it fits into a turn of the executor:
    /// [`Self::has_work_to_start`] tells whether some are left. Returns the pods whose workers have ended, each with its
    /// successor of the same uid, if any.
    pub(crate) fn start_work(
        &mut self,
        cache: &ObservedCache,
        probes: &Probes,
        state: &RuntimeState,
        now: Instant,
    ) -> Vec<(PodUid, Option<Arc<Pod>>)> {
        let due = self.workers.iter().filter(|(_, entry)| entry.wake.is_some_and(|time| time <= now));
        let due: Vec<PodUid> = due.map(|(uid, _)| uid.clone()).collect();
        self.touched.extend(due);
        let mut ended = Vec::new();
        let mut turn = TurnWork::new(PLANNED_CONTAINERS_OF_A_TURN);
        // A worker that ends touches the workers that waited for it.
        while let Some(uid) = self.touched.pop_first() {
            let pod = self.worker(&uid).and_then(|worker| worker.pod.as_ref());
            let containers = pod.map_or(0, |pod| pod.spec.all_containers().count());
            if self.consider(&uid, cache, probes, state, now) {
                let successor = self.forget(&uid);
                if let Some(pod) = &successor {
                    metrics::count(Count::RestartedPods, &[pod.static_label()]);
                }
                ended.push((uid, successor));
            }
            if turn.ends_with(containers) {
                break;
            }
        }
        ended
    }

    pub(crate) fn has_work_to_start(&self) -> bool {
        !self.touched.is_empty()
    }

    /// True if the worker has ended and can be forgotten.
    fn consider(
        &mut self,
        uid: &PodUid,
        cache: &ObservedCache,
        probes: &Probes,
        state: &RuntimeState,
        now: Instant,
    ) -> bool {
        // The pods that it waits for touch it when they end.
        if let Some(entry) = self.workers.get_mut(uid) {
            entry.wake = None;
            if entry.worker.state != State::Sync {
                entry.early_pull = None;
            }
        }
        if self.waits_for_admission(uid) {
            return false;
        }
        if self.waits_for_namesake(uid, cache) || self.waits_for_room(uid) {
            self.pull_early(uid);
            return false;
        }
        let observed = cache.pod(uid).cloned();
        let Some(next) = self.next(uid, observed.as_deref(), probes, now) else { return false };
        let Some(entry) = self.workers.get_mut(uid) else { return false };
        let pod = entry.worker.pod.as_deref();
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
            // Waits until every object that the pod refers to has been fetched.
            Next::Work(Work::Sync(_) | Work::Refresh)
                if !pod.is_none_or(|pod| self.views.objects.read().are_known(pod)) =>
            {
                false
            }
            // Waits until the runtime reports its network as ready.
            Next::Work(Work::Sync(plan)) if !state.network_ready && needs_network(&plan, pod) => {
                let why = &state.message;
                let message = format!("network is not ready: container runtime network not ready: {why}");
                self.record_event(PodEvent::of_pod(uid, EventKind::Warning, Reason::NETWORK_NOT_READY, message));
                false
            }
            Next::Work(work) => {
                debug_assert_eq!(self.broken_by(uid, &work, cache), None, "{uid}: {work:?}");
                self.begin(uid, work, observed, now);
                false
            }
            Next::Forget => true,
        }
    }

    /// The next work of the pod's worker. Records the containers that enter crash-loop back-off.
    fn next(&mut self, uid: &PodUid, observed: Option<&ObservedPod>, probes: &Probes, now: Instant) -> Option<Next> {
        let entry = self.workers.get_mut(uid)?;
        if let Some(observed) = observed.filter(|_| !entry.to_restart.is_empty()) {
            // Instances that no longer run need no restart.
            let running = observed.containers.iter().filter(|container| container.is_running());
            let running: SortedSet<&str> = running.map(|container| container.id.as_str()).collect();
            entry.to_restart.retain(|id| running.contains(id.as_str()));
        }
        let pod = entry.worker.pod.clone();
        let backoff = &mut self.backoff;
        let before = entry.backing_off.clone();
        let backing_off = &mut entry.backing_off;
        let worker = &entry.worker;
        let (runtime, placements) = (&self.runtime, self.views.placements.read());
        let mut is_in_order = false;
        let next = worker.next(now, || {
            let Some(pod) = &pod else { return Plan::default() };
            let index = PodIndex::new(pod);
            let held_until = |name: &str| worker.held_until(name);
            let resizes = observed.map(|observed| runtime.resources.resizes(&index, observed, &placements));
            let inputs = sync_input::SyncInput {
                observed,
                probed: probes.probed(uid),
                held_until: &held_until,
                resizes: &resizes.unwrap_or_default(),
                resizes_pod: runtime.resources.resizes_pod(pod),
                groupless: entry.groupless.as_deref(),
                to_restart: &entry.to_restart,
            };
            let plan = sync_input::plan(pod, &inputs, backoff, now);
            *backing_off = sync_input::backing_off(pod, &plan, backoff);
            is_in_order = !plan.resizes();
            plan
        });
        if let Some(generation) = entry.resizing.generation().filter(|_| is_in_order) {
            entry.resizing = Resizing::No;
            self.resized.push((uid.clone(), generation));
        }
        self.record_backing_off(uid, &before);
        Some(next)
    }

    /// Records an event when a container enters crash-loop back-off.
    fn record_backing_off(&self, uid: &PodUid, before: &[(String, Duration)]) {
        let Some(entry) = self.workers.get(uid) else { return };
        let Identity { namespace, name, .. } = &entry.worker.identity;
        let before: SortedSet<&(String, Duration)> = before.iter().collect();
        for wait in entry.backing_off.iter().filter(|wait| !before.contains(wait)) {
            let container = &wait.0;
            let message = format!("Back-off restarting failed container {container} in pod {name}_{namespace}({uid})");
            self.record_event(PodEvent::of_container(uid, container, EventKind::Warning, Reason::BACK_OFF, message));
        }
    }

    fn record_event(&self, event: PodEvent) {
        // A best-effort event: dropped when the inbox is full.
        let _ = self.inbox.try_send(SyncEvent::PodEvent(event));
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
        let (csi, dra, views) = (Rc::clone(&self.csi), Rc::clone(&self.dra), self.views.clone());
        let inbox = self.inbox.clone();
        let pod = entry.worker.pod.clone();
        if let (Work::Sync(plan), Some(pod)) = (&work, &pod) {
            entry.restarts = sync_input::restarts(pod, plan, &observed);
            entry.hooked = sync_input::hooked(pod, plan, &observed);
            entry.replaced = plan.replaced();
            entry.resizes = plan.resizes();
            if entry.resizes && entry.resizing == Resizing::No {
                entry.resizing = Resizing::InProgress { generation: pod.metadata.generation };
            }
        }
        let task = rt::spawn(async move {
            let done = match (work, pod) {
                (Work::Sync(plan), Some(pod)) => {
                    let (runtime, groups, views) = (&runtime, &groups, &views);
                    let (devices, csi, dra) = (&devices, &csi, &dra);
                    let (pod, plan, observed, inbox, cancel) = (&pod, &plan, &observed, &inbox, &watch);
                    sync_pod::sync_pod(SyncContext {
                        pod,
                        plan,
                        observed,
                        inbox,
                        runtime,
                        groups,
                        devices,
                        csi,
                        dra,
                        views,
                        cancel,
                    })
                    .await
                }
                // A pod without a spec never syncs: its worker starts in Terminating.
                (Work::Sync(_) | Work::Refresh, None) => return,
                (Work::Refresh, Some(pod)) => {
                    refresh_volumes::refresh_volumes(&runtime, &views.objects, &csi, &pod).await
                }
                (Work::Relist, _) => relist_pod::relist_pod(&runtime, &observed, &views.observed).await,
                (Work::Collect(garbage), _) => {
                    relist_pod::collect(&runtime, &observed, &garbage, &views.observed).await
                }
                (Work::Stop { grace, by_lists }, pod) => {
                    let pod = pod.as_deref();
                    sync_terminating_pod::stop_pod(&runtime, &dra, &views, pod, &observed, grace, by_lists).await
                }
                (Work::CleanUp { purge }, _) => {
                    let cache = &views.observed;
                    sync_terminated_pod::clean_up_pod(&runtime, &groups, &csi, &observed, cache, purge).await
                }
            };
            begun.ended();
            // The loop outlives its workers; it is gone only when the process ends.
            let _ = inbox.send(SyncEvent::WorkDone(done)).await;
        });
        entry.task = Some(RunningWork { task, cancel });
    }
}

fn needs_network(plan: &Plan, pod: Option<&Pod>) -> bool {
    let own_network = pod.is_some_and(|pod| !pod.spec.host_network);
    own_network && plan.actions.iter().any(|action| matches!(action, Action::CreateSandbox { .. }))
}
