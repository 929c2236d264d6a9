//! The timers of a thread that runs futures. It sleeps until the first of them is due: no other thread wakes for a timer, and
//! setting one that is not the first costs no call to the kernel.

use std::cell::RefCell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

thread_local! {
    static TIMERS: RefCell<Timers> = const { RefCell::new(Timers { set: Vec::new(), count: 0 }) };
}

struct Timers {
    /// The first one due is the last here.
    set: Vec<Set>,
    count: u64,
}

struct Set {
    /// The moment, and a number of its own.
    key: (Instant, u64),
    waker: Waker,
}

impl Timers {
    /// Where it is, or belongs.
    fn place(&self, key: (Instant, u64)) -> Result<usize, usize> {
        self.set.binary_search_by(|other| key.cmp(&other.key))
    }
}

/// See [`super::now`].
pub(super) fn now() -> Instant {
    #[cfg(test)]
    if let Some(world) = super::world() {
        return world.now();
    }
    Instant::now()
}

/// Ready from a moment on. It is set for the thread that polls it.
#[derive(Debug)]
pub(super) struct Timer {
    /// `None`: beyond all time.
    at: Option<Instant>,
    number: Option<u64>,
}

impl Timer {
    pub(super) fn at(moment: Instant) -> Self {
        Self { at: Some(moment), number: None }
    }

    pub(super) fn after(duration: Duration) -> Self {
        Self { at: now().checked_add(duration), number: None }
    }
}

impl Future for Timer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(at) = self.at else { return Poll::Pending };
        if at <= now() {
            return Poll::Ready(());
        }
        let before = TIMERS.with_borrow_mut(|timers| {
            let number = *self.number.get_or_insert_with(|| {
                timers.count += 1;
                timers.count
            });
            let waker = context.waker();
            match timers.place((at, number)) {
                Ok(place) => {
                    let known = timers.set.get_mut(place).filter(|known| !known.waker.will_wake(waker));
                    known.map(|known| std::mem::replace(&mut known.waker, waker.clone()))
                }
                Err(place) => {
                    timers.set.insert(place, Set { key: (at, number), waker: waker.clone() });
                    None
                }
            }
        });
        // Who is woken by it may go with it, and has timers perhaps.
        drop(before);
        Poll::Pending
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        let (Some(at), Some(number)) = (self.at, self.number) else { return };
        // At the end of a thread they may be gone before what they were set for.
        let removed = TIMERS.try_with(|timers| {
            let mut timers = timers.borrow_mut();
            timers.place((at, number)).ok().map(|place| timers.set.remove(place))
        });
        // As above.
        drop(removed);
    }
}

/// Runs `future` to its end on this thread.
pub(super) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let bell = Arc::new(Bell { thread: thread::current(), rung: AtomicBool::new(false) });
    let waker = Waker::from(Arc::clone(&bell));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        bell.wait();
    }
}

/// Ends the sleep of the thread.
struct Bell {
    thread: Thread,
    /// Beside the thread's own mark, which somebody else who waits on this thread may have taken.
    rung: AtomicBool,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.rung.swap(true, Ordering::Release) {
            self.thread.unpark();
        }
    }
}

impl Bell {
    /// Until it is rung, by a timer or by anybody else.
    fn wait(&self) {
        loop {
            let next = ring_due();
            if self.rung.swap(false, Ordering::Acquire) {
                return;
            }
            match next {
                Some(next) => thread::park_timeout(next.saturating_duration_since(now())),
                None => thread::park(),
            }
        }
    }
}

/// Wakes all whose moment has come; the moment of the next one.
pub(super) fn ring_due() -> Option<Instant> {
    let (due, next) = TIMERS.with_borrow_mut(|timers| {
        let next = timers.set.last().map(|set| set.key.0)?;
        let now = now();
        if next > now {
            return Some((Vec::new(), Some(next)));
        }
        let first = timers.set.partition_point(|set| set.key.0 > now);
        let due = timers.set.split_off(first);
        Some((due, timers.set.last().map(|set| set.key.0)))
    })?;
    due.into_iter().rev().for_each(|set| set.waker.wake());
    next
}

/// The moment of the first timer that is set.
#[cfg(test)]
pub(super) fn next() -> Option<Instant> {
    TIMERS.with_borrow(|timers| timers.set.last().map(|set| set.key.0))
}

