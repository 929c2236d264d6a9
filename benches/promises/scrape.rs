//! The cost of serving metrics.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use crate::Effort;
use crate::latency::manifest;
use crate::node::Node;
use crate::node::activity::Activity;
use crate::report::Report;

const PODS: usize = 30;
/// The default maximum of pods on a node.
const FULL_NODE_PODS: usize = 110;

/// Measures the agent's own CPU time. Where pods have no pod cgroups, the runtime's CPU time for CRI stats is
/// additional.
pub(crate) fn measure(effort: &Effort, report: &mut Report) {
    let node = Node::start();
    (0..PODS).for_each(|index| node.apply(&manifest(&format!("pod-{index}"))));
    node.wait_until("all pods are ready", |seen| seen.0.iter().filter(|pod| pod.is_ready()).count() == PODS);
    for path in ["/stats/summary", "/metrics/cadvisor", "/metrics/resource", "/metrics"] {
        // The first scrape is slower: it pages in code and allocates buffers.
        scrape(&node, path);
        let times = effort.rounds * 2;
        let before = Activity::of(node.agent_pid());
        let mut length = 0;
        (0..times).for_each(|_| length = scrape(&node, path));
        let done = Activity::of(node.agent_pid()).since(&before);
        let each = done.cpu.as_secs_f64() * 1000.0 / times as f64;
        let all = each * FULL_NODE_PODS as f64 / PODS as f64;
        let what = format!("{path}, {PODS} pods, {length} bytes");
        report.row(&what, format!("{each:.2} ms"), format!("at most 20 for {FULL_NODE_PODS}: {all:.1}"), all <= 20.0);
    }
}

fn scrape(node: &Node, path: &str) -> usize {
    let mut stream = UnixStream::connect(node.folder().join("coracle.sock")).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&answer));
    answer.len()
}
