//! One pod among the workers.

use std::time::{Duration, Instant};

use crate::control::pod_workers::restart_backoff::Key;
use crate::control::pod_workers::sync_latency::Pace;
use crate::control::pod_workers::worker::{Kind, Worker};
use crate::kubelet::kuberuntime::Cancel;
use crate::platform::rt;
use crate::types::api::PodUid;

/// A pod's worker, and what this process knows of it beside that.
pub(super) struct Entry {
    pub(super) worker: Worker,
    /// Look at the worker again at this moment.
    pub(super) wake: Option<Instant>,
    pub(super) task: Option<Running>,
    /// Work has been begun for this pod by this process.
    pub(super) begun: bool,
    /// The containers that wait in crash-loop back-off, and how long that is.
    pub(super) backing_off: Vec<(String, Duration)>,
    /// Containers that the work under way starts and whose hook after the start has to be over first.
    pub(super) hooked: Vec<String>,
    /// The restarts that the work under way will try.
    pub(super) restarts: Vec<Key>,
    pub(super) resizing: Resizing,
    /// A sandbox that was found outside of the pod's control group: another one has to be made.
    pub(super) groupless: Option<String>,
    /// Containers that run and that somebody wants to begin anew, by the runtime's ids.
    pub(super) asked: Vec<String>,
    /// Pods that end to make room for this one, which begins when they have.
    pub(super) waits_for: Vec<PodUid>,
    /// Tells of a pod that does not end in time, unless it has ended.
    pub(super) overdue: Option<rt::Task<()>>,
    pub(super) pace: Pace,
}

/// Whether containers that run are being given other resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Resizing {
    No,
    Goes,
    /// It is tried again; why it failed.
    Failed(String),
}

/// Work under way.
pub(super) struct Running {
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
            restarts: Vec::new(),
            resizing: Resizing::No,
            groupless: None,
            asked: Vec::new(),
            waits_for: Vec::new(),
            overdue: None,
            pace: Pace::new(rt::now()),
        }
    }

    /// Ends the work under way. A sync and a refresh are asked to end between two calls, so that none is left half done; a
    /// look and what can be done anew as it is, which is the rest, are dropped at once.
    pub(super) fn cancel(&mut self) {
        match self.worker.busy {
            Some(Kind::Look | Kind::Collect | Kind::Stop) => {
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
