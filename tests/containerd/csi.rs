//! CSI volumes in a container: a mounted file system and a raw block device.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::endurance::{joined, path, pod};
use super::node::STAY;
use crate::csi_driver::{Driver, NAME, STAGE_UNSTAGE_VOLUME};
use crate::fake_api::FakeApi;

fn create_driver(api: &FakeApi) {
    api.create(&json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": NAME},
        "spec": {"attachRequired": false, "fsGroupPolicy": "File"},
    }));
}

/// Creates a claim and the volume bound to it.
pub(crate) fn create_volume(api: &FakeApi, name: &str, source: &Value) {
    let claim = api.create(&json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "volumeName": name},
    }));
    let uid = &claim["metadata"]["uid"];
    let reference = json!({"kind": "PersistentVolumeClaim", "namespace": "default", "name": name, "uid": uid});
    let mut volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "claimRef": reference},
    });
    for (key, value) in source.as_object().unwrap() {
        volume["spec"][key] = value.clone();
    }
    api.create(&volume);
    let bound = json!({"status": {"phase": "Bound"}});
    api.patch(&format!("/api/v1/namespaces/default/persistentvolumeclaims/{name}/status"), &bound);
}

/// A loop device backed by a file.
pub(crate) struct Loop(pub(crate) String);

impl Loop {
    pub(crate) fn of(file: &Path) -> Self {
        let made = Command::new("losetup").args(["--find", "--show"]).arg(file).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Self(String::from_utf8(made.stdout).unwrap().trim().to_owned())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn container_reads_and_writes_a_mounted_csi_volume() {
    let (node, api) = joined();
    let disk = node.folder().join("disk");
    fs::create_dir(&disk).unwrap();
    fs::write(disk.join("from-host"), "hello\n").unwrap();
    let registry = node.folder().join("pods/plugins_registry");
    let driver = Driver::inside(&registry, &[STAGE_UNSTAGE_VOLUME], disk.clone(), node.enclosure().mounts());
    create_driver(&api);
    create_volume(&api, "data", &json!({"csi": {"driver": NAME, "volumeHandle": "vol-1"}}));

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

#[test]
fn container_reads_and_writes_block_volumes() {
    let (node, api) = joined();
    let file = node.folder().join("disk");
    let mut content = vec![0; 1 << 20];
    content[..6].copy_from_slice(b"hello\n");
    fs::write(&file, content).unwrap();
    let device = Loop::of(&file);
    let registry = node.folder().join("pods/plugins_registry");
    let driver =
        Driver::inside(&registry, &[STAGE_UNSTAGE_VOLUME], PathBuf::from(&device.0), node.enclosure().mounts());
    create_driver(&api);
    let csi = json!({"volumeMode": "Block", "csi": {"driver": NAME, "volumeHandle": "vol-1"}});
    create_volume(&api, "data", &csi);
    create_volume(&api, "local", &json!({"volumeMode": "Block", "local": {"path": device.0}}));
    create_volume(&api, "file", &json!({"volumeMode": "Block", "local": {"path": file}}));

    let write = "head -n 1 /dev/csi; echo back | dd of=/dev/csi conv=notrunc,fsync 2>/dev/null && echo written";
    // Only a runtime with a device cgroup enforces read-only access.
    let mut web = pod("web", &format!("{write}; head -n 1 /dev/local; echo end; {STAY}"));
    web["spec"]["volumes"] = json!([
        {"name": "csi", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "local", "persistentVolumeClaim": {"claimName": "local", "readOnly": true}},
    ]);
    web["spec"]["containers"][0]["volumeDevices"] =
        json!([{"name": "csi", "devicePath": "/dev/csi"}, {"name": "local", "devicePath": "/dev/local"}]);
    api.create(&web);
    node.wait_for_output("web", "main", "end");
    let lines: Vec<String> = node.container_log("web", "main").into_iter().map(|line| line.text).collect();
    assert_eq!(lines, ["hello", "written", "back", "end"]);

    let mut wrong = pod("wrong", STAY);
    wrong["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "file"}}]);
    wrong["spec"]["containers"][0]["volumeDevices"] = json!([{"name": "v", "devicePath": "/dev/disk"}]);
    api.create(&wrong);
    let what = format!("hostPath type check failed: {} is not a block device", file.display());
    api.wait_for("the file to be refused", |world| {
        let says = |event: &Value| event["message"].as_str().is_some_and(|message| message.contains(&what));
        world.list("/api/v1/events").iter().any(|event| says(event))
    });
    for name in ["web", "wrong"] {
        api.delete(&path(name));
        api.wait_gone(&path(name));
    }
    driver.wait_until_all_is_given_back();
    assert_eq!(driver.names(), ["stage", "publish", "unpublish", "unstage"]);
    assert!(fs::read(&file).unwrap().starts_with(b"back\n"));
}
