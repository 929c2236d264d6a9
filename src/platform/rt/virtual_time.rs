//! Simulations: a clock that jumps to the next timer when every task waits, seeded randomness, and a task order chosen
//! by the seed. One simulation per thread.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use async_channel::{Receiver, Sender};
use pin_project_lite::pin_project;

use super::blocking::{Job, PoolKind};
use super::job_queue::{JobQueue, Owner};
use super::network::Network;
use super::power_cut::Disk;
use super::processes::Processes;
use super::turn_meter::TurnMeter;
use super::watched::Watches;
use super::{EXECUTOR, Task, spawn, timers};

thread_local! {
    static WORLD: RefCell<Option<Rc<World>>> = const { RefCell::new(None) };
}

/// The state of this thread's simulation.
pub(crate) struct World {
    /// The start of the virtual clock.
    base: Instant,
    passed: Cell<Duration>,
    /// Offset of the wall clock from the virtual clock.
    wall: Cell<Duration>,
    /// Closed and replaced when the wall clock is set.
    wall_set: RefCell<(Sender<()>, Receiver<()>)>,
    /// Virtual time of the last boot, and the number of boots.
    booted: Cell<Duration>,
    boots: Cell<u32>,
    /// Number of times that every task waited and the clock jumped: what a real machine counts as wake-ups.
    pub(crate) wakes: Cell<u64>,
    /// These by the place in the source that set the timer.
    pub(crate) wakes_by: RefCell<WakesBy>,
    random: Cell<u64>,
    /// Counts starts of the program under test: tasks of an earlier run, and jobs that it left on a pool, are lost.
    life: Cell<u32>,
    /// The life to which the running task belongs; `None` for a task of the world.
    life_of_task: Cell<Option<u32>>,
    /// Probability that a task's turn is skipped, in parts per thousand.
    pub(crate) shuffle: Cell<u32>,
    /// Longest duration of a task's turn.
    pub(crate) longest_turn: Cell<Duration>,
    /// Longest duration of a pool job.
    pub(crate) disk: Cell<Duration>,
    /// How long the machine was suspended.
    pub(crate) suspended: Cell<Duration>,
    pools: [RefCell<Pool>; PoolKind::ALL.len()],
    pub(crate) network: Network,
    pub(crate) files: Disk,
    pub(crate) turns: TurnMeter,
    pub(super) watches: Watches,
    pub(super) processes: Processes,
}

/// Wake-ups by file and line.
pub(crate) type WakesBy = BTreeMap<(&'static str, u32), u64>;

/// Why a simulation ended before its future completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stuck {
    /// Tasks ran too many steps without time passing.
    Spins { at: Duration },
    /// Every task waits, and no timer is set.
    Waits { at: Duration },
}

impl Stuck {
    pub(crate) fn at(&self) -> Duration {
        let (Self::Spins { at } | Self::Waits { at }) = self;
        *at
    }
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spins { at } => write!(f, "tasks spin at {at:?}: {MAX_STEPS_AT_ONE_TIME} steps without time passing"),
            Self::Waits { at } => write!(f, "deadlock at {at:?}: every task waits and no timer is set"),
        }
    }
}

/// Steps of all tasks between two times; starting a node with a hundred pods takes some ten thousand.
const MAX_STEPS_AT_ONE_TIME: u32 = 300_000;

/// 2026-01-01T00:00:00Z.
const WALL_CLOCK: Duration = Duration::from_secs(1_767_225_600);

