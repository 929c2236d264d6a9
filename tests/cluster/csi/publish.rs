//! What a driver learns about a volume and its pod, and which pods may use the volume.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{ALL_IN_ORDER, CSI_NODE, SHORT, claiming};
use crate::cluster::joined::{Joined, NODE};
use crate::cluster::pods::{WEB, is_ready, mounted, pod};
use crate::csi_driver::messages::AccessType;
use crate::csi_driver::{Call, Driver, NAME, STAGE_UNSTAGE_VOLUME, VOLUME_MOUNT_GROUP};

#[test]
fn volume_is_staged_published_and_removed_in_order() {
    let joined = Joined::with_volume();
    let driver = Driver::start(&joined.registry(), &[STAGE_UNSTAGE_VOLUME]);
    let object = joined.api.wait(CSI_NODE, "the driver to be told of", |node| !node["spec"]["drivers"].is_null());
    let told = &object["spec"]["drivers"][0];
    assert_eq!((&told["name"], &told["nodeID"]), (&json!(NAME), &json!("node-7")));
    assert_eq!(object["metadata"]["ownerReferences"][0]["kind"], "Node");
    let node = joined.api.get(NODE).unwrap();
    let known_as = &node["metadata"]["annotations"]["csi.volume.kubernetes.io/nodeid"];
    assert_eq!(known_as, &json!(format!("{{\"{NAME}\":\"node-7\"}}")));
    assert!(driver.told()[0].plugin_registered);

    joined.api.create(&claiming("web"));
    let web = joined.wait_until_web_is_ready();
    let volume = joined.volume_of(&web, "disk");
    let told: Value = serde_json::from_slice(&fs::read(volume.join("vol_data.json")).unwrap()).unwrap();
    let expected = [
        ("specVolID", "disk"),
        ("volumeHandle", "vol-1"),
        ("driverName", NAME),
        ("nodeName", "node-a"),
        ("volumeLifecycleMode", "Persistent"),
    ];
    assert!(expected.iter().all(|(key, value)| told[key] == *value), "{told}");
    let container = joined.node.fake.containers().pop().unwrap();
    let mount = container.config.mounts.iter().find(|mount| mount.container_path == "/v").unwrap();
    assert_eq!(mount.host_path, volume.join("mount").display().to_string());

    let calls = driver.calls();
    let [Call::Stage(stage), Call::Publish(publish)] = &*calls else { panic!("{calls:?}") };
    let staged = PathBuf::from(&stage.staging_target_path);
    assert!(staged.starts_with(joined.node.folder().join(format!("pods/plugins/kubernetes.io/csi/{NAME}"))));
    assert_eq!(
        (staged.file_name().unwrap().to_str(), &publish.staging_target_path),
        (Some("globalmount"), &stage.staging_target_path)
    );
    let told: Value = serde_json::from_slice(&fs::read(staged.with_file_name("vol_data.json")).unwrap()).unwrap();
    assert_eq!(told, json!({"driverName": NAME, "volumeHandle": "vol-1"}));
    assert_eq!(stage.volume_context.get("size").map(String::as_str), Some("small"));
    assert_eq!((publish.volume_context.len(), publish.readonly), (1, false));
    let capability = publish.volume_capability.as_ref().unwrap();
    assert_eq!(capability.access_mode.as_ref().unwrap().kind, 1);
    let Some(AccessType::Mount(mount)) = &capability.access_type else { panic!("{capability:?}") };
    assert_eq!((&*mount.fs_type, &*mount.mount_flags), ("ext4", &["noatime".to_owned()][..]));

    joined.delete_web(&driver);
    assert_eq!(driver.names(), ALL_IN_ORDER);
    assert!(!staged.parent().unwrap().exists());
    drop(driver);
    joined.api.wait(CSI_NODE, "the driver to have gone", |node| node["spec"]["drivers"] == json!([]));
}

