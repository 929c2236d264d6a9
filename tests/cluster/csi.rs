//! Volumes of CSI drivers: brought and taken away in the order of the specification, whatever ends in between.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tonic::Code;

use super::csi_driver::messages::AccessType;
use super::csi_driver::{
    Call, Driver, EXPAND_VOLUME, GET_VOLUME_STATS, NAME, STAGE_UNSTAGE_VOLUME, VOLUME_MOUNT_GROUP,
};
use super::door::{Place, get_plain};
use super::fake_api::world::Network;
use super::joined::{Joined, NODE, STATUS};
use super::pods::{WEB, is_ready, mounted, pod};

const SHORT: &str = "nodeLeaseDurationSeconds: 4\ncrashLoopBackOff: {maxContainerRestartPeriod: 1s}\n";
const CSI_NODE: &str = "/apis/storage.k8s.io/v1/csinodes/node-a";
const PUBLISH: [&str; 2] = ["NodeStageVolume", "NodePublishVolume"];
const UNPUBLISH: [&str; 2] = ["NodeUnpublishVolume", "NodeUnstageVolume"];
const ALL_IN_ORDER: [&str; 4] = ["stage", "publish", "unpublish", "unstage"];

impl Joined {
    /// A node, and a claim that a volume of the driver's is bound to.
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

    /// One with this in its spec, and this of its driver.
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

    fn delete_web(&self, driver: &Driver) {
        self.api.delete(WEB);
        self.api.wait_gone(WEB);
        driver.wait_until_all_is_given_back();
        self.node.wait_until_nothing_is_left();
    }
}

/// As a node's status names the volume, and the attachment of it.
fn attached_names() -> (String, String) {
    let digest = ring::digest::digest(&ring::digest::SHA256, format!("vol-1{NAME}node-a").as_bytes());
    let digest: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    (format!("kubernetes.io/csi/{NAME}^vol-1"), format!("csi-{digest}"))
}

