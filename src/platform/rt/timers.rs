//! Timers local to the executor's thread. The thread sleeps until the first one is due: timers wake no other thread,
//! and setting one that is not the first takes no system call.

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
    /// Sorted, with the next timer last: taking it moves no other.
    set: Vec<Set>,
    count: u64,
}

struct Set {
    /// The due time, and a unique number.
    key: (Instant, u64),
    waker: Waker,
    #[cfg(test)]
    set_at: Option<Place>,
}

/// Where in the source a timer was set.
#[cfg(test)]
type Place = &'static std::panic::Location<'static>;

impl Timers {
    /// The index of the timer, or where it belongs.
    fn index_of(&self, key: (Instant, u64)) -> Result<usize, usize> {
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

/// A future that is ready at a given time. It is registered with the thread that polls it.
#[derive(Debug)]
pub(super) struct Timer {
    /// `None`: never.
    at: Option<Instant>,
    number: Option<u64>,
    #[cfg(test)]
    set_at: Option<Place>,
}

impl Timer {
    pub(super) fn at(deadline: Instant) -> Self {
        Self::new(Some(deadline))
    }

    pub(super) fn after(duration: Duration) -> Self {
        Self::new(now().checked_add(duration))
    }

    fn new(at: Option<Instant>) -> Self {
        Self {
            at,
            number: None,
            #[cfg(test)]
            set_at: None,
        }
    }

    #[cfg(test)]
    pub(super) fn set_at(mut self, location: Place) -> Self {
        self.set_at = Some(location);
        self
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
            match timers.index_of((at, number)) {
                Ok(index) => {
                    let timer = timers.set.get_mut(index).filter(|timer| !timer.waker.will_wake(waker));
                    timer.map(|timer| std::mem::replace(&mut timer.waker, waker.clone()))
                }
                Err(index) => {
                    let set = Set {
                        key: (at, number),
                        waker: waker.clone(),
                        #[cfg(test)]
                        set_at: self.set_at,
                    };
                    timers.set.insert(index, set);
                    None
                }
            }
        });
        // Dropping a waker may drop its task, and with it other timers.
        drop(before);
        Poll::Pending
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        let (Some(at), Some(number)) = (self.at, self.number) else { return };
        // When a thread ends, its timers may be destroyed before the futures that hold them.
        let removed = TIMERS.try_with(|timers| {
            let mut timers = timers.borrow_mut();
            timers.index_of((at, number)).ok().map(|index| timers.set.remove(index))
        });
        // Dropped outside the borrow, as above.
        drop(removed);
    }
}

/// Runs `future` to completion on this thread.
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

/// Wakes the thread.
struct Bell {
    thread: Thread,
    /// Needed beside the thread's park token, which other code that parks this thread may have consumed.
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
    /// Waits until a timer or another thread rings the bell.
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

/// Wakes all timers that are due. Returns when the next one is due.
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

/// When the next timer is due.
#[cfg(test)]
pub(super) fn next() -> Option<Instant> {
    TIMERS.with_borrow(|timers| timers.set.last().map(|set| set.key.0))
}

/// Where the next timer was set, if it is known.
#[cfg(test)]
pub(super) fn location_of_next() -> Option<Place> {
    TIMERS.with_borrow(|timers| timers.set.last().and_then(|set| set.set_at))
}

#[cfg(test)]
mod tests {
    use super::super::{either, spawn, yield_now};
    use super::*;

    fn set() -> usize {
        TIMERS.with_borrow(|timers| timers.set.len())
    }

    #[test]
    fn timers_fire_in_order_of_their_times() {
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

    /// A waker that records its name. It may own timers.
    struct Writes(char, Arc<std::sync::Mutex<String>>);

    impl Wake for Writes {
        fn wake(self: Arc<Self>) {
            set();
            self.1.lock().unwrap().push(self.0);
        }
    }

    #[test]
    fn due_timers_are_woken_in_order() {
        let written = Arc::default();
        let now = Instant::now();
        let later = now + Duration::from_secs(3600);
        let timer = |at, name| Set {
            key: (at, 0),
            waker: Waker::from(Arc::new(Writes(name, Arc::clone(&written)))),
            set_at: None,
        };
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
    fn dropped_timer_is_removed() {
        block_on(async {
            for _ in 0..3 {
                let long = async { Timer::after(Duration::from_secs(3600)).await };
                either(long, Timer::after(Duration::from_millis(1))).await;
                assert_eq!(set(), 0);
            }
        });
    }

    #[test]
    fn past_timers_are_ready_and_overflowing_ones_never_fire() {
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
    fn another_thread_can_wake_the_sleep() {
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
    fn timers_fire_on_a_busy_thread() {
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
    fn other_parking_on_the_thread_loses_no_wake() {
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
