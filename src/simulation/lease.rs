//! The rule LeaseRenewed: the node renews its lease in time, unless something keeps it from the API server.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use super::plan::StepKind;
use super::record::{Record, Rule};
use crate::platform::rt::World;

pub(super) struct LeaseWatch {
    world: Rc<World>,
    record: Rc<Record>,
    renewed: Cell<Duration>,
    /// Since when nothing keeps the agent from the API server; it may lie in the future.
    undisturbed: Cell<Option<Duration>>,
    /// The longest time between two renewals.
    longest: Duration,
    /// Time for a new connection: its back-off, a request that never gets its response, and the next one.
    returns: Duration,
}

impl LeaseWatch {
    /// `lease`: its duration. The agent renews it four times as often: every 10 s if it lasts 40 s, which leaves 5 s.
    pub(super) fn new(world: &Rc<World>, record: &Rc<Record>, lease: Duration) -> Self {
        Self {
            world: Rc::clone(world),
            record: Rc::clone(record),
            renewed: Cell::default(),
            undisturbed: Cell::default(),
            longest: lease * 3 / 8,
            returns: Duration::from_secs(60) + lease / 2,
        }
    }

    /// Time since the last renewal.
    pub(super) fn age(&self) -> Duration {
        self.world.passed().saturating_sub(self.renewed.get())
    }

    pub(super) fn on_renewed(&self) {
        self.check();
        self.renewed.set(self.world.passed());
    }

    /// Faults may keep the agent from the API server from now on.
    pub(super) fn disturb(&self) {
        self.check();
        self.undisturbed.set(None);
    }

    /// All faults are over, and the agent runs.
    pub(super) fn settle(&self) {
        self.undisturbed.set(self.undisturbed.get().or(Some(self.world.passed() + self.returns)));
    }

    /// Checks the time since the last renewal.
    pub(super) fn check(&self) {
        let Some(since) = self.undisturbed.get() else { return };
        let age = self.world.passed().saturating_sub(since.max(self.renewed.get()));
        self.record
            .see("milliseconds between renewals of the lease", u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        if age > self.longest {
            self.record.violated(Rule::LeaseRenewed, format!("the lease was renewed {age:?} ago"));
        }
    }
}

/// Whether the step may keep the agent from the API server. The runtime, plugins, watches and the clock must not.
pub(super) fn is_disturbed_by(step: &StepKind) -> bool {
    matches!(
        step,
        StepKind::KillAgentInCall(_)
            | StepKind::KillAgent { .. }
            | StepKind::EndAgent { .. }
            | StepKind::Reboot { .. }
            | StepKind::ApiGone { .. }
            | StepKind::ApiSilent { .. }
            | StepKind::ApiFails { .. }
            | StepKind::ApiCut
            | StepKind::ApiDelay { .. }
            | StepKind::Restore
            | StepKind::SlowDisk { .. }
            | StepKind::FullDisk { .. }
            | StepKind::SlowMachine { .. }
            | StepKind::DiskFails { .. }
            | StepKind::NamesFail { .. }
    )
}
