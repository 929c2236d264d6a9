//! One pod's worker: what is wanted, where it stands, and which work is next. Pure: the moment is an argument.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::control::pod_workers::state::{Input, State};
use crate::kubelet::kuberuntime::{Garbage, Plan};
use crate::state::objects::volumes_follow;
use crate::state::pods::{ObservedPod, Waiting};
use crate::types::api::{Pod, PodUid, Reason};
use crate::types::sorted::SortedMap;
use crate::types::time::Backoff;

/// Whose worker it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) uid: PodUid,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) identity: Identity,
    /// `None` for a pod that is known from the runtime only: all that can be done is to end it.
    pub(crate) pod: Option<Arc<Pod>>,
    pub(crate) state: State,
    /// A source has the pod.
    pub(crate) wanted: bool,
    /// The same uid, asked for again while this one ends.
    pub(crate) successor: Option<Arc<Pod>>,
    /// The work under way.
    pub(crate) busy: Option<Kind>,
    /// Why containers wait, from the last try to start them.
    pub(crate) waiting: SortedMap<String, Waiting>,
    /// Containers that could not be started, and when they are tried again.
    holds: SortedMap<String, Hold>,
    /// What has ended could not be removed, and when that is tried again.
    collecting: Option<Hold>,
    freshness: Freshness,
    /// The pod's sandbox is not made again and again at once.
    remake: Remake,
    /// The last work failed or may have done more than was seen: the next one only looks.
    pub(crate) stale: bool,
    /// The last failure of the pod as a whole.
    pub(crate) failure: Option<String>,
    /// After a failure: nothing is tried before.
    not_before: Option<Instant>,
    retry: Backoff,
    /// Failures in a row.
    failures: u32,
    /// The records of a finished pod that nobody wants are gone too.
    purged: bool,
    /// What the node wants back of a finished pod that somebody wants.
    given_back: Vec<Garbage>,
    /// It has been asked for once.
    gives_back: bool,
}

#[derive(Debug)]
struct Hold {
    until: Instant,
    retry: Backoff,
    /// The pod was looked at when the time was over: what the last try was about to do late has been seen.
    looked: bool,
}

/// Whether the files in the pod's volumes are those that its objects, or the pod itself, call for.
#[derive(Debug, Default)]
struct Freshness {
    /// Counts the changes.
    wanted: u32,
    /// The last change that was there when the work under way began.
    trying: u32,
    done: u32,
    /// After a failure.
    hold: Option<Hold>,
}

#[derive(Debug)]
struct Remake {
    until: Option<Instant>,
    wait: Backoff,
}

/// A piece of work.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Work {
    Look,
    Sync(Plan),
    /// Nothing else is to be done: the files in the volumes follow what they are made from.
    Refresh,
    /// Nothing else is to be done: what the pod needs no longer is removed.
    Collect(Vec<Garbage>),
    Stop {
        grace: Duration,
        /// Looking at the pod has failed again and again: what the runtime lists must do.
        by_lists: bool,
    },
    /// With `purge` nothing of the pod is kept.
    CleanUp {
        purge: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Look,
    Sync,
    Refresh,
    Collect,
    Stop,
    CleanUp,
}

/// What a worker wants to do now.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Next {
    Work(Work),
    /// Nothing before this moment.
    Wait(Instant),
    /// Nothing until something happens.
    Rest,
    /// Nothing ever: the worker can be forgotten.
    Forget,
}

