//! Thread pools for blocking work: [`blocking`] and [`blocking_for`] for local work, [`slow`] and [`slow_for`] for
//! what may hang, such as disks, mounts and other daemons, [`inquire_for`] for the name servers and file servers of
//! pods, [`walk`] and [`walk_for`] for trees of files that are counted, and [`remove`] and [`remove_for`] for those
//! that are removed. Idle threads exit after a while.

use std::any::Any;
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_channel::Receiver;

use super::job_queue::{JobQueue, Owner};

thread_local! {
    /// The client whose connection is being polled.
    static CLIENT: RefCell<Owner> = const { RefCell::new(None) };
}

/// The owner of work for clients outside of a connection.
const CLIENTS: &str = "clients";

/// A thread's stack is memory that a node of 256 MB misses, and starting one takes microseconds.
const IDLE_THREAD_TIMEOUT: Duration = Duration::from_secs(2);
/// Jobs that wait longer than this for a thread of the slow pool are logged.
const OVERDUE_JOB_WAIT: Duration = Duration::from_secs(30);

pub(super) type Job = Box<dyn FnOnce() + Send>;

/// The pool of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PoolKind {
    Inquiry,
    Quick,
    Removal,
    Slow,
    Walk,
}

impl PoolKind {
    #[cfg(test)]
    pub(super) const ALL: [Self; 5] = [Self::Inquiry, Self::Quick, Self::Removal, Self::Slow, Self::Walk];

    /// The slow pool has room for the hanging jobs of 38 pods, that of inquiries for those of 15. Trees are read from
    /// disks that many threads make slower.
    pub(super) const fn threads(self) -> usize {
        match self {
            Self::Inquiry => 16,
            Self::Quick => 8,
            Self::Removal | Self::Walk => 3,
            Self::Slow => 64,
        }
    }

    /// Most threads of one owner.
    pub(super) const fn threads_of_one(self) -> usize {
        match self {
            Self::Inquiry => 1,
            Self::Quick | Self::Removal | Self::Slow | Self::Walk => 2,
        }
    }

    fn pool(self) -> &'static Pool {
        static INQUIRY: Pool = Pool::new("inquiry", PoolKind::Inquiry);
        static QUICK: Pool = Pool::new("blocking", PoolKind::Quick);
        static REMOVAL: Pool = Pool::new("removal", PoolKind::Removal);
        static SLOW: Pool = Pool::new("slow", PoolKind::Slow);
        static WALK: Pool = Pool::new("walk", PoolKind::Walk);
        match self {
            Self::Inquiry => &INQUIRY,
            Self::Quick => &QUICK,
            Self::Removal => &REMOVAL,
            Self::Slow => &SLOW,
            Self::Walk => &WALK,
        }
    }
}

struct Pool {
    name: &'static str,
    threads: usize,
    state: Mutex<State>,
    wake: Condvar,
}

struct State {
    jobs: JobQueue<Job>,
    threads: usize,
    idle: usize,
    reported: bool,
}

/// Runs `work` on the blocking pool. Dropping the future does not cancel the work, only its result is lost.
///
/// The queue is bounded by the callers: each task of the executor waits for at most one job at a time.
pub fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> impl Future<Output = T> {
    run(PoolKind::Quick, None, work)
}

/// As [`blocking`], for work of `owner`, such as the uid of a pod. The pool runs a bounded number of jobs of
/// each owner at a time, and the node's own work first.
pub fn blocking_for<T, W>(owner: &str, work: W) -> impl Future<Output = T> + use<T, W>
where
    T: Send + 'static,
    W: FnOnce() -> T + Send + 'static,
{
    run(PoolKind::Quick, Some(owner.into()), work)
}

/// As [`blocking_for`], for work of the client whose connection [`serve_client`] polls, such as reading a log.
pub fn blocking_for_client<T, W>(work: W) -> impl Future<Output = T> + use<T, W>
where
    T: Send + 'static,
    W: FnOnce() -> T + Send + 'static,
{
    let client = CLIENT.with_borrow(Owner::clone);
    run(PoolKind::Quick, client.or_else(|| Some(CLIENTS.into())), work)
}

/// Serves a connection, whose work counts for `client`.
pub async fn serve_client(client: Arc<str>, mut connection: Pin<Box<dyn Future<Output = ()>>>) {
    let polled = poll_fn(|context| {
        let before = CLIENT.replace(Some(Arc::clone(&client)));
        let polled = connection.as_mut().poll(context);
        CLIENT.set(before);
        polled
    });
    polled.await;
}

/// Runs work that may hang on the slow pool.
pub fn slow<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> impl Future<Output = T> {
    run(PoolKind::Slow, None, work)
}

/// As [`slow`], for work of the pod with uid `owner`: the pool runs a bounded number of jobs of each pod at a time.
pub fn slow_for<T, W>(owner: &str, work: W) -> impl Future<Output = T> + use<T, W>
where
    T: Send + 'static,
    W: FnOnce() -> T + Send + 'static,
{
    run(PoolKind::Slow, Some(owner.into()), work)
}

