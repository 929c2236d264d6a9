//! The runtime's network is not ready: pods on the node's own network do not wait for it.

use crate::node::{Manifest, Node};

#[test]
fn a_pod_on_the_nodes_network_starts_and_others_wait_until_the_runtimes_network_is_ready() {
    let mut node = Node::new();
    node.fake.set_network_ready(false);
    node.apply(&Manifest::new("inside").container("main", ""));
    node.apply(&Manifest::new("host").container("main", "").spec("hostNetwork: true"));
    node.start_agent();
    node.wait_until_ready("host");
    let pods = node.pods();
    let waits = pods.has("inside", |pod| pod.container("main").is_waiting_for("ContainerCreating"));
    assert!(waits, "{pods:#?}");
    assert_eq!(node.fake.sandboxes().len(), 1);

    node.fake.set_network_ready(true);
    node.wait_until_ready("inside");
}

#[test]
fn pods_that_run_stay_when_the_network_is_lost_and_their_containers_are_restarted() {
    let mut node = Node::new();
    node.apply(&Manifest::new("web").container("main", ""));
    node.start_agent();
    node.wait_until_ready("web");
    let sandbox = node.seen("web").sandboxes;
    node.fake.set_network_ready(false);
    node.fake.cut_connections();
    node.wait_until("it is known", |_| node.log().contains("the container runtime is not ready"));
    node.fake.exit("web-node-a/main", 1);
    node.wait_until("it runs again", |pods| {
        pods.has("web", |pod| pod.is_ready() && pod.container("main").restarts() == 1)
    });
    assert_eq!(node.seen("web").sandboxes, sandbox);
    // What is removed is ended without a network, too.
    node.remove_manifest("web");
    node.wait_until_nothing_is_left();
}
