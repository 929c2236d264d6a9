//! Trials of pods of the cluster: each pod with a gate is judged once. Pure: the moment is an argument.
//!
//! ```text
//!   no container has begun -> on trial -> accepted: its images are the owner's good ones
//!                                      -> rejected: the good images stay on the node
//! ```
//!
//! The node judges and does not roll back: the API server has the pods. A verdict is written before it is told, so that
//! another agent does not judge again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::record::TrialState;
use crate::kubelet::status::OwnCondition;
use crate::types::api::annotations::{READY_WITHIN, ready_within};
use crate::types::api::conditions::TRIAL;
use crate::types::api::{ConditionStatus, Container, Pod, PodCondition, PodUid, Reason};
use crate::types::sorted::SortedMap;

/// How long the images of a former version are kept without a pod of its owner: a controller makes the next pod when the
/// former one is gone.
const GOOD_IMAGES_AGE: Duration = Duration::from_secs(60 * 60);
/// Owners whose images are kept.
const MAX_OWNERS: usize = 256;

#[derive(Debug, Default)]
pub(super) struct ClusterTrials {
    pods: SortedMap<PodUid, ClusterTrial>,
    /// By namespace, kind and name.
    owners: SortedMap<String, Owner>,
    is_dirty: bool,
    /// Pods, verdicts or the completeness have changed since the owners were looked through.
    is_stale: bool,
    was_complete: bool,
}

#[derive(Debug, Default)]
struct ClusterTrial {
    /// Such as `default/web-x7k2p`; empty until the pod was seen.
    name: String,
    owner: Option<String>,
    /// Set when a container has begun.
    deadline: Option<Instant>,
    /// When a settling version is looked at again.
    settles: Option<Instant>,
    verdict: Option<Verdict>,
    /// The last round had a state to judge.
    is_judged: bool,
    is_shown: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Verdict {
    is_good: bool,
    message: String,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Unwritten,
    Writing,
    Written,
    Told,
}

/// The pods of an owner, such as a DaemonSet.
#[derive(Debug, Default)]
struct Owner {
    /// A pod with the images of the newest version that was accepted.
    good: Arc<Pod>,
    /// Pods with these images are not enough to keep them.
    is_needed: bool,
    /// Since when the node has had no pod of the owner.
    absent: Option<Instant>,
}

/// A pod of the cluster with a gate.
pub(super) struct TriedPod<'a> {
    pub(super) pod: &'a Pod,
    /// `None`: no container has begun, or the pod ends.
    pub(super) state: Option<TrialState>,
}

/// What is to be shown or told of a pod.
#[derive(Debug, PartialEq)]
pub(super) enum TrialNews {
    Condition(PodUid, OwnCondition),
    /// The verdict of this agent, once.
    Verdict(PodUid, Reason, String),
}

/// Whether the pod is judged by the node.
pub(super) fn has_gate(pod: &Pod) -> bool {
    pod.is_of_cluster() && pod.annotation(READY_WITHIN).and_then(ready_within).is_some()
}

impl ClusterTrials {
    /// Shows what is known of the pods, before their first statuses are generated: a status without the condition would
    /// remove it from the API server. `is_complete` as for [`Self::judge`].
    pub(super) fn show(&mut self, pods: &[&Pod], is_complete: bool) -> Vec<TrialNews> {
        let mut news = Vec::new();
        for pod in pods {
            let trial = self.pods.entry(pod.metadata.uid.clone()).or_default();
            self.is_stale |= trial.note_pod(pod);
            trial.push_news(pod, is_complete, &mut news);
        }
        news
    }

