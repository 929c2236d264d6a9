//! Memory, CPU, wake-ups and disk writes of an idle agent.

use std::fs;
use std::time::Duration;

use crate::Effort;
use crate::latency::manifest;
use crate::node::Node;
use crate::node::activity::{Activity, Memory};
use crate::report::Report;

const PODS: usize = 30;
const FEW: usize = 10;

pub(crate) fn measure(effort: &Effort, report: &mut Report) {
    let node = Node::start();
    let mut resident = Vec::new();
    for pods in [0, FEW, PODS] {
        grow(&node, pods);
        // The work that follows a start, such as status updates and garbage collection, is over by then.
        std::thread::sleep(SETTLE);
        let memory = Memory::of(node.agent_pid());
        report
            .note(&format!("RSS with {pods} pods (its own part, PSS)"), format!("{} ({}) KiB", memory.rss, memory.pss));
        resident.push(memory.rss);
    }
    let most = *resident.last().unwrap();
    report.row(&format!("RSS with {PODS} pods"), format!("{most} KiB"), "at most 6144", most <= 6144);
    // The first pods also page in the code that serves pods, which is not a cost per pod.
    let each = most.saturating_sub(resident[1]) as f64 / (PODS - FEW) as f64;
    report.row("RSS for each further pod", format!("{each:.1} KiB"), "at most 40", each <= 40.0);
    rest(&node, effort.rest, report);
}

const SETTLE: Duration = Duration::from_secs(10);

fn grow(node: &Node, pods: usize) {
    (0..pods).for_each(|index| node.apply(&manifest(&format!("pod-{index}"))));
    node.wait_until("all pods are ready", |seen| seen.0.iter().filter(|pod| pod.is_ready()).count() == pods);
}

fn rest(node: &Node, time: Duration, report: &mut Report) {
    let (before, busy) = (Activity::of(node.agent_pid()), machine_busy());
    std::thread::sleep(time);
    let (done, busy) = (Activity::of(node.agent_pid()).since(&before), machine_busy() - busy);
    report.note("the whole machine meanwhile", format!("{:.1} % of a core", busy / time.as_secs_f64() * 100.0));
    let seconds = time.as_secs_f64();
    let cpu = done.cpu.as_secs_f64() / seconds * 100.0;
    report.row(&format!("CPU at rest, {PODS} pods, {seconds} s"), format!("{cpu:.4} %"), "at most 0.03", cpu <= 0.03);
    let wakes = done.wakes as f64 / seconds;
    report.row("wake-ups at rest", format!("{wakes:.2} per s"), "at most 1", wakes <= 1.0);
    report.row("written to disk at rest", format!("{} bytes", done.written), "0", done.written == 0);
}

/// CPU time of the whole machine since boot, in seconds.
fn machine_busy() -> f64 {
    let text = fs::read_to_string("/proc/stat").unwrap();
    let ticks = text.lines().next().unwrap().split_whitespace().skip(1).map(|word| word.parse::<u64>().unwrap());
    // user nice system idle iowait irq softirq; a tick is 10 ms.
    let busy: u64 =
        ticks.take(7).enumerate().filter(|(index, _)| !matches!(index, 3 | 4)).map(|(_, ticks)| ticks).sum();
    busy as f64 / 100.0
}
