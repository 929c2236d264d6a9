//! The log of a simulation, and violated rules.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::platform::rt::World;

/// Number of lines kept, to show the cause of a violation.
const KEPT_LOG_LINES: usize = 4000;

/// The rules that a node must keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// A container or a sandbox exists only once.
    Once,
    /// No wanted and running container is stopped.
    WantedRuns,
    /// No decision of the node stops a running container of a static pod whose application holds its update lock.
    LockHolds,
    /// When faults are over, the wanted pods run, and the API server shows them.
    Recovers,
    /// Running pods start again after a power cut, without the API server.
    StartsAlone,
    /// A converged node stays converged.
    StaysSo,
    /// The agent runs until the simulation ends it.
    AgentRuns,
    /// SIGTERM ends the agent cleanly, unless the machine is slow.
    Ends,
    /// Virtual time keeps passing, and the sync loop does not stall.
    Alive,
    /// A second stop of a container does not lengthen the grace period, unless the pod was deleted without one and the
    /// agent restarted.
    GraceShrinks,
    /// The containers of a job start only once, and in one sandbox.
    RunsOnce,
    /// No pod of a Job and no index runs twice at a time, or again after it has succeeded.
    JobOnce,
    /// No more pods of a Job run at a time than `parallelism`, and no more than its completions and failures.
    JobBounds,
    /// A Job that has finished starts nothing.
    JobOver,
    /// Jobs of a CronJob run at the same time only if it allows that, and none after a newer one.
    CronJobAlone,
    /// A failed call is repeated only after the pod's containers were listed: it may have had an effect.
    Relists,
    /// No storm of requests or log lines.
    Modest,
    /// Secrets are visible only to their pods.
    Discreet,
    /// No two running containers have the same device.
    DeviceOnce,
    /// Every container that asks for a device starts with one.
    HasDevice,
    /// A container with a claim starts when that is prepared, and it stays so while the container runs.
    ClaimPrepared,
    /// A refused resize does not reach the runtime.
    Resizes,
    /// No volume of a running container is unpublished, and CSI calls come in the order of the specification.
    VolumeStays,
    /// A sandbox is created when the checkpoint has the pod's allocation, unless the disk had faults.
    RecordsAllocation,
    /// After a long quiet, nothing is left of pods that are gone.
    NothingLeft,
    /// An idle node writes nothing, and sends only what its lease and its watches need.
    Rests,
    /// The verdict about a pod of the cluster is told once, and only if the pod ran.
    JudgedOnce,
    /// The lease is renewed in time, whatever pods, runtime and plugins do, unless faults may keep the agent from the
    /// API server.
    LeaseRenewed,
    /// No assertion of the agent fails.
    Asserts,
}

/// A violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Violation {
    pub(super) at: Duration,
    pub(super) rule: Rule,
    pub(super) detail: String,
}

/// Shared, to outlive a simulation that hangs or panics.
pub(super) type Lines = Arc<Mutex<Log>>;

#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) lines: VecDeque<String>,
    /// When the last line was written.
    pub(super) at: Duration,
}

pub(super) struct Record {
    world: Rc<World>,
    lines: Lines,
    /// Keeps every line.
    is_traced: bool,
    violation: RefCell<Option<Violation>>,
    counts: RefCell<BTreeMap<&'static str, u64>>,
    /// Faults of the disk before the last convergence.
    disk_faults_before: Cell<u64>,
    /// The largest observed values.
    most: RefCell<BTreeMap<&'static str, u64>>,
    /// A digest of all lines, kept even if the lines are not: it distinguishes runs.
    pub(super) digest: Cell<u64>,
}

impl Record {
    pub(super) fn new(world: &Rc<World>, lines: Lines) -> Rc<Self> {
        Rc::new(Self {
            world: Rc::clone(world),
            lines,
            is_traced: std::env::var("SIMULATION_TRACE").is_ok(),
            violation: RefCell::default(),
            counts: RefCell::default(),
            disk_faults_before: Cell::default(),
            most: RefCell::default(),
            digest: Cell::new(0xcbf2_9ce4_8422_2325),
        })
    }

    pub(super) fn line(&self, text: &str) {
        let text = format!("{} {}", Moment(self.world.passed()), text.trim_end());
        let mixed = |digest: u64, byte: u8| (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        self.digest.set(text.bytes().fold(self.digest.get(), mixed));
        let mut log = self.lines.lock().unwrap();
        log.at = self.world.passed();
        if log.lines.len() == KEPT_LOG_LINES && !self.is_traced {
            log.lines.pop_front();
        }
        log.lines.push_back(text);
    }

    /// Only the first violation is kept: later ones may follow from it.
    pub(super) fn violated(&self, rule: Rule, detail: String) {
        self.line(&format!("VIOLATED {rule:?}: {detail}"));
        let mut violation = self.violation.borrow_mut();
        violation.get_or_insert(Violation { at: self.world.passed(), rule, detail });
    }

    pub(super) fn violation(&self) -> Option<Violation> {
        self.violation.borrow().clone()
    }

    /// Whether writes may have failed since the last convergence: the agent has written again what is missing by then.
    pub(super) fn has_failed_disk(&self) -> bool {
        self.disk_faults() > self.disk_faults_before.get()
    }

    /// The node has converged.
    pub(super) fn has_converged(&self) {
        self.disk_faults_before.set(self.disk_faults());
    }

    fn disk_faults(&self) -> u64 {
        let counts = self.counts();
        ["full disks", "disks that failed"].iter().filter_map(|fault| counts.get(fault)).sum()
    }

    pub(super) fn count(&self, counter: &'static str) {
        *self.counts.borrow_mut().entry(counter).or_default() += 1;
    }

    pub(super) fn see(&self, measure: &'static str, value: u64) {
        let mut most = self.most.borrow_mut();
        let largest = most.entry(measure).or_default();
        *largest = value.max(*largest);
    }

    pub(super) fn most(&self) -> BTreeMap<&'static str, u64> {
        self.most.borrow().clone()
    }

    pub(super) fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.counts.borrow().clone()
    }
}

/// Displays as `1d 03:04:05.678`.
pub(super) struct Moment(pub(super) Duration);

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
        write!(f, "{days}d {hours:02}:{minutes:02}:{:02}.{:03}", seconds % 60, self.0.subsec_millis())
    }
}