    /// Judges the pods. `is_complete`: these are all that the node has.
    pub(super) fn judge(&mut self, tried: &[TriedPod<'_>], is_complete: bool, now: Instant) -> Vec<TrialNews> {
        if tried.is_empty() && self.pods.is_empty() && self.owners.is_empty() {
            return Vec::new();
        }
        self.is_stale |= std::mem::replace(&mut self.was_complete, is_complete) != is_complete;
        let mut news = Vec::new();
        for TriedPod { pod, state } in tried {
            let trial = self.pods.entry(pod.metadata.uid.clone()).or_default();
            self.is_stale |= trial.note_pod(pod);
            // A trial that nothing can end is not due.
            trial.is_judged = state.is_some();
            let is_good = state.and_then(|state| trial.judge(pod, state, now));
            self.is_dirty |= is_good.is_some();
            self.is_stale |= is_good.is_some();
            if let (Some(true), Some(owner)) = (is_good, &trial.owner) {
                if self.owners.len() < MAX_OWNERS || self.owners.contains_key(owner) {
                    let images = pod.spec.all_containers().map(|container| container.image.clone());
                    self.owners.entry(owner.clone()).or_default().good = with_images(images);
                }
            }
            trial.push_news(pod, is_complete, &mut news);
        }
        // All that were seen are known by now.
        if is_complete && self.pods.len() > tried.len() {
            self.pods.retain(|uid, _| tried.iter().any(|trial| trial.pod.metadata.uid == *uid));
            (self.is_dirty, self.is_stale) = (true, true);
        }
        if std::mem::take(&mut self.is_stale) || self.owners.values().any(|owner| owner.absent.is_some()) {
            self.note_owners(is_complete, now);
        }
        news
    }

    fn note_owners(&mut self, is_complete: bool, now: Instant) {
        let Self { pods, owners, is_dirty, .. } = self;
        let count = owners.len();
        owners.retain(|name, owner| {
            let of_owner = || pods.values().filter(|trial| trial.owner.as_deref() == Some(name));
            let is_absent = of_owner().next().is_none();
            let is_good = |trial: &ClusterTrial| trial.verdict.as_ref().is_some_and(|verdict| verdict.is_good);
            owner.is_needed = is_absent || of_owner().any(|trial| !is_good(trial));
            owner.absent = if is_absent && is_complete { owner.absent.or(Some(now)) } else { None };
            owner.absent.is_none_or(|since| now.saturating_duration_since(since) < GOOD_IMAGES_AGE)
        });
        *is_dirty |= owners.len() != count;
    }

    /// When a trial ends, or a settling version may have settled.
    pub(super) fn due(&self) -> Option<Instant> {
        let running = self.pods.values().filter(|trial| trial.verdict.is_none() && trial.is_judged);
        running.flat_map(|trial| trial.deadline.into_iter().chain(trial.settles)).min()
    }

    /// Pods with the images of versions that may run again.
    pub(super) fn kept(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.owners.values().filter(|owner| owner.is_needed).map(|owner| &owner.good)
    }

    /// The pods on trial, and those that were rejected: name, state and explanation.
    pub(super) fn states(&self) -> impl Iterator<Item = (&str, &'static str, &str)> {
        let seen = self.pods.values().filter(|trial| !trial.name.is_empty());
        seen.filter_map(|trial| match &trial.verdict {
            None => {
                Some((trial.name.as_str(), "on trial", "the node tells the API server whether it is ready in time"))
            }
            Some(Verdict { is_good: false, message, .. }) => Some((trial.name.as_str(), "rejected", message.as_str())),
            Some(_) => None,
        })
    }

    /// The pods whose rejection the API server may know.
    pub(super) fn rejected(&self) -> impl Iterator<Item = &str> {
        let is_rejected = |verdict: &Verdict| !verdict.is_good && verdict.is_stored();
        let rejected = self.pods.values().filter(move |trial| trial.verdict.as_ref().is_some_and(is_rejected));
        rejected.map(|trial| trial.name.as_str()).filter(|name| !name.is_empty())
    }

    /// True once after each change, which is written now.
    pub(super) fn take_dirty(&mut self) -> bool {
        let is_dirty = std::mem::take(&mut self.is_dirty);
        if is_dirty {
            self.advance(Stage::Unwritten, Stage::Writing);
        }
        is_dirty
    }

    /// The file was written, or could not be: then the verdict is told nevertheless.
    pub(super) fn on_written(&mut self) {
        self.advance(Stage::Writing, Stage::Written);
    }

    fn advance(&mut self, from: Stage, to: Stage) {
        let verdicts = self.pods.values_mut().filter_map(|trial| trial.verdict.as_mut());
        verdicts.filter(|verdict| verdict.stage == from).for_each(|verdict| verdict.stage = to);
    }

    /// `None`: there is nothing to keep.
    pub(super) fn to_json(&self) -> Option<Value> {
        let verdict = |(uid, trial): (&PodUid, &ClusterTrial)| {
            let Verdict { is_good, message, .. } = trial.verdict.as_ref()?;
            Some((uid.to_string(), json!({ "good": is_good, "message": message })))
        };
        let verdicts: serde_json::Map<_, _> = self.pods.iter().filter_map(verdict).collect();
        let good = |(name, owner): (&String, &Owner)| {
            let images = owner.good.spec.containers.iter().map(|container| json!(container.image));
            (name.clone(), images.collect())
        };
        let owners: serde_json::Map<_, _> = self.owners.iter().map(good).collect();
        (!verdicts.is_empty() || !owners.is_empty()).then(|| json!({ "verdicts": verdicts, "images": owners }))
    }

    pub(super) fn from_json(value: &Value) -> Self {
        let mut trials = Self::default();
        for (uid, verdict) in value.get("verdicts").and_then(Value::as_object).into_iter().flatten() {
            let (Some(is_good), Some(message)) =
                (verdict.get("good").and_then(Value::as_bool), verdict.get("message").and_then(Value::as_str))
            else {
                continue;
            };
            let verdict = Verdict { is_good, message: message.to_owned(), stage: Stage::Told };
            let trial = ClusterTrial { verdict: Some(verdict), ..ClusterTrial::default() };
            trials.pods.insert(PodUid::from(uid.as_str()), trial);
        }
        for (name, images) in value.get("images").and_then(Value::as_object).into_iter().flatten().take(MAX_OWNERS) {
            let images = images.as_array().into_iter().flatten().filter_map(Value::as_str);
            let owner = Owner { good: with_images(images.map(str::to_owned)), is_needed: true, absent: None };
            trials.owners.insert(name.clone(), owner);
        }
        trials
    }
}

impl Verdict {
    /// Before that it is not told.
    fn is_stored(&self) -> bool {
        matches!(self.stage, Stage::Written | Stage::Told)
    }
}

impl ClusterTrial {
    /// True for the first time, and when the API server knows the verdict of an agent whose file is lost.
    fn note_pod(&mut self, pod: &Pod) -> bool {
        let is_first = self.name.is_empty();
        if is_first {
            self.name = [&*pod.metadata.namespace, "/", &*pod.metadata.name].concat();
            self.owner = owner_of(pod);
        }
        let known = shown_trial(pod).filter(|known| known.status != ConditionStatus::Unknown);
        let (None, Some(known)) = (&self.verdict, known) else { return is_first };
        let is_good = known.status == ConditionStatus::True;
        self.verdict = Some(Verdict { is_good, message: known.message.clone(), stage: Stage::Told });
        self.is_shown = false;
        true
    }

