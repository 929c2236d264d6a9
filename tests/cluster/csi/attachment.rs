//! Volume attachment and volume limits.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{CSI_NODE, SHORT, claiming};
use crate::cluster::joined::{Joined, NODE, STATUS};
use crate::cluster::pods::WEB;
use crate::csi_driver::{Call, Driver, NAME, STAGE_UNSTAGE_VOLUME};
use crate::fake_api::world::Network;

/// The volume's name in the node status, and the name of its VolumeAttachment.
fn attached_names() -> (String, String) {
    let digest = ring::digest::digest(&ring::digest::SHA256, format!("vol-1{NAME}node-a").as_bytes());
    let digest: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    (format!("kubernetes.io/csi/{NAME}^vol-1"), format!("csi-{digest}"))
}

impl Joined {
    /// Does what the attach-detach controller and the driver's attacher do.
    fn attach(&self) {
        let (volume, attachment) = attached_names();
        self.api.wait(NODE, "the volume to be in use", |node| node["status"]["volumesInUse"] == json!([volume]));
        self.api.create(&json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": attachment},
            "spec": {"attacher": NAME, "nodeName": "node-a", "source": {"persistentVolumeName": "disk"}},
        }));
        let path = format!("/apis/storage.k8s.io/v1/volumeattachments/{attachment}/status");
        self.api.patch(&path, &json!({"status": {"attached": true, "attachmentMetadata": {"disk": "sdb"}}}));
        let attached = json!([{"name": volume, "devicePath": ""}]);
        self.api.patch(STATUS, &json!({"status": {"volumesAttached": attached}}));
    }
}

#[test]
fn pod_waits_for_attachment_and_the_volume_stays_in_use() {
    let mut joined = Joined::new();
    joined.start(SHORT, &[]);
    joined.wait_until_ready();
    joined.create_volume(&json!({}));
    let driver = Driver::start(&joined.registry(), &[STAGE_UNSTAGE_VOLUME]);
    joined.api.create(&claiming("web"));
    joined.wait_for_event(
        "MountVolume.WaitForAttach failed for volume \"disk\" : volume not attached according to node status",
    );
    assert_eq!(driver.names(), [""; 0]);
    joined.attach();
    joined.wait_until_web_is_ready();
    let calls = driver.calls();
    let [Call::Stage(stage), Call::Publish(publish)] = &*calls else { panic!("{calls:?}") };
    assert_eq!((&*stage.publish_context["disk"], &*publish.publish_context["disk"]), ("sdb", "sdb"));

    let (_, attachment) = attached_names();
    joined.wait_until_stored(&["claim/default/data", &format!("attachment/{attachment}")]);
    joined.api.set_network(Network::Refused);
    joined.reboot();
    drop(driver);
    joined.start(SHORT, &[]);
    let driver = Driver::start(&joined.registry(), &[STAGE_UNSTAGE_VOLUME]);
    joined.wait_for_running(1);
    joined.api.set_network(Network::Open);
    joined.wait_until_web_is_ready();

    driver.hang("NodeUnpublishVolume");
    joined.api.delete(WEB);
    driver.wait_for_call("unpublish", 1);
    joined.node.kill_agent();
    driver.mend();
    driver.fail("NodeUnpublishVolume");
    joined.start(SHORT, &[]);
    driver.wait_for_call("unpublish", 2);
    let node = joined.api.get(NODE).unwrap();
    assert_eq!(node["status"]["volumesInUse"], json!([attached_names().0]), "it may not be taken away yet");
    driver.mend();
    joined.delete_web(&driver);
    joined.api.wait(NODE, "nothing to be in use", |node| node["status"]["volumesInUse"].is_null());
}

#[test]
fn volume_limits_are_refreshed_when_the_csi_driver_object_asks_for_it() {
    let joined = Joined::with_volume();
    let driver = Driver::start(&joined.registry(), &[STAGE_UNSTAGE_VOLUME]);
    joined.api.wait(CSI_NODE, "the driver to be told of", |node| !node["spec"]["drivers"].is_null());
    driver.has_room_for(7);
    // The agent does not ask before the CSIDriver object sets a period, even when a pod is added and removed.
    joined.api.create(&claiming("web"));
    joined.wait_until_web_is_ready();
    joined.delete_web(&driver);
    assert_eq!(driver.asked("NodeGetInfo"), 1);
    let path = format!("/apis/storage.k8s.io/v1/csidrivers/{NAME}");
    joined.api.patch(&path, &json!({"spec": {"nodeAllocatableUpdatePeriodSeconds": 10}}));
    let count = |count: i64| move |node: &Value| node["spec"]["drivers"][0]["allocatable"]["count"] == count;
    let patience = Duration::from_secs(60);
    joined.api.wait_within(patience, CSI_NODE, "seven volumes to be told of", count(7));
    driver.has_room_for(3);
    joined.api.wait_within(patience, CSI_NODE, "three volumes to be told of", count(3));
}

/// Takes as long as upstream's volume wait of two minutes and three seconds.
#[test]
fn pod_exceeding_volume_limits_is_rejected_and_the_limit_is_updated() {
    let mut joined = Joined::new();
    joined.start(SHORT, &[]);
    joined.wait_until_ready();
    joined.create_driver(&json!({"nodeAllocatableUpdatePeriodSeconds": 6000}));
    joined.create_volume(&json!({}));
    let driver = Driver::start(&joined.registry(), &[STAGE_UNSTAGE_VOLUME]);
    joined.api.wait(CSI_NODE, "the driver to be told of", |node| !node["spec"]["drivers"].is_null());
    driver.has_room_for(1);
    let begun = Instant::now();
    joined.api.create(&claiming("web"));
    let (_, attachment) = attached_names();
    joined.api.create(&json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": attachment},
        "spec": {"attacher": NAME, "nodeName": "node-a", "source": {"persistentVolumeName": "disk"}},
    }));
    let path = format!("/apis/storage.k8s.io/v1/volumeattachments/{attachment}/status");
    let error = json!({"errorCode": 8, "message": "no room", "time": "2026-01-01T00:00:00Z"});
    joined.api.patch(&path, &json!({"status": {"attached": false, "attachError": error}}));
    let patience = Duration::from_secs(240);
    let web = joined.api.wait_within(patience, WEB, "the pod to fail", |pod| pod["status"]["phase"] == "Failed");
    assert!(begun.elapsed() > Duration::from_secs(120), "{:?}", begun.elapsed());
    assert_eq!(web["status"]["reason"], "VolumeAttachmentLimitExceeded");
    let message = "Pod was rejected: Node has reached its volume attachment limit, rejecting pod. unmounted volumes=[v], \
                   unattached volumes=[v], failed to process volumes=[]: context deadline exceeded";
    assert_eq!(web["status"]["message"], message);
    joined.api.wait_for("an event of it", |world| {
        world.list("/api/v1/events").iter().any(|event| event["reason"] == "VolumeAttachmentLimitExceeded")
    });
    let count = |node: &Value| node["spec"]["drivers"][0]["allocatable"]["count"] == 1;
    joined.api.wait(CSI_NODE, "one volume to be told of", count);
    assert_eq!(driver.names(), [""; 0]);
}
