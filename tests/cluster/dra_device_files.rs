//! Device files of `devices` rules as ResourceSlices, and claims on them without a driver.

use std::fs;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::dra::{SHORT, SLICES, all, claiming};
use super::joined::{Joined, NODE};
use super::pods::{WEB, pod};

const LINE: &str = "example.com/line";
const SLICE: &str = "/apis/resource.k8s.io/v1/resourceslices/node-a-devices.coracle.dev-0";

impl Joined {
    /// Starts the agent with a rule of these device files.
    fn start_with_files(&mut self, paths: &[&str]) {
        let file = self.node.folder().join("coracle.yaml");
        let rule = json!({"resource": LINE, "paths": paths, "attributes": {"model": "rs485", "port": 2}});
        let rules = if paths.is_empty() { Vec::new() } else { vec![rule] };
        fs::write(&file, json!({"devices": rules}).to_string()).unwrap();
        self.start(SHORT, &["--coracle-config", file.to_str().unwrap()]);
    }

    /// Waits until the slice has these devices, and returns the slice.
    #[track_caller]
    fn wait_for_devices(&self, names: &[&str]) -> Value {
        self.api.wait(SLICE, "the devices in the slice", |slice| {
            let devices = slice["spec"]["devices"].as_array().unwrap();
            devices.iter().map(|device| device["name"].as_str().unwrap()).eq(names.iter().copied())
        })
    }

    #[track_caller]
    fn wait_for_lines(&self, capacity: u32, allocatable: u32) {
        self.api.wait(NODE, "the amounts of the node", |node| {
            let is = |list: &str, amount: u32| node["status"][list][LINE].as_str() == Some(&*amount.to_string());
            is("capacity", capacity) && is("allocatable", allocatable)
        });
    }

    fn create_claim_of_file(&self, name: &str, device: &str) {
        let request = json!({"name": "line", "exactly": {"deviceClassName": "board"}});
        self.api.create(&json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": "default"}, "spec": {"devices": {"requests": [request]}},
        }));
        let result = json!({"request": "line", "driver": "devices.coracle.dev", "pool": "node-a", "device": device});
        self.patch_claim(name, &json!({"allocation": {"devices": {"results": [result]}}}));
    }

    /// The device files of the newest container.
    fn files(&self) -> Vec<(String, String)> {
        let container = self.node.fake.containers().pop().unwrap();
        let devices = container.config.devices.iter();
        devices.map(|device| (device.host_path.clone(), device.permissions.clone())).collect()
    }

    fn writes_to_slices(&self) -> usize {
        ["POST", "PATCH", "DELETE"].iter().map(|verb| self.api.count(verb, &format!("{SLICES}*"))).sum()
    }
}

fn limited(name: &str) -> Value {
    let amount = json!({LINE: "1"});
    let container = json!({
        "name": "main", "image": "localhost/coracle/busybox:1", "imagePullPolicy": "IfNotPresent",
        "resources": {"limits": amount, "requests": amount},
    });
    pod(name, &json!({"containers": [container]}))
}

fn files(names: &[&str]) -> Vec<(String, String)> {
    names.iter().map(|name| (format!("/dev/{name}"), "rw".to_owned())).collect()
}

