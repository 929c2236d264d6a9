//! Decisions of the node that wait for the application of a pod. Pure: the moment is an argument.

use std::time::{Duration, Instant};

use crate::types::api::annotations::{HOLD, UPDATE_LOCK, UPDATE_LOCK_LIMIT, ready_within, yes_or_no};
use crate::types::api::{Pod, PodUid, Time};
use crate::types::sorted::SortedMap;

/// How often the node tries a lock that something waits for. No notification exists: a lock may be released while its file
/// stays open.
pub(super) const LOCK_RETRY_DELAY: Duration = Duration::from_secs(5);
/// Unless the pod sets it.
pub(super) const DEFAULT_LOCK_LIMIT: Duration = Duration::from_secs(60 * 60);

/// A decision of the node that stops a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Update,
    Rollback,
    Preemption,
    Shutdown,
}

/// The pods that a decision waits for.
#[derive(Debug, Default)]
pub(crate) struct HeldPods {
    pub(super) pods: SortedMap<PodUid, HeldPod>,
}

/// A pod that a decision waits for.
#[derive(Debug)]
pub(super) struct HeldPod {
    /// Such as `default/web`.
    pub(super) name: String,
    pub(super) decision: Decision,
    /// The machine's uptime when the decision began to wait.
    pub(super) since: Duration,
    pub(super) since_time: Time,
    pub(super) limit: Duration,
    /// Who holds the pod: an annotation or the application; `None` until that is known.
    pub(super) holder: Option<String>,
    pub(super) state: LockState,
    /// The decision has asked in this round. One that no longer does is given up.
    pub(super) is_asked: bool,
    /// When the lock is tried again or the limit is over.
    pub(super) due: Option<Instant>,
    /// Events that were recorded.
    pub(super) is_held_told: bool,
    pub(super) is_expiry_told: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LockState {
    /// Held when it was tried last: it is tried again then.
    Wait(Instant),
    Trying,
    /// The node has the lock.
    Free,
    Expired,
}

/// The answer to a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Yes,
    /// Not now: a later round asks again.
    No,
    /// Not now: the lock has to be tried.
    Try,
}

impl Decision {
    const fn name(self) -> &'static str {
        match self {
            Self::Update => "update",
            Self::Rollback => "rollback",
            Self::Preemption => "preemption",
            Self::Shutdown => "shutdown",
        }
    }
}

/// Whether the pod's annotation holds it.
pub(super) fn is_on_hold(pod: &Pod) -> bool {
    pod.annotation(HOLD).and_then(yes_or_no) == Some(true)
}

/// Whether the pod's application may have a lock.
pub(super) fn has_lock(pod: &Pod) -> bool {
    pod.annotation(UPDATE_LOCK).is_some()
}

/// Whether decisions may have to wait for the pod.
pub(crate) fn may_be_held(pod: &Pod) -> bool {
    is_on_hold(pod) || has_lock(pod)
}

/// How long decisions wait for the pod, `max_lock_limit` at most.
pub(super) fn lock_limit(pod: &Pod, max_lock_limit: Duration) -> Duration {
    pod.annotation(UPDATE_LOCK_LIMIT).and_then(ready_within).unwrap_or(DEFAULT_LOCK_LIMIT).min(max_lock_limit)
}

impl HeldPod {
    pub(super) fn new(pod: &Pod, decision: Decision, (since, since_time): (Duration, Time), now: Instant) -> Self {
        Self {
            name: [&*pod.metadata.namespace, "/", &*pod.metadata.name].concat(),
            decision,
            since,
            since_time,
            limit: DEFAULT_LOCK_LIMIT,
            holder: None,
            state: LockState::Wait(now),
            is_asked: true,
            due: None,
            is_held_told: false,
            is_expiry_told: false,
        }
    }

    /// A decision asks. `is_on_hold`: an annotation holds the pod, whatever its lock says.
    pub(super) fn ask(&mut self, is_on_hold: bool, has_lock: bool, uptime: Duration, now: Instant) -> Answer {
        self.is_asked = true;
        let left = self.since.saturating_add(self.limit).saturating_sub(uptime);
        if left.is_zero() {
            (self.state, self.due) = (LockState::Expired, None);
            return Answer::Yes;
        }
        let end = now + left;
        self.due = Some(end);
        if is_on_hold {
            self.holder = Some(format!("annotation {HOLD}"));
            return Answer::No;
        }
        if !has_lock {
            // The annotation has gone.
            self.due = None;
            return Answer::Yes;
        }
        match self.state {
            LockState::Free => {
                self.due = None;
                Answer::Yes
            }
            LockState::Wait(until) if until <= now => {
                self.state = LockState::Trying;
                Answer::Try
            }
            LockState::Wait(until) => {
                self.due = Some(end.min(until));
                Answer::No
            }
            LockState::Trying | LockState::Expired => Answer::No,
        }
    }