impl Joined {
    /// What the controllers of a cluster do, one after the other.
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

/// A pod that is given the volume as a device.
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

#[test]
fn a_volume_is_staged_and_published_and_taken_away_in_order() {
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
fn a_volume_in_the_pods_own_spec_is_published_alone_with_what_the_driver_wants_to_know() {
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
fn two_pods_share_what_is_staged_and_the_last_one_gives_it_back() {
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
fn a_pod_waits_for_its_driver_to_begin_and_to_end() {
    let joined = Joined::with_volume();
    joined.api.create(&claiming("web"));
    joined.wait_for_event(&format!(
        "MountVolume.MountDevice failed for volume \"disk\" : kubernetes.io/csi: attacher.MountDevice failed to create \
         newCsiDriverClient: driver name {NAME} not found in the list of registered CSI drivers"
    ));
    joined.api.create(&pod("beside", &json!({})));
    joined.api.wait("/api/v1/namespaces/default/pods/beside", "one without a volume to be ready", is_ready);
    let mut driver = Driver::start(&joined.registry(), &[STAGE_UNSTAGE_VOLUME]);
    joined.wait_until_web_is_ready();
    joined.api.delete("/api/v1/namespaces/default/pods/beside");
    joined.api.wait_gone("/api/v1/namespaces/default/pods/beside");
    driver.kill();
    joined.api.delete(&format!("/apis/storage.k8s.io/v1/csidrivers/{NAME}"));
    let before = joined.running();
    joined.node.fake.exit("main", 1);
    joined.node.wait_until("its container runs again without the driver", |_| {
        joined.running().len() == 1 && joined.running() != before
    });
    joined.api.delete(WEB);
    joined.node.wait_until("it waits", |_| joined.node.log().contains("UnmountVolume.TearDown failed"));
    driver.come_back();
    joined.delete_web(&driver);
    assert_eq!(driver.names(), ALL_IN_ORDER);
}

#[test]
fn whatever_a_driver_fails_at_is_tried_again() {
    let joined = Joined::with_volume();
    let driver = Driver::start(&joined.registry(), &[STAGE_UNSTAGE_VOLUME]);
    for method in PUBLISH {
        driver.fail(method);
    }
    joined.api.create(&claiming("web"));
    joined.wait_for_event(
        "MountVolume.MountDevice failed for volume \"disk\" : rpc error: code = Internal desc = no disk",
    );
    driver.mend();
    driver.babble("NodePublishVolume");
    joined.wait_for_event("MountVolume.SetUp failed for volume \"disk\" : ");
    driver.mend();
    // It is mounted; but the driver has not said so.
    let publishes = || driver.names().iter().filter(|name| **name == "publish").count();
    let before = publishes();
    joined.wait_until_web_is_ready();
    assert!(publishes() > before, "{:?}", driver.names());
    for method in UNPUBLISH {
        driver.fail(method);
        joined.api.delete(WEB);
        let name = if method == UNPUBLISH[0] { "unpublish" } else { "unstage" };
        driver.wait_for_call(name, 1);
        assert!(joined.api.get(WEB).is_some(), "it has gone with {method}");
        driver.mend();
        if method == UNPUBLISH[0] {
            driver.fail(UNPUBLISH[1]);
        }
    }
    joined.delete_web(&driver);
}

#[test]
fn an_agent_that_is_killed_in_any_call_goes_on_where_it_was() {
    let mut joined = Joined::with_volume();
    let driver = Driver::start(&joined.registry(), &[STAGE_UNSTAGE_VOLUME]);
    let restart = |joined: &mut Joined| {
        joined.node.kill_agent();
        joined.start(SHORT, &[]);
    };
    // The first call is never answered, and the second one neither.
    let kill_in_both = |joined: &mut Joined, methods: [&'static str; 2], names: [&str; 2], begin: &dyn Fn(&Joined)| {
        driver.hang(methods[0]);
        begin(joined);
        driver.wait_for_call(names[0], 1);
        driver.mend();
        driver.hang(methods[1]);
        restart(joined);
        driver.wait_for_call(names[1], 1);
        driver.mend();
        restart(joined);
    };
    kill_in_both(&mut joined, PUBLISH, ["stage", "publish"], &|joined| drop(joined.api.create(&claiming("web"))));
    joined.wait_until_web_is_ready();
    restart(&mut joined);
    kill_in_both(&mut joined, UNPUBLISH, ["unpublish", "unstage"], &|joined| joined.api.delete(WEB));
    joined.delete_web(&driver);
}

#[test]
fn a_pod_begins_from_what_is_stored_after_a_reboot_without_the_server() {
    let mut joined = Joined::with_volume();
    joined.api.create(&json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key", "namespace": "default"},
        "data": {"password": "c2VzYW1l"},
    }));
    let driver = Driver::start(&joined.registry(), &[STAGE_UNSTAGE_VOLUME]);
    joined.api.create(&claiming("web"));
    joined.wait_until_web_is_ready();
    joined.wait_until_stored(&["pod/default/web/", "claim/default/data", &format!("csidriver/{NAME}")]);
    joined.api.set_network(Network::Refused);
    joined.reboot();
    drop(driver);
    joined.start(SHORT, &[]);
    let driver = Driver::start(&joined.registry(), &[STAGE_UNSTAGE_VOLUME]);
    joined.wait_for_running(1);
    assert_eq!(driver.names(), ["stage", "publish"]);
}

#[test]
fn a_volume_that_has_to_be_attached_is_waited_for_and_kept_until_it_is_given_back() {
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
fn a_pod_that_ends_waits_for_no_driver_that_hangs() {
    let joined = Joined::with_volume();
    let driver = Driver::start(&joined.registry(), &[STAGE_UNSTAGE_VOLUME]);
    for (method, name) in PUBLISH.into_iter().zip(["stage", "publish"]) {
        driver.hang(method);
        joined.api.create(&claiming("web"));
        driver.wait_for_call(name, 1);
        joined.delete_web(&driver);
        driver.mend();
    }
}

#[test]
fn a_driver_that_dies_in_any_call_is_asked_again_when_it_is_back() {
    let joined = Joined::with_volume();
    let mut driver = Driver::start(&joined.registry(), &[STAGE_UNSTAGE_VOLUME]);
    let steps = PUBLISH.into_iter().chain(UNPUBLISH).zip(ALL_IN_ORDER);
    for (method, name) in steps {
        driver.hang(method);
        match name {
            "stage" => drop(joined.api.create(&claiming("web"))),
            "unpublish" => {
                joined.wait_until_web_is_ready();
                joined.api.delete(WEB);
            }
            _ => {}
        }
        driver.wait_for_call(name, 1);
        driver.kill();
        driver.mend();
        if name == "stage" {
            driver.hang(PUBLISH[1]);
        }
        if name == "unpublish" {
            driver.hang(UNPUBLISH[1]);
        }
        driver.come_back();
    }
    joined.api.wait_gone(WEB);
    driver.wait_until_all_is_given_back();
}

#[test]
fn a_volume_for_one_pod_is_the_next_ones_when_the_first_has_given_it_back() {
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
fn a_driver_that_wants_it_is_told_anew_and_the_pod_keeps_its_volume_whatever_comes_of_that() {
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
    driver.hang("NodePublishVolume");
    driver.wait_for_call("publish", told().count() + 1);
    joined.delete_web(&driver);
    assert_eq!(driver.names().iter().filter(|name| **name != "publish").count(), 3, "{:?}", driver.names());
}

impl Joined {
    /// A node with a volume in the cluster whose figures anybody may read, and their place.
    fn with_figures(volume: &Value) -> (Self, SocketAddr) {
        let (mut joined, place) = (Self::new(), Place::new());
        joined.start(&format!("{SHORT}{}readOnlyPort: 10255\n", place.configuration()), &[]);
        joined.wait_until_ready();
        let modes = json!(["Persistent", "Ephemeral"]);
        joined.create_driver(&json!({"attachRequired": false, "volumeLifecycleModes": modes}));
        joined.create_volume_of(volume, &json!({}));
        (joined, SocketAddr::new(place.ip(), 10255))
    }
}

/// What is told of the volumes of `web`.
#[track_caller]
fn volumes_of_web(door: SocketAddr) -> Vec<Value> {
    let (status, page) = get_plain(door, "/stats/summary");
    assert_eq!(status, 200, "{page}");
    let summary: Value = serde_json::from_str(&page).unwrap();
    let pods = summary["pods"].as_array().unwrap();
    let web = pods.iter().find(|pod| pod["podRef"]["name"] == "web").expect("the pod is told of");
    web["volume"].as_array().cloned().unwrap_or_default()
}

#[test]
fn a_driver_tells_what_is_in_its_volumes_when_somebody_asks_and_not_again_within_a_minute() {
    let (joined, door) = Joined::with_figures(&json!({}));
    let driver = Driver::start(&joined.registry(), &[STAGE_UNSTAGE_VOLUME, GET_VOLUME_STATS]);
    let volumes = [
        json!({"name": "v", "persistentVolumeClaim": {"claimName": "data"}}),
        json!({"name": "own", "csi": {"driver": NAME}}),
        json!({"name": "idle", "csi": {"driver": NAME}}),
    ];
    let mut spec = mounted(&volumes[0]);
    spec["volumes"] = json!(volumes);
    let mount = json!({"name": "own", "mountPath": "/own"});
    spec["containers"][0]["volumeMounts"].as_array_mut().unwrap().push(mount);
    joined.api.create(&pod("web", &spec));
    joined.wait_until_web_is_ready();
    assert!(!driver.names().contains(&"usage"), "nobody has asked");
    joined.node.wait_until("both volumes are told of", |_| volumes_of_web(door).len() == 2);
    let told = volumes_of_web(door);
    let figures = [
        ("capacityBytes", 1u64 << 50),
        ("availableBytes", 600),
        ("usedBytes", 400),
        ("inodes", 100),
        ("inodesFree", 60),
        ("inodesUsed", 40),
    ];
    for (volume, (name, claim)) in
        told.iter().zip([("v", json!({"name": "data", "namespace": "default"})), ("own", Value::Null)])
    {
        assert_eq!((&volume["name"], &volume["pvcRef"]), (&json!(name), &claim), "{volume}");
        assert!(figures.iter().all(|(key, value)| volume[key] == *value), "{volume}");
    }
    let (_, page) = get_plain(door, "/metrics");
    let labels = "{namespace=\"default\",persistentvolumeclaim=\"data\"}";
    for (name, value) in [
        ("capacity_bytes", 1u64 << 50),
        ("available_bytes", 600),
        ("used_bytes", 400),
        ("inodes", 100),
        ("inodes_free", 60),
        ("inodes_used", 40),
    ] {
        let line = format!("kubelet_volume_stats_{name}{labels} {value}\n");
        assert_eq!(page.matches(&line).count(), 1, "{line}: {page}");
    }
    let calls = driver.calls();
    let asked: Vec<_> =
        calls.iter().filter_map(|call| if let Call::Usage(asked) = call { Some(asked) } else { None }).collect();
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert!(asked.iter().any(|asked| asked.volume_id == "vol-1"), "{asked:?}");
    joined.delete_web(&driver);
}

#[test]
fn a_driver_that_hangs_delays_no_statistics_and_one_that_cannot_tell_is_not_asked() {
    let (joined, door) = Joined::with_figures(&json!({}));
    let driver = Driver::start(&joined.registry(), &[STAGE_UNSTAGE_VOLUME, GET_VOLUME_STATS]);
    driver.hang("NodeGetVolumeStats");
    joined.api.create(&claiming("web"));
    joined.wait_until_web_is_ready();
    let asked = Instant::now();
    assert_eq!(volumes_of_web(door), [json!(null); 0]);
    driver.wait_for_call("usage", 1);
    for _ in 0..5 {
        assert_eq!(volumes_of_web(door), [json!(null); 0]);
        assert_eq!(get_plain(door, "/metrics").0, 200);
    }
    // An answer is waited for two minutes, as everywhere.
    assert!(asked.elapsed() < Duration::from_secs(60), "{:?}", asked.elapsed());
    assert_eq!(driver.names(), ["stage", "publish", "usage"]);
    joined.delete_web(&driver);
    drop(driver);

    let driver = Driver::start(&joined.registry(), &[STAGE_UNSTAGE_VOLUME]);
    joined.api.create(&claiming("web"));
    joined.wait_until_web_is_ready();
    assert_eq!(volumes_of_web(door), [json!(null); 0]);
    assert_eq!(driver.names(), ["stage", "publish"]);
    joined.delete_web(&driver);
}

#[test]
fn how_many_volumes_a_driver_has_room_for_is_asked_again_where_the_cluster_wants_that() {
    let joined = Joined::with_volume();
    let driver = Driver::start(&joined.registry(), &[STAGE_UNSTAGE_VOLUME]);
    joined.api.wait(CSI_NODE, "the driver to be told of", |node| !node["spec"]["drivers"].is_null());
    driver.has_room_for(7);
    // Nobody asks until the cluster wants it: a pod comes and goes meanwhile.
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

/// Upstream's patience of two minutes and three seconds is the time of this test.
#[test]
fn a_pod_for_whose_volume_the_node_has_no_room_is_refused_and_the_cluster_hears_how_much_there_is() {
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

#[test]
fn a_device_is_published_for_each_pod_and_linked_to_and_taken_away_in_order() {
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
    // What is known of the volume is found again.
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
fn a_device_is_no_directory_and_a_directory_is_no_device() {
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

#[test]
fn a_volume_that_lives_as_long_as_its_pod_is_had_by_the_claim_that_was_made_for_the_pod() {
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
    // Somebody else's claim, which has the name by chance.
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

#[test]
fn a_driver_tells_of_its_devices_as_of_its_directories() {
    let (joined, door) = Joined::with_figures(&json!({"volumeMode": "Block"}));
    let driver = Driver::start(&joined.registry(), &[STAGE_UNSTAGE_VOLUME, GET_VOLUME_STATS]);
    joined.api.create(&with_device("web", false));
    joined.wait_until_web_is_ready();
    joined.node.wait_until("the device is told of", |_| volumes_of_web(door).len() == 1);
    let told = volumes_of_web(door).remove(0);
    assert_eq!((&told["pvcRef"]["name"], &told["capacityBytes"]), (&json!("data"), &json!(1u64 << 50)), "{told}");
    joined.delete_web(&driver);
}

const CLAIM: &str = "/api/v1/namespaces/default/persistentvolumeclaims/data";

impl Joined {
    /// A node that looks often, with a volume whose driver makes it larger; and the driver.
    fn with_growing_volume() -> (Self, Driver) {
        let mut joined = Self::new();
        joined.start(&format!("{SHORT}syncFrequency: 300ms\n"), &[]);
        joined.wait_until_ready();
        joined.create_driver(&json!({"attachRequired": false}));
        joined.api.create(&json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "grow", "namespace": "disks"},
            "data": {"key": STANDARD.encode("sesame")},
        }));
        joined.create_volume(&json!({"nodeExpandSecretRef": {"namespace": "disks", "name": "grow"}}));
        let driver = Driver::start(&joined.registry(), &[STAGE_UNSTAGE_VOLUME, EXPAND_VOLUME]);
        (joined, driver)
    }

    /// As the controller of a cluster does, when its part is done.
    fn leave_to_node(&self, size: &str) {
        self.api.patch(
            &format!("{CLAIM}/status"),
            &json!({"status": {
                "allocatedResources": {"storage": size}, "allocatedResourceStatuses": {"storage": "NodeResizePending"},
                "conditions": [{"type": "FileSystemResizePending", "status": "True"}],
            }}),
        );
    }

    #[track_caller]
    fn wait_for_size(&self, size: &str) {
        let claim =
            self.api.wait(CLAIM, "the claim to have its size", |claim| claim["status"]["capacity"]["storage"] == size);
        let status = &claim["status"];
        assert!(status["allocatedResourceStatuses"]["storage"].is_null(), "{status}");
        assert!(status["conditions"].as_array().is_none_or(Vec::is_empty), "{status}");
    }

    #[track_caller]
    fn wait_for_event_of(&self, reason: &str, what: &str) {
        self.api.wait_for(what, |world| {
            let says = |event: &Value| event["message"].as_str().is_some_and(|message| message.contains(what));
            world.list("/api/v1/events").iter().any(|event| event["reason"] == reason && says(event))
        });
    }
}

#[test]
fn a_volume_grows_before_its_pod_uses_it_and_while_it_does() {
    let (joined, driver) = Joined::with_growing_volume();
    joined.leave_to_node("2Gi");
    joined.api.create(&claiming("web"));
    let web = joined.wait_until_web_is_ready();
    let calls = driver.calls();
    let [Call::Stage(stage), Call::Publish(publish), Call::Expand(expand)] = &*calls else { panic!("{calls:?}") };
    assert_eq!((&expand.volume_id, &expand.volume_path), (&publish.volume_id, &publish.target_path));
    assert_eq!(expand.staging_target_path, stage.staging_target_path);
    assert_eq!(expand.capacity_range.as_ref().unwrap().required_bytes, 2 << 30);
    assert_eq!((&*expand.secrets["key"], &expand.volume_capability), ("sesame", &publish.volume_capability));
    joined.wait_for_size("2Gi");
    let succeeded = "MountVolume.NodeExpandVolume succeeded for volume \"disk\" node-a";
    joined.wait_for_event_of("FileSystemResizeSuccessful", succeeded);

    joined.leave_to_node("3Gi");
    joined.wait_for_size("3Gi");
    assert_eq!(driver.names(), ["stage", "publish", "expand", "expand"]);
    let after = joined.api.get(WEB).unwrap();
    assert_eq!(
        after["status"]["containerStatuses"][0]["containerID"],
        web["status"]["containerStatuses"][0]["containerID"]
    );
    joined.delete_web(&driver);
}

#[test]
fn a_driver_that_cannot_make_a_volume_larger_keeps_no_pod_from_it_and_the_claim_says_why() {
    let (joined, driver) = Joined::with_growing_volume();
    driver.fail("NodeExpandVolume");
    joined.leave_to_node("2Gi");
    joined.api.create(&claiming("web"));
    joined.wait_until_web_is_ready();
    let why = "rpc error: code = Internal desc = no disk";
    joined.wait_for_event_of("VolumeResizeFailed", why);
    let condition = |claim: &Value, kind: &str| {
        let conditions = claim["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|condition| condition["type"] == kind)
    };
    let claim = joined.api.wait(CLAIM, "the claim to say why", |claim| condition(claim, "NodeResizeError").is_some());
    assert_eq!(condition(&claim, "NodeResizeError").unwrap()["message"], format!("failed to expand pvc with {why}"));
    assert_eq!(claim["status"]["allocatedResourceStatuses"]["storage"], "NodeResizeInProgress");
    driver.mend();
    joined.wait_for_size("2Gi");

    driver.refuse("NodeExpandVolume", Code::OutOfRange);
    joined.leave_to_node("3Gi");
    joined.api.wait(CLAIM, "it to be another's turn", |claim| {
        claim["status"]["allocatedResourceStatuses"]["storage"] == "NodeResizeInfeasible"
    });
    driver.mend();

    driver.refuse("NodeExpandVolume", Code::FailedPrecondition);
    let asked = || driver.names().iter().filter(|name| **name == "expand").count();
    let before = asked();
    joined.leave_to_node("4Gi");
    joined.wait_for_event_of("VolumeResizeFailed", "code = FailedPrecondition");
    driver.mend();
    let looks = || {
        joined.api.look(|world| world.requests.iter().filter(|request| request.path.ends_with("claims/data")).count())
    };
    let seen = looks();
    joined.node.wait_until("the claim is looked at again", |_| looks() > seen + 2);
    assert_eq!(asked(), before + 1, "not while the volume is used");
    joined.delete_web(&driver);
    joined.api.create(&claiming("web"));
    joined.wait_until_web_is_ready();
    joined.wait_for_size("4Gi");

    driver.hang("NodeExpandVolume");
    let before = asked();
    joined.leave_to_node("5Gi");
    driver.wait_for_call("expand", before + 1);
    joined.delete_web(&driver);
    assert_eq!(asked(), before + 1, "a pod that ends waits for no driver that hangs");
}
