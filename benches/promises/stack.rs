//! The whole stack with ten pods: agent, containerd and shims, with the lean profile and as they come.
//!
//! PSS divides a page among all processes that map it: another containerd on this machine makes the values smaller.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::Effort;
use crate::bare_client::SCRIPT;
use crate::node::activity::Activity;
use crate::node::{Manifest, Node, Pods, shim_children};
use crate::report::Report;

const PODS: usize = 10;
/// In MB of 10^6 bytes.
const PSS_LIMIT: f64 = 73.0;
const ANONYMOUS_LIMIT: f64 = 25.0;
/// Go returns memory to the kernel in the background.
const SETTLE: Duration = Duration::from_secs(20);

pub(crate) fn measure(effort: &Effort, report: &mut Report) {
    report.note("other containerds and shims on the machine", others());
    measure_one("default", Node::bare(), effort, report);
    measure_one("lean", Node::bare_lean(), effort, report);
}

/// Puts the files of containerd on the disk, where they are on a board, and its state in memory.
fn put_on_disk(node: &Node) {
    let folder = node.folder().join("containerd").display().to_string();
    let line = format!("umount {folder}; mkdir {folder}/state; mount -t tmpfs tmpfs {folder}/state");
    node.enclosure().run(&["sh", "-ec", &line]);
}

fn measure_one(profile: &str, mut node: Node, effort: &Effort, report: &mut Report) {
    put_on_disk(&node);
    node.start_containerd();
    node.start_agent();
    let names: Vec<String> = (0..PODS).map(|index| format!("pod-{index}")).collect();
    let before = runtime(&node);
    let mut starts: Vec<Duration> = names.iter().map(|name| start(&node, name)).collect();
    node.wait_until("all pods are ready", |pods| ready(pods) == PODS);
    let started = Used::between(&before, &runtime(&node));
    starts.sort();
    std::thread::sleep(SETTLE);

    let of_agent = [Pss::of(Path::new(&format!("/proc/{}", node.agent_pid())))];
    let of_daemon = [Pss::of(&daemon(&node))];
    let shims = node.shims();
    let of_shims: Vec<Pss> = shims.iter().map(|shim| Pss::of(shim)).collect();
    let all = || of_agent.iter().chain(&of_daemon).chain(&of_shims);
    let what = |part: &str| format!("stack, {profile}: {part}");
    report.note(&what("agent, PSS (anonymous, files)"), parts(of_agent.iter()));
    report.note(&what("containerd"), parts(of_daemon.iter()));
    report.note(&what(&format!("{} shims", shims.len())), parts(of_shims.iter()));
    let (pss, anonymous) = (megabytes(all(), |one| one.all), megabytes(all(), |one| one.anonymous));
    if profile == "lean" {
        let limit = format!("at most {PSS_LIMIT:.0} ({ANONYMOUS_LIMIT:.0}, -)");
        report.row(&what("all, MB"), parts(all()), limit, pss <= PSS_LIMIT && anonymous <= ANONYMOUS_LIMIT);
    } else {
        report.note(&what("all, MB"), parts(all()));
    }
    let median = starts[starts.len() / 2].as_secs_f64() * 1000.0;
    report.note(&what("manifest written -> output"), format!("{median:.0} ms"));
    report.note(&what("containerd and shims write for a pod"), format!("{} KiB", started.written / 1024 / PODS as u64));

    let (before, agent) = (runtime(&node), Activity::of(node.agent_pid()));
    std::thread::sleep(effort.rest);
    let rest = Used::between(&before, &runtime(&node));
    let agent = Activity::of(node.agent_pid()).since(&agent).cpu;
    let percent = |time: Duration| time.as_secs_f64() / effort.rest.as_secs_f64() * 100.0;
    report.note(
        &what("CPU at rest, of it the agent"),
        format!("{:.3} ({:.3}) %", percent(rest.cpu + agent), percent(agent)),
    );
    report.note(&what("written at rest"), format!("{} bytes", rest.written));
    report.note(&what("a shim is killed -> its pods run"), killed_shim(&node, &shims[0]));
}

/// Starts a pod, and returns the time until the runtime has logged its first line.
fn start(node: &Node, name: &str) -> Duration {
    let begun = Timestamp::now();
    node.apply(&Manifest::new(name).container("main", SCRIPT).spec("hostNetwork: true"));
    node.wait_for_output(name, "main", "up").duration_since(begun).unsigned_abs()
}

fn ready(pods: &Pods) -> usize {
    pods.0.iter().filter(|pod| pod.is_ready()).count()
}

/// The time until every pod whose shim was killed runs in another container, and their number.
fn killed_shim(node: &Node, shim: &Path) -> String {
    let ids = |pods: &Pods| pods.0.iter().map(|pod| pod.container("main").id()).collect::<Vec<_>>();
    let before = ids(&node.pods());
    let sandboxes = shim_children(shim) / 2;
    let begun = Instant::now();
    node.kill_shim(shim);
    node.wait_until("the pods of the shim run again", |pods| {
        let anew = ids(pods).iter().zip(&before).filter(|(new, old)| new != old).count();
        anew >= sandboxes && ready(pods) == PODS
    });
    format!("{:.1} s, {sandboxes} pods", begun.elapsed().as_secs_f64())
}

/// Counters of containerd and its shims.
fn runtime(node: &Node) -> Vec<(PathBuf, Activity)> {
    let all = std::iter::once(daemon(node)).chain(node.shims());
    all.map(|process| {
        let activity = Activity::at(&process);
        (process, activity)
    })
    .collect()
}

struct Used {
    cpu: Duration,
    written: u64,
}

impl Used {
    /// Usage of the processes that ran at the end; a new one counts from its start.
    fn between(before: &[(PathBuf, Activity)], after: &[(PathBuf, Activity)]) -> Self {
        let mut used = Self { cpu: Duration::ZERO, written: 0 };
        for (process, now) in after {
            let then = before.iter().find(|(known, _)| known == process).map(|(_, activity)| activity);
            let done = now.since(then.unwrap_or(&Activity::default()));
            used.cpu += done.cpu;
            used.written += done.written;
        }
        used
    }
}

fn daemon(node: &Node) -> PathBuf {
    node.serving("containerd").pop().expect("containerd runs")
}

/// Memory of a process in KiB: shared pages count in parts.
struct Pss {
    all: u64,
    anonymous: u64,
    files: u64,
}

impl Pss {
    /// `process`: its directory in procfs.
    fn of(process: &Path) -> Self {
        let text = fs::read_to_string(process.join("smaps_rollup")).unwrap();
        let number = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap();
            line.split_whitespace().next().unwrap().parse().unwrap()
        };
        Self { all: number("Pss:"), anonymous: number("Pss_Anon:"), files: number("Pss_File:") }
    }
}

fn megabytes<'a>(memory: impl Iterator<Item = &'a Pss>, part: fn(&Pss) -> u64) -> f64 {
    memory.map(part).sum::<u64>() as f64 * 1024.0 / 1e6
}

fn parts<'a>(memory: impl Iterator<Item = &'a Pss> + Clone) -> String {
    let part = |part| megabytes(memory.clone(), part);
    format!("{:.1} ({:.1}, {:.1})", part(|one| one.all), part(|one| one.anonymous), part(|one| one.files))
}

/// Processes whose pages the measured ones share.
fn others() -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let programs = processes.filter_map(|process| fs::read_link(process.path().join("exe")).ok());
    programs
        .filter(|program| program.file_name().is_some_and(|name| name.to_string_lossy().starts_with("containerd")))
        .count()
}
