//! A log whose reader has stopped.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use super::node::{Manifest, Node};

#[test]
fn blocked_log_delays_nothing_and_lost_lines_are_counted() {
    let mut node = Node::new();
    let log = node.start_agent_with(|command| {
        command.stderr(Stdio::piped());
    });
    // Each manifest logs a line, and a pipe holds 64 KiB.
    for number in 0..600 {
        node.write_manifest(&format!("broken-{number}"), &format!("{{ {}", "[".repeat(100)));
    }
    node.apply(&Manifest::new("web").container("main", ""));
    node.wait_until_ready("web");
    let mut lines = BufReader::new(log.unwrap()).lines().map(Result::unwrap);
    // The reader resumes, and the agent logs something.
    node.remove_all_manifests();
    assert!(lines.any(|line| line.starts_with("warn log lines lost lines=")));
    assert!(lines.any(|line| line.starts_with("info pod gone")));
}
