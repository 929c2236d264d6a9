//! One pod's worker: its wanted pod, its state and its next work. Pure: the moment is an argument.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::control::pod_workers::state::{Input, State};
use crate::kubelet::kuberuntime::{Garbage, Plan};
use crate::state::objects::volumes_follow;
use crate::state::pods::{ObservedPod, Waiting};
use crate::types::api::{Pod, PodUid, Reason, RestartPolicy};
use crate::types::sorted::SortedMap;
use crate::types::time::Backoff;

/// Identifies the pod of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) uid: PodUid,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) identity: Identity,
    /// `None` for a pod that is known only from the runtime: it can only be ended.
    pub(crate) pod: Option<Arc<Pod>>,
    pub(crate) state: State,
    /// The pod ended by itself: no container starts again, not even after a restart of the agent.
    has_completed: bool,
    /// A source has the pod.
    pub(crate) wanted: bool,
    /// A pod with the same uid, to be started when this one has ended.
    pub(crate) successor: Option<Arc<Pod>>,
    /// The running work.
    pub(crate) busy: Option<Kind>,
    /// Why containers wait, from the last attempt to start them.
    pub(crate) waiting: SortedMap<String, Waiting>,
    /// Containers that failed to start, and when they are retried. Each has its own delay: an image that cannot be
    /// pulled does not slow the other containers.
    holds: SortedMap<String, RetryHold>,
    /// After a failed garbage collection: when it is retried.
    collecting: Option<RetryHold>,
    /// After a failed resize: when it is retried. Until then the pod is synced without it.
    resizing: Option<RetryHold>,
    freshness: VolumeRefresh,
    /// Limits how fast the pod's sandbox is recreated.
    remake: SandboxBackoff,
    /// The last work failed, or may have done more than was observed: the next work only observes the pod.
    pub(crate) stale: bool,
    /// The last failure of the pod as a whole.
    pub(crate) failure: Option<String>,
    /// After a failure: nothing is tried before this moment.
    not_before: Option<Instant>,
    retry: Backoff,
    /// Consecutive failures.
    failures: u32,
    /// The records of a finished and unwanted pod have been removed.
    purged: bool,
    /// Dead containers and sandboxes of a finished but wanted pod, to be removed for disk space.
    given_back: Vec<Garbage>,
    /// [`Self::given_back`] has been requested once.
    gives_back: bool,
}

#[derive(Debug)]
struct RetryHold {
    until: Instant,
    retry: Backoff,
    /// The pod was observed after the hold ended, and so were any late effects of the last attempt.
    looked: bool,
}

/// Whether the files in the pod's volumes are up to date with their objects and the pod.
#[derive(Debug, Default)]
struct VolumeRefresh {
    /// Number of changes so far.
    wanted: u32,
    /// Value of `wanted` when the running work started.
    trying: u32,
    done: u32,
    /// After a failed refresh.
    hold: Option<RetryHold>,
}

#[derive(Debug)]
struct SandboxBackoff {
    until: Option<Instant>,
    wait: Backoff,
}

/// A piece of work.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Work {
    Relist,
    Sync(Plan),
    /// Refreshes the files in the volumes. Runs only when no other work is due.
    Refresh,
    /// Removes garbage. Runs only when no other work is due, also before the next sandbox of a pod whose sandboxes die.
    Collect(Vec<Garbage>),
    Stop {
        grace: Duration,
        /// Observing the pod has failed repeatedly: rely on the runtime's lists.
        by_lists: bool,
    },
    /// `purge` removes everything of the pod.
    CleanUp {
        purge: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Relist,
    Sync,
    Refresh,
    Collect,
    Stop,
    CleanUp,
}

/// The next step of a worker.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Next {
    Work(Work),
    /// Nothing to do before this moment.
    Wait(Instant),
    /// Nothing to do until an event.
    Rest,
    /// The worker has ended and can be forgotten.
    Forget,
}

