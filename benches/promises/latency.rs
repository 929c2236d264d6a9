//! Latencies of the agent, compared with the runtime's own.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::Effort;
use crate::bare_client::{BareClient, SCRIPT, between, now, pod_name};
use crate::node::{Manifest, Node, PATIENCE, wait_for};
use crate::report::Report;

const CROWD: usize = 24;

/// The agent's node, and a second runtime that only the bare client uses.
struct Pair {
    node: Node,
    eyes: BareClient,
    bare: BareClient,
    bare_node: Node,
}

pub(crate) fn manifest(name: &str) -> Manifest {
    Manifest::new(name).container("main", SCRIPT).spec("hostNetwork: true")
}

pub(crate) fn measure(effort: &Effort, report: &mut Report) {
    let (node, bare_node) = (Node::start(), Node::with_runtime());
    let (eyes, bare) = (BareClient::new(&node), BareClient::new(&bare_node));
    let mut pair = Pair { node, eyes, bare, bare_node };
    pair.starts_and_restarts(effort.rounds, report);
    pair.crowds(effort.crowd_rounds, report);
    pair.first_pods(effort.rounds, report);
}

impl Pair {
    fn starts_and_restarts(&self, rounds: usize, report: &mut Report) {
        let (mut start, mut bare_start) = (vec![], vec![]);
        let (mut restart, mut bare_restart, mut notice) = (vec![], vec![], vec![]);
        for round in 0..rounds {
            let name = format!("one-{round}");
            bare_start.push(self.bare.start_one(&name));
            let begun = now();
            self.node.apply(&manifest(&name));
            let (id, started) = self.wait_running(&name, 1);
            start.push(between(begun, started));

            notice.push(self.bare.notice_end(&name, |id| self.bare_node.end_container(id)));
            bare_restart.push(self.bare.start_container_in(&name));
            let begun = now();
            self.node.end_container(&id);
            wait_for_lines(&self.node, &name, 2);
            let (_, started) = self.wait_known(&name, Some(&id));
            restart.push(between(begun, started));
            self.bare.clear();
            self.node.remove_manifest(&name);
            self.node.wait_until_gone(&name);
        }
        let (start, bare_start) = (Times::of(start), Times::of(bare_start));
        report.note("bare CRI calls for one pod", &bare_start);
        let limit = bare_start.median + Duration::from_millis(8);
        report.row("manifest written -> container running", &start, within(limit, "bare + 8"), start.median <= limit);
        let (restart, bare_restart) = (Times::of(restart), Times::of(bare_restart));
        let notice = Times::of(notice);
        report.note("the runtime records an exit", &notice);
        report.note("bare create and start of a container", &bare_restart);
        let limit = notice.median + bare_restart.median + Duration::from_millis(15);
        let what = "container killed -> replacement running";
        report.row(what, &restart, within(limit, "exit + bare + 15"), restart.median <= limit);
    }

    fn crowds(&self, rounds: usize, report: &mut Report) {
        let (mut together, mut bare_together) = (vec![], vec![]);
        for round in 0..rounds {
            let names: Vec<String> = (0..CROWD).map(|index| format!("crowd-{round}-{index}")).collect();
            bare_together.push(self.bare.start_crowd(&names));
            self.bare.clear();

            let begun = now();
            names.iter().for_each(|name| self.node.apply(&manifest(name)));
            let started = names.iter().map(|name| self.wait_running(name, 1).1).max().unwrap();
            together.push(between(begun, started));
            names.iter().for_each(|name| self.node.remove_manifest(name));
            names.iter().for_each(|name| self.node.wait_until_gone(name));
        }
        let (together, bare_together) = (Times::of(together), Times::of(bare_together));
        report.note(&format!("bare CRI calls for {CROWD} pods in parallel"), &bare_together);
        let limit = bare_together.median.mul_f64(1.05);
        let what = format!("{CROWD} manifests at once -> all running");
        report.row(&what, &together, within(limit, "bare × 1.05"), together.median <= limit);
    }

    /// Starts the process with a manifest in place. The result includes some milliseconds for entering the test's
    /// namespaces.
    fn first_pods(&mut self, rounds: usize, report: &mut Report) {
        let (mut first, mut bare_start) = (vec![], vec![]);
        for round in 0..rounds {
            let name = format!("first-{round}");
            self.node.stop_agent(Signal::SIGTERM);
            self.node.apply(&manifest(&name));
            bare_start.push(self.bare.start_one(&name));
            self.bare.clear();

            let begun = now();
            self.node.launch_agent();
            first.push(between(begun, self.wait_running(&name, 1).1));
            self.node.remove_manifest(&name);
            self.node.wait_until_gone(&name);
        }
        let (first, bare_start) = (Times::of(first), Times::of(bare_start));
        let limit = bare_start.median + Duration::from_millis(60);
        report.row("process start -> first pod running", &first, within(limit, "bare + 60"), first.median <= limit);
    }

    /// Waits for a line in the container's log, which causes no load, and then asks the runtime for the start time.
    fn wait_running(&self, name: &str, lines: usize) -> (String, i64) {
        wait_for_lines(&self.node, name, lines);
        self.wait_known(name, None)
    }

    /// A container may log before the runtime has recorded its start.
    fn wait_known(&self, name: &str, but: Option<&str>) -> (String, i64) {
        wait_for("the runtime to know the container as running", PATIENCE, || self.eyes.running(&pod_name(name), but))
    }
}

fn wait_for_lines(node: &Node, name: &str, lines: usize) {
    wait_for("the container's output", PATIENCE, || (node.container_log(name, "main").len() >= lines).then_some(()));
}

/// Durations of all rounds. The median is compared with the limit; the minimum shows the noise.
struct Times {
    median: Duration,
    best: Duration,
}

impl Times {
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort();
        Self { median: times[times.len() / 2], best: times[0] }
    }
}

impl std::fmt::Display for Times {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&format!("{} (best {})", millis(self.median), millis(self.best)))
    }
}

fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}

fn within(limit: Duration, how: &str) -> String {
    format!("at most {} ({how})", millis(limit))
}
