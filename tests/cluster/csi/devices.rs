//! Raw block volumes.

use std::fs;

use serde_json::{Value, json};

use super::{SHORT, claiming, with_device};
use crate::cluster::joined::Joined;
use crate::cluster::pods::{WEB, is_ready};
use crate::csi_driver::messages::AccessType;
use crate::csi_driver::{Call, Driver, NAME, STAGE_UNSTAGE_VOLUME};

#[test]
fn block_volumes_are_published_linked_and_removed_in_order() {
    let mut joined = Joined::new();
    joined.start(SHORT, &[]);
    joined.wait_until_ready();
    joined.create_driver(&json!({"attachRequired": false}));
    joined.create_volume_of(&json!({"volumeMode": "Block"}), &json!({}));
    let driver = Driver::start(&joined.registry(), &[STAGE_UNSTAGE_VOLUME]);
    joined.api.create(&with_device("web", false));
    let web = joined.wait_until_web_is_ready();
    let uid = web["metadata"]["uid"].as_str().unwrap();
    let link = joined.node.folder().join(format!("pods/pods/{uid}/volumeDevices/kubernetes.io~csi/disk"));
    let below = joined.node.folder().join("pods/plugins/kubernetes.io/csi/volumeDevices");
    let device = joined.node.fake.containers().pop().unwrap().config.devices.pop().unwrap();
    assert_eq!((&*device.container_path, &*device.permissions), ("/dev/disk", "mrw"));
    assert_eq!(device.host_path, link.display().to_string());
    assert_eq!(fs::read_link(&link).unwrap(), below.join(format!("publish/disk/{uid}")));
    let told: Value = serde_json::from_slice(&fs::read(below.join("disk/data/vol_data.json")).unwrap()).unwrap();
    assert_eq!((&told["volumeHandle"], &told["driverName"]), (&json!("vol-1"), &json!(NAME)));

    let calls = driver.calls();
    let [Call::Stage(stage), Call::Publish(publish)] = &*calls else { panic!("{calls:?}") };
    assert_eq!(stage.staging_target_path, below.join("staging/disk").display().to_string());
    assert_eq!(publish.staging_target_path, stage.staging_target_path);
    assert_eq!(publish.target_path, below.join(format!("publish/disk/{uid}")).display().to_string());
    for capability in [&stage.volume_capability, &publish.volume_capability] {
        assert!(matches!(capability.as_ref().unwrap().access_type, Some(AccessType::Block(_))), "{capability:?}");
    }

    joined.api.create(&with_device("other", true));
    let other = "/api/v1/namespaces/default/pods/other";
    joined.api.wait(other, "the other pod to be ready", is_ready);
    let given = joined.node.fake.containers().into_iter().flat_map(|container| container.config.devices);
    assert_eq!(given.filter(|device| device.permissions == "r").count(), 1);
    driver.wait_for("both to have it", |state| state == (1, 2));
    // A restarted agent finds the volume again.
    joined.node.kill_agent();
    joined.start(SHORT, &[]);
    joined.api.delete(other);
    joined.api.wait_gone(other);
    driver.wait_for("one to have it", |state| state == (1, 1));
    assert!(link.exists());
    driver.hang("NodeUnstageVolume");
    joined.api.delete(WEB);
    driver.wait_for_call("unstage", 1);
    joined.node.kill_agent();
    driver.mend();
    joined.start(SHORT, &[]);
    joined.delete_web(&driver);
    let left = |name: &str| fs::read_dir(below.join(name)).map_or(0, Iterator::count);
    assert_eq!((left("publish"), left("staging"), below.join("disk").exists()), (0, 0, false));
}

#[test]
fn volume_mode_must_match_how_the_container_uses_the_volume() {
    let mut joined = Joined::new();
    joined.start(SHORT, &[]);
    joined.wait_until_ready();
    joined.create_driver(&json!({"attachRequired": false}));
    joined.create_volume_of(&json!({"volumeMode": "Block"}), &json!({}));
    let driver = Driver::start(&joined.registry(), &[STAGE_UNSTAGE_VOLUME]);
    joined.api.create(&claiming("web"));
    joined.wait_for_event("volume v has volumeMode Block, but is specified in volumeMounts");
    driver.fail("NodePublishVolume");
    joined.api.create(&with_device("other", false));
    joined.api.wait_for("the event of a device", |world| {
        let what = "MapVolume.MapPodDevice failed for volume \"disk\" : rpc error: code = Internal desc = no disk";
        let says = |event: &Value| event["message"].as_str().is_some_and(|message| message.contains(what));
        world.list("/api/v1/events").iter().any(|event| event["reason"] == "FailedMapVolume" && says(event))
    });
    assert!(!driver.names().contains(&"unpublish"));
}
