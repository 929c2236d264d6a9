//! The pulls in progress, for status pages, and the intent records that they need. Pure: time is an argument.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use crate::kubelet::image_transfer::Progress;
use crate::types::sorted::SortedMap;

/// Shared between the pulls and the status pages.
#[derive(Clone, Debug, Default)]
pub(crate) struct PullsUnderWay {
    pulls: Rc<RefCell<Pulls>>,
}

#[derive(Debug, Default)]
struct Pulls {
    /// In the order of the requests.
    list: SortedMap<u64, PullUnderWay>,
    next: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct PullUnderWay {
    pub(crate) image: String,
    pub(crate) pod: String,
    pub(crate) requested: Instant,
    /// `None`: waiting for its turn.
    pub(crate) begun: Option<Instant>,
    /// `None` if the runtime pulls, because it reports no progress.
    pub(crate) progress: Option<Arc<Progress>>,
    /// `None`: the pull has written no intent record.
    pub(crate) intent: Option<Intent>,
}

/// What becomes of an intent record when the last pull that wrote it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    /// It is removed.
    Own,
    /// It stays: an interrupted pull has left it, and the runtime may still have brought or bring the image.
    Left,
}

/// Keeps a pull listed until dropped.
pub(super) struct PullGuard {
    pulls: PullsUnderWay,
    number: u64,
}

impl PullsUnderWay {
    pub(crate) fn list(&self) -> Vec<PullUnderWay> {
        self.pulls.borrow().list.values().cloned().collect()
    }

    /// Sets and returns the progress of the pulls of one image.
    pub(super) fn progress(&self, image: &str) -> Arc<Progress> {
        let progress = Arc::<Progress>::default();
        for pull in self.pulls.borrow_mut().list.values_mut().filter(|pull| pull.image == image) {
            pull.progress = Some(Arc::clone(&progress));
        }
        progress
    }

    pub(super) fn add(&self, image: &str, pod: &str, requested: Instant) -> PullGuard {
        let mut pulls = self.pulls.borrow_mut();
        let number = pulls.next;
        pulls.next += 1;
        let pull = PullUnderWay {
            image: image.to_owned(),
            pod: pod.to_owned(),
            requested,
            begun: None,
            progress: None,
            intent: None,
        };
        pulls.list.insert(number, pull);
        PullGuard { pulls: self.clone(), number }
    }
}

impl Pulls {
    /// Of the pulls of one image that have written its intent record.
    fn intents(&mut self, image: &str) -> impl Iterator<Item = &mut Intent> {
        let pulls = self.list.values_mut().filter(move |pull| pull.image == image);
        pulls.filter_map(|pull| pull.intent.as_mut())
    }
}

impl PullGuard {
    pub(super) fn begins(&self, now: Instant) {
        if let Some(pull) = self.pulls.pulls.borrow_mut().list.get_mut(&self.number) {
            pull.begun = Some(now);
        }
    }

    /// The pull has written the intent record of its image. `existed`: there was one before.
    pub(super) fn intends(&self, image: &str, existed: bool) {
        let mut pulls = self.pulls.pulls.borrow_mut();
        let shared = pulls.intents(image).next().copied();
        if let Some(pull) = pulls.list.get_mut(&self.number) {
            pull.intent = shared.or(Some(if existed { Intent::Left } else { Intent::Own }));
        }
    }

    /// The pull has ended. Returns whether the intent record ends with it.
    pub(super) fn ends_intent(&self, image: &str, recorded: bool) -> bool {
        let mut pulls = self.pulls.pulls.borrow_mut();
        let own = pulls.list.get_mut(&self.number).and_then(|pull| pull.intent.take());
        if recorded {
            pulls.intents(image).for_each(|intent| *intent = Intent::Own);
        }
        (recorded || own == Some(Intent::Own)) && pulls.intents(image).next().is_none()
    }
}

impl Drop for PullGuard {
    fn drop(&mut self) {
        let mut pulls = self.pulls.pulls.borrow_mut();
        // An interrupted pull leaves the intent record.
        if let Some(PullUnderWay { image, intent: Some(_), .. }) = pulls.list.remove(&self.number) {
            pulls.intents(&image).for_each(|intent| *intent = Intent::Left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pulls_are_listed_in_order_until_done() {
        let all = PullsUnderWay::default();
        let now = Instant::now();
        let first = all.add("a:1", "web", now);
        let second = all.add("b:1", "db", now);
        first.begins(now);
        let seen: Vec<_> = all.list().into_iter().map(|pull| (pull.image, pull.begun.is_some())).collect();
        assert_eq!(seen, [("a:1".to_owned(), true), ("b:1".to_owned(), false)]);
        drop(first);
        assert_eq!(all.list().len(), 1);
        drop(second);
        assert!(all.list().is_empty());
    }

    #[test]
    fn intent_ends_with_its_last_pull_unless_an_interrupted_one_left_it() {
        let all = PullsUnderWay::default();
        let (failed, recorded) = (false, true);
        let pull = |existed| {
            let pull = all.add("a:1", "web", Instant::now());
            pull.intends("a:1", existed);
            pull
        };
        let without = all.add("a:1", "web", Instant::now());
        assert!(!without.ends_intent("a:1", failed) && without.ends_intent("a:1", recorded));
        let (first, second) = (pull(false), pull(true));
        assert!(!without.ends_intent("a:1", recorded), "pulls need it");
        assert!(!first.ends_intent("a:1", failed) && second.ends_intent("a:1", failed));
        let (left, second) = (pull(true), pull(true));
        assert!(!left.ends_intent("a:1", failed) && !second.ends_intent("a:1", failed));
        let (interrupted, second) = (pull(false), pull(true));
        drop(interrupted);
        assert!(!second.ends_intent("a:1", failed));
        let (left, second) = (pull(true), pull(true));
        assert!(!left.ends_intent("a:1", recorded) && second.ends_intent("a:1", failed), "it was recorded");
    }
}