    /// Whether the version is good, if this is the verdict.
    fn judge(&mut self, pod: &Pod, state: TrialState, now: Instant) -> Option<bool> {
        if self.verdict.is_some() {
            return None;
        }
        let within = pod.annotation(READY_WITHIN).unwrap_or_default();
        let deadline = *self.deadline.get_or_insert_with(|| now + ready_within(within).unwrap_or_default());
        let is_over = deadline <= now;
        self.settles = match state {
            TrialState::Settling(left) if !is_over => Some(now + left),
            _ => None,
        };
        let (is_good, message) = match state {
            TrialState::Settling(_) if !is_over => return None,
            TrialState::Ready | TrialState::Settling(_) => (true, "it is ready".to_owned()),
            TrialState::Failed => (false, "it has failed".to_owned()),
            TrialState::NotReady if is_over => (false, format!("it was not ready within {within}")),
            TrialState::NotReady => return None,
        };
        self.verdict = Some(Verdict { is_good, message, stage: Stage::Unwritten });
        Some(is_good)
    }

    /// Shows the trial when it begins, and its verdict once it is written.
    ///
    /// While the node has not heard from the API server, the stored pod may be older than a verdict that the server has:
    /// the beginning of a trial would take it back.
    fn push_news(&mut self, pod: &Pod, is_complete: bool, news: &mut Vec<TrialNews>) {
        let uid = &pod.metadata.uid;
        let is_new = self.verdict.as_ref().is_some_and(|verdict| verdict.stage == Stage::Written);
        if self.is_shown && !is_new {
            return;
        }
        let is_told = self.verdict.as_ref().is_some_and(Verdict::is_stored);
        if !is_told && !is_complete && shown_trial(pod).is_none() {
            return;
        }
        self.is_shown = true;
        let told = self.verdict.as_mut().filter(|verdict| verdict.is_stored());
        let (status, reason, message) = match &told {
            Some(verdict) if verdict.is_good => {
                (ConditionStatus::True, Reason::UPDATE_ACCEPTED, verdict.message.clone())
            }
            Some(verdict) => (ConditionStatus::False, Reason::UPDATE_REJECTED, verdict.message.clone()),
            None => {
                let within = pod.annotation(READY_WITHIN).unwrap_or_default();
                (ConditionStatus::Unknown, Reason::ON_TRIAL, format!("it has to be ready within {within}"))
            }
        };
        if let Some(verdict) = told.filter(|verdict| verdict.stage == Stage::Written) {
            verdict.stage = Stage::Told;
            news.push(TrialNews::Verdict(uid.clone(), reason.clone(), message.clone()));
        }
        news.push(TrialNews::Condition(uid.clone(), OwnCondition { kind: TRIAL, status, reason, message }));
    }
}

/// The trial as the API server shows it.
fn shown_trial(pod: &Pod) -> Option<&PodCondition> {
    pod.status.conditions.iter().find(|condition| condition.kind == TRIAL)
}

fn with_images(images: impl Iterator<Item = String>) -> Arc<Pod> {
    let mut pod = Pod::default();
    pod.spec.containers = images.map(|image| Container { image, ..Container::default() }).collect();
    Arc::new(pod)
}

/// The controller of the pod: the Deployment of a ReplicaSet, whose name has the hash of the version.
fn owner_of(pod: &Pod) -> Option<String> {
    let meta = &pod.metadata;
    let owner = meta.owner_references.iter().find(|owner| owner.controller == Some(true))?;
    let hash = meta.labels.get("pod-template-hash").filter(|_| owner.kind == "ReplicaSet");
    let deployment = hash.and_then(|hash| owner.name.strip_suffix(hash.as_str())?.strip_suffix('-'));
    let (kind, name) = deployment.map_or((&*owner.kind, &*owner.name), |name| ("Deployment", name));
    Some([&*meta.namespace, "/", kind, "/", name].concat())
}

#[cfg(test)]
mod tests;
