//! Simulations of a node's life: the whole agent under a virtual clock, with a faulty runtime, API server, network and
//! machine, all derived from one seed. Rules are checked at every step, and convergence when all faults are over.
//!
//! Environment of the test: `SIMULATION_SEEDS=100..200` selects the seeds, `SIMULATION_SEEDS=today` fifty that differ
//! each day, `SIMULATION_MINUTES=1440` the minimum lifetime of each node, `SIMULATION_REST=600` up to how many minutes
//! of additional quiet follow each episode. `SIMULATION_FIRST=1` stops at the first seed with a violation,
//! `SIMULATION_TRACE=1` prints its complete log, and `SIMULATION_REDUCE=0` skips the search for a shorter plan.

mod agent;
mod api_server;
mod checks;
mod container_runtime;
mod coverage;
mod csi_driver;
mod device_plugin;
mod dra_driver;
mod every_call;
mod fairness;
#[path = "../../tests/fake_api/mod.rs"]
#[expect(dead_code, reason = "the rest is for tests over real sockets")]
mod fake_api;
#[path = "../../tests/fake_cri/mod.rs"]
#[expect(dead_code, reason = "the rest is for tests over real sockets")]
mod fake_cri;
mod faults;
mod full_size;
mod hostile_objects;
mod hostile_pods;
mod jobs;
mod kernel_processes;
mod lease;
mod leftovers;
mod life;
mod machine;
mod many_objects;
mod peak_memory;
mod plan;
mod plugin;
mod record;
mod restores;
mod runtime_checks;
mod steps;
mod token_file;
mod trials;
mod update_locks;
mod wanted;
mod watches;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use coverage::Coverage;
use life::{Report, live};
use plan::{Episode, Plan, Step, StepKind};

/// The results of several simulations.
#[derive(Debug, Default)]
struct Sum {
    lasted: Duration,
    longest_recovery: Duration,
    counts: BTreeMap<&'static str, u64>,
    most: BTreeMap<&'static str, u64>,
    coverage: Coverage,
    violated: Vec<(Plan, Report)>,
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The seeds from the environment, or the default ones.
fn seeds(usual: u64) -> std::ops::Range<u64> {
    let Ok(asked) = std::env::var("SIMULATION_SEEDS") else { return 0..usual };
    let parse = |text: &str| {
        text.parse::<u64>().expect("SIMULATION_SEEDS is a seed, a range such as 100..200, or the word today")
    };
    match asked.split_once("..") {
        Some((from, to)) => parse(from)..parse(to),
        None if asked == "today" => seeds_of(SystemTime::now()),
        None => parse(&asked)..parse(&asked) + 1,
    }
}

/// Seeds that no other day has.
fn seeds_of(now: SystemTime) -> std::ops::Range<u64> {
    let days = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / 86_400);
    // 2026-01-01 has the first ones.
    let from = FIRST_FRESH + days.saturating_sub(20_454) * FRESH_SEEDS;
    from..from + FRESH_SEEDS
}

const DEFAULT_SEEDS: u64 = 100;
/// Of a node without a cluster.
const SEEDS_WITH_JOBS: u64 = 8;
/// Seeds of a day, and the first of them all.
const FRESH_SEEDS: u64 = 50;
const FIRST_FRESH: u64 = 10_000_000;
/// Minimum lifetime of a node, unless the environment sets it.
const DEFAULT_MINUTES: u64 = 10;

/// Runs the simulations of these seeds, several at once.
fn live_all(seeds: std::ops::Range<u64>, plan_of: &(impl Fn(u64) -> Plan + Sync)) -> Sum {
    let (next, sum) = (AtomicU64::new(seeds.start), Mutex::new(Sum::default()));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if !seeds.contains(&seed) {
                return;
            }
            let plan = plan_of(seed);
            let report = live(&plan);
            if report.violation.is_none() && std::env::var("SIMULATION_TRACE").is_ok() {
                println!("seed {seed}:\n{plan}{}", report.lines.join("\n"));
            }
            let mut sum = sum.lock().unwrap();
            sum.lasted += report.lasted;
            sum.longest_recovery = sum.longest_recovery.max(report.longest_recovery);
            for (what, count) in &report.counts {
                *sum.counts.entry(what).or_default() += count;
            }
            sum.coverage.add(&report.coverage);
            for (what, value) in &report.most {
                let largest = sum.most.entry(what).or_default();
                *largest = (*value).max(*largest);
            }
            if let Some(violation) = &report.violation {
                if std::env::var("SIMULATION_FIRST").is_ok() {
                    next.store(seeds.end, Ordering::Relaxed);
                }
                println!("seed {seed} at {}: {:?}: {}", record::Moment(violation.at), violation.rule, violation.detail);
                sum.violated.push((plan, report));
            }
        }
    };
    // Simulations wait for the kernel to mount and unmount.
    let threads = 2 * std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    sum.into_inner().unwrap()
}

