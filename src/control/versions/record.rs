//! The versions of one of the node's own pods: which one runs, and which are kept. Pure: the moment is an argument.
//!
//! ```text
//!                 a new manifest -> next: the version before runs until its images are there
//!
//!                 its images are there; with a gate          ready in time, or confirmed
//!   the manifest's ------------------------> on trial -------------------------> the manifest's
//!       |   ^                                    |
//!       |   | the manifest changes               | not ready in time, or rolled back
//!       |   +------------------------ held <-----+
//!       +------ rolled back, held -----^         the version before runs
//! ```
//!
//! A version is identified by its pod's uid, which is a hash of the manifest, and of the digests of images whose tags
//! have moved.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::error::RequestError;
use super::held_pods::{has_lock, is_on_hold};
use super::image_tags::ImageTags;
use crate::control::pod_sources::merge::same_content;
use crate::types::api::annotations::{
    KEEP_VERSIONS, NEEDS_MAINS, ONE_AT_A_TIME, PULL_FIRST, READY_WITHIN, keep_versions, ready_within, yes_or_no,
};
use crate::types::api::{Pod, PodUid, PullPolicy, VolumeSource, decode, encode};

/// Number of accepted versions kept, including the current one, unless the manifest sets it.
const KEPT_VERSIONS: usize = 3;
/// A version that is still on trial after this many starts in a row may be what crashes the machine.
const MAX_VERSION_TRIAL_STARTS: u64 = 3;

#[derive(Debug, Default)]
pub(super) struct Record {
    /// The last one is the current one.
    accepted: Vec<Arc<Pod>>,
    trial: Option<Trial>,
    hold: Option<Hold>,
    /// The version in the manifest, or the one before it while there is a next one.
    offered: Option<Arc<Pod>>,
    /// The version in the manifest while its images are being pulled. Until then another version runs.
    next: Option<Arc<Pod>>,
    pub(super) tags: ImageTags,
    /// A user has stopped the pod: its trial waits, and counts no starts.
    is_stopped: bool,
}

#[derive(Debug)]
struct Trial {
    uid: PodUid,
    /// Number of processes that have had the version on trial, including this one once it has started the trial.
    starts: u64,
    is_met: bool,
    /// Set when pods can be worked on.
    deadline: Option<Instant>,
    /// When a settling version is looked at again.
    settles: Option<Instant>,
    /// The version is rejected once the node may stop the pod.
    is_lost: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Hold {
    /// Held whatever the manifest becomes.
    Manual,
    /// Held as long as the manifest has this version.
    While { offered: PodUid, why: HoldReason },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HoldReason {
    Rejected,
    RolledBack,
}

/// The pod's progress in a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrialState {
    Ready,
    /// Ready only because no container has a readiness probe: it is accepted if no container restarts for this long, or
    /// until the end of the trial.
    Settling(Duration),
    NotReady,
    /// The pod will never be ready.
    Failed,
}

/// The result of a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TrialResult {
    Accepted,
    /// The reason, as one line.
    Rejected(String),
}

/// A user's request about a pod's versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordAction {
    /// Number of versions to go back.
    Rollback(usize),
    Hold,
    Confirm,
}

impl Record {
    /// Handles the manifest's current version, which becomes the next version if its images are pulled first. True if
    /// the record changed and must be stored.
    pub(super) fn propose(&mut self, pod: &Arc<Pod>) -> bool {
        if !self.waits_for_images(pod) {
            self.next = None;
            return self.offer(pod);
        }
        self.next = Some(Arc::clone(pod));
        // The manifest changed while no agent ran: the version on trial is not known.
        let is_stale = self.offered.is_none() && self.trial.is_some();
        if is_stale {
            self.trial = None;
        }
        is_stale
    }

    /// Whether another version runs on while the images of `pod` are pulled.
    fn waits_for_images(&self, pod: &Pod) -> bool {
        let uid = &pod.metadata.uid;
        let is_held = match &self.hold {
            Some(Hold::Manual) => true,
            Some(Hold::While { offered, .. }) => offered == uid,
            None => false,
        };
        let is_tried = self.trial.as_ref().is_some_and(|trial| trial.uid == *uid);
        let runs = self.runs().or(self.accepted.last());
        let Some(runs) = runs.filter(|_| !is_held && !is_tried) else { return false };
        let is_kept = self.accepted.last().is_some_and(|present| present.metadata.uid == *uid);
        let may_be_held = has_lock(runs) || is_on_hold(pod);
        runs.metadata.uid != *uid && (may_be_held || !is_kept && pulls_first(runs, pod))
    }

    /// The next version, whose images are being pulled.
    pub(super) fn next(&self) -> Option<&Arc<Pod>> {
        self.next.as_ref()
    }

