//! Dynamic resource allocation: claims are prepared before a pod starts and unprepared when its last pod has stopped,
//! whatever crashes in between.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::joined::Joined;
use super::pods::{WEB, is_ready, pod};
use crate::dra_driver::{Driver, NAME, PREPARE, UNPREPARE, Version};
use crate::fake_api::world::Network;
use crate::fake_cri::State;

pub(super) const SHORT: &str = "nodeLeaseDurationSeconds: 4\ncrashLoopBackOff: {maxContainerRestartPeriod: 1s}\n";
pub(super) const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";

impl Joined {
    pub(super) fn with_dra_driver() -> (Self, Driver) {
        let mut joined = Self::new();
        joined.start(SHORT, &[]);
        joined.wait_until_ready();
        let driver = Driver::start(&joined.plugin_registry());
        driver.wait_until_registered();
        (joined, driver)
    }

    pub(super) fn plugin_registry(&self) -> PathBuf {
        self.node.folder().join("pods/plugins_registry")
    }

    /// Creates an allocated claim.
    pub(super) fn create_resource_claim(&self, name: &str, owner: Option<&Value>) {
        let mut metadata = json!({"name": name, "namespace": "default"});
        if let Some(owner) = owner {
            let reference = json!({"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": owner, "controller": true});
            metadata["ownerReferences"] = json!([reference]);
        }
        let request = json!({"name": "gpu", "exactly": {"deviceClassName": "gpu"}});
        self.api.create(&json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata,
            "spec": {"devices": {"requests": [request]}},
        }));
        let result = json!({"request": "gpu", "driver": NAME, "pool": "node-a", "device": "card"});
        self.patch_claim(name, &json!({"allocation": {"devices": {"results": [result]}}}));
    }

    pub(super) fn patch_claim(&self, name: &str, status: &Value) {
        let path = format!("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/{name}/status");
        self.api.patch(&path, &json!({"status": status}));
    }

    /// Creates the pod, and reserves the claim for it and for others.
    pub(super) fn create_claiming(&self, pod: &Value, claim: &str, others: &[&Value]) -> Value {
        let created = self.api.create(pod);
        let uid = created["metadata"]["uid"].clone();
        let reserved = others.iter().copied().chain([&uid]);
        let reserved = reserved.map(|uid| json!({"resource": "pods", "name": "web", "uid": uid}));
        self.patch_claim(claim, &json!({"reservedFor": reserved.collect::<Vec<_>>()}));
        uid
    }

    #[track_caller]
    pub(super) fn wait_for_failed_preparation(&self, why: &str) {
        let message = format!("Failed to prepare dynamic resources: prepare dynamic resources: {why}");
        let is_so =
            |event: &Value| event["reason"] == "FailedPrepareDynamicResources" && event["message"] == message.as_str();
        self.api.wait_for(why, |world| world.list("/api/v1/events").iter().any(|event| is_so(event)));
    }

    /// The claims in the checkpoint.
    pub(super) fn checkpoint(&self) -> Vec<Value> {
        let Ok(text) = fs::read_to_string(self.node.folder().join("pods/dra_manager_state")) else { return Vec::new() };
        let file: Value = serde_json::from_str(&text).unwrap();
        let data: Value = serde_json::from_str(file["Data"].as_str().unwrap()).unwrap();
        data["ClaimInfoStateList"].as_array().cloned().unwrap_or_default()
    }

    pub(super) fn cdi_devices(&self) -> Vec<String> {
        let container = self.node.fake.containers().pop().unwrap();
        container.config.cdi_devices.iter().map(|device| device.name.clone()).collect()
    }

    #[track_caller]
    pub(super) fn delete_web_and_see_claims_unprepared(&self, driver: &Driver) {
        self.api.delete(WEB);
        self.api.wait_gone(WEB);
        assert_eq!(driver.prepared(), [""; 0], "before the API server hears of the end");
        self.node.wait_until("the checkpoint is empty", |_| self.checkpoint().is_empty());
    }
}

pub(super) fn claiming(name: &str, claim: &str, request: &Value) -> Value {
    let container = json!({
        "name": "main", "image": "localhost/coracle/busybox:1", "imagePullPolicy": "IfNotPresent",
        "resources": {"claims": [request]},
    });
    pod(name, &json!({"containers": [container], "resourceClaims": [{"name": "card", "resourceClaimName": claim}]}))
}

