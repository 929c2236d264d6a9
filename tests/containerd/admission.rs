//! Admission and preemption on a real node.

use serde_json::Value;

use super::node::{Manifest, Node, STAY};
use super::security::check_rejected;

/// Allocatable CPU of the node, in millicores.
fn all_cpu() -> usize {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap();
    text.lines().filter(|line| line.starts_with("processor")).count() * 1000
}

/// A CPU request of a container, in millicores.
fn asks(cpu: usize) -> String {
    format!("resources: {{requests: {{cpu: {cpu}m}}}}")
}

fn asking(name: &str, cpu: usize) -> Manifest {
    Manifest::new(name).container_with("main", STAY, &asks(cpu))
}

#[track_caller]
fn wait_ready(node: &Node, name: &str) {
    node.wait_until("the pod is ready", |pods| pods.has(name, |pod| pod.is_ready()));
}

#[test]
fn pod_that_requests_too_much_is_rejected() {
    let node = Node::start();
    node.apply(&asking("first", 500));
    wait_ready(&node, "first");
    let all = all_cpu();
    let message = format!("Node didn't have enough resource: cpu, requested: {all}, used: 500, capacity: {all}");
    let second = |cpu| Manifest::new("second").container_with("more", STAY, &asks(cpu));
    check_rejected(&node, second(all), "OutOfcpu", &message);
    node.apply(&second(100));
    wait_ready(&node, "second");
    assert_eq!(node.pods().get("second").unwrap().json()["status"]["reason"], Value::Null);
}

#[test]
fn rejected_static_pod_starts_when_its_resources_and_its_port_are_free() {
    let node = Node::start();
    let with_port =
        |name: &str| Manifest::new(name).container_with("web", STAY, "ports: [{containerPort: 80, hostPort: 18081}]");
    node.apply(&with_port("holder"));
    node.apply(&asking("large", all_cpu() - 100));
    for name in ["holder", "large"] {
        wait_ready(&node, name);
    }
    node.apply(&with_port("waits-for-port"));
    node.apply(&asking("waits-for-cpu", 500));
    for name in ["waits-for-port", "waits-for-cpu"] {
        node.wait_until("it is rejected", |pods| pods.has(name, |pod| pod.phase() == "Failed"));
    }
    node.remove_manifest("holder");
    wait_ready(&node, "waits-for-port");
    assert_eq!(node.pods().get("waits-for-cpu").unwrap().phase(), "Failed");
    node.remove_manifest("large");
    wait_ready(&node, "waits-for-cpu");
    assert_eq!(node.pods().get("waits-for-cpu").unwrap().json()["status"]["reason"], Value::Null);
}

#[test]
fn two_pods_cannot_share_a_host_port() {
    let node = Node::start();
    let with_port = |name: &str, more: &str| {
        let ports = format!("ports: [{{containerPort: 80, hostPort: 18080{more}}}]");
        Manifest::new(name).container_with("web", STAY, &ports)
    };
    node.apply(&with_port("one", ""));
    wait_ready(&node, "one");
    let message = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports: \
                   TCP port 18080 is used by default/one-node-a";
    check_rejected(&node, with_port("two", ", hostIP: 127.0.0.1"), "NodePorts", message);
    node.apply(&with_port("three", ", protocol: UDP"));
    wait_ready(&node, "three");
}

#[test]
fn pod_runs_only_on_a_node_that_matches_its_selector() {
    let mut node = Node::with_runtime();
    node.add_arguments(&["--node-labels", "example.com/place=mast,example.com/cores=4"]);
    node.start_agent();
    let selected = Manifest::new("here").spec("nodeSelector: {example.com/place: mast, kubernetes.io/os: linux}").spec(
        "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: \
             [{matchExpressions: [{key: example.com/cores, operator: Gt, values: ['3']}]}]}}}",
    );
    node.apply(&selected.container("main", STAY));
    wait_ready(&node, "here");
    let message = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
    check_rejected(
        &node,
        Manifest::new("elsewhere").spec("nodeSelector: {example.com/place: keel}"),
        "NodeAffinity",
        message,
    );
    let affinity = "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: \
                    [{matchFields: [{key: metadata.name, operator: In, values: [other]}]}]}}}";
    check_rejected(&node, Manifest::new("other").spec(affinity), "NodeAffinity", message);
}

#[test]
fn pod_for_another_operating_system_is_rejected() {
    let node = Node::start();
    let message = "Failed to admit pod as the OS field doesn't match node OS";
    check_rejected(&node, Manifest::new("windows").spec("os: {name: windows}"), "PodOSNotSupported", message);
}

#[test]
fn running_pods_stay_admitted_after_an_agent_restart() {
    let mut node = Node::with_runtime();
    node.configure_agent("maxPods: 2\n");
    node.start_agent();
    for name in ["one", "two"] {
        node.apply(&asking(name, 100));
        wait_ready(&node, name);
    }
    let message = "Node didn't have enough resource: pods, requested: 1, used: 2, capacity: 2";
    check_rejected(&node, Manifest::new("a-late").spec("priority: 5"), "OutOfpods", message);
    let before = ["one", "two"].map(|name| node.running_containers(name)[0].id.clone());
    node.kill_agent();
    node.start_agent();
    let pods = node.wait_until("the late pod has failed again", |pods| {
        pods.has("a-late", |pod| pod.phase() == "Failed")
            && ["one", "two"].iter().all(|name| pods.has(name, |pod| pod.is_ready()))
    });
    assert_eq!(pods.get("a-late").unwrap().json()["status"]["reason"], "OutOfpods");
    assert_eq!(["one", "two"].map(|name| node.running_containers(name)[0].id.clone()), before);
    assert_eq!(node.tasks_of("a-late"), []);
}

#[test]
fn pod_of_higher_priority_preempts_one_of_lower_priority() {
    let node = Node::start();
    let slow = "trap 'sleep 2; exit 0' TERM; sleep 100000 & wait";
    let low = Manifest::new("low").spec("priority: 100");
    node.apply(&low.container_with("main", slow, &asks(all_cpu() - 200)));
    node.apply(&asking("bystander", 100).spec("priority: 100"));
    wait_ready(&node, "low");
    wait_ready(&node, "bystander");
    node.apply(&asking("high", 300).spec("priority: 1000"));
    wait_ready(&node, "high");
    let pods = node
        .wait_until("the other has ended", |pods| pods.has("low", |pod| pod.container("main").exit_code().is_some()));
    let status = &pods.get("low").unwrap().json()["status"];
    assert_eq!((&status["phase"], &status["reason"]), (&"Failed".into(), &"Preempting".into()));
    assert_eq!(status["message"], "Preempted in order to admit critical pod");
    let conditions = status["conditions"].as_array().unwrap();
    let disrupted = conditions.iter().find(|condition| condition["type"] == "DisruptionTarget").unwrap();
    assert_eq!((&disrupted["status"], &disrupted["reason"]), (&"True".into(), &"TerminationByKubelet".into()));
    assert!(node.events("low").find("Preempting", "Preempted in order to admit critical pod").is_some());
    let moment = |name: &str, path: &str| {
        let pods = node.pods();
        let state = pods.get(name).unwrap().json()["status"]["containerStatuses"][0]["state"].clone();
        state.pointer(path).and_then(Value::as_str).unwrap().to_owned()
    };
    let (ended, began) = (moment("low", "/terminated/finishedAt"), moment("high", "/running/startedAt"));
    assert!(ended <= began, "{began} is before {ended}");
    assert!(pods.get("bystander").unwrap().is_ready());
}
