//! Stops of containers that are under way. A later stop takes over: it runs no second hook and extends no grace period.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use crate::types::sorted::SortedMap;

/// When the grace periods of stops end, by container id.
#[derive(Debug, Default)]
pub(super) struct Stops(RefCell<SortedMap<String, Instant>>);

/// A stop that was cancelled, and whose container nothing has stopped again since the end of its grace period, is
/// forgotten after this time: the container is gone.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3600);

impl Stops {
    /// When the container's grace period ends, if a stop was sent.
    pub(super) fn end_of(&self, id: &str) -> Option<Instant> {
        self.0.borrow().get(id).copied()
    }

    pub(super) fn begin(&self, id: &str, end: Instant, now: Instant) {
        let mut stops = self.0.borrow_mut();
        stops.retain(|_, end| now.saturating_duration_since(*end) < FORGOTTEN_AFTER);
        stops.insert(id.to_owned(), end);
    }

    /// The runtime has answered.
    pub(super) fn answered(&self, id: &str) {
        self.0.borrow_mut().remove(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cancelled_stops_are_forgotten_an_hour_after_their_grace_period() {
        let (stops, now) = (Stops::default(), Instant::now());
        let minute = Duration::from_secs(60);
        stops.begin("a", now + minute, now);
        stops.begin("b", now + minute, now + minute);
        assert_eq!(stops.end_of("a"), Some(now + minute));
        stops.answered("b");
        assert_eq!(stops.end_of("b"), None);
        stops.begin("c", now + 90 * minute, now + 62 * minute);
        assert_eq!((stops.end_of("a"), stops.end_of("c")), (None, Some(now + 90 * minute)));
    }
}
