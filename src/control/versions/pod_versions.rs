//! Versions of the node's own pods: selects the version to run, judges versions on trial, and answers users' requests.

use std::cell::Ref;
use std::sync::Arc;
use std::time::Instant;

use async_channel::Sender;

use super::record::{RecordAction, TrialResult, TrialState};
use super::version_records::{self, Versions};
use crate::control::pod_table::{Effect, PodTable};
use crate::platform::rt;
use crate::state::pods::{PodAnswer, PodEvent, SourceUpdate, SyncEvent, VersionAction, VersionActionRequest};
use crate::types::api::conditions::READY;
use crate::types::api::{ConditionStatus, EventKind, Pod, PodPhase, PodStatus, PodUid, Reason};
use crate::types::error::ErrorChain;
use crate::types::owned::{Owned, View};

/// Owns the versions, writes them to disk, and answers the requests about them.
pub(crate) struct PodVersions {
    versions: Owned<Versions>,
    inbox: Sender<SyncEvent>,
    writer: Option<rt::Task<()>>,
    /// Why the last write failed.
    fault: Option<String>,
    /// Answers to send after the next write.
    answers: Vec<(Sender<PodAnswer>, PodAnswer)>,
}

impl PodVersions {
    pub(crate) fn new(versions: Versions, inbox: Sender<SyncEvent>) -> Self {
        Self { versions: Owned::new(versions), inbox, writer: None, fault: None, answers: Vec::new() }
    }

    pub(crate) fn read(&self) -> Ref<'_, Versions> {
        self.versions.read()
    }

    pub(crate) fn view(&self) -> View<Versions> {
        self.versions.view()
    }

    /// When a trial ends or a failed write is retried.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.versions.read().due()
    }

    /// The pods whose images are needed: all that exist, and the versions that may run again.
    pub(crate) fn pods_with_images(&self, pods: &PodTable) -> Vec<Arc<Pod>> {
        let workers = pods.workers().iter().filter_map(|worker| worker.pod.as_ref());
        workers.chain(self.versions.read().kept()).map(Arc::clone).collect()
    }

    /// Replaces the pods of the update with the versions to run.
    pub(crate) fn on_sources(&mut self, mut update: SourceUpdate, pods: &PodTable) -> SourceUpdate {
        let records = pods.records();
        self.versions.write().apply(&mut update, |pod| records.sources.has_namesake(pod));
        update
    }

    pub(crate) fn on_all_sources_ready(&mut self) {
        self.versions.write().on_all_sources_ready();
    }

    /// The version with this uid no longer waits for its images: it replaces the present one.
    pub(crate) fn take_next(&mut self, uid: &PodUid) {
        self.versions.write().take_next(uid);
    }

    /// Takes next versions that a former agent has started already: its record of that was not written. True if there
    /// are any.
    pub(crate) fn take_started(&mut self, pods: &PodTable) -> bool {
        let (records, observed, workers) = (pods.records(), pods.observed(), pods.workers());
        let exists = |uid: &PodUid| observed.pod(uid).is_some() || workers.is_unseen(uid);
        // A version that could not be observed may run.
        let may_run =
            |uid: &PodUid| workers.is_unseen(uid) || observed.pod(uid).is_some_and(|pod| pod.ready_sandbox().is_some());
        let mut versions = self.versions.write();
        let started = versions
            .nexts()
            .filter(|(present, next)| exists(&next.metadata.uid) && !may_run(records.running_uid(present)));
        let started: Vec<PodUid> = started.map(|(_, next)| next.metadata.uid.clone()).collect();
        for uid in &started {
            log!(info, "next version has started already", uid = uid);
            versions.take_next(uid);
        }
        !started.is_empty()
    }

    /// Accepts ready versions, rejects versions that were not ready in time, and writes the changes.
    pub(crate) fn round(&mut self, pods: &PodTable, now: Instant) -> Vec<Effect> {
        let effects = self.judge(pods, now);
        self.write(now);
        effects
    }

    fn judge(&mut self, pods: &PodTable, now: Instant) -> Vec<Effect> {
        let records = pods.records();
        let verdicts = self.versions.write().judge(pods.can_work(), now, |uid| {
            let status = records.statuses.status(records.running_uid(uid));
            status.map_or(TrialState::NotReady, |status| doing(status))
        });
        let has_gone_back = verdicts.iter().any(|(_, verdict)| matches!(verdict, TrialResult::Rejected(_)));
        let verdicts = verdicts.into_iter().map(|(uid, verdict)| (records.running_uid(&uid).clone(), verdict));
        let mut effects: Vec<Effect> = verdicts.flat_map(|(uid, verdict)| judged(&uid, verdict)).collect();
        if has_gone_back {
            effects.push(Effect::Reconcile);
            // Triggers one more round. If the inbox is full, a round follows anyway.
            let _ = self.inbox.try_send(SyncEvent::Beat);
        }
        effects
    }

    /// A user asks to switch versions, or to hold or confirm the running version.
    pub(crate) fn on_request(&mut self, request: VersionActionRequest) -> Vec<Effect> {
        let VersionActionRequest { pod, what, answer } = request;
        let ask = match what {
            VersionAction::Rollback(back) => RecordAction::Rollback(usize::try_from(back).unwrap_or(usize::MAX)),
            VersionAction::Hold => RecordAction::Hold,
            VersionAction::Confirm => RecordAction::Confirm,
        };
        let done = self.versions.write().apply_request(&pod, ask);
        match done {
            Ok(done) => {
                log!(info, "pod version changed", pod = pod.full_name(), done = done);
                self.answers.push((answer, PodAnswer::Done(done)));
                vec![Effect::Reconcile]
            }
            Err(error) => {
                let name = [&*pod.metadata.namespace, "/", &*pod.metadata.name].concat();
                // The user may have disconnected.
                let _ = answer.try_send(PodAnswer::Conflict(format!("pod {name}: {error}")));
                Vec::new()
            }
        }
    }

    /// Writes unsaved changes, one write at a time. Users are answered when their change is on disk.
    fn write(&mut self, now: Instant) {
        if self.writer.is_some() {
            return;
        }
        let written = self.versions.write().take_unwritten(now);
        if written.is_empty() && self.answers.is_empty() {
            return;
        }
        let answers = std::mem::take(&mut self.answers);
        let inbox = self.inbox.clone();
        self.writer = Some(rt::spawn(async move {
            let done = rt::blocking(move || version_records::write(&written)).await;
            let done = done.map_err(|error| ErrorChain(&error).to_string());
            for (asker, answer) in answers {
                let answer = done.clone().map_or_else(PodAnswer::Failed, |()| answer);
                // The user may have disconnected.
                let _ = asker.try_send(answer);
            }
            // Fails only when the agent is ending.
            let _ = inbox.send(SyncEvent::VersionsKept(done.err())).await;
        }));
    }

    /// A write has ended. A failed write is retried, and its failure is recorded once.
    pub(crate) fn on_written(&mut self, fault: Option<String>, now: Instant) -> Vec<Effect> {
        self.writer = None;
        self.versions.write().wrote(fault.is_none(), now);
        let new_fault = fault.clone().filter(|fault| self.fault.as_ref() != Some(fault));
        self.fault = fault;
        if let Some(fault) = &new_fault {
            log!(warn, fault);
        }
        new_fault.map(Effect::RecordError).into_iter().collect()
    }
}

