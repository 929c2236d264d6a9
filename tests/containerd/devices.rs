//! Devices of the node in containers, without a device plugin.

use std::fs;
use std::process::Command;

use super::node::{Manifest, Node, STAY};

/// Creates a device node like /dev/zero under a name that no container has by default.
fn plug_in(node: &Node, name: &str, minor: &str) {
    let path = node.folder().join(name);
    assert!(Command::new("mknod").arg(path).args(["c", "1", minor]).status().unwrap().success());
}

fn wanting(node: &Node, name: &str, camera: &str) -> Manifest {
    let path = node.folder().join(camera);
    let script = format!("[ -c {0} ] && head -c 3 {0} | wc -c; {STAY}", path.display());
    let limits = "resources: {limits: {\"example.com/camera\": 1}}";
    Manifest::new(name).container_with("main", &script, limits)
}

#[test]
fn container_sees_its_device_even_if_plugged_in_later() {
    let mut node = Node::with_runtime();
    let rules = node.folder().join("coracle.yaml");
    let paths = node.folder().join("camera*");
    let text = format!("devices: [{{resource: example.com/camera, paths: [{:?}]}}]\n", paths.display().to_string());
    fs::write(&rules, text).unwrap();
    plug_in(&node, "camera0", "5");
    node.add_arguments(&["--coracle-config", &rules.display().to_string()]);
    node.start_agent();
    node.apply(&wanting(&node, "one", "camera0"));
    node.wait_for_output("one", "main", "3");
    node.apply(&wanting(&node, "two", "camera1"));
    node.wait_until("the second waits", |_| node.agent_log().contains("Requested: 1, Available: 0"));
    // Devices are identified by their numbers, not by their names.
    plug_in(&node, "camera1", "9");
    node.wait_for_output("two", "main", "3");

    // The running containers suffice to rebuild the allocations.
    let checkpoint = node.folder().join("pods/device-plugins/kubelet_internal_checkpoint");
    let entries = || -> Option<Vec<String>> {
        let file: serde_json::Value = serde_json::from_str(&fs::read_to_string(&checkpoint).ok()?).ok()?;
        let entries = file["Data"]["PodDeviceEntries"].as_array()?.iter().map(ToString::to_string);
        let mut entries: Vec<String> = entries.collect();
        entries.sort();
        Some(entries)
    };
    let written = entries();
    assert_eq!(written.as_ref().map(Vec::len), Some(2));
    let before = ["one", "two"].map(|name| node.running_containers(name));
    node.kill_agent();
    fs::remove_file(&checkpoint).unwrap();
    node.start_agent();
    node.wait_until("the checkpoint is as before", |_| entries() == written);
    assert_eq!(["one", "two"].map(|name| node.running_containers(name)), before);
}

#[test]
fn container_gets_the_device_with_the_attributes_that_its_pod_selects() {
    let mut node = Node::with_runtime();
    let rules = node.folder().join("coracle.yaml");
    let rule = |resource: &str, paths: &str, attributes: &str| {
        let paths = node.folder().join(paths).display().to_string();
        format!("- {{resource: {resource}, paths: [{paths:?}], attributes: {{{attributes}}}}}\n")
    };
    let cameras = rule("example.com/camera", "camera*", "firmware: '2.10'");
    fs::write(&rules, format!("devices:\n{cameras}{}", rule("example.com/line", "line*", ""))).unwrap();
    // Like /dev/null and /dev/zero: sysfs gives their names.
    plug_in(&node, "camera0", "3");
    plug_in(&node, "camera1", "5");
    node.add_arguments(&["--coracle-config", &rules.display().to_string()]);
    node.start_agent();
    let apply = |name: &str, selectors: &str| {
        let selectors = format!("\"{{example.com/camera: {{{selectors}}}}}\"");
        let metadata = format!("{{name: {name}, annotations: {{coracle.dev/device-selectors: {selectors}}}}}");
        let text = wanting(&node, name, "camera1").text();
        node.write_manifest(name, &text.replace(&format!("{{name: {name}}}"), &metadata));
    };
    apply("one", "kernelName: [zero, full], subsystem: mem, firmware: '>=2.9'");
    node.wait_for_output("one", "main", "3");
    let listed = node.ask(&["devices"]).unwrap();
    let row = |name: &str| listed.lines().find(|line| line.contains(name)).unwrap_or_default().to_owned();
    assert!(row("camera1").contains("one-") && row("camera1").contains("kernelName=zero"), "{listed}");
    assert!(row("camera0").contains("<none>") && row("camera0").contains("firmware=2.10"), "{listed}");

    apply("two", "firmware: '>=3'");
    node.wait_until("it waits", |_| node.agent_log().contains("Requested: 1, Available: 0 (as the pod selects)"));
    apply("three", "firmware: '>=x'");
    node.wait_until("it is refused", |_| node.agent_log().contains("expected versions as"));
    assert!(node.running_containers("two").is_empty() && node.running_containers("three").is_empty());
}
