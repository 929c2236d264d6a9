//! Priority and fairness of the simulated API server: the seats and queues of the tests' fake server.

use std::cell::RefCell;
use std::rc::Rc;

use super::fake_api::fairness::{MAX_SEAT_WAIT, NODE_HIGH_SEATS, PriorityLevel, SYSTEM_SEATS, Seats};
use crate::platform::rpc::Signal;
use crate::platform::rt;

pub(super) struct Fairness {
    node_high: Rc<Level>,
    system: Rc<Level>,
}

struct Level {
    seats: RefCell<Seats>,
    freed: Signal,
}

/// The right to execute a request. Dropping it ends the request.
pub(super) struct Seat(Rc<Level>);

/// A place in the queue.
struct Place<'a>(&'a Level);

impl Default for Fairness {
    fn default() -> Self {
        Self { node_high: Level::new(NODE_HIGH_SEATS), system: Level::new(SYSTEM_SEATS) }
    }
}

impl Fairness {
    /// Waits for a seat; `None` if the queues are full, or after the longest wait.
    pub(super) async fn seat(&self, target: &str) -> Option<Seat> {
        let level = match PriorityLevel::of(target) {
            PriorityLevel::NodeHigh => &self.node_high,
            PriorityLevel::System => &self.system,
        };
        if let Some(seat) = level.take() {
            return Some(seat);
        }
        if !level.seats.borrow_mut().queue() {
            return None;
        }
        let _place = Place(level);
        rt::deadline(MAX_SEAT_WAIT, level.next()).await.ok()
    }

    /// Takes up to this many seats at once, like the requests of other nodes.
    pub(super) fn occupy(&self, seats: usize) -> Vec<Seat> {
        (0..seats).map_while(|_| self.system.take()).collect()
    }
}

impl Level {
    fn new(seats: usize) -> Rc<Self> {
        Rc::new(Self { seats: RefCell::new(Seats::new(seats)), freed: Signal::default() })
    }

    fn take(self: &Rc<Self>) -> Option<Seat> {
        self.seats.borrow_mut().take().then(|| Seat(Rc::clone(self)))
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
        self.0.seats.borrow_mut().give_back();
        self.0.freed.notify();
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.seats.borrow_mut().leave_queue();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
            assert_eq!(world.passed(), MAX_SEAT_WAIT);
            let waiting = rt::either(async { fairness.seat("/api/v1/pods").await.is_some() }, async {
                rt::sleep(Duration::from_secs(1)).await;
                seats.pop();
                std::future::pending().await
            });
            assert!(waiting.await);
            assert_eq!(fairness.system.seats.borrow().used(), (73, 0));
            world.passed()
        });
        assert_eq!(passed.unwrap(), Duration::from_secs(16));
    }
}