pub(super) fn all() -> Value {
    json!({"name": "card"})
}

#[test]
fn pod_gets_the_devices_of_its_claim() {
    let (joined, driver) = Joined::with_dra_driver();
    joined.create_resource_claim("c", None);
    joined.create_claiming(&claiming("web", "c", &all()), "c", &[]);
    joined.wait_until_web_is_ready();
    assert_eq!(driver.calls(PREPARE), [["c"]]);
    assert_eq!(joined.cdi_devices(), ["example.com/gpu=c-card", "example.com/gpu=c-link"]);
    let checkpoint = joined.checkpoint();
    assert_eq!((checkpoint.len(), &checkpoint[0]["ClaimName"]), (1, &json!("c")));
    let resources = json!([
        {"resourceID": "example.com/gpu=c-card", "health": "Unknown"},
        {"resourceID": "example.com/gpu=c-link", "health": "Unknown"},
    ]);
    joined.api.wait(WEB, "the devices in the status", |pod| {
        let shown = json!([{"name": "claim:card", "resources": resources}]);
        pod["status"]["containerStatuses"][0]["allocatedResourcesStatus"] == shown
    });
    joined.delete_web_and_see_claims_unprepared(&driver);
    assert_eq!(driver.calls(UNPREPARE), [["c"]]);
}

#[test]
fn container_gets_only_the_devices_of_its_request() {
    let (joined, _driver) = Joined::with_dra_driver();
    joined.create_resource_claim("c", None);
    let other = json!({"name": "card", "request": "other"});
    joined.create_claiming(&claiming("web", "c", &other), "c", &[]);
    joined.wait_until_web_is_ready();
    assert_eq!(joined.cdi_devices(), ["example.com/gpu=c-link"]);
}

#[test]
fn pod_waits_for_its_claim_and_its_driver() {
    let mut joined = Joined::new();
    joined.start(SHORT, &[]);
    joined.wait_until_ready();
    let created = joined.api.create(&claiming("web", "c", &all()));
    joined.wait_for_failed_preparation("fetch ResourceClaim c: resourceclaims.resource.k8s.io \"c\" not found (404)");
    joined.create_resource_claim("c", None);
    joined.patch_claim(
        "c",
        &json!({"reservedFor": [{"resource": "pods", "name": "web", "uid": created["metadata"]["uid"]}]}),
    );
    joined.wait_for_failed_preparation("DRA driver gpu.example.com is not registered");
    assert_eq!(joined.node.fake.look(|world| world.calls_of("RunPodSandbox")), 0);
    let driver = Driver::instance(&joined.plugin_registry(), "a", Version::V1Beta1, Arc::default());
    joined.wait_until_web_is_ready();
    joined.delete_web_and_see_claims_unprepared(&driver);
}

#[test]
fn pod_may_not_use_a_claim_of_others() {
    let (joined, driver) = Joined::with_dra_driver();
    joined.create_resource_claim("c", None);
    let claim = joined.api.get("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/c").unwrap();
    let created = joined.api.create(&claiming("web", "c", &all()));
    let uid = |object: &Value| object["metadata"]["uid"].as_str().unwrap().to_owned();
    let why = format!("pod web ({}) is not allowed to use ResourceClaim c ({})", uid(&created), uid(&claim));
    joined.wait_for_failed_preparation(&why);
    joined.api.delete(WEB);
    joined.api.wait_gone(WEB);
    assert_eq!((driver.calls(PREPARE).len(), driver.calls(UNPREPARE).len()), (0, 0));
}

