//! Pulling images from a registry: credentials, outages, limits and garbage collection.

use std::fs;

use super::node::{BUSYBOX, Manifest, Node, PATIENCE, STAY, wait_for};
use super::registry::{PASSWORD, Proxy, Registry, Way, docker_config, make_image, secret, write_program};

/// A pod that runs `image`; `spec` is an additional line of its spec.
fn manifest(name: &str, image: &str, policy: &str, spec: &str) -> String {
    let fields = format!("imagePullPolicy: {policy}");
    let manifest = Manifest::new(name).container_with("main", STAY, &fields);
    let manifest = if spec.is_empty() { manifest } else { manifest.spec(spec) };
    manifest.text().replace(BUSYBOX, image)
}

fn wait_until_ready(node: &Node, name: &str) {
    node.wait_until(&format!("{name} is ready"), |pods| pods.has(name, |pod| pod.is_ready()));
}

/// Waits until the container waits for this reason and returns the message.
fn wait_for_reason(node: &Node, name: &str, reason: &str) -> String {
    let pods = node.wait_until(reason, |pods| pods.has(name, |pod| pod.container("main").is_waiting_for(reason)));
    pods.get(name).unwrap().container("main").waiting_message().to_owned()
}

const SECRET: &str = "imagePullSecrets: [{name: login}]";

#[test]
fn only_a_pod_with_the_pull_secret_can_pull() {
    let node = Node::start();
    let registry = Registry::with_password(&node);
    let image = registry.push_busybox(&node, "app:1");
    let other = registry.push_busybox(&node, "other:1");
    node.write_manifest("login", &secret("login", &registry.address, PASSWORD));
    node.write_manifest("web", &manifest("web", &image, "IfNotPresent", SECRET));
    wait_until_ready(&node, "web");
    let events = node.events("web");
    for (reason, message) in [("Pulling", "Pulling image"), ("Pulled", "Successfully pulled image")] {
        assert!(events.find(reason, &format!("{message} \"{image}\"")).is_some(), "{:#?}", events.lines());
    }

    node.write_manifest("guest", &manifest("guest", &other, "IfNotPresent", ""));
    let message = wait_for_reason(&node, "guest", "ErrImagePull");
    assert!(message.ends_with("401 Unauthorized"), "{message}");
    let message = wait_for_reason(&node, "guest", "ImagePullBackOff");
    let begin =
        format!("Back-off pulling image \"{other}\": ErrImagePull: failed to pull and unpack image \"{other}\": ");
    assert!(message.starts_with(&begin), "{message}");
}

#[test]
fn corrected_pull_secret_takes_effect() {
    let node = Node::start();
    let registry = Registry::with_password(&node);
    let image = registry.push_busybox(&node, "app:1");
    node.write_manifest("web", &manifest("web", &image, "IfNotPresent", SECRET));
    // The Secret does not exist yet.
    wait_for_reason(&node, "web", "ImagePullBackOff");
    let told = "Unable to retrieve some image pull secrets (login); attempting to pull the image may not succeed.";
    assert!(node.agent_log().contains(told));

    node.write_manifest("login", &secret("login", &registry.address, "a-guess"));
    node.wait_until("the wrong password is refused", |pods| {
        pods.has("web", |pod| pod.container("main").waiting_message().contains("401 Unauthorized"))
    });
    node.write_manifest("login", &secret("login", &registry.address, PASSWORD));
    wait_until_ready(&node, "web");
    assert!(!node.agent_log().contains("a-guess") && !node.agent_log().contains(PASSWORD));
}

#[test]
fn every_pod_can_use_the_nodes_registry_credentials() {
    let node = Node::start();
    let registry = Registry::with_password(&node);
    let image = registry.push_busybox(&node, "team/app:1");
    let place = format!("http://{}/team", registry.address);
    fs::write(node.folder().join("pods/config.json"), docker_config(&place, PASSWORD)).unwrap();
    node.write_manifest("web", &manifest("web", &image, "Always", ""));
    wait_until_ready(&node, "web");
}

