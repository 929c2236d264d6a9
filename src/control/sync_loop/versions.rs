//! Versions of the node's own pods: which one runs, what becomes of one on trial, and what somebody asks of them.

use std::sync::Arc;
use std::time::Instant;

use crate::control::pod_sources::versions::{self, Ask, Doing, Verdict};
use crate::control::sync_loop::SyncLoop;
use crate::control::sync_loop::effect::Effect;
use crate::control::sync_loop::node_state::NodeState;
use crate::platform::host::clock;
use crate::platform::rt;
use crate::state::pods::{PodAnswer, PodEvent, SourceUpdate, SyncEvent, VersionAsk, VersionAsked};
use crate::types::api::conditions::READY;
use crate::types::api::{ConditionStatus, EventKind, PodPhase, PodStatus, Reason};

impl SyncLoop {
    /// What a source has, with what is to run in the place of what its manifests say.
    pub(super) fn with_versions(&mut self, mut update: SourceUpdate) -> SourceUpdate {
        let mut books = self.pods.node_state_mut();
        let NodeState { versions, sources, .. } = &mut *books;
        versions.take_in(&mut update, |pod| sources.has_namesake(pod));
        update
    }

    /// Versions that are ready are accepted, and what was not in time goes.
    pub(super) fn judge_versions(&mut self, now: Instant) {
        let works = self.pods.can_work();
        let verdicts = {
            let mut books = self.pods.node_state_mut();
            let NodeState { versions, statuses, takeovers, .. } = &mut *books;
            versions.judge(works, now, |uid| {
                let status = statuses.status(takeovers.get(uid).unwrap_or(uid));
                status.map_or(Doing::NotReady, |status| doing(status))
            })
        };
        let mut has_gone_back = false;
        for (uid, verdict) in verdicts {
            let uid = self.pods.node_state().running_uid(&uid).clone();
            let event = match verdict {
                Verdict::Accepted => {
                    let message = "The new version is ready and has been accepted";
                    PodEvent::of_pod(&uid, EventKind::Normal, Reason::UPDATE_ACCEPTED, message)
                }
                Verdict::Rejected(why) => {
                    has_gone_back = true;
                    let message = format!("The new version goes, {why}: the version before comes back");
                    self.pods.node_state_mut().note_error(&format!("pod {uid}: {message}"), clock::now());
                    PodEvent::of_pod(&uid, EventKind::Warning, Reason::UPDATE_REJECTED, message)
                }
            };
            self.pods.apply([Effect::Record(event)], now);
        }
        if has_gone_back {
            self.run_versions(now);
            // One more round; if there is no room for it, there is one anyway.
            let _ = self.sender.try_send(SyncEvent::Beat);
        }
        self.write_versions(now);
    }

    pub(super) fn on_version_asked(&mut self, asked: VersionAsked, now: Instant) {
        let VersionAsked { pod, what, answer } = asked;
        let ask = match what {
            VersionAsk::Rollback(back) => Ask::Rollback(usize::try_from(back).unwrap_or(usize::MAX)),
            VersionAsk::Hold => Ask::Hold,
            VersionAsk::Confirm => Ask::Confirm,
        };
        let done = self.pods.node_state_mut().versions.ask(&pod, ask);
        match done {
            Ok(done) => {
                log!(info, "versions of a pod", pod = pod.full_name(), done = done);
                self.version_answers.push((answer, PodAnswer::Done(done)));
                self.run_versions(now);
            }
            Err(why) => {
                let name = [&*pod.metadata.namespace, "/", &*pod.metadata.name].concat();
                // Who asks may have gone.
                let _ = answer.try_send(PodAnswer::Conflict(format!("pod {name}: {why}")));
            }
        }
    }

    /// What is to run may be something else, though no source has said so.
    fn run_versions(&mut self, now: Instant) {
        {
            let mut books = self.pods.node_state_mut();
            let NodeState { versions, sources, .. } = &mut *books;
            sources.replace_pods(|source| versions.runs(source).map(Arc::clone));
        }
        if self.pods.is_relisted() {
            self.reconcile(now);
        }
    }

    /// Writes what the disk does not have yet, one after the other. Who has asked is answered when it is there.
    fn write_versions(&mut self, now: Instant) {
        if self.versions_writer.is_some() {
            return;
        }
        let written = self.pods.node_state_mut().versions.take_unwritten(now);
        if written.is_empty() && self.version_answers.is_empty() {
            return;
        }
        let answers = std::mem::take(&mut self.version_answers);
        let sender = self.sender.clone();
        self.versions_writer = Some(rt::spawn(async move {
            let done = rt::blocking(move || versions::write(&written)).await;
            for (asker, answer) in answers {
                let answer = done.clone().map_or_else(PodAnswer::Failed, |()| answer);
                // Who asked may have gone.
                let _ = asker.try_send(answer);
            }
            // It fails only when the agent ends.
            let _ = sender.send(SyncEvent::VersionsKept(done.err())).await;
        }));
    }

    pub(super) fn on_versions_kept(&mut self, fault: Option<String>, now: Instant) {
        self.versions_writer = None;
        let mut books = self.pods.node_state_mut();
        books.versions.wrote(fault.is_none(), now);
        if let Some(fault) = fault {
            // Told again only when it is another one: it is tried again until it is written.
            if self.versions_fault.as_ref() != Some(&fault) {
                log!(warn, &fault);
                books.note_error(&fault, clock::now());
            }
            self.versions_fault = Some(fault);
        } else {
            self.versions_fault = None;
        }
    }
}

fn doing(status: &PodStatus) -> Doing {
    let is_ready = status.conditions.iter().any(|one| one.kind == READY && one.status == ConditionStatus::True);
    match status.phase {
        PodPhase::Failed => Doing::Failed,
        PodPhase::Succeeded => Doing::Ready,
        PodPhase::Pending | PodPhase::Running | PodPhase::Unknown if is_ready => Doing::Ready,
        PodPhase::Pending | PodPhase::Running | PodPhase::Unknown => Doing::NotReady,
    }
}
