//! The executor, tasks, timers, the bounded blocking pool: the only module that names smol.
//!
//! One thread runs all futures. Blocking work goes to [`blocking`], work that may hang to [`slow`], trees of files to
//! [`walk`] and [`remove`], and a wait without end gets a [`thread`].

mod all;
mod blocking;
mod job_queue;
#[cfg(test)]
mod network;
#[cfg(test)]
mod power_cut;
#[cfg(test)]
mod processes;
#[cfg(test)]
mod sockets;
#[cfg(test)]
mod test_folder;
mod timers;
#[cfg(test)]
mod turn_meter;
mod turn_work;
mod turns;
mod uncancelled;
#[cfg(test)]
mod virtual_time;
#[cfg(test)]
mod watched;

use std::fmt;
use std::future::Future;
#[cfg(test)]
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

pub use all::all;
pub use blocking::{
    blocking, blocking_for, blocking_for_client, inquire_for, remove, remove_for, serve_client, slow, slow_for, walk,
    walk_for,
};
#[cfg(not(test))]
pub use smol::Async;
pub use smol::future::zip;
pub use smol::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
pub use smol::lock::{Semaphore, SemaphoreGuard, SemaphoreGuardArc};
#[cfg(not(test))]
pub use smol::net::unix::{UnixListener, UnixStream};
#[cfg(not(test))]
pub use smol::net::{TcpListener, TcpStream};
pub use smol::stream::StreamExt;
pub use turn_work::TurnWork;
pub use turns::{Turn, Turns};
pub use uncancelled::UncancelledTasks;

// In tests a simulation may replace the kernel.
#[cfg(test)]
pub(crate) use network::{Line, Resolver, simulated_lookup};
#[cfg(test)]
pub(crate) use power_cut::{disk_access, synced_file, synced_folder};
#[cfg(test)]
pub(crate) use processes::{
    ProcessTable, SimulatedProcess, set_process_table, simulated_cgroups, simulated_exit, simulated_signal,
};
#[cfg(test)]
pub(crate) use sockets::simulated_connection;
#[cfg(test)]
pub use sockets::{Async, TcpListener, TcpStream, UnixListener, UnixStream};
#[cfg(test)]
pub(crate) use test_folder::TestFolder;
#[cfg(test)]
pub(crate) use turn_meter::{FutureFigures, TurnFigures, processor_time};
#[cfg(test)]
pub(crate) use virtual_time::{Stuck, WakesBy, World, simulate, world};

use pin_project_lite::pin_project;
use smol::future::FutureExt;
use timers::Timer;

thread_local! {
    static EXECUTOR: smol::LocalExecutor<'static> = const { smol::LocalExecutor::new() };
}

/// Runs `future` to completion on this thread, together with all spawned tasks.
///
/// smol's reactor thread polls sockets and wakes this one. `smol::block_on` would poll them here, but the reactor
/// thread would still wake up after each event: six times as many wake-ups when idle. Timers are our own, because
/// setting one of the reactor's wakes its thread.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    EXECUTOR.with(|executor| timers::block_on(executor.run(future)))
}

/// A spawned future. Dropping it cancels the future at its next await.
#[must_use = "dropping a task cancels it"]
pub struct Task<T>(smol::Task<T>);

impl<T> fmt::Debug for Task<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Task")
    }
}

impl<T> Future for Task<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context)
    }
}

impl<T> Task<T> {
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

/// Starts `future` on this thread's executor.
pub fn spawn<T: 'static>(future: impl Future<Output = T> + 'static) -> Task<T> {
    #[cfg(test)]
    if let Some(world) = world() {
        return start_task(Box::pin(virtual_time::Shuffled::new(&world, future)));
    }
    start_task(Box::pin(future))
}

/// The executor's code exists once for each type of result, and not once for each future.
fn start_task<T: 'static>(future: Pin<Box<dyn Future<Output = T>>>) -> Task<T> {
    EXECUTOR.with(|executor| Task(executor.spawn(future)))
}

/// Starts a thread for a wait without end. Its name shows in `ps -L`.
pub fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    #[cfg(test)]
    if world().is_some() {
        return Err(std::io::ErrorKind::Unsupported.into());
    }
    start_thread(name, Box::new(work))
}

fn start_thread(name: &str, work: Box<dyn FnOnce() + Send>) -> std::io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).stack_size(THREAD_STACK_BYTES).spawn(work).map(drop)
}

/// Enough for file work and YAML; the default of 2 MiB would use up a small board's address space.
const THREAD_STACK_BYTES: usize = 256 * 1024;

/// The monotonic clock, which stops while the machine is suspended.
pub fn now() -> Instant {
    timers::now()
}