#[test]
fn inline_volume_is_published_without_staging_and_with_pod_info() {
    let mut joined = Joined::new();
    joined.start(SHORT, &[]);
    joined.wait_until_ready();
    joined.create_driver(&json!({
        "attachRequired": false, "podInfoOnMount": true, "volumeLifecycleModes": ["Ephemeral"],
        "tokenRequests": [{"audience": "vault"}],
    }));
    let driver = Driver::start(&joined.registry(), &[STAGE_UNSTAGE_VOLUME, VOLUME_MOUNT_GROUP]);
    joined.api.create(&json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key", "namespace": "default"},
        "data": {"password": "c2VzYW1l"},
    }));
    joined.api.create(&json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "web", "namespace": "default"},
    }));
    let csi = json!({
        "driver": NAME, "volumeAttributes": {"a": "b"}, "readOnly": true, "nodePublishSecretRef": {"name": "key"},
    });
    let mut spec = mounted(&json!({"name": "v", "csi": csi}));
    spec["securityContext"] = json!({"fsGroup": 1234});
    spec["serviceAccountName"] = "web".into();
    joined.api.create(&pod("web", &spec));
    let web = joined.wait_until_web_is_ready();
    let calls = driver.calls();
    let [Call::Publish(publish)] = &*calls else { panic!("{calls:?}") };
    let told =
        |key: &str| publish.volume_context.get(&format!("csi.storage.k8s.io/{key}")).cloned().unwrap_or_default();
    assert_eq!(publish.volume_context["a"], "b");
    assert_eq!(
        (told("pod.name"), told("pod.namespace"), told("ephemeral")),
        ("web".into(), "default".into(), "true".into())
    );
    assert_eq!(
        (Value::from(told("pod.uid")), told("serviceAccount.name")),
        (web["metadata"]["uid"].clone(), "web".into())
    );
    let tokens: Value = serde_json::from_str(&told("serviceAccount.tokens")).unwrap();
    assert!(tokens["vault"]["token"].is_string() && tokens["vault"]["expirationTimestamp"].is_string(), "{tokens}");
    assert_eq!((publish.readonly, publish.secrets["password"].as_str()), (true, "sesame"));
    let Some(AccessType::Mount(mount)) = &publish.volume_capability.as_ref().unwrap().access_type else { panic!() };
    assert_eq!(mount.volume_mount_group, "1234");
    joined.delete_web(&driver);
    assert_eq!(driver.names(), ["publish", "unpublish"]);
}

#[test]
fn two_pods_share_the_staged_volume_and_the_last_unstages_it() {
    let joined = Joined::with_volume();
    let driver = Driver::start(&joined.registry(), &[STAGE_UNSTAGE_VOLUME]);
    joined.api.create(&claiming("web"));
    joined.api.create(&claiming("other"));
    driver.wait_for("both to have it", |state| state == (1, 2));
    let other = "/api/v1/namespaces/default/pods/other";
    joined.api.wait(other, "the other pod to be ready", is_ready);
    joined.api.delete(other);
    joined.api.wait_gone(other);
    driver.wait_for("one to have it", |state| state == (1, 1));
    joined.delete_web(&driver);
    assert_eq!(driver.names(), ["stage", "publish", "publish", "unpublish", "unpublish", "unstage"]);
}

#[test]
fn read_write_once_pod_volume_passes_to_the_next_pod() {
    let joined = Joined::with_volume();
    let modes = json!({"spec": {"accessModes": ["ReadWriteOncePod"]}});
    joined.api.patch("/api/v1/persistentvolumes/disk", &modes);
    let driver = Driver::start(&joined.registry(), &[STAGE_UNSTAGE_VOLUME]);
    joined.api.create(&claiming("web"));
    joined.wait_until_web_is_ready();
    joined.api.create(&claiming("other"));
    joined.wait_for_event(
        "MountVolume.SetUp failed for volume \"disk\" : volume uses the ReadWriteOncePod access mode and is already in \
         use by another pod",
    );
    assert_eq!(driver.names(), ["stage", "publish"]);
    joined.api.delete(WEB);
    joined.api.wait_gone(WEB);
    let other = "/api/v1/namespaces/default/pods/other";
    joined.api.wait_within(Duration::from_secs(60), other, "the other pod to be ready", is_ready);
    assert_eq!(driver.names(), [&ALL_IN_ORDER[..], &["stage", "publish"]].concat());
}

#[test]
fn new_node_object_gets_the_drivers_of_the_node() {
    let joined = Joined::with_volume();
    let _driver = Driver::start(&joined.registry(), &[STAGE_UNSTAGE_VOLUME]);
    joined.api.wait(CSI_NODE, "the driver to be told of", |node| !node["spec"]["drivers"].is_null());
    joined.api.delete(NODE);
    let node = joined.api.create(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}}));
    let uid = &node["metadata"]["uid"];
    joined.api.wait(CSI_NODE, "the new owner", |node| node["metadata"]["ownerReferences"][0]["uid"] == *uid);
    let node = joined.api.get(NODE).unwrap();
    let known_as = &node["metadata"]["annotations"]["csi.volume.kubernetes.io/nodeid"];
    assert_eq!(known_as, &json!(format!("{{\"{NAME}\":\"node-7\"}}")));
}

#[test]
fn claim_that_is_being_deleted_keeps_its_pod_and_starts_no_other() {
    const CLAIM: &str = "/api/v1/namespaces/default/persistentvolumeclaims/data";
    let mut joined = Joined::with_volume();
    joined.api.patch(CLAIM, &json!({"metadata": {"finalizers": ["kubernetes.io/pvc-protection"]}}));
    let driver = Driver::start(&joined.registry(), &[STAGE_UNSTAGE_VOLUME]);
    joined.api.create(&claiming("web"));
    joined.wait_until_web_is_ready();
    // The next agent finds it there.
    joined.wait_until_stored(&["claim/default/data"]);
    joined.api.delete(CLAIM);
    joined.node.kill_agent();
    joined.start(SHORT, &[]);
    joined.wait_until_ready();
    joined.node.fake.exit("main", 1);
    let has_restarted = |pod: &Value| pod["status"]["containerStatuses"][0]["restartCount"] == 1 && is_ready(pod);
    joined.api.wait(WEB, "the container to start again", has_restarted);
    joined.delete_web(&driver);
    joined.api.create(&claiming("other"));
    joined.wait_for_event("error processing PVC data: PVC is being deleted");
    assert_eq!(driver.names(), ALL_IN_ORDER);
}

