//! The last errors, for the local socket.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use crate::control::server::RecentError;
use crate::platform::host::clock;
use crate::state::pods::{ErrorSubject, NodeError};
use crate::types::api::Time;

/// Maximum number of errors kept.
const MAX_RECENT_ERRORS: usize = 20;

/// The errors whose cause lasts, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecentErrors(Rc<RefCell<VecDeque<Entry>>>);

#[derive(Clone, Debug)]
struct Entry {
    subject: ErrorSubject,
    since: Time,
    message: String,
}

impl RecentErrors {
    pub(crate) fn note_all(&self, errors: Vec<NodeError>) {
        for error in errors {
            note(&mut self.0.borrow_mut(), error, clock::now());
        }
    }

    /// Forgets the errors of pods that do well or are gone.
    pub(super) fn keep_pods(&self, has_a_problem: impl Fn(&str) -> bool) {
        self.0.borrow_mut().retain(|entry| match &entry.subject {
            ErrorSubject::Pod(name) => has_a_problem(name),
            ErrorSubject::Runtime | ErrorSubject::Versions => true,
        });
    }

    /// Oldest first.
    pub(super) fn list(&self) -> Vec<RecentError> {
        let errors = self.0.borrow();
        errors.iter().map(|entry| RecentError { time: entry.since.to_string(), message: entry.message() }).collect()
    }
}

impl Entry {
    fn message(&self) -> String {
        match &self.subject {
            ErrorSubject::Pod(name) => [&**name, ": ", &*self.message].concat(),
            ErrorSubject::Runtime | ErrorSubject::Versions => self.message.clone(),
        }
    }
}

/// A repeated error keeps the time when it was first seen. An empty message ends the errors of its subject.
fn note(errors: &mut VecDeque<Entry>, NodeError { subject, message }: NodeError, now: Time) {
    if message.is_empty() {
        errors.retain(|error| error.subject != subject);
        return;
    }
    if errors.iter().any(|error| error.subject == subject && error.message == message) {
        return;
    }
    // Another error of the runtime or of the disk replaces the one before it.
    if !matches!(subject, ErrorSubject::Pod(_)) {
        errors.retain(|error| error.subject != subject);
    }
    if errors.len() == MAX_RECENT_ERRORS {
        errors.pop_front();
    }
    errors.push_back(Entry { subject, since: now, message });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_pod(name: &str, message: &str) -> NodeError {
        NodeError { subject: ErrorSubject::Pod(name.to_owned()), message: message.to_owned() }
    }

    fn of_runtime(message: &str) -> NodeError {
        NodeError { subject: ErrorSubject::Runtime, message: message.to_owned() }
    }

    fn at(second: i64) -> Time {
        Time::from_unix_nanos(second * 1_000_000_000)
    }

    fn listed(errors: &RecentErrors) -> Vec<(String, String)> {
        errors.list().into_iter().map(|error| (error.time, error.message)).collect()
    }

    #[test]
    fn repeated_error_is_listed_once_with_its_first_time() {
        let errors = RecentErrors::default();
        for (second, message) in [(1, "a"), (2, "b"), (3, "a")] {
            note(&mut errors.0.borrow_mut(), of_pod("default/web", message), at(second));
        }
        let line = |second, message: &str| (at(second).to_string(), format!("default/web: {message}"));
        assert_eq!(listed(&errors), [line(1, "a"), line(2, "b")]);
    }

    #[test]
    fn mended_errors_are_forgotten() {
        let errors = RecentErrors::default();
        errors.note_all(vec![of_pod("default/a", "x"), of_pod("default/b", "x"), of_runtime("gone")]);
        errors.note_all(vec![of_runtime("")]);
        errors.keep_pods(|name| name == "default/b");
        assert_eq!(listed(&errors).iter().map(|(_, line)| &**line).collect::<Vec<_>>(), ["default/b: x"]);
    }

    #[test]
    fn oldest_error_makes_room() {
        let errors = RecentErrors::default();
        errors.note_all((0..=MAX_RECENT_ERRORS).map(|number| of_pod("default/a", &number.to_string())).collect());
        let listed = listed(&errors);
        assert_eq!((listed.len(), &*listed[0].1), (MAX_RECENT_ERRORS, "default/a: 1"));
    }
}
