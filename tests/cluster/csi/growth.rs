//! Volume expansion on the node.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tonic::Code;

use super::{SHORT, claiming};
use crate::cluster::joined::Joined;
use crate::cluster::pods::{WEB, is_ready, mounted, pod};
use crate::csi_driver::{Call, Driver, EXPAND_VOLUME, STAGE_UNSTAGE_VOLUME};
use crate::fake_api::request_log::Request;

const CLAIM: &str = "/api/v1/namespaces/default/persistentvolumeclaims/data";

impl Joined {
    /// A node with a volume whose driver supports expansion, and that driver. Claims are checked every three periods.
    fn with_growing_volume(period: &str) -> (Self, Driver) {
        let mut joined = Self::new();
        joined.start(&format!("{SHORT}syncFrequency: {period}\n"), &[]);
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

    /// Does the controller's part of an expansion and leaves the rest to the node.
    fn leave_to_node(&self, size: &str) {
        self.api.patch(
            &format!("{CLAIM}/status"),
            &json!({"status": {
                "allocatedResources": {"storage": size}, "allocatedResourceStatuses": {"storage": "NodeResizePending"},
                "conditions": [{"type": "FileSystemResizePending", "status": "True"}],
            }}),
        );
    }

    /// Records that another node has expanded the volume.
    fn has_grown_elsewhere(&self, size: &str) {
        self.api.patch(&format!("{CLAIM}/status"), &json!({"status": {"capacity": {"storage": size}}}));
    }

    #[track_caller]
    fn wait_for_looks(&self, count: usize) {
        let looks = || {
            let is_look = |request: &&Request| request.path.ends_with("claims/data");
            self.api.look(|world| world.requests.iter().filter(is_look).count())
        };
        let before = looks();
        self.node.wait_until("the claim is looked at again", |_| looks() >= before + count);
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
fn volume_is_expanded_before_and_during_use() {
    let (joined, driver) = Joined::with_growing_volume("300ms");
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
fn expansion_by_another_node_is_applied_once_for_all_pods() {
    let (joined, driver) = Joined::with_growing_volume("1s");
    joined.api.patch(CLAIM, &json!({"spec": {"accessModes": ["ReadWriteMany"]}}));
    joined.has_grown_elsewhere("1Gi");
    joined.api.create(&claiming("web"));
    joined.wait_until_web_is_ready();
    // Before the next check of the claim.
    joined.has_grown_elsewhere("2Gi");
    driver.wait_for_call("expand", 1);
    joined.api.create(&claiming("other"));
    joined.api.wait("/api/v1/namespaces/default/pods/other", "the other pod to be ready", is_ready);
    joined.wait_for_looks(3);
    let asked = || driver.names().iter().filter(|name| **name == "expand").count();
    assert_eq!(asked(), 1, "it is as large for the other pod");

    driver.let_wait("NodeExpandVolume");
    joined.has_grown_elsewhere("3Gi");
    driver.wait_for_call("expand", 2);
    // The other pod is checked next.
    joined.wait_for_looks(1);
    driver.mend();
    joined.wait_for_looks(4);
    assert_eq!(asked(), 2);
    assert_eq!(joined.api.count("PATCH", &format!("{CLAIM}/status")), 0, "the claim says so already");
    let [.., Call::Expand(last)] = &*driver.calls() else { panic!("{:?}", driver.names()) };
    assert_eq!(last.capacity_range.as_ref().unwrap().required_bytes, 3 << 30);
    joined.api.delete("/api/v1/namespaces/default/pods/other");
    joined.api.wait_gone("/api/v1/namespaces/default/pods/other");
    joined.delete_web(&driver);
}

#[test]
fn failed_expansion_shows_in_the_claim_and_blocks_no_pod() {
    let (joined, driver) = Joined::with_growing_volume("300ms");
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
    joined.delete_web(&driver);
}

#[test]
fn larger_size_wanted_during_an_expansion_is_reached() {
    let (joined, driver) = Joined::with_growing_volume("300ms");
    joined.api.create(&claiming("web"));
    joined.wait_until_web_is_ready();
    driver.let_wait("NodeExpandVolume");
    joined.leave_to_node("2Gi");
    driver.wait_for_call("expand", 1);
    joined.leave_to_node("3Gi");
    driver.mend();
    joined.wait_for_size("3Gi");
    let [.., Call::Expand(last)] = &*driver.calls() else { panic!("{:?}", driver.names()) };
    assert_eq!(last.capacity_range.as_ref().unwrap().required_bytes, 3 << 30);
    joined.delete_web(&driver);
}

#[test]
fn read_only_volume_is_not_expanded() {
    let (joined, driver) = Joined::with_growing_volume("300ms");
    joined.leave_to_node("2Gi");
    let claim = json!({"claimName": "data", "readOnly": true});
    joined.api.create(&pod("web", &mounted(&json!({"name": "v", "persistentVolumeClaim": claim}))));
    joined.wait_until_web_is_ready();
    let failed = "MountVolume.NodeExpandVolume failed for volume \"disk\" requested read-only file system";
    joined.wait_for_event_of("FileSystemResizeFailed", failed);
    joined.delete_web(&driver);
    assert!(!driver.names().contains(&"expand"), "{:?}", driver.names());
}

#[test]
fn expansion_refused_in_use_is_retried_when_the_volume_is_unused() {
    let (joined, driver) = Joined::with_growing_volume("300ms");
    joined.api.create(&claiming("web"));
    joined.wait_until_web_is_ready();
    driver.refuse("NodeExpandVolume", Code::FailedPrecondition);
    joined.leave_to_node("3Gi");
    joined.wait_for_event_of("VolumeResizeFailed", "code = FailedPrecondition");
    joined.leave_to_node("4Gi");
    driver.wait_for_call("expand", 2);
    joined.wait_for_looks(1);
    driver.mend();
    joined.wait_for_looks(3);
    assert_eq!(driver.names(), ["stage", "publish", "expand", "expand"], "for each size once");
    joined.delete_web(&driver);
    joined.api.create(&claiming("web"));
    joined.wait_until_web_is_ready();
    joined.wait_for_size("4Gi");
    joined.delete_web(&driver);
}

#[test]
fn expansion_ends_before_the_volume_of_a_terminating_pod_is_given_back() {
    let (joined, driver) = Joined::with_growing_volume("300ms");
    driver.let_wait("NodeExpandVolume");
    joined.api.create(&claiming("web"));
    joined.wait_until_web_is_ready();
    joined.leave_to_node("2Gi");
    driver.wait_for_call("expand", 1);
    joined.delete_during_a_call(&driver);
    driver.let_wait("NodeExpandVolume");
    joined.leave_to_node("3Gi");
    joined.api.create(&claiming("web"));
    driver.wait_for_call("expand", 2);
    assert!(!is_ready(&joined.api.get(WEB).unwrap()), "it grows first");
    joined.delete_during_a_call(&driver);
}

#[test]
fn starting_pod_waits_only_briefly_for_its_claim() {
    let (joined, driver) = Joined::with_growing_volume("1s");
    driver.let_wait("NodePublishVolume");
    joined.api.create(&claiming("web"));
    driver.wait_for_call("publish", 1);
    joined.api.on("GET", CLAIM).hang();
    let begun = Instant::now();
    driver.mend();
    joined.wait_until_web_is_ready();
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    joined.api.clear_faults();
    joined.delete_web(&driver);
}
