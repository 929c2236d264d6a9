//! Devices in the node status and in pods.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::joined::{Joined, NODE, STATUS};
use super::pods::{WEB, pod};
use crate::device_plugin::Plugin;
use crate::fake_cri::State;

const CAMERA: &str = "example.com/camera";

/// A node whose device plugin has reported these devices.
fn with_plugin(ids: &[&str]) -> (Joined, Plugin) {
    let mut joined = Joined::new();
    joined.start("", &[]);
    joined.wait_until_ready();
    let directory = joined.node.folder().join("pods/device-plugins");
    let plugin = Plugin::start(&directory.join("camera.sock"), ids);
    plugin.register(&kubelet(&joined), CAMERA);
    let count = ids.len().to_string();
    joined.wait_for_amounts(&count, &count);
    (joined, plugin)
}

fn kubelet(joined: &Joined) -> PathBuf {
    joined.node.folder().join("pods/device-plugins/kubelet.sock")
}

fn wanting(name: &str, resource: &str, count: u32) -> Value {
    let amount = json!({resource: count.to_string()});
    let container = json!({
        "name": "main", "image": "localhost/coracle/busybox:1", "imagePullPolicy": "IfNotPresent",
        "resources": {"limits": amount, "requests": amount},
    });
    pod(name, &json!({"containers": [container]}))
}

impl Joined {
    #[track_caller]
    fn wait_for_amounts(&self, capacity: &str, allocatable: &str) {
        self.api.wait(NODE, "the node to tell of its devices", |node| {
            let amount = |list: &str| node["status"][list][CAMERA].clone();
            amount("capacity") == capacity && amount("allocatable") == allocatable
        });
    }

    #[track_caller]
    fn wait_for_health(&self, health: &str) {
        let expected = json!([{"name": CAMERA, "resources": [{"resourceID": "cam0", "health": health}]}]);
        self.api.wait(WEB, "the health of its device", |pod| {
            pod["status"]["containerStatuses"][0]["allocatedResourcesStatus"] == expected
        });
    }

    #[track_caller]
    fn wait_for_refusal(&self, name: &str, reason: &str, why: &str) {
        let path = format!("/api/v1/namespaces/default/pods/{name}");
        let pod = self.api.wait(&path, "the pod to have failed", |pod| pod["status"]["phase"] == "Failed");
        assert_eq!((&pod["status"]["reason"], &pod["status"]["message"]), (&json!(reason), &json!(why)));
    }
}

#[test]
fn node_status_and_pod_status_report_devices_and_their_health() {
    let (joined, mut plugin) = with_plugin(&["cam0", "cam1"]);
    plugin.set(&[("cam0", true), ("cam1", false)]);
    joined.wait_for_amounts("2", "1");
    joined.api.create(&wanting("web", CAMERA, 1));
    joined.wait_until_web_is_ready();
    joined.wait_for_health("Healthy");
    plugin.set(&[("cam0", false), ("cam1", false)]);
    joined.wait_for_health("Unhealthy");
    plugin.set(&[("cam0", true), ("cam1", true)]);
    joined.wait_for_amounts("2", "2");
    plugin.kill();
    joined.wait_for_amounts("2", "0");
}

#[test]
fn pod_without_enough_devices_is_rejected_in_upstreams_words() {
    let (joined, plugin) = with_plugin(&["cam0", "cam1"]);
    joined.api.create(&wanting("three", CAMERA, 3));
    let why = "Pod was rejected: Allocate failed due to requested number of devices unavailable for example.com/camera. \
               Requested: 3, Available: 2, which is unexpected";
    joined.wait_for_refusal("three", "UnexpectedAdmissionError", why);
    plugin.fail("Allocate", "no light");
    joined.api.create(&wanting("dark", CAMERA, 2));
    let why = "Pod was rejected: Allocate failed due to rpc error: code = Unknown desc = no light, which is unexpected";
    joined.wait_for_refusal("dark", "UnexpectedAdmissionError", why);
    plugin.mend();
    joined.api.create(&wanting("web", CAMERA, 2));
    joined.wait_until_web_is_ready();
}

#[test]
fn resource_without_a_plugin_is_left_to_the_api_server() {
    let (joined, _plugin) = with_plugin(&["cam0"]);
    let amount = json!({"example.com/fpga": "1"});
    joined.api.patch(STATUS, &json!({"status": {"capacity": amount, "allocatable": amount}}));
    joined.api.patch(NODE, &json!({"spec": {"unschedulable": true}}));
    joined.api.wait_for("the agent to have seen that", |world| {
        world.list("/api/v1/events").iter().any(|event| event["reason"] == "NodeNotSchedulable")
    });
    joined.api.create(&wanting("two", "example.com/fpga", 2));
    let why =
        "Pod was rejected: Node didn't have enough resource: example.com/fpga, requested: 2, used: 0, capacity: 1";
    joined.wait_for_refusal("two", "OutOfexample.com/fpga", why);
    joined.api.create(&wanting("web", "example.com/other", 1));
    joined.wait_until_web_is_ready();
}

#[test]
fn after_a_reboot_a_pod_waits_for_its_former_devices() {
    let (mut joined, mut plugin) = with_plugin(&["cam0", "cam1"]);
    joined.api.create(&wanting("web", CAMERA, 1));
    joined.wait_until_web_is_ready();
    joined.node.kill_agent();
    plugin.kill();
    joined.node.fake.restart(State::Ended);
    joined.start("", &[]);
    joined
        .node
        .wait_until("it waits", |_| joined.node.log().contains("the pod waits for its devices: no healthy devices"));
    plugin.set(&[("cam1", true), ("cam0", true)]);
    plugin.restart();
    plugin.register(&kubelet(&joined), CAMERA);
    joined.node.wait_until("it runs again", |_| joined.running().len() == 1);
    assert_eq!(plugin.calls("Allocate"), [["cam0"]], "what it has it keeps");
}

#[test]
fn pod_with_a_wrong_device_selector_is_refused() {
    let (joined, _plugin) = with_plugin(&["cam0"]);
    let mut web = wanting("web", CAMERA, 1);
    web["metadata"]["annotations"] = json!({"coracle.dev/device-selectors": "example.com/camera: {model: {}}"});
    joined.api.create(&web);
    let why = "annotation coracle.dev/device-selectors: example.com/camera: model: expected a value, a list of values, or \
               a version as \">=2.1\"";
    let why = format!("Pod was rejected: Allocate failed due to {why}, which is unexpected");
    joined.wait_for_refusal("web", "UnexpectedAdmissionError", &why);
    assert!(joined.running().is_empty());
}
