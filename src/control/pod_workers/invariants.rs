//! What holds of every pod worker: asserted in tests and simulations, absent from release builds. Pure.

use super::worker::{Kind, Work};
use super::{PodWorkers, State, Worker};
use crate::kubelet::kuberuntime::{Action, Plan};
use crate::state::pods::{ObservedCache, ObservedPod, SandboxState, WorkResult};
use crate::types::api::PodUid;

impl State {
    /// No state is left backwards or skipped, and a grace period only shrinks.
    pub(super) fn may_become(self, next: Self) -> bool {
        match (self, next) {
            (Self::Terminating { grace: old }, Self::Terminating { grace }) => grace <= old,
            (Self::Sync, Self::Sync | Self::Terminating { .. })
            | (Self::Terminating { .. } | Self::Terminated, Self::Terminated)
            | (Self::Terminated | Self::Finished, Self::Finished) => true,
            (Self::Sync | Self::Terminating { .. } | Self::Terminated | Self::Finished, _) => false,
        }
    }
}

impl Worker {
    /// The invariant that the worker breaks.
    pub(super) fn broken(&self) -> Option<&'static str> {
        let syncs = self.state == State::Sync;
        if syncs && !self.wanted {
            Some("a pod that no source has is not synced")
        } else if syncs && self.pod.is_none() {
            Some("a pod without a spec is not synced")
        } else if self.successor.is_some() && (syncs || self.wanted) {
            Some("a pod with a successor ends")
        } else {
            None
        }
    }

    /// The invariant that this work would break.
    pub(super) fn broken_by(&self, work: &Work) -> Option<&'static str> {
        let belongs = match work {
            Work::Relist | Work::Sync(_) | Work::Refresh => self.state == State::Sync,
            Work::Collect(_) => matches!(self.state, State::Sync | State::Finished),
            Work::Stop { grace, .. } => self.state == State::Terminating { grace: *grace },
            Work::CleanUp { .. } => matches!(self.state, State::Terminated | State::Finished),
        };
        if self.busy.is_some() {
            Some("a worker does one piece of work at a time")
        } else if !belongs {
            Some("the work belongs to another state")
        } else if self.stale && matches!(work, Work::Sync(_) | Work::Refresh) {
            Some("a pod whose last work may have done more than was observed is observed first")
        } else if self.wanted && matches!(work, Work::CleanUp { purge: true }) {
            Some("the records of a wanted pod stay")
        } else {
            self.broken()
        }
    }
}

impl PodWorkers {
    /// The invariant that this work would break because of other pods.
    pub(super) fn broken_by(&self, uid: &PodUid, work: &Work, cache: &ObservedCache) -> Option<&'static str> {
        let Work::Sync(plan) = work else { return None };
        let identity = &self.worker(uid)?.identity;
        let mut others = self.iter().filter(|other| other.identity.is_namesake(identity) && other.identity.uid != *uid);
        let mut namesakes = cache.iter().filter(|pod| identity.is_name_of(pod) && pod.uid != *uid);
        if self.is_unseen(uid) {
            Some("a pod that could not be observed is observed first")
        } else if others.any(|other| other.busy == Some(Kind::Sync)) {
            Some("of two pods of the same name, one is synced")
        } else if starts_something(plan) && namesakes.any(|pod| runs(pod)) {
            Some("a pod starts when no pod of its name runs")
        } else {
            None
        }
    }
}

impl Kind {
    /// Whether work of this kind can end so.
    pub(super) fn ends_with(self, result: &WorkResult) -> bool {
        match result {
            WorkResult::Synced { .. } => matches!(self, Self::Sync | Self::Relist),
            WorkResult::Refreshed { .. } => self == Self::Refresh,
            WorkResult::Collected { .. } => self == Self::Collect,
            WorkResult::Stopped => self == Self::Stop,
            WorkResult::Cleaned { .. } | WorkResult::NotPurged { .. } => self == Self::CleanUp,
            WorkResult::Failed { .. } => true,
        }
    }
}

fn starts_something(plan: &Plan) -> bool {
    plan.actions.iter().any(|action| matches!(action, Action::CreateSandbox { .. } | Action::StartContainer { .. }))
}

fn runs(pod: &ObservedPod) -> bool {
    pod.sandboxes.iter().any(|sandbox| sandbox.state == SandboxState::Ready)
        || pod.containers.iter().any(|container| container.is_running())
}
