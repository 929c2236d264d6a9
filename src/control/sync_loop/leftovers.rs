//! What cannot be removed of former pods, and when it is tried again. Pure: the time is an argument.

use std::time::{Duration, Instant};

use crate::types::owned::{Owned, View};
use crate::types::time::Backoff;

/// Errors of directories of former pods that could not be removed. A removal of orphaned directories replaces them.
#[derive(Debug)]
pub(super) struct Leftovers {
    errors: Owned<Vec<String>>,
    retry: Backoff,
    /// When the removal is repeated; `None` if nothing is left.
    due: Option<Instant>,
    /// Pods have ended since, and the next round schedules a removal.
    is_new: bool,
}

/// How many errors are kept: a card that has become read-only may keep the directories of all pods.
const MAX_LEFTOVER_ERRORS: usize = 32;
/// Waits before the removal is repeated.
const FIRST_LEFTOVER_DELAY: Duration = Duration::from_secs(60);
/// A removal that has failed for so long rarely succeeds soon, and each try walks directories.
const MAX_LEFTOVER_DELAY: Duration = Duration::from_secs(3600);

impl Default for Leftovers {
    fn default() -> Self {
        Self {
            errors: Owned::default(),
            retry: Backoff::new(FIRST_LEFTOVER_DELAY, MAX_LEFTOVER_DELAY),
            due: None,
            is_new: false,
        }
    }
}

impl Leftovers {
    pub(super) fn view(&self) -> View<Vec<String>> {
        self.errors.view()
    }

    /// A pod has ended that could not be removed completely.
    pub(super) fn add(&mut self, errors: &[String]) {
        let mut errors_shown = self.errors.write();
        for error in errors.iter().filter(|error| !errors_shown.contains(error)).cloned().collect::<Vec<_>>() {
            self.is_new = true;
            if errors_shown.len() < MAX_LEFTOVER_ERRORS {
                errors_shown.push(error);
            }
        }
    }

    /// A removal of all orphaned directories has ended with these errors.
    pub(super) fn replace(&mut self, mut errors: Vec<String>, now: Instant) {
        self.due = if errors.is_empty() {
            self.retry.reset();
            None
        } else {
            Some(now + self.retry.next_wait())
        };
        errors.truncate(MAX_LEFTOVER_ERRORS);
        *self.errors.write() = errors;
        self.is_new = false;
    }

    /// Whether orphaned directories are to be removed again.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        if std::mem::take(&mut self.is_new) && self.due.is_none() {
            self.due = Some(now + self.retry.next_wait());
        }
        self.due.is_some_and(|due| due <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removal_is_repeated_with_growing_waits_until_it_succeeds() {
        let start = Instant::now();
        let at = |minutes: u64| start + Duration::from_secs(60 * minutes);
        let mut left = Leftovers::default();
        assert!(!left.is_due(at(0)));
        left.add(&["a".to_owned()]);
        left.add(&["a".to_owned(), "b".to_owned()]);
        assert_eq!(*left.errors.read(), ["a", "b"]);
        assert!(!left.is_due(at(0)) && left.is_due(at(1)));
        left.replace(vec!["b".to_owned()], at(1));
        assert_eq!(*left.errors.read(), ["b"]);
        // A further pod does not shorten the wait.
        left.add(&["c".to_owned()]);
        assert!(!left.is_due(at(2)) && left.is_due(at(3)));
        let mut now = at(3);
        for _ in 0..10 {
            left.replace(vec!["b".to_owned()], now);
            now += MAX_LEFTOVER_DELAY;
            assert!(left.is_due(now));
        }
        left.replace(Vec::new(), now);
        assert!(left.errors.read().is_empty() && !left.is_due(now + MAX_LEFTOVER_DELAY * 24));
        left.add(&["d".to_owned()]);
        assert!(!left.is_due(now) && left.is_due(now + FIRST_LEFTOVER_DELAY));
    }

    #[test]
    fn number_of_errors_is_bounded() {
        let errors: Vec<String> = (0..100).map(|number| number.to_string()).collect();
        let mut left = Leftovers::default();
        left.add(&errors);
        assert_eq!(left.errors.read().len(), MAX_LEFTOVER_ERRORS);
        left.replace(errors, Instant::now());
        assert_eq!(left.errors.read().len(), MAX_LEFTOVER_ERRORS);
    }
}
