//! Counts of starts and exits on `/metrics`, as upstream counts them.

use coracle::protocol::grpc::Code;

use super::node::{Manifest, Node, Seen, page};

const DATA: &str = "registry.example/data:1";

/// The value of a series; 0 if it is not on the page.
fn count(node: &Node, series: &str) -> u64 {
    let page = page(node.folder(), "/metrics");
    let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.map_or(0, |value| value.parse().unwrap())
}

#[test]
fn each_attempt_of_a_start_counts_and_each_failure_and_exit_again() {
    let mut node = Node::new();
    node.fake.publish_image(DATA);
    node.fake.on("CreateContainer").times(1).fail(Code::Unknown, "ImageVolumeMountFailed: no space");
    node.start_agent();
    let mount = "volumeMounts: [{name: v, mountPath: /data}]";
    let volume = format!("volumes: [{{name: v, image: {{reference: '{DATA}', pullPolicy: IfNotPresent}}}}]");
    node.apply(&Manifest::new("web").container_with("main", "", mount).spec(&volume));
    node.wait_until_ready("web");
    node.fake.exit("web-node-a/main", 3);
    node.fake.wait_for("the container to run again", |world| Seen::of(world, "web").running() == [("main", 1)]);
    node.wait_until_ready("web");
    for (series, value) in [
        ("kubelet_started_pods_total", 1),
        ("kubelet_started_containers_total{container_type=\"container\"}", 3),
        ("kubelet_started_containers_errors_total{code=\"CreateContainerError\",container_type=\"container\"}", 1),
        ("kubelet_terminated_containers_total{container_type=\"container\",exit_code=\"3\",reason=\"Error\"}", 1),
        ("kubelet_image_volume_requested_total", 3),
        ("kubelet_image_volume_mounted_errors_total", 1),
        ("kubelet_image_volume_mounted_succeed_total", 2),
        // The volume's image was pulled by the first attempt, without credentials.
        ("kubelet_imagemanager_image_mustpull_checks_total{result=\"credentialRecordFound\"}", 2),
        ("kubelet_started_user_namespaced_pods_total", 0),
    ] {
        assert_eq!(count(&node, series), value, "{series}");
    }
}

#[test]
fn pod_without_the_hosts_users_is_counted_apart() {
    let mut node = Node::new();
    node.start_agent();
    node.apply(&Manifest::new("users").container("main", "").spec("hostUsers: false"));
    // This runtime cannot do it.
    let errors = "kubelet_started_user_namespaced_pods_errors_total";
    node.wait_until("the start has failed", |pods| pods.get("users").is_some() && count(&node, errors) > 0);
    assert!(count(&node, "kubelet_started_user_namespaced_pods_total") >= count(&node, errors));
    assert!(count(&node, "kubelet_started_pods_errors_total") > 0);
}
