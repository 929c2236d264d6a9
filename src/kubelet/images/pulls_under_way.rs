//! The pulls in progress, for status pages. Pure: time is an argument.

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

    /// Number of pulls of one image.
    pub(super) fn count(&self, image: &str) -> usize {
        self.pulls.borrow().list.values().filter(|pull| pull.image == image).count()
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
        let pull =
            PullUnderWay { image: image.to_owned(), pod: pod.to_owned(), requested, begun: None, progress: None };
        pulls.list.insert(number, pull);
        PullGuard { pulls: self.clone(), number }
    }
}

impl PullGuard {
    pub(super) fn begins(&self, now: Instant) {
        if let Some(pull) = self.pulls.pulls.borrow_mut().list.get_mut(&self.number) {
            pull.begun = Some(now);
        }
    }
}

impl Drop for PullGuard {
    fn drop(&mut self) {
        self.pulls.pulls.borrow_mut().list.remove(&self.number);
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
        assert_eq!((all.count("a:1"), all.count("c:1")), (1, 0));
        drop(first);
        assert_eq!(all.list().len(), 1);
        drop(second);
        assert!(all.list().is_empty());
    }
}