/// Runs `make`'s future to completion in a simulation of its own. `seed` determines all randomness.
pub(crate) fn simulate<T, F>(seed: u64, make: impl FnOnce(Rc<World>) -> F + Send) -> Result<T, Stuck>
where
    T: Send + 'static,
    F: Future<Output = T> + 'static,
{
    // A new thread, so that its executor, timers and metrics start empty.
    std::thread::scope(|scope| {
        let run_all = || {
            let world = Rc::new(World::new(seed));
            WORLD.set(Some(Rc::clone(&world)));
            let main = spawn(make(Rc::clone(&world)));
            run(&world, main)
        };
        let thread = std::thread::Builder::new().stack_size(8 << 20).spawn_scoped(scope, run_all).unwrap();
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn run<T: 'static>(world: &World, main: Task<T>) -> Result<T, Stuck> {
    let mut steps = 0;
    loop {
        while EXECUTOR.with(|executor| executor.try_tick()) {
            steps += 1;
            if steps > MAX_STEPS_AT_ONE_TIME {
                return Err(Stuck::Spins { at: world.passed() });
            }
            if !world.longest_turn.get().is_zero() {
                world.passed.set(world.passed() + world.duration_below(world.longest_turn.get()));
                timers::ring_due();
            }
        }
        if main.is_finished() {
            let waker = std::task::Waker::noop();
            let mut main = main;
            let Poll::Ready(value) = Pin::new(&mut main).poll(&mut Context::from_waker(waker)) else {
                unreachable!("a finished task is ready");
            };
            return Ok(value);
        }
        if world.watches.wake() {
            continue;
        }
        match timers::next() {
            Some(time) => {
                steps = 0;
                world.wakes.set(world.wakes.get() + 1);
                if let Some(caller) = timers::location_of_next() {
                    *world.wakes_by.borrow_mut().entry((caller.file(), caller.line())).or_default() += 1;
                }
                world.passed.set(world.passed().max(time.saturating_duration_since(world.base)));
            }
            None => return Err(Stuck::Waits { at: world.passed() }),
        }
        timers::ring_due();
    }
}

/// The simulation on this thread, if any.
pub(crate) fn world() -> Option<Rc<World>> {
    WORLD.with_borrow(Clone::clone)
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            base: Instant::now(),
            passed: Cell::default(),
            wall: Cell::new(WALL_CLOCK),
            wall_set: RefCell::new(async_channel::bounded(1)),
            booted: Cell::default(),
            boots: Cell::new(1),
            wakes: Cell::default(),
            wakes_by: RefCell::default(),
            random: Cell::new(seed),
            life: Cell::default(),
            life_of_task: Cell::default(),
            shuffle: Cell::new(100),
            longest_turn: Cell::default(),
            disk: Cell::new(Duration::from_millis(3)),
            suspended: Cell::default(),
            pools: PoolKind::ALL.map(|pace| RefCell::new(Pool::new(pace))),
            network: Network::default(),
            files: Disk::default(),
            turns: TurnMeter::default(),
            watches: Watches::default(),
            processes: Processes::default(),
        }
    }

    pub(crate) fn now(&self) -> Instant {
        self.base + self.passed()
    }

    /// Virtual time since the simulation began.
    pub(crate) fn passed(&self) -> Duration {
        self.passed.get()
    }

    /// The wall clock, as time since 1970.
    pub(crate) fn wall_clock(&self) -> Duration {
        self.wall.get() + self.passed()
    }

    /// Sets the wall clock forward or back.
    pub(crate) fn step_wall_clock(&self, seconds: i64) {
        let (wall, step) = (self.wall.get(), Duration::from_secs(seconds.unsigned_abs()));
        self.wall.set(if seconds < 0 { wall.saturating_sub(step) } else { wall + step });
        self.wall_set.replace(async_channel::bounded(1));
    }

    /// Returns at this Unix second, or when the wall clock is set.
    pub(crate) async fn until_wall_clock(&self, second: i64) {
        let set = self.wall_set.borrow().1.clone();
        let at = Duration::from_secs(u64::try_from(second).unwrap_or(0));
        let left = at.saturating_sub(self.wall_clock());
        let is_set = async {
            // Nothing is sent.
            let _ = set.recv().await;
        };
        super::either(super::sleep(left), is_set).await;
    }

    /// Time since the machine was booted.
    pub(crate) fn uptime(&self) -> Duration {
        // A machine is up for a while before its services start.
        self.passed().saturating_sub(self.booted.get()) + Duration::from_secs(10)
    }

    /// Reboots the machine.
    pub(crate) fn reboot(&self) {
        self.booted.set(self.passed());
        self.boots.set(self.boots.get() + 1);
    }

    /// The id of the current boot.
    pub(crate) fn boot_id(&self) -> String {
        format!("00000000-0000-4000-8000-{:012}", self.boots.get())
    }

    /// The program under test may watch the file system of this directory, which only the simulation changes.
    pub(crate) fn watch_disk(&self, disk: &Path) -> io::Result<()> {
        self.watches.allow(disk)
    }

    /// Starts the program under test. Its tasks, and those that they start, run until [`World::end_life`].
    pub(crate) fn spawn_program<T: 'static>(&self, program: impl Future<Output = T> + 'static) -> Task<T> {
        let before = self.life_of_task.replace(Some(self.life.get()));
        let task = spawn(program);
        self.life_of_task.set(before);
        task
    }

    /// Ends the program under test and drops its pool jobs. Its tasks run no more, whoever holds them.
    pub(crate) fn end_life(&self) {
        self.life.set(self.life.get() + 1);
        for pace in PoolKind::ALL {
            self.pool(pace).replace(Pool::new(pace));
        }
    }

    fn pool(&self, pool: PoolKind) -> &RefCell<Pool> {
        &self.pools[pool as usize]
    }

    /// Number of jobs that run on the slow pool or wait for it.
    pub(crate) fn slow_jobs(&self) -> usize {
        let pool = self.pool(PoolKind::Slow).borrow();
        pool.running + pool.waiting.len()
    }

    /// Number of jobs that the slow pool has started since the program's start.
    pub(crate) fn slow_jobs_begun(&self) -> usize {
        self.pool(PoolKind::Slow).borrow().begun
    }

    /// A random number (SplitMix64).
    pub(crate) fn random(&self) -> u64 {
        let state = self.random.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.random.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A random number below `end`; 0 if `end` is 0.
    pub(crate) fn below(&self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.random() % end }
    }

    /// True with this probability, in parts per thousand.
    pub(crate) fn chance(&self, per_thousand: u32) -> bool {
        self.below(1000) < u64::from(per_thousand)
    }

    pub(crate) fn duration_below(&self, end: Duration) -> Duration {
        Duration::from_micros(self.below(u64::try_from(end.as_micros()).unwrap_or(u64::MAX)))
    }
}

