//! Graceful node shutdown: logind waits while pods terminate by priority.

use std::time::{Duration, Instant};

use coracle::platform::cri::v1::StopContainerRequest;
use coracle::protocol::protobuf::decode;
use serde_json::Value;

use super::node::{Manifest, Node};
use crate::fake_cri::State;
use crate::fake_logind::FakeLogind;

const PHASES: &str = "runtimeRequestTimeout: 60s\nshutdownGracePeriodByPodPriority:\n\
                      - {priority: 0, shutdownGracePeriodSeconds: 20}\n\
                      - {priority: 1000, shutdownGracePeriodSeconds: 15}\n\
                      - {priority: 2000000000, shutdownGracePeriodSeconds: 10}\n";

fn pod(name: &str, priority: i32, grace: u32) -> Manifest {
    let manifest = Manifest::new(name).container("main", "").spec(&format!("priority: {priority}"));
    manifest.spec(&format!("terminationGracePeriodSeconds: {grace}"))
}

/// An agent with a shutdown inhibitor, and three running pods.
fn begin(config: &str) -> (Node, FakeLogind) {
    let (mut node, logind) = (Node::new(), FakeLogind::start());
    node.configure(config);
    for (name, priority, grace) in [("low", 5, 60), ("middle", 1000, 3), ("high", 2_000_001_000, 60)] {
        node.apply(&pod(name, priority, grace));
    }
    start_agent(&mut node, &logind);
    for name in ["low", "middle", "high"] {
        node.wait_until_ready(name);
    }
    logind.wait_for("an inhibitor", |state| state.held == 1);
    (node, logind)
}

fn start_agent(node: &mut Node, logind: &FakeLogind) {
    node.start_agent_with(|command| {
        command.env("DBUS_SYSTEM_BUS_ADDRESS", logind.address());
    });
}

fn status(node: &Node, name: &str) -> Value {
    node.pods().get(name).map(|pod| pod.json()["status"].clone()).unwrap_or_default()
}

/// The stop calls in order: pod and grace period for containers, the pod alone for sandboxes.
fn stops(node: &Node) -> Vec<String> {
    let name_of = |id: &str| {
        let containers = node.fake.containers();
        let sandbox = containers.iter().find(|one| one.id == id).map_or(id, |one| &one.sandbox_id).to_owned();
        let sandboxes = node.fake.sandboxes();
        let found = sandboxes.iter().find(|one| one.id == sandbox);
        found.map_or_else(|| id.to_owned(), |one| one.name().split('-').next().unwrap().to_owned())
    };
    let calls = node.fake.calls().into_iter().filter_map(|call| match call.method.as_str() {
        "StopContainer" => {
            let request: StopContainerRequest = decode(&call.request).unwrap();
            Some(format!("{} {}", name_of(&request.container_id), request.timeout))
        }
        "StopPodSandbox" => {
            let request: coracle::platform::cri::v1::StopPodSandboxRequest = decode(&call.request).unwrap();
            Some(name_of(&request.pod_sandbox_id))
        }
        _ => None,
    });
    let mut stops: Vec<String> = calls.collect();
    stops.dedup();
    stops
}

#[test]
fn pods_terminate_by_priority_before_the_inhibitor_is_released() {
    let (node, logind) = begin(PHASES);
    node.fake.on("StopContainer").about(&id_of(&node, "high")).hold();
    logind.shut_down(true);
    node.wait_until("the two below have ended", |pods| {
        pods.has("low", |pod| pod.phase() == "Failed") && pods.has("middle", |pod| pod.phase() == "Failed")
    });
    node.fake.wait_for_calls("StopContainer", 3);
    assert_eq!(logind.look(|state| state.held), 1, "the machine waits for the last one");
    node.apply(&pod("late", 0, 1));
    node.wait_until("the new pod is refused", |pods| pods.has("late", |pod| pod.phase() == "Failed"));
    let late = status(&node, "late");
    assert_eq!(late["reason"], "NodeShutdown");
    assert_eq!(late["message"], "Pod was rejected: Pod was rejected as the node is shutting down.");
    node.fake.release("StopContainer");
    logind.wait_for("the release of the inhibitor", |state| state.held == 0);
    // No grace period exceeds the pod's own or that of its shutdown phase.
    assert_eq!(stops(&node), ["low 20", "low", "middle 3", "middle", "high 10", "high"]);
    for name in ["low", "middle", "high"] {
        let status = status(&node, name);
        let words = [&status["phase"], &status["reason"], &status["message"]];
        let message = "Pod was terminated in response to imminent node shutdown.";
        assert_eq!(words, ["Failed", "Terminated", message], "{name}");
        let conditions = status["conditions"].as_array().unwrap();
        let disruption = conditions.iter().find(|condition| condition["type"] == "DisruptionTarget").unwrap();
        let words = [&disruption["status"], &disruption["reason"], &disruption["message"]];
        assert_eq!(words, ["True", "TerminationByKubelet", message], "{name}");
        assert!(node.seen(name).running().is_empty(), "{name} was started again");
    }
    let events = node.ask(&["events"]).unwrap();
    assert!(events.contains("Shutdown manager detected shutdown event"), "{events}");
}

fn id_of(node: &Node, name: &str) -> String {
    node.seen(name).containers[0].id.clone()
}

