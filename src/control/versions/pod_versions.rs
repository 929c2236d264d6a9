//! Versions of the node's own pods: selects the version to run, judges versions on trial, and answers users' requests.

use std::cell::Ref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_channel::Sender;

use super::cluster_trials::{TrialNews, TriedPod, has_gate};
use super::held_pods::Decision;
use super::record::{RecordAction, TrialResult, TrialState};
use super::update_locks::UpdateLocks;
use super::version_records::{self, Versions};
use crate::control::pod_sources::unread_records::UnreadRecords;
use crate::control::pod_table::{Effect, NodeStatusChange, PodTable};
use crate::platform::host::clock;
use crate::platform::rt;
use crate::state::pods::{
    ErrorSubject, NodeError, PodAnswer, PodEvent, SourceName, SourceUpdate, SyncEvent, TagTarget, VersionAction,
    VersionActionRequest,
};
use crate::types::api::conditions::{READY, TRIAL};
use crate::types::api::{ConditionStatus, ContainerState, EventKind, Pod, PodPhase, PodStatus, PodUid, Reason, Time};
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
    /// Until they are read, their pods wait: another version than the manifest's may run.
    unread: Option<UnreadRecords<Versions>>,
}

impl PodVersions {
    pub(crate) fn new(versions: Versions, inbox: Sender<SyncEvent>) -> Self {
        let unread = versions.has_unread().then(|| UnreadRecords::new(versions.reads_again(), inbox.clone()));
        Self { versions: Owned::new(versions), inbox, writer: None, fault: None, answers: Vec::new(), unread }
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
        let records = pods.records();
        let stopped = records.sources.stopped().map(|(source, _)| &source.pod);
        workers.chain(self.versions.read().kept()).chain(stopped).map(Arc::clone).collect()
    }

    /// While versions cannot be read, the update comes again, and the source is incomplete: none of its pods is an
    /// orphan. True if so.
    pub(crate) fn hold(&mut self, update: &SourceUpdate) -> bool {
        let unread = self.unread.as_mut().filter(|_| update.source != SourceName::Api);
        unread.map(|unread| unread.hold(update)).is_some()
    }

    /// Replaces the pods of the update with the versions to run. Pods whose versions cannot be read are left out.
    pub(crate) fn on_sources(&mut self, mut update: SourceUpdate, pods: &PodTable) -> SourceUpdate {
        if self.unread.is_some() {
            let versions = self.versions.read();
            update.pods.retain(|source| !versions.is_unread(&source.pod));
        }
        let records = pods.records();
        let is_stopped = |pod: &Pod| records.sources.stopped_pods().since(pod).is_some();
        self.versions.write().apply(&mut update, |pod| records.sources.has_namesake(pod), is_stopped);
        update
    }

    /// The updates that were held, once the records are read.
    pub(crate) fn take_read(&mut self) -> Vec<SourceUpdate> {
        let Some(read) = self.unread.as_ref().and_then(UnreadRecords::take_read) else { return Vec::new() };
        let Some(unread) = self.unread.take() else { return Vec::new() };
        if read.has_unread() && unread.may_read_again() {
            self.unread = Some(unread.again(read.reads_again(), self.inbox.clone()));
            return Vec::new();
        }
        self.versions.write().take_records(read);
        unread.into_held()
    }

    #[cfg(test)]
    pub(super) fn set_read(&mut self, versions: Versions) {
        self.unread.as_mut().expect("records are unread").set_read(versions);
    }

    /// Pods were stopped or started.
    pub(crate) fn set_stopped_pods(&mut self, pods: &PodTable) {
        let records = pods.records();
        self.versions.write().set_stopped(|pod| records.sources.stopped_pods().since(pod).is_some());
    }

    pub(crate) fn on_all_sources_ready(&mut self) {
        self.versions.write().on_all_sources_ready();
    }

    /// The version with this uid no longer waits for its images: it replaces the present one.
    pub(crate) fn take_next(&mut self, uid: &PodUid) {
        self.versions.write().take_next(uid);
    }