#[test]
fn device_file_is_given_once_to_a_claim_or_to_a_limit() {
    let mut joined = Joined::new();
    joined.start_with_files(&["/dev/null", "/dev/zero"]);
    let slice = joined.wait_for_devices(&["null", "zero"]);
    let spec = &slice["spec"];
    assert_eq!((&spec["driver"], &spec["nodeName"]), (&json!("devices.coracle.dev"), &json!("node-a")));
    assert_eq!(spec["pool"], json!({"name": "node-a", "generation": 1, "resourceSliceCount": 1}));
    let attributes = &spec["devices"][0]["attributes"];
    let [model, port] = [&attributes["model"], &attributes["port"]];
    assert_eq!((model, port), (&json!({"string": "rs485"}), &json!({"int": 2})));
    assert_eq!(attributes["path"], json!({"string": "/dev/null"}));
    joined.wait_for_lines(2, 2);

    joined.create_claim_of_file("c", "null");
    joined.create_claiming(&claiming("web", "c", &all()), "c", &[]);
    let shown = joined.wait_until_web_is_ready();
    assert_eq!(joined.files(), files(&["null"]));
    let health = json!([{"resourceID": "devices.coracle.dev/node-a/null", "health": "Healthy"}]);
    assert_eq!(shown["status"]["containerStatuses"][0]["allocatedResourcesStatus"][0]["resources"], health);
    joined.wait_for_lines(2, 1);
    joined.api.create(&limited("plain"));
    joined.wait_for_running(2);
    assert_eq!(joined.files(), files(&["zero"]), "the claim has the other one");
    let slice = joined.wait_for_devices(&["null"]);
    assert_eq!(slice["spec"]["pool"]["generation"], 2);

    // A restart changes nothing, and at rest there are no requests.
    joined.node.kill_agent();
    let (writes, requests) = (joined.writes_to_slices(), joined.api.count("GET", SLICES));
    joined.start_with_files(&["/dev/null", "/dev/zero"]);
    joined.wait_until_ready();
    joined.wait_for_lines(2, 1);
    joined.api.wait_for("the slices to be compared", |world| world.requests_of("GET", SLICES).count() > requests);
    // The comparison would write within this time.
    thread::sleep(Duration::from_secs(2));
    let requests = joined.api.count("GET", SLICES);
    // At rest: nothing happens that could be waited for.
    thread::sleep(Duration::from_secs(3));
    assert_eq!((joined.writes_to_slices(), joined.api.count("GET", SLICES)), (writes, requests));

    // The scheduler did not know yet that a container has the device.
    joined.create_claim_of_file("late", "zero");
    joined.create_claiming(&claiming("second", "late", &all()), "late", &[]);
    joined.wait_for_failed_preparation("device zero (/dev/zero) is given to a container that has it as a limit");
    joined.api.delete("/api/v1/namespaces/default/pods/plain");
    joined.api.wait("/api/v1/namespaces/default/pods/second", "its container to run", |pod| {
        pod["status"]["containerStatuses"][0]["state"]["running"].is_object()
    });
    assert_eq!(joined.files(), files(&["zero"]));
    joined.wait_for_lines(2, 0);
    for name in ["web", "second"] {
        joined.api.delete(&format!("/api/v1/namespaces/default/pods/{name}"));
    }
    joined.api.wait_gone(WEB);
    joined.wait_for_lines(2, 2);
    joined.wait_for_devices(&["null", "zero"]);
}

#[test]
fn extended_resource_served_by_a_claim_takes_one_device_file() {
    let mut joined = Joined::new();
    joined.start_with_files(&["/dev/null", "/dev/zero"]);
    joined.wait_for_lines(2, 2);
    let mut web = limited("web");
    web["spec"]["nodeName"].take();
    let uid = joined.api.create(&web)["metadata"]["uid"].clone();
    joined.create_claim_of_file("web-extended", "zero");
    let reserved = json!([{"resource": "pods", "name": "web", "uid": uid}]);
    joined.patch_claim("web-extended", &json!({"reservedFor": reserved}));
    let mapping = json!({"containerName": "main", "resourceName": LINE, "requestName": "line"});
    let status = json!({"resourceClaimName": "web-extended", "requestMappings": [mapping]});
    joined.api.patch(&format!("{WEB}/status"), &json!({"status": {"extendedResourceClaimStatus": status}}));
    joined.api.patch(WEB, &json!({"spec": {"nodeName": "node-a"}}));
    joined.wait_until_web_is_ready();
    assert_eq!(joined.files(), files(&["zero"]));
    joined.wait_for_lines(2, 1);
}

#[test]
fn claim_on_a_device_file_that_is_gone_keeps_its_pod_waiting() {
    let mut joined = Joined::new();
    joined.start_with_files(&["/dev/null"]);
    joined.wait_for_devices(&["null"]);
    joined.create_claim_of_file("c", "video7");
    joined.create_claiming(&claiming("web", "c", &all()), "c", &[]);
    joined.wait_for_failed_preparation("device video7 of this node is gone");
    joined.api.delete(WEB);
    joined.api.wait_gone(WEB);
    assert!(joined.checkpoint().is_empty());
}

#[test]
fn slices_go_with_the_rules_and_a_node_without_either_makes_one_request() {
    let mut joined = Joined::new();
    joined.start_with_files(&["/dev/null"]);
    joined.wait_for_devices(&["null"]);
    joined.node.kill_agent();
    let before = joined.api.count("GET", SLICES);
    joined.start_with_files(&[]);
    joined.api.wait_gone_within(SLICE, Duration::from_secs(60));
    assert_eq!(joined.api.count("GET", SLICES) - before, 1);
    let requests = |joined: &Joined| joined.api.count("*", "/apis/resource.k8s.io/*");
    let at_rest = requests(&joined);
    // At rest: nothing happens that could be waited for.
    thread::sleep(Duration::from_secs(5));
    assert_eq!(requests(&joined), at_rest);
}