/// Waits after a failure. The kubelet waits 10 s (with jitter) from the start. The first retries here come sooner,
/// because most failures of a just restarted runtime are over quickly.
const FIRST_WORK_RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_WORK_RETRY_DELAY: Duration = Duration::from_secs(10);
/// A sandbox that lasted this long resets the waits.
const SANDBOX_SETTLED_TIME: Duration = Duration::from_secs(60);
/// After this many failed observations the worker stops the pod by the runtime's lists. The exit codes of its
/// containers stay unknown.
/// Otherwise a pod that the runtime lists and cannot describe would never end.
const MAX_FAILED_OBSERVATIONS: u32 = 3;
/// Shortest grace period (kubelet: `minimumGracePeriodInSeconds`).
const MIN_GRACE: Duration = Duration::from_secs(1);

impl Identity {
    pub(crate) fn of(pod: &ObservedPod) -> Self {
        Self { uid: pod.uid.clone(), namespace: pod.namespace.clone(), name: pod.name.clone() }
    }

    pub(crate) fn is_name_of(&self, pod: &ObservedPod) -> bool {
        self.name == pod.name && self.namespace == pod.namespace
    }

    pub(crate) fn is_namesake(&self, other: &Self) -> bool {
        self.name == other.name && self.namespace == other.namespace
    }
}

impl Worker {
    pub(crate) fn new(pod: Arc<Pod>) -> Self {
        let identity = Identity {
            uid: pod.metadata.uid.clone(),
            namespace: pod.metadata.namespace.clone(),
            name: pod.metadata.name.clone(),
        };
        let mut worker = Self::with(identity, Some(pod), State::Sync);
        // The volumes may be outdated: objects may have changed while no agent ran.
        worker.note_change();
        worker
    }

    /// A worker for a running pod that no source has.
    pub(crate) fn orphan(identity: Identity, grace: Duration) -> Self {
        Self::with(identity, None, State::Terminating { grace: grace.max(MIN_GRACE) })
    }

    fn with(identity: Identity, pod: Option<Arc<Pod>>, state: State) -> Self {
        Self {
            identity,
            wanted: pod.is_some(),
            pod,
            state,
            has_completed: false,
            successor: None,
            busy: None,
            waiting: SortedMap::new(),
            holds: SortedMap::new(),
            collecting: None,
            resizing: None,
            freshness: VolumeRefresh::default(),
            remake: SandboxBackoff { until: None, wait: Backoff::new(FIRST_WORK_RETRY_DELAY, MAX_WORK_RETRY_DELAY) },
            stale: false,
            failure: None,
            not_before: None,
            retry: Backoff::new(FIRST_WORK_RETRY_DELAY, MAX_WORK_RETRY_DELAY),
            failures: 0,
            purged: false,
            given_back: Vec::new(),
            gives_back: false,
        }
    }

    /// Ends the pod. True if the running work must be cancelled.
    pub(crate) fn terminate(&mut self, grace: Duration) -> bool {
        let before = self.state;
        self.enter(Input::Terminate { grace: grace.max(MIN_GRACE) });
        // The end does not wait for the retry of a failed sync; repeated requests do not shorten that of a failed stop.
        if before != self.state {
            self.not_before = None;
        }
        match self.busy {
            Some(Kind::Relist | Kind::Sync | Kind::Refresh | Kind::Collect | Kind::Stop) => before != self.state,
            // A clean-up does not depend on the grace period: the containers have stopped.
            Some(Kind::CleanUp) | None => false,
        }
    }

    /// No source has the pod any more. True if the running work must be cancelled.
    pub(crate) fn unwanted(&mut self, grace: Duration) -> bool {
        self.wanted = false;
        self.successor = None;
        self.terminate(grace)
    }