#[cfg(test)]
mod tests {
    use super::super::{either, spawn, yield_now};
    use super::*;

    fn set() -> usize {
        TIMERS.with_borrow(|timers| timers.set.len())
    }

    #[test]
    fn timers_come_in_the_order_of_their_moments_however_they_were_set() {
        let (sender, receiver) = async_channel::unbounded();
        super::super::block_on(async {
            let begin = Instant::now();
            let tasks: Vec<_> = [7, 2, 9, 2, 4, 1]
                .map(|millis| {
                    let sender = sender.clone();
                    spawn(async move {
                        Timer::at(begin + Duration::from_millis(millis)).await;
                        assert!(begin.elapsed() >= Duration::from_millis(millis));
                        sender.send(millis).await.unwrap();
                    })
                })
                .into();
            for task in tasks {
                task.await;
            }
        });
        let order: Vec<u64> = std::iter::from_fn(|| receiver.try_recv().ok()).collect();
        assert_eq!(order, [1, 2, 2, 4, 7, 9]);
        assert_eq!(set(), 0);
    }

    /// Writes its name down when it is woken. It may have timers of its own.
    struct Writes(char, Arc<std::sync::Mutex<String>>);

    impl Wake for Writes {
        fn wake(self: Arc<Self>) {
            set();
            self.1.lock().unwrap().push(self.0);
        }
    }

    #[test]
    fn all_whose_moment_has_come_are_woken_in_order_and_the_next_one_is_told() {
        let written = Arc::default();
        let now = Instant::now();
        let later = now + Duration::from_secs(3600);
        let timer = |at, name| Set { key: (at, 0), waker: Waker::from(Arc::new(Writes(name, Arc::clone(&written)))) };
        let before = |nanos| now.checked_sub(Duration::from_nanos(nanos)).unwrap();
        TIMERS.with_borrow_mut(|timers| {
            timers.set = vec![timer(later, 'd'), timer(before(1), 'c'), timer(before(2), 'b'), timer(before(3), 'a')];
        });
        assert_eq!(ring_due(), Some(later));
        assert_eq!(*written.lock().unwrap(), "abc");
        assert_eq!((ring_due(), set()), (Some(later), 1));
        assert_eq!(*written.lock().unwrap(), "abc");
        TIMERS.with_borrow_mut(|timers| timers.set.clear());
    }

    #[test]
    fn a_timer_that_nobody_waits_for_any_longer_is_not_kept() {
        block_on(async {
            for _ in 0..3 {
                let long = async { Timer::after(Duration::from_secs(3600)).await };
                either(long, Timer::after(Duration::from_millis(1))).await;
                assert_eq!(set(), 0);
            }
        });
    }

    #[test]
    fn a_timer_beyond_all_time_never_comes_and_one_of_the_past_is_there() {
        block_on(either(
            async {
                Timer::after(Duration::MAX).await;
                panic!("it came");
            },
            Timer::after(Duration::from_millis(1)),
        ));
        block_on(Timer::at(Instant::now()));
    }

    #[test]
    fn another_thread_ends_the_sleep_also_before_a_timer_and_without_any() {
        for limit in [Duration::from_secs(3600), Duration::MAX] {
            let (sender, receiver) = async_channel::bounded::<u8>(1);
            let other = thread::spawn(move || sender.send_blocking(1).unwrap());
            let heard = async { receiver.recv().await.unwrap() };
            let late = async {
                Timer::after(limit).await;
                0
            };
            assert_eq!(block_on(either(heard, late)), 1);
            other.join().unwrap();
        }
    }

    #[test]
    fn a_thread_that_always_has_something_to_do_hears_its_timers() {
        super::super::block_on(async {
            let busy = spawn(async {
                loop {
                    yield_now().await;
                }
            });
            Timer::after(Duration::from_millis(2)).await;
            drop(busy);
        });
    }

    #[test]
    fn who_else_waits_on_the_thread_takes_no_wake_away() {
        let (sender, receiver) = async_channel::bounded::<u8>(1);
        let mut first = true;
        let heard = block_on(async {
            let mut hear = pin!(receiver.recv());
            std::future::poll_fn(|context| {
                let heard = hear.as_mut().poll(context);
                if std::mem::take(&mut first) {
                    sender.try_send(1).unwrap();
                    thread::park();
                }
                heard
            })
            .await
        });
        assert_eq!(heard, Ok(1));
    }
}
