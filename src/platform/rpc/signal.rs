//! Wakes tasks of this thread that wait for a change.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

/// A counter of changes that tasks can wait for.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    changes: Cell<u64>,
    waiting: RefCell<Vec<(u64, Waker)>>,
    /// The key of the last waiter.
    last_key: Cell<u64>,
}

impl Signal {
    pub(crate) fn notify(&self) {
        self.changes.set(self.changes.get() + 1);
        for (_, waker) in self.waiting.take() {
            waker.wake();
        }
    }

    pub(crate) fn changes(&self) -> u64 {
        self.changes.get()
    }

    /// Waits until there have been more than `generation` changes.
    pub(crate) async fn beyond(&self, generation: u64) {
        let waiter = Waiter::new(self);
        poll_fn(|context| waiter.poll_beyond(generation, context)).await;
    }
}

/// An entry in [`Signal::waiting`], removed on drop, as a waker keeps its task's memory alive.
struct Waiter<'a> {
    signal: &'a Signal,
    key: u64,
}

impl<'a> Waiter<'a> {
    fn new(signal: &'a Signal) -> Self {
        let key = signal.last_key.get() + 1;
        signal.last_key.set(key);
        Self { signal, key }
    }

    fn poll_beyond(&self, generation: u64, context: &mut Context<'_>) -> Poll<()> {
        if self.signal.changes.get() > generation {
            return Poll::Ready(());
        }
        let waker = context.waker().clone();
        let mut waiting = self.signal.waiting.borrow_mut();
        let before = match waiting.iter_mut().find(|(key, _)| *key == self.key) {
            Some((_, waiting_waker)) => Some(std::mem::replace(waiting_waker, waker)),
            None => {
                waiting.push((self.key, waker));
                None
            }
        };
        drop(waiting);
        // Dropping the last waker of a task drops the task, which may itself wait for this signal.
        drop(before);
        Poll::Pending
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut waiting = self.signal.waiting.borrow_mut();
        let index = waiting.iter().position(|(key, _)| *key == self.key);
        let removed = index.map(|index| waiting.swap_remove(index));
        drop(waiting);
        // As above.
        drop(removed);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::Wake;

    use super::*;

    struct Nothing;

    impl Wake for Nothing {
        fn wake(self: Arc<Self>) {}
    }

    #[test]
    fn dropped_waiter_removes_its_waker() {
        let signal = Signal::default();
        let task = Arc::new(Nothing);
        let waker = Waker::from(Arc::clone(&task));
        let mut context = Context::from_waker(&waker);
        {
            let mut first = pin!(signal.beyond(0));
            let mut second = pin!(signal.beyond(0));
            for _ in 0..2 {
                assert_eq!(first.as_mut().poll(&mut context), Poll::Pending);
                assert_eq!(second.as_mut().poll(&mut context), Poll::Pending);
            }
            assert_eq!(signal.waiting.borrow().len(), 2);
        }
        assert!(signal.waiting.borrow().is_empty());
        drop(waker);
        assert_eq!(Arc::strong_count(&task), 1);
    }

    #[test]
    fn change_wakes_every_waiter() {
        let signal = Signal::default();
        let mut context = Context::from_waker(Waker::noop());
        let (mut first, mut second) = (pin!(signal.beyond(0)), pin!(signal.beyond(0)));
        assert!(first.as_mut().poll(&mut context).is_pending() && second.as_mut().poll(&mut context).is_pending());
        signal.notify();
        assert!(first.as_mut().poll(&mut context).is_ready() && second.as_mut().poll(&mut context).is_ready());
    }
}
