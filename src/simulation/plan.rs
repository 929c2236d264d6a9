//! The plan of a simulation: derived from a seed, repeatable, and reduced when it causes a violation.

use std::fmt;
use std::time::Duration;

use super::container_runtime::CallFault;
use super::wanted::Traits;
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
    /// Begins once the node has converged.
    pub(super) quiet: Duration,
    /// Then the power is cut while the API server is unreachable, and every pod must start without it.
    pub(super) offline: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Step {
    /// Time since the previous step.
    pub(super) after: Duration,
    pub(super) what: What,
}

/// What happens in a step. The numbers select among what exists at that time.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum What {
    CreatePod(Traits),
    DeletePod {
        which: u64,
        forced: bool,
    },
    WriteManifest(Traits),
    ChangeManifest(u64),
    RemoveManifest(u64),
    Exit {
        which: u64,
        code: i32,
    },
    SandboxDies(u64),
    /// The call of this method after `skip` others fails.
    CallGoesWrong {
        method: &'static str,
        skip: u32,
        fault: CallFault,
    },
    /// Waits until the armed call is held, then kills the agent.
    KillAgentInCall(HeldCall),
    IgnoreSigterm(u64),
    ChangeConfigMap,
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

/// What the runtime does with a call of a killed agent.
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
}

/// Random numbers from a seed (xorshift64*), independent of those of the simulated world.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn rate(&mut self) -> u32 {
        u32::try_from([20, 100, 300, 1000][usize::try_from(self.below(4)).unwrap_or_default()]).unwrap_or_default()
    }

    /// Usually short, sometimes about `longest`.
    fn time(&mut self, longest: Duration) -> Duration {
        let longest = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
        let scale = [100, 10, 3, 1][usize::try_from(self.below(4)).unwrap_or_default()];
        Duration::from_millis(self.below(longest / scale + 1))
    }
}

const MINUTE: Duration = Duration::from_secs(60);

