//! A burst of events on a watch.

use std::fs;

use serde_json::{Value, json};

use super::joined::{Joined, NODES};
use super::pods::{PODS, is_ready, pod};
use crate::fake_api::Options;

const PODS_THERE: usize = 20;
const EVENTS: usize = 10_000;
/// Memory growth allowed in an unoptimized build: one more buffer of each kind.
const MORE_MEMORY_KIB: u64 = 6 << 10;
/// Bytes the agent may send meanwhile: lease renewals and TCP acknowledgements, nothing per event.
const MORE_SENT: u64 = 300 << 10;

fn path(number: usize) -> String {
    format!("/api/v1/namespaces/default/pods/p{number}")
}

impl Joined {
    /// The peak and the current resident memory of the agent, in KiB.
    pub(crate) fn memory(&self) -> (u64, u64) {
        let status = fs::read_to_string(format!("/proc/{}/status", self.node.agent_pid())).unwrap();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().trim_end_matches(" kB").parse().unwrap()
        };
        (field("VmHWM:"), field("VmRSS:"))
    }
}

#[test]
fn burst_of_ten_thousand_events_converges_within_bounded_memory_and_traffic() {
    let mut joined = Joined::beside(Options { history: 2 * EVENTS, ..Options::default() });
    joined.start("crashLoopBackOff: {maxContainerRestartPeriod: 1s}\n", &[]);
    for number in 0..PODS_THERE {
        joined.api.create(&pod(&format!("p{number}"), &json!({})));
    }
    for number in 0..PODS_THERE {
        joined.api.wait(&path(number), "the pods to be ready", is_ready);
    }
    joined.wait_until_ready();
    let (before, (sent, _)) = (joined.running(), joined.api.traffic());
    let told = joined.api.count("patch", "*/status");
    let (_, memory) = joined.memory();
    for event in 0..EVENTS {
        let labels = json!({"metadata": {"labels": {"event": event.to_string()}}});
        joined.api.patch(&path(event % PODS_THERE), &labels);
        if event == EVENTS / 2 {
            joined.node.fake.exit("p1/main", 1);
        }
    }
    // The deletion is the last event of the burst.
    joined.api.delete(&path(0));
    joined.api.wait_gone(&path(0));
    let restarted = |pod: &Value| pod["status"]["containerStatuses"][0]["restartCount"] == 1 && is_ready(pod);
    joined.api.wait(&path(1), "the restart to be told", restarted);
    for number in 2..PODS_THERE {
        assert!(is_ready(&joined.api.get(&path(number)).unwrap()));
    }
    let running = joined.running();
    assert_eq!(before.iter().filter(|id| running.contains(id)).count(), PODS_THERE - 2);
    assert_eq!((running.len(), joined.lists(PODS), joined.lists(NODES)), (PODS_THERE - 1, 1, 1));
    let (most, _) = joined.memory();
    assert!(most < memory + MORE_MEMORY_KIB, "{most} KiB at most, {memory} KiB before");
    let patches = joined.api.count("patch", "*/status") - told;
    assert!(patches < 20, "{patches} patches");
    let (sent_then, _) = joined.api.traffic();
    assert!(sent_then - sent < MORE_SENT, "{} bytes sent", sent_then - sent);
}
