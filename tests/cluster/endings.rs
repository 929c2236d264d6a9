//! How pods and their containers end: replaced, finished, declared over by others, without a manifest.

use std::time::Duration;

use serde_json::{Value, json};

use super::joined::{Joined, condition};
use super::pods::{MIRROR, WEB, is_ready, pod};

const OWN: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: own}\nspec:\n  terminationGracePeriodSeconds: 5\n  \
                   containers: [{name: main, image: 'localhost/coracle/busybox:1', imagePullPolicy: IfNotPresent}]\n";

impl Joined {
    /// A ready static pod.
    fn with_own() -> (Self, Value) {
        let mut joined = Self::new();
        joined.start("", &[]);
        joined.node.write_manifest("own", OWN);
        let mirror = joined.api.wait(MIRROR, "the mirror to be ready", is_ready);
        (joined, mirror)
    }

    /// The mirror pod is `mirror`, shown as running, for a second.
    #[track_caller]
    fn keeps_mirror(&self, mirror: &Value) {
        for _ in 0..10 {
            let shown = self.api.get(MIRROR).expect("the mirror pod is there");
            assert_eq!(shown["metadata"]["uid"], mirror["metadata"]["uid"]);
            assert_eq!(shown["status"]["phase"], "Running");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

#[test]
fn container_that_is_replaced_may_exit_with_success() {
    for policy in ["OnFailure", "Never"] {
        let joined = Joined::with_web(&json!({"restartPolicy": policy}));
        joined.node.fake.add_image("localhost/coracle/busybox:2");
        joined.node.fake.on("StopContainer").times(1).hold();
        let mut object = joined.api.get(WEB).unwrap();
        object["spec"]["containers"][0]["image"] = json!("localhost/coracle/busybox:2");
        joined.api.update(&object);
        joined.node.fake.wait_for_calls("StopContainer", 1);
        let observed = joined.node.fake.look(|world| world.calls_of("ContainerStatus"));
        joined.node.fake.exit("main", 0);
        joined.node.fake.wait_for_calls("ContainerStatus", observed + 1);
        joined.node.fake.release("StopContainer");
        let runs_again = |pod: &Value| {
            let status = &pod["status"]["containerStatuses"][0];
            status["restartCount"] == 1 && !status["state"]["running"].is_null() && is_ready(pod)
        };
        let pod = joined.api.wait_within(Duration::from_secs(10), WEB, "the new image to be shown", runs_again);
        assert_eq!(pod["status"]["phase"], "Running", "{policy}");
    }
}

#[test]
fn crash_looping_sidecar_does_not_keep_a_finished_pod() {
    let side = json!({"name": "side", "image": "localhost/coracle/busybox:1", "imagePullPolicy": "IfNotPresent",
                      "restartPolicy": "Always"});
    let joined = Joined::with_web(&json!({"restartPolicy": "Never", "initContainers": [side]}));
    joined.node.fake.exit("side", 1);
    let restarted = |count: u32| {
        move |pod: &Value| {
            let side = &pod["status"]["initContainerStatuses"][0];
            side["restartCount"] == count && !side["state"]["running"].is_null()
        }
    };
    joined.api.wait(WEB, "the sidecar to run again", restarted(1));
    // Now it backs off for ten seconds.
    joined.node.fake.exit("side", 1);
    joined.api.wait(WEB, "its back-off", |pod| {
        pod["status"]["initContainerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    });
    joined.node.fake.exit("main", 0);
    let succeeded = |pod: &Value| pod["status"]["phase"] == "Succeeded";
    joined.api.wait_within(Duration::from_secs(5), WEB, "the pod to have succeeded", succeeded);
}

#[test]
fn pod_declared_over_by_others_is_stopped() {
    let joined = Joined::with_web(&json!({}));
    let over = json!({"status": {"phase": "Failed", "reason": "Shot", "message": "by a controller"}});
    joined.api.patch(&format!("{WEB}/status"), &over);
    joined.node.wait_until("its containers to have stopped", |_| joined.running().is_empty());
    let ended = |pod: &Value| !pod["status"]["containerStatuses"][0]["state"]["terminated"].is_null();
    let pod = joined.api.wait(WEB, "the exit to be shown", ended);
    let status = &pod["status"];
    assert_eq!([&status["phase"], &status["reason"], &status["message"]], ["Failed", "Shot", "by a controller"]);
    assert_eq!(joined.node.fake.look(|world| world.calls_of("CreateContainer")), 1);
}

#[test]
fn mirror_pod_stays_until_its_static_pod_has_ended() {
    let (joined, mirror) = Joined::with_own();
    joined.node.fake.on("StopContainer").hold();
    joined.node.remove_manifest("own");
    joined.node.fake.wait_for_calls("StopContainer", 1);
    joined.keeps_mirror(&mirror);
    joined.node.fake.release("StopContainer");
    joined.api.wait_gone(MIRROR);
}

#[test]
fn mirror_pod_of_a_changed_manifest_follows_its_former_pod() {
    let (joined, mirror) = Joined::with_own();
    joined.node.fake.on("StopContainer").hold();
    joined.node.fake.add_image("localhost/coracle/busybox:2");
    joined.node.write_manifest("own", &OWN.replace("busybox:1", "busybox:2"));
    joined.node.fake.wait_for_calls("StopContainer", 1);
    joined.keeps_mirror(&mirror);
    joined.node.fake.release("StopContainer");
    let is_next = |pod: &Value| pod["metadata"]["uid"] != mirror["metadata"]["uid"] && is_ready(pod);
    let next = joined.api.wait(MIRROR, "the next mirror", is_next);
    assert_eq!(next["spec"]["containers"][0]["image"], "localhost/coracle/busybox:2");
}

#[test]
fn static_pod_whose_manifest_is_deleted_and_written_again_is_restarted() {
    let (joined, mirror) = Joined::with_own();
    let before = joined.running();
    joined.node.remove_manifest("own");
    joined.node.write_manifest("own", OWN);
    let restarted = |pod: &Value| pod["status"]["containerStatuses"][0]["restartCount"] == 1 && is_ready(pod);
    let after = joined.api.wait(MIRROR, "the restart to be shown", restarted);
    assert_eq!(after["metadata"]["uid"], mirror["metadata"]["uid"]);
    let running = joined.running();
    assert!(running.len() == 1 && running != before, "{running:?}");
}

#[test]
fn sandbox_is_reported_during_a_long_pull() {
    let mut joined = Joined::new();
    joined.start("", &[]);
    joined.node.fake.on("PullImage").hold();
    let container = json!({"name": "main", "image": "localhost/coracle/busybox:1", "imagePullPolicy": "Always"});
    joined.api.create(&pod("web", &json!({"containers": [container]})));
    joined.node.fake.wait_for_calls("PullImage", 1);
    let pod = joined
        .api
        .wait(WEB, "the sandbox to be shown", |pod| condition(pod, "PodReadyToStartContainers")["status"] == "True");
    assert_eq!(pod["status"]["phase"], "Pending");
    joined.node.fake.release("PullImage");
    joined.wait_until_web_is_ready();
}

#[test]
fn pod_that_was_deleted_before_the_node_saw_it_fails_once() {
    let mut joined = Joined::new();
    let mut object = pod("web", &json!({}));
    object["metadata"]["finalizers"] = json!(["example.com/keep"]);
    joined.api.create(&object);
    joined.api.delete(WEB);
    joined.start("", &[]);
    let ended = joined.api.wait(WEB, "the pod to fail", |pod| pod["status"]["phase"] == "Failed");
    let container = &ended["status"]["containerStatuses"][0]["state"];
    assert_eq!(container["terminated"]["reason"], "ContainerStatusUnknown", "{ended}");
    joined.api.wait(WEB, "the deletion to be confirmed", |pod| pod["metadata"]["deletionGracePeriodSeconds"] == 0);
    // The finalizer keeps the pod: its status stays as it is, also for the next agent.
    let version = |joined: &Joined| joined.api.get(WEB).unwrap()["metadata"]["resourceVersion"].clone();
    let confirmed = version(&joined);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(version(&joined), confirmed);
    joined.node.kill_agent();
    joined.node.start_agent();
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(version(&joined), confirmed);
    assert_eq!(joined.running(), [""; 0], "nothing of it runs");
    joined.api.patch(WEB, &json!({"metadata": {"finalizers": null}}));
    joined.api.wait_gone(WEB);
}
