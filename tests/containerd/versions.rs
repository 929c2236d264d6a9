//! Rollout gates: new manifest versions and rollbacks.

use std::fs;

use serde_json::Value;

use super::node::{Manifest, Node, PATIENCE, Pods, STAY, wait_for};

/// A version of the pod `web` that prints its version. Unless `is_ever_ready`, its probe waits for a file that never
/// appears.
fn manifest(version: &str, within: &str, is_ever_ready: bool) -> String {
    let probe =
        if is_ever_ready { "" } else { "readinessProbe: {exec: {command: [test, -e, /ready]}, periodSeconds: 1}" };
    let text = Manifest::new("web").container_with("main", &format!("echo {version}; {STAY}"), probe).text();
    let annotations = format!("metadata: {{name: web, labels: {{version: {version}}}, annotations: {{{within}}}}}");
    text.replace("metadata: {name: web}", &annotations)
}

fn gated(version: &str, seconds: u32, is_ever_ready: bool) -> String {
    manifest(version, &format!("coracle.dev/ready-within: {seconds}s"), is_ever_ready)
}

fn version(pods: &Pods) -> Option<String> {
    pods.get("web")?.json()["metadata"]["labels"]["version"].as_str().map(str::to_owned)
}

pub(super) fn wait_for_version(node: &Node, wanted: &str) {
    node.wait_until(&format!("version {wanted} is ready"), |pods| {
        version(pods).as_deref() == Some(wanted) && pods.has("web", |pod| pod.is_ready())
    });
}

fn wait_for_trial(node: &Node, wanted: &str) {
    node.wait_until(&format!("version {wanted} runs on trial"), |pods| {
        version(pods).as_deref() == Some(wanted) && pods.has("web", |pod| pod.container("main").is_running())
    });
}

/// The state of the pod's versions in the status.
fn state(node: &Node) -> String {
    let status: Value = serde_json::from_str(&node.ask(&["status", "-o", "json"]).expect("it answers")).unwrap();
    let versions = status["versions"].as_array().unwrap();
    let found = versions.iter().find(|one| one["pod"] == "default/web-node-a");
    found.map_or("unknown", |one| one["state"].as_str().unwrap()).to_owned()
}

fn wait_for_state(node: &Node, wanted: &str) {
    wait_for(&format!("the version to be {wanted:?}"), PATIENCE, || (state(node) == wanted).then_some(()));
}

fn wait_for_event(node: &Node, reason: &str, message: &str) {
    wait_for(reason, PATIENCE, || node.events("web").find(reason, message).map(drop));
}

/// Waits until the decision is stored on disk.
fn wait_until_kept(node: &Node, what: &str) {
    let file = node.folder().join("pods/coracle/versions/default_web-node-a.json");
    wait_for("it to be written", PATIENCE, || fs::read_to_string(&file).ok()?.contains(what).then_some(()));
}

fn said(node: &Node, line: &[&str]) -> (Option<i32>, String) {
    let done = node.coracle(line[0], &line[1..]).output().unwrap();
    let text = if done.status.success() { done.stdout } else { done.stderr };
    (done.status.code(), String::from_utf8(text).unwrap())
}

#[test]
fn version_that_never_becomes_ready_is_rolled_back() {
    let mut node = Node::start();
    node.write_manifest("web", &gated("one", 60, true));
    wait_for_version(&node, "one");
    node.write_manifest("web", &gated("two", 60, true));
    wait_for_version(&node, "two");
    wait_for_state(&node, "");
    wait_for_event(&node, "UpdateAccepted", "The new version is ready");

    // A busy machine may not have started its container when the trial ends, so nothing waits for the trial itself.
    node.write_manifest("web", &gated("three", 15, false));
    let why = "The new version is rejected, it was not ready within 15s; the previous version is restored";
    wait_for_event(&node, "UpdateRejected", why);
    wait_for_version(&node, "two");
    assert_eq!(state(&node), "rejected");
    let status = node.ask(&["status"]).unwrap();
    assert!(status.contains("\nVersions:\n  default/web-node-a: rejected: "), "{status}");
    assert!(node.ask(&["describe", "web"]).unwrap().contains("rejected: the manifest's version was not ready in time"));

    // Neither a new agent nor a power cut tries the rejected version again.
    wait_until_kept(&node, "rejected");
    let before = node.pods().get("web").unwrap().container("main").id().to_owned();
    node.kill_agent();
    node.start_agent();
    let pods = node.wait_until("the pod is known again", |pods| pods.has("web", |pod| pod.is_ready()));
    assert_eq!(pods.get("web").unwrap().container("main").id(), before, "it was restarted");
    assert_eq!(state(&node), "rejected");
    node.cut_power();
    node.start_containerd();
    node.start_agent();
    wait_for_version(&node, "two");

    node.write_manifest("web", &gated("four", 60, true));
    wait_for_version(&node, "four");
    wait_for_state(&node, "");
}

