//! Upgrades of the agent that its cluster asks for.

use std::fs;
use std::process::Command;

use serde_json::json;

use super::joined::{Joined, NODE, condition};
use crate::faults::upgrades::{file_server, key_and_signature};

#[test]
fn annotated_program_that_cannot_run_is_fetched_once_and_reported() {
    let mut joined = Joined::new();
    let folder = joined.node.folder().to_owned();
    let served = folder.join("served");
    fs::create_dir(&served).unwrap();
    fs::write(served.join("coracle"), "no program").unwrap();
    let (key, signature) = key_and_signature(&served.join("coracle"));
    fs::write(folder.join("key"), key).unwrap();
    let key = folder.join("key").display().to_string();
    let url = format!("{}/coracle", file_server(served.clone()));
    let start = |joined: &mut Joined| {
        // The key is that of manifests, which nobody serves here.
        joined.start("", &["--manifest-url", "http://127.0.57.2:9/x", "--manifest-public-key", &key]);
    };
    start(&mut joined);
    joined.wait_until_ready();
    fs::write(served.join("coracle.sig"), &signature).unwrap();
    joined.api.patch(NODE, &json!({"metadata": {"annotations": {"coracle.dev/upgrade": url}}}));
    let why = format!("{url} rejected: it is not a program for Linux (no ELF header); the former one runs");
    let node = joined.api.wait(NODE, "the report", |node| {
        node["metadata"]["annotations"]["coracle.dev/upgrade-status"] == *why
            && condition(node, "AgentUpgraded")["status"] == "False"
    });
    assert_eq!(condition(&node, "AgentUpgraded")["message"], *why);
    assert_eq!(node["metadata"]["annotations"]["coracle.dev/upgrade-tried"], *url);
    assert_eq!(condition(&node, "Ready")["status"], "True");
    // Neither a restart nor a good file at the same URL repeats it.
    joined.node.kill_agent();
    fs::write(served.join("coracle.sig"), "another").unwrap();
    joined.api.patch(NODE, &json!({"metadata": {"annotations": {"coracle.dev/upgrade-status": "lost"}}}));
    start(&mut joined);
    joined.api.wait(NODE, "the report of the former trial", |node| {
        node["metadata"]["annotations"]["coracle.dev/upgrade-status"] == *why
    });
    assert!(!joined.node.log().contains("failed to fetch update"), "{}", joined.node.log());
    // A configuration is another wish.
    fs::write(served.join("config"), "maxPods: 7\n").unwrap();
    fs::write(served.join("config.sig"), key_and_signature(&served.join("config")).1).unwrap();
    let url = url.replace("/coracle", "/config");
    joined.api.patch(NODE, &json!({"metadata": {"annotations": {"coracle.dev/config": url}}}));
    let why = format!("{url} rejected: expected a KubeletConfiguration; the former one runs");
    joined.api.wait(NODE, "the report of the configuration", |node| {
        node["metadata"]["annotations"]["coracle.dev/upgrade-status"] == *why
    });
}

#[test]
fn verdict_on_the_runtimes_configuration_is_reported_at_once_and_after_a_restart() {
    let mut joined = Joined::new();
    joined.start("", &[]);
    joined.wait_until_ready();
    let folder = joined.node.folder().to_owned();
    let [file, candidate] = ["runtime.toml", "candidate.toml"].map(|name| folder.join(name));
    fs::write(&file, "former").unwrap();
    let restart = format!("! grep -q bad {}", file.display());
    let apply = |content: &str| {
        fs::write(&candidate, content).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_coracle"));
        command.args(["runtime-config", "containerd", "--within", "5s", "--restart-command", &restart]);
        command.arg("--apply").arg(&candidate).arg("--file").arg(&file);
        command.arg("--root-dir").arg(folder.join("pods")).arg("--local-socket").arg(folder.join("coracle.sock"));
        command.output().unwrap().status.success()
    };
    let wait = |status: &str, line: &str| {
        let node = joined.api.wait(NODE, "the verdict", |node| {
            node["metadata"]["annotations"]["coracle.dev/upgrade-status"] == *line
                && condition(node, "AgentUpgraded")["status"] == *status
        });
        assert_eq!(condition(&node, "AgentUpgraded")["message"], *line);
    };
    assert!(apply("new"));
    wait("True", &format!("runtime's {} accepted", file.display()));
    assert!(!apply("bad"));
    let rejected = format!("runtime's {} rejected: {restart}: exit status: 1; the former one is back", file.display());
    wait("False", &rejected);
    assert_eq!(fs::read_to_string(&file).unwrap(), "new");

    joined.node.kill_agent();
    joined.api.patch(NODE, &json!({"metadata": {"annotations": {"coracle.dev/upgrade-status": "lost"}}}));
    joined.start("", &[]);
    joined.api.wait(NODE, "the report after the restart", |node| {
        node["metadata"]["annotations"]["coracle.dev/upgrade-status"] == *rejected
    });
}
