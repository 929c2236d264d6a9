//! Runs many futures in one task. Each is polled only when it was woken, a bounded number of them in a turn.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// Futures that are polled before other tasks have their turn.
const FUTURES_PER_TURN: usize = 64;

/// Runs the futures concurrently and returns their outputs in order.
pub async fn all<T>(futures: Vec<Pin<Box<dyn Future<Output = T> + '_>>>) -> Vec<T> {
    let woken = Arc::new(Woken::default());
    let mut running: Vec<_> = futures
        .into_iter()
        .enumerate()
        .map(|(slot, future)| {
            let waker = Arc::new(OneWaker { index: slot, is_woken: AtomicBool::new(false), woken: Arc::clone(&woken) });
            waker.wake_by_ref();
            (Some(future), waker)
        })
        .collect();
    let mut outputs: Vec<Option<T>> = running.iter().map(|_| None).collect();
    let mut unfinished = running.len();
    poll_fn(|context| {
        woken.lock().task = Some(context.waker().clone());
        for _ in 0..FUTURES_PER_TURN {
            let Some(slot) = woken.lock().woken_futures.pop_front() else { break };
            let (Some((future, waker)), Some(outputs)) = (running.get_mut(slot), outputs.get_mut(slot)) else {
                continue;
            };
            waker.is_woken.store(false, Ordering::Release);
            let Some(polled) = future else { continue };
            let own_waker = Waker::from(Arc::clone(waker));
            if let Poll::Ready(value) = polled.as_mut().poll(&mut Context::from_waker(&own_waker)) {
                *outputs = Some(value);
                *future = None;
                unfinished -= 1;
            }
        }
        if unfinished == 0 {
            return Poll::Ready(());
        }
        if !woken.lock().woken_futures.is_empty() {
            context.waker().wake_by_ref();
        }
        Poll::Pending
    })
    .await;
    outputs.into_iter().flatten().collect()
}

/// The futures to poll, and the task that polls them.
#[derive(Default)]
struct Woken(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    woken_futures: VecDeque<usize>,
    task: Option<Waker>,
}

impl Woken {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct OneWaker {
    index: usize,
    /// It is in the queue.
    is_woken: AtomicBool,
    woken: Arc<Woken>,
}

impl Wake for OneWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.is_woken.swap(true, Ordering::AcqRel) {
            return;
        }
        let task = {
            let mut queue = self.woken.lock();
            queue.woken_futures.push_back(self.index);
            queue.task.clone()
        };
        task.iter().for_each(Waker::wake_by_ref);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::super::{block_on, spawn, yield_now};
    use super::*;

    type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

    #[test]
    fn all_runs_concurrently_and_keeps_the_order() {
        let (sender, receiver) = async_channel::bounded::<u8>(1);
        let waits = Box::pin(async { receiver.recv().await.unwrap() }) as Boxed<'_, u8>;
        let sends = Box::pin(async {
            sender.send(1).await.unwrap();
            2
        });
        assert_eq!(block_on(all(vec![waits, sends])), [1, 2]);
        assert!(block_on(all::<u8>(Vec::new())).is_empty());
    }

    #[test]
    fn only_woken_futures_are_polled() {
        let polls = Cell::new(0_usize);
        let (sender, receiver) = async_channel::unbounded::<usize>();
        let count = 1000;
        let waits = |_| {
            let mut inner = Box::pin(receiver.recv());
            let polls = &polls;
            Box::pin(poll_fn(move |context| {
                polls.set(polls.get() + 1);
                inner.as_mut().poll(context).map(Result::unwrap)
            })) as Boxed<'_, usize>
        };
        let futures: Vec<_> = (0..count).map(waits).collect();
        let done = block_on(async {
            let sends = spawn(async move {
                for number in 0..count {
                    sender.send(number).await.unwrap();
                    yield_now().await;
                }
            });
            let done = all(futures).await;
            sends.await;
            done
        });
        assert_eq!(done.len(), count);
        assert!(polls.get() < 3 * count, "{}", polls.get());
    }

    #[test]
    fn other_tasks_run_between_many_futures() {
        let polled = std::rc::Rc::new(Cell::new(0_usize));
        let (own, other) = (std::rc::Rc::clone(&polled), std::rc::Rc::clone(&polled));
        let futures = (0..1000).map(|_| {
            let own = std::rc::Rc::clone(&own);
            Box::pin(async move { own.set(own.get() + 1) }) as Boxed<'_, ()>
        });
        let futures: Vec<_> = futures.collect();
        let seen = block_on(async move {
            let beside = spawn(async move {
                yield_now().await;
                other.get()
            });
            all(futures).await;
            beside.await
        });
        assert!(seen < 1000, "{seen}");
        assert_eq!(polled.get(), 1000);
    }
}