fn judged(uid: &PodUid, verdict: TrialResult) -> Vec<Effect> {
    let event = |kind, reason, message: &str| Effect::Record(PodEvent::of_pod(uid, kind, reason, message));
    match verdict {
        TrialResult::Accepted => {
            let message = "The new version is ready and has been accepted";
            vec![event(EventKind::Normal, Reason::UPDATE_ACCEPTED, message)]
        }
        TrialResult::Rejected(why) => {
            let message = format!("The new version is rejected, {why}; the previous version is restored");
            let error = Effect::RecordError(format!("pod {uid}: {message}"));
            vec![error, event(EventKind::Warning, Reason::UPDATE_REJECTED, &message)]
        }
    }
}

fn doing(status: &PodStatus) -> TrialState {
    let is_ready = status.conditions.iter().any(|one| one.kind == READY && one.status == ConditionStatus::True);
    match status.phase {
        PodPhase::Failed => TrialState::Failed,
        PodPhase::Succeeded => TrialState::Ready,
        PodPhase::Pending | PodPhase::Running | PodPhase::Unknown if is_ready => TrialState::Ready,
        PodPhase::Pending | PodPhase::Running | PodPhase::Unknown => TrialState::NotReady,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_write_is_recorded_once_until_another_failure() {
        let (inbox, _events) = async_channel::bounded(1);
        let mut versions = PodVersions::new(Versions::default(), inbox);
        let mut written = |fault: Option<&str>| versions.on_written(fault.map(str::to_owned), rt::now()).len();
        let recorded = [Some("full"), Some("full"), Some("read-only"), None, Some("full")].map(&mut written);
        assert_eq!(recorded, [1, 0, 1, 0, 1]);
    }

    #[test]
    fn rejected_version_is_an_error_and_a_warning() {
        let effects = judged(&"a".into(), TrialResult::Rejected("its time is over".to_owned()));
        let message = "pod a: The new version is rejected, its time is over; the previous version is restored";
        assert_eq!(effects.first(), Some(&Effect::RecordError(message.to_owned())));
        assert!(matches!(effects.get(1), Some(Effect::Record(event)) if event.reason == Reason::UPDATE_REJECTED));
    }
}