/// The log before a violation, with the shortest plan found.
fn shown(plan: Plan, report: &Report) -> String {
    let rule = |report: &Report| report.violation.as_ref().map(|violation| violation.rule);
    let shortest = plan.reduced(|shorter| rule(&live(shorter)) == rule(report));
    let again = live(&shortest);
    let tail = again.lines.len().saturating_sub(SHOWN_LOG_LINES);
    let trace = again.lines.get(tail..).unwrap_or_default().join("\n");
    format!("the shortest plan found:\n{shortest}the end of its trace:\n{trace}")
}

/// Number of log lines shown.
const SHOWN_LOG_LINES: usize = 150;

/// Fails without root: a simulation that did not run must not look like one that found nothing.
#[track_caller]
fn need_root() {
    let is_root = nix::unistd::geteuid().is_root();
    assert!(
        is_root,
        "not run: simulations need root, for a mount namespace. Without it: cargo test -- --skip simulation::"
    );
}

#[test]
fn nodes_keep_all_rules() {
    keep_all_rules(seeds(DEFAULT_SEEDS), Plan::new);
}

#[test]
fn nodes_without_a_cluster_keep_all_rules() {
    keep_all_rules(seeds(SEEDS_WITH_JOBS), Plan::with_jobs);
}

#[track_caller]
fn keep_all_rules(seeds: std::ops::Range<u64>, plan_of: fn(u64, Duration, Duration) -> Plan) {
    need_root();
    let minutes = |name: &str, usual: u64| Duration::from_secs(60 * number(name).unwrap_or(usual));
    let (lasts, rest) = (minutes("SIMULATION_MINUTES", DEFAULT_MINUTES), minutes("SIMULATION_REST", 0));
    let begun = Instant::now();
    let sum = live_all(seeds, &|seed| plan_of(seed, lasts, rest));
    let (days, took) = (sum.lasted.as_secs_f64() / 86_400.0, begun.elapsed().as_secs_f64());
    println!(
        "{days:.1} node-days in {took:.0} s, {:.1} a minute; longest recovery {:?}",
        days / took * 60.0,
        sum.longest_recovery
    );
    println!("counts: {:?}", sum.counts);
    println!("at most: {:?}", sum.most);
    println!("covered: {}", sum.coverage);
    let settings = format!("SIMULATION_MINUTES={} SIMULATION_REST={}", lasts.as_secs() / 60, rest.as_secs() / 60);
    for (plan, _) in &sum.violated {
        println!("to repeat: sudo SIMULATION_SEEDS={} {settings} {COMMAND}", plan.seed);
    }
    let Some((plan, report)) = sum.violated.into_iter().next() else { return };
    let seed = plan.seed;
    if std::env::var("SIMULATION_TRACE").is_ok() {
        panic!("seed {seed}:\n{plan}{}", report.lines.join("\n"));
    }
    let shown =
        if std::env::var("SIMULATION_REDUCE").is_ok_and(|no| no == "0") { String::new() } else { shown(plan, &report) };
    panic!("seed {seed} violates a rule\n{shown}");
}

/// Repeats a simulation.
const COMMAND: &str = "cargo test --lib simulation::nodes -- --nocapture";

#[test]
fn each_day_has_seeds_of_its_own() {
    let seeds = |days: u64| seeds_of(UNIX_EPOCH + Duration::from_secs(days * 86_400 + 5));
    assert_eq!(seeds(20_454), 10_000_000..10_000_050);
    assert_eq!(seeds(20_455), 10_000_050..10_000_100);
}

/// A step, `seconds` after the previous one.
fn after(seconds: u64, kind: StepKind) -> Step {
    Step { after: Duration::from_secs(seconds), kind }
}

