//! A tag that moves in a real registry makes a new version of a pod.

use std::time::Duration;

use super::node::{BUSYBOX, Manifest, Node, STAY, wait_for};
use super::registry::{Registry, make_image};

/// The first lookup comes within a minute, the next one a minute later.
const LOOKUPS: Duration = Duration::from_secs(180);

struct Followed {
    node: Node,
    registry: Registry,
    /// With its tag.
    image: String,
    /// Another image, whose shell only stays. It has no other program.
    other: String,
}

/// A pod whose image has a tag that the node follows.
fn start(container: &str) -> Followed {
    let node = Node::start();
    let registry = Registry::start(&node);
    let image = registry.push_busybox(&node, "team/app:stable");
    let other = make_image(&node, "other", 1 << 10);
    let manifest = Manifest::new("web").container_with("main", STAY, container).text().replace(BUSYBOX, &image);
    let annotations = "annotations: {coracle.dev/auto-update: 1m, coracle.dev/ready-within: 20s}";
    let manifest = manifest.replace("metadata: {name: web}", &format!("metadata: {{name: web, {annotations}}}"));
    node.write_manifest("web", &manifest);
    node.wait_until("web is ready", |pods| pods.has("web", |pod| pod.is_ready()));
    Followed { node, registry, image, other }
}

impl Followed {
    fn move_tag(&self, to: &str) {
        self.registry.push(&self.node, to, "team/app:stable");
    }

    fn wait_for_event(&self, reason: &str, message: &str) {
        let find = || self.node.events("web").find(reason, message).map(drop);
        wait_for(&format!("the event {reason}"), LOOKUPS, find);
    }

    /// Of the container, and the image as the pod names it.
    fn running(&self) -> (String, String) {
        let pods = self.node.wait_until("web is ready", |pods| pods.has("web", |pod| pod.is_ready()));
        let pod = pods.get("web").unwrap();
        let image = pod.json()["spec"]["containers"][0]["image"].as_str().unwrap().to_owned();
        (pod.container("main").id().to_owned(), image)
    }
}

#[test]
fn moved_tag_becomes_the_pods_version_also_for_the_next_agent() {
    let mut web = start("imagePullPolicy: Always");
    assert_eq!(web.running().1, web.image);
    web.move_tag(&web.other);
    web.wait_for_event("TagMoved", "The tag has moved, which makes a new version: 127.0.0.1:5000/team/app:stable");
    web.wait_for_event("UpdateAccepted", "The new version is ready");
    let updated = web.running();
    assert!(updated.1.starts_with("127.0.0.1:5000/team/app@sha256:"), "{updated:?}");
    web.node.kill_agent();
    web.node.start_agent();
    assert_eq!(web.running(), updated, "the next agent runs another version");
}

#[test]
fn moved_tag_that_is_never_ready_is_rejected_and_lifted_when_it_moves_back() {
    let web = start("readinessProbe: {exec: {command: [\"true\"]}, periodSeconds: 1}");
    web.move_tag(&web.other);
    web.wait_for_event("UpdateRejected", "The new version is rejected, it was not ready within 20s");
    let restored = web.running();
    assert_eq!(restored.1, web.image);
    let is_rejected = |node: &Node| node.ask(&["status"]).is_some_and(|text| text.contains("web-node-a: rejected"));
    assert!(is_rejected(&web.node));
    web.move_tag(BUSYBOX);
    wait_for("the rejection to be lifted", LOOKUPS, || (!is_rejected(&web.node)).then_some(()));
    assert_eq!(web.running(), restored, "the pod was restarted for nothing");
}
