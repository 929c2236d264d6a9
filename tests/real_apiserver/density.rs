//! A full node in a cluster.

use std::io::Write as _;
use std::time::Duration;

use serde_json::Value;

use super::cluster::{Cluster, condition};
use super::control_plane::Assets;
use super::crowd::{Crowd, LeaseWatch, PODS, Rest};

/// The controller that evicts pods waits for 50 seconds without a renewal.
const OLDEST_LEASE: Duration = Duration::from_secs(15);
/// A busy machine may take several times as long as the promise on a quiet one.
const MAX_START_TIME: Duration = Duration::from_secs(150);
/// Upstream syncs a pod after a minute at the latest, and half a minute of jitter.
const MAX_CHANGE_TIME: Duration = Duration::from_secs(90);
/// Events and statuses have been sent by then.
const SETTLE: Duration = Duration::from_secs(5);
const RENEWALS: usize = 3;

#[test]
fn full_node_starts_its_pods_and_keeps_its_lease() {
    let name = "full_node_starts_its_pods_and_keeps_its_lease";
    let Some(assets) = Assets::find(name, &[]) else { return };
    let mut cluster = Cluster::with_defaults(assets);
    cluster.node.start_agent();
    cluster.wait_until_ready();
    let lease = LeaseWatch::start(&cluster);

    let mut crowd = Crowd::start(&cluster);
    figure("last of all containers started after", &seconds(crowd.until_running), "30 s on a quiet machine");
    figure("API server has all pods ready after", &seconds(crowd.until_ready), "");
    let change = crowd.change_objects(&cluster);
    figure("last file follows its object after", &seconds(change), "90 s");
    crowd.replace_greedy(&cluster);
    std::thread::sleep(SETTLE);
    let rest = Rest::measure(&cluster.node, &lease, RENEWALS);
    figure("RSS", &format!("{} KiB", rest.memory), "13312 KiB, release build");
    figure("CPU at rest", &format!("{:.4} %", rest.cpu()), "0.03 %, release build");
    figure("wake-ups at rest", &format!("{:.2} per s", rest.wakes_per_second()), "2 per s");
    figure("network per day at rest", &format!("{:.1} MB", rest.megabytes_per_day()), "25 MB");

    let oldest = lease.oldest(&cluster.node);
    figure("greatest age of the lease", &seconds(oldest), "15 s");
    assert!(oldest <= OLDEST_LEASE, "{oldest:?}");
    assert!(crowd.until_ready <= MAX_START_TIME, "{:?}", crowd.until_ready);
    assert!(change <= MAX_CHANGE_TIME, "{change:?}");
    check_pods(&cluster);
    cluster.assert_that_nothing_was_forbidden();
}

/// Each pod has its own token, and nothing was restarted.
#[track_caller]
fn check_pods(cluster: &Cluster) {
    let pods = cluster.get(&["pods"])["items"].as_array().unwrap().clone();
    let mut tokens: Vec<String> =
        pods.iter().filter_map(|pod| cluster.volume_file(pod, "kubernetes.io~projected", "token")).collect();
    tokens.sort();
    tokens.dedup();
    assert_eq!(tokens.len(), PODS);
    for pod in &pods {
        assert_eq!(condition(pod, "Ready")["status"], "True", "{pod:#}");
        assert_eq!(restarts(pod), 0, "{pod:#}");
    }
}

fn restarts(pod: &Value) -> u64 {
    pod["status"]["containerStatuses"][0]["restartCount"].as_u64().unwrap()
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// Prints a figure beside its limit. The test harness hides standard output of passing tests.
fn figure(what: &str, measured: &str, limit: &str) {
    let _ = writeln!(std::io::stderr(), "{PODS} pods: {what:<38} {measured:>12}   {limit}");
}
