//! Plans of a node without a cluster, with Jobs and CronJobs. Their numbers are their own, so that the other plans stay.

use std::time::Duration;

use super::{Episode, Habits, Kind, Numbers, Plan, Step, StepKind};
use crate::simulation::jobs::{CronTraits, JobStep, JobTraits};
use crate::types::api::ConcurrencyPolicy;

/// What can happen to a node without a cluster.
const KINDS: &[(Kind, u64)] = &[
    (Kind::Job, 30),
    (Kind::WriteManifest, 3),
    (Kind::ChangeManifest, 2),
    (Kind::RemoveManifest, 2),
    (Kind::Exit, 6),
    (Kind::SandboxDies, 3),
    (Kind::IgnoreSigterm, 2),
    (Kind::KillAgent, 9),
    (Kind::EndAgent, 3),
    (Kind::Reboot, 6),
    (Kind::RuntimeGone, 3),
    (Kind::RuntimeSilent, 2),
    (Kind::RuntimeFails, 6),
    (Kind::ClockSteps, 3),
    (Kind::FullDisk, 1),
    (Kind::SlowDisk, 2),
    (Kind::DiskFails, 3),
    (Kind::SlowMachine, 2),
];

impl Plan {
    /// As [`Plan::new`], of a node without a cluster.
    pub(in crate::simulation) fn with_jobs(seed: u64, lasts: Duration, rest: Duration) -> Self {
        let mut numbers = Numbers::new(seed ^ 0x4a6f_6273);
        let habits = Habits::new(KINDS, &mut numbers);
        let (mut episodes, mut passed) = (Vec::new(), Duration::ZERO);
        while passed < lasts {
            let mut episode = Episode::new(&habits, &mut numbers);
            episode.quiet += numbers.time(rest);
            if episodes.is_empty() {
                // The node starts with some documents.
                let first = (0..=numbers.below(3)).map(|_| JobStep::Write(JobTraits::new(&mut numbers)));
                let steps = first.map(|step| Step { after: Duration::from_millis(200), kind: StepKind::Job(step) });
                episode.steps.splice(0..0, steps.collect::<Vec<_>>());
            }
            passed += episode.steps.iter().map(|step| step.after).sum::<Duration>() + episode.quiet;
            episodes.push(episode);
        }
        Self { seed, lease: Duration::from_secs(40), episodes }
    }

    /// Number of documents in a full directory.
    pub(in crate::simulation) fn full_jobs(&self) -> u32 {
        let steps = self.episodes.iter().flat_map(|episode| &episode.steps);
        let filled = steps.filter_map(|step| match step.kind {
            StepKind::Job(JobStep::Fill(count, _)) => u32::try_from(count).ok(),
            _ => None,
        });
        filled.sum()
    }

    /// Whether the node has Jobs, and so no cluster.
    pub(in crate::simulation) fn has_jobs(&self) -> bool {
        let mut steps = self.episodes.iter().flat_map(|episode| &episode.steps);
        steps.any(|step| matches!(step.kind, StepKind::Job(_)))
    }
}

impl JobStep {
    pub(super) fn new(numbers: &mut Numbers) -> Self {
        let which = numbers.next();
        match numbers.below(12) {
            0..6 => Self::Write(JobTraits::new(numbers)),
            6 | 7 => Self::Suspend(which),
            8 => Self::SetParallelism(which, u32::try_from(numbers.below(4)).unwrap_or(0)),
            9 => Self::ChangeTemplate(which),
            10 => Self::SetPolicy(which, *numbers.one_of(&POLICIES)),
            _ => Self::Remove(which),
        }
    }
}

const POLICIES: [ConcurrencyPolicy; 3] =
    [ConcurrencyPolicy::Allow, ConcurrencyPolicy::Forbid, ConcurrencyPolicy::Replace];

impl JobTraits {
    fn new(numbers: &mut Numbers) -> Self {
        let cron = numbers.chance(40).then(|| CronTraits {
            minutes: *numbers.one_of(&[1, 1, 2, 5]),
            policy: *numbers.one_of(&POLICIES),
            starting_deadline: numbers.chance(20).then_some(200),
        });
        let completions = numbers.chance(75).then(|| u32::try_from(1 + numbers.below(3)).unwrap_or(1));
        let deadline = numbers.chance(25).then(|| *numbers.one_of(&[5, 30, 90]));
        let hangs = deadline.is_some() && numbers.chance(40);
        let lasts = *numbers.one_of(&[200, 5_000, 20_000, 45_000]);
        Self {
            completions,
            parallelism: numbers.chance(60).then(|| *numbers.one_of(&[1, 2, 3])),
            indexed: completions.is_some() && numbers.chance(60),
            on_failure: numbers.chance(35),
            backoff_limit: *numbers.one_of(&[0, 1, 2, 3]),
            deadline,
            ttl: numbers.chance(25).then(|| *numbers.one_of(&[0, 10, 60])),
            suspend: numbers.chance(10),
            lasts: (!hangs).then(|| Duration::from_millis(lasts)),
            fails: *numbers.one_of(&[0, 0, 30, 100]),
            cron,
        }
    }
}
