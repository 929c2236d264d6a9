//! Pods that an agent finds at its start: its own, another kubelet's, and those whose manifests changed or
//! disappeared.

use std::fs;

use super::node::{Manifest, Node, PATIENCE, STAY, wait_for};

/// The manifest with a uid that another kubelet assigned.
fn with_foreign_uid(manifest: &Manifest) -> String {
    manifest.text().replace("metadata: {", &format!("metadata: {{uid: {FOREIGN}, "))
}

const FOREIGN: &str = "022a85689514a47d3e31e06a7411f0e9";

#[test]
fn adopted_pod_keeps_its_containers_and_its_uid() {
    let mut node = Node::start();
    let manifest = Manifest::new("web").container("main", STAY);
    node.write_manifest("web", &with_foreign_uid(&manifest));
    let before = node.wait_until("the pod is ready", |pods| pods.has("web", |pod| pod.is_ready()));
    node.kill_agent();

    node.apply(&manifest);
    node.start_agent();
    let after = node.wait_until("the pod is ready", |pods| pods.has("web", |pod| pod.is_ready()));
    assert_eq!(after.get("web").unwrap().uid(), FOREIGN);
    let id = |pods: &super::node::Pods| pods.get("web").unwrap().container("main").id().to_owned();
    assert_eq!(id(&after), id(&before), "the container was restarted");
    assert_eq!(after.get("web").unwrap().container("main").restarts(), 0);

    // The adopted pod is terminated like any other when its manifest is removed.
    node.remove_manifest("web");
    node.wait_until_gone("web");
    wait_for("its directory to go", PATIENCE, || (!node.pod_folder(FOREIGN).exists()).then_some(()));
}

#[test]
fn pod_of_another_kubelet_with_other_containers_is_not_adopted() {
    let mut node = Node::start();
    let manifest = Manifest::new("web").container("main", STAY);
    node.write_manifest("web", &with_foreign_uid(&manifest));
    node.wait_until("the pod is ready", |pods| pods.has("web", |pod| pod.is_ready()));
    node.kill_agent();

    node.write_manifest("web", &manifest.text().replace("name: main", "name: other"));
    node.start_agent();
    let after = node.wait_until("the pod is ready", |pods| pods.has("web", |pod| pod.is_ready()));
    assert_ne!(after.get("web").unwrap().uid(), FOREIGN);
    let running: Vec<String> = node.running_containers("web").into_iter().map(|task| task.container).collect();
    assert_eq!(running, ["other"]);
}

#[test]
fn pod_whose_manifest_changed_while_the_agent_was_down_is_replaced() {
    let mut node = Node::start();
    node.apply(&Manifest::new("web").container("main", STAY));
    let before = node.wait_until("the pod is ready", |pods| pods.has("web", |pod| pod.is_ready()));
    let old = before.get("web").unwrap().uid().to_owned();
    node.kill_agent();

    // The container hash covers only name and image, so it is unchanged.
    node.apply(&Manifest::new("web").container("main", &format!("echo changed; {STAY}")));
    node.start_agent();
    node.wait_for_output("web", "main", "changed");
    node.wait_until("the new pod is ready", |pods| pods.has("web", |pod| pod.is_ready() && pod.uid() != old));
    assert_eq!(node.running_containers("web").len(), 1, "the old pod runs on");
}

#[test]
fn files_of_former_pods_are_removed() {
    let mut node = Node::start();
    node.kill_agent();
    let stray = node.pod_folder("11111111-2222-3333-4444-555555555555");
    fs::create_dir_all(stray.join("volumes/kubernetes.io~empty-dir/data")).unwrap();
    fs::write(stray.join("volumes/kubernetes.io~empty-dir/data/file"), "left").unwrap();
    node.start_agent();
    wait_for("the stray directory to go", PATIENCE, || (!stray.exists()).then_some(()));
}
