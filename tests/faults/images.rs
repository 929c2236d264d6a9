//! Image pulls that fail or hang.

use coracle::protocol::grpc::Code;

use super::node::{BUSYBOX, Manifest, Node};

const APP: &str = "registry.example/app:1";

fn manifest() -> String {
    Manifest::new("web").container("main", "").text().replace(BUSYBOX, APP)
}

#[test]
fn failed_pull_is_reported_backs_off_and_is_retried() {
    let mut node = Node::new();
    node.publish_image_that_fails_once();
    node.start_agent();
    node.write_manifest("web", &manifest());
    for reason in ["ErrImagePull", "ImagePullBackOff"] {
        let pods = node.wait_until(reason, |pods| pods.has("web", |pod| pod.container("main").is_waiting_for(reason)));
        let message = pods.get("web").unwrap().container("main").waiting_message().to_owned();
        assert!(message.contains("no such host"), "{message}");
    }
    node.wait_until_ready("web");
    node.fake.look(|world| assert_eq!(world.calls_of("PullImage"), 2));
}

#[test]
fn hung_pull_is_cancelled_when_its_pod_is_removed() {
    let mut node = Node::new();
    node.fake.publish_image(APP);
    node.fake.on("PullImage").hang();
    node.start_agent();
    node.write_manifest("web", &manifest());
    node.fake.wait_for_calls("PullImage", 1);
    // Meanwhile a pod with a present image starts.
    node.apply(&Manifest::new("other").container("main", ""));
    node.wait_until_ready("other");
    node.remove_manifest("web");
    node.remove_manifest("other");
    node.wait_until_nothing_is_left();
}

impl Node {
    fn publish_image_that_fails_once(&self) {
        self.fake.publish_image(APP);
        self.fake.on("PullImage").fail(Code::Unknown, "dial tcp: lookup registry.example: no such host").times(1);
    }
}
