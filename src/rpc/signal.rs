//! Wakes the tasks of this thread that wait for something to have changed.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

/// A counter of changes that can be waited for.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    changes: Cell<u64>,
    waiting: RefCell<Vec<Waker>>,
}

impl Signal {
    pub(crate) fn notify(&self) {
        self.changes.set(self.changes.get() + 1);
        for waker in self.waiting.take() {
            waker.wake();
        }
    }

    pub(crate) fn changes(&self) -> u64 {
        self.changes.get()
    }

    /// Waits until there have been more changes than `seen`.
    pub(crate) async fn beyond(&self, seen: u64) {
        poll_fn(|context| self.poll_beyond(seen, context)).await;
    }

    fn poll_beyond(&self, seen: u64, context: &mut Context<'_>) -> Poll<()> {
        if self.changes.get() > seen {
            return Poll::Ready(());
        }
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            waiting.push(context.waker().clone());
        }
        Poll::Pending
    }
}
