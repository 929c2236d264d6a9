//! Pulls the images of the next versions of the node's own pods while the present versions run.
//!
//! ```text
//!   versions: a next version -> a task pulls its images -> NextVersionPulled
//!     all there -> the next version replaces the present one
//!     failed    -> the present version runs on; another attempt after the back-off
//! ```
//!
//! A newer version, a rollback, a hold or the end of the pod drops the task, which cancels its pull.

use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_channel::Sender;

use super::held_pods::{has_lock, is_on_hold};
use super::next_version_pulls::{NextVersionPull, NextVersionPulls};
use super::pod_versions::PodVersions;
use super::update_locks::UpdateLocks;
use super::version_records::Versions;
use crate::control::pod_table::{Effect, PodTable};
use crate::kubelet::node::StatusView;
use crate::platform::config::go_duration;
use crate::platform::rt;
use crate::state::objects::Objects;
use crate::state::pods::{PodEvent, SyncEvent, Waiting};
use crate::types::api::annotations::{KEEP_VERSIONS, NEEDS_MAINS, ONE_AT_A_TIME, PULL_FIRST, keep_versions, yes_or_no};
use crate::types::api::conditions::READY;
use crate::types::api::{ConditionStatus, ContainerState, ContainerStatus, EventKind, Pod, PodStatus, PodUid, Reason};
use crate::types::owned::{Owned, View};
use crate::types::sorted::SortedMap;

/// Starts and cancels the pulls.
pub(crate) struct NextVersions {
    pulls: Owned<NextVersionPulls>,
    /// For the Secrets of pulls.
    objects: View<Objects>,
    inbox: Sender<SyncEvent>,
    /// By the uid of the next version.
    tasks: SortedMap<PodUid, rt::Task<()>>,
}

/// Wait after a failure that has no back-off of its own.
const NEXT_VERSION_RETRY_DELAY: Duration = Duration::from_secs(30);
/// Most rounds after a change of a status see that it is the turn of the next pod.
const TURN_CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// The board is read once a minute.
const MAINS_RETRY_DELAY: Duration = Duration::from_secs(60);

impl NextVersions {
    pub(crate) fn new(objects: View<Objects>, inbox: Sender<SyncEvent>) -> Self {
        Self { pulls: Owned::default(), objects, inbox, tasks: SortedMap::new() }
    }

    pub(crate) fn view(&self) -> View<NextVersionPulls> {
        self.pulls.view()
    }