#[test]
fn credential_providers_answer_is_cached() {
    let mut node = Node::with_runtime();
    let registry = Registry::with_password(&node);
    let first = registry.push_busybox(&node, "app:1");
    let second = registry.push_busybox(&node, "other:1");
    let folder = node.folder().display().to_string();
    let answer = serde_json::json!({
        "kind": "CredentialProviderResponse", "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        "cacheKeyType": "Registry", "cacheDuration": "1h",
        "auth": {&registry.address: {"username": super::registry::USER, "password": PASSWORD}}
    });
    let script = format!("cat >>{folder}/asked; echo \" $* $PLACE\" >>{folder}/asked; echo '{answer}'\n");
    write_program(&node.folder().join("providers/login"), &script);
    let config = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n\
                  - {name: login, apiVersion: credentialprovider.kubelet.k8s.io/v1, defaultCacheDuration: 0s,\n  \
                  matchImages: [\"127.*.0.1:5000\"], args: [get, all], env: [{name: PLACE, value: here}]}\n";
    fs::write(node.folder().join("providers.yaml"), config).unwrap();
    let (config, programs) = (format!("{folder}/providers.yaml"), format!("{folder}/providers"));
    node.add_arguments(&[
        "--image-credential-provider-config",
        &config,
        "--image-credential-provider-bin-dir",
        &programs,
    ]);
    node.start_agent();
    for (name, image) in [("web", &first), ("db", &second)] {
        node.write_manifest(name, &manifest(name, image, "IfNotPresent", ""));
        wait_until_ready(&node, name);
    }
    let asked = fs::read_to_string(node.folder().join("asked")).unwrap();
    assert_eq!(asked.lines().count(), 1, "{asked}");
    let (question, rest) = asked.rsplit_once('}').unwrap();
    assert_eq!(rest, " get all here\n");
    let question: serde_json::Value = serde_json::from_str(&format!("{question}}}")).unwrap();
    assert_eq!(question["image"], "127.0.0.1:5000/app");
    assert_eq!(question["kind"], "CredentialProviderRequest");
}

#[test]
fn pull_policy_always_falls_back_to_the_local_image() {
    let mut node = Node::start();
    let mut registry = Registry::start(&node);
    let image = registry.push_busybox(&node, "app:1");
    node.write_manifest("web", &manifest("web", &image, "Always", ""));
    wait_until_ready(&node, "web");
    registry.stop();
    node.kill_container("web", "main");
    node.wait_until("web runs again", |pods| {
        pods.has("web", |pod| pod.is_ready() && pod.container("main").restarts() == 1)
    });
    let told = format!(
        "Registry 127.0.0.1:5000 cannot be reached: container image \"{image}\" is used as it is present on machine"
    );
    assert!(node.agent_log().contains(&told), "{}", node.agent_log());

    // With the strict option the agent does not fall back to the local image.
    node.kill_agent();
    node.add_arguments(&["--strict-image-pull-policy"]);
    node.start_agent();
    node.kill_container("web", "main");
    let message = wait_for_reason(&node, "web", "ErrImagePull");
    assert!(message.contains("connection refused"), "{message}");
}

#[test]
fn interrupted_pull_is_reported_and_retried() {
    let node = Node::start();
    let registry = Registry::start(&node);
    let made = make_image(&node, "app", 1 << 20);
    let image = registry.push(&node, &made, "app:1");
    // Otherwise the runtime would reuse the content it already has.
    node.remove_image(&made);
    let proxy = Proxy::start(&node, &registry, Way::DeadAfter(64 << 10));
    let image = proxy.name(&registry, &image);
    node.write_manifest("web", &manifest("web", &image, "IfNotPresent", ""));
    let message = wait_for_reason(&node, "web", "ErrImagePull");
    assert!(message.contains("EOF") || message.contains("reset"), "{message}");
    proxy.set(Way::Open);
    wait_until_ready(&node, "web");
    wait_for("the connections to end", PATIENCE, || (proxy.open() == 0).then_some(()));
}

#[test]
fn slow_pull_delays_no_other_pod_and_ends_with_its_own() {
    let mut node = Node::with_runtime();
    node.configure_agent("serializeImagePulls: false\nmaxParallelImagePulls: 2\n");
    node.start_agent();
    let registry = Registry::start(&node);
    let large = make_image(&node, "large", 1 << 20);
    let slow = registry.push(&node, &large, "slow:1");
    let quick = registry.push_busybox(&node, "quick:1");
    node.remove_image(&large);
    let proxy = Proxy::start(&node, &registry, Way::Slow);
    let slow = proxy.name(&registry, &slow);
    node.write_manifest("slow", &manifest("slow", &slow, "IfNotPresent", ""));
    let pulls = || {
        let status = node.ask(&["status", "-o", "json"]).expect("the agent answers");
        let status: serde_json::Value = serde_json::from_str(&status).expect("it is JSON");
        status["pulls"].as_array().cloned().unwrap_or_default()
    };
    wait_for("the slow pull to begin", PATIENCE, || {
        pulls().iter().any(|pull| pull["image"] == slow.as_str() && pull["begun"] == true).then_some(())
    });
    // One pod whose image is present and one with a quick pull.
    node.apply(&Manifest::new("present").container("main", STAY));
    node.write_manifest("quick", &manifest("quick", &quick, "IfNotPresent", ""));
    wait_until_ready(&node, "present");
    wait_until_ready(&node, "quick");
    assert_eq!(pulls().len(), 1, "the slow pull is not over");
    assert!(
        node.ask(&["status"]).unwrap().contains(&format!("\nPulls:\n  {slow} for slow-node-a_default: in progress"))
    );

    node.remove_manifest("slow");
    node.wait_until_gone("slow");
    assert_eq!(pulls().len(), 0);
    wait_for("the transfer to end", PATIENCE, || (proxy.open() == 0).then_some(()));
}

#[test]
fn unreachable_registry_is_reported() {
    let node = Node::start();
    node.write_manifest("web", &manifest("web", "127.0.0.1:1/app:1", "IfNotPresent", ""));
    let message = wait_for_reason(&node, "web", "ImagePullBackOff");
    let begin = "Back-off pulling image \"127.0.0.1:1/app:1\": ErrImagePull: failed to pull and unpack image ";
    assert!(message.starts_with(begin) && message.contains("connect: connection refused"), "{message}");
}

/// Names of the runtime's images.
fn images_of(node: &Node) -> Vec<String> {
    node.image_names().into_iter().filter(|name| !name.starts_with("sha256:")).collect()
}

#[test]
fn garbage_collection_removes_only_unused_images() {
    let mut node = Node::with_runtime();
    let unused = make_image(&node, "unused", 1000);
    let wanted = make_image(&node, "wanted", 1000);
    // Every file system exceeds this threshold.
    node.configure_agent("imageGCHighThresholdPercent: 1\nimageGCLowThresholdPercent: 0\n");
    // One running pod, and one that cannot start but still needs its image.
    node.apply(&Manifest::new("web").container("main", STAY));
    let waits = Manifest::new("waits").container_with("main", STAY, "envFrom: [{configMapRef: {name: missing}}]");
    node.write_manifest("waits", &waits.text().replace(BUSYBOX, &wanted));
    node.start_agent();
    wait_for("the unused image to go", PATIENCE, || (!images_of(&node).contains(&unused)).then_some(()));
    wait_until_ready(&node, "web");
    // The tests' runtime does not pin the sandbox image.
    assert_eq!(images_of(&node), [BUSYBOX, "localhost/coracle/pause:1", wanted.as_str()]);
    wait_for("it to be told that there is still too little room", PATIENCE, || {
        node.agent_log().contains("Insufficient free disk space on the node's image filesystem").then_some(())
    });
}

#[test]
fn pull_that_fills_the_disk_triggers_garbage_collection() {
    let mut node = Node::with_runtime();
    let registry = Registry::start(&node);
    let image = registry.push_busybox(&node, "app:1");
    let unused = make_image(&node, "unused", 1000);
    node.configure_agent("imageGCHighThresholdPercent: 1\nimageGCLowThresholdPercent: 0\nimageMinimumGCAge: 1ms\n");
    // A pod that uses the image until the first garbage collection is over.
    let keeps = Manifest::new("keeps").container_with("main", STAY, "envFrom: [{configMapRef: {name: missing}}]");
    node.write_manifest("keeps", &keeps.text().replace(BUSYBOX, &unused));
    node.start_agent();
    let first_look = "Insufficient free disk space on the node's image filesystem";
    wait_for("the first look at the images", PATIENCE, || node.agent_log().contains(first_look).then_some(()));
    node.remove_manifest("keeps");
    node.wait_until_gone("keeps");
    assert!(images_of(&node).contains(&unused));
    node.write_manifest("web", &manifest("web", &image, "IfNotPresent", ""));
    wait_until_ready(&node, "web");
    wait_for("the unused image to go", PATIENCE, || (!images_of(&node).contains(&unused)).then_some(()));
    assert!(images_of(&node).contains(&image));
}

#[test]
fn images_unused_for_too_long_are_removed() {
    let mut node = Node::with_runtime();
    let registry = Registry::start(&node);
    let image = registry.push_busybox(&node, "app:1");
    let unused = make_image(&node, "unused", 1000);
    node.configure_agent("imageMinimumGCAge: 1ms\nimageMaximumGCAge: 2ms\n");
    node.start_agent();
    // Garbage collection runs after the pull, when the image has exceeded the maximum age.
    node.write_manifest("web", &manifest("web", &image, "IfNotPresent", ""));
    wait_until_ready(&node, "web");
    wait_for("the unused image to go", PATIENCE, || (!images_of(&node).contains(&unused)).then_some(()));
    assert!(images_of(&node).contains(&image));
}

#[test]
fn only_images_that_no_pod_uses_can_be_removed() {
    let node = Node::start();
    node.apply(&Manifest::new("web").container("main", STAY));
    node.wait_until("the pod runs", |pods| pods.has("web", |pod| pod.is_ready()));
    node.tag_image("localhost/coracle/busybox:1", "localhost/coracle/busybox:2");
    let list = node.ask(&["images", "-o", "json"]).expect("the images are listed");
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    let pods_of = |tag: &str| {
        let tagged = |image: &&serde_json::Value| image["tags"].as_array().unwrap().iter().any(|one| one == tag);
        let image = list["images"].as_array().unwrap().iter().find(tagged).expect("the image is listed");
        assert!(image["sizeBytes"].as_u64().unwrap() > 0 && !image["id"].as_str().unwrap().is_empty());
        image["pods"].clone()
    };
    assert_eq!(pods_of("localhost/coracle/busybox:1"), serde_json::json!(["default/web-node-a"]));
    assert_eq!(pods_of("localhost/coracle/pause:1"), serde_json::json!(["(every pod)"]));
    let table = node.ask(&["images"]).unwrap();
    assert!(table.starts_with("IMAGE ") && table.contains("   default/web-node-a\n"), "{table}");

    let remove = |name: &str| {
        let done = node.coracle("images", &["remove", name]).output().unwrap();
        (String::from_utf8(done.stdout).unwrap(), String::from_utf8(done.stderr).unwrap())
    };
    let busybox = "localhost/coracle/busybox:1";
    let stays = format!("coracle: image {busybox} is in use by default/web-node-a\n");
    assert_eq!(remove(busybox), (String::new(), stays));
    let nothing = "coracle: no image localhost/nothing:1\n".to_owned();
    assert_eq!(remove("localhost/nothing:1"), (String::new(), nothing));
    node.remove_manifest("web");
    node.wait_until_gone("web");
    let (told, error) = remove(busybox);
    assert!(told.starts_with(&format!("removed {busybox} (")) && error.is_empty(), "{told}{error}");
    assert!(!node.image_names().iter().any(|name| name.contains("busybox")));
}
