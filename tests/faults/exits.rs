//! How the end of a container is noticed: by the runtime's events, by its process, at last by a relist.

use coracle::protocol::grpc::Code;

use crate::node::{Manifest, Node};

/// A node with a pod whose container has ended once.
fn after_an_exit(arrange: impl Fn(&Node)) -> Node {
    let mut node = Node::new();
    arrange(&node);
    node.apply(&Manifest::new("web").container("main", ""));
    node.start_agent();
    node.wait_until_ready("web");
    node.fake.exit("web-node-a/main", 1);
    node.wait_until("it runs again", |pods| {
        pods.has("web", |pod| pod.is_ready() && pod.container("main").restarts() == 1)
    });
    node
}

/// How often everything was listed: a request without a filter is empty.
fn relists(node: &Node) -> usize {
    let calls = node.fake.calls();
    calls.iter().filter(|call| call.method == "ListContainers" && call.request.is_empty()).count()
}

#[test]
fn the_end_of_the_process_is_enough() {
    let node = after_an_exit(|_| {});
    assert_eq!(relists(&node), 1);
}

#[test]
fn an_event_of_the_runtime_is_enough() {
    let node = after_an_exit(|node| {
        node.fake.hide_pids();
        node.fake.enable_events();
    });
    assert_eq!(relists(&node), 1);
}

#[test]
fn a_relist_notices_what_nothing_else_tells_of() {
    let node = after_an_exit(|node| {
        node.fake.hide_pids();
        node.configure("syncFrequency: 1s\n");
    });
    assert!(relists(&node) > 1);
}

#[test]
fn a_stream_of_events_that_breaks_is_opened_again() {
    let node = after_an_exit(|node| {
        node.fake.hide_pids();
        node.fake.enable_events();
        node.fake.on("GetContainerEvents").fail(Code::Internal, "no events today").times(1);
    });
    node.fake.look(|world| assert!(world.calls_of("GetContainerEvents") >= 2));
}

#[test]
fn an_exit_before_the_stream_of_events_is_open_again_is_noticed() {
    let node = after_an_exit(|node| {
        node.fake.hide_pids();
        node.fake.enable_events();
    });
    node.fake.on("GetContainerEvents").fail(Code::Internal, "no events today").times(1);
    let streams = node.fake.look(|world| world.calls_of("GetContainerEvents"));
    node.fake.cut_connections();
    node.fake.wait_for_calls("GetContainerEvents", streams + 1);
    node.fake.exit("web-node-a/main", 1);
    node.wait_until("it runs again", |pods| {
        pods.has("web", |pod| pod.is_ready() && pod.container("main").restarts() == 2)
    });
}
