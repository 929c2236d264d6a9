//! A full node in a cluster. Needs the programs in `KUBEBUILDER_ASSETS`.

use std::time::Duration;

use crate::Effort;
use crate::cluster::Cluster;
use crate::control_plane::Assets;
use crate::crowd::{Crowd, LeaseWatch, PODS, Rest};
use crate::report::Report;

const SETTLE: Duration = Duration::from_secs(30);
/// The agent renews its lease this often.
const RENEWAL: Duration = Duration::from_secs(10);

pub(crate) fn measure(effort: &Effort, report: &mut Report) {
    let rows = format!("{PODS} pods in a cluster (start, lease, memory, CPU, wake-ups, network)");
    let Some(assets) = Assets::find(&rows, &[]) else { return };
    let mut cluster = Cluster::with_defaults(assets);
    cluster.node.start_agent();
    cluster.wait_until_ready();
    let lease = LeaseWatch::start(&cluster);
    let mut crowd = Crowd::start(&cluster);
    let change = crowd.change_objects(&cluster);
    crowd.replace_greedy(&cluster);
    std::thread::sleep(SETTLE);
    let renewals = effort.rest.as_secs() / RENEWAL.as_secs();
    let rest = Rest::measure(&cluster.node, &lease, usize::try_from(renewals).unwrap());
    let oldest = lease.oldest(&cluster.node);

    let seconds = |time: Duration| format!("{:.1} s", time.as_secs_f64());
    let mut row = |what: &str, measured: String, limit: &str, holds: bool| {
        report.row(&format!("{PODS} pods in a cluster: {what}"), measured, limit, holds);
    };
    let running = crowd.until_running;
    row("bind to running", seconds(running), "at most 30", running <= Duration::from_secs(30));
    row("changed objects in files", seconds(change), "at most 90", change <= Duration::from_secs(90));
    row("age of the lease", seconds(oldest), "at most 15", oldest <= Duration::from_secs(15));
    row("RSS", format!("{} KiB", rest.memory), "at most 13312", rest.memory <= 13312);
    row("CPU at rest", format!("{:.4} %", rest.cpu()), "at most 0.03", rest.cpu() <= 0.03);
    let wakes = rest.wakes_per_second();
    row("wake-ups at rest", format!("{wakes:.2} per s"), "at most 2", wakes <= 2.0);
    let bytes = rest.megabytes_per_day();
    row("network per day", format!("{bytes:.1} MB"), "at most 25", bytes <= 25.0);
}
