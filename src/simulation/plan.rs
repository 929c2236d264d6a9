//! The plan of a simulation: derived from a seed, repeatable, and reduced when it causes a violation.

mod jobs;

use std::fmt;
use std::time::Duration;

use super::container_runtime::CallFault;
use super::jobs::JobStep;
use super::wanted::{TOO_MUCH, Traits};
use super::{api_server, container_runtime, plugin};
use crate::platform::rt::Resolver;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    pub(super) seed: u64,
    /// `nodeLeaseDurationSeconds`.
    pub(super) lease: Duration,
    pub(super) episodes: Vec<Episode>,
}

/// A period with steps, followed by a quiet one.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Episode {
    pub(super) steps: Vec<Step>,
    /// Duration of the quiet time, which begins once the node has converged.
    pub(super) quiet: Duration,
    /// Afterwards the power is cut while the API server is unreachable, and every pod must start without it.
    pub(super) offline: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Step {
    /// Time since the previous step.
    pub(super) after: Duration,
    pub(super) kind: StepKind,
}

/// The effect of a step. Numbers select among the pods that exist at that time.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum StepKind {
    CreatePod(Traits),
    /// Creates this many pods with objects of their own, one each 50 ms, and a hostile one.
    FillNode {
        pods: usize,
    },
    DeletePod {
        which: u64,
        /// In seconds, instead of the pod's own.
        grace: Option<i64>,
    },
    /// Deletes a pod whose processes ignore SIGTERM, and deletes it again while it ends.
    DeleteTwice {
        which: u64,
        first: i64,
        second: i64,
    },
    /// Only on a node without a cluster.
    Job(JobStep),
    WriteManifest(Traits),
    ChangeManifest(u64),
    RemoveManifest(u64),
    Exit {
        which: u64,
        code: i32,
    },
    SandboxDies(u64),
    /// The runtime reports exits of processes that live.
    ShimDies {
        which: u64,
        /// Of the sandbox and all containers, or of one container.
        whole: bool,
    },
    /// The call of this method after `skip` others fails.
    CallGoesWrong {
        method: &'static str,
        skip: u32,
        fault: CallFault,
    },
    /// Waits until the armed call is held, then kills the agent.
    KillAgentInCall(HeldCall),
    /// While the armed call waits, another pod is wanted. The first and the last pod must run before the
    /// call is answered.
    OthersGoOn {
        /// The first pod's container exits.
        restart: bool,
    },
    IgnoreSigterm(u64),
    ChangeConfigMap,
    /// Changes the CPU request of a pod that has one.
    Resize {
        which: u64,
        cpu: u64,
    },
    KillAgent {
        down: Duration,
    },
    EndAgent {
        down: Duration,
    },
    Reboot {
        down: Duration,
    },
    ApiGone {
        lasts: Duration,
    },
    ApiSilent {
        lasts: Duration,
    },
    ApiFails {
        faults: api_server::Faults,
        lasts: Duration,
    },
    ApiCut,
    ApiDelay {
        delay: Duration,
        lasts: Duration,
    },
    EndWatches,
    Compact,
    /// Restores the API server from the backup of the last convergence.
    Restore,
    RuntimeGone {
        lasts: Duration,
    },
    RuntimeSilent {
        lasts: Duration,
    },
    RuntimeFails {
        faults: container_runtime::Faults,
        lasts: Duration,
    },
    ClockSteps(i64),
    SlowDisk {
        longest: Duration,
        lasts: Duration,
    },
    FullDisk {
        lasts: Duration,
    },
    /// Each turn of a task takes up to this long.
    SlowMachine {
        longest: Duration,
        lasts: Duration,
    },
    /// Reads, writes and syncs fail with EIO, in parts per thousand.
    DiskFails {
        rate: u32,
        lasts: Duration,
    },
    /// The name server answers slowly or not at all.
    NamesFail {
        resolver: Resolver,
        lasts: Duration,
    },
    PluginGone {
        which: PluginKind,
        lasts: Duration,
    },
    PluginFails {
        which: PluginKind,
        faults: plugin::Faults,
        lasts: Duration,
    },
}

