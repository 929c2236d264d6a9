//! Scripted lives of nodes with Jobs.

use std::time::Duration;

use super::{CronTraits, JobStep, JobTraits};
use crate::simulation::container_runtime::Faults;
use crate::simulation::life::{Report, live};
use crate::simulation::plan::{Episode, Plan, Step, StepKind};
use crate::simulation::wanted::Traits;
use crate::simulation::{after, fail_disk, kill_agent, need_root};
use crate::types::api::ConcurrencyPolicy;

/// Its pods run for up to five seconds and succeed.
fn job() -> JobTraits {
    JobTraits { backoff_limit: 3, lasts: Some(Duration::from_secs(5)), ..JobTraits::default() }
}

fn each(minutes: i64, policy: ConcurrencyPolicy) -> JobTraits {
    JobTraits { cron: Some(CronTraits { minutes, policy, starting_deadline: None }), ..job() }
}

fn step(seconds: u64, step: JobStep) -> Step {
    after(seconds, StepKind::Job(step))
}

fn write(traits: JobTraits) -> Step {
    step(1, JobStep::Write(traits))
}

fn reboot(seconds: u64) -> Step {
    after(seconds, StepKind::Reboot { down: Duration::from_secs(5) })
}

#[track_caller]
fn lived(seed: u64, episodes: &[(Vec<Step>, Duration)]) -> Report {
    need_root();
    let episodes =
        episodes.iter().map(|(steps, quiet)| Episode { steps: steps.clone(), quiet: *quiet, offline: false });
    let report = live(&Plan { seed, lease: Duration::from_secs(40), episodes: episodes.collect() });
    assert_eq!(report.violation, None, "seed {seed}:\n{}", report.lines.join("\n"));
    report
}

#[track_caller]
fn live_with(steps: &[Step]) {
    for seed in 0..4 {
        lived(seed, &[(steps.to_vec(), Duration::from_secs(150))]);
    }
}

/// The power is cut while indexes have succeeded, run and wait.
#[test]
fn index_that_succeeded_does_not_run_again_after_power_cuts() {
    let indexed = JobTraits { completions: Some(6), parallelism: Some(2), indexed: true, backoff_limit: 20, ..job() };
    live_with(&[write(indexed), reboot(6), kill_agent(), reboot(5), reboot(7)]);
}

#[test]
fn job_with_a_failed_disk_starts_nothing_twice() {
    let indexed = JobTraits { completions: Some(4), parallelism: Some(2), indexed: true, ..job() };
    live_with(&[write(indexed), after(2, fail_disk().kind), kill_agent()]);
}

/// The next agent starts while the disk fails, and cannot read the records of a Job that runs and of one that has ended.
#[test]
fn records_are_read_once_the_disk_is_well() {
    let runs = JobTraits { backoff_limit: 0, ..job() };
    let long = JobTraits { lasts: Some(Duration::from_secs(300)), ..runs };
    let fails = StepKind::DiskFails { rate: 1000, lasts: Duration::from_secs(20) };
    let killed = StepKind::KillAgent { down: Duration::from_secs(1) };
    live_with(&[write(runs), write(long), after(10, killed), after(0, fails), after(60, StepKind::EndWatches)]);
}

#[test]
fn failed_job_starts_nothing_after_a_power_cut() {
    let failing = JobTraits { completions: Some(2), fails: 100, backoff_limit: 1, ..job() };
    let late = JobTraits { lasts: None, deadline: Some(5), ..job() };
    live_with(&[write(failing), write(late), reboot(40), kill_agent()]);
}

#[test]
fn cron_jobs_keep_their_policy_over_power_cuts_and_steps_of_the_clock() {
    let policies = [ConcurrencyPolicy::Allow, ConcurrencyPolicy::Forbid, ConcurrencyPolicy::Replace];
    let writes = policies.map(|policy| write(JobTraits { lasts: Some(Duration::from_secs(100)), ..each(1, policy) }));
    let set = |seconds| after(70, StepKind::ClockSteps(seconds));
    let steps = [reboot(90), set(600), set(-600), kill_agent(), set(-100)];
    live_with(&writes.into_iter().chain(steps).collect::<Vec<_>>());
}

