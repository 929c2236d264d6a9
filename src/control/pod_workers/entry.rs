//! One pod's entry among the pod workers.

use std::time::{Duration, Instant};

use crate::control::pod_workers::restart_backoff::Key;
use crate::control::pod_workers::sync_latency::SyncLatency;
use crate::control::pod_workers::worker::{Kind, Worker};
use crate::kubelet::kuberuntime::Cancel;
use crate::platform::rt;
use crate::state::pods::StartingContainer;
use crate::types::api::PodUid;

/// A pod's worker and this process's state about it.
pub(super) struct Entry {
    pub(super) worker: Worker,
    /// When to check the worker again.
    pub(super) wake: Option<Instant>,
    pub(super) task: Option<RunningWork>,
    /// This process has started work for the pod.
    pub(super) begun: bool,
    /// The containers in crash-loop back-off, with their wait.
    pub(super) backing_off: Vec<(String, Duration)>,
    /// Containers that the running work starts and whose `postStart` hook must complete first.
    pub(super) hooked: Vec<StartingContainer>,
    /// Ids of the instances that the running work replaces.
    pub(super) replaced: Vec<String>,
    /// The restarts that the running work will try.
    pub(super) restarts: Vec<Key>,
    pub(super) resizing: Resizing,
    /// The running work resizes the pod to its allocated resources.
    pub(super) resizes: bool,
    /// A sandbox that was found outside the pod's cgroup and must be replaced.
    pub(super) groupless: Option<String>,
    /// Running containers to restart on a user's request, by their ids in the runtime.
    pub(super) to_restart: Vec<String>,
    /// The pod's admission is not decided yet.
    pub(super) is_held: bool,
    /// Pods that end to make room for this one, which starts when they have ended.
    pub(super) waits_for: Vec<PodUid>,
    /// Brings the pod's images while it waits for other pods to end.
    pub(super) early_pull: Option<rt::Task<()>>,
    /// Records an event if the pod does not end in time.
    pub(super) overdue: Option<rt::Task<()>>,
    pub(super) pace: SyncLatency,
}

/// Whether running containers differ from what is allocated to them, with the pod's generation that asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Resizing {
    No,
    InProgress {
        generation: i64,
    },
    /// The resize failed and is retried.
    Failed {
        generation: i64,
        failure: String,
    },
}

impl Resizing {
    pub(super) fn generation(&self) -> Option<i64> {
        match self {
            Self::No => None,
            Self::InProgress { generation } | Self::Failed { generation, .. } => Some(*generation),
        }
    }
}

/// Running work.
pub(super) struct RunningWork {
    #[expect(dead_code, reason = "dropping the task cancels it")]
    pub(super) task: rt::Task<()>,
    pub(super) cancel: Cancel,
}

impl Entry {
    pub(super) fn new(worker: Worker, begun: bool) -> Self {
        Self {
            worker,
            wake: None,
            task: None,
            begun,
            backing_off: Vec::new(),
            hooked: Vec::new(),
            replaced: Vec::new(),
            restarts: Vec::new(),
            resizing: Resizing::No,
            resizes: false,
            groupless: None,
            to_restart: Vec::new(),
            is_held: false,
            waits_for: Vec::new(),
            early_pull: None,
            overdue: None,
            pace: SyncLatency::new(rt::now()),
        }
    }

    /// Work has ended. Only a failure shows here; the next plan tells whether the resize is complete.
    pub(super) fn resize_ends(&mut self, failure: Option<&str>, now: Instant, stretch: impl Fn(Duration) -> Duration) {
        if !std::mem::take(&mut self.resizes) {
            return;
        }
        self.worker.resized(failure.is_some(), now, stretch);
        let Some(failure) = failure else { return };
        let is_known =
            matches!(&self.resizing, Resizing::Failed { failure: known, .. } if differs_in_numbers(known, failure));
        if let Some(generation) = self.resizing.generation().filter(|_| !is_known) {
            self.resizing = Resizing::Failed { generation, failure: failure.to_owned() };
        }
    }

    /// Cancels the running work. A sync or refresh is asked to stop between two calls, so that no call is left half
    /// done. All other work can be repeated safely and is dropped at once.
    pub(super) fn cancel(&mut self) {
        match self.worker.busy {
            Some(Kind::Relist | Kind::Collect | Kind::Stop) => {
                self.task = None;
                self.worker.busy = None;
            }
            Some(Kind::Sync | Kind::Refresh) => {
                if let Some(running) = &self.task {
                    running.cancel.cancel();
                }
            }
            Some(Kind::CleanUp) | None => {}
        }
    }
}

/// Upstream's failure of a resize names the bytes that are in use. They are others with each retry, and each would send an
/// event and a status.
fn differs_in_numbers(known: &str, failure: &str) -> bool {
    let words = |text| str::split(text, |letter: char| letter.is_ascii_digit()).filter(|word| !word.is_empty());
    words(known).eq(words(failure))
}