/// A simulated pool, with as many threads as the real one.
struct Pool {
    threads: usize,
    running: usize,
    begun: usize,
    waiting: JobQueue<(Duration, Job)>,
}

impl Pool {
    fn new(pool: PoolKind) -> Self {
        Self {
            threads: pool.threads(),
            running: 0,
            begun: 0,
            waiting: JobQueue::new(pool.threads(), pool.threads_of_one()),
        }
    }

    /// The next job, if a thread is free.
    fn take(&mut self) -> Option<(Owner, (Duration, Job))> {
        if self.running >= self.threads {
            return None;
        }
        let next = self.waiting.take()?;
        self.running += 1;
        self.begun += 1;
        Some(next)
    }
}

/// Runs `job` on the simulated pool for a random time. The job is lost if the program ends before.
pub(super) fn work_later(world: &Rc<World>, pool: PoolKind, owner: Owner, job: Job) {
    let takes = world.duration_below(world.disk.get());
    work_for(world, pool, owner, takes, job);
}

/// Runs `job` on the simulated pool, where it holds a thread for `takes`.
pub(super) fn work_for(world: &Rc<World>, pace: PoolKind, owner: Owner, takes: Duration, job: Job) {
    world.pool(pace).borrow_mut().waiting.push(owner, (takes, job), world.now());
    start_jobs(world, pace);
}

fn start_jobs(world: &Rc<World>, pace: PoolKind) {
    loop {
        let next = world.pool(pace).borrow_mut().take();
        let Some((owner, (takes, job))) = next else { return };
        start_job(world, pace, owner, takes, job);
    }
}

fn start_job(world: &Rc<World>, pace: PoolKind, owner: Owner, takes: Duration, job: Job) {
    let (life, world) = (world.life.get(), Rc::clone(world));
    let task = spawn(async move {
        super::sleep(takes).await;
        if world.life.get() != life {
            return;
        }
        world.turns.job(job);
        let mut pool = world.pool(pace).borrow_mut();
        pool.running -= 1;
        pool.waiting.ended(&owner);
        drop(pool);
        start_jobs(&world, pace);
    });
    // The job continues without its caller.
    task.0.detach();
}

pin_project! {
    /// A task. Skips its turn now and then, so that ready tasks run in any order, and ends with its program.
    pub(super) struct Shuffled<F> {
        life: Option<u32>,
        // `None` once the program has ended: whatever the task held is dropped then.
        #[pin]
        future: Option<F>,
    }
}

impl<F> Shuffled<F> {
    pub(super) fn new(world: &World, future: F) -> Self {
        Self { life: world.life_of_task.get(), future: Some(future) }
    }
}

