//! Priority and fairness of kube-apiserver: requests that it executes at once, those that wait, and refusals.

use std::time::Duration;

use super::http::Response;

/// The two priority levels of a node's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PriorityLevel {
    /// Node objects and leases.
    NodeHigh,
    /// Every other request.
    System,
}

/// Parts of 600 seats: 40 and 30 of the 245 shares of the suggested configuration.
pub(crate) const NODE_HIGH_SEATS: usize = 98;
pub(crate) const SYSTEM_SEATS: usize = 74;
/// A request waits for a quarter of the server's request timeout of 60 s.
pub(crate) const MAX_SEAT_WAIT: Duration = Duration::from_secs(15);
/// One node's requests are dealt to 6 queues with 50 places each.
pub(crate) const QUEUED_REQUESTS: usize = 6 * 50;

impl PriorityLevel {
    pub(crate) fn of(target: &str) -> Self {
        let path = target.split('?').next().unwrap_or_default();
        let is_high = path.starts_with("/api/v1/nodes") || path.contains("/namespaces/kube-node-lease/leases");
        if is_high { Self::NodeHigh } else { Self::System }
    }
}

/// The seats of a priority level, and its queues.
#[derive(Clone, Debug)]
pub(crate) struct Seats {
    seats: usize,
    taken: usize,
    waiting: usize,
}

impl Seats {
    pub(crate) fn new(seats: usize) -> Self {
        Self { seats, taken: 0, waiting: 0 }
    }

    /// Whether there was a free seat, which is taken now.
    pub(crate) fn take(&mut self) -> bool {
        let is_free = self.taken < self.seats;
        self.taken += usize::from(is_free);
        is_free
    }

    pub(crate) fn give_back(&mut self) {
        self.taken -= 1;
    }

    /// Whether there was a place in the queues, which is taken now.
    pub(crate) fn queue(&mut self) -> bool {
        let has_room = self.waiting < QUEUED_REQUESTS;
        self.waiting += usize::from(has_room);
        has_room
    }

    pub(crate) fn leave_queue(&mut self) {
        self.waiting -= 1;
    }

    /// Number of seats taken, and of requests that wait.
    pub(crate) fn used(&self) -> (usize, usize) {
        (self.taken, self.waiting)
    }
}

/// The response to a request without a seat.
pub(crate) fn refusal() -> Response {
    let text = "Too many requests, please try again later.\n";
    Response::new(429, "text/plain; charset=utf-8", text).header("Retry-After", "1")
}
