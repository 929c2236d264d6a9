//! The lean profile on a real containerd: the printed configuration, shared shims, and pods that share none.

use super::node::{Manifest, Node, PATIENCE, Pods, STAY, shim_children, wait_for};

const SHARING: [&str; 3] = ["one", "two", "three"];

fn with_own_shim(name: &str) -> String {
    let text = Manifest::new(name).container("main", STAY).text();
    let metadata = format!("metadata: {{name: {name}, annotations: {{coracle.dev/own-shim: \"true\"}}}}");
    text.replace(&format!("metadata: {{name: {name}}}"), &metadata)
}

fn all_ready(pods: &Pods) -> bool {
    SHARING.iter().chain(&["own"]).all(|name| pods.has(name, |pod| pod.is_ready()))
}

/// The number of shims. A shim exits a moment after its last container was removed.
#[track_caller]
fn expect_shims(node: &Node, number: usize) {
    wait_for(&format!("{number} shims"), PATIENCE, || (node.shims().len() == number).then_some(()));
}

#[test]
fn static_pods_share_a_shim_and_a_pod_can_have_its_own() {
    let mut node = Node::bare_lean();
    node.start_containerd();
    node.start_agent();
    SHARING.iter().for_each(|name| node.apply(&Manifest::new(name).container("main", STAY)));
    node.write_manifest("own", &with_own_shim("own"));
    node.wait_until("all are ready", all_ready);
    expect_shims(&node, 2);

    // A container that is started later joins the shim of its sandbox, also after a restart of the agent.
    node.kill_agent();
    node.start_agent();
    node.kill_container("one", "main");
    node.wait_until("it was restarted", |pods| {
        all_ready(pods) && pods.has("one", |pod| pod.container("main").restarts() == 1)
    });
    expect_shims(&node, 2);

    // A shim outlives the pods that leave it.
    node.remove_manifest("own");
    node.remove_manifest("two");
    node.wait_until_gone("own");
    node.wait_until_gone("two");
    expect_shims(&node, 1);
    let pods = node.pods();
    assert!(pods.has("one", |pod| pod.is_ready()) && pods.has("three", |pod| pod.is_ready()));
    assert_eq!(pods.get("three").unwrap().container("main").restarts(), 0);
}

#[test]
fn pods_of_a_killed_shim_run_again_in_one_shim() {
    let mut node = Node::bare_lean();
    node.start_containerd();
    node.start_agent();
    SHARING.iter().for_each(|name| node.apply(&Manifest::new(name).container("main", STAY)));
    node.write_manifest("own", &with_own_shim("own"));
    let before = node.wait_until("all are ready", all_ready);
    let ids = |pods: &Pods| SHARING.map(|name| pods.get(name).unwrap().container("main").id());
    let own = before.get("own").unwrap().container("main").id();
    // The shared one has the pause processes and containers of three pods.
    let shim_of_own = node.shims().into_iter().find(|shim| shim_children(shim) == 2).expect("a shim with one pod");
    let shared = node.shims().into_iter().find(|shim| *shim != shim_of_own).expect("a shared shim");
    node.kill_shim(&shared);
    let after = node.wait_until("all run anew", |pods| {
        all_ready(pods) && ids(pods).iter().zip(ids(&before)).all(|(new, old)| *new != old)
    });
    expect_shims(&node, 2);
    assert_eq!(after.get("own").unwrap().container("main").id(), own, "the other shim's pod was restarted");
}
