//! In-place resizes of pods of the API server.

use serde_json::{Value, json};

use super::joined::Joined;
use super::pods::{WEB, is_ready, pod};
use coracle::platform::cri::v1::{UpdateContainerResourcesRequest, UpdatePodSandboxResourcesRequest};
use coracle::protocol::grpc::Code;

const IMAGE: &str = "localhost/coracle/busybox:1";

/// A container with this CPU request, and other fields.
fn container(name: &str, cpu: &str, more: &Value) -> Value {
    let mut container = json!({
        "name": name, "image": IMAGE, "imagePullPolicy": "IfNotPresent", "resources": {"requests": {"cpu": cpu}},
    });
    for (key, value) in more.as_object().unwrap() {
        container[key] = value.clone();
    }
    container
}

fn condition<'a>(pod: &'a Value, kind: &str) -> Option<&'a Value> {
    pod["status"]["conditions"].as_array()?.iter().find(|one| one["type"] == kind)
}

fn is_deferred(pod: &Value) -> bool {
    condition(pod, "PodResizePending").is_some_and(|condition| condition["reason"] == "Deferred")
}

impl Joined {
    /// Changes the resources of the pod's container in this list.
    fn resize(&self, list: &str, resources: &Value) {
        let mut web = self.api.get(WEB).unwrap();
        web["spec"][list][0]["resources"] = resources.clone();
        self.api.update(&web);
    }

    /// The CPU shares of the calls that resize containers.
    fn resized(&self) -> Vec<i64> {
        let requests = self.node.fake.requests::<UpdateContainerResourcesRequest>("UpdateContainerResources");
        requests.into_iter().map(|request| request.linux.map_or(0, |linux| linux.cpu_shares)).collect()
    }
}

fn cpu(cpu: &str) -> Value {
    json!({"requests": {"cpu": cpu}})
}

#[test]
fn deferred_resize_is_not_applied_by_a_status_write_nor_by_a_restart() {
    let mut joined = Joined::with_web(&json!({"containers": [container("main", "100m", &json!({}))]}));
    joined.resize("containers", &cpu("1000"));
    let told = joined.api.wait(WEB, "the resize to be deferred", is_deferred);
    let why = "Node didn't have enough resource: cpu, requested: 1000000";
    assert!(condition(&told, "PodResizePending").unwrap()["message"].as_str().unwrap().starts_with(why), "{told}");
    // Another client writes the status.
    let gate = json!({"type": "example.com/gate", "status": "True"});
    joined.api.patch(&format!("{WEB}/status"), &json!({"status": {"conditions": [gate], "containerStatuses": null}}));
    let is_told = |pod: &Value| pod["status"]["containerStatuses"][0]["allocatedResources"]["cpu"] == "100m";
    joined.api.wait(WEB, "what was taken away to be back", is_told);
    joined.node.kill_agent();
    joined.start("", &[]);
    joined.wait_until_ready();
    let told = joined.api.wait(WEB, "the pod to be ready", |pod| is_ready(pod) && is_deferred(pod));
    assert_eq!(told["status"]["containerStatuses"][0]["allocatedResources"]["cpu"], "100m", "{told}");
    assert_eq!(told["status"]["containerStatuses"][0]["resources"]["requests"]["cpu"], "100m", "{told}");
    assert!(joined.resized().is_empty());
    assert_eq!(joined.created(), 1);
    joined.resize("containers", &cpu("200m"));
    joined.api.wait(WEB, "a resize that fits to be done", |pod| {
        let shown = &pod["status"]["containerStatuses"][0];
        shown["resources"]["requests"]["cpu"] == "200m" && condition(pod, "PodResizePending").is_none()
    });
    assert_eq!(joined.resized(), [204]);
}

#[test]
fn deferred_resize_is_not_applied_without_the_checkpoint() {
    let mut joined = Joined::with_web(&json!({"containers": [container("main", "100m", &json!({}))]}));
    joined.resize("containers", &cpu("1000"));
    joined.api.wait(WEB, "the resize to be deferred", is_deferred);
    joined.node.kill_agent();
    for file in ["allocated_pods_state", "actuated_pods_state"] {
        let _ = std::fs::remove_file(joined.node.folder().join("pods").join(file));
    }
    joined.start("", &[]);
    joined.wait_until_ready();
    let told = joined.api.wait(WEB, "the pod to be ready", |pod| is_ready(pod) && is_deferred(pod));
    assert_eq!(told["status"]["phase"], "Running");
    assert!(joined.resized().is_empty());
}

#[test]
fn failed_resize_stays_in_progress_and_shows_what_the_container_has() {
    let joined = Joined::with_web(&json!({"containers": [container("main", "100m", &json!({}))]}));
    joined.node.fake.on("UpdateContainerResources").fail(Code::Unknown, "not now");
    joined.resize("containers", &cpu("200m"));
    let fails = |pod: &Value| condition(pod, "PodResizeInProgress").is_some_and(|one| one["reason"] == "Error");
    let told = joined.api.wait(WEB, "the failure to be shown", fails);
    let shown = &told["status"]["containerStatuses"][0];
    assert_eq!(
        (&shown["resources"]["requests"]["cpu"], &shown["allocatedResources"]["cpu"]),
        (&json!("100m"), &json!("200m"))
    );
}