#[test]
fn generated_claim_is_found_in_the_pods_status() {
    let (joined, driver) = Joined::with_dra_driver();
    let mut web = claiming("web", "c", &all());
    web["spec"]["resourceClaims"] = json!([{"name": "card", "resourceClaimTemplateName": "t"}]);
    // The scheduler binds a pod only after its claims are generated.
    web["spec"]["nodeName"].take();
    let created = joined.api.create(&web);
    let uid = created["metadata"]["uid"].clone();
    joined.create_resource_claim("web-card-x7", Some(&uid));
    joined.patch_claim("web-card-x7", &json!({"reservedFor": [{"resource": "pods", "name": "web", "uid": uid}]}));
    let statuses = json!([{"name": "card", "resourceClaimName": "web-card-x7"}]);
    joined.api.patch(&format!("{WEB}/status"), &json!({"status": {"resourceClaimStatuses": statuses}}));
    joined.api.patch(WEB, &json!({"spec": {"nodeName": "node-a"}}));
    let shown = joined.wait_until_web_is_ready();
    assert_eq!(driver.calls(PREPARE), [["web-card-x7"]]);
    assert_eq!(shown["status"]["resourceClaimStatuses"], statuses, "the kubelet leaves it as it is");
    joined.delete_web_and_see_claims_unprepared(&driver);
}

#[test]
fn shared_claim_is_unprepared_with_its_last_pod() {
    let (joined, driver) = Joined::with_dra_driver();
    joined.create_resource_claim("c", None);
    let other = joined.create_claiming(&claiming("other", "c", &all()), "c", &[]);
    joined.wait_for_running(1);
    joined.create_claiming(&claiming("web", "c", &all()), "c", &[&other]);
    joined.wait_until_web_is_ready();
    assert_eq!(driver.calls(PREPARE), [["c"]], "it is prepared once");
    joined.api.delete("/api/v1/namespaces/default/pods/other");
    joined.api.wait_gone("/api/v1/namespaces/default/pods/other");
    assert_eq!((driver.prepared().len(), driver.calls(UNPREPARE).len()), (1, 0));
    joined.delete_web_and_see_claims_unprepared(&driver);
}

#[test]
fn driver_that_fails_or_hangs_holds_up_only_its_pod() {
    let (joined, driver) = Joined::with_dra_driver();
    joined.create_resource_claim("c", None);
    driver.fail(PREPARE, "too hot");
    joined.create_claiming(&claiming("web", "c", &all()), "c", &[]);
    joined.wait_for_failed_preparation("NodePrepareResources failed for ResourceClaim c: too hot");
    driver.mend();
    driver.skip(PREPARE);
    joined.wait_for_failed_preparation("NodePrepareResources skipped 1 ResourceClaims");
    driver.mend();
    driver.hang(PREPARE);
    let before = driver.calls(PREPARE).len();
    driver.wait("the hanging call", |_| driver.calls(PREPARE).len() > before);
    joined.api.create(&pod("other", &json!({})));
    joined.wait_for_running(1);
    // The driver would prepare the claim after it was unprepared: its answer comes first, or the call's deadline.
    joined.api.delete(WEB);
    thread::sleep(Duration::from_millis(500));
    assert_eq!(driver.calls(UNPREPARE), [[""; 0]; 0], "the preparation has not returned");
    driver.release();
    driver.wait_for(UNPREPARE);
    joined.api.wait_gone(WEB);
    assert_eq!(driver.prepared(), [""; 0]);
}

#[test]
fn failed_unprepare_keeps_the_pod_until_it_succeeds() {
    let (joined, driver) = Joined::with_dra_driver();
    joined.create_resource_claim("c", None);
    joined.create_claiming(&claiming("web", "c", &all()), "c", &[]);
    joined.wait_until_web_is_ready();
    driver.fail(UNPREPARE, "in use");
    joined.api.delete(WEB);
    driver.wait("two tries", |_| driver.calls(UNPREPARE).len() > 1);
    assert!(joined.api.get(WEB).is_some() && joined.running().is_empty());
    driver.mend();
    joined.api.wait_gone(WEB);
    assert_eq!(driver.prepared(), [""; 0]);
}

#[test]
fn claims_of_a_pod_deleted_while_the_agent_was_down_are_unprepared() {
    let (mut joined, driver) = Joined::with_dra_driver();
    joined.create_resource_claim("c", None);
    joined.create_claiming(&claiming("web", "c", &all()), "c", &[]);
    joined.wait_until_web_is_ready();
    joined.node.kill_agent();
    joined.api.delete_with_grace(WEB, 0);
    joined.start(SHORT, &[]);
    driver.wait_for(UNPREPARE);
    joined.node.wait_until("the checkpoint is empty", |_| joined.checkpoint().is_empty());
    assert_eq!(driver.prepared(), [""; 0]);
}