    /// The tags of the images of a manifest were looked up. A tag that has moved makes a new version.
    pub(super) fn on_tags(&mut self, manifest: &Pod, targets: &[(String, TagTarget)], pods: &PodTable) -> Vec<Effect> {
        let records = pods.records();
        let Some(running) = self.versions.read().running_of(manifest) else { return Vec::new() };
        let uid = records.running_uid(&running);
        // Without a status nothing runs yet.
        let Some(status) = records.statuses.status(uid) else { return Vec::new() };
        let moved = self.versions.write().on_tags(manifest, targets, status);
        if moved.is_empty() {
            return Vec::new();
        }
        log!(info, "image tags have moved", pod = manifest.full_name(), images = moved.join(", "));
        let message = format!("The tag has moved, which makes a new version: {}", moved.join(", "));
        vec![Effect::Record(PodEvent::of_pod(uid, EventKind::Normal, Reason::TAG_MOVED, message)), Effect::Reconcile]
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
    pub(crate) fn round(&mut self, locks: &mut UpdateLocks, pods: &PodTable, now: Instant) -> Vec<Effect> {
        let mut effects = self.judge(locks, pods, now);
        effects.extend(self.judge_cluster(pods, now));
        self.write(now);
        effects
    }

    fn judge(&mut self, locks: &mut UpdateLocks, pods: &PodTable, now: Instant) -> Vec<Effect> {
        let records = pods.records();
        let may_stop = |uid: &PodUid| locks.permits(records.running_uid(uid), Decision::Rollback, pods, now);
        let state = |uid: &PodUid| {
            let status = records.statuses.status(records.running_uid(uid));
            let pod = records.sources.pods().map(|source| &source.pod).find(|pod| pod.metadata.uid == *uid);
            match (status, pod) {
                (Some(status), Some(pod)) => doing(pod, status, clock::now()),
                (Some(_) | None, _) => TrialState::NotReady,
            }
        };
        let verdicts = self.versions.write().judge(pods.can_work(), now, state, may_stop);
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

    /// Shows the trials of pods of the cluster. Runs before their statuses are generated.
    pub(crate) fn show_trials(&mut self, pods: &PodTable) -> Vec<Effect> {
        let all = pods.workers().iter().filter_map(|worker| worker.pod.as_deref());
        let tried: Vec<&Pod> = all.filter(|pod| has_gate(pod)).collect();
        self.versions.write().cluster.show(&tried, pods.all_sources_ready()).into_iter().map(shown).collect()
    }

    /// Reports the pods that do not run the version of their manifest. The annotation stays as it is until the pods of
    /// the runtime are known.
    pub(crate) fn show_held_pods(&self, pods: &PodTable) -> Option<Effect> {
        pods.can_work().then(|| Effect::NodeStatus(NodeStatusChange::HeldPods(self.versions.read().held())))
    }

    /// Judges the pods of the cluster that have a gate.
    fn judge_cluster(&mut self, pods: &PodTable, now: Instant) -> Vec<Effect> {
        let records = pods.records();
        let workers = pods.workers().iter().filter_map(|worker| Some((worker, worker.pod.as_deref()?)));
        let tried = workers.filter(|(_, pod)| has_gate(pod)).map(|(worker, pod)| {
            let ends = !worker.wanted || pod.metadata.deletion_timestamp.is_some();
            let status = records.statuses.status(&pod.metadata.uid).filter(|status| !ends && has_begun(status));
            TriedPod { pod, state: status.map(|status| doing(pod, status, clock::now())) }
        });
        let tried: Vec<TriedPod<'_>> = tried.collect();
        let news = self.versions.write().cluster.judge(&tried, pods.all_sources_ready(), now);
        news.into_iter().map(shown).collect()
    }

    /// A user asks to switch versions, or to hold or confirm the running version.
    pub(crate) fn on_request(&mut self, request: VersionActionRequest) -> Vec<Effect> {
        let VersionActionRequest { pod, action, response: answer } = request;
        let ask = match action {
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
            for (asker, response) in answers {
                let response = done.clone().map_or_else(PodAnswer::Failed, |()| response);
                // The user may have disconnected.
                let _ = asker.try_send(response);
            }
            // Fails only when the agent is ending.
            let _ = inbox.send(SyncEvent::VersionsKept(done.err())).await;
        }));
    }

    /// A write has ended. A failed write is retried, and its failure is recorded once.
    pub(crate) fn on_written(&mut self, fault: Option<String>, now: Instant) -> Vec<Effect> {
        self.writer = None;
        self.versions.write().on_written(fault.is_none(), now);
        if self.fault == fault {
            return Vec::new();
        }
        if let Some(fault) = &fault {
            log!(warn, fault);
        }
        let message = fault.clone().unwrap_or_default();
        self.fault = fault;
        vec![Effect::RecordError(NodeError { subject: ErrorSubject::Versions, message })]
    }
}

fn shown(news: TrialNews) -> Effect {
    match news {
        TrialNews::Condition(uid, condition) => Effect::Condition { uid, kind: TRIAL, condition: Some(condition) },
        TrialNews::Verdict(uid, reason, why) => {
            let (kind, message) = match reason == Reason::UPDATE_ACCEPTED {
                true => (EventKind::Normal, "The version is ready".to_owned()),
                false => {
                    let next = "the API server decides what runs next";
                    (EventKind::Warning, format!("The version is rejected, {why}; {next}"))
                }
            };
            Effect::Record(PodEvent::of_pod(&uid, kind, reason, message))
        }
    }
}