/// How the runtime handles a call of a killed agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeldCall {
    Dropped,
    /// The call takes effect before the next agent starts.
    DoneUnseen,
    /// The call takes effect after the next agent has listed the containers.
    DoneLate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PluginKind {
    Csi,
    Device,
    Dra,
}

/// Random numbers from a seed (xorshift64*), independent of those of the simulated world.
pub(super) struct Numbers(u64);

impl Numbers {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        let index = self.below(u64::try_from(all.len()).unwrap_or_default());
        &all[usize::try_from(index).unwrap_or_default()]
    }

    fn rate(&mut self) -> u32 {
        *self.one_of(&[20, 100, 300, 1000])
    }

    /// Usually short, sometimes about `longest`.
    fn time(&mut self, longest: Duration) -> Duration {
        let longest = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
        let scale = *self.one_of(&[100, 10, 3, 1]);
        Duration::from_millis(self.below(longest / scale + 1))
    }
}

const MINUTE: Duration = Duration::from_secs(60);

/// The frequencies of steps and kinds of pods in one plan. In half of the plans some are frequent and others never
/// occur, so that faults coincide with the steps that they break.
struct Habits {
    kinds: Vec<(Kind, u64)>,
    /// In percent, in the order of [`Habits::traits`].
    traits: [u64; 11],
}

const USUAL_TRAITS: [u64; 11] = [50, 40, 30, 20, 25, 25, 25, 25, 15, 40, 25];

impl Habits {
    fn new(all: &[(Kind, u64)], numbers: &mut Numbers) -> Self {
        if numbers.chance(50) {
            return Self { kinds: all.to_vec(), traits: USUAL_TRAITS };
        }
        let kinds = all.iter().map(|(kind, weight)| {
            let factor = if [Kind::CreatePod, Kind::Job].contains(kind) { 1 } else { *numbers.one_of(&[0, 1, 1, 6]) };
            (*kind, weight * factor)
        });
        Self { kinds: kinds.collect(), traits: USUAL_TRAITS.map(|usual| *numbers.one_of(&[0, usual, 80])) }
    }

    fn kind(&self, numbers: &mut Numbers) -> Kind {
        let all = self.kinds.iter().map(|(_, weight)| weight).sum();
        let mut number = numbers.below(all);
        for (kind, weight) in &self.kinds {
            match number.checked_sub(*weight) {
                Some(left) => number = left,
                None => return *kind,
            }
        }
        Kind::CreatePod
    }

    fn traits(&self, numbers: &mut Numbers) -> Traits {
        let [secret, token, probe, job, volume, device, side, pull, stubborn, sized, claim] =
            self.traits.map(|percent| numbers.chance(percent));
        let cpu = if sized { *numbers.one_of(&CPU) } else { 0 };
        // A job whose containers start at different times is interrupted between them.
        let slow = job && numbers.chance(40);
        Traits {
            secret,
            token,
            probe,
            job,
            volume,
            device,
            side: side || slow,
            pull: pull || slow,
            stubborn,
            cpu,
            claim,
            ..Traits::default()
        }
    }
}

/// The number of pods with which a node of full size starts. Most nodes are small, which is cheap.
fn full_size(seed: u64) -> Option<usize> {
    match seed % 100 {
        61 => Some(110),
        19 | 83 => Some(30),
        _ => None,
    }
}

/// CPU requests in thousandths, which a small machine has for all pods.
const CPU: [u64; 3] = [10, 20, 40];

impl Plan {
    /// A plan of at least `lasts`, with up to `rest` of additional quiet after each episode.
    pub(super) fn new(seed: u64, lasts: Duration, rest: Duration) -> Self {
        let mut numbers = Numbers::new(seed);
        let lease = *numbers.one_of(&[40, 120, 600]);
        let habits = Habits::new(KINDS, &mut numbers);
        let (mut episodes, mut passed) = (Vec::new(), Duration::ZERO);
        while passed < lasts {
            let mut episode = Episode::new(&habits, &mut numbers);
            episode.quiet += numbers.time(rest);
            if episodes.is_empty() {
                // The node starts with some pods.
                let first = (0..numbers.below(7)).map(|_| StepKind::CreatePod(habits.traits(&mut numbers)));
                let steps = first.map(|kind| Step { after: Duration::from_millis(200), kind });
                let full = full_size(seed).map(|pods| StepKind::FillNode { pods });
                let full = full.map(|kind| Step { after: Duration::from_secs(1), kind });
                episode.steps.splice(0..0, full.into_iter().chain(steps).collect::<Vec<_>>());
            }
            passed += episode.steps.iter().map(|step| step.after).sum::<Duration>() + episode.quiet;
            episodes.push(episode);
        }
        Self { seed, lease: Duration::from_secs(lease), episodes }
    }

