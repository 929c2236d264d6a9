//! Pod statuses to send, and the requests in flight. Pure: the moment is an argument.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::kubelet::status::status_patch;
use crate::state::pods::ReportOutcome;
use crate::types::api::{PodStatus, PodUid};
use crate::types::sorted::{SortOnce, SortedMap};
use crate::types::time::Backoff;

/// The pod on the API server: for a static pod, its mirror pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: PodUid,
}

/// A request to send.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StatusJob {
    /// The pod whose status it is.
    pub(super) pod: PodUid,
    pub(super) target: Target,
    pub(super) request: StatusRequest,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum StatusRequest {
    /// Strategic merge patch of the status.
    Patch(Value),
    /// Confirms the deletion of a pod that has ended and left nothing on the node. Only this version is known to be
    /// deleted: the pod may exist in another history. 0 if no version is known.
    Delete { version: u64 },
}

#[derive(Debug, Default)]
pub(super) struct StatusQueue {
    pods: SortedMap<PodUid, Report>,
    /// Number of changes so far.
    changes: u64,
    /// Another history was reported, and the list that follows has not arrived. Meanwhile the requests of all other pods
    /// show that history too.
    awaits_list: bool,
}

#[derive(Debug)]
struct Report {
    target: Target,
    /// The API server's status as last observed, and its resource version.
    server_status: PodStatus,
    version: u64,
    /// The status to report, and the number of the change that set it.
    wanted: Option<PodStatus>,
    change: u64,
    /// Number of its requests since no request waited.
    sent: u32,
    /// Nothing of the pod is left on the node.
    gone: bool,
    /// `server_status` may differ from `wanted`.
    is_pending: bool,
    under_way: Option<UnderWay>,
    /// After a failure: nothing is sent before this moment.
    not_before: Option<Instant>,
    backoff: Backoff,
    /// The API server rejects the status as invalid or too large. It is retried ever more rarely, until the status or
    /// the server's object changes.
    refusals: Option<Backoff>,
    /// The API server does not have this pod, or has another pod of its name.
    unknown: bool,
    /// The API server has denied this pod. At this moment, unless the watch has confirmed that, the watch is wrong.
    doubt_at: Option<Instant>,
    watch_backoff: Backoff,
}

#[derive(Debug)]
enum UnderWay {
    Patch {
        status: Box<PodStatus>,
        /// The version known when the request was sent.
        since: u64,
    },
    Delete {
        since: u64,
    },
}

/// Maximum number of concurrent requests.
const MAX_STATUS_REQUESTS: usize = 4;
/// Those of pods whose last request failed: it may have hung, and hang again.
const MAX_REQUESTS_AFTER_FAILURE: usize = 2;
const FIRST_STATUS_RETRY_DELAY: Duration = Duration::from_secs(1);
/// The period of the kubelet's status batches.
const MAX_STATUS_RETRY_DELAY: Duration = Duration::from_secs(10);
/// First and longest time for the watch to show that a pod is gone. Then all pods are listed again, which a thin link pays
/// for: a server whose watch stays behind is asked ever more rarely.
const WATCH_LAG: [Duration; 2] = [Duration::from_secs(30), Duration::from_secs(3600)];
/// First and longest retry of a rejected status. Only another policy or version of the server takes it, and these change
/// by the hour.
const RETRY_INVALID: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(3600)];

impl StatusQueue {
    /// The API server shows this status in this version. Versions older than the known one are ignored.
    pub(super) fn on_server_status(&mut self, pod: &PodUid, target: Target, server_status: &PodStatus, version: u64) {
        match self.pods.get_mut(pod).filter(|report| report.target == target) {
            Some(report) if version < report.version => {}
            Some(report) => {
                if version > report.version {
                    report.forget_refusal();
                    report.doubt_at = None;
                }
                report.server_status = server_status.clone();
                report.version = version;
                report.unknown = false;
                report.is_pending = true;
            }
            None => {
                let wanted = self.pods.remove(pod).and_then(|report| report.wanted);
                self.pods.insert(pod.clone(), Report::new(target, server_status.clone(), version, wanted));
            }
        }
    }