fn create(traits: wanted::Traits) -> Step {
    after(1, StepKind::CreatePod(traits))
}

fn kill_agent() -> Step {
    after(1, StepKind::KillAgent { down: Duration::from_secs(1) })
}

/// Every read, write and sync fails for five minutes.
fn fail_disk() -> Step {
    after(30, StepKind::DiskFails { rate: 1000, lasts: Duration::from_secs(300) })
}

/// Runs some simulations with these episodes, after which the node must converge.
#[track_caller]
fn live_through(episodes: &[(Vec<Step>, Start)]) {
    live_within(Duration::from_secs(40), episodes);
}

/// The same with leases of this duration.
#[track_caller]
fn live_within(lease: Duration, episodes: &[(Vec<Step>, Start)]) {
    need_root();
    let quiet = Duration::from_secs(90);
    let episodes = episodes.iter().map(|(steps, start)| Episode {
        steps: steps.clone(),
        quiet,
        offline: *start == Start::Offline,
    });
    let episodes: Vec<Episode> = episodes.collect();
    for seed in 0..4 {
        let report = live(&Plan { seed, lease, episodes: episodes.clone() });
        assert_eq!(report.violation, None, "seed {seed}:\n{}", report.lines.join("\n"));
    }
}

/// Whether an episode is followed by a power cut without the API server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    None,
    Offline,
}

#[test]
fn allocation_is_on_disk_before_the_sandbox_exists() {
    let slow_disk = after(1, StepKind::SlowDisk { longest: Duration::from_secs(1), lasts: Duration::from_secs(120) });
    let writes = (0..6).map(|_| after(0, StepKind::WriteManifest(wanted::Traits::default())));
    live_through(&[([slow_disk].into_iter().chain(writes).collect(), Start::None)]);
}

#[test]
fn pods_not_observed_at_the_start_are_not_reported_as_restarted() {
    let pods = (0..6).map(|_| create(wanted::Traits::default()));
    let failing = container_runtime::Faults { failed: 300, ..container_runtime::Faults::default() };
    let failing = StepKind::RuntimeFails { faults: failing, lasts: Duration::from_secs(30) };
    let start = vec![after(0, failing), kill_agent(), after(40, StepKind::EndWatches)];
    live_through(&[(pods.collect(), Start::None), (start, Start::None)]);
}

#[test]
fn tokens_are_stored_once_the_key_is_readable() {
    let token = wanted::Traits { token: true, ..wanted::Traits::default() };
    live_through(&[
        (vec![create(wanted::Traits::default())], Start::None),
        (
            vec![fail_disk(), kill_agent(), after(280, StepKind::CreatePod(token)), after(60, StepKind::EndWatches)],
            Start::Offline,
        ),
    ]);
}

#[test]
fn volume_is_unpublished_once_its_file_is_readable() {
    let volume = wanted::Traits { volume: true, ..wanted::Traits::default() };
    let delete = StepKind::DeletePod { which: 0, grace: Some(0) };
    live_through(&[
        (vec![create(volume)], Start::None),
        (vec![fail_disk(), after(30, delete), after(60, StepKind::EndWatches)], Start::None),
    ]);
}

/// A pod whose process ignores SIGTERM is deleted, then deleted without a grace period, and the agent restarts.
#[test]
fn pod_without_an_object_ends_after_a_restart() {
    let twice = StepKind::DeleteTwice { which: 0, first: 5, second: 0 };
    live_through(&[
        (vec![create(wanted::Traits::default())], Start::None),
        (vec![after(1, twice), after(2, StepKind::EndAgent { down: Duration::from_secs(1) })], Start::None),
    ]);
}

/// Its sandbox dies when one of two containers has started: the other one never will, as each later agent finds, too.
#[test]
fn interrupted_static_job_fails() {
    let job = wanted::Traits { job: true, side: true, ..wanted::Traits::default() };
    for skip in 0..2 {
        let fails =
            StepKind::CallGoesWrong { method: "StartContainer", skip, fault: container_runtime::CallFault::Fails };
        let dies = after(1, StepKind::SandboxDies(0));
        let steps = vec![after(1, fails), after(1, StepKind::WriteManifest(job)), dies, kill_agent()];
        live_through(&[(steps, Start::None), (vec![kill_agent()], Start::Offline)]);
    }
}