    /// The next version becomes the manifest's. True if there was one with this uid.
    pub(super) fn take_next(&mut self, uid: &PodUid) -> bool {
        let Some(next) = self.next.take_if(|next| next.metadata.uid == *uid) else { return false };
        self.offer(&next);
        true
    }

    /// Handles the manifest's current version, which runs now unless it is held back. True if the record changed and
    /// must be stored.
    pub(super) fn offer(&mut self, pod: &Arc<Pod>) -> bool {
        let uid = pod.metadata.uid.clone();
        self.offered = Some(Arc::clone(pod));
        let Some(present) = self.accepted.last_mut() else {
            self.accepted.push(Arc::clone(pod));
            return true;
        };
        if self.hold == Some(Hold::Manual) {
            return false;
        }
        let lifted = match &self.hold {
            Some(Hold::While { offered, .. }) if *offered == uid => return false,
            hold => hold.is_some(),
        };
        self.hold = None;
        if present.metadata.uid == uid {
            // Other amounts of CPU and memory do not make another version.
            let is_same = same_content(present, pod);
            *present = Arc::clone(pod);
            return self.trial.take().is_some() | lifted | !is_same;
        }
        match &mut self.trial {
            Some(trial) if trial.uid == uid && trial.is_met => return false,
            Some(trial) if trial.uid == uid => {
                trial.is_met = true;
                trial.starts += u64::from(!self.is_stopped);
                trial.is_lost = trial.starts > MAX_VERSION_TRIAL_STARTS && has_lock(pod);
                if trial.starts > MAX_VERSION_TRIAL_STARTS && !has_lock(pod) {
                    self.go_back(HoldReason::Rejected);
                }
            }
            Some(_) | None if gate(pod).is_some() => {
                self.trial =
                    Some(Trial { uid, starts: 1, is_met: true, deadline: None, settles: None, is_lost: false });
            }
            Some(_) | None => self.accept(),
        }
        true
    }

    /// Whether the version is accepted, on trial or held back.
    pub(super) fn contains(&self, uid: &PodUid) -> bool {
        let held = matches!(&self.hold, Some(Hold::While { offered, .. }) if offered == uid);
        let tried = self.trial.as_ref().is_some_and(|trial| trial.uid == *uid);
        let is_next = self.next.as_ref().is_some_and(|next| next.metadata.uid == *uid);
        held || tried || is_next || self.accepted.iter().any(|kept| kept.metadata.uid == *uid)
    }

    /// The version to run.
    pub(super) fn runs(&self) -> Option<&Arc<Pod>> {
        let (present, offered) = (self.accepted.last(), self.offered.as_ref());
        match (&self.trial, present, offered) {
            (None, Some(present), Some(offered)) if present.metadata.uid == offered.metadata.uid => Some(offered),
            (None, Some(present), _) => Some(present),
            (Some(_), _, offered) => offered,
            (None, None, offered) => offered,
        }
    }

    /// The pod on trial. `works`: pods can be worked on, so the deadline starts.
    pub(super) fn on_trial(&mut self, works: bool, now: Instant) -> Option<&PodUid> {
        let within = self.offered.as_ref().and_then(|pod| gate(pod));
        let trial = self.trial.as_mut()?;
        if works && !self.is_stopped && trial.deadline.is_none() {
            trial.deadline = Some(now + within.unwrap_or_default());
        }
        Some(&trial.uid)
    }

    /// The time of a trial begins again when the pod is started.
    pub(super) fn set_stopped(&mut self, is_stopped: bool) {
        self.is_stopped = is_stopped;
        if let (true, Some(trial)) = (is_stopped, &mut self.trial) {
            (trial.deadline, trial.settles) = (None, None);
        }
    }

    /// When the trial ends, or a settling version may have settled.
    pub(super) fn due(&self) -> Option<Instant> {
        let trial = self.trial.as_ref().filter(|trial| !trial.is_lost)?;
        trial.deadline.into_iter().chain(trial.settles).min()
    }

