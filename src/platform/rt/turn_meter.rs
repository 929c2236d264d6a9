//! Measures the processor time of each turn of the simulated program. For tests.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

use crate::types::sorted::SortOnce;
use nix::time::{ClockId, clock_gettime};

/// Processor time of the program's tasks, without the jobs that they leave to a pool.
#[derive(Default)]
pub(crate) struct TurnMeter {
    /// Measuring costs two system calls a turn.
    pub(crate) is_on: Cell<bool>,
    figures: Cell<TurnFigures>,
    /// Of the pool jobs in this turn.
    jobs: Cell<Duration>,
    by_future: RefCell<BTreeMap<&'static str, FutureFigures>>,
}

/// Turns of the futures of one type.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FutureFigures {
    pub(crate) turns: u64,
    pub(crate) all: Duration,
    pub(crate) longest: Duration,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TurnFigures {
    /// All turns together.
    pub(crate) all: Duration,
    pub(crate) longest: Duration,
    /// The future that had the longest turn.
    pub(crate) whose: &'static str,
    /// All pool jobs.
    pub(crate) pools: Duration,
}

/// The processor time of this thread.
pub(crate) fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

impl TurnMeter {
    /// Runs one turn of a task of the program.
    pub(super) fn turn<T, F>(&self, run: impl FnOnce() -> T) -> T {
        if !self.is_on.get() {
            return run();
        }
        self.jobs.set(Duration::ZERO);
        let begun = processor_time();
        let outcome = run();
        let took = processor_time().saturating_sub(begun).saturating_sub(self.jobs.get());
        let mut figures = self.figures.get();
        figures.all += took;
        if took > figures.longest {
            figures.longest = took;
            figures.whose = std::any::type_name::<F>();
        }
        self.figures.set(figures);
        let mut by_future = self.by_future.borrow_mut();
        let of_this = by_future.entry(std::any::type_name::<F>()).or_default();
        of_this.turns += 1;
        of_this.all += took;
        of_this.longest = of_this.longest.max(took);
        outcome
    }

    /// Runs a job that a real pool would run on a thread of its own.
    pub(super) fn job(&self, run: impl FnOnce()) {
        let begun = processor_time();
        run();
        let took = processor_time().saturating_sub(begun);
        self.jobs.set(self.jobs.get() + took);
        let figures = self.figures.get();
        self.figures.set(TurnFigures { pools: figures.pools + took, ..figures });
    }

    /// What was measured since the last call.
    pub(crate) fn take(&self) -> TurnFigures {
        self.by_future.take();
        self.figures.take()
    }

    /// The futures that took the most time since the last [`TurnMeter::take`], the first one most.
    pub(crate) fn busiest(&self) -> Vec<(&'static str, FutureFigures)> {
        let mut by_name: Vec<_> = self.by_future.borrow().iter().map(|(name, figures)| (*name, *figures)).collect();
        by_name.sort_once_by_key(|(_, figures)| std::cmp::Reverse(figures.all));
        by_name
    }
}