impl Plan {
    /// A plan of at least `lasts`, with up to `rest` of additional quiet after each episode.
    pub(super) fn new(seed: u64, lasts: Duration, rest: Duration) -> Self {
        let mut numbers = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let lease = [40, 120, 600][usize::try_from(numbers.below(3)).unwrap_or_default()];
        let (mut episodes, mut passed) = (Vec::new(), Duration::ZERO);
        while passed < lasts {
            let mut episode = Episode::new(&mut numbers);
            episode.quiet += numbers.time(rest);
            if episodes.is_empty() {
                // The node starts with some pods.
                let first = (0..numbers.below(7)).map(|_| What::CreatePod(traits(&mut numbers)));
                let steps = first.map(|what| Step { after: Duration::from_millis(200), what });
                episode.steps.splice(0..0, steps.collect::<Vec<_>>());
            }
            passed += episode.steps.iter().map(|step| step.after).sum::<Duration>() + episode.quiet;
            episodes.push(episode);
        }
        Self { seed, lease: Duration::from_secs(lease), episodes }
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
    fn new(numbers: &mut Numbers) -> Self {
        let steps = (0..3 + numbers.below(20)).map(|_| {
            let after = numbers.time(4 * MINUTE);
            Step { after, what: What::new(numbers) }
        });
        let steps = steps.collect();
        let quiet = if numbers.chance(30) { numbers.time(240 * MINUTE) } else { numbers.time(20 * MINUTE) };
        Self { steps, quiet, offline: numbers.chance(25) }
    }
}

fn traits(numbers: &mut Numbers) -> Traits {
    Traits {
        secret: numbers.chance(50),
        token: numbers.chance(40),
        probe: numbers.chance(30),
        job: numbers.chance(20),
        volume: numbers.chance(25),
        device: numbers.chance(25),
        ..Traits::default()
    }
}

impl What {
    fn new(numbers: &mut Numbers) -> Self {
        let outage = 40 * MINUTE;
        match numbers.below(112) {
            0..15 => Self::CreatePod(traits(numbers)),
            15..23 => Self::DeletePod { which: numbers.next(), forced: numbers.chance(15) },
            23..28 => {
                let Traits { probe, job, .. } = traits(numbers);
                Self::WriteManifest(Traits { probe, job, ..Traits::default() })
            }
            28..31 => Self::ChangeManifest(numbers.next()),
            31..34 => Self::RemoveManifest(numbers.next()),
            34..43 => Self::Exit {
                which: numbers.next(),
                code: [0, 1, 137][usize::try_from(numbers.below(3)).unwrap_or_default()],
            },
            43..46 => Self::SandboxDies(numbers.next()),
            46..48 => Self::IgnoreSigterm(numbers.next()),
            48..50 => Self::ChangeConfigMap,
            50..57 => Self::KillAgent { down: numbers.time(3 * MINUTE) },
            57..59 => Self::EndAgent { down: numbers.time(3 * MINUTE) },
            59..63 => Self::Reboot { down: numbers.time(10 * MINUTE) },
            63..68 => Self::ApiGone { lasts: numbers.time(outage) },
            68..72 => Self::ApiSilent { lasts: numbers.time(outage) },
            72..78 => {
                let rate = numbers.rate();
                let mut faults = api_server::Faults::default();
                match numbers.below(6) {
                    0 => faults.refused = rate,
                    1 => faults.lost = rate,
                    2 => faults.hung = rate,
                    3 => faults.halved = rate,
                    4 => faults.short = rate,
                    _ => faults.slow = numbers.time(MINUTE),
                }
                Self::ApiFails { faults, lasts: numbers.time(outage) }
            }
            78..80 => Self::ApiCut,
            80..82 => Self::ApiDelay { delay: numbers.time(Duration::from_secs(8)), lasts: numbers.time(outage) },
            82..84 => Self::EndWatches,
            84 => Self::Compact,
            85 => Self::Restore,
            86..89 => Self::RuntimeGone { lasts: numbers.time(10 * MINUTE) },
            89..91 => Self::RuntimeSilent { lasts: numbers.time(10 * MINUTE) },
            91..96 => {
                let rate = numbers.rate().min(500);
                let mut faults = container_runtime::Faults::default();
                match numbers.below(4) {
                    0 => faults.failed = rate,
                    1 => faults.lost = rate,
                    2 => faults.hung = rate,
                    _ => faults.slow = numbers.time(MINUTE),
                }
                Self::RuntimeFails { faults, lasts: numbers.time(10 * MINUTE) }
            }
            96 => {
                let seconds = i64::try_from(numbers.below(7200)).unwrap_or_default();
                Self::ClockSteps(if numbers.chance(50) { seconds } else { -seconds })
            }
            97 => Self::FullDisk { lasts: numbers.time(10 * MINUTE) },
            98 => Self::SlowDisk { longest: numbers.time(Duration::from_secs(5)), lasts: numbers.time(10 * MINUTE) },
            99 => Self::Restore,
            100..102 => Self::DiskFails { rate: numbers.rate(), lasts: numbers.time(10 * MINUTE) },
            102..104 => {
                let slow = numbers.time(MINUTE);
                let resolver = Resolver { slow, failing: if numbers.chance(50) { numbers.rate() } else { 0 } };
                Self::NamesFail { resolver, lasts: numbers.time(outage) }
            }
            110.. => {
                Self::SlowMachine { longest: numbers.time(Duration::from_millis(100)), lasts: numbers.time(5 * MINUTE) }
            }
            104..107 => Self::PluginGone { which: PluginKind::new(numbers), lasts: numbers.time(10 * MINUTE) },
            _ => {
                let (rate, mut faults) = (numbers.rate(), plugin::Faults::default());
                match numbers.below(3) {
                    0 => faults.failed = rate,
                    1 => faults.hung = rate,
                    _ => faults.slow = numbers.time(MINUTE),
                }
                Self::PluginFails { which: PluginKind::new(numbers), faults, lasts: numbers.time(10 * MINUTE) }
            }
        }
    }
}

impl PluginKind {
    fn new(numbers: &mut Numbers) -> Self {
        if numbers.chance(50) { Self::Csi } else { Self::Device }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "    lease of {:?}", self.lease)?;
        for episode in &self.episodes {
            for step in &episode.steps {
                writeln!(f, "    after {:?}: {:?}", step.after, step.what)?;
            }
            let offline = if episode.offline { ", and a start without the API server" } else { "" };
            writeln!(f, "    all is well; then {:?} of quiet{offline}", episode.quiet)?;
        }
        Ok(())
    }
}
