//! Lifecycle hooks that fail or hang, and hooks of pods without a manifest.

use std::time::{Duration, Instant};

use coracle::platform::cri::v1::{ContainerState, ExecSyncResponse, StopContainerRequest};
use coracle::protocol::grpc::Code;
use coracle::protocol::protobuf::{decode, encode};

use super::node::{Manifest, Node, Seen};

/// A node with a pod `web` that has this hook, and a pod `other` without one.
fn node_with(hook: &str, grace: u32, arrange: impl Fn(&Node)) -> Node {
    let mut node = Node::new();
    arrange(&node);
    let spec = format!("terminationGracePeriodSeconds: {grace}");
    node.apply(&Manifest::new("web").container_with("main", "", &format!("lifecycle: {{{hook}}}")).spec(&spec));
    node.apply(&Manifest::new("other").container("main", ""));
    node.start_agent();
    node
}

fn exec(hook: &str) -> String {
    format!("{hook}: {{exec: {{command: [{hook}]}}}}")
}

fn exit(code: i32) -> Vec<u8> {
    encode(&ExecSyncResponse { exit_code: code, stdout: b"sorry\n".to_vec(), stderr: Vec::new() })
}

fn runs(node: &Node) -> bool {
    node.fake.look(|world| Seen::of(world, "web").running().len() == 1)
}

#[test]
fn failed_post_start_hook_kills_the_container_and_retries() {
    let node = node_with(&exec("postStart"), 5, |node| drop(node.fake.on("ExecSync").answer(&exit(4)).times(2)));
    node.wait_until("the third try is ready", |pods| {
        pods.has("web", |pod| pod.is_ready() && pod.container("main").restarts() == 2)
    });
    let log = node.log();
    assert!(log.contains("warn PostStartHook failed pod=default/web-node-a container=main"), "{log}");
    assert!(log.contains("info FailedPostStartHook pod=default/web-node-a container=main reason=Killing"), "{log}");
    let why = "Exec lifecycle hook ([postStart]) for Container \\\"main\\\" in Pod \\\"web-node-a_default(";
    assert!(log.contains(why), "{log}");
    assert!(!log.contains("warn Exec lifecycle hook"), "the hook's output is only logged at debug level");
    assert!(node.pods().has("web", |pod| pod.container("main").last_exit_code() == Some(143)));
}

#[test]
fn hook_failure_is_reported_until_the_next_start() {
    let mut node = Node::new();
    node.configure("");
    node.fake.on("ExecSync").fail(Code::Unknown, "no processes left");
    let fields = format!("lifecycle: {{{}}}", exec("postStart"));
    node.apply(&Manifest::new("web").container_with("main", "", &fields).spec("restartPolicy: Never"));
    node.start_agent();
    node.wait_until("the pod has failed", |pods| pods.has("web", |pod| pod.phase() == "Failed"));
    assert_eq!(node.pods().get("web").unwrap().container("main").exit_code(), Some(143));
}

#[test]
fn hung_post_start_hook_keeps_the_container_unready_and_stoppable() {
    let node = node_with(&exec("postStart"), 5, |node| drop(node.fake.on("ExecSync").hang()));
    node.wait_until_ready("other");
    node.fake.wait_for_calls("ExecSync", 1);
    // A relist during the start sees a running container whose hook has not finished.
    node.fake.cut_connections();
    node.fake.wait_for("a look at everything", |world| world.calls_of("Version") >= 2);
    assert!(node.pods().has("web", |pod| !pod.is_ready()));
    assert!(runs(&node));
    node.remove_all_manifests();
    node.wait_until_nothing_is_left();
}

#[test]
fn pre_stop_hook_finishes_before_the_signal() {
    let node = node_with(&exec("preStop"), 20, |node| drop(node.fake.on("ExecSync").hold()));
    node.wait_until_ready("web");
    node.remove_manifest("web");
    node.fake.wait_for_calls("ExecSync", 1);
    assert!(runs(&node));
    assert!(node.pods().has("other", |pod| pod.is_ready()));
    assert_eq!(node.fake.look(|world| world.calls_of("StopContainer")), 0);
    node.fake.release("ExecSync");
    node.fake.wait_for("the pod to go", |world| Seen::of(world, "web").sandboxes.is_empty());
    assert!(!node.log().contains("PreStopHook failed"));
}

#[test]
fn failed_pre_stop_hook_does_not_prevent_termination() {
    let node = node_with(&exec("preStop"), 20, |node| drop(node.fake.on("ExecSync").answer(&exit(1))));
    node.wait_until_ready("web");
    node.remove_manifest("web");
    node.fake.wait_for("the pod to go", |world| Seen::of(world, "web").sandboxes.is_empty());
    assert!(node.log().contains("warn PreStopHook failed pod=default/web-node-a container=main"));
}

#[test]
fn hung_pre_stop_hook_leaves_two_seconds_to_stop() {
    for hook in [exec("preStop"), "preStop: {sleep: {seconds: 3}}".to_owned()] {
        let node = node_with(&hook, 3, |node| drop(node.fake.on("ExecSync").hang()));
        node.wait_until_ready("web");
        let removed = Instant::now();
        node.remove_manifest("web");
        node.fake.wait_for_calls("StopContainer", 1);
        let waited = removed.elapsed();
        assert!((Duration::from_secs(3)..Duration::from_secs(6)).contains(&waited), "{hook}: {waited:?}");
        let stops: Vec<StopContainerRequest> = node.fake.requests("StopContainer");
        assert_eq!(stops[0].timeout, 2);
        node.fake.wait_for("the pod to go", |world| Seen::of(world, "web").sandboxes.is_empty());
    }
}

#[test]
fn pre_stop_hook_of_an_orphaned_pod_runs() {
    let mut node = node_with(&exec("preStop"), 20, |_| {});
    node.wait_until_ready("web");
    node.kill_agent();
    node.remove_manifest("web");
    node.start_agent();
    node.fake.wait_for("the pod to go", |world| Seen::of(world, "web").sandboxes.is_empty());
    let of_hooks = |call: &crate::fake_cri::Call| ["ExecSync", "StopContainer"].contains(&&*call.method);
    let calls: Vec<String> = node.fake.calls().into_iter().filter(of_hooks).map(|call| call.method).collect();
    assert_eq!(calls, ["ExecSync", "StopContainer"]);
}

#[test]
fn sidecars_stop_after_main_containers_in_reverse_order() {
    let mut node = Node::new();
    let text = Manifest::new("web").init_container("one", "").init_container("two", "").container("main", "").text();
    let text = text.replacen("command: [sh, -c, \"\"]}", "restartPolicy: Always}", 2);
    node.write_manifest("web", &text);
    node.fake.ignore_sigterm("main");
    node.start_agent();
    node.wait_until_ready("web");
    let named = |name: &str| node.seen("web").containers.iter().find(|one| one.name == name).unwrap().id.clone();
    let order = ["main", "two", "one"].map(named);
    node.fake.on("StopContainer").hold();
    node.remove_manifest("web");
    for (count, id) in order.iter().enumerate() {
        node.fake.wait_for_calls("StopContainer", count + 1);
        let stopped: StopContainerRequest =
            decode(&node.fake.calls().iter().rfind(|call| call.method == "StopContainer").unwrap().request).unwrap();
        assert_eq!(&stopped.container_id, id);
        assert_eq!(node.fake.look(|world| world.calls_of("StopContainer")), count + 1);
        node.fake.exit(id, 0);
        node.fake.release("StopContainer");
    }
    node.wait_until_nothing_is_left();
    assert!(node.fake.containers().iter().all(|one| one.state != ContainerState::Running));
}
