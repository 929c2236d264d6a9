//! Pulls the images of the next versions of the node's own pods while the present versions run.
//!
//! ```text
//!   versions: a next version -> a task pulls its images -> NextVersionPulled
//!     all there -> the next version replaces the present one
//!     failed    -> the present version runs on; another attempt after the back-off
//! ```
//!
//! A newer version, a rollback, a hold or the end of the pod drops the task, which cancels its pull.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_channel::Sender;

use crate::control::sync_loop::effect::Effect;
use crate::control::sync_loop::next_version_pulls::{NextVersionPull, NextVersionPulls};
use crate::control::sync_loop::pod_table::PodTable;
use crate::control::sync_loop::versions::replace_pods;
use crate::platform::config::go_duration;
use crate::platform::rt;
use crate::state::pods::{PodEvent, SyncEvent, Waiting};
use crate::types::api::annotations::{KEEP_VERSIONS, keep_versions};
use crate::types::api::{ContainerState, ContainerStatus, EventKind, Pod, PodStatus, PodUid, Reason};
use crate::types::sorted::SortedMap;

/// Starts and cancels the pulls.
pub(super) struct NextVersions {
    inbox: Sender<SyncEvent>,
    /// By the uid of the next version.
    tasks: SortedMap<PodUid, rt::Task<()>>,
}

/// Wait after a failure that has no back-off of its own.
const RETRY: Duration = Duration::from_secs(30);

impl NextVersions {
    pub(super) fn new(inbox: Sender<SyncEvent>) -> Self {
        Self { inbox, tasks: SortedMap::new() }
    }

    /// Starts the pulls that are due, cancels those that are no longer needed, and takes the versions that need not
    /// wait.
    pub(super) fn round(&mut self, pods: &PodTable, now: Instant) -> Vec<Effect> {
        let works = pods.can_work();
        let mut node_state = pods.node_state_mut();
        let state = &mut *node_state;
        if state.next_versions.pulls.is_empty() && state.versions.nexts().next().is_none() {
            return Vec::new();
        }
        let mut nexts = Vec::new();
        let mut ready = Vec::new();
        for (present, next) in state.versions.nexts() {
            let present = state.running_uid(present);
            match state.statuses.status(present) {
                Some(status) if does_not_serve(status) => ready.push(next.metadata.uid.clone()),
                Some(_) | None => nexts.push((present.clone(), Arc::clone(next))),
            }
        }
        for uid in &ready {
            state.versions.take_next(uid);
        }
        let is_next = |uid: &PodUid| nexts.iter().any(|(_, next)| next.metadata.uid == *uid);
        self.tasks.retain(|uid, _| is_next(uid));
        state.next_versions.pulls.retain(|uid, _| is_next(uid));
        if works {
            for (present, next) in nexts {
                self.pull(pods, &mut state.next_versions, present, next, now);
            }
        }
        drop(node_state);
        if ready.is_empty() {
            return Vec::new();
        }
        replace_pods(pods);
        vec![Effect::Reconcile]
    }

    fn pull(&mut self, pods: &PodTable, all: &mut NextVersionPulls, present: PodUid, next: Arc<Pod>, now: Instant) {
        let runtime = Rc::clone(pods.runtime());
        let uid = next.metadata.uid.clone();
        let pull = all.pulls.entry(uid.clone()).or_insert_with(|| {
            log!(info, "pulling the images of the next version", pod = next.full_name());
            let pod = Arc::clone(&next);
            NextVersionPull {
                present: present.clone(),
                pod,
                begun: now,
                attempts: 0,
                is_held: false,
                failure: None,
                retry: Some(now),
            }
        });
        if pull.retry.is_none_or(|retry| retry > now) {
            return;
        }
        pull.retry = None;
        pull.attempts = pull.attempts.saturating_add(1);
        all.under_way = runtime.pulls_under_way();
        let inbox = self.inbox.clone();
        let task = rt::spawn(async move {
            let pulled = runtime.pull_images(&next, &present).await;
            // Fails only when the agent is ending.
            let _ = inbox.send(SyncEvent::NextVersionPulled { uid: next.metadata.uid.clone(), pulled }).await;
        });
        self.tasks.insert(uid, task);
    }

    /// An attempt has ended.
    pub(super) fn on_pulled(
        &mut self,
        uid: &PodUid,
        pulled: Result<(), Waiting>,
        pods: &PodTable,
        now: Instant,
    ) -> Vec<Effect> {
        let mut node_state = pods.node_state_mut();
        let state = &mut *node_state;
        // An event of a cancelled pull may still have been queued.
        let Some(pull) = state.next_versions.pulls.get_mut(uid) else { return Vec::new() };
        self.tasks.remove(uid);
        let Err(waiting) = pulled else {
            let took = go_duration(now.saturating_duration_since(pull.begun));
            log!(info, "pulled the images of the next version", pod = pull.pod.full_name(), took = took);
            state.next_versions.pulls.remove(uid);
            state.versions.take_next(uid);
            drop(node_state);
            replace_pods(pods);
            return vec![Effect::Reconcile];
        };
        let failure = format!("{}: {}", waiting.reason, waiting.message);
        // Windows and budgets are no failure, and have an event of their own.
        pull.is_held = waiting.reason == Reason::IMAGE_PULL_WAITING;
        let is_news = pull.failure.is_none() && !pull.is_held;
        let goes_first = needs_room_of_present(&pull.pod, &failure);
        let message = match goes_first {
            true => format!("The new version replaces the running version before its images are pulled: {failure}"),
            false => format!("The present version runs on until the images of the new one are there: {failure}"),
        };
        let event = PodEvent::of_pod(&pull.present, EventKind::Warning, Reason::UPDATE_WAITS, message);
        pull.failure = Some(failure);
        pull.retry = Some(waiting.until.unwrap_or(now + RETRY));
        let mut effects = Vec::new();
        if is_news || goes_first {
            effects.push(Effect::Record(event));
        }
        if goes_first {
            state.next_versions.pulls.remove(uid);
            state.versions.take_next(uid);
            drop(node_state);
            replace_pods(pods);
            effects.push(Effect::Reconcile);
        }
        effects
    }

    /// Retries failed pulls, after Secrets or images have arrived that they may have lacked.
    pub(super) fn retry(&self, pods: &PodTable, now: Instant) {
        let mut node_state = pods.node_state_mut();
        for pull in node_state.next_versions.pulls.values_mut() {
            pull.retry = pull.retry.map(|_| now);
        }
    }
}

/// Whether replacing the pod loses nothing: it has ended, or no container runs and one of them cannot start.
fn does_not_serve(status: &PodStatus) -> bool {
    let all = || status.init_container_statuses.iter().chain(&status.container_statuses);
    let runs = |container: &ContainerStatus| matches!(container.state, Some(ContainerState::Running(_)));
    let is_stuck = |container: &ContainerStatus| match &container.state {
        Some(ContainerState::Waiting(waiting)) => {
            waiting.reason != Reason::CONTAINER_CREATING && waiting.reason != Reason::POD_INITIALIZING
        }
        Some(ContainerState::Running(_) | ContainerState::Terminated(_)) | None => false,
    };
    status.phase.is_terminal() || !all().any(runs) && all().any(is_stuck)
}

/// Whether the disk is full and only the present version's images can make room: no earlier version is kept.
fn needs_room_of_present(next: &Pod, failure: &str) -> bool {
    failure.to_ascii_lowercase().contains("no space left on device")
        && next.annotation(KEEP_VERSIONS).and_then(keep_versions) == Some(1)
}

#[cfg(test)]
mod tests;