    /// A source has the pod, possibly again or changed.
    pub(crate) fn update_pod(&mut self, pod: Arc<Pod>) {
        debug_assert_eq!(pod.metadata.uid, self.identity.uid, "{}: another pod", self.identity);
        match self.state {
            State::Sync => {
                self.wanted = true;
                self.not_before = None;
                self.holds.clear();
                self.resizing = None;
                self.pod = Some(pod);
                self.note_change();
            }
            State::Terminating { .. } | State::Terminated | State::Finished if self.wanted => self.pod = Some(pod),
            State::Terminating { .. } | State::Terminated | State::Finished => self.successor = Some(pod),
        }
        debug_assert_eq!(self.broken(), None, "{}: {self:?}", self.identity);
    }

    /// An object that the pod refers to changed: retries at once what may have waited for it.
    pub(crate) fn objects_changed(&mut self) {
        self.not_before = None;
        let by_objects = [Reason::CREATE_CONTAINER_CONFIG_ERROR, Reason::ERR_IMAGE_PULL, Reason::IMAGE_PULL_BACK_OFF];
        let waiting = &self.waiting;
        self.holds.retain(|name, _| waiting.get(name).is_none_or(|waiting| !by_objects.contains(&waiting.reason)));
        self.note_change();
    }

    /// Clears the waits of containers that a user wants to start.
    pub(crate) fn start_requested(&mut self, containers: &[String]) {
        self.not_before = None;
        self.holds.retain(|name, _| !containers.contains(name));
    }

    fn note_change(&mut self) {
        if self.pod.as_ref().is_some_and(|pod| volumes_follow(pod)) {
            self.volumes_due();
        }
    }

    /// Requests a refresh of the volumes.
    pub(crate) fn volumes_due(&mut self) {
        self.freshness.wanted = self.freshness.wanted.wrapping_add(1);
        self.freshness.hold = None;
    }

    /// All containers have exited and none will restart.
    pub(crate) fn completed(&mut self) {
        let grace = self.pod.as_ref().map_or(Duration::ZERO, |pod| pod.spec.termination_grace());
        self.enter(Input::Completed { grace: grace.max(MIN_GRACE) });
        self.has_completed = true;
    }

    /// Whether nothing of the pod runs or starts again. A static pod that was terminated starts again with the agent.
    pub(crate) fn has_ended_for_good(&self, is_stopped: bool) -> bool {
        let has_ended = matches!(self.state, State::Terminated | State::Finished);
        match self.has_completed {
            // Before the worker has stopped it again: the status stays the same when the agent restarts.
            true => has_ended || is_stopped,
            false => has_ended && !self.pod.as_ref().is_some_and(|pod| pod.is_static()),
        }
    }

    fn enter(&mut self, input: Input) {
        let next = self.state.next(input);
        debug_assert!(self.state.may_become(next), "{}: {:?} became {next:?} on {input:?}", self.identity, self.state);
        self.state = next;
    }

    pub(crate) fn begun(&mut self, work: &Work, now: Instant) {
        debug_assert_eq!(self.broken_by(work), None, "{}: {work:?} of {self:?}", self.identity);
        self.busy = Some(work.kind());
        self.freshness.trying = self.freshness.wanted;
        if matches!(work, Work::Sync(plan) if plan.recreates()) {
            self.remake.begun(now);
        }
    }

    /// The worker has no work and no waits.
    pub(crate) fn rests(&mut self) {
        self.recovered();
    }

    fn recovered(&mut self) {
        self.failure = None;
        self.failures = 0;
        self.retry.reset();
    }

    /// Work has succeeded.
    pub(crate) fn succeeded(&mut self, kind: Kind, purged: bool, now: Instant) {
        self.busy = None;
        self.not_before = None;
        match kind {
            Kind::Relist => {
                let over = self.holds.values_mut().filter(|hold| hold.until <= now);
                over.for_each(|hold| hold.looked = true);
                // The failed work must still be retried.
                return;
            }
            // A sync sets up the volumes from the objects as they were when it began.
            Kind::Sync => self.freshness.done = self.freshness.trying,
            Kind::Refresh => {
                self.freshness.done = self.freshness.trying;
                return;
            }
            Kind::Collect => {
                self.collecting = None;
                self.given_back.clear();
            }
            Kind::Stop => self.enter(Input::Stopped),
            Kind::CleanUp => {
                self.enter(Input::Cleaned);
                self.purged |= purged;
            }
        }
        self.recovered();
    }

