//! In-place resizes through a changed manifest.

use coracle::platform::cri::v1::UpdateContainerResourcesRequest;
use coracle::protocol::grpc::Code;
use serde_json::Value;

use super::node::{Manifest, Node};

fn sized(cpu: &str, more: &str) -> Manifest {
    let resources = format!("resources: {{requests: {{cpu: {cpu}}}}}{more}");
    Manifest::new("web").container_with("main", "", &resources).container("side", "")
}

/// The pod's API status.
fn status(node: &Node) -> Value {
    let text = node.ask(&["pods", "-o", "json"]).unwrap_or_default();
    let list: Value = serde_json::from_str(&text).unwrap_or_default();
    list["items"][0]["status"].clone()
}

fn conditions(node: &Node) -> String {
    status(node)["conditions"].to_string()
}

fn reported_cpu(node: &Node) -> Value {
    status(node)["containerStatuses"][0]["resources"]["requests"]["cpu"].clone()
}

/// The CPU shares of the resize calls, in order.
fn told(node: &Node) -> Vec<i64> {
    let requests = node.fake.requests::<UpdateContainerResourcesRequest>("UpdateContainerResources");
    requests.into_iter().map(|request| request.linux.map_or(0, |linux| linux.cpu_shares)).collect()
}

#[test]
fn changed_resources_in_a_manifest_resize_the_running_pod() {
    let mut node = Node::new();
    node.apply(&sized("100m", ""));
    node.start_agent();
    node.wait_until_ready("web");
    let ids: Vec<String> = node.seen("web").ids().into_iter().map(str::to_owned).collect();
    node.apply(&sized("200m", ""));
    node.fake.wait_for_calls("UpdateContainerResources", 1);
    node.apply(&sized("150m", ""));
    node.fake.wait_for_calls("UpdateContainerResources", 2);
    node.wait_until("the allocated resources are reported", |_| status(&node)["allocatedResources"]["cpu"] == "150m");
    assert_eq!(told(&node), [204, 153]);
    assert_eq!(node.seen("web").ids(), ids);
    node.fake.look(|world| assert_eq!((world.calls_of("StopContainer"), world.calls_of("CreateContainer")), (0, 2)));
}

#[test]
fn refused_resize_is_retried_while_the_pod_keeps_running() {
    let mut node = Node::new();
    node.apply(&sized("100m", ""));
    node.start_agent();
    node.wait_until_ready("web");
    node.fake.on("UpdateContainerResources").fail(Code::Unknown, "no such file").times(1);
    node.apply(&sized("200m", ""));
    node.wait_until("the pod says that it could not be resized, or has been meanwhile", |_| {
        let conditions = conditions(&node);
        let told = conditions.contains("PodResizeInProgress") && conditions.contains("no such file");
        told || reported_cpu(&node) == "200m"
    });
    node.fake.wait_for_calls("UpdateContainerResources", 2);
    node.wait_until("the pod is resized", |_| {
        reported_cpu(&node) == "200m" && !conditions(&node).contains("PodResize")
    });
    assert!(node.seen("web").is_exactly(&[("main", 0), ("side", 0)]));
    let log = node.log();
    assert!(!log.contains("failed to sync pod"), "{log}");
}

#[test]
fn restart_container_policy_restarts_only_the_resized_container() {
    let mut node = Node::new();
    let policy = ", resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]";
    node.apply(&sized("100m", policy));
    node.start_agent();
    node.wait_until_ready("web");
    node.apply(&sized("200m", policy));
    node.fake.wait_for("the container to run again", |world| {
        super::node::Seen::of(world, "web").is_exactly(&[("main", 1), ("side", 0)])
    });
    assert!(told(&node).is_empty());
}

#[test]
fn resize_that_does_not_fit_is_not_applied_and_shows_in_the_status() {
    let mut node = Node::new();
    node.apply(&sized("100m", ""));
    node.start_agent();
    node.wait_until_ready("web");
    node.apply(&sized("100000", ""));
    node.wait_until("the resize is deferred", |_| conditions(&node).contains("Deferred"));
    assert_eq!(status(&node)["allocatedResources"]["cpu"], "100m");
    let why = "Node didn't have enough resource: cpu, requested: 100000000";
    assert!(conditions(&node).contains(why), "{}", conditions(&node));
    node.kill_agent();
    node.start_agent();
    node.wait_until("the resize is deferred after a restart", |_| conditions(&node).contains("Deferred"));
    assert_eq!(status(&node)["allocatedResources"]["cpu"], "100m");
    node.apply(&sized("100m", ""));
    node.wait_until("the resize is withdrawn", |_| !conditions(&node).contains("PodResize"));
    assert!(told(&node).is_empty());
    assert!(node.seen("web").is_exactly(&[("main", 0), ("side", 0)]));
}
