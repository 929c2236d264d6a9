//! Restarts of exited containers and their back-off.

use std::fs;

use super::node::{Manifest, Node, PATIENCE, STAY, wait_for};

#[test]
fn killed_container_is_restarted_and_counted() {
    let node = Node::start();
    node.apply(&Manifest::new("web").container("main", STAY).container("other", STAY));
    let before = node.wait_until("the pod is ready", |pods| pods.has("web", |pod| pod.is_ready()));
    let before = before.get("web").unwrap();
    node.kill_container("web", "main");
    let after = node.wait_until("the container runs again", |pods| {
        pods.has("web", |pod| pod.container("main").restarts() == 1 && pod.is_ready())
    });
    let after = after.get("web").unwrap();
    assert_ne!(after.container("main").id(), before.container("main").id());
    assert_eq!(after.container("main").last_exit_code(), Some(137));
    assert_eq!(after.container("other").id(), before.container("other").id(), "its neighbour was touched");
    assert_eq!(after.ip(), before.ip(), "the sandbox was replaced");
    assert_eq!(node.running_containers("web").len(), 2);
}

#[test]
fn crash_loop_backs_off_for_ten_and_then_twenty_seconds() {
    let node = Node::start();
    // A volume outlives the container; its log does not.
    let manifest = Manifest::new("web")
        .container_with(
            "main",
            "cat /proc/uptime >>/data/starts; exit 1",
            "volumeMounts: [{name: data, mountPath: /data}]",
        )
        .spec("volumes: [{name: data, emptyDir: {}}]");
    node.apply(&manifest);
    let pods = node.wait_until("the container backs off", |pods| {
        pods.has("web", |pod| {
            let container = pod.container("main");
            let told = container.waiting_message().starts_with("back-off 10s restarting failed container=main");
            container.is_waiting_for("CrashLoopBackOff") && container.restarts() == 1 && told
        })
    });
    let folder = node.pod_folder(pods.get("web").unwrap().uid());
    let starts = wait_for("the fourth start", PATIENCE, || {
        let starts = fs::read_to_string(folder.join("volumes/kubernetes.io~empty-dir/data/starts")).unwrap();
        let starts = starts.lines().filter_map(|line| line.split(' ').next()?.parse().ok());
        let starts: Vec<f64> = starts.collect();
        (starts.len() == 4).then_some(starts)
    });
    // The first restart is immediate. A back-off starts when the run ends and does not include the time to create the
    // container.
    let waits: Vec<f64> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    for (wait, (least, most)) in waits.iter().zip([(0.0, 3.0), (10.0, 13.0), (20.0, 23.0)]) {
        assert!((least..most).contains(wait), "the seconds between starts were {waits:?}");
    }
}

#[test]
fn on_failure_restarts_only_failed_containers() {
    let node = Node::start();
    let manifest = Manifest::new("work")
        .container_with(
            "twice",
            "test -e /data/tried && exit 0; touch /data/tried; exit 5",
            "volumeMounts: [{name: data, mountPath: /data}]",
        )
        .container("once", "exit 0")
        .spec("restartPolicy: OnFailure")
        .spec("volumes: [{name: data, emptyDir: {}}]");
    node.apply(&manifest);
    let pods = node.wait_until("the pod has succeeded", |pods| pods.has("work", |pod| pod.phase() == "Succeeded"));
    let pod = pods.get("work").unwrap();
    assert_eq!((pod.container("twice").restarts(), pod.container("twice").last_exit_code()), (1, Some(5)));
    assert_eq!((pod.container("once").restarts(), pod.container("once").exit_code()), (0, Some(0)));
}

#[test]
fn with_policy_never_a_failed_pod_stays_failed() {
    let node = Node::start();
    node.apply(&Manifest::new("work").container("main", "exit 3").spec("restartPolicy: Never"));
    let pods = node.wait_until("the pod has failed", |pods| pods.has("work", |pod| pod.phase() == "Failed"));
    let container = pods.get("work").unwrap().container("main");
    assert_eq!((container.restarts(), container.exit_code()), (0, Some(3)));
}

#[test]
fn completed_pod_is_not_run_again_by_the_next_agent() {
    let mut node = Node::start();
    node.apply(&Manifest::new("work").container("main", "echo ran").spec("restartPolicy: OnFailure"));
    node.wait_until("the pod has succeeded", |pods| pods.has("work", |pod| pod.phase() == "Succeeded"));
    node.kill_agent();
    node.start_agent();
    node.wait_until("it is known as succeeded", |pods| pods.has("work", |pod| pod.phase() == "Succeeded"));
    assert_eq!(node.container_log("work", "main").len(), 1);
}