#[test]
fn next_agent_continues_a_trial() {
    let mut node = Node::start();
    node.write_manifest("web", &gated("one", 60, true));
    wait_for_version(&node, "one");
    wait_until_kept(&node, "one");
    let two = gated("two", 3600, false).replacen("spec:\n", "spec:\n  restartPolicy: Never\n", 1);
    node.write_manifest("web", &two);
    wait_for_trial(&node, "two");
    wait_until_kept(&node, "starts");
    node.kill_agent();
    node.start_agent();
    wait_for_state(&node, "on trial");
    node.kill_container("web", "main");
    wait_for_version(&node, "one");
    assert_eq!(state(&node), "rejected");
}

#[test]
fn versions_can_be_rolled_back_held_and_confirmed_manually() {
    let mut node = Node::start();
    for version in ["one", "two", "three"] {
        node.write_manifest("web", &manifest(version, "", true));
        wait_for_version(&node, version);
    }
    let done = |word: &str| (Some(0), format!("pod default/web-node-a {word}\n"));
    let (code, error) = said(&node, &["rollback", "web", "--to", "3"]);
    let told = "coracle: pod default/web-node-a: 2 earlier versions of it are kept: expected --to 1 to 2\n";
    assert_eq!((code, error.as_str()), (Some(1), told));
    assert_eq!(said(&node, &["rollback", "web", "--to", "2"]), done("rolled back"));
    wait_for_version(&node, "one");
    assert_eq!(state(&node), "rolled back");
    node.kill_agent();
    node.start_agent();
    wait_for_version(&node, "one");
    assert_eq!(said(&node, &["confirm", "web"]), done("confirmed"));
    wait_for_version(&node, "three");
    assert_eq!(said(&node, &["rollback", "web"]), done("rolled back"));
    wait_for_version(&node, "one");

    // A new manifest ends a rollback but not a hold.
    node.write_manifest("web", &manifest("four", "", true));
    wait_for_version(&node, "four");
    assert_eq!(said(&node, &["hold", "web"]), done("held"));
    let before = node.pods().get("web").unwrap().container("main").id().to_owned();
    node.write_manifest("web", &manifest("five", "", true));
    wait_for("the other manifest to be seen", PATIENCE, || {
        node.ask(&["describe", "web"]).filter(|text| text.contains("held: the manifest has changed; ")).map(drop)
    });
    node.kill_agent();
    node.start_agent();
    let pods = node.wait_until("the pod is known again", |pods| pods.has("web", |pod| pod.is_ready()));
    assert_eq!((version(&pods).as_deref(), pods.get("web").unwrap().container("main").id()), (Some("four"), before));
    assert_eq!(said(&node, &["confirm", "web"]), done("confirmed"));
    wait_for_version(&node, "five");

    // A trial can be ended at once, with either result.
    node.write_manifest("web", &gated("six", 3600, false));
    wait_for_trial(&node, "six");
    assert_eq!(state(&node), "on trial");
    assert_eq!(said(&node, &["hold", "web"]).0, Some(1));
    assert_eq!(said(&node, &["rollback", "web"]), done("rolled back"));
    wait_for_version(&node, "five");
    assert_eq!(said(&node, &["confirm", "web"]), done("confirmed"));
    wait_for_trial(&node, "six");
    assert_eq!(state(&node), "");
}

#[test]
fn invalid_gate_is_an_error_and_applied_pods_have_versions() {
    let node = Node::start();
    node.write_manifest("web", &manifest("one", "coracle.dev/ready-within: soon", true));
    wait_for("the error", PATIENCE, || node.source_errors().contains("coracle.dev/ready-within").then_some(()));
    let wanted = "must be a whole number of s, m or h, as 60s, up to 24h";
    assert!(node.source_errors().contains(wanted), "{}", node.source_errors());
    node.remove_manifest("web");

    let apply = |text: &str| {
        let file = node.folder().join("applied.yaml");
        fs::write(&file, text).unwrap();
        said(&node, &["apply", "-f", &file.display().to_string()])
    };
    assert_eq!(apply(&gated("one", 60, true)).0, Some(0));
    wait_for_version(&node, "one");
    assert_eq!(apply(&gated("two", 3, false)).0, Some(0));
    wait_for_state(&node, "rejected");
    wait_for_version(&node, "one");
    assert_eq!(said(&node, &["delete", "web", "--wait"]).0, Some(0));
    node.wait_until_gone("web");
    wait_for("its versions to go", PATIENCE, || {
        (fs::read_dir(node.folder().join("pods/coracle/versions")).unwrap().count() == 0).then_some(())
    });
}