    /// The verdict, if the trial has ended. A rejected version runs until the node `may_stop` it.
    pub(super) fn judge(
        &mut self,
        state: TrialState,
        may_stop: &mut dyn FnMut() -> bool,
        now: Instant,
    ) -> Option<TrialResult> {
        let trial = self.trial.as_mut().filter(|_| !self.is_stopped)?;
        let is_over = trial.is_lost || trial.deadline.is_some_and(|deadline| deadline <= now);
        trial.is_lost = match state {
            TrialState::Failed => !may_stop(),
            TrialState::NotReady => is_over && !may_stop(),
            TrialState::Ready | TrialState::Settling(_) => false,
        };
        if trial.is_lost {
            return None;
        }
        trial.settles = match state {
            TrialState::Settling(left) if !is_over => Some(now + left),
            _ => None,
        };
        match state {
            TrialState::Settling(_) if !is_over => None,
            TrialState::Ready | TrialState::Settling(_) => {
                self.accept();
                Some(TrialResult::Accepted)
            }
            TrialState::Failed => {
                self.go_back(HoldReason::Rejected);
                Some(TrialResult::Rejected("it has failed".to_owned()))
            }
            TrialState::NotReady if is_over => {
                let within = self.offered.as_ref().and_then(|pod| pod.annotation(READY_WITHIN)).unwrap_or_default();
                let why = format!("it was not ready within {within}");
                self.go_back(HoldReason::Rejected);
                Some(TrialResult::Rejected(why))
            }
            TrialState::NotReady => None,
        }
    }

    /// Carries out a user's request. Returns what was done.
    pub(super) fn apply_request(&mut self, action: RecordAction) -> Result<&'static str, RequestError> {
        match action {
            RecordAction::Confirm => {
                self.drop_next();
                self.hold = None;
                self.accept();
                Ok("confirmed")
            }
            RecordAction::Hold if self.trial.is_some() => Err(RequestError::OnTrial),
            RecordAction::Hold => {
                self.drop_next();
                self.hold = Some(Hold::Manual);
                Ok("held")
            }
            RecordAction::Rollback(1) if self.trial.is_some() => {
                self.drop_next();
                self.go_back(HoldReason::RolledBack);
                Ok("rolled back")
            }
            RecordAction::Rollback(back) => {
                let kept = self.earlier();
                let at = kept.checked_sub(back).filter(|_| back > 0).ok_or(RequestError::NoSuchVersion(kept))?;
                // The chosen version becomes the current one, and the one before it the target of a further rollback.
                let chosen = self.accepted.remove(at);
                self.accepted.push(chosen);
                self.drop_next();
                self.go_back(HoldReason::RolledBack);
                Ok("rolled back")
            }
        }
    }

    /// The images of the next version are no longer waited for.
    fn drop_next(&mut self) {
        if let Some(next) = self.next.take() {
            self.offered = Some(next);
        }
    }

    /// The current version runs until the manifest changes.
    fn go_back(&mut self, why: HoldReason) {
        self.trial = None;
        let offered = self.offered.as_ref().map(|pod| pod.metadata.uid.clone()).unwrap_or_default();
        self.hold = Some(Hold::While { offered, why });
    }

    /// The version in the manifest becomes the current one.
    fn accept(&mut self) {
        self.trial = None;
        let Some(offered) = &self.offered else { return };
        self.accepted.retain(|kept| kept.metadata.uid != offered.metadata.uid);
        self.accepted.push(Arc::clone(offered));
        let most = offered.annotation(KEEP_VERSIONS).and_then(keep_versions).unwrap_or(KEPT_VERSIONS);
        let beyond = self.accepted.len().saturating_sub(most);
        self.accepted.drain(..beyond);
    }

    /// Why other pods of the same owner may not take their next versions now.
    pub(super) fn holds_up_others(&self) -> Option<&'static str> {
        match (&self.trial, &self.hold) {
            (Some(_), _) => Some("is on trial"),
            // A rejection of an earlier version says nothing about the next one.
            (None, Some(Hold::While { why: HoldReason::Rejected, .. })) if self.next.is_none() => {
                Some("rejected this version")
            }
            (None, _) => None,
        }
    }

    /// Whether the version that runs may be replaced without a change of its manifest.
    pub(super) fn may_be_replaced(&self) -> bool {
        self.next.is_some() || self.trial.is_some()
    }

    /// Number of versions before the current one.
    pub(super) fn earlier(&self) -> usize {
        self.accepted.len().saturating_sub(1)
    }

    /// Every version that may run again.
    pub(super) fn kept(&self) -> &[Arc<Pod>] {
        &self.accepted
    }

    /// How the pod differs from its manifest: one word, and its explanation.
    pub(super) fn state(&self) -> Option<(&'static str, String)> {
        let manifest = self.next.as_ref().or(self.offered.as_ref());
        let name = manifest.map(|pod| pod.metadata.name.as_str()).unwrap_or_default();
        let until = format!("until its manifest changes or coracle confirm {name}");
        match (&self.trial, &self.hold) {
            (Some(_), _) => {
                let within = self.offered.as_ref().and_then(|pod| pod.annotation(READY_WITHIN)).unwrap_or_default();
                Some(("on trial", format!("it has to be ready within {within}, else the previous version is restored")))
            }
            (None, Some(Hold::Manual)) => {
                let runs = self.accepted.last().map(|pod| &pod.metadata.uid);
                let is_other = self.offered.as_ref().map(|pod| &pod.metadata.uid) != runs;
                let other = if is_other { "the manifest has changed; " } else { "" };
                Some(("held", format!("{other}this version runs until coracle confirm {name}")))
            }
            (None, Some(Hold::While { why: HoldReason::Rejected, .. })) => Some((
                "rejected",
                format!("the manifest's version was not ready in time; the previous version runs {until}"),
            )),
            (None, Some(Hold::While { why: HoldReason::RolledBack, .. })) => {
                Some(("rolled back", format!("an earlier version runs {until}")))
            }
            (None, None) => None,
        }
    }

    /// Whether it keeps another version than that of the manifest, or would.
    pub(super) fn is_held(&self) -> bool {
        self.hold.is_some() && self.trial.is_none()
    }

    /// A user holds the version, whatever the manifest becomes.
    pub(super) fn is_held_manually(&self) -> bool {
        self.hold == Some(Hold::Manual)
    }

    pub(super) fn to_json(&self) -> Value {
        let versions: Vec<Value> = self.accepted.iter().map(|pod| encode(&**pod)).collect();
        let trial = self.trial.as_ref().map(|trial| json!({ "uid": trial.uid.as_str(), "starts": trial.starts }));
        let hold = self.hold.as_ref().map(|hold| match hold {
            Hold::Manual => json!({ "why": "held" }),
            Hold::While { offered, why } => {
                let why = if *why == HoldReason::Rejected { "rejected" } else { "rolledBack" };
                json!({ "why": why, "offered": offered.as_str() })
            }
        });
        // Without the next version, which the source offers again: an interrupted pull never ends a pod.
        json!({ "format": 1, "accepted": versions, "trial": trial, "hold": hold, "tags": self.tags.to_json() })
    }

    /// `None` if the format is unknown, such as that of another version of this program.
    pub(super) fn from_json(mut value: Value) -> Option<Self> {
        if value.get("format").and_then(Value::as_u64) != Some(1) {
            return None;
        }
        let versions = value.get_mut("accepted")?.as_array_mut().map(std::mem::take)?;
        let versions = versions.into_iter().map(|version| decode::<Pod>(version).ok().map(|pod| Arc::new(pod.value)));
        let accepted = versions.collect::<Option<Vec<Arc<Pod>>>>()?;
        let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        let trial = value.get("trial").and_then(|trial| {
            let starts = trial.get("starts").and_then(Value::as_u64)?;
            let uid = PodUid::from(text(trial, "uid")?);
            Some(Trial { uid, starts, is_met: false, deadline: None, settles: None, is_lost: false })
        });
        let hold = value.get("hold").and_then(|hold| {
            let offered = || text(hold, "offered").map(PodUid::from);
            match text(hold, "why")?.as_str() {
                "held" => Some(Hold::Manual),
                "rejected" => Some(Hold::While { offered: offered()?, why: HoldReason::Rejected }),
                "rolledBack" => Some(Hold::While { offered: offered()?, why: HoldReason::RolledBack }),
                _ => None,
            }
        });
        let tags = value.get("tags").and_then(Value::as_object).map(ImageTags::from_json).unwrap_or_default();
        Some(Self { accepted, trial, hold, tags, ..Self::default() })
    }
}