/// Asks a server of `owner`, a pod: a name server or a file server. It may hang, and holds up only its owner.
pub fn inquire_for<T, W>(owner: &str, work: W) -> impl Future<Output = T> + use<T, W>
where
    T: Send + 'static,
    W: FnOnce() -> T + Send + 'static,
{
    run(PoolKind::Inquiry, Some(owner.into()), work)
}

/// Counts the files of a tree.
pub fn walk<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> impl Future<Output = T> {
    run(PoolKind::Walk, None, work)
}

/// As [`walk`], for the pod with uid `owner`.
pub fn walk_for<T, W>(owner: &str, work: W) -> impl Future<Output = T> + use<T, W>
where
    T: Send + 'static,
    W: FnOnce() -> T + Send + 'static,
{
    run(PoolKind::Walk, Some(owner.into()), work)
}

/// Removes a tree of files.
pub fn remove<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> impl Future<Output = T> {
    run(PoolKind::Removal, None, work)
}

/// As [`remove`], for the pod with uid `owner`.
pub fn remove_for<T, W>(owner: &str, work: W) -> impl Future<Output = T> + use<T, W>
where
    T: Send + 'static,
    W: FnOnce() -> T + Send + 'static,
{
    run(PoolKind::Removal, Some(owner.into()), work)
}

fn run<T: Send + 'static>(
    pace: PoolKind,
    owner: Owner,
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = T> {
    result_of(any_result(pace, start(pace, owner, Box::new(|| Box::new(work())))))
}

// Channel, job and wait have one type for all work: a copy for each of the hundred types of results would take 250 kB.

type AnyResult = Box<dyn Any + Send>;
type AnyWork = Box<dyn FnOnce() -> AnyResult + Send>;

fn start(pace: PoolKind, owner: Owner, work: AnyWork) -> Receiver<std::thread::Result<AnyResult>> {
    let (sender, receiver) = async_channel::bounded(1);
    let job = Box::new(move || {
        // A panic aborts in release; in tests it must reach the caller instead of ending a pool thread.
        let result = std::panic::catch_unwind(AssertUnwindSafe(work));
        // The caller may have dropped the future.
        let _ = sender.try_send(result);
    });
    submit(pace, owner, job);
    receiver
}

#[expect(clippy::expect_used, reason = "`run` starts work with the result that it waits for")]
async fn result_of<T: 'static>(result: impl Future<Output = AnyResult>) -> T {
    *result.await.downcast().expect("the result has another type")
}

async fn any_result(pace: PoolKind, receiver: Receiver<std::thread::Result<AnyResult>>) -> AnyResult {
    let mut overdue = (pace == PoolKind::Slow).then_some(OVERDUE_JOB_WAIT);
    let received = loop {
        let Some(wait) = overdue.take() else { break receiver.recv().await };
        match super::deadline(wait, receiver.recv()).await {
            Ok(received) => break received,
            Err(super::Elapsed) => report(pace),
        }
    };
    match received {
        Ok(Ok(result)) => result,
        Ok(Err(panic)) => std::panic::resume_unwind(panic),
        // The job always sends before it drops its sender; a simulated one may end with its program.
        Err(_) => std::future::pending().await,
    }
}

fn submit(pace: PoolKind, owner: Owner, job: Job) {
    #[cfg(test)]
    if let Some(world) = super::world() {
        return super::virtual_time::work_later(&world, pace, owner, job);
    }
    pace.pool().submit(owner, job);
}

/// Logs overdue jobs of a pool, once until there are none.
fn report(pace: PoolKind) {
    #[cfg(test)]
    if super::world().is_some() {
        return;
    }
    pace.pool().report();
}

