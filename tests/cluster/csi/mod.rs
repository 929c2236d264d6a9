//! CSI volumes: mounted and unmounted in the order of the specification, whatever crashes in between.

mod attachment;
mod devices;
mod faults;
mod figures;
mod growth;
mod publish;

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::joined::Joined;
use super::pods::{WEB, mounted, pod};
use crate::csi_driver::{Driver, NAME};

const SHORT: &str = "nodeLeaseDurationSeconds: 4\ncrashLoopBackOff: {maxContainerRestartPeriod: 1s}\n";
const CSI_NODE: &str = "/apis/storage.k8s.io/v1/csinodes/node-a";

const ALL_IN_ORDER: [&str; 4] = ["stage", "publish", "unpublish", "unstage"];

impl Joined {
    /// A node and a claim bound to a volume of the driver.
    fn with_volume() -> Self {
        let mut joined = Self::new();
        joined.start(SHORT, &[]);
        joined.wait_until_ready();
        joined.create_driver(&json!({"attachRequired": false}));
        joined.create_volume(&json!({}));
        joined
    }

    fn registry(&self) -> PathBuf {
        self.node.folder().join("pods/plugins_registry")
    }

    fn create_driver(&self, spec: &Value) {
        self.api.create(&json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": NAME}, "spec": spec,
        }));
    }

    fn create_volume(&self, more: &Value) {
        self.create_volume_of(&json!({}), more);
    }

    /// Creates a volume with additions to its spec and to its `csi` source.
    fn create_volume_of(&self, spec: &Value, more: &Value) {
        let claim = self.api.create(&json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data", "namespace": "default"},
            "spec": {"accessModes": ["ReadWriteOnce"], "volumeName": "disk"},
        }));
        let mut source = json!({
            "driver": NAME, "volumeHandle": "vol-1", "fsType": "ext4", "volumeAttributes": {"size": "small"},
        });
        for (key, value) in more.as_object().unwrap() {
            source[key] = value.clone();
        }
        let mut volume = json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "disk"},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "mountOptions": ["noatime"], "csi": source,
                "claimRef": {
                    "kind": "PersistentVolumeClaim", "namespace": "default", "name": "data",
                    "uid": claim["metadata"]["uid"],
                },
            },
        });
        for (key, value) in spec.as_object().unwrap() {
            volume["spec"][key] = value.clone();
        }
        self.api.create(&volume);
        let bound = json!({"status": {"phase": "Bound"}});
        self.api.patch("/api/v1/namespaces/default/persistentvolumeclaims/data/status", &bound);
    }

    fn volume_of(&self, pod: &Value, name: &str) -> PathBuf {
        let uid = pod["metadata"]["uid"].as_str().unwrap();
        self.node.folder().join(format!("pods/pods/{uid}/volumes/kubernetes.io~csi/{name}"))
    }

    #[track_caller]
    fn wait_for_event(&self, what: &str) {
        self.api.wait_for(what, |world| {
            let says = |event: &Value| event["message"].as_str().is_some_and(|message| message.contains(what));
            world.list("/api/v1/events").iter().any(|event| event["reason"] == "FailedMount" && says(event))
        });
    }

    /// Drivers may go on with a cancelled call.
    #[track_caller]
    fn delete_during_a_call(&self, driver: &Driver) {
        let undone = || driver.names().into_iter().filter(|name| *name == "unpublish").count();
        let before = undone();
        self.api.delete(WEB);
        thread::sleep(Duration::from_secs(1));
        assert_eq!(undone(), before);
        driver.mend();
        self.wait_until_web_is_gone(driver);
    }

    fn delete_web(&self, driver: &Driver) {
        self.api.delete(WEB);
        self.wait_until_web_is_gone(driver);
    }

    fn wait_until_web_is_gone(&self, driver: &Driver) {
        self.api.wait_gone(WEB);
        driver.wait_until_all_is_given_back();
        self.node.wait_until_nothing_is_left();
    }
}

/// A pod that uses the volume as a block device.
fn with_device(name: &str, read_only: bool) -> Value {
    let container = json!({
        "name": "main", "image": "localhost/coracle/busybox:1", "imagePullPolicy": "IfNotPresent",
        "volumeDevices": [{"name": "v", "devicePath": "/dev/disk"}],
    });
    let volume = json!({"name": "v", "persistentVolumeClaim": {"claimName": "data", "readOnly": read_only}});
    pod(name, &json!({"containers": [container], "volumes": [volume]}))
}

fn claiming(name: &str) -> Value {
    pod(name, &mounted(&json!({"name": "v", "persistentVolumeClaim": {"claimName": "data"}})))
}