    /// The lock was tried; `holder`: the application has it.
    pub(super) fn tried(&mut self, holder: Option<String>, now: Instant) {
        if self.state == LockState::Trying {
            self.state = if holder.is_some() { LockState::Wait(now + LOCK_RETRY_DELAY) } else { LockState::Free };
        }
        self.holder = holder;
    }

    /// Why the pod is held, as one line.
    pub(super) fn line(&self) -> Option<String> {
        let holder = self.holder.as_deref().filter(|_| self.state != LockState::Expired)?;
        let minutes = self.limit.as_secs().div_ceil(60);
        let (since, decision) = (self.since_time, self.decision.name());
        Some(format!("held by {holder} since {since}, {minutes} min at most: the {decision} waits"))
    }
}

impl HeldPods {
    /// Why the pod is held, as one line.
    pub(crate) fn line(&self, uid: &PodUid) -> Option<String> {
        self.pods.get(uid)?.line()
    }

    /// One line for each held pod, with its name.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        self.pods.values().filter_map(|held| Some(format!("{}: {}", held.name, held.line()?)))
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.pods.values().filter_map(|held| held.due).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const START: Duration = Duration::from_secs(1000);

    fn held(now: Instant) -> HeldPod {
        HeldPod {
            limit: SECOND * 60,
            ..HeldPod::new(&Pod::default(), Decision::Update, (START, Time::from_unix_nanos(0)), now)
        }
    }

    #[test]
    fn held_lock_is_tried_again_after_a_pause() {
        let now = Instant::now();
        let mut pod = held(now);
        assert_eq!(pod.ask(false, true, START, now), Answer::Try);
        assert_eq!(pod.ask(false, true, START, now), Answer::No, "it is being tried");
        pod.tried(Some("the application".to_owned()), now);
        assert_eq!(pod.ask(false, true, START, now), Answer::No);
        assert_eq!(pod.due, Some(now + LOCK_RETRY_DELAY));
        let later = now + LOCK_RETRY_DELAY;
        assert_eq!(pod.ask(false, true, START + LOCK_RETRY_DELAY, later), Answer::Try);
        pod.tried(None, later);
        assert_eq!(pod.ask(false, true, START + LOCK_RETRY_DELAY, later), Answer::Yes);
        assert_eq!(pod.due, None);
    }

    #[test]
    fn limit_counts_from_the_first_question() {
        let now = Instant::now();
        for is_on_hold in [true, false] {
            let mut pod = held(now);
            assert_ne!(pod.ask(is_on_hold, true, START + SECOND * 59, now), Answer::Yes);
            assert_eq!(pod.due, Some(now + SECOND));
            assert_eq!(pod.ask(is_on_hold, true, START + SECOND * 60, now), Answer::Yes);
            assert_eq!((pod.due, pod.line()), (None, None));
        }
    }

    #[test]
    fn removed_annotation_ends_the_hold() {
        let now = Instant::now();
        let mut pod = held(now);
        assert_eq!(pod.ask(true, false, START, now), Answer::No);
        let expected =
            "held by annotation coracle.dev/hold since 1970-01-01T00:00:00Z, 1 min at most: the update waits";
        assert_eq!(pod.line().as_deref(), Some(expected));
        assert_eq!(pod.ask(false, false, START, now), Answer::Yes);
    }

    #[test]
    fn node_caps_the_limit_of_the_pod() {
        let mut pod = Pod::default();
        assert_eq!(lock_limit(&pod, SECOND * 86_400), DEFAULT_LOCK_LIMIT);
        pod.metadata.annotations.insert(UPDATE_LOCK_LIMIT, "90s".to_owned());
        assert_eq!(lock_limit(&pod, SECOND * 86_400), SECOND * 90);
        assert_eq!(lock_limit(&pod, SECOND), SECOND);
    }
}