    /// Number of pods with objects of their own, on a node of full size.
    pub(super) fn own_pods(&self) -> usize {
        let steps = self.episodes.iter().flat_map(|episode| &episode.steps);
        steps.map(|step| if let StepKind::FillNode { pods } = step.kind { pods } else { 0 }).sum()
    }

    pub(super) fn len(&self) -> usize {
        self.episodes.iter().map(|episode| episode.steps.len()).sum()
    }

    /// The plan without the steps `from..to`, counted over all episodes.
    fn without(&self, from: usize, to: usize) -> Self {
        let mut number = 0;
        let mut shorter = self.clone();
        for episode in &mut shorter.episodes {
            let mut carried = Duration::ZERO;
            episode.steps.retain_mut(|step| {
                let stays = !(from..to).contains(&number);
                number += 1;
                // The remaining steps keep their times.
                carried += step.after;
                if stays {
                    step.after = std::mem::take(&mut carried);
                }
                stays
            });
        }
        shorter
    }

    /// The shortest plan found for which `fails` still holds.
    pub(super) fn reduced(self, fails: impl Fn(&Self) -> bool) -> Self {
        let mut plan = self;
        while let Some((_, front)) = plan.episodes.split_last().filter(|(_, front)| !front.is_empty()) {
            let shorter = Self { episodes: front.to_vec(), ..plan.clone() };
            if !fails(&shorter) {
                break;
            }
            plan = shorter;
        }
        let mut size = plan.len().div_ceil(2);
        while size > 0 {
            let mut from = 0;
            while from < plan.len() {
                let shorter = plan.without(from, from + size);
                if fails(&shorter) {
                    plan = shorter;
                } else {
                    from += size;
                }
            }
            size /= 2;
        }
        plan
    }
}

impl Episode {
    fn new(habits: &Habits, numbers: &mut Numbers) -> Self {
        // Either many steps in a minute, or faults that begin and end.
        let longest = if numbers.chance(40) { MINUTE / 3 } else { 4 * MINUTE };
        let mut steps: Vec<Step> = (0..3 + numbers.below(20))
            .map(|_| Step { after: numbers.time(longest), kind: StepKind::new(habits.kind(numbers), habits, numbers) })
            .collect();
        if numbers.chance(30) {
            // All steps happen during one fault.
            let faults: Vec<Kind> =
                habits.kinds.iter().filter(|(kind, _)| kind.lasts()).map(|(kind, _)| *kind).collect();
            let kind = if numbers.chance(25) { Kind::DiskFails } else { *numbers.one_of(&faults) };
            let kind = StepKind::new(kind, habits, numbers);
            steps.insert(0, Step { after: Duration::from_secs(1), kind });
        }
        let quiet = if numbers.chance(30) { numbers.time(240 * MINUTE) } else { numbers.time(20 * MINUTE) };
        Self { steps, quiet, offline: numbers.chance(25) }
    }
}

/// The kinds of [`StepKind`] in random plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    CreatePod,
    DeletePod,
    DeleteTwice,
    Job,
    WriteManifest,
    ChangeManifest,
    RemoveManifest,
    Exit,
    SandboxDies,
    IgnoreSigterm,
    ChangeConfigMap,
    Resize,
    KillAgent,
    EndAgent,
    Reboot,
    ApiGone,
    ApiSilent,
    ApiFails,
    ApiCut,
    ApiDelay,
    EndWatches,
    Compact,
    Restore,
    RuntimeGone,
    RuntimeSilent,
    RuntimeFails,
    ClockSteps,
    FullDisk,
    SlowDisk,
    DiskFails,
    NamesFail,
    SlowMachine,
    PluginGone,
    PluginFails,
}

