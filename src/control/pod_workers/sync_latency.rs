//! How long the work of a pod takes, for who looks at figures.

use std::time::Instant;

use crate::control::pod_workers::worker::Work;
use crate::platform::rt;
use crate::types::metrics::{self, Timed};

/// From the moment at which a pod came.
#[derive(Debug)]
pub(super) struct Pace {
    came: Instant,
    begun: bool,
    /// All of it has run once, or did before this process.
    ran: bool,
}

/// A piece of work.
pub(super) struct Piece {
    kind: &'static str,
    begun: Instant,
}

impl Pace {
    pub(super) fn new(came: Instant) -> Self {
        Self { came, begun: false, ran: false }
    }

    /// `is_seen`: the runtime has something of the pod already.
    pub(super) fn begins(&mut self, work: &Work, is_seen: bool, now: Instant) -> Piece {
        if !self.begun {
            self.begun = true;
            // What another process began has no start here.
            self.ran = is_seen;
            metrics::took(Timed::PodWorkerStarts, &[], now.saturating_duration_since(self.came));
        }
        let kind = match work {
            Work::Sync(_) if !is_seen => "create",
            Work::Sync(_) | Work::Refresh | Work::Look | Work::Collect(_) => "sync",
            Work::Stop { .. } => "terminating",
            Work::CleanUp { .. } => "terminated",
        };
        Piece { kind, begun: now }
    }

    /// A sync is over; `all` that it had to start has started.
    pub(super) fn synced(&mut self, all: bool, now: Instant) {
        if all && !self.ran {
            self.ran = true;
            metrics::took(Timed::PodStarts, &[], now.saturating_duration_since(self.came));
        }
    }
}

impl Piece {
    pub(super) fn ended(self) {
        metrics::took(Timed::PodWorkers, &[self.kind], rt::elapsed(self.begun));
    }
}
