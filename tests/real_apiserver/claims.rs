//! ResourceClaims that kube-scheduler allocates.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use super::cluster::Cluster;
use super::control_plane::Assets;
use super::node::{BUSYBOX, STAY};

/// Two cameras of the node, like /dev/zero and /dev/urandom. Returns the path of the first.
fn plug_in_cameras(cluster: &mut Cluster) -> String {
    let folder = cluster.node.folder().to_owned();
    let paths = [("camera0", "5"), ("camera1", "9")].map(|(name, minor)| {
        let path = folder.join(name).display().to_string();
        assert!(Command::new("mknod").args([&path, "c", "1", minor]).status().unwrap().success());
        path
    });
    let rules = json!({"devices": [{"resource": "example.com/camera", "paths": paths}]});
    let file = folder.join("coracle.yaml");
    fs::write(&file, rules.to_string()).unwrap();
    cluster.node.add_arguments(&["--coracle-config", &file.display().to_string()]);
    let [first, _] = paths;
    first
}

/// Prints 3 if it can read from the camera.
fn viewer(name: &str, camera: &str) -> Value {
    let script = format!("[ -c {camera} ] && head -c 3 {camera} | wc -c; {STAY}");
    let container = json!({
        "name": "main", "image": BUSYBOX, "command": ["sh", "-c", script], "resources": {"claims": [{"name": "camera"}]},
    });
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 1, "containers": [container],
            "resourceClaims": [{"name": "camera", "resourceClaimTemplateName": "front-camera"}],
        },
    })
}

#[test]
fn scheduler_allocates_the_nodes_own_device_by_its_attributes() {
    let name = "scheduler_allocates_the_nodes_own_device_by_its_attributes";
    let Some(assets) = Assets::find(name, &["kube-controller-manager", "kube-scheduler"]) else { return };
    let mut cluster = Cluster::new(assets);
    let camera = plug_in_cameras(&mut cluster);
    cluster.node.start_agent();
    cluster.wait_until_ready();
    cluster.start_scheduler();
    let driver = "devices.coracle.dev";
    let is_camera =
        format!("device.driver == \"{driver}\" && device.attributes[\"{driver}\"].resource == \"example.com/camera\"");
    let is_front = format!("device.attributes[\"{driver}\"].kernelName == \"zero\"");
    let cel = |expression: &str| json!([{"cel": {"expression": expression}}]);
    cluster.apply(&json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "camera"},
        "spec": {"selectors": cel(&is_camera)},
    }));
    let request = json!({"name": "camera", "exactly": {"deviceClassName": "camera", "selectors": cel(&is_front)}});
    cluster.apply(&json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "front-camera"},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }));
    cluster.apply(&viewer("first", &camera));
    cluster.wait_until_pod_is_ready("first");
    cluster.wait("the first to read from its camera", || {
        (cluster.kubectl(&["logs", "first"]).trim() == "3").then_some(())
    });
    // The only front camera is taken.
    cluster.apply(&viewer("second", &camera));
    cluster.wait("the second to wait for the camera", || {
        let pod = cluster.try_get(&["pod", "second"])?;
        let conditions = pod["status"]["conditions"].as_array()?.clone();
        conditions.iter().any(|condition| condition["reason"] == "Unschedulable").then_some(())
    });
    cluster.kubectl(&["delete", "pod", "first"]);
    cluster.wait_until_pod_is_ready("second");
    cluster.wait("the second to read from the camera", || {
        (cluster.kubectl(&["logs", "second"]).trim() == "3").then_some(())
    });
    cluster.kubectl(&["delete", "pod", "second"]);
    cluster.wait("the claims to go", || {
        cluster.get(&["resourceclaims"])["items"].as_array().unwrap().is_empty().then_some(())
    });
    cluster.assert_that_nothing_was_forbidden();
}