/// Times that are over do not come again, and the next one comes when the clock shows it.
#[test]
fn cron_jobs_wait_for_a_clock_that_was_set_back() {
    let policies = [ConcurrencyPolicy::Allow, ConcurrencyPolicy::Forbid, ConcurrencyPolicy::Replace];
    let writes = policies.map(|policy| write(each(1, policy))).to_vec();
    let back = vec![after(1, StepKind::ClockSteps(-900))];
    for seed in 0..4 {
        let [hour, minutes] = [3600, 600].map(Duration::from_secs);
        lived(seed, &[(writes.clone(), hour), (back.clone(), minutes), (vec![kill_agent()], minutes)]);
    }
}

/// Every call that the next agent makes as it starts hangs, and its deadline is long after the end of the faults.
#[test]
fn node_has_not_converged_while_calls_of_the_faults_hang() {
    let faults = Faults { hung: 1000, ..Faults::default() };
    let hang = after(0, StepKind::RuntimeFails { faults, lasts: Duration::from_secs(10) });
    let steps = [write(each(1, ConcurrencyPolicy::Allow)), kill_agent(), hang, after(5, StepKind::EndWatches)];
    for seed in 0..4 {
        let report = lived(seed, &[(steps.to_vec(), Duration::from_secs(80))]);
        assert!(report.longest_recovery > Duration::from_secs(100), "seed {seed}: {:?}", report.longest_recovery);
    }
}

/// Seconds since the start of the simulation of the first line with both texts.
fn seconds_of(report: &Report, texts: [&str; 2]) -> f64 {
    let line = report.lines.iter().find(|line| texts.iter().all(|text| line.contains(text)));
    let time = line.and_then(|line| line.split(' ').nth(1)).unwrap_or_else(|| panic!("no line has {texts:?}"));
    time.split(':').fold(0.0, |sum, part| sum * 60.0 + part.parse::<f64>().unwrap())
}

/// How often timers of the agent and the runtime woke the node in its rest. The network's are not among them: they
/// follow the size of the runtime's lists, in which the ended pods are.
fn timers_at_rest(report: &Report) -> u64 {
    let line = report.lines.iter().find_map(|line| line.split_once(" woken by ")).expect("a rest").1;
    line.split(", ").map(|place| place.split(' ').next().unwrap_or_default().parse::<u64>().unwrap()).sum()
}

/// A hundred and ten Jobs, and a static pod whose manifest comes after theirs.
#[test]
fn full_directory_of_jobs_completes_beside_a_static_pod() {
    let with = |jobs| {
        let pod = after(0, StepKind::WriteManifest(Traits::default()));
        lived(1, &[(vec![step(1, JobStep::Fill(jobs, job())), pod], Duration::from_secs(2 * 3600))])
    };
    let (none, full) = (with(0), with(110));
    let starts = |report| seconds_of(report, ["StartContainer static-", "ok"]);
    println!("without Jobs: {} s, with 110: {} s; {:?}", starts(&none), starts(&full), full.longest_recovery);
    assert!(starts(&full) < starts(&none) + 10.0, "the static pod started after {} s", starts(&full));
    let (before, at_rest) = (timers_at_rest(&none), timers_at_rest(&full));
    assert!(at_rest <= before + 5, "{at_rest} timers in a rest, {before} without Jobs");
}

/// All of them are due every five minutes.
#[test]
fn full_directory_of_cron_jobs_starts_each_time() {
    let write = step(1, JobStep::Fill(110, each(5, ConcurrencyPolicy::Forbid)));
    let pod = after(0, StepKind::WriteManifest(Traits::default()));
    lived(1, &[(vec![write, pod, reboot(302)], Duration::from_secs(400))]);
}

/// The node has room for 110 pods.
#[test]
fn jobs_without_room_wait_until_others_have_ended() {
    let report = lived(1, &[(vec![step(1, JobStep::Fill(160, job()))], Duration::from_secs(60))]);
    println!("160 Jobs in {:?}", report.longest_recovery);
}
