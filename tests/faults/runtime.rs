//! The runtime starts late, restarts, and keeps or loses its state.

use std::time::{Duration, Instant};

use coracle::platform::cri::v1::CgroupDriver;
use coracle::protocol::grpc::Code;

use super::node::{Manifest, Node};
use crate::fake_cri::State;

/// The calls that change the runtime's state.
const ACTS: [&str; 6] =
    ["RunPodSandbox", "CreateContainer", "StartContainer", "StopContainer", "StopPodSandbox", "RemovePodSandbox"];

fn acts(node: &Node) -> usize {
    node.fake.look(|world| ACTS.iter().map(|call| world.calls_of(call)).sum())
}

fn two_pods() -> Node {
    let mut node = Node::new();
    for name in ["one", "two"] {
        node.apply(&Manifest::new(name).container("main", "").container("side", ""));
    }
    node.start_agent();
    node.wait_until_ready("one");
    node.wait_until_ready("two");
    node
}

#[test]
fn restarted_runtime_with_its_pods_causes_only_a_relist() {
    let node = two_pods();
    let acts_before = acts(&node);
    let pods = node.pods();
    for round in 1..=3 {
        let relists = node.fake.look(|world| world.calls_of("ListContainers"));
        node.fake.restart(State::Kept);
        node.fake.wait_for_calls("ListContainers", relists + 1);
        node.wait_until("the runtime is known to be ready", |_| node.says_that_the_runtime_is_ready());
        let now = node.pods();
        for name in ["one", "two"] {
            let ids = |pods: &super::node::Pods| pods.get(name).unwrap().container("main").id();
            assert_eq!((ids(&now), now.has(name, |pod| pod.is_ready())), (ids(&pods), true), "round {round}");
        }
    }
    // A later pod shows that the agent syncs again.
    node.apply(&Manifest::new("later").container("main", ""));
    node.wait_until_ready("later");
    assert_eq!(acts(&node), acts_before + 3);
}

#[test]
fn pods_lost_in_a_runtime_restart_are_recreated() {
    let node = two_pods();
    node.fake.restart(State::Lost);
    for name in ["one", "two"] {
        // The logs of the earlier instance remain, so it counts as an attempt.
        node.fake.wait_for("the pod to run again", |world| {
            super::node::Seen::of(world, name).is_exactly(&[("main", 1), ("side", 1)])
        });
        node.wait_until_ready(name);
    }
    assert_eq!(node.fake.sandboxes().len(), 2);
    node.remove_all_manifests();
    node.wait_until_nothing_is_left();
}

#[test]
fn runtime_failures_after_a_reboot_cause_no_crash_loop_back_off() {
    for call in ["StopPodSandbox", "RunPodSandbox"] {
        let mut node = two_pods();
        node.kill_agent();
        node.fake.restart(State::Ended);
        drop(node.fake.on(call).about("one").times(2).fail(Code::Unknown, "not yet"));
        node.start_agent();
        let begun = Instant::now();
        node.fake.wait_for("the pod to run again", |world| {
            super::node::Seen::of(world, "one").running() == [("main", 1), ("side", 1)]
        });
        // Two runtime failures back off for at most 4.5 s. Two crashes would back off for 20 s.
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(15), "{call}: it took {took:?}");
        node.wait_until_ready("two");
        node.remove_all_manifests();
        node.wait_until_nothing_is_left();
    }
}

#[test]
fn agent_waits_for_an_absent_runtime() {
    let mut node = Node::new();
    node.fake.stop();
    node.apply(&Manifest::new("web").container("main", ""));
    node.start_agent();
    node.wait_until("the pod is known and waits", |pods| pods.has("web", |pod| pod.phase() == "Pending"));
    let told = || node.log().matches("waiting for the container runtime").count();
    node.wait_until("the agent logs what it waits for", |_| told() > 0);
    node.fake.start_again();
    node.wait_until_ready("web");
    assert_eq!(told(), 1, "logged more than once: {}", node.log());
}

#[test]
fn runtime_returning_after_a_long_outage_is_found_at_once() {
    let node = two_pods();
    for _ in 0..3 {
        node.fake.stop();
        node.wait_until("the outage is known", |_| !node.says_that_the_runtime_is_ready());
        let age = node.age();
        // By then the agent tries every three seconds, and later every five.
        node.wait_until("the outage has lasted a while", |_| node.age() >= age + 7);
        let calls = node.fake.calls().len();
        node.fake.start_again();
        let back = Instant::now();
        node.fake.wait_for("the first call", |world| world.calls.len() > calls);
        let took = back.elapsed();
        assert!(took < Duration::from_millis(1500), "found after {took:?}");
        node.wait_until("the runtime is known to be ready", |_| node.says_that_the_runtime_is_ready());
    }
    assert_eq!(node.seen("one").running(), [("main", 0), ("side", 0)]);
}