    /// When the next attempt is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.pulls.read().due()
    }

    /// Starts the pulls that are due, cancels those that are no longer needed, and takes the versions that need not
    /// wait.
    pub(crate) fn round(
        &mut self,
        versions: &mut PodVersions,
        locks: &mut UpdateLocks,
        pods: &PodTable,
        now: Instant,
    ) -> Vec<Effect> {
        if self.pulls.read().pulls.is_empty() && versions.read().nexts().next().is_none() {
            return Vec::new();
        }
        let records = pods.records();
        let mut nexts = Vec::new();
        let mut ready = Vec::new();
        for (present, next) in versions.read().nexts() {
            let present = records.running_uid(present);
            match records.statuses.status(present) {
                Some(status) if does_not_serve(status) => ready.push(next.metadata.uid.clone()),
                Some(_) | None => nexts.push((present.clone(), Arc::clone(next))),
            }
        }
        ready.extend(self.released(locks, pods, now));
        for uid in &ready {
            versions.take_next(uid);
        }
        nexts.retain(|(_, next)| !ready.contains(&next.metadata.uid));
        let is_next = |uid: &PodUid| nexts.iter().any(|(_, next)| next.metadata.uid == *uid);
        self.tasks.retain(|uid, _| is_next(uid));
        self.pulls.write().pulls.retain(|uid, _| is_next(uid));
        if pods.can_work() {
            for (present, next) in nexts {
                let waits_for = self.what_comes_first(&present, &next, &versions.read(), pods);
                self.pull(pods, present, next, waits_for, now);
            }
        }
        ready.first().map(|_| Effect::Reconcile).into_iter().collect()
    }

    /// The next versions whose images are there, and whose present versions the node may stop now.
    fn released(&mut self, locks: &mut UpdateLocks, pods: &PodTable, now: Instant) -> Vec<PodUid> {
        let board = pods.status_view();
        let mut released = Vec::new();
        for (uid, pull) in &mut self.pulls.write().pulls {
            if !pull.is_pulled {
                continue;
            }
            if !locks.permits_update(&pull.present, &pull.pod, pods, now) {
                continue;
            }
            match check_mains(&pull.pod, &board) {
                Ok(()) => released.push(uid.clone()),
                // The board lost its mains while the version waited.
                Err(_) => (pull.is_pulled, pull.retry) = (false, Some(now)),
            }
        }
        released
    }

    /// What the next version of a pod of several waits for before its turn. Pods that are not ready come first.
    fn what_comes_first(&self, present: &PodUid, next: &Pod, versions: &Versions, pods: &PodTable) -> Option<String> {
        next.annotation(ONE_AT_A_TIME).and_then(yes_or_no).filter(|is_one| *is_one)?;
        let records = pods.records();
        let is_ready = |uid: &PodUid| records.statuses.status(uid).is_some_and(|status| is_ready(status));
        versions.siblings(next).find_map(|sibling| {
            let uid = records.running_uid(&sibling.runs.metadata.uid);
            let is_pulling = self.pulls.read().is_pulling(uid);
            let why = sibling.comes_first(is_ready(uid), is_pulling, is_ready(present))?;
            Some(format!("{} {why}", sibling.runs.metadata.name))
        })
    }

    fn pull(&mut self, pods: &PodTable, present: PodUid, next: Arc<Pod>, waits_for: Option<String>, now: Instant) {
        let runtime = Rc::clone(pods.runtime());
        let uid = next.metadata.uid.clone();
        let may_be_held = is_on_hold(&next)
            || pods.worker(&present).and_then(|worker| worker.pod.as_ref()).is_some_and(|pod| has_lock(pod));
        let mut next_pulls = self.pulls.write();
        let next_pulls = &mut *next_pulls;
        let pull = next_pulls.pulls.entry(uid.clone()).or_insert_with(|| {
            log!(info, "pulling the images of the next version", pod = next.full_name());
            let pod = Arc::clone(&next);
            NextVersionPull {
                present: present.clone(),
                pod,
                begun: now,
                attempts: 0,
                is_held: false,
                failure: None,
                waits_for_turn: false,
                may_be_held,
                is_pulled: false,
                retry: Some(now),
            }
        });
        pull.may_be_held = may_be_held;
        if waits_for.is_some() && pull.retry.is_some() {
            (pull.waits_for_turn, pull.is_held, pull.failure) = (true, true, waits_for);
            pull.retry = Some(now + TURN_CHECK_INTERVAL);
        } else if std::mem::take(&mut pull.waits_for_turn) {
            (pull.is_held, pull.failure, pull.retry) = (false, None, Some(now));
        }
        if pull.retry.is_none_or(|retry| retry > now) {
            return;
        }
        pull.retry = None;
        pull.attempts = pull.attempts.saturating_add(1);
        next_pulls.under_way = runtime.pulls_under_way();
        let (objects, inbox, board) = (self.objects.clone(), self.inbox.clone(), pods.status_view());
        let task = rt::spawn(async move {
            let pulls = async {
                match next.annotation(PULL_FIRST).and_then(yes_or_no) {
                    Some(false) => Ok(()),
                    Some(true) | None => runtime.images.pull(&next, &present, &objects).await,
                }
            };
            let pulled = with_mains(&next, &board, pulls).await;
            // Fails only when the agent is ending.
            let _ = inbox.send(SyncEvent::NextVersionPulled { uid: next.metadata.uid.clone(), pulled }).await;
        });
        self.tasks.insert(uid, task);
    }

    /// An attempt has ended.
    pub(crate) fn on_pulled(
        &mut self,
        uid: &PodUid,
        pulled: Result<(), Waiting>,
        versions: &mut PodVersions,
        now: Instant,
    ) -> Vec<Effect> {
        let mut next_pulls = self.pulls.write();
        // An event of a cancelled pull may still have been queued.
        let Some(pull) = next_pulls.pulls.get_mut(uid) else { return Vec::new() };
        self.tasks.remove(uid);
        let Err(waiting) = pulled else {
            let took = go_duration(now.saturating_duration_since(pull.begun));
            log!(info, "pulled the images of the next version", pod = pull.pod.full_name(), took = took);
            if pull.may_be_held {
                // The round that follows asks.
                (pull.is_pulled, pull.is_held, pull.failure) = (true, false, None);
                return Vec::new();
            }
            next_pulls.pulls.remove(uid);
            versions.take_next(uid);
            return vec![Effect::Reconcile];
        };
        let failure = format!("{}: {}", waiting.reason, waiting.message);
        // Windows and budgets are no failure, and have an event of their own.
        let is_on_battery = waiting.reason == Reason::ON_BATTERY;
        pull.is_held = is_on_battery || waiting.reason == Reason::IMAGE_PULL_WAITING;
        let is_news = pull.failure.is_none() && (is_on_battery || !pull.is_held);
        let goes_first = needs_room_of_present(&pull.pod, &failure);
        let message = match goes_first {
            true => format!("The new version replaces the running version before its images are pulled: {failure}"),
            false if is_on_battery => format!("The present version runs on until the board has mains power: {failure}"),
            false => format!("The present version runs on until the images of the new one are there: {failure}"),
        };
        let event = PodEvent::of_pod(&pull.present, EventKind::Warning, Reason::UPDATE_WAITS, message);
        pull.failure = Some(failure);
        pull.retry = Some(waiting.until.unwrap_or(now + NEXT_VERSION_RETRY_DELAY));
        let mut effects = Vec::new();
        if is_news || goes_first {
            effects.push(Effect::Record(event));
        }
        if goes_first {
            next_pulls.pulls.remove(uid);
            versions.take_next(uid);
            effects.push(Effect::Reconcile);
        }
        effects
    }

    /// Retries failed pulls, after Secrets or images have arrived that they may have lacked.
    pub(crate) fn retry(&mut self, now: Instant) {
        for pull in self.pulls.write().pulls.values_mut() {
            pull.retry = pull.retry.map(|_| now);
        }
    }
}

/// Pulls for a version that may need the mains, which may fail during the pull.
async fn with_mains(
    next: &Pod,
    board: &StatusView,
    pulls: impl Future<Output = Result<(), Waiting>>,
) -> Result<(), Waiting> {
    check_mains(next, board)?;
    pulls.await?;
    check_mains(next, board)
}

fn check_mains(next: &Pod, board: &StatusView) -> Result<(), Waiting> {
    let needs_mains = next.annotation(NEEDS_MAINS).and_then(yes_or_no) == Some(true);
    match needs_mains && board.is_on_battery() {
        true => Err(Waiting {
            reason: Reason::ON_BATTERY,
            message: "the board runs on its battery".to_owned(),
            until: Some(rt::now() + MAINS_RETRY_DELAY),
        }),
        false => Ok(()),
    }
}

fn is_ready(status: &PodStatus) -> bool {
    status.conditions.iter().any(|one| one.kind == READY && one.status == ConditionStatus::True)
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
