//! How the PLEG notices exits: runtime events, the container's process, and relists.

use coracle::protocol::grpc::Code;

use super::node::{Manifest, Node};

/// A node with a pod whose container has exited once.
fn after_an_exit(arrange: impl Fn(&Node)) -> Node {
    let mut node = Node::new();
    arrange(&node);
    node.apply(&Manifest::new("web").container("main", ""));
    node.start_agent();
    node.wait_until_ready("web");
    node.fake.exit("web-node-a/main", 1);
    node.wait_until("the container runs again", |pods| {
        pods.has("web", |pod| pod.is_ready() && pod.container("main").restarts() == 1)
    });
    node
}

/// Number of full relists; their requests are empty.
fn relists(node: &Node) -> usize {
    let calls = node.fake.calls();
    calls.iter().filter(|call| call.method == "ListContainers" && call.request.is_empty()).count()
}

#[test]
fn process_exit_alone_is_noticed() {
    let node = after_an_exit(|_| {});
    assert_eq!(relists(&node), 1);
}

#[test]
fn runtime_event_alone_is_noticed() {
    let node = after_an_exit(|node| {
        node.fake.hide_pids();
        node.fake.enable_events();
    });
    assert_eq!(relists(&node), 1);
}

#[test]
fn relist_notices_an_exit_without_other_signals() {
    let node = after_an_exit(|node| {
        node.fake.hide_pids();
        node.configure("syncFrequency: 1s\n");
    });
    assert!(relists(&node) > 1);
}

#[test]
fn broken_event_stream_is_reopened() {
    let node = after_an_exit(|node| {
        node.fake.hide_pids();
        node.fake.enable_events();
        node.fake.on("GetContainerEvents").fail(Code::Internal, "no events today").times(1);
    });
    node.fake.look(|world| assert!(world.calls_of("GetContainerEvents") >= 2));
}

#[test]
fn exit_while_the_event_stream_is_broken_is_noticed() {
    let node = after_an_exit(|node| {
        node.fake.hide_pids();
        node.fake.enable_events();
    });
    node.fake.on("GetContainerEvents").fail(Code::Internal, "no events today").times(1);
    let streams = node.fake.look(|world| world.calls_of("GetContainerEvents"));
    node.fake.cut_connections();
    node.fake.wait_for_calls("GetContainerEvents", streams + 1);
    node.fake.exit("web-node-a/main", 1);
    node.wait_until("the container runs again", |pods| {
        pods.has("web", |pod| pod.is_ready() && pod.container("main").restarts() == 2)
    });
}