    /// Garbage collection failed.
    pub(crate) fn not_collected(&mut self, now: Instant, stretch: impl Fn(Duration) -> Duration) {
        self.busy = None;
        self.given_back.clear();
        let hold = self.collecting.get_or_insert_with(|| RetryHold::new(now));
        hold.lengthen(now, stretch);
    }

    /// A resize has taken effect, or failed and is retried later.
    pub(crate) fn resized(&mut self, has_failed: bool, now: Instant, stretch: impl Fn(Duration) -> Duration) {
        match has_failed {
            true => self.resizing.get_or_insert_with(|| RetryHold::new(now)).lengthen(now, stretch),
            false => self.resizing = None,
        }
    }

    /// The pod has finished, and its dead containers have not been requested yet.
    pub(crate) fn can_give_back(&self) -> bool {
        self.state == State::Finished && self.wanted && !self.gives_back
    }

    /// Requests the removal of the pod's dead containers, to free disk space. What cannot be removed now stays.
    pub(crate) fn give_back(&mut self, dead: Vec<Garbage>) {
        if self.can_give_back() {
            self.gives_back = true;
            self.given_back = dead;
        }
    }

    /// A refresh of the volumes failed.
    pub(crate) fn not_refreshed(&mut self, now: Instant, stretch: impl Fn(Duration) -> Duration) {
        self.busy = None;
        let hold = self.freshness.hold.get_or_insert_with(|| RetryHold::new(now));
        hold.lengthen(now, stretch);
    }

    /// Work failed and is retried later. `stretch` spreads the retries of many pods.
    pub(crate) fn failed(&mut self, failure: String, now: Instant, stretch: impl Fn(Duration) -> Duration) {
        self.busy = None;
        self.stale = true;
        self.failure = Some(failure);
        self.failures = self.failures.saturating_add(1);
        self.not_before = Some(now + stretch(self.retry.next_wait()));
    }

    /// The pod has ended, but its containers could not be removed from the runtime.
    pub(crate) fn not_purged(&mut self, failure: String, now: Instant, stretch: impl Fn(Duration) -> Duration) {
        self.enter(Input::Cleaned);
        self.failed(failure, now, stretch);
    }

    /// Only dead containers are left of the pod, and the runtime has failed to remove them.
    pub(crate) fn is_stuck_garbage(&self) -> bool {
        self.state == State::Finished && self.failures > 0
    }

    /// An attempt to start a container succeeded, or failed with the reason in `waiting`.
    pub(crate) fn tried(
        &mut self,
        container: String,
        waiting: Option<Waiting>,
        now: Instant,
        stretch: impl Fn(Duration) -> Duration,
    ) {
        match waiting {
            Some(waiting) => {
                let hold = self.holds.entry(container.clone()).or_insert_with(|| RetryHold::new(now));
                match waiting.until {
                    Some(until) => hold.until = until,
                    None => hold.lengthen(now, stretch),
                }
                hold.looked = false;
                self.waiting.insert(container, waiting);
            }
            None => {
                self.holds.remove(&container);
                self.waiting.remove(&container);
            }
        }
    }

    /// When the container is retried.
    pub(crate) fn held_until(&self, container: &str) -> Option<Instant> {
        self.holds.get(container).map(|hold| hold.until)
    }