/// After a failed try. The kubelet waits 10 s (with jitter) at once; the first tries here come sooner, as most failures
/// of a runtime that has just been restarted are over quickly.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_LONGEST: Duration = Duration::from_secs(10);
/// After this long a sandbox has proved itself.
const REMAKE_QUIET: Duration = Duration::from_secs(60);
/// After so many failures a pod is ended by what the runtime lists: how its containers ended will not be known.
const MOST_LOOKS: u32 = 3;
/// The least that a container is given to stop (kubelet: `minimumGracePeriodInSeconds`).
const LEAST_GRACE: Duration = Duration::from_secs(1);

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
        // While no agent ran, something may have changed.
        worker.note_change();
        worker
    }

    /// For a pod that runs and that no source has.
    pub(crate) fn orphan(identity: Identity, grace: Duration) -> Self {
        Self::with(identity, None, State::Terminating { grace: grace.max(LEAST_GRACE) })
    }

    fn with(identity: Identity, pod: Option<Arc<Pod>>, state: State) -> Self {
        Self {
            identity,
            wanted: pod.is_some(),
            pod,
            state,
            successor: None,
            busy: None,
            waiting: SortedMap::new(),
            holds: SortedMap::new(),
            collecting: None,
            freshness: Freshness::default(),
            remake: Remake { until: None, wait: Backoff::new(RETRY_FIRST, RETRY_LONGEST) },
            stale: false,
            failure: None,
            not_before: None,
            retry: Backoff::new(RETRY_FIRST, RETRY_LONGEST),
            failures: 0,
            purged: false,
            given_back: Vec::new(),
            gives_back: false,
        }
    }

    /// The pod shall end. True if the work under way must be ended for it.
    pub(crate) fn terminate(&mut self, grace: Duration) -> bool {
        let before = self.state;
        self.state = self.state.next(Input::Terminate { grace: grace.max(LEAST_GRACE) });
        if before != self.state {
            self.not_before = None;
        }
        match self.busy {
            Some(Kind::Look | Kind::Sync | Kind::Refresh | Kind::Collect | Kind::Stop) => before != self.state,
            Some(Kind::CleanUp) | None => false,
        }
    }

    /// No source has the pod any more.
    pub(crate) fn unwanted(&mut self, grace: Duration) -> bool {
        self.wanted = false;
        self.successor = None;
        self.terminate(grace)
    }

    /// A source has the pod, perhaps again, perhaps changed.
    pub(crate) fn wanted(&mut self, pod: Arc<Pod>) {
        match self.state {
            State::Sync => {
                self.wanted = true;
                self.not_before = None;
                self.holds.clear();
                self.pod = Some(pod);
                self.note_change();
            }
            State::Terminating { .. } | State::Terminated | State::Finished if self.wanted => self.pod = Some(pod),
            State::Terminating { .. } | State::Terminated | State::Finished => self.successor = Some(pod),
        }
    }

    /// An object that the pod refers to has changed: what it waited for may be there.
    pub(crate) fn objects_changed(&mut self) {
        self.not_before = None;
        let by_objects = [Reason::CREATE_CONTAINER_CONFIG_ERROR, Reason::ERR_IMAGE_PULL, Reason::IMAGE_PULL_BACK_OFF];
        let waiting = &self.waiting;
        self.holds.retain(|name, _| waiting.get(name).is_none_or(|waiting| !by_objects.contains(&waiting.reason)));
        self.note_change();
    }

    /// Somebody wants these containers to start: what was tried before does not hold them back.
    pub(crate) fn asked_to_start(&mut self, containers: &[String]) {
        self.not_before = None;
        self.holds.retain(|name, _| !containers.contains(name));
    }

    fn note_change(&mut self) {
        if self.pod.as_ref().is_some_and(|pod| volumes_follow(pod)) {
            self.volumes_due();
        }
    }

    /// Its volumes are brought up to date once more.
    pub(crate) fn volumes_due(&mut self) {
        self.freshness.wanted = self.freshness.wanted.wrapping_add(1);
        self.freshness.hold = None;
    }

    /// All containers have ended and none will start again.
    pub(crate) fn completed(&mut self) {
        let grace = self.pod.as_ref().map_or(Duration::ZERO, |pod| pod.spec.termination_grace());
        self.state = self.state.next(Input::Completed { grace: grace.max(LEAST_GRACE) });
    }

    pub(crate) fn begun(&mut self, work: &Work, now: Instant) {
        self.busy = Some(work.kind());
        self.freshness.trying = self.freshness.wanted;
        if matches!(work, Work::Sync(plan) if plan.remakes()) {
            self.remake.begun(now);
        }
    }

    /// Nothing is to be done and nothing waits.
    pub(crate) fn rests(&mut self) {
        self.recovered();
    }

    fn recovered(&mut self) {
        self.failure = None;
        self.failures = 0;
        self.retry.reset();
    }

    /// Work came to its end without a failure.
    pub(crate) fn succeeded(&mut self, kind: Kind, purged: bool, now: Instant) {
        self.busy = None;
        self.not_before = None;
        match kind {
            Kind::Look => {
                let over = self.holds.values_mut().filter(|hold| hold.until <= now);
                over.for_each(|hold| hold.looked = true);
                // What failed has still to be tried again.
                return;
            }
            Kind::Sync => self.freshness.done = self.freshness.trying,
            Kind::Refresh => {
                self.freshness.done = self.freshness.trying;
                return;
            }
            Kind::Collect => {
                self.collecting = None;
                self.given_back.clear();
            }
            Kind::Stop => self.state = self.state.next(Input::Stopped),
            Kind::CleanUp => {
                self.state = self.state.next(Input::Cleaned);
                self.purged |= purged;
            }
        }
        self.recovered();
    }

    /// Something that has ended could not be removed.
    pub(crate) fn not_collected(&mut self, now: Instant, stretch: impl Fn(Duration) -> Duration) {
        self.busy = None;
        self.given_back.clear();
        let hold = self.collecting.get_or_insert_with(|| Hold::new(now));
        hold.lengthen(now, stretch);
    }

    /// The pod has ended for good, and the node has not asked for what is left of its containers yet.
    pub(crate) fn can_give_back(&self) -> bool {
        self.state == State::Finished && self.wanted && !self.gives_back
    }

    /// The node needs the room that what is left of the pod's containers takes. What cannot be removed now stays.
    pub(crate) fn give_back(&mut self, dead: Vec<Garbage>) {
        if self.can_give_back() {
            self.gives_back = true;
            self.given_back = dead;
        }
    }

    /// The files in the volumes could not be brought up to date.
    pub(crate) fn not_refreshed(&mut self, now: Instant, stretch: impl Fn(Duration) -> Duration) {
        self.busy = None;
        let hold = self.freshness.hold.get_or_insert_with(|| Hold::new(now));
        hold.lengthen(now, stretch);
    }

    /// Work failed: it is tried again later. `stretch` spreads the tries of many pods.
    pub(crate) fn failed(&mut self, failure: String, now: Instant, stretch: impl Fn(Duration) -> Duration) {
        self.busy = None;
        self.stale = true;
        self.failure = Some(failure);
        self.failures = self.failures.saturating_add(1);
        self.not_before = Some(now + stretch(self.retry.next_wait()));
    }

    /// A try to start a container ended: well, or for a reason for which it waits now.
    pub(crate) fn tried(
        &mut self,
        container: String,
        waiting: Option<Waiting>,
        now: Instant,
        stretch: impl Fn(Duration) -> Duration,
    ) {
        match waiting {
            Some(waiting) => {
                let hold = self.holds.entry(container.clone()).or_insert_with(|| Hold::new(now));
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

    /// The moment before which the container is not tried again.
    pub(crate) fn held_until(&self, container: &str) -> Option<Instant> {
        self.holds.get(container).map(|hold| hold.until)
    }

    /// The work that is next. `plan` is asked only when the pod is to be synced.
    pub(crate) fn next(&self, now: Instant, plan: impl FnOnce() -> Plan) -> Next {
        if self.busy.is_some() {
            return Next::Rest;
        }
        if let Some(moment) = self.not_before.filter(|moment| *moment > now) {
            return Next::Wait(moment);
        }
        match self.state {
            State::Sync if self.stale => Next::Work(Work::Look),
            State::Sync => self.next_sync(plan(), now),
            State::Terminating { grace } => Next::Work(Work::Stop { grace, by_lists: self.failures >= MOST_LOOKS }),
            State::Terminated => Next::Work(Work::CleanUp { purge: !self.wanted }),
            State::Finished if self.wanted && !self.given_back.is_empty() => {
                Next::Work(Work::Collect(self.given_back.clone()))
            }
            State::Finished if self.wanted => Next::Rest,
            State::Finished if self.purged => Next::Forget,
            State::Finished => Next::Work(Work::CleanUp { purge: true }),
        }
    }

    fn next_sync(&self, plan: Plan, now: Instant) -> Next {
        if !plan.actions.is_empty() && self.holds.values().any(|hold| hold.until <= now && !hold.looked) {
            return Next::Work(Work::Look);
        }
        if let Some(moment) = self.remake.not_before(now).filter(|_| plan.remakes()) {
            return Next::Wait(moment);
        }
        if !plan.actions.is_empty() || plan.completed {
            return Next::Work(Work::Sync(plan));
        }
        let mut moments: Vec<Instant> = plan.backing_off.iter().map(|(_, until)| *until).collect();
        moments.extend(plan.held_until);
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

impl Hold {
    fn new(now: Instant) -> Self {
        Self { until: now, retry: Backoff::new(RETRY_FIRST, RETRY_LONGEST), looked: false }
    }

    fn lengthen(&mut self, now: Instant, stretch: impl Fn(Duration) -> Duration) {
        self.until = now + stretch(self.retry.next_wait());
    }
}

impl Remake {
    fn begun(&mut self, now: Instant) {
        if self.until.is_some_and(|until| until + REMAKE_QUIET < now) {
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
            Self::Look => Kind::Look,
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
