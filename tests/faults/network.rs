//! The runtime's network is not ready.

use super::node::{Manifest, Node};

#[test]
fn only_host_network_pods_start_before_the_network_is_ready() {
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
fn running_pods_survive_a_network_loss_and_their_containers_restart() {
    let mut node = Node::new();
    node.apply(&Manifest::new("web").container("main", ""));
    node.start_agent();
    node.wait_until_ready("web");
    let sandbox = node.seen("web").sandboxes;
    node.fake.set_network_ready(false);
    node.fake.cut_connections();
    node.wait_until("the network loss is known", |_| node.log().contains("container runtime is not ready"));
    node.fake.exit("web-node-a/main", 1);
    node.wait_until("the container runs again", |pods| {
        pods.has("web", |pod| pod.is_ready() && pod.container("main").restarts() == 1)
    });
    assert_eq!(node.seen("web").sandboxes, sandbox);
    // Removed pods terminate without a network.
    node.remove_manifest("web");
    node.wait_until_nothing_is_left();
}