#[test]
fn restarted_agent_knows_what_is_prepared() {
    let (mut joined, driver) = Joined::with_dra_driver();
    joined.create_resource_claim("c", None);
    joined.create_claiming(&claiming("web", "c", &all()), "c", &[]);
    joined.wait_until_web_is_ready();
    for _ in 0..2 {
        joined.node.kill_agent();
        joined.start(SHORT, &[]);
        joined.wait_until_ready();
    }
    let container = joined.running().pop().unwrap();
    joined.node.fake.exit(&container, 1);
    joined.node.wait_until("it runs again", |_| joined.running().len() == 1 && joined.running()[0] != container);
    assert_eq!(joined.cdi_devices(), ["example.com/gpu=c-card", "example.com/gpu=c-link"]);
    assert_eq!(driver.calls(PREPARE).len(), 1, "the sandbox still exists");
    joined.delete_web_and_see_claims_unprepared(&driver);
}

#[test]
fn corrupt_checkpoint_loses_no_claim() {
    let (mut joined, driver) = Joined::with_dra_driver();
    joined.create_resource_claim("c", None);
    joined.create_claiming(&claiming("web", "c", &all()), "c", &[]);
    joined.wait_until_web_is_ready();
    joined.node.kill_agent();
    fs::write(joined.node.folder().join("pods/dra_manager_state"), "{").unwrap();
    joined.start(SHORT, &[]);
    joined.wait_until_ready();
    let container = joined.running().pop().unwrap();
    joined.node.fake.exit(&container, 1);
    joined.node.wait_until("it runs again", |_| joined.running().len() == 1 && joined.running()[0] != container);
    assert_eq!(
        joined.cdi_devices(),
        ["example.com/gpu=c-card", "example.com/gpu=c-link"],
        "the driver was asked again"
    );
    joined.delete_web_and_see_claims_unprepared(&driver);
}

#[test]
fn newest_instance_of_a_driver_is_called_while_it_is_updated() {
    let (joined, mut old) = Joined::with_dra_driver();
    joined.create_resource_claim("c", None);
    joined.create_claiming(&claiming("web", "c", &all()), "c", &[]);
    joined.wait_until_web_is_ready();
    let new = Driver::instance(&joined.plugin_registry(), "b", Version::V1, Arc::default());
    new.wait_until_registered();
    old.kill();
    joined
        .node
        .wait_until("the old instance is gone", |_| joined.node.log().matches("plugin deregistered").count() == 1);
    joined.api.delete(WEB);
    joined.api.wait_gone(WEB);
    assert_eq!((old.calls(UNPREPARE).len(), new.calls(UNPREPARE)), (0, vec![vec!["c".to_owned()]]));
}

#[test]
fn pod_with_claims_starts_after_an_offline_reboot() {
    let (mut joined, mut driver) = Joined::with_dra_driver();
    joined.create_resource_claim("c", None);
    joined.create_claiming(&claiming("web", "c", &all()), "c", &[]);
    joined.api.wait(WEB, "the pod to be ready", is_ready);
    joined.wait_until_stored(&["pod/default/web/", "resourceclaim/default/c/"]);
    joined.api.set_network(Network::Refused);
    driver.kill();
    joined.node.kill_agent();
    joined.node.fake.restart(State::Ended);
    joined.start(SHORT, &[]);
    joined.node.wait_until("it waits for its driver", |_| joined.node.log().contains("is not registered"));
    assert!(joined.running().is_empty());
    driver.come_back();
    joined.wait_for_running(1);
    assert_eq!(driver.calls(PREPARE), [["c"], ["c"]]);
}

#[test]
fn slices_of_a_driver_that_does_not_come_back_are_removed() {
    let mut joined = Joined::new();
    for (name, driver, node) in
        [("gone", "gone.example.com", "node-a"), ("here", NAME, "node-a"), ("far", "gone.example.com", "b")]
    {
        joined.api.create(&json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name},
            "spec": {"nodeName": node, "driver": driver},
        }));
    }
    joined.start(SHORT, &[]);
    let driver = Driver::start(&joined.plugin_registry());
    driver.wait_until_registered();
    joined.api.wait_gone_within(&format!("{SLICES}/gone"), Duration::from_secs(60));
    assert!(joined.api.get(&format!("{SLICES}/here")).is_some() && joined.api.get(&format!("{SLICES}/far")).is_some());
}
