//! An API server restored from a backup: newer objects are lost and resource versions restart.

use serde_json::{Value, json};

use super::joined::{Joined, LEASE, NODES};
use super::pods::{MIRROR, PODS, WEB, is_ready, mounted, pod};
use crate::csi_driver::{Driver, NAME};

/// The lease is renewed each second, which reveals that resource versions went back.
const SHORT: &str = "nodeLeaseDurationSeconds: 4\ncrashLoopBackOff: {maxContainerRestartPeriod: 1s}\n";
const OTHER: &str = "/api/v1/namespaces/default/pods/other";

/// A ready node with a ready pod.
fn with_web(spec: &Value) -> Joined {
    let mut joined = Joined::new();
    joined.start(SHORT, &[]);
    joined.api.create(&pod("web", spec));
    joined.wait_until_web_is_ready();
    joined
}

impl Joined {
    /// Writes that happen between the backup and the restore. Waits until the lease has been renewed and no response is
    /// pending, because a repeated request would restore forgotten state.
    #[track_caller]
    fn let_versions_pass(&self) {
        self.api.pass_versions(100_000);
        let renewals = self.api.count("patch", LEASE);
        // The first of these may already have been in flight.
        self.api.wait_for_requests("patch", LEASE, renewals + 2);
    }

    #[track_caller]
    fn wait_for_restarts(&self, count: u32) {
        self.api.wait(WEB, "the restarts to be told", |pod| {
            pod["status"]["containerStatuses"][0]["restartCount"] == count && is_ready(pod)
        });
    }
}

#[test]
fn lost_status_is_reported_again_and_nothing_restarts() {
    let joined = with_web(&json!({}));
    joined.wait_until_ready();
    let backup = joined.api.back_up();
    joined.node.fake.exit("main", 1);
    joined.wait_for_restarts(1);
    joined.let_versions_pass();
    let before = joined.running();
    joined.api.restart_with(&backup);
    joined.wait_for_restarts(1);
    // Changes after the restore reach the agent too.
    joined.api.patch(&format!("{WEB}/status"), &json!({"status": {"containerStatuses": null}}));
    joined.wait_for_restarts(1);
    joined.api.create(&pod("other", &json!({})));
    joined.api.wait(OTHER, "the pod of the new history to be ready", is_ready);
    assert!(before.iter().all(|id| joined.running().contains(id)));
    assert_eq!(joined.lists(PODS), 2);
    // Once for the lost connection, and once for the new history.
    assert!((2..=3).contains(&joined.lists(NODES)));
}

#[test]
fn resource_versions_that_jump_ahead_cause_one_list() {
    for version in [10, 1_000_000] {
        let joined = with_web(&json!({}));
        let before = joined.running();
        joined.let_versions_pass();
        joined.api.restart_at_version(version);
        joined.api.wait_for("the pods to be listed again", |world| {
            let asked = world.requests_of("watch", PODS);
            asked.filter(|request| request.parameter("sendInitialEvents").is_some()).count() == 2
        });
        joined.api.patch(&format!("{WEB}/status"), &json!({"status": {"containerStatuses": null}}));
        joined.wait_for_restarts(0);
        assert_eq!((joined.running(), joined.lists(PODS)), (before, 2));
    }
}

#[test]
fn pods_follow_the_restored_backup() {
    let joined = with_web(&json!({}));
    let backup = joined.api.back_up();
    joined.api.create(&pod("other", &json!({})));
    joined.api.wait(OTHER, "the other pod to be ready", is_ready);
    joined.api.delete(WEB);
    joined.api.wait_gone(WEB);
    joined.node.wait_until("only the other pod is left", |_| joined.running().len() == 1);
    joined.let_versions_pass();
    joined.api.restart_with(&backup);
    let back = |pod: &Value| is_ready(pod) && pod["metadata"]["deletionTimestamp"].is_null();
    joined.node.fake.wait_for("the other pod to be ended and web to run", |world| {
        world.running("web/main").is_some() && world.running("other/main").is_none()
    });
    joined.api.wait(WEB, "web to be ready again", back);
}

#[test]
fn mirror_pods_and_config_maps_follow_a_restore() {
    let map = |value: &str| {
        let metadata = json!({"name": "m", "namespace": "default"});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"k": value}})
    };
    let file = |joined: &Joined, content: &str| joined.wait_for_file("kubernetes.io~configmap", "k", content);
    let mut joined = Joined::new();
    joined.api.create(&map("one"));
    joined.start(SHORT, &[]);
    joined.api.create(&pod("web", &mounted(&json!({"name": "v", "configMap": {"name": "m"}}))));
    joined.wait_until_web_is_ready();
    let backup = joined.api.back_up();
    joined.api.update(&map("two"));
    file(&joined, "two");
    joined.node.write_manifest(
        "own",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: own}\nspec:\n  containers: [{name: main, image: 'localhost/coracle/busybox:1', \
         imagePullPolicy: IfNotPresent}]\n",
    );
    joined.api.wait(MIRROR, "the mirror to be ready", is_ready);
    let before = joined.running();
    joined.let_versions_pass();
    joined.api.restart_with(&backup);
    file(&joined, "one");
    joined.api.update(&map("three"));
    file(&joined, "three");
    joined.api.wait(MIRROR, "the mirror to be there again", is_ready);
    assert_eq!(joined.running(), before);
    joined.api.delete(WEB);
    joined.api.wait_gone(WEB);
}

#[test]
fn drivers_and_devices_that_a_backup_does_not_know_are_told_again() {
    const CSI_NODE: &str = "/apis/storage.k8s.io/v1/csinodes/node-a";
    const SLICE: &str = "/apis/resource.k8s.io/v1/resourceslices/node-a-devices.coracle.dev-0";
    let mut joined = Joined::new();
    let (rules, devices) = (joined.node.folder().join("coracle.yaml"), joined.node.folder().join("lines"));
    let rule = json!({"resource": "example.com/line", "paths": [devices.join("tty*").to_str().unwrap()]});
    std::fs::write(&rules, json!({"devices": [rule]}).to_string()).unwrap();
    std::fs::create_dir_all(&devices).unwrap();
    joined.start(SHORT, &["--coracle-config", rules.to_str().unwrap()]);
    joined.wait_until_ready();
    let backup = joined.api.back_up();
    let link = |name: &str| std::os::unix::fs::symlink("/dev/null", devices.join(name)).unwrap();
    link("tty1");
    let _driver = Driver::start(&joined.node.folder().join("pods/plugins_registry"), &[]);
    let all_are_told = || {
        joined.api.wait(CSI_NODE, "the driver", |node| node["spec"]["drivers"][0]["name"] == NAME);
        joined.api.wait(SLICE, "the device", |slice| !slice["spec"]["devices"][0].is_null());
    };
    all_are_told();
    joined.let_versions_pass();
    joined.api.restart_with(&backup);
    all_are_told();
}
