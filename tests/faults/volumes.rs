//! Volumes that depend on the runtime.

use coracle::platform::cri::v1::{
    CreateContainerRequest, Mount, PullImageRequest, RuntimeHandler, RuntimeHandlerFeatures,
};
use coracle::protocol::grpc::Code;

use super::node::{Manifest, Node};

const DATA: &str = "registry.example/data:1";

/// A pod that mounts the image at /data.
fn with_image(name: &str, policy: &str) -> Manifest {
    let mount = "volumeMounts: [{name: v, mountPath: /data, subPath: files}]";
    let volume = format!("volumes: [{{name: v, image: {{reference: '{DATA}', pullPolicy: {policy}}}}}]");
    Manifest::new(name).container_with("main", "", mount).spec(&volume)
}

/// The first mount of the newest container.
fn mount(node: &Node) -> Mount {
    let requests = node.fake.requests::<CreateContainerRequest>("CreateContainer");
    requests.last().unwrap().config.clone().unwrap().mounts[0].clone()
}

#[test]
fn image_volume_is_pulled_by_policy_and_mounted_by_the_runtime() {
    let mut node = Node::new();
    node.fake.publish_image(DATA);
    node.start_agent();
    for (name, pulls) in [("first", 1), ("second", 1)] {
        node.apply(&with_image(name, "IfNotPresent"));
        node.wait_until_ready(name);
        let pulled = node.fake.requests::<PullImageRequest>("PullImage");
        let pulled: Vec<String> = pulled.into_iter().map(|request| request.image.unwrap().image).collect();
        assert_eq!(pulled, vec![DATA.to_owned(); pulls]);
        let mount = mount(&node);
        let image = mount.image.unwrap();
        assert!(image.image.starts_with("sha256:"), "{image:?}");
        assert_eq!(image.user_specified_image, DATA);
        assert_eq!((mount.container_path.as_str(), mount.host_path.as_str(), mount.readonly), ("/data", "", true));
        assert_eq!(mount.image_sub_path, "files");
    }
}

#[test]
fn image_volume_is_resolved_once_for_all_its_mounts() {
    let mut node = Node::new();
    node.fake.publish_image(DATA);
    node.start_agent();
    let mounts: Vec<String> = (0..20).map(|number| format!("{{name: v, mountPath: /data/{number}}}")).collect();
    let mounts = format!("volumeMounts: [{}]", mounts.join(", "));
    let volume = format!("volumes: [{{name: v, image: {{reference: '{DATA}', pullPolicy: Always}}}}]");
    node.apply(&Manifest::new("web").container_with("main", "", &mounts).spec(&volume));
    node.wait_until_ready("web");
    assert_eq!(node.fake.requests::<PullImageRequest>("PullImage").len(), 1);
    let requests = node.fake.requests::<CreateContainerRequest>("CreateContainer");
    let mounts = requests.last().unwrap().config.clone().unwrap().mounts;
    let images = mounts.iter().filter_map(|mount| mount.image.as_ref());
    assert_eq!(images.filter(|image| image.image.starts_with("sha256:")).count(), 20);
}

#[test]
fn container_waits_for_its_image_volume_with_a_reason() {
    let mut node = Node::new();
    node.start_agent();
    node.apply(&with_image("never", "Never"));
    node.apply(&with_image("gone", "Always"));
    node.wait_until("both containers wait", |pods| {
        let waits = |name: &str, reasons: &[&str]| {
            pods.has(name, |pod| reasons.iter().any(|reason| pod.container("main").is_waiting_for(reason)))
        };
        waits("never", &["ErrImageNeverPull"]) && waits("gone", &["ErrImagePull", "ImagePullBackOff"])
    });
    // A runtime without image volumes returns its own error.
    node.fake.publish_image(DATA);
    node.fake.on("CreateContainer").fail(Code::Unknown, "failed to mkdir \"\": mkdir : no such file or directory");
    node.apply(&with_image("old", "IfNotPresent"));
    node.wait_until("the container waits", |pods| {
        pods.has("old", |pod| {
            let main = pod.container("main");
            main.is_waiting_for("CreateContainerError") && main.waiting_message().contains("failed to mkdir")
        })
    });
}

#[test]
fn recursive_read_only_mounts_require_a_capable_runtime() {
    let manifest = |mode: &str| {
        let name = mode.to_lowercase();
        let mount = format!("volumeMounts: [{{name: v, mountPath: /data, readOnly: true, recursiveReadOnly: {mode}}}]");
        Manifest::new(&name).container_with("main", "", &mount).spec("volumes: [{name: v, emptyDir: {}}]")
    };
    for able in [false, true] {
        let mut node = Node::new();
        let features = Some(RuntimeHandlerFeatures { recursive_read_only_mounts: able, ..Default::default() });
        node.fake.set_handlers(vec![RuntimeHandler { name: String::new(), features }]);
        node.start_agent();
        node.apply(&manifest("IfPossible"));
        node.wait_until_ready("ifpossible");
        assert_eq!(mount(&node).recursive_read_only, able);
        node.apply(&manifest("Enabled"));
        if able {
            node.wait_until_ready("enabled");
            assert!(mount(&node).recursive_read_only);
        } else {
            node.wait_until("the mount is refused", |pods| {
                pods.has("enabled", |pod| {
                    let main = pod.container("main");
                    main.is_waiting_for("CreateContainerConfigError")
                        && main.waiting_message().ends_with("but it is not supported by the runtime")
                })
            });
        }
    }
}