    /// The API server listed all pods. After a restore of its store that may be another history: the listed statuses
    /// count even if their versions are lower, and statuses and deletions sent before may be lost. Deletions must be
    /// confirmed again.
    pub(super) fn relisted<'a>(&mut self, listed: impl Iterator<Item = (&'a PodUid, &'a PodStatus, u64)>) {
        self.awaits_list = false;
        for report in self.pods.values_mut() {
            report.version = 0;
            report.doubt_at = None;
            // The pod may not be deleted in this history.
            report.gone = false;
            if let Some(UnderWay::Patch { since, .. }) = &mut report.under_way {
                *since = 0;
            }
        }
        for (pod, shown, version) in listed {
            let Some(report) = self.pods.get_mut(pod) else { continue };
            report.server_status = shown.clone();
            report.version = version;
            report.unknown = false;
            report.is_pending = true;
        }
    }

    pub(super) fn shown(&self, pod: &PodUid) -> Option<&PodStatus> {
        self.pods.get(pod).map(|report| &report.server_status)
    }

    /// Sets the status to report. For a pod that the API server does not have, it is sent once it does.
    pub(super) fn enqueue(&mut self, pod: &PodUid, status: PodStatus) {
        if let Some(report) = self.pods.get_mut(pod) {
            if report.wanted.as_ref() != Some(&status) {
                report.wanted = Some(status);
                report.forget_refusal();
                report.is_pending = true;
                self.changes += 1;
                report.change = self.changes;
            }
        }
    }

    /// Nothing of the pod is left on the node, and the API server waits for that.
    pub(super) fn enqueue_delete(&mut self, pod: &PodUid) {
        if let Some(report) = self.pods.get_mut(pod) {
            // A refused status does not hold up the deletion.
            if !report.gone && report.refusals.is_some() {
                report.not_before = None;
            }
            report.is_pending |= !report.gone;
            report.gone = true;
        }
    }

    /// The API server no longer has the pod.
    pub(super) fn forget(&mut self, pod: &PodUid) {
        self.pods.remove(pod);
    }

    /// Number of pods with an unsent status or a request in flight.
    pub(super) fn unreported(&self) -> usize {
        self.pods.values().filter(|report| report.is_pending || report.under_way.is_some()).count()
    }

    /// Recomputes which pods have a status to send, while nothing can be sent.
    pub(super) fn settle(&mut self) {
        for report in self.pods.values_mut().filter(|report| report.is_pending && report.under_way.is_none()) {
            let wanted = report.wanted.as_ref().and_then(|wanted| status_patch(&report.server_status, wanted));
            report.is_pending = (report.gone || wanted.is_some()) && !report.unknown;
        }
    }

    /// Clears the waits of earlier failures.
    pub(super) fn clear_backoff(&mut self) {
        for report in self.pods.values_mut() {
            report.not_before = None;
        }
    }

    /// The requests to send now, as far as slots are free: newest change first, but those of pods that had fewer
    /// requests while others waited come before those of pods with more.
    pub(super) fn next(&mut self, now: Instant) -> Vec<StatusJob> {
        let [mut room, mut room_after_failure] = self.room();
        let due = self.pods.iter_mut().filter(|(_, report)| report.not_before.is_none_or(|time| time <= now));
        let mut due: Vec<_> = due.filter(|(_, report)| report.is_pending).collect();
        due.sort_once_by_key(|(_, report)| (report.sent, std::cmp::Reverse(report.change)));
        let mut jobs = Vec::new();
        let mut has_more = false;
        for (pod, report) in due {
            let has_room = room > 0 && (room_after_failure > 0 || !report.has_failed());
            if !has_room {
                has_more |= report.under_way.is_none();
                continue;
            }
            let Some(job) = report.next(pod) else { continue };
            jobs.push(job);
            report.sent += 1;
            room -= 1;
            room_after_failure -= usize::from(report.has_failed());
        }
        if !has_more {
            self.pods.values_mut().for_each(|report| report.sent = 0);
        }
        jobs
    }

    /// Number of free request slots, and of those for pods whose last request failed.
    fn room(&self) -> [usize; 2] {
        let under_way = self.pods.values().filter(|report| report.under_way.is_some());
        let after_failure = under_way.clone().filter(|report| report.has_failed()).count();
        let room = MAX_STATUS_REQUESTS.saturating_sub(under_way.count());
        [room, MAX_REQUESTS_AFTER_FAILURE.saturating_sub(after_failure).min(room)]
    }

    pub(super) fn are_under_way(&self) -> bool {
        self.pods.values().any(|report| report.under_way.is_some())
    }

    /// When the next request or doubt is due without an event. No request is due without a free slot: the end of a
    /// request in flight is an event.
    pub(super) fn due(&self) -> Option<Instant> {
        let [room, room_after_failure] = self.room();
        let is_sendable = |report: &&Report| {
            let room = if report.has_failed() { room_after_failure } else { room };
            room > 0 && report.is_pending && !report.unknown && report.under_way.is_none()
        };
        let waiting = self.pods.values().filter(is_sendable).filter_map(|report| report.not_before);
        waiting.chain(self.pods.values().filter_map(|report| report.doubt_at)).min()
    }

    /// Whether the watch still shows a pod that the API server has denied long ago, so that all pods must be listed. Each
    /// denial counts once.
    pub(super) fn take_overdue_denials(&mut self, now: Instant) -> bool {
        let denied = self.pods.values_mut().filter(|report| report.doubt_at.is_some_and(|time| time <= now));
        let is_denied = denied.map(|report| report.doubt_at = None).count() > 0;
        is_denied && self.is_news()
    }

    /// Whether another history was not reported since the last list.
    const fn is_news(&mut self) -> bool {
        !std::mem::replace(&mut self.awaits_list, true)
    }

    /// Handles the result of a request. `stretch` adds jitter. True if the API server went back to another history, so
    /// that all pods must be listed.
    pub(super) fn done(
        &mut self,
        pod: &PodUid,
        outcome: &ReportOutcome,
        now: Instant,
        stretch: impl Fn(Duration) -> Duration,
    ) -> bool {
        let Some(report) = self.pods.get_mut(pod) else { return false };
        let under_way = report.under_way.take();
        report.is_pending = true;
        match outcome {
            ReportOutcome::Accepted { version } => {
                report.not_before = None;
                report.backoff.reset();
                report.watch_backoff.reset();
                report.refusals = None;
                match under_way {
                    Some(UnderWay::Patch { status, since }) => {
                        // A write always gets a newer version than everything before it.
                        let is_another_history = *version > 0 && *version < since;
                        // Another client may have written since, and the watch may have been faster than the response.
                        if is_another_history || *version == 0 || *version >= report.version {
                            report.server_status = *status;
                            report.version = if is_another_history { *version } else { report.version.max(*version) };
                        }
                        // The next list tells whether the pod still exists.
                        report.unknown |= is_another_history;
                        return is_another_history && self.is_news();
                    }
                    Some(UnderWay::Delete { .. }) => report.unknown = true,
                    None => {}
                }
            }
            // Another client wrote meanwhile, and the watch was faster than the response.
            ReportOutcome::Unknown if matches!(under_way, Some(UnderWay::Delete { since }) if since < report.version) =>
                {}
            ReportOutcome::Unknown => {
                report.unknown = true;
                report.doubt_at = now.checked_add(stretch(report.watch_backoff.next_wait()));
            }
            ReportOutcome::Invalid(_) => {
                let [first, longest] = RETRY_INVALID;
                let refusals = report.refusals.get_or_insert_with(|| Backoff::new(first, longest));
                let wait = stretch(refusals.next_wait());
                // The deletion follows at once.
                let was_last_status = report.gone && matches!(under_way, Some(UnderWay::Patch { .. }));
                report.not_before = now.checked_add(wait).filter(|_| !was_last_status);
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
    fn new(target: Target, server_status: PodStatus, version: u64, wanted: Option<PodStatus>) -> Self {
        let backoff = Backoff::new(FIRST_STATUS_RETRY_DELAY, MAX_STATUS_RETRY_DELAY);
        Self {
            target,
            server_status,
            version,
            wanted,
            change: 0,
            sent: 0,
            gone: false,
            is_pending: true,
            under_way: None,
            not_before: None,
            backoff,
            refusals: None,
            unknown: false,
            doubt_at: None,
            watch_backoff: Backoff::new(WATCH_LAG[0], WATCH_LAG[1]),
        }
    }

    const fn has_failed(&self) -> bool {
        self.not_before.is_some()
    }

    fn forget_refusal(&mut self) {
        if self.refusals.take().is_some() {
            self.not_before = None;
        }
    }

    fn next(&mut self, pod: &PodUid) -> Option<StatusJob> {
        if !self.is_pending || self.under_way.is_some() || self.unknown {
            return None;
        }
        let job = |request| StatusJob { pod: pod.clone(), target: self.target.clone(), request };
        // A deletion that waited for a status that the API server refuses would never be sent.
        let is_refused = self.gone && self.refusals.is_some();
        if let Some(wanted) = self.wanted.as_ref().filter(|_| !is_refused) {
            if let Some(status) = status_patch(&self.server_status, wanted) {
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
        self.is_pending = false;
        None
    }
}

#[cfg(test)]
mod tests;