/// The agent is killed while a resize is refused, and the node loses its power.
#[test]
fn refused_resize_is_not_applied_by_a_restart() {
    let pod = wanted::Traits { cpu: 20, ..wanted::Traits::default() };
    let resize = |cpu| after(20, StepKind::Resize { which: 0, cpu });
    live_through(&[
        (vec![create(pod), resize(40), resize(wanted::TOO_MUCH), after(30, StepKind::EndWatches)], Start::None),
        (vec![kill_agent()], Start::Offline),
        (vec![after(1, StepKind::Exit { which: 0, code: 1 })], Start::None),
        (vec![resize(10), kill_agent()], Start::Offline),
    ]);
}

/// Its manifest changes, and meanwhile the agent is killed and the manifest changes again.
#[test]
fn pod_that_holds_its_lock_runs_until_it_releases_it() {
    // The second one has a lock.
    let pods = (0..2).map(|_| after(1, StepKind::WriteManifest(wanted::Traits::default())));
    let pods = pods.chain([after(30, StepKind::EndWatches)]).collect();
    let held = vec![after(1, StepKind::ChangeManifest(59)), after(20, kill_agent().kind)];
    let again =
        vec![after(60, StepKind::ChangeManifest(1)), after(30, kill_agent().kind), after(100, StepKind::EndWatches)];
    live_through(&[(pods, Start::None), ([held, again].concat(), Start::Offline)]);
}

/// A manifest changes again while its pod ends: the versions between never start.
#[test]
fn versions_that_never_started_leave_nothing_behind() {
    let stubborn = wanted::Traits { stubborn: true, ..wanted::Traits::default() };
    let change = |which| after(1, StepKind::ChangeManifest(which));
    let changes = (0..4).flat_map(|which| [change(which), change(which), change(which)]);
    live_through(&[
        ((0..4).map(|_| after(1, StepKind::WriteManifest(stubborn))).collect(), Start::None),
        (changes.collect(), Start::None),
    ]);
}

/// The runtime fails the first call that resizes a running container.
#[test]
fn failed_resize_is_tried_again() {
    let pod = wanted::Traits { cpu: 20, ..wanted::Traits::default() };
    let fault = container_runtime::CallFault::Fails;
    let fails = StepKind::CallGoesWrong { method: "UpdateContainerResources", skip: 0, fault };
    live_through(&[
        (vec![create(pod)], Start::None),
        (vec![after(1, fails), after(1, StepKind::Resize { which: 0, cpu: 40 })], Start::None),
    ]);
}

/// The runtime resizes a running container and never answers; meanwhile the resize is taken back.
#[test]
fn resize_taken_back_before_its_update_is_answered_is_undone() {
    let pod = wanted::Traits { cpu: 20, ..wanted::Traits::default() };
    let fault = container_runtime::CallFault::HangsAfterItsEffect;
    let hangs = StepKind::CallGoesWrong { method: "UpdateContainerResources", skip: 0, fault };
    let resize = |cpu| after(1, StepKind::Resize { which: 0, cpu });
    live_through(&[(vec![create(pod)], Start::None), (vec![after(1, hangs), resize(40), resize(20)], Start::None)]);
}

/// The disk is full when a container is resized, and the next agent finds the checkpoint of before. Meanwhile the resize
/// is taken back.
#[test]
fn resize_that_no_checkpoint_has_is_undone() {
    let pod = wanted::Traits { cpu: 20, ..wanted::Traits::default() };
    let full = StepKind::FullDisk { lasts: Duration::from_secs(60) };
    let killed = StepKind::KillAgent { down: Duration::from_secs(20) };
    let resize = |cpu| after(1, StepKind::Resize { which: 0, cpu });
    let steps = vec![after(1, full), resize(40), after(5, killed), resize(20)];
    live_through(&[(vec![create(pod)], Start::None), (steps, Start::None)]);
}

/// The runtime has pulled the image, and never answers.
#[test]
fn image_that_came_without_an_answer_is_used() {
    let pod = wanted::Traits { pull: true, ..wanted::Traits::default() };
    let fault = container_runtime::CallFault::HangsAfterItsEffect;
    let hangs = StepKind::CallGoesWrong { method: "PullImage", skip: 0, fault };
    live_through(&[(vec![after(1, hangs), create(pod)], Start::None)]);
}