#[test]
fn failed_cgroup_driver_request_is_repeated() {
    let mut node = Node::new();
    node.fake.set_cgroup_driver(CgroupDriver::Systemd);
    node.fake.on("RuntimeConfig").times(1).fail(Code::Internal, "not yet");
    node.apply(&Manifest::new("web").container("main", ""));
    node.start_agent();
    node.wait_until_ready("web");
    node.fake.wait_for_calls("RuntimeConfig", 2);
    // When another pod runs, the answer has arrived and is not requested again.
    node.apply(&Manifest::new("other").container("main", ""));
    node.wait_until_ready("other");
    let relists = node.fake.look(|world| world.calls_of("ListContainers"));
    node.fake.set_network_ready(false);
    node.fake.cut_connections();
    node.fake.wait_for_calls("ListContainers", relists + 2);
    assert_eq!(node.fake.look(|world| world.calls_of("RuntimeConfig")), 2);
}

#[test]
fn pod_due_during_an_outage_does_not_keep_the_agent_busy() {
    let node = two_pods();
    node.fake.exit("one-node-a/main", 1);
    node.wait_until("the container runs again", |pods| pods.has("one", |pod| pod.container("main").restarts() == 1));
    node.fake.exit("one-node-a/main", 1);
    node.wait_until("the container backs off for a second", |pods| {
        pods.has("one", |pod| pod.container("main").is_waiting_for("CrashLoopBackOff"))
    });
    node.fake.stop();
    node.wait_until("the outage is known", |_| !node.says_that_the_runtime_is_ready());
    let (age, busy) = (node.age(), node.processor_time());
    node.wait_until("the back-off has long ended", |_| node.age() >= age + 3);
    let busy = node.processor_time() - busy;
    assert!(busy < Duration::from_secs(1), "busy for {busy:?}");
    node.fake.start_again();
    node.wait_until("the container runs again", |pods| {
        pods.has("one", |pod| pod.is_ready() && pod.container("main").restarts() == 2)
    });
}

#[test]
fn containers_that_exit_during_an_outage_restart_once() {
    let node = two_pods();
    node.fake.stop();
    node.fake.exit("one-node-a/main", 3);
    node.fake.start_again();
    node.wait_until("the container runs again", |pods| {
        pods.has("one", |pod| pod.is_ready() && pod.container("main").restarts() == 1)
    });
    assert_eq!(node.seen("one").running(), [("main", 1), ("side", 0)]);
    assert_eq!(node.seen("two").running(), [("main", 0), ("side", 0)]);
}

#[test]
fn pods_removed_during_an_outage_stop_afterwards() {
    let node = two_pods();
    node.fake.stop();
    node.remove_manifest("one");
    node.apply(&Manifest::new("later").container("main", ""));
    node.wait_until("the later manifest was read, and so the removal", |pods| pods.get("later").is_some());
    node.fake.start_again();
    node.fake.wait_for("the pod to go", |world| super::node::Seen::of(world, "one").sandboxes.is_empty());
    assert_eq!(node.seen("two").running(), [("main", 0), ("side", 0)]);
}

/// The fake runtime accepts 100 calls on a connection.
#[test]
fn hanging_calls_of_many_pods_delay_neither_relists_nor_other_pods() {
    let mut node = Node::new();
    node.configure("maxPods: 150\nsyncFrequency: 1s\n");
    node.fake.on("RunPodSandbox").about("slow").hang();
    node.apply(&Manifest::new("web").container("main", ""));
    node.start_agent();
    node.wait_until_ready("web");
    for number in 0..110 {
        node.apply(&Manifest::new(&format!("slow-{number}")).container("main", ""));
    }
    node.fake.wait_for_calls("RunPodSandbox", 111);
    let relists = node.fake.look(|world| world.calls_of("ListContainers"));
    node.fake.exit("web-node-a/main", 1);
    node.wait_until("the container runs again", |pods| {
        pods.has("web", |pod| pod.is_ready() && pod.container("main").restarts() == 1)
    });
    node.apply(&Manifest::new("later").container("main", ""));
    node.wait_until_ready("later");
    node.fake.wait_for_calls("ListContainers", relists + 3);
    assert!(node.says_that_the_runtime_is_ready());
}
