//! Update locks: an application keeps the node from stopping its pod.

use std::fs;
use std::path::Path;

use super::node::{Manifest, Node, PATIENCE, STAY, wait_for};
use super::versions::wait_for_version;

/// A version of the pod `web` that holds its lock as long as there is a file `busy`. Debian's busybox has no `flock`: it
/// is the host's.
fn manifest(node: &Node, version: &str, limit: &str) -> String {
    let script = format!(
        "/usr/bin/flock /state/lock sh -c 'echo locked; while [ -e /state/busy ]; do sleep 0.1; done'; echo released; \
         {STAY}"
    );
    let state = node.folder().join("state").display().to_string();
    let places = [("state", state.as_str()), ("usr", "/usr"), ("lib", "/usr/lib"), ("lib64", "/usr/lib64")];
    let places = places.iter().filter(|(_, path)| Path::new(path).exists());
    let volumes: Vec<_> =
        places.clone().map(|(name, path)| format!("{{name: {name}, hostPath: {{path: {path}}}}}")).collect();
    let mounts: Vec<_> = places.map(|(name, _)| format!("{{name: {name}, mountPath: /{name}}}")).collect();
    let mounts = format!("volumeMounts: [{}]", mounts.join(", "));
    let text = Manifest::new("web").container_with("main", &script, &mounts).spec("terminationGracePeriodSeconds: 1");
    let text = text.spec(&format!("volumes: [{}]", volumes.join(", "))).text();
    let annotations = format!("coracle.dev/update-lock: state/lock, coracle.dev/update-lock-limit: {limit}");
    let metadata = format!("metadata: {{name: web, labels: {{version: {version}}}, annotations: {{{annotations}}}}}");
    text.replace("metadata: {name: web}", &metadata)
}

/// A node whose application holds its lock, and gets a next version.
fn updated(limit: &str) -> Node {
    let node = Node::start();
    fs::create_dir(node.folder().join("state")).unwrap();
    for file in ["state/busy", "state/lock"] {
        fs::write(node.folder().join(file), "").unwrap();
    }
    node.write_manifest("web", &manifest(&node, "one", limit));
    wait_for_version(&node, "one");
    node.wait_for_output("web", "main", "locked");
    node.write_manifest("web", &manifest(&node, "two", limit));
    node
}

fn wait_until_held(node: &Node) {
    wait_for("the pod to be shown as held", PATIENCE, || {
        node.ask(&["pods"]).filter(|text| text.contains("held by the application since ")).map(drop)
    });
}

#[test]
fn locked_application_is_updated_when_it_releases_its_lock() {
    let mut node = updated("1h");
    wait_until_held(&node);
    let status = node.ask(&["status"]).unwrap();
    assert!(status.contains("60 min at most: the update waits"), "{status}");
    assert!(node.events("web").find("UpdateHeld", "The pod is held by the application").is_some());
    // A new agent waits too.
    node.kill_agent();
    node.start_agent();
    wait_until_held(&node);
    wait_for_version(&node, "one");
    fs::remove_file(node.folder().join("state/busy")).unwrap();
    wait_for_version(&node, "two");
    node.wait_for_output("web", "main", "released");
}

#[test]
fn update_of_a_locked_application_goes_on_at_its_limit() {
    let node = updated("7s");
    wait_until_held(&node);
    wait_for_version(&node, "two");
    // Of the former pod.
    let events = node.ask(&["events"]).unwrap();
    assert!(events.contains("UpdateLockExpired") && events.contains("its limit: the node goes on"), "{events}");
    assert!(node.folder().join("state/busy").exists());
}
