//! The blocking pool: at most eight threads, which end when they have been idle for a while.

use std::collections::VecDeque;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub(super) const THREADS: usize = 8;
const IDLE: Duration = Duration::from_secs(2);

pub(super) type Job = Box<dyn FnOnce() + Send>;

struct Pool {
    state: Mutex<State>,
    wake: Condvar,
}

struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

static POOL: Pool =
    Pool { state: Mutex::new(State { jobs: VecDeque::new(), threads: 0, idle: 0 }), wake: Condvar::new() };

/// Runs `work` on the pool. The work goes on when the future is dropped; only its result is lost.
///
/// The queue grows with the callers only: each task of the executor waits for at most one piece of work at a time.
pub fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> impl Future<Output = T> {
    let (sender, receiver) = async_channel::bounded(1);
    submit(Box::new(move || {
        // A panic aborts in release; in tests it must reach the caller instead of ending a pool thread.
        let result = std::panic::catch_unwind(AssertUnwindSafe(work));
        // The caller may have gone; then nobody waits for the result.
        let _ = sender.try_send(result);
    }));
    async move {
        match receiver.recv().await {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            // The job always sends before it drops its sender; a simulated one may end with its program.
            Err(_) => std::future::pending().await,
        }
    }
}

fn submit(job: Job) {
    #[cfg(test)]
    if let Some(world) = super::world() {
        return super::virtual_time::work_later(&world, job);
    }
    POOL.submit(job);
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn submit(&'static self, job: Job) {
        let mut state = self.lock();
        state.jobs.push_back(job);
        if state.idle >= state.jobs.len() {
            self.wake.notify_one();
        } else if state.threads < THREADS {
            state.threads += 1;
            drop(state);
            if super::thread("blocking", || self.serve()).is_err() {
                self.without_thread();
            }
        }
    }

    /// No thread could be started: the others take the job, or this one does it now.
    fn without_thread(&self) {
        let mut state = self.lock();
        state.threads -= 1;
        let job = if state.threads == 0 { state.jobs.pop_front() } else { None };
        drop(state);
        if let Some(job) = job {
            job();
        }
    }

    fn serve(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = self.lock();
                continue;
            }
            state.idle += 1;
            let (guard, wait) = self.wake.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = guard;
            state.idle -= 1;
            if wait.timed_out() && state.jobs.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::block_on;
    use super::*;

    #[test]
    fn work_runs_on_another_thread_and_its_result_comes_back() {
        let here = std::thread::current().id();
        let there = block_on(blocking(|| std::thread::current().id()));
        assert_ne!(here, there);
    }

    #[test]
    fn more_work_than_threads_is_all_done() {
        let work: Vec<_> = (0..100).map(|n| blocking(move || n)).collect();
        let sum: u32 = block_on(async {
            let mut sum = 0;
            for one in work {
                sum += one.await;
            }
            sum
        });
        assert_eq!(sum, 4950);
    }
}
