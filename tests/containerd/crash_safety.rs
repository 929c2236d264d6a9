//! The agent is killed at any moment: the next one goes on from what the runtime has.

use std::time::Duration;

use crate::node::{Manifest, Node, PATIENCE, STAY, Task, wait_for};

/// How long after the manifest was written the agent is killed. A pod takes about 200 ms to start.
const MOMENTS: [u64; 10] = [0, 20, 40, 70, 100, 130, 160, 200, 300, 600];

/// A start that was under way when its caller died is cut short by the runtime, which books the container as ended: it
/// counts like any other that ended.
const CUT: u64 = 1;

/// The tasks once the runtime has given up what it was doing for the agent that died.
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
fn a_pod_that_was_being_started_at_any_of_ten_moments_runs_once_and_keeps_what_ran() {
    let mut node = Node::start();
    for moment in MOMENTS {
        let name = format!("after-{moment}");
        let manifest = Manifest::new(&name).init_container("first", "sleep 0.05").container("main", STAY);
        node.apply(&manifest);
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
fn an_agent_that_is_killed_again_and_again_still_makes_each_pod_once() {
    let mut node = Node::start();
    node.apply(&Manifest::new("web").init_container("first", "sleep 0.05").container("main", STAY));
    node.apply(&Manifest::new("pair").container("main", STAY).container("other", STAY));
    for _ in 0..10 {
        std::thread::sleep(Duration::from_millis(150));
        node.kill_agent();
        // The runtime is still busy with what the last one asked for.
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
fn a_container_that_was_being_restarted_is_counted_once_and_runs_once() {
    let mut node = Node::start();
    for moment in [0, 30, 60, 120] {
        let name = format!("after-{moment}");
        node.apply(&Manifest::new(&name).container("main", STAY));
        node.wait_until("the pod is ready", |pods| pods.has(&name, |pod| pod.is_ready()));
        node.kill_container(&name, "main");
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
fn a_termination_that_was_under_way_goes_on() {
    let mut node = Node::start();
    for moment in [0, 30, 200, 1000] {
        let name = format!("after-{moment}");
        // It does not listen: its grace period of two seconds runs out.
        node.apply(&Manifest::new(&name).container("main", "sleep 100000").spec("terminationGracePeriodSeconds: 2"));
        let pods = node.wait_until("the pod is ready", |pods| pods.has(&name, |pod| pod.is_ready()));
        let folder = node.pod_folder(pods.get(&name).unwrap().uid());
        node.remove_manifest(&name);
        std::thread::sleep(Duration::from_millis(moment));
        node.kill_agent();
        node.start_agent();
        node.wait_until_gone(&name);
        wait_for("the pod's directory to go", PATIENCE, || (!folder.exists()).then_some(()));
    }
}

#[test]
fn a_pod_whose_manifest_was_removed_while_no_agent_ran_is_removed_by_the_next() {
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

/// The containers that run, the sandbox as "".
fn live(tasks: &[Task]) -> Vec<&str> {
    tasks.iter().filter(|task| task.is_running()).map(|task| &*task.container).collect()
}
