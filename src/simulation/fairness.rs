//! Priority and fairness of kube-apiserver: requests that it executes at once, those that wait, and refusals.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use super::fake_api::http::Response;
use crate::platform::rpc::Signal;
use crate::platform::rt;

/// The two priority levels of nodes, with their parts of 600 seats: 40 and 30 of the 245 shares of the suggested
/// configuration.
pub(super) struct Fairness {
    /// Node objects and leases.
    node_high: Rc<Level>,
    /// Every other request of a node.
    system: Rc<Level>,
}

/// A request waits for a quarter of the server's request timeout of 60 s.
const LONGEST_WAIT: Duration = Duration::from_secs(15);
/// One node's requests are dealt to 6 queues with 50 places each.
const QUEUED: usize = 6 * 50;

struct Level {
    seats: usize,
    taken: Cell<usize>,
    waiting: Cell<usize>,
    freed: Signal,
}

/// The right to execute a request. Dropping it ends the request.
pub(super) struct Seat(Rc<Level>);

/// A place in the queue.
struct Place<'a>(&'a Level);

impl Default for Fairness {
    fn default() -> Self {
        Self { node_high: Level::new(98), system: Level::new(74) }
    }
}

impl Fairness {
    /// Waits for a seat; `None` if the queues are full, or after the longest wait.
    pub(super) async fn seat(&self, target: &str) -> Option<Seat> {
        let path = target.split('?').next().unwrap_or_default();
        let is_high = path.starts_with("/api/v1/nodes") || path.contains("/namespaces/kube-node-lease/leases");
        let level = if is_high { &self.node_high } else { &self.system };
        if let Some(seat) = level.take() {
            return Some(seat);
        }
        if level.waiting.get() >= QUEUED {
            return None;
        }
        level.waiting.set(level.waiting.get() + 1);
        let _place = Place(level);
        rt::deadline(LONGEST_WAIT, level.next()).await.ok()
    }
}

impl Fairness {
    /// Takes up to this many seats at once, like the requests of other nodes.
    pub(super) fn occupy(&self, seats: usize) -> Vec<Seat> {
        (0..seats).map_while(|_| self.system.take()).collect()
    }
}

impl Level {
    fn new(seats: usize) -> Rc<Self> {
        Rc::new(Self { seats, taken: Cell::default(), waiting: Cell::default(), freed: Signal::default() })
    }

    fn take(self: &Rc<Self>) -> Option<Seat> {
        (self.taken.get() < self.seats).then(|| {
            self.taken.set(self.taken.get() + 1);
            Seat(Rc::clone(self))
        })
    }

    async fn next(self: &Rc<Self>) -> Seat {
        loop {
            let seen = self.freed.changes();
            if let Some(seat) = self.take() {
                return seat;
            }
            self.freed.beyond(seen).await;
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.taken.set(self.0.taken.get() - 1);
        self.0.freed.notify();
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.waiting.set(self.0.waiting.get() - 1);
    }
}

/// The response to a request without a seat.
pub(super) fn refusal() -> Response {
    let text = "Too many requests, please try again later.\n";
    Response::new(429, "text/plain; charset=utf-8", text).header("Retry-After", "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_without_a_seat_waits_and_is_refused_in_the_end() {
        let passed = rt::simulate(1, |world| async move {
            let fairness = Fairness::default();
            let mut seats = Vec::new();
            for _ in 0..74 {
                seats.push(fairness.seat("/api/v1/pods").await.unwrap());
            }
            assert!(fairness.seat("/api/v1/nodes/a/status?fieldManager=x").await.is_some());
            assert!(fairness.seat("/api/v1/namespaces/default/secrets").await.is_none());
            assert_eq!(world.passed(), LONGEST_WAIT);
            let waiting = rt::either(async { fairness.seat("/api/v1/pods").await.is_some() }, async {
                rt::sleep(Duration::from_secs(1)).await;
                seats.pop();
                std::future::pending().await
            });
            assert!(waiting.await);
            assert_eq!((fairness.system.waiting.get(), fairness.system.taken.get()), (0, 73));
            world.passed()
        });
        assert_eq!(passed.unwrap(), Duration::from_secs(16));
    }
}