/// The disk fails while the next version of a static pod replaces the present one, so that no record tells it, and the
/// agent is killed.
#[test]
fn version_that_runs_is_not_replaced_by_the_one_before_it() {
    let pod = wanted::Traits { pull: true, ..wanted::Traits::default() };
    let gone = StepKind::RuntimeGone { lasts: Duration::from_secs(20) };
    let fails = StepKind::DiskFails { rate: 1000, lasts: Duration::from_secs(600) };
    let steps = vec![
        after(1, gone),
        after(1, StepKind::ChangeManifest(0)),
        // The manifest was read.
        after(5, fails),
        after(150, StepKind::KillAgent { down: Duration::from_secs(1) }),
    ];
    live_through(&[(vec![after(1, StepKind::WriteManifest(pod))], Start::None), (steps, Start::None)]);
}

/// After a reboot, ListAndWatch of the device plugin sends no list, and goes on to hang when the plugin is well again.
#[test]
fn device_plugin_that_sends_no_devices_is_asked_again() {
    let pod = wanted::Traits { device: true, ..wanted::Traits::default() };
    let faults = plugin::Faults { silent: 1000, ..plugin::Faults::default() };
    let silent = StepKind::PluginFails { which: plan::PluginKind::Device, faults, lasts: Duration::from_secs(300) };
    let reboot = StepKind::Reboot { down: Duration::from_secs(5) };
    live_through(&[
        (vec![create(pod)], Start::None),
        (vec![after(1, silent), after(1, reboot), after(200, StepKind::EndWatches)], Start::None),
    ]);
}

/// A job with a claim dies while the agent is away, and the disk fails as the agent returns: its checkpoint of claims
/// may be unreadable.
#[test]
fn claim_of_a_finished_pod_is_unprepared_once_its_checkpoint_is_readable() {
    need_root();
    let job = wanted::Traits { claim: true, job: true, ..wanted::Traits::default() };
    let away = StepKind::EndAgent { down: Duration::from_secs(10) };
    let fails = StepKind::DiskFails { rate: 500, lasts: Duration::from_secs(30) };
    let faults =
        vec![after(1, away), after(2, StepKind::SandboxDies(0)), after(3, fails), after(20, StepKind::Compact)];
    let episode = |steps| Episode { steps, quiet: Duration::from_secs(10), offline: false };
    let episodes = vec![episode(vec![create(job)]), episode(faults)];
    // Few of the seeds fail both reads.
    for seed in 0..30 {
        let report = live(&Plan { seed, lease: Duration::from_secs(40), episodes: episodes.clone() });
        assert_eq!(report.violation, None, "seed {seed}:\n{}", report.lines.join("\n"));
    }
}

/// The first of two pods that share a claim ends while its driver is away and the agent is killed.
#[test]
fn shared_claim_is_prepared_as_long_as_a_pod_uses_it() {
    let pod = wanted::Traits { claim: true, ..wanted::Traits::default() };
    let gone = StepKind::PluginGone { which: plan::PluginKind::Dra, lasts: Duration::from_secs(120) };
    let delete = |which| after(10, StepKind::DeletePod { which, grace: None });
    live_through(&[
        // Of five pods, the first and the last share a claim.
        ((0..5).map(|_| create(pod)).collect(), Start::Offline),
        (vec![after(1, gone), delete(0), kill_agent(), delete(1)], Start::None),
        (vec![delete(0), delete(0), delete(0), after(60, StepKind::EndWatches)], Start::None),
    ]);
}

/// The agent is killed just after it has prepared a claim, and the API server is restored to a state without the pod.
/// The next agents have done all of their work before all sources are ready.
#[test]
fn claim_of_a_pod_that_is_gone_is_unprepared_without_further_work() {
    let claiming = wanted::Traits { claim: true, pull: true, ..wanted::Traits::default() };
    let writes = (0..100).map(|_| after(0, StepKind::ChangeConfigMap));
    let killed = StepKind::KillAgent { down: Duration::from_secs(5) };
    let soon = Step { after: Duration::from_millis(150), kind: killed };
    let steps = [create(claiming), soon, after(1, StepKind::Restore), after(15, StepKind::EndWatches), kill_agent()];
    live_through(&[
        (vec![create(wanted::Traits::default())], Start::None),
        (writes.chain(steps).collect(), Start::None),
    ]);
}

