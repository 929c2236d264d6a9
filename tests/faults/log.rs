//! A log that nobody takes.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::node::{Manifest, Node};

#[test]
fn a_log_that_nobody_takes_holds_up_nothing_and_its_lost_lines_are_counted() {
    let mut node = Node::new();
    let log = node.start_agent_with(|command| {
        command.stderr(Stdio::piped());
    });
    // Each is told in a line of its own, and a pipe takes 64 KiB.
    for number in 0..600 {
        node.write_manifest(&format!("broken-{number}"), &format!("{{ {}", "[".repeat(100)));
    }
    node.apply(&Manifest::new("web").container("main", ""));
    node.wait_until_ready("web");
    let mut lines = BufReader::new(log.unwrap()).lines().map(Result::unwrap);
    // Somebody takes it now, and something is to be told.
    node.remove_all_manifests();
    assert!(lines.any(|line| line.starts_with("warn log lines lost lines=")));
    assert!(lines.any(|line| line.starts_with("info pod gone")));
}
