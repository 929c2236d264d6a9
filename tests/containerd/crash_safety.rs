//! The agent is killed at any moment and the next agent continues from the state of the runtime.

use std::time::Duration;

use super::node::{Manifest, Node, PATIENCE, STAY, Task, wait_for};

/// Delay in milliseconds between writing the manifest and killing the agent. A pod takes about 200 ms to start.
const MOMENTS: [u64; 10] = [0, 20, 40, 70, 100, 130, 160, 200, 300, 600];

/// Restarts that a cut start may add: the runtime aborts a start whose caller dies and records the container as
/// exited, which counts as a restart.
const CUT: u64 = 1;

/// The tasks of a pod once the runtime has finished the calls of the dead agent.
fn settled(node: &Node, name: &str) -> Vec<Task> {
    let mut last = node.tasks_of(name);
    let mut same = 0;
    wait_for("the runtime to settle", PATIENCE, || {
        let tasks = node.tasks_of(name);
        same = if tasks == last { same + 1 } else { 0 };
        last.clone_from(&tasks);
        (same == 5).then_some(tasks)
    })
}

#[test]
fn kill_during_a_pod_start_duplicates_no_container() {
    let mut node = Node::start();
    for moment in MOMENTS {
        let name = format!("after-{moment}");
        let manifest = Manifest::new(&name).init_container("first", "sleep 0.05").container("main", STAY);
        node.apply(&manifest);
        // The kill falls at different points of the start.
        std::thread::sleep(Duration::from_millis(moment));
        node.kill_agent();
        let running: Vec<Task> = settled(&node, &name).into_iter().filter(|task| task.is_running()).collect();
        node.start_agent();
        let pods = node.wait_until("the pod is ready", |pods| pods.has(&name, |pod| pod.is_ready()));
        let restarts = pods.get(&name).unwrap().container("main").restarts();
        assert!(restarts <= CUT, "killed after {moment} ms: {restarts} restarts");

        let tasks = node.tasks_of(&name);
        for before in running.iter().filter(|task| task.container != "first") {
            assert!(tasks.contains(before), "killed after {moment} ms: {before:?} was not kept; there is {tasks:?}");
        }
        assert_eq!(live(&tasks), ["", "main"], "killed after {moment} ms: {tasks:?}");
    }
}

#[test]
fn repeated_kills_create_each_pod_once() {
    let mut node = Node::start();
    node.apply(&Manifest::new("web").init_container("first", "sleep 0.05").container("main", STAY));
    node.apply(&Manifest::new("pair").container("main", STAY).container("other", STAY));
    for _ in 0..10 {
        // The kills fall at different points of the starts, which take longer than this.
        std::thread::sleep(Duration::from_millis(150));
        node.kill_agent();
        // The runtime may still be busy with the calls of the last agent.
        node.launch_agent();
    }
    node.wait_until("both are ready", |pods| ["web", "pair"].iter().all(|name| pods.has(name, |pod| pod.is_ready())));
    wait_for("only what is wanted to run", PATIENCE, || {
        let (web, pair) = (node.tasks_of("web"), node.tasks_of("pair"));
        (live(&web) == ["", "main"] && live(&pair) == ["", "main", "other"]).then_some(())
    });
    assert!(node.pods().has("web", |pod| pod.container("main").is_running()));
}

#[test]
fn kill_during_a_container_restart_counts_one_restart() {
    let mut node = Node::start();
    for moment in [0, 30, 60, 120] {
        let name = format!("after-{moment}");
        node.apply(&Manifest::new(&name).container("main", STAY));
        node.wait_until("the pod is ready", |pods| pods.has(&name, |pod| pod.is_ready()));
        node.kill_container(&name, "main");
        // The kill falls at different points of the restart.
        std::thread::sleep(Duration::from_millis(moment));
        node.kill_agent();
        node.start_agent();
        let pods = node.wait_until("the container runs again", |pods| {
            pods.has(&name, |pod| pod.is_ready() && pod.container("main").restarts() > 0)
        });
        let restarts = pods.get(&name).unwrap().container("main").restarts();
        assert!((1..=1 + CUT).contains(&restarts), "killed after {moment} ms: {restarts} restarts");
        assert_eq!(live(&node.tasks_of(&name)), ["", "main"], "killed after {moment} ms");
    }
}

#[test]
fn interrupted_termination_continues() {
    let mut node = Node::start();
    for moment in [0, 30, 200, 1000] {
        let name = format!("after-{moment}");
        // The container ignores SIGTERM, so its grace period of two seconds expires.
        node.apply(&Manifest::new(&name).container("main", "sleep 100000").spec("terminationGracePeriodSeconds: 2"));
        let pods = node.wait_until("the pod is ready", |pods| pods.has(&name, |pod| pod.is_ready()));
        let folder = node.pod_folder(pods.get(&name).unwrap().uid());
        node.remove_manifest(&name);
        // The kill falls at different points of the removal.
        std::thread::sleep(Duration::from_millis(moment));
        node.kill_agent();
        node.start_agent();
        node.wait_until_gone(&name);
        wait_for("the pod's directory to go", PATIENCE, || (!folder.exists()).then_some(()));
    }
}

#[test]
fn pod_whose_manifest_was_removed_while_the_agent_was_down_is_removed() {
    let mut node = Node::start();
    node.apply(&Manifest::new("gone").container("main", STAY));
    node.apply(&Manifest::new("kept").container("main", STAY));
    node.wait_until("both are ready", |pods| ["gone", "kept"].iter().all(|name| pods.has(name, |pod| pod.is_ready())));
    let kept = node.running_containers("kept");
    node.kill_agent();
    node.remove_manifest("gone");
    node.start_agent();
    node.wait_until_gone("gone");
    assert_eq!(node.running_containers("kept"), kept);
}

#[test]
fn restart_counts_outlive_the_agent() {
    let mut node = Node::start();
    node.apply(&Manifest::new("web").container("main", STAY));
    node.wait_until("the pod is ready", |pods| pods.has("web", |pod| pod.is_ready()));
    node.kill_container("web", "main");
    let claim = "the container runs again";
    node.wait_until(claim, |pods| pods.has("web", |pod| pod.is_ready() && pod.container("main").restarts() == 1));
    let before = node.running_containers("web");
    node.stop_agent(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(node.running_containers("web"), before, "an agent that is asked to end takes its pods with it");
    node.start_agent();
    node.wait_until(claim, |pods| pods.has("web", |pod| pod.is_ready() && pod.container("main").restarts() == 1));
    assert_eq!(node.running_containers("web"), before);
}

/// Names of the running containers; the sandbox is "".
fn live(tasks: &[Task]) -> Vec<&str> {
    tasks.iter().filter(|task| task.is_running()).map(|task| &*task.container).collect()
}
