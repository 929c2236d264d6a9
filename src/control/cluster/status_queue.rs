//! StatusRequest is still to be told of each pod, and what is on its way. Pure: the moment is an argument.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::kubelet::status::status_patch;
use crate::state::pods::ReportOutcome;
use crate::types::api::{PodStatus, PodUid};
use crate::types::sorted::SortedMap;
use crate::types::time::Backoff;

/// The pod as the API server has it: for a pod of the node's own that is its mirror.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: PodUid,
}

/// A request to be made.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StatusJob {
    /// Whose status it is.
    pub(super) pod: PodUid,
    pub(super) target: Target,
    pub(super) what: StatusRequest,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum StatusRequest {
    /// Strategic merge, of the status.
    Patch(Value),
    /// The pod has ended and nothing of it is left: the server need not wait any longer. Only this version of it is known to be
    /// deleted: one of another history may not be. 0 if no version is known.
    Delete { version: u64 },
}

#[derive(Debug, Default)]
pub(super) struct StatusQueue {
    pods: SortedMap<PodUid, Report>,
    /// Of the changes so far.
    changes: u64,
}

#[derive(Debug)]
struct Report {
    target: Target,
    /// StatusRequest the server shows, as far as is known, and since which of its versions.
    shown: PodStatus,
    version: u64,
    /// StatusRequest it shall show, and which change that was.
    wanted: Option<PodStatus>,
    change: u64,
    /// Nothing of the pod is left on the node.
    gone: bool,
    /// StatusRequest is shown may differ from what is wanted.
    news: bool,
    under_way: Option<UnderWay>,
    /// After a failure.
    not_before: Option<Instant>,
    backoff: Backoff,
    /// The server refuses the status as it is: until it changes, or the server's object does, it is sent ever more rarely.
    refusals: Option<Backoff>,
    /// The server has said that it does not have this pod, or has another one of its name.
    unknown: bool,
}

#[derive(Debug)]
enum UnderWay {
    Patch {
        status: Box<PodStatus>,
        /// The version that was known when it was sent.
        since: u64,
    },
    Delete {
        since: u64,
    },
}

/// Requests at once.
const AT_ONCE: usize = 4;
const RETRY_FIRST: Duration = Duration::from_secs(1);
/// The kubelet's own batch.
const RETRY_LONGEST: Duration = Duration::from_secs(10);
/// A status that the server refuses as invalid.
const RETRY_INVALID: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(3600)];

impl StatusQueue {
    /// The server shows this of the pod, in this version. StatusRequest is older than what it was told last means nothing.
    pub(super) fn see(&mut self, pod: &PodUid, target: Target, shown: &PodStatus, version: u64) {
        match self.pods.get_mut(pod).filter(|report| report.target == target) {
            Some(report) if version < report.version => {}
            Some(report) => {
                if version > report.version {
                    report.forget_refusal();
                }
                report.shown = shown.clone();
                report.version = version;
                report.unknown = false;
                report.news = true;
            }
            None => {
                let wanted = self.pods.remove(pod).and_then(|report| report.wanted);
                self.pods.insert(pod.clone(), Report::new(target, shown.clone(), version, wanted));
            }
        }
    }

