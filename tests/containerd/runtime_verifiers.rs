//! containerd's verifiers of images, for what the agent imports.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::image_archives::{archive, docker_archive, place, wait_for_state};
use super::node::{BUSYBOX, Manifest, Node, STAY};
use super::registry::Registry;

/// A node that fetches images itself, with a verifier that accepts those with `trusted` in their name.
fn start() -> Node {
    let mut node = Node::with_runtime();
    let verifiers = node.folder().join("verifiers");
    fs::create_dir(&verifiers).unwrap();
    let program = verifiers.join("by-name");
    let script = "#!/bin/sh\ncase $2 in */trusted*) exit 0;; esac\necho it is not trusted\nexit 1\n";
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let config = node.folder().join("coracle.yaml");
    let settings = format!("images: {{fetch: resumable, runtimeVerifiers: {}}}\n", verifiers.display());
    fs::write(&config, settings).unwrap();
    node.add_arguments(&["--coracle-config", &config.display().to_string()]);
    node.start_agent();
    node
}

#[test]
fn runtime_verifier_is_asked_about_fetched_images() {
    let node = start();
    let registry = Registry::start(&node);
    for name in ["trusted", "other"] {
        let image = registry.push_busybox(&node, &format!("{name}:1"));
        let manifest = Manifest::new(name).container_with("main", STAY, "imagePullPolicy: IfNotPresent");
        node.write_manifest(name, &manifest.text().replace(BUSYBOX, &image));
    }
    node.wait_until("one runs and the other is refused", |pods| {
        let is_refused =
            |message: &str| message.contains("/by-name refuses ") && message.ends_with(": it is not trusted");
        pods.has("trusted", |pod| pod.is_ready())
            && pods.has("other", |pod| is_refused(pod.container("main").waiting_message()))
    });
}

#[test]
fn runtime_verifier_is_asked_about_archives_and_those_without_a_digest_are_refused() {
    let node = start();
    let (_, trusted) = archive(&node, "trusted");
    let (_, other) = archive(&node, "other");
    let (_, docker) = docker_archive(&node, "busyboy");
    [trusted, other, docker].iter().for_each(|file| place(&node, file));
    wait_for_state(&node, "trusted.tar", "imported");
    let message = |file: &str| wait_for_state(&node, file, "refused")["message"].as_str().unwrap().to_owned();
    assert!(message("other.tar").ends_with(": it is not trusted"), "{}", message("other.tar"));
    assert!(message("busyboy.tar").ends_with(", and a docker-archive has none"), "{}", message("busyboy.tar"));
}
