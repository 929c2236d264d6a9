//! Images that the agent fetches itself, from a real registry into a real containerd.

use std::fs;

use crate::node::{BUSYBOX, Manifest, Node, PATIENCE, STAY, wait_for};
use crate::registry::{PASSWORD, Proxy, Registry, Way, make_image, remove_image, secret};

const BYTES: usize = 6 << 20;

/// A node whose agent fetches images itself.
fn start() -> Node {
    let mut node = Node::with_runtime();
    let config = node.folder().join("coracle.yaml");
    fs::write(&config, "images: {fetch: resumable}\n").unwrap();
    node.add_arguments(&["--coracle-config", &config.display().to_string()]);
    node.start_agent();
    node
}

fn manifest(image: &str, spec: &str) -> String {
    let manifest = Manifest::new("web").container_with("main", STAY, "imagePullPolicy: IfNotPresent");
    manifest.spec(spec).text().replace(BUSYBOX, image)
}

#[test]
fn interrupted_pull_resumes_where_it_stopped() {
    let mut node = start();
    let registry = Registry::with_password(&node);
    let made = make_image(&node, "app", BYTES);
    let image = registry.push(&node, &made, "team/app:1");
    // Otherwise the layer would be in the runtime.
    remove_image(&node, &made);
    let proxy = Proxy::start(&node, &registry, Way::DeadAfter(BYTES / 2));
    let image = proxy.name(&registry, &image);
    node.write_manifest("login", &secret("login", &proxy.address, PASSWORD));
    node.write_manifest("web", &manifest(&image, "imagePullSecrets: [{name: login}]"));
    node.wait_until("the cut to be reported", |pods| {
        pods.has("web", |pod| pod.container("main").is_waiting_for("ErrImagePull"))
    });
    let blobs = || {
        let images = fs::read_dir(node.folder().join("pods/coracle/fetch")).into_iter().flatten().flatten();
        images.flat_map(|image| fs::read_dir(image.path().join("blobs/sha256")).into_iter().flatten().flatten()).count()
    };
    assert!(blobs() > 0, "nothing was kept");
    node.kill_agent();
    proxy.set(Way::Open);
    node.start_agent();
    node.wait_until("web is ready", |pods| pods.has("web", |pod| pod.is_ready()));
    let given = proxy.given();
    assert!((BYTES..BYTES + (1 << 20)).contains(&given), "{given} bytes for an image of {BYTES}");
    wait_for("the parts to go", PATIENCE, || {
        let left = fs::read_dir(node.folder().join("pods/coracle/fetch")).unwrap().count();
        (left == 0).then_some(())
    });
    // The names are those that the runtime's own pull would have stored.
    let names = node.ctr(&["images", "list", "--quiet"]);
    let (name, _) = image.rsplit_once(':').unwrap();
    assert!(names.contains(&image) && names.contains(&format!("{name}@sha256:")), "{names}");
    let container = node.pods().get("web").unwrap().json()["status"]["containerStatuses"][0].clone();
    assert!(container["imageID"].as_str().unwrap().contains("sha256:"), "{container}");
}

#[test]
fn layers_of_the_present_image_are_not_fetched_again() {
    let node = start();
    let registry = Registry::start(&node);
    let image = registry.push_busybox(&node, "app:2");
    let proxy = Proxy::start(&node, &registry, Way::Open);
    node.write_manifest("web", &manifest(&proxy.name(&registry, &image), "hostNetwork: true"));
    node.wait_until("web is ready", |pods| pods.has("web", |pod| pod.is_ready()));
    assert!(proxy.given() < 20_000, "{} bytes", proxy.given());
}