#[test]
fn resize_that_the_runtime_does_not_implement_is_over_when_it_is_taken_back() {
    let joined = Joined::with_web(&json!({"containers": [container("main", "100m", &json!({}))]}));
    joined.node.fake.on("UpdateContainerResources").fail(Code::Unimplemented, "no resizes");
    joined.resize("containers", &cpu("200m"));
    let fails = |pod: &Value| condition(pod, "PodResizeInProgress").is_some_and(|one| one["reason"] == "Error");
    joined.api.wait(WEB, "the failure to be shown", fails);
    joined.resize("containers", &cpu("100m"));
    joined.api.wait(WEB, "the resize to be over", |pod| condition(pod, "PodResizeInProgress").is_none());
}

#[test]
fn running_init_container_is_resized() {
    let mut joined = Joined::new();
    joined.start("", &[]);
    let init = container("init", "100m", &json!({"command": ["sleep", "1000"]}));
    joined.api.create(&pod("web", &json!({"initContainers": [init]})));
    joined.api.wait(WEB, "the init container to run", |pod| {
        pod["status"]["initContainerStatuses"][0]["state"]["running"].is_object()
    });
    joined.resize("initContainers", &cpu("200m"));
    joined.api.wait(WEB, "the resize to be shown", |pod| {
        let shown = &pod["status"]["initContainerStatuses"][0];
        shown["resources"]["requests"]["cpu"] == "200m" && condition(pod, "PodResizeInProgress").is_none()
    });
    assert_eq!(joined.resized(), [204]);
}

#[test]
fn runtime_gets_the_resources_of_the_sandbox_before_those_of_its_containers() {
    let joined = Joined::with_web(&json!({"containers": [container("main", "100m", &json!({}))]}));
    joined.resize("containers", &cpu("200m"));
    joined.node.fake.wait_for_calls("UpdateContainerResources", 1);
    let told = joined.node.fake.requests::<UpdatePodSandboxResourcesRequest>("UpdatePodSandboxResources");
    assert_eq!(told[0].resources.as_ref().map(|resources| resources.cpu_shares), Some(204));
    assert!(!told[0].pod_sandbox_id.is_empty() && told[0].overhead.is_some());
}

#[test]
fn runtime_that_refuses_the_sandboxs_resources_refuses_the_resize() {
    let joined = Joined::with_web(&json!({"containers": [container("main", "100m", &json!({}))]}));
    joined.node.fake.on("UpdatePodSandboxResources").fail(Code::Unknown, "too large for the machine").times(1);
    joined.resize("containers", &cpu("200m"));
    joined.api.wait(WEB, "the resize to be done", |pod| {
        let shown = &pod["status"]["containerStatuses"][0];
        shown["resources"]["requests"]["cpu"] == "200m" && condition(pod, "PodResizeInProgress").is_none()
    });
    assert_eq!(joined.node.fake.requests::<UpdatePodSandboxResourcesRequest>("UpdatePodSandboxResources").len(), 2);
    assert_eq!(joined.resized(), [204], "not tried after the refusal");
}

#[test]
fn changed_memory_request_restarts_a_container_once_if_its_policy_asks_for_it() {
    let policy = json!({
        "resources": {"requests": {"cpu": "100m", "memory": "8Mi"}},
        "resizePolicy": [{"resourceName": "memory", "restartPolicy": "RestartContainer"}],
    });
    let mut joined = Joined::with_web(&json!({"containers": [container("main", "100m", &policy)]}));
    joined.resize("containers", &json!({"requests": {"cpu": "100m", "memory": "16Mi"}}));
    let is_restarted = |pod: &Value| {
        let shown = &pod["status"]["containerStatuses"][0];
        shown["restartCount"] == 1 && shown["resources"]["requests"]["memory"] == "16Mi" && is_ready(pod)
    };
    joined.api.wait(WEB, "the container to be restarted", is_restarted);
    joined.node.kill_agent();
    joined.start("", &[]);
    joined.wait_until_ready();
    joined.api.wait(WEB, "the pod to be ready", is_restarted);
    assert_eq!(joined.created(), 2);
}

#[test]
fn resources_of_the_pod_itself_are_resized() {
    let own = |cpu: &str| json!({"requests": {"cpu": cpu}});
    let joined =
        Joined::with_web(&json!({"resources": own("500m"), "containers": [container("main", "100m", &json!({}))]}));
    let mut web = joined.api.get(WEB).unwrap();
    web["spec"]["resources"] = own("700m");
    joined.api.update(&web);
    let told = joined.api.wait(WEB, "the resize to be done", |pod| {
        pod["status"]["resources"]["requests"]["cpu"] == "700m" && condition(pod, "PodResizeInProgress").is_none()
    });
    assert_eq!(told["status"]["allocatedResources"]["cpu"], "700m");
    let sandbox = joined.node.fake.requests::<UpdatePodSandboxResourcesRequest>("UpdatePodSandboxResources");
    assert_eq!(sandbox.len(), 1);
    assert!(joined.resized().is_empty(), "its container asks for the same");
}
