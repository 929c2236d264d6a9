//! A node's life in a simulation: the whole agent under a virtual clock, with a runtime, an API server, a network and a
//! machine that go wrong, all from one seed. What must hold is checked at every step, and again when nothing goes wrong
//! any more.
//!
//! `SIMULATION_SEEDS=100..200` says which seeds the test runs, `SIMULATION_HOURS=24` for how long each, and
//! `SIMULATION_TRACE=1` prints what happened.

mod api_server;
mod container_runtime;
#[path = "../../tests/fake_api/mod.rs"]
#[expect(dead_code, reason = "the rest is for tests over real sockets")]
mod fake_api;
#[path = "../../tests/fake_cri/mod.rs"]
#[expect(dead_code, reason = "the rest is for tests over real sockets")]
mod fake_cri;
mod life;
mod machine;
mod plan;
mod record;
mod wanted;

use std::time::Duration;

use life::{Report, live};
use plan::Plan;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The seeds to run: those that somebody asks for, or the usual ones.
fn seeds() -> std::ops::Range<u64> {
    let Ok(asked) = std::env::var("SIMULATION_SEEDS") else { return 0..10 };
    let parse = |text: &str| text.parse::<u64>().expect("SIMULATION_SEEDS is a seed, or a range such as 100..200");
    match asked.split_once("..") {
        Some((from, to)) => parse(from)..parse(to),
        None => parse(&asked)..parse(&asked) + 1,
    }
}

/// The plan of a life in which something that must hold does not, as short as can be found; and what happened.
fn shown(plan: Plan, report: &Report, hours: u64) -> String {
    let seed = plan.seed;
    let what = report.violation.as_ref().map_or("", |violation| violation.what.as_str());
    let shortest = match std::env::var("SIMULATION_REDUCE") {
        Ok(_) => {
            let rule = |report: &Report| report.violation.as_ref().map(|violation| violation.rule);
            plan.reduced(|shorter| rule(&live(shorter)) == rule(report))
        }
        Err(_) => plan,
    };
    let again = live(&shortest);
    let tail = again.lines.len().saturating_sub(120);
    format!(
        "seed {seed}: {what}\nagain with: SIMULATION_SEEDS={seed} SIMULATION_HOURS={hours}\nplan:\n{shortest}trace:\n{}\n{:?}",
        again.lines.get(tail..).unwrap_or_default().join("\n"),
        again.violation,
    )
}

#[test]
fn nodes_live_through_whatever_happens() {
    let hours = number("SIMULATION_HOURS").unwrap_or(24);
    let begun = std::time::Instant::now();
    let mut lasted = Duration::ZERO;
    let mut recovery = Duration::ZERO;
    let mut counts = std::collections::BTreeMap::<&str, u64>::new();
    for seed in seeds() {
        let plan = Plan::new(seed, Duration::from_secs(hours * 3600));
        let report = live(&plan);
        lasted += report.lasted;
        recovery = recovery.max(report.longest_recovery);
        for (what, count) in &report.counts {
            *counts.entry(what).or_default() += count;
        }
        if std::env::var("SIMULATION_TRACE").is_ok() {
            println!("{}", report.lines.join("\n"));
        }
        assert!(report.violation.is_none(), "{}", shown(plan, &report, hours));
    }
    let days = lasted.as_secs_f64() / 86_400.0;
    println!("{days:.1} node-days in {:.1} s; longest recovery {recovery:?}; {counts:?}", begun.elapsed().as_secs_f64());
}

#[test]
fn a_seed_decides_everything() {
    let plan = Plan::new(42, Duration::from_secs(6 * 3600));
    assert_eq!(live(&plan).digest, live(&plan).digest);
}