    /// All that the server has was told anew. That may be another history, after its store was restored: what it shows
    /// counts even if its versions are lower, and what it was told before may be lost. StatusRequest is gone is to be said again.
    pub(super) fn relisted<'a>(&mut self, all: impl Iterator<Item = (&'a PodUid, &'a PodStatus, u64)>) {
        for report in self.pods.values_mut() {
            report.version = 0;
            // Nobody may have deleted the pod there.
            report.gone = false;
            if let Some(UnderWay::Patch { since, .. }) = &mut report.under_way {
                *since = 0;
            }
        }
        for (pod, shown, version) in all {
            let Some(report) = self.pods.get_mut(pod) else { continue };
            report.shown = shown.clone();
            report.version = version;
            report.unknown = false;
            report.news = true;
        }
    }

    pub(super) fn shown(&self, pod: &PodUid) -> Option<&PodStatus> {
        self.pods.get(pod).map(|report| &report.shown)
    }

    /// This is true of the pod now. A pod that the server does not have is told of when it has.
    pub(super) fn want(&mut self, pod: &PodUid, status: PodStatus) {
        if let Some(report) = self.pods.get_mut(pod) {
            if report.wanted.as_ref() != Some(&status) {
                report.wanted = Some(status);
                report.forget_refusal();
                report.news = true;
                self.changes += 1;
                report.change = self.changes;
            }
        }
    }

    /// Nothing of the pod is left, and the server waits for that.
    pub(super) fn gone(&mut self, pod: &PodUid) {
        if let Some(report) = self.pods.get_mut(pod) {
            report.news |= !report.gone;
            report.gone = true;
        }
    }

    /// The server does not have the pod any more.
    pub(super) fn forget(&mut self, pod: &PodUid) {
        self.pods.remove(pod);
    }

    /// Of so many pods something is to be told, or may be.
    pub(super) fn untold(&self) -> usize {
        self.pods.values().filter(|report| report.news || report.under_way.is_some()).count()
    }

    /// Finds out of which pods nothing is to be told, while nothing can be.
    pub(super) fn settle(&mut self) {
        for report in self.pods.values_mut().filter(|report| report.news && report.under_way.is_none()) {
            let wanted = report.wanted.as_ref().and_then(|wanted| status_patch(&report.shown, wanted));
            report.news = (report.gone || wanted.is_some()) && !report.unknown;
        }
    }

    /// StatusRequest failed before says nothing of what is asked now.
    pub(super) fn begin_anew(&mut self) {
        for report in self.pods.values_mut() {
            report.not_before = None;
        }
    }

    /// StatusRequest is to be asked now, as far as there is room for it: the newest first.
    pub(super) fn next(&mut self, now: Instant) -> Vec<StatusJob> {
        let room = self.room();
        let due = self.pods.iter_mut().filter(|(_, report)| report.not_before.is_none_or(|moment| moment <= now));
        let mut due: Vec<_> = due.filter(|(_, report)| report.news).collect();
        due.sort_by_key(|(_, report)| std::cmp::Reverse(report.change));
        due.into_iter().filter_map(|(pod, report)| report.next(pod)).take(room).collect()
    }

    /// Requests that may be made beside those under way.
    fn room(&self) -> usize {
        let under_way = self.pods.values().filter(|report| report.under_way.is_some()).count();
        AT_ONCE.saturating_sub(under_way)
    }

    pub(super) fn are_under_way(&self) -> bool {
        self.pods.values().any(|report| report.under_way.is_some())
    }

    /// The moment of the next request that no event asks for. Without room for one there is none: the end of a request
    /// that is under way is an event.
    pub(super) fn due(&self) -> Option<Instant> {
        if self.room() == 0 {
            return None;
        }
        let has_news = |report: &&Report| report.news && !report.unknown && report.under_way.is_none();
        let waiting = self.pods.values().filter(has_news);
        waiting.filter_map(|report| report.not_before).min()
    }

    /// StatusRequest has become of a request. `stretch` adds jitter. True if the server has gone back to another history.
    pub(super) fn done(
        &mut self,
        pod: &PodUid,
        outcome: &ReportOutcome,
        now: Instant,
        stretch: impl Fn(Duration) -> Duration,
    ) -> bool {
        let Some(report) = self.pods.get_mut(pod) else { return false };
        let under_way = report.under_way.take();
        report.news = true;
        match outcome {
            ReportOutcome::Accepted { version } => {
                report.not_before = None;
                report.backoff.reset();
                report.refusals = None;
                match under_way {
                    Some(UnderWay::Patch { status, since }) => {
                        // StatusRequest is written is newer than all that was there before.
                        let is_another_history = *version > 0 && *version < since;
                        // Somebody may have written since, and the watch may have told of it before the answer came.
                        if is_another_history || *version == 0 || *version >= report.version {
                            report.shown = *status;
                            report.version = if is_another_history { *version } else { report.version.max(*version) };
                        }
                        // StatusRequest the pod is there, a list will tell.
                        report.unknown |= is_another_history;
                        return is_another_history;
                    }
                    Some(UnderWay::Delete { .. }) => report.unknown = true,
                    None => {}
                }
            }
            // Somebody has written meanwhile, and it was heard of before the answer.
            ReportOutcome::Unknown if matches!(under_way, Some(UnderWay::Delete { since }) if since < report.version) =>
                {}
            ReportOutcome::Unknown => report.unknown = true,
            ReportOutcome::Invalid(_) => {
                let [first, longest] = RETRY_INVALID;
                let refusals = report.refusals.get_or_insert_with(|| Backoff::new(first, longest));
                report.not_before = now.checked_add(stretch(refusals.next_wait()));
            }
            ReportOutcome::Failed(_) => {
                let wait = stretch(report.backoff.next_wait());
                report.not_before = now.checked_add(wait);
            }
        }
        false
    }
}

impl Report {
    fn new(target: Target, shown: PodStatus, version: u64, wanted: Option<PodStatus>) -> Self {
        let backoff = Backoff::new(RETRY_FIRST, RETRY_LONGEST);
        Self {
            target,
            shown,
            version,
            wanted,
            change: 0,
            gone: false,
            news: true,
            under_way: None,
            not_before: None,
            backoff,
            refusals: None,
            unknown: false,
        }
    }

    fn forget_refusal(&mut self) {
        if self.refusals.take().is_some() {
            self.not_before = None;
        }
    }

    fn next(&mut self, pod: &PodUid) -> Option<StatusJob> {
        if !self.news || self.under_way.is_some() || self.unknown {
            return None;
        }
        let job = |what| StatusJob { pod: pod.clone(), target: self.target.clone(), what };
        if let Some(wanted) = &self.wanted {
            if let Some(status) = status_patch(&self.shown, wanted) {
                // Another pod of this name must not get it.
                let patch = json!({"metadata": {"uid": self.target.uid.as_str()}, "status": status});
                let job = job(StatusRequest::Patch(patch));
                self.under_way = Some(UnderWay::Patch { status: Box::new(wanted.clone()), since: self.version });
                return Some(job);
            }
        }
        if self.gone {
            let job = job(StatusRequest::Delete { version: self.version });
            self.under_way = Some(UnderWay::Delete { since: self.version });
            return Some(job);
        }
        self.news = false;
        None
    }
}

#[cfg(test)]
mod tests;
