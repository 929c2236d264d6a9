//! `coracle doctor` beside a real containerd, without an agent and with one.

use std::process::Command;

use serde_json::Value;

use super::node::{Node, coracle};

/// The exit status and the checks.
fn doctor(node: &Node, flags: &[&str]) -> (Option<i32>, Vec<Value>) {
    let mut command: Command = node.enclosure().command(coracle());
    command.args(["doctor", "-o", "json", "--local-socket"]).arg(node.folder().join("coracle.sock"));
    let output = command.args(flags).output().unwrap();
    let result: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    (output.status.code(), result["checks"].as_array().unwrap().clone())
}

#[track_caller]
fn find<'a>(checks: &'a [Value], check: &str, words: &str) -> &'a Value {
    let is_it = |one: &&Value| one["check"] == check && one["text"].as_str().unwrap().contains(words);
    checks.iter().find(is_it).unwrap_or_else(|| panic!("no {check} with {words:?}: {checks:#?}"))
}

#[test]
fn doctor_finds_the_runtime_before_the_agent_runs_and_the_agents_ports_afterwards() {
    let mut node = Node::with_runtime();
    let endpoint = format!("unix://{}", node.runtime_socket().display());
    let root_dir = node.folder().join("none").display().to_string();
    let (_, checks) = doctor(
        &node,
        &["--", "--root-dir", &root_dir, "--container-runtime-endpoint", &endpoint, "--healthz-port", "10248"],
    );
    assert_eq!(find(&checks, "runtime", "containerd ")["verdict"], "ok");
    assert_eq!(find(&checks, "pod network", "bridge")["verdict"], "ok");
    assert_eq!(find(&checks, "kernel features", "overlay")["verdict"], "ok");
    assert_eq!(find(&checks, "ports", "10248 (health) is free")["verdict"], "ok");
    node.start_agent();
    let (status, checks) = doctor(&node, &[]);
    assert!([Some(0), Some(3)].contains(&status), "{status:?}: {checks:#?}");
    assert_eq!(find(&checks, "ports", "10248 (health) is served by this agent")["verdict"], "ok");
    assert_eq!(find(&checks, "runtime", "containerd ")["verdict"], "ok");
}