/// The kinds, and how often they occur, in parts of the whole.
const KINDS: &[(Kind, u64)] = &[
    (Kind::CreatePod, 15),
    (Kind::DeletePod, 8),
    (Kind::DeleteTwice, 4),
    (Kind::WriteManifest, 5),
    (Kind::ChangeManifest, 3),
    (Kind::RemoveManifest, 3),
    (Kind::Exit, 9),
    (Kind::SandboxDies, 3),
    (Kind::IgnoreSigterm, 2),
    (Kind::ChangeConfigMap, 2),
    (Kind::Resize, 5),
    (Kind::KillAgent, 7),
    (Kind::EndAgent, 3),
    (Kind::Reboot, 4),
    (Kind::ApiGone, 5),
    (Kind::ApiSilent, 4),
    (Kind::ApiFails, 6),
    (Kind::ApiCut, 2),
    (Kind::ApiDelay, 2),
    (Kind::EndWatches, 2),
    (Kind::Compact, 1),
    (Kind::Restore, 2),
    (Kind::RuntimeGone, 3),
    (Kind::RuntimeSilent, 2),
    (Kind::RuntimeFails, 6),
    (Kind::ClockSteps, 1),
    (Kind::FullDisk, 1),
    (Kind::SlowDisk, 1),
    (Kind::DiskFails, 3),
    (Kind::NamesFail, 2),
    (Kind::SlowMachine, 2),
    (Kind::PluginGone, 3),
    (Kind::PluginFails, 3),
];

impl Kind {
    /// Whether it is a fault that lasts for a while.
    fn lasts(self) -> bool {
        matches!(
            self,
            Self::ApiGone
                | Self::ApiSilent
                | Self::ApiFails
                | Self::ApiDelay
                | Self::RuntimeGone
                | Self::RuntimeSilent
                | Self::RuntimeFails
                | Self::SlowDisk
                | Self::DiskFails
                | Self::FullDisk
                | Self::NamesFail
                | Self::SlowMachine
                | Self::PluginGone
                | Self::PluginFails
        )
    }
}