impl<F: Future> Future for Shuffled<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let mut this = self.project();
        let Some(world) = world() else { return Poll::Pending };
        if this.life.is_some_and(|life| life != world.life.get()) {
            this.future.set(None);
        }
        let Some(future) = this.future.as_pin_mut() else { return Poll::Pending };
        if world.chance(world.shuffle.get()) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = world.life_of_task.replace(*this.life);
        let outcome = match this.life {
            Some(_) => world.turns.turn::<_, F>(|| future.poll(context)),
            None => future.poll(context),
        };
        world.life_of_task.set(before);
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::super::{sleep, yield_now};
    use super::*;

    #[test]
    fn time_jumps_when_every_task_waits() {
        let passed = simulate(1, |world| async move {
            sleep(Duration::from_secs(3600)).await;
            world.passed()
        });
        assert_eq!(passed, Ok(Duration::from_secs(3600)));
    }

    #[test]
    fn wall_clock_timer_ends_at_its_time_or_when_the_clock_is_set() {
        let waited = |step: i64| {
            simulate(1, move |world| async move {
                let later = i64::try_from(world.wall_clock().as_secs()).unwrap() + 3600;
                let setter = Rc::clone(&world);
                let task = spawn(async move {
                    sleep(Duration::from_secs(60)).await;
                    if step != 0 {
                        setter.step_wall_clock(step);
                    }
                });
                world.until_wall_clock(later).await;
                drop(task);
                world.passed()
            })
        };
        assert_eq!(waited(0), Ok(Duration::from_secs(3600)));
        assert_eq!(waited(-5), Ok(Duration::from_secs(60)));
    }

    #[test]
    fn spinning_task_is_detected() {
        let ended = simulate(1, |_| async {
            sleep(Duration::from_secs(5)).await;
            loop {
                yield_now().await;
            }
        });
        assert_eq!(ended, Err::<(), _>(Stuck::Spins { at: Duration::from_secs(5) }));
    }

    #[test]
    fn deadlock_is_detected() {
        assert_eq!(simulate(1, |_| std::future::pending::<()>()), Err(Stuck::Waits { at: Duration::ZERO }));
    }

    /// The order in which ten ready tasks run.
    fn order(seed: u64) -> Vec<u8> {
        let run = simulate(seed, |_| async {
            let (sender, receiver) = async_channel::unbounded();
            let tasks: Vec<_> = (0..10)
                .map(|number| {
                    let sender = sender.clone();
                    spawn(async move { sender.try_send(number).unwrap() })
                })
                .collect();
            for task in tasks {
                task.await;
            }
            std::iter::from_fn(|| receiver.try_recv().ok()).collect()
        });
        run.unwrap()
    }

    #[test]
    fn seed_determines_the_task_order() {
        let orders: Vec<_> = (0..20).map(order).collect();
        assert_eq!(orders, (0..20).map(order).collect::<Vec<_>>());
        assert!(orders.iter().any(|other| *other != orders[0]));
    }

    #[test]
    fn pool_jobs_of_an_ended_program_are_lost() {
        let done = simulate(7, |world| async move {
            let (sender, receiver) = async_channel::bounded(1);
            let work = spawn(super::super::blocking(move || sender.try_send(()).unwrap()));
            yield_now().await;
            world.end_life();
            sleep(Duration::from_secs(1)).await;
            drop(work);
            receiver.try_recv().is_ok()
        });
        assert_eq!(done, Ok(false));
    }

    #[test]
    fn tasks_of_an_ended_program_run_no_more() {
        let ticks = simulate(9, |world| async move {
            let (ticks, held) = (Rc::new(Cell::new(0)), Rc::new(RefCell::new(None)));
            let (counts, holds) = (Rc::clone(&ticks), Rc::clone(&held));
            let program = world.spawn_program(async move {
                // The task keeps itself.
                let keeps = Rc::clone(&holds);
                holds.replace(Some(spawn(async move {
                    let _keeps = keeps;
                    loop {
                        sleep(Duration::from_secs(1)).await;
                        counts.set(counts.get() + 1);
                    }
                })));
            });
            sleep(Duration::from_millis(1500)).await;
            drop((program, held));
            world.end_life();
            sleep(Duration::from_secs(10)).await;
            (ticks.get(), Rc::strong_count(&ticks))
        });
        assert_eq!(ticks, Ok((1, 1)));
    }

    /// The end times of one more job than the pool has threads, each taking ten seconds.
    fn ends(pool: PoolKind) -> Vec<u64> {
        let jobs = pool.threads() + 1;
        let ends = simulate(8, |world| async move {
            let (sender, receiver) = async_channel::unbounded();
            for _ in 0..jobs {
                let sender = sender.clone();
                let job = Box::new(move || sender.try_send(()).unwrap());
                work_for(&world, pool, None, Duration::from_secs(10), job);
            }
            let mut ends = Vec::new();
            for _ in 0..jobs {
                receiver.recv().await.unwrap();
                ends.push(world.passed().as_secs());
            }
            ends
        });
        ends.unwrap()
    }

    #[test]
    fn simulated_pools_have_the_real_number_of_threads() {
        for pace in PoolKind::ALL {
            assert_eq!(ends(pace), [vec![10; pace.threads()], vec![20]].concat(), "{pace:?}");
        }
    }
}
