//! Exclusive CPUs of containers, as the kernel sees them.

use std::fs;

use super::node::{Manifest, Node, PATIENCE, STAY, wait_for};

/// A machine with one CPU for exclusive use; all lower CPUs are reserved for the system.
struct Machine {
    all: String,
    system: String,
    last: String,
}

impl Machine {
    fn new() -> Self {
        let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
        let online = online.trim();
        let last: u32 = online.strip_prefix("0-").and_then(|last| last.parse().ok()).expect("processors from 0 on");
        let system = if last == 1 { "0".to_owned() } else { format!("0-{}", last - 1) };
        Self { all: online.to_owned(), system, last: last.to_string() }
    }

    fn node(&self) -> Node {
        let mut node = Node::with_runtime();
        node.configure_agent(&self.configuration());
        node.start_agent();
        node
    }

    fn configuration(&self) -> String {
        format!("cpuManagerPolicy: static\nreservedSystemCPUs: \"{}\"\n", self.system)
    }
}

/// A guaranteed pod with one exclusive CPU.
fn exclusive(name: &str) -> Manifest {
    exclusive_with(name, "32Mi")
}

fn exclusive_with(name: &str, memory: &str) -> Manifest {
    let resources =
        format!("resources: {{requests: {{cpu: 1, memory: {memory}}}, limits: {{cpu: 1, memory: {memory}}}}}");
    Manifest::new(name).container_with("main", STAY, &resources)
}

#[track_caller]
fn wait_ready(node: &Node, name: &str) {
    node.wait_until("the pod is ready", |pods| pods.has(name, |pod| pod.is_ready()));
}

#[track_caller]
fn wait_for_processors(node: &Node, name: &str, expected: &str) {
    let what = format!("{name} to run on {expected}");
    wait_for(&what, PATIENCE, || (processors(node, name) == expected).then_some(()));
}

/// The affinity mask of the pod's container.
fn processors(node: &Node, name: &str) -> String {
    let running = node.running_containers(name);
    running.first().and_then(|task| node.processors_of(&task.id)).unwrap_or_default()
}

#[test]
fn other_containers_leave_an_exclusive_cpu_and_return() {
    let machine = Machine::new();
    let mut node = machine.node();
    node.apply(&Manifest::new("shared").container("main", STAY));
    wait_ready(&node, "shared");
    wait_for_processors(&node, "shared", &machine.all);
    node.apply(&exclusive("own"));
    wait_ready(&node, "own");
    wait_for_processors(&node, "own", &machine.last);
    wait_for_processors(&node, "shared", &machine.system);
    // A container that starts now starts on the shared CPUs.
    node.apply(&Manifest::new("later").container("main", STAY));
    wait_ready(&node, "later");
    assert_eq!(processors(&node, "later"), machine.system);
    node.apply(&exclusive("second"));
    let pods = node.wait_until("the pod has failed", |pods| pods.has("second", |pod| pod.phase() == "Failed"));
    let status = &pods.get("second").unwrap().json()["status"];
    let lack = "not enough cpus available to satisfy request: requested=1, available=0";
    assert_eq!(status["reason"], "UnexpectedAdmissionError");
    assert_eq!(status["message"], format!("Pod was rejected: Allocate failed due to {lack}, which is unexpected"));

    // Neither a restart nor a corrupt state file changes the assignment.
    let before = ["own", "shared", "later"].map(|name| node.running_containers(name));
    let state = node.folder().join("pods/cpu_manager_state");
    let written = fs::read_to_string(&state).unwrap();
    node.kill_agent();
    fs::write(&state, &written.as_bytes()[..written.len() / 2]).unwrap();
    node.start_agent();
    for name in ["own", "shared", "later"] {
        wait_ready(&node, name);
    }
    wait_for("the file to be as before", PATIENCE, || (fs::read_to_string(&state).ok()? == written).then_some(()));
    assert_eq!(["own", "shared", "later"].map(|name| node.running_containers(name)), before);
    assert_eq!(processors(&node, "own"), machine.last);
    assert_eq!(processors(&node, "shared"), machine.system);

    node.remove_manifest("own");
    wait_for_processors(&node, "shared", &machine.all);
    wait_for_processors(&node, "later", &machine.all);
}

#[test]
fn without_the_static_policy_containers_run_on_all_cpus() {
    let machine = Machine::new();
    let mut node = machine.node();
    node.apply(&exclusive("own"));
    wait_ready(&node, "own");
    wait_for_processors(&node, "own", &machine.last);
    let before = node.running_containers("own");
    node.kill_agent();
    node.configure_agent("");
    node.start_agent();
    wait_for_processors(&node, "own", &machine.all);
    let state = node.folder().join("pods/cpu_manager_state");
    let none = r#"{"policyName":"none","defaultCpuSet":"","checksum":1353318690}"#;
    wait_for("the file to say so", PATIENCE, || (fs::read_to_string(&state).ok()? == none).then_some(()));
    // Back to the static policy: the running container gets the exclusive CPU that it requests.
    node.kill_agent();
    node.configure_agent(&machine.configuration());
    node.start_agent();
    wait_for_processors(&node, "own", &machine.last);
    assert_eq!(node.running_containers("own"), before);
}

#[test]
fn numa_memory_assignments_survive_the_loss_of_the_state_file() {
    let machine = Machine::new();
    let mut node = Node::with_runtime();
    let memory = "memoryManagerPolicy: Static\ntopologyManagerPolicy: single-numa-node\n\
                  evictionHard: {memory.available: 100Mi}\nreservedMemory: [{numaNode: 0, limits: {memory: 100Mi}}]\n";
    node.configure_agent(&(machine.configuration() + memory));
    node.start_agent();
    node.apply(&exclusive("own"));
    wait_ready(&node, "own");
    let state = node.folder().join("pods/memory_manager_state");
    let block = r#""size":33554432,"type":"memory""#;
    let has_block = || fs::read_to_string(&state).ok().filter(|text| text.contains(block));
    let written = wait_for("the file to say what it has", PATIENCE, has_block);
    let before = node.running_containers("own");
    node.kill_agent();
    fs::remove_file(&state).unwrap();
    node.start_agent();
    assert_eq!(wait_for("the file to say it again", PATIENCE, has_block), written);
    assert_eq!(node.running_containers("own"), before);
    // The memory assignment of a running container does not change.
    node.apply(&exclusive_with("own", "64Mi"));
    let pending = |pod: &super::node::Pod| {
        let conditions = pod.json()["status"]["conditions"].as_array().unwrap().clone();
        conditions.into_iter().find(|condition| condition["type"] == "PodResizePending")
    };
    let pods = node.wait_until("it says so", |pods| pods.has("own", |pod| pending(pod).is_some()));
    let condition = pending(pods.get("own").unwrap()).unwrap();
    assert_eq!(condition["reason"], "Infeasible");
    let message = "Resize is infeasible for Guaranteed Pods alongside Memory Manager policy \"Static\"";
    assert_eq!(condition["message"], message);
}