impl StepKind {
    fn new(kind: Kind, habits: &Habits, numbers: &mut Numbers) -> Self {
        let outage = 40 * MINUTE;
        match kind {
            Kind::CreatePod => Self::CreatePod(habits.traits(numbers)),
            Kind::DeletePod => {
                let which = numbers.next();
                let grace = numbers.chance(40).then(|| *numbers.one_of(&[0, 2, 5, 40]));
                Self::DeletePod { which, grace }
            }
            Kind::DeleteTwice => {
                let which = numbers.next();
                Self::DeleteTwice {
                    which,
                    first: *numbers.one_of(&[3, 5, 40]),
                    second: *numbers.one_of(&[0, 0, 1, 60]),
                }
            }
            Kind::Job => Self::Job(JobStep::new(numbers)),
            Kind::WriteManifest => {
                let Traits { probe, job, side, pull, stubborn, .. } = habits.traits(numbers);
                Self::WriteManifest(Traits { probe, job, side, pull, stubborn, ..Traits::default() })
            }
            Kind::ChangeManifest => Self::ChangeManifest(numbers.next()),
            Kind::RemoveManifest => Self::RemoveManifest(numbers.next()),
            Kind::Exit => Self::Exit { which: numbers.next(), code: *numbers.one_of(&[0, 1, 137]) },
            // A third each. One number for all of them, so that the other steps of a seed stay the same.
            Kind::SandboxDies => match numbers.next() {
                number if number % 3 == 0 => Self::SandboxDies(number / 3),
                number => Self::ShimDies { which: number / 3, whole: number % 3 == 1 },
            },
            Kind::IgnoreSigterm => Self::IgnoreSigterm(numbers.next()),
            Kind::ChangeConfigMap => Self::ChangeConfigMap,
            Kind::Resize => {
                let cpu = if numbers.chance(25) { TOO_MUCH } else { *numbers.one_of(&CPU) };
                Self::Resize { which: numbers.next(), cpu }
            }
            Kind::KillAgent => Self::KillAgent { down: numbers.time(3 * MINUTE) },
            Kind::EndAgent => Self::EndAgent { down: numbers.time(3 * MINUTE) },
            Kind::Reboot => Self::Reboot { down: numbers.time(10 * MINUTE) },
            Kind::ApiGone => Self::ApiGone { lasts: numbers.time(outage) },
            Kind::ApiSilent => Self::ApiSilent { lasts: numbers.time(outage) },
            Kind::ApiFails => Self::ApiFails { faults: api_faults(numbers), lasts: numbers.time(outage) },
            Kind::ApiCut => Self::ApiCut,
            Kind::ApiDelay => {
                Self::ApiDelay { delay: numbers.time(Duration::from_secs(8)), lasts: numbers.time(outage) }
            }
            Kind::EndWatches => Self::EndWatches,
            Kind::Compact => Self::Compact,
            Kind::Restore => Self::Restore,
            Kind::RuntimeGone => Self::RuntimeGone { lasts: numbers.time(10 * MINUTE) },
            Kind::RuntimeSilent => Self::RuntimeSilent { lasts: numbers.time(10 * MINUTE) },
            Kind::RuntimeFails => {
                Self::RuntimeFails { faults: runtime_faults(numbers), lasts: numbers.time(10 * MINUTE) }
            }
            Kind::ClockSteps => {
                let seconds = i64::try_from(numbers.below(7200)).unwrap_or_default();
                Self::ClockSteps(if numbers.chance(50) { seconds } else { -seconds })
            }
            Kind::FullDisk => Self::FullDisk { lasts: numbers.time(10 * MINUTE) },
            Kind::SlowDisk => {
                Self::SlowDisk { longest: numbers.time(Duration::from_secs(5)), lasts: numbers.time(10 * MINUTE) }
            }
            Kind::DiskFails => Self::DiskFails { rate: numbers.rate(), lasts: numbers.time(10 * MINUTE) },
            Kind::NamesFail => {
                let slow = numbers.time(MINUTE);
                let resolver = Resolver { slow, failing: if numbers.chance(50) { numbers.rate() } else { 0 } };
                Self::NamesFail { resolver, lasts: numbers.time(outage) }
            }
            Kind::SlowMachine => {
                Self::SlowMachine { longest: numbers.time(Duration::from_millis(100)), lasts: numbers.time(5 * MINUTE) }
            }
            Kind::PluginGone => Self::PluginGone { which: PluginKind::new(numbers), lasts: numbers.time(10 * MINUTE) },
            Kind::PluginFails => {
                let faults = plugin_faults(numbers);
                Self::PluginFails { which: PluginKind::new(numbers), faults, lasts: numbers.time(10 * MINUTE) }
            }
        }
    }
}

fn api_faults(numbers: &mut Numbers) -> api_server::Faults {
    let (rate, mut faults) = (numbers.rate(), api_server::Faults::default());
    match numbers.below(6) {
        0 => faults.refused = rate,
        1 => faults.lost = rate,
        2 => faults.hung = rate,
        3 => faults.halved = rate,
        4 => faults.short = rate,
        _ => faults.slow = numbers.time(MINUTE),
    }
    faults
}

fn runtime_faults(numbers: &mut Numbers) -> container_runtime::Faults {
    let (rate, mut faults) = (numbers.rate().min(500), container_runtime::Faults::default());
    match numbers.below(4) {
        0 => faults.failed = rate,
        1 => faults.lost = rate,
        2 => faults.hung = rate,
        _ => faults.slow = numbers.time(MINUTE),
    }
    faults.mute = numbers.chance(40);
    faults.changes_only = numbers.chance(50);
    faults
}

fn plugin_faults(numbers: &mut Numbers) -> plugin::Faults {
    let (rate, mut faults) = (numbers.rate(), plugin::Faults::default());
    match numbers.below(3) {
        0 => faults.failed = rate,
        1 => faults.hung = rate,
        _ => faults.slow = numbers.time(MINUTE),
    }
    faults
}

impl PluginKind {
    fn new(numbers: &mut Numbers) -> Self {
        *numbers.one_of(&[Self::Csi, Self::Device, Self::Dra])
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "    lease of {:?}", self.lease)?;
        for episode in &self.episodes {
            for step in &episode.steps {
                writeln!(f, "    after {:?}: {:?}", step.after, step.kind)?;
            }
            let offline = if episode.offline { ", and a start without the API server" } else { "" };
            writeln!(f, "    all faults end; then {:?} of quiet{offline}", episode.quiet)?;
        }
        Ok(())
    }
}