/// Time since `start`; zero if it is in the future.
pub fn elapsed(start: Instant) -> Duration {
    now().saturating_duration_since(start)
}

#[cfg(not(test))]
pub async fn sleep(duration: Duration) {
    Timer::after(duration).await;
}

#[cfg(not(test))]
pub async fn sleep_until(deadline: Instant) {
    Timer::at(deadline).await;
}

/// The same for tests, which count the places that wake the program.
#[cfg(test)]
#[track_caller]
pub fn sleep(duration: Duration) -> impl Future<Output = ()> {
    let caller = Location::caller();
    async move { Timer::after(duration).set_at(caller).await }
}

#[cfg(test)]
#[track_caller]
pub fn sleep_until(deadline: Instant) -> impl Future<Output = ()> {
    let caller = Location::caller();
    async move { Timer::at(deadline).set_at(caller).await }
}

/// The deadline passed before the future was ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("deadline exceeded")
    }
}

impl std::error::Error for Elapsed {}

// The following are not async functions: an async function stores its arguments beside the future that it builds from
// them, which doubles the size of the caller's state for as long as a pod is worked on.

/// The output of `future`, which is dropped if it takes longer than `limit`.
pub fn deadline<F: Future>(limit: Duration, future: F) -> impl Future<Output = Result<F::Output, Elapsed>> {
    Deadline { future, limit, timer: None }
}

pin_project! {
    struct Deadline<F> {
        #[pin]
        future: F,
        limit: Duration,
        // Started by the first poll.
        timer: Option<Timer>,
    }
}

impl<F: Future> Future for Deadline<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(value) = this.future.poll(context) {
            return Poll::Ready(Ok(value));
        }
        let timer = this.timer.get_or_insert_with(|| Timer::after(*this.limit));
        Pin::new(timer).poll(context).map(|_| Err(Elapsed))
    }
}

/// The output of `future`. Calls `report` whenever it has taken another `interval`.
pub fn reporting<F: Future>(interval: Duration, future: F, report: impl FnMut()) -> impl Future<Output = F::Output> {
    Reporting { future, interval, report, timer: None }
}

pin_project! {
    struct Reporting<F, R> {
        #[pin]
        future: F,
        interval: Duration,
        report: R,
        // Started by the first poll.
        timer: Option<Timer>,
    }
}

impl<F: Future, R: FnMut()> Future for Reporting<F, R> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(value) = this.future.poll(context) {
            return Poll::Ready(value);
        }
        loop {
            let timer = this.timer.get_or_insert_with(|| Timer::after(*this.interval));
            if Pin::new(timer).poll(context).is_pending() {
                return Poll::Pending;
            }
            (this.report)();
            *this.timer = None;
        }
    }
}

/// The output of the first future to complete; the other is dropped. `left` wins a tie.
pub fn either<T>(left: impl Future<Output = T>, right: impl Future<Output = T>) -> impl Future<Output = T> {
    left.or(right)
}

/// A uniformly distributed number, for jitter. Not for secrets.
pub fn random() -> u32 {
    use std::hash::{BuildHasher, RandomState};

    #[cfg(test)]
    if let Some(world) = world() {
        return u32::try_from(world.below(1 << 32)).unwrap_or(u32::MAX);
    }
    // Each RandomState has keys of its own, derived from a random seed of the kernel.
    let number = RandomState::new().hash_one(0u8);
    u32::try_from(number >> 32).unwrap_or(u32::MAX)
}

/// Lets every other task of this thread run once.
pub async fn yield_now() {
    smol::future::yield_now().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_task_is_cancelled() {
        let (sender, receiver) = async_channel::bounded::<()>(1);
        block_on(async {
            let task = spawn(async move {
                sleep(Duration::from_secs(3600)).await;
                drop(sender);
            });
            yield_now().await;
            drop(task);
            assert!(receiver.recv().await.is_err(), "the future was not dropped with its task");
        });
    }

    #[test]
    fn late_future_is_elapsed() {
        let never = std::future::pending::<()>();
        assert_eq!(block_on(deadline(Duration::from_millis(1), never)), Err(Elapsed));
        assert_eq!(block_on(deadline(Duration::from_secs(5), async { 7 })), Ok(7));
    }

    #[test]
    fn slow_future_is_reported_until_it_ends() {
        let reports = simulate(1, |world| async move {
            let mut reports = Vec::new();
            let slow = async {
                sleep(Duration::from_secs(7)).await;
                1
            };
            let done = reporting(Duration::from_secs(3), slow, || reports.push(world.passed().as_secs())).await;
            let quick = reporting(Duration::from_secs(3), async { 2 }, || reports.push(0)).await;
            (done, quick, reports)
        });
        assert_eq!(reports, Ok((1, 2, vec![3, 6])));
    }
}
