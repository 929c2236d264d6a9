//! The last errors, for the local socket.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use crate::control::server::RecentError;
use crate::platform::host::clock;
use crate::types::api::Time;

/// Maximum number of errors kept.
const MOST: usize = 20;

#[derive(Clone, Debug, Default)]
pub(crate) struct RecentErrors(Rc<RefCell<VecDeque<RecentError>>>);

impl RecentErrors {
    pub(crate) fn note_all(&self, messages: Vec<String>) {
        for message in messages {
            note(&mut self.0.borrow_mut(), message, clock::now());
        }
    }

    /// Oldest first.
    pub(super) fn list(&self) -> Vec<RecentError> {
        self.0.borrow().iter().cloned().collect()
    }
}

/// A repeated error is kept once, with its newest time.
fn note(errors: &mut VecDeque<RecentError>, message: String, now: Time) {
    errors.retain(|error| error.message != message);
    if errors.len() == MOST {
        errors.pop_front();
    }
    errors.push_back(RecentError { time: now.to_string(), message });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_error_is_kept_once_and_the_oldest_is_dropped() {
        let mut errors = VecDeque::new();
        for number in (0..MOST).chain([0, MOST]) {
            note(&mut errors, number.to_string(), Time::from_unix_nanos(0));
        }
        assert_eq!(errors.len(), MOST);
        let ends = [errors.front(), errors.back()].map(|error| error.map(|error| error.message.as_str()));
        assert_eq!(ends, [Some("2"), Some("20")]);
        assert_eq!(errors.iter().filter(|error| error.message == "0").count(), 1);
    }
}