/// The checkpoint of claims cannot be read at the start, and is read when a further pod prepares a claim that it shares.
#[test]
fn shared_claim_outlives_a_start_without_its_checkpoint() {
    let pod = wanted::Traits { claim: true, ..wanted::Traits::default() };
    let away = StepKind::EndAgent { down: Duration::from_secs(10) };
    let fails = StepKind::DiskFails { rate: 1000, lasts: Duration::from_secs(15) };
    // The fifth pod shares the claim of the first. Either of them ends.
    for which in [0, 4] {
        live_through(&[
            ((0..4).map(|_| create(pod)).collect(), Start::None),
            (vec![after(1, away.clone()), after(5, fails.clone()), after(30, StepKind::CreatePod(pod))], Start::None),
            (vec![after(10, StepKind::DeletePod { which, grace: None })], Start::None),
        ]);
    }
}

/// A day without steps, with six pods of all kinds except with probes.
#[test]
fn quiet_day_stays_within_its_limits() {
    need_root();
    let kinds = wanted::Traits {
        secret: true,
        token: true,
        volume: true,
        device: true,
        claim: true,
        side: true,
        ..Default::default()
    };
    let pods = (0..6).map(|number| create(if number < 3 { kinds } else { wanted::Traits::default() }));
    let day = Duration::from_secs(86_400);
    let episode = Episode { steps: pods.collect(), quiet: day, offline: false };
    let begun = Instant::now();
    let report = live(&Plan { seed: 1, lease: Duration::from_secs(40), episodes: vec![episode] });
    assert_eq!(report.violation, None, "{}", report.lines.join("\n"));
    let rest = report.lines.iter().find(|line| line.contains(" rest ")).map_or("", String::as_str);
    println!("a quiet day in {:?}: {rest}", begun.elapsed());
    println!("{}", report.lines.iter().find(|line| line.contains("woken by")).map_or("", String::as_str));
}

#[test]
fn everything_is_reported_within_ten_seconds_after_a_short_absence() {
    need_root();
    let quiet = Duration::from_secs(30);
    let mut lives = 0;
    for seconds in [20, 50, 110] {
        let lasts = Duration::from_secs(seconds);
        let absence = vec![after(30, StepKind::ApiGone { lasts }), after(10, StepKind::Exit { which: 0, code: 1 })];
        let first = vec![create(wanted::Traits::default())];
        for seed in 0..8 {
            let episodes = [first.clone(), absence.clone()].map(|steps| Episode { steps, quiet, offline: false });
            let report = live(&Plan { seed, lease: Duration::from_secs(40), episodes: episodes.to_vec() });
            assert_eq!(report.violation, None, "seed {seed}:\n{}", report.lines.join("\n"));
            // Without events, the end of a container is only seen at the next relist.
            let has_no_events = |line: &String| line.contains("GetContainerEvents") && line.contains("Unimplemented");
            if report.lines.iter().any(has_no_events) {
                continue;
            }
            lives += 1;
            let took = report.longest_recovery;
            let lines = || report.lines.join("\n");
            assert!(took <= Duration::from_secs(10), "away for {seconds} s, seed {seed}: {took:?}\n{}", lines());
        }
    }
    assert!(lives >= 9, "{lives} lives with events");
}

#[test]
fn runs_of_the_same_seed_are_identical() {
    need_root();
    let plan = Plan::new(42, Duration::from_secs(3600), Duration::ZERO);
    assert_eq!(live(&plan).digest, live(&plan).digest);
}

#[test]
fn plan_is_reduced_to_the_necessary_steps() {
    let plan = Plan::new(7, Duration::from_secs(12 * 3600), Duration::ZERO);
    let matters = |plan: &Plan| {
        let steps = plan.episodes.iter().flat_map(|episode| &episode.steps);
        steps.filter(|step| matches!(step.kind, StepKind::KillAgent { .. })).count() >= 2
    };
    assert!(plan.len() > 10 && matters(&plan));
    let shortest = plan.reduced(matters);
    assert_eq!(shortest.len(), 2, "{shortest}");
}