impl Pool {
    const fn new(name: &'static str, kind: PoolKind) -> Self {
        let jobs = JobQueue::new(kind.threads(), kind.threads_of_one());
        let state = State { jobs, threads: 0, idle: 0, reported: false };
        Self { name, threads: kind.threads(), state: Mutex::new(state), wake: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn submit(&'static self, owner: Owner, job: Job) {
        let mut state = self.lock();
        state.jobs.push(owner, job, super::now());
        let ready = state.jobs.ready();
        if ready == 0 {
            // It becomes ready when a job of the same owner ends.
        } else if state.idle >= ready {
            // A woken thread counts as idle until it runs, and its job as ready.
            self.wake.notify_one();
        } else if state.threads < self.threads {
            state.threads += 1;
            drop(state);
            if super::thread(self.name, || self.serve()).is_err() {
                self.without_thread();
            }
        }
    }

    /// Handles a failure to start a thread: another thread takes the job, or the caller runs it now.
    fn without_thread(&self) {
        let mut state = self.lock();
        state.threads -= 1;
        let job = if state.threads == 0 { state.jobs.take() } else { None };
        drop(state);
        if let Some((owner, job)) = job {
            job();
            self.lock().jobs.ended(&owner);
        }
    }

    fn serve(&self) {
        let mut state = self.lock();
        loop {
            if let Some((owner, job)) = state.jobs.take() {
                drop(state);
                job();
                state = self.lock();
                state.jobs.ended(&owner);
                continue;
            }
            state.idle += 1;
            let (guard, wait) =
                self.wake.wait_timeout(state, IDLE_THREAD_TIMEOUT).unwrap_or_else(PoisonError::into_inner);
            state = guard;
            state.idle -= 1;
            // A job that came between the timeout and the lock has woken no other thread.
            if wait.timed_out() && state.jobs.ready() == 0 {
                state.threads -= 1;
                return;
            }
        }
    }

    fn report(&self) {
        let mut state = self.lock();
        let oldest = state.jobs.oldest(super::now()).filter(|(oldest, _)| *oldest >= OVERDUE_JOB_WAIT);
        let was_reported = std::mem::replace(&mut state.reported, oldest.is_some());
        drop(state);
        if let Some((oldest, waiting)) = oldest.filter(|_| !was_reported) {
            let seconds = oldest.as_secs();
            log!(warn, "failed to run queued work in time", pool = self.name, oldest = seconds, waiting = waiting);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{block_on, simulate};
    use super::*;

    #[test]
    fn work_runs_on_another_thread() {
        let here = std::thread::current().id();
        let there = block_on(blocking(|| std::thread::current().id()));
        assert_ne!(here, there);
    }

    #[test]
    fn more_jobs_than_threads_all_run() {
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

    #[test]
    fn hanging_jobs_of_one_owner_do_not_block_others() {
        let (release, hangs) = async_channel::bounded::<()>(1);
        let hung: Vec<_> = (0..PoolKind::Slow.threads() + 10)
            .map(|_| {
                let hangs = hangs.clone();
                slow_for("a", move || hangs.recv_blocking().is_err())
            })
            .collect();
        let others = async { (slow_for("b", || 7).await, slow(|| 8).await) };
        let done = block_on(crate::platform::rt::deadline(Duration::from_secs(20), others));
        drop(release);
        assert_eq!(done.ok(), Some((7, 8)));
        block_on(async {
            for one in hung {
                one.await;
            }
        });
    }

    #[test]
    fn hanging_jobs_of_many_owners_block_neither_the_node_nor_walks_and_removals() {
        let (release, hangs) = async_channel::bounded::<()>(1);
        // One pod with a hanging job each, more of them than threads.
        let hung: Vec<_> = (0..2 * PoolKind::Slow.threads())
            .map(|number| {
                let hangs = hangs.clone();
                slow_for(&number.to_string(), move || hangs.recv_blocking().is_err())
            })
            .collect();
        let others = async { (slow(|| 1).await, walk_for("x", || 2).await, remove_for("x", || 3).await) };
        let done = block_on(crate::platform::rt::deadline(Duration::from_secs(20), others));
        drop(release);
        block_on(async {
            for one in hung {
                one.await;
            }
        });
        assert_eq!(done.ok(), Some((1, 2, 3)));
    }

    #[test]
    fn local_work_of_many_pods_and_clients_delays_neither_the_node_nor_another_pod() {
        let took = simulate(1, |world| async move {
            world.disk.set(Duration::from_secs(10));
            let greedy: Vec<_> = (0..100).map(|_| blocking_for(CLIENTS, || ())).collect();
            let begun = world.passed();
            blocking_for("one", || ()).await;
            let of_pod = world.passed() - begun;
            let pods: Vec<_> = (0..100).map(|pod| blocking_for(&pod.to_string(), || ())).collect();
            let begun = world.passed();
            for _ in 0..10 {
                blocking(|| ()).await;
            }
            drop((greedy, pods));
            (of_pod, (world.passed() - begun) / 10)
        });
        let (of_pod, of_node) = took.unwrap();
        assert!(of_pod <= Duration::from_secs(10), "a pod waits for {of_pod:?}");
        assert!(of_node <= Duration::from_secs(10), "the node waits for {of_node:?}");
    }

    #[test]
    fn hanging_work_of_one_client_does_not_block_other_clients() {
        let took = simulate(1, |world| async move {
            world.disk.set(Duration::from_secs(10));
            let (sender, receiver) = async_channel::unbounded();
            let serve = |client: &str, jobs: usize| {
                let (name, sender) = (client.to_owned(), sender.clone());
                let connection = async move {
                    let work: Vec<_> = (0..jobs).map(|_| blocking_for_client(|| ())).collect();
                    for one in work {
                        one.await;
                    }
                    let _ = sender.try_send(name);
                };
                crate::platform::rt::spawn(serve_client(client.into(), Box::pin(connection)))
            };
            let _served = [serve("10.0.0.1", 20), serve("10.0.0.2", 1)];
            let first = receiver.recv().await.unwrap();
            (first, world.passed() <= Duration::from_secs(10))
        });
        assert_eq!(took, Ok(("10.0.0.2".to_owned(), true)));
    }

    #[test]
    fn hanging_slow_jobs_do_not_block_the_blocking_pool() {
        let took = simulate(1, |world| async move {
            world.disk.set(Duration::from_secs(1));
            let slow: Vec<_> = (0..100).map(|_| slow(|| ())).collect();
            blocking(|| ()).await;
            let took = world.passed();
            drop(slow);
            took
        });
        assert!(took.unwrap() < Duration::from_secs(1));
    }
}