/// Whether a container of the pod has run. One that was lost may never have.
fn has_begun(status: &PodStatus) -> bool {
    let ran = |state: &Option<ContainerState>| match state {
        Some(ContainerState::Running(_)) => true,
        Some(ContainerState::Terminated(exit)) => exit.reason != Reason::CONTAINER_STATUS_UNKNOWN,
        Some(ContainerState::Waiting(_)) | None => false,
    };
    let mut containers = status.init_container_statuses.iter().chain(&status.container_statuses);
    containers.any(|container| ran(&container.state) || ran(&container.last_state))
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
            vec![event(EventKind::Warning, Reason::UPDATE_REJECTED, &message)]
        }
    }
}

fn doing(pod: &Pod, status: &PodStatus, now: Time) -> TrialState {
    let is_ready = status.conditions.iter().any(|one| one.kind == READY && one.status == ConditionStatus::True);
    match status.phase {
        PodPhase::Failed => TrialState::Failed,
        PodPhase::Succeeded => TrialState::Ready,
        PodPhase::Pending | PodPhase::Running | PodPhase::Unknown if is_ready && !pod.has_readiness_check() => {
            match settling_time(status, now) {
                0 => TrialState::Ready,
                seconds => TrialState::Settling(Duration::from_secs(seconds)),
            }
        }
        PodPhase::Pending | PodPhase::Running | PodPhase::Unknown if is_ready => TrialState::Ready,
        PodPhase::Pending | PodPhase::Running | PodPhase::Unknown => TrialState::NotReady,
    }
}

/// Seconds until each container has run for [`SETTLED_SECONDS`].
fn settling_time(status: &PodStatus, now: Time) -> u64 {
    let started = status.container_statuses.iter().filter_map(|container| match &container.state {
        Some(ContainerState::Running(running)) => running.started_at,
        _ => None,
    });
    let newest = started.map(|time| time.unix_seconds()).max();
    let left = newest.map_or(0, |newest| newest.saturating_add(SETTLED_SECONDS).saturating_sub(now.unix_seconds()));
    // The clock may have jumped.
    u64::try_from(left.clamp(0, SETTLED_SECONDS)).unwrap_or_default()
}

/// How long a version without a readiness probe has to run without a restart.
const SETTLED_SECONDS: i64 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_write_is_recorded_once_until_another_failure() {
        let (inbox, _events) = async_channel::bounded(1);
        let mut versions = PodVersions::new(Versions::default(), inbox);
        let mut written = |fault: Option<&str>| versions.on_written(fault.map(str::to_owned), rt::now()).len();
        let recorded = [Some("full"), Some("full"), Some("read-only"), None, Some("full")].map(&mut written);
        // The fourth ends the error.
        assert_eq!(recorded, [1, 0, 1, 1, 1]);
    }

    #[test]
    fn pod_without_readiness_probe_settles_for_ten_seconds() {
        let second = |second: i64| Time::from_unix_nanos(second * 1_000_000_000);
        let pod = |probe: &str| -> Pod {
            let text = format!(r#"{{"spec": {{"containers": [{{"name": "a", "image": "i"{probe}}}]}}}}"#);
            crate::types::api::decode(serde_json::from_str(&text).unwrap()).unwrap().value
        };
        let status: Pod = crate::types::api::decode(serde_json::json!({ "status": {
            "phase": "Running",
            "conditions": [{ "type": "Ready", "status": "True" }],
            "containerStatuses": [{ "name": "a", "state": { "running": { "startedAt": "1970-01-01T00:01:40Z" } } }],
        } }))
        .unwrap()
        .value;
        let bare = |now| doing(&pod(""), &status.status, second(now));
        assert_eq!(bare(103), TrialState::Settling(Duration::from_secs(7)));
        assert_eq!(bare(110), TrialState::Ready);
        // The clock went back.
        assert_eq!(bare(1), TrialState::Settling(Duration::from_secs(10)));
        let probed = pod(r#", "readinessProbe": {"tcpSocket": {"port": 80}}"#);
        assert_eq!(doing(&probed, &status.status, second(101)), TrialState::Ready);
    }

    #[test]
    fn rejected_version_is_a_warning() {
        let effects = judged(&"a".into(), TrialResult::Rejected("its time is over".to_owned()));
        assert!(matches!(&*effects, [Effect::Record(event)] if event.reason == Reason::UPDATE_REJECTED));
    }
}
