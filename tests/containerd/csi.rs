//! A volume of a CSI driver in a container: what the driver mounts is what the container reads and writes.

use std::fs;

use serde_json::json;

use crate::csi_driver::{Driver, NAME, STAGE_UNSTAGE_VOLUME};
use crate::endurance::{joined, path, pod};
use crate::node::STAY;

#[test]
fn a_container_reads_and_writes_what_its_driver_has_mounted() {
    let (node, api) = joined();
    let disk = node.folder().join("disk");
    fs::create_dir(&disk).unwrap();
    fs::write(disk.join("from-host"), "hello\n").unwrap();
    let registry = node.folder().join("pods/plugins_registry");
    let driver = Driver::inside(&registry, &[STAGE_UNSTAGE_VOLUME], disk.clone(), node.enclosure().mounts());
    api.create(&json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": NAME},
        "spec": {"attachRequired": false, "fsGroupPolicy": "File"},
    }));
    let claim = api.create(&json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "volumeName": "disk"},
    }));
    let uid = &claim["metadata"]["uid"];
    api.create(&json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "disk"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "csi": {"driver": NAME, "volumeHandle": "vol-1"},
            "claimRef": {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "data", "uid": uid},
        },
    }));
    let bound = json!({"status": {"phase": "Bound"}});
    api.patch("/api/v1/namespaces/default/persistentvolumeclaims/data/status", &bound);

    let mut web = pod("web", &format!("cat /v/from-host; id -G; echo back >/v/from-pod; {STAY}"));
    web["spec"]["securityContext"] = json!({"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 2000});
    web["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
    web["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    api.create(&web);
    node.wait_for_output("web", "main", "1000 2000");
    node.wait_until("the file is there", |_| {
        fs::read_to_string(disk.join("from-pod")).is_ok_and(|text| text == "back\n")
    });
    assert_eq!(node.container_log("web", "main")[0].text, "hello");

    api.delete(&path("web"));
    api.wait_gone(&path("web"));
    driver.wait_until_all_is_given_back();
    assert_eq!(driver.names(), ["stage", "publish", "unpublish", "unstage"]);
    assert_eq!(fs::read_to_string(disk.join("from-pod")).unwrap(), "back\n", "what is in a volume stays");
}
