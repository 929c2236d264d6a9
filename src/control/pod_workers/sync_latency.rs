//! Latency metrics of pod work.

use std::time::Instant;

use crate::control::pod_workers::worker::Work;
use crate::platform::rt;
use crate::types::metrics::{self, Timed};

/// Latencies counted from the moment the pod was added.
#[derive(Debug)]
pub(super) struct SyncLatency {
    came: Instant,
    begun: bool,
    /// All containers have started once, or had before this process.
    ran: bool,
}

/// A piece of work being timed.
pub(super) struct WorkTimer {
    kind: &'static str,
    begun: Instant,
}

impl SyncLatency {
    pub(super) fn new(came: Instant) -> Self {
        Self { came, begun: false, ran: false }
    }

    /// Starts timing a piece of work. `is_seen`: the runtime already has the pod.
    pub(super) fn begins(&mut self, work: &Work, is_seen: bool, now: Instant) -> WorkTimer {
        if !self.begun {
            self.begun = true;
            // The start time of a pod that an earlier process started is unknown.
            self.ran = is_seen;
            metrics::took(Timed::PodWorkerStarts, &[], now.saturating_duration_since(self.came));
        }
        let kind = match work {
            Work::Sync(_) if !is_seen => "create",
            Work::Sync(_) | Work::Refresh | Work::Relist | Work::Collect(_) => "sync",
            Work::Stop { .. } => "terminating",
            Work::CleanUp { .. } => "terminated",
        };
        WorkTimer { kind, begun: now }
    }

    /// A sync has completed. `has_started_all`: everything it had to start has started.
    pub(super) fn synced(&mut self, has_started_all: bool, now: Instant) {
        if has_started_all && !self.ran {
            self.ran = true;
            metrics::took(Timed::PodStarts, &[], now.saturating_duration_since(self.came));
        }
    }
}

impl WorkTimer {
    pub(super) fn ended(self) {
        metrics::took(Timed::PodWorkers, &[self.kind], rt::elapsed(self.begun));
    }
}
