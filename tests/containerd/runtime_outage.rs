//! A runtime that starts late, stops and comes back.

use nix::sys::signal::Signal;

use super::node::{Manifest, Node, PATIENCE, STAY, wait_for};

#[test]
fn agent_waits_for_the_runtime_and_then_starts_pods() {
    let mut node = Node::bare();
    node.apply(&Manifest::new("web").container("main", STAY));
    node.launch_agent();
    wait_for("the agent to say that it has no runtime", PATIENCE, || {
        node.agent_log().contains("containerd.sock").then_some(())
    });
    node.start_containerd();
    node.wait_until("the pod is ready", |pods| pods.has("web", |pod| pod.is_ready()));
    assert_eq!(node.tasks().len(), 2);
}

#[test]
fn pods_survive_a_runtime_restart_without_duplicates() {
    let mut node = Node::start();
    node.apply(&Manifest::new("web").container("main", STAY));
    node.wait_until("the pod is ready", |pods| pods.has("web", |pod| pod.is_ready()));
    let before = node.tasks();
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        node.stop_containerd(signal);
        node.start_containerd();
        // A later pod shows that the agent has reconnected to the runtime.
        let name = format!("after-{}", signal.as_str().to_lowercase());
        node.apply(&Manifest::new(&name).container("main", STAY));
        node.wait_until("a later pod is ready", |pods| pods.has(&name, |pod| pod.is_ready()));
        let after = node.tasks();
        assert!(before.iter().all(|task| after.contains(task)), "{before:?} became {after:?}");
        assert!(node.pods().has("web", |pod| pod.is_ready() && pod.container("main").restarts() == 0));
    }
    assert_eq!(node.tasks().len(), 6, "{:?}", node.tasks());
}

#[test]
fn container_that_exits_during_a_runtime_outage_restarts_once() {
    let mut node = Node::start();
    node.apply(&Manifest::new("web").container("main", STAY));
    node.wait_until("the pod is ready", |pods| pods.has("web", |pod| pod.is_ready()));
    let task = node.running_containers("web").remove(0);
    node.stop_containerd(Signal::SIGKILL);
    node.enclosure().run(&["kill", "-9", &task.pid.to_string()]);
    node.start_containerd();
    let pods = node.wait_until("the container runs again", |pods| {
        pods.has("web", |pod| pod.is_ready() && pod.container("main").restarts() > 0)
    });
    assert_eq!(pods.get("web").unwrap().container("main").restarts(), 1);
    assert_eq!(node.running_containers("web").len(), 1);
}