    /// The next work. Calls `plan` only if the pod is to be synced.
    pub(crate) fn next(&self, now: Instant, plan: impl FnOnce() -> Plan) -> Next {
        if self.busy.is_some() {
            return Next::Rest;
        }
        if let Some(time) = self.not_before.filter(|moment| *moment > now) {
            return Next::Wait(time);
        }
        match self.state {
            State::Sync if self.stale => Next::Work(Work::Relist),
            State::Sync => self.next_sync(plan(), now),
            State::Terminating { grace } => {
                Next::Work(Work::Stop { grace, by_lists: self.failures >= MAX_FAILED_OBSERVATIONS })
            }
            State::Terminated => Next::Work(Work::CleanUp { purge: !self.wanted && !self.continues() }),
            State::Finished if self.wanted && !self.given_back.is_empty() => {
                Next::Work(Work::Collect(self.given_back.clone()))
            }
            State::Finished if self.wanted => Next::Rest,
            State::Finished if self.purged || self.continues() => Next::Forget,
            State::Finished => Next::Work(Work::CleanUp { purge: true }),
        }
    }

    /// The successor has the same uid and starts whatever ran before, as after a reboot. The former containers stay for
    /// its restart counts and logs, as upstream.
    fn continues(&self) -> bool {
        self.successor.as_ref().is_some_and(|pod| pod.spec.restart_policy == RestartPolicy::Always)
    }

    fn next_sync(&self, mut plan: Plan, now: Instant) -> Next {
        let resizes_at = self.resizing.as_ref().map(|hold| hold.until).filter(|until| *until > now && plan.resizes());
        if resizes_at.is_some() {
            plan = plan.without_resizes();
        }
        if !plan.actions.is_empty() && self.holds.values().any(|hold| hold.until <= now && !hold.looked) {
            return Next::Work(Work::Relist);
        }
        if let Some(time) = self.remake.not_before(now).filter(|_| plan.recreates()) {
            // A pod whose sandboxes die again and again leaves one after the other.
            let is_due = !plan.garbage.is_empty() && self.failures == 0 && self.collecting.is_none();
            return if is_due { Next::Work(Work::Collect(plan.garbage)) } else { Next::Wait(time) };
        }
        if !plan.actions.is_empty() || plan.completed {
            return Next::Work(Work::Sync(plan));
        }
        let mut moments: Vec<Instant> = plan.backing_off.iter().map(|(_, until)| *until).collect();
        moments.extend(plan.held_until.into_iter().chain(resizes_at));
        if self.freshness.done != self.freshness.wanted {
            match self.freshness.hold.as_ref().map(|hold| hold.until).filter(|until| *until > now) {
                Some(until) => moments.push(until),
                None => return Next::Work(Work::Refresh),
            }
        }
        if !plan.garbage.is_empty() {
            match self.collecting.as_ref().map(|hold| hold.until).filter(|until| *until > now) {
                Some(until) => moments.push(until),
                None => return Next::Work(Work::Collect(plan.garbage)),
            }
        }
        moments.into_iter().min().map_or(Next::Rest, Next::Wait)
    }
}

impl RetryHold {
    fn new(now: Instant) -> Self {
        Self { until: now, retry: Backoff::new(FIRST_WORK_RETRY_DELAY, MAX_WORK_RETRY_DELAY), looked: false }
    }

    fn lengthen(&mut self, now: Instant, stretch: impl Fn(Duration) -> Duration) {
        self.until = now + stretch(self.retry.next_wait());
    }
}

impl SandboxBackoff {
    fn begun(&mut self, now: Instant) {
        if self.until.is_some_and(|until| until + SANDBOX_SETTLED_TIME < now) {
            self.wait.reset();
        }
        self.until = Some(now + self.wait.next_wait());
    }

    fn not_before(&self, now: Instant) -> Option<Instant> {
        self.until.filter(|until| *until > now)
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl Work {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Relist => Kind::Relist,
            Self::Sync(_) => Kind::Sync,
            Self::Refresh => Kind::Refresh,
            Self::Collect(_) => Kind::Collect,
            Self::Stop { .. } => Kind::Stop,
            Self::CleanUp { .. } => Kind::CleanUp,
        }
    }
}

#[cfg(test)]
mod tests;