#[test]
fn requires_republish_repeats_the_call_and_failures_keep_the_volume() {
    let mut joined = Joined::new();
    joined.start(&format!("{SHORT}syncFrequency: 1s\n"), &[]);
    joined.wait_until_ready();
    joined.create_driver(&json!({"attachRequired": false, "requiresRepublish": true}));
    let secret = |name: &str, value: &str| {
        let metadata = json!({"name": name, "namespace": "disks"});
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"key": STANDARD.encode(value)}})
    };
    joined.api.create(&secret("stage", "for staging"));
    joined.api.create(&secret("publish", "first"));
    joined.create_volume(&json!({
        "nodeStageSecretRef": {"namespace": "disks", "name": "stage"},
        "nodePublishSecretRef": {"namespace": "disks", "name": "publish"},
    }));
    let driver = Driver::start(&joined.registry(), &[STAGE_UNSTAGE_VOLUME]);
    joined.api.create(&claiming("web"));
    joined.wait_until_web_is_ready();
    let Call::Stage(stage) = &driver.calls()[0] else { panic!("{:?}", driver.names()) };
    assert_eq!(stage.secrets, [("key".to_owned(), "for staging".to_owned())].into());
    let told = || {
        let calls = driver.calls().into_iter();
        calls.filter_map(
            |call| if let Call::Publish(publish) = call { publish.secrets.get("key").cloned() } else { None },
        )
    };
    assert_eq!(told().next().as_deref(), Some("first"));
    joined.api.update(&secret("publish", "second"));
    joined.node.wait_until("the driver hears of the change", |_| told().any(|value| value == "second"));
    driver.fail("NodePublishVolume");
    joined.wait_for_event("MountVolume.SetUp failed for volume \"disk\" : rpc error: code = Internal desc = no disk");
    assert!(is_ready(&joined.api.get(WEB).unwrap()));
    driver.mend();
    driver.let_wait("NodePublishVolume");
    driver.wait_for_call("publish", told().count() + 1);
    joined.node.fake.exit("main", 1);
    let has_restarted = |pod: &Value| pod["status"]["containerStatuses"][0]["restartCount"] == 1 && is_ready(pod);
    joined.api.wait(WEB, "the container to start again while the driver hangs", has_restarted);
    joined.delete_during_a_call(&driver);
    assert_eq!(driver.names().iter().filter(|name| **name != "publish").count(), 3, "{:?}", driver.names());
}

#[test]
fn ephemeral_volume_requires_a_claim_owned_by_its_pod() {
    let mut joined = Joined::new();
    joined.start(SHORT, &[]);
    joined.wait_until_ready();
    joined.create_driver(&json!({"attachRequired": false}));
    let driver = Driver::start(&joined.registry(), &[STAGE_UNSTAGE_VOLUME]);
    let template = json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let volume = json!({"name": "v", "ephemeral": {"volumeClaimTemplate": template}});
    joined.api.create(&pod("web", &mounted(&volume)));
    let uid = joined.api.get(WEB).unwrap()["metadata"]["uid"].clone();
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims/web-v";
    // A claim with the expected name that belongs to another owner.
    let claim = joined.api.create(&json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "web-v", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "volumeName": "disk"},
    }));
    let reference = |claim: &Value| {
        json!({
            "kind": "PersistentVolumeClaim", "namespace": "default", "name": "web-v", "uid": claim["metadata"]["uid"],
        })
    };
    joined.api.create(&json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "disk"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "csi": {"driver": NAME, "volumeHandle": "vol-1"},
            "claimRef": reference(&claim),
        },
    }));
    joined.api.patch(&format!("{claims}/status"), &json!({"status": {"phase": "Bound"}}));
    joined.wait_for_event("PVC default/web-v was not created for pod default/web (pod is not owner)");
    assert_eq!(driver.names(), [""; 0]);
    joined.api.delete(WEB);
    joined.api.wait_gone(WEB);
    joined.api.delete(claims);

    joined.api.create(&pod("web", &mounted(&volume)));
    let next = joined.api.get(WEB).unwrap()["metadata"]["uid"].clone();
    assert_ne!(uid, next);
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": next, "controller": true});
    let claim = joined.api.create(&json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "web-v", "namespace": "default", "ownerReferences": [owner]},
        "spec": {"accessModes": ["ReadWriteOnce"], "volumeName": "disk"},
    }));
    joined.api.patch("/api/v1/persistentvolumes/disk", &json!({"spec": {"claimRef": reference(&claim)}}));
    joined.api.patch(&format!("{claims}/status"), &json!({"status": {"phase": "Bound"}}));
    joined.wait_until_web_is_ready();
    assert_eq!(driver.names(), ["stage", "publish"]);
    joined.delete_web(&driver);
}