/// Whether `next` needs the mains or waits for its turn, or needs an image that `present` may not have, and its manifest
/// does not ask for the present version to be ended first.
fn pulls_first(present: &Pod, next: &Pod) -> bool {
    let has = |image: &str| images(present).any(|(other, _)| other == image);
    let needs = |(image, policy): (&str, Option<PullPolicy>)| policy == Some(PullPolicy::Always) || !has(image);
    let says = |name: &str| next.annotation(name).and_then(yes_or_no);
    [NEEDS_MAINS, ONE_AT_A_TIME].iter().any(|name| says(name) == Some(true))
        || says(PULL_FIRST) != Some(false) && images(next).any(needs)
}

fn images(pod: &Pod) -> impl Iterator<Item = (&str, Option<PullPolicy>)> {
    let mounted = pod.spec.volumes.iter().filter_map(|volume| match &volume.source {
        VolumeSource::Image(source) => Some((source.reference.as_str(), source.pull_policy)),
        _ => None,
    });
    let containers = pod.spec.all_containers();
    containers.map(|container| (container.image.as_str(), container.image_pull_policy)).chain(mounted)
}

fn gate(pod: &Pod) -> Option<Duration> {
    pod.annotation(READY_WITHIN).and_then(ready_within)
}

#[cfg(test)]
mod tests;