#[test]
fn pods_stopped_for_a_shutdown_start_again_after_the_reboot() {
    let (mut node, logind) = begin("shutdownGracePeriod: 30s\nshutdownGracePeriodCriticalPods: 10s\n");
    logind.shut_down(true);
    logind.wait_for("the release of the inhibitor", |state| state.held == 0);
    assert_eq!(stops(&node).last().unwrap(), "high");
    node.kill_agent();
    node.fake.restart(State::Ended);
    logind.restart();
    start_agent(&mut node, &logind);
    for name in ["low", "middle", "high"] {
        node.wait_until_ready(name);
        assert_eq!(status(&node, name)["phase"], "Running");
    }
    logind.wait_for("an inhibitor again", |state| state.held == 1);
}

#[test]
fn pod_that_does_not_stop_delays_others_only_for_its_phase() {
    let phases = "shutdownGracePeriodByPodPriority: [{priority: 0, shutdownGracePeriodSeconds: 1}, \
                  {priority: 1000, shutdownGracePeriodSeconds: 20}]\nruntimeRequestTimeout: 60s\n";
    let (node, logind) = begin(phases);
    node.fake.on("StopContainer").about(&id_of(&node, "low")).hang();
    let begun = Instant::now();
    logind.shut_down(true);
    logind.wait_for("the release of the inhibitor", |state| state.held == 0);
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
    assert!(!node.seen("low").running().is_empty());
    for name in ["middle", "high"] {
        assert!(node.seen(name).running().is_empty(), "{name}");
    }
}

#[test]
fn resize_during_a_shutdown_is_deferred_and_stays_so() {
    let (mut node, logind) = (Node::new(), FakeLogind::start());
    node.configure(PHASES);
    let sized = |cpu: &str| {
        let resources = format!("resources: {{requests: {{cpu: {cpu}}}}}");
        Manifest::new("high").container_with("main", "", &resources).spec("priority: 2000001000")
    };
    node.apply(&pod("low", 5, 60));
    node.apply(&sized("100m"));
    start_agent(&mut node, &logind);
    node.wait_until_ready("low");
    node.wait_until_ready("high");
    logind.wait_for("an inhibitor", |state| state.held == 1);
    node.fake.on("StopContainer").about(&id_of(&node, "low")).hold();
    logind.shut_down(true);
    node.fake.wait_for_calls("StopContainer", 1);
    node.apply(&sized("200m"));
    let pending = || status(&node, "high")["conditions"].to_string();
    let why = "Pod was rejected as the node is shutting down.";
    node.wait_until("the resize is deferred", |_| pending().contains("Deferred") && pending().contains(why));
    // An added pod and the end of another are reasons to retry.
    node.apply(&pod("late", 0, 1));
    node.wait_until("the new pod is refused", |pods| pods.has("late", |pod| pod.phase() == "Failed"));
    assert!(pending().contains("Deferred"), "{}", pending());
    node.fake.release("StopContainer");
    logind.wait_for("the release of the inhibitor", |state| state.held == 0);
    assert_eq!(node.fake.look(|world| world.calls_of("UpdateContainerResources")), 0);
}

#[test]
fn cancelled_shutdown_stops_no_more_pods_and_restarts_stopped_ones() {
    let (node, logind) = begin(PHASES);
    node.fake.on("StopContainer").about(&id_of(&node, "middle")).hold();
    let high = id_of(&node, "high");
    logind.shut_down(true);
    node.wait_until("the first has ended", |pods| pods.has("low", |pod| pod.phase() == "Failed"));
    node.fake.wait_for_calls("StopContainer", 2);
    logind.shut_down(false);
    logind.wait_for("another inhibitor", |state| (state.held, state.taken) == (1, 2));
    node.fake.release("StopContainer");
    node.apply(&pod("late", 0, 1));
    for name in ["low", "middle", "late"] {
        node.wait_until_ready(name);
    }
    assert_eq!(id_of(&node, "high"), high, "it was not ended");
    logind.shut_down(true);
    logind.wait_for("the release of the inhibitor", |state| state.held == 0);
    assert!(node.seen("high").running().is_empty());
}

#[test]
fn inhibitor_is_renewed_after_a_restart_of_logind_or_the_bus() {
    let (node, logind) = begin(PHASES);
    logind.restart();
    logind.wait_for("another inhibitor", |state| (state.held, state.taken) == (1, 2));
    logind.restart_bus();
    logind.wait_for("another one", |state| (state.held, state.taken) == (1, 3));
    logind.lie();
    logind.shut_down(true);
    logind.wait_for("the release of the inhibitor", |state| state.held == 0);
    assert!(node.seen("high").running().is_empty());
    // The restarted logind has forgotten the shutdown.
    logind.restart();
    logind.wait_for("an inhibitor", |state| state.held == 1);
    node.wait_until_ready("low");
}

#[test]
fn forged_shutdown_signal_is_ignored() {
    let (node, logind) = begin(PHASES);
    logind.lie();
    // The agent handles this message after the forged one.
    logind.restart();
    logind.wait_for("another inhibitor", |state| state.taken == 2);
    assert!(!node.log().contains("Shutdown manager detected"), "{}", node.log());
    node.fake.look(|world| assert_eq!(world.calls_of("StopContainer"), 0));
}

#[test]
fn without_a_bus_the_agent_logs_one_line_and_runs_pods() {
    let mut node = Node::new();
    node.configure(PHASES);
    node.apply(&pod("low", 0, 1));
    node.start_agent_with(|command| {
        command.env("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nowhere/bus");
    });
    node.wait_until_ready("low");
    let said = node.log().lines().filter(|line| line.contains("D-Bus")).count();
    assert_eq!(said, 1, "{}", node.log());
}
