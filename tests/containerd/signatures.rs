//! Signed images: a real registry, a real containerd, and signatures by OpenSSL.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::image_archives::{archive, place, wait_for_state};
use super::node::{BUSYBOX, Manifest, Node, STAY};
use super::registry::{Registry, make_image};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const PAYLOAD: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
/// Of images that a test pushes.
const ANY_MANIFEST: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json";

/// A private key in the node's folder.
struct Key(PathBuf);

impl Key {
    fn new(node: &Node, name: &str) -> Self {
        let path = node.folder().join(format!("{name}.key"));
        let arguments = ["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out"];
        openssl(&[&arguments[..], &[path.to_str().unwrap()]].concat(), b"");
        openssl(&["pkey", "-in", path.to_str().unwrap(), "-pubout", "-out", public(&path).to_str().unwrap()], b"");
        Self(path)
    }

    fn sign(&self, content: &[u8]) -> String {
        base64(&openssl(&["dgst", "-sha256", "-sign", self.0.to_str().unwrap()], content))
    }
}

fn public(key: &Path) -> PathBuf {
    key.with_extension("pub")
}

fn openssl(arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut child =
        Command::new("openssl").args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let done = child.wait_with_output().unwrap();
    assert!(done.status.success(), "openssl {arguments:?}");
    done.stdout
}

fn base64(bytes: &[u8]) -> String {
    String::from_utf8(openssl(&["base64", "-A"], bytes)).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Sends a request to the registry; returns the headers and the body.
fn ask(node: &Node, method: &str, path: &str, headers: &str, body: &[u8]) -> (String, Vec<u8>) {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:5000\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n",
        body.len()
    );
    let answer = node.enclosure().on_network(|| {
        let mut stream = TcpStream::connect("127.0.0.1:5000").unwrap();
        stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        answer
    });
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("an answer");
    let text = String::from_utf8_lossy(&answer[..end]).into_owned();
    assert!(text.starts_with("HTTP/1.1 20"), "{method} {path}: {text}");
    (text, answer[end + 4..].to_vec())
}

fn put_blob(node: &Node, repository: &str, content: &[u8], kind: &str) -> Value {
    let (head, _) = ask(node, "POST", &format!("/v2/{repository}/blobs/uploads/"), "", b"");
    let location = head.lines().find_map(|line| line.strip_prefix("Location: ")).unwrap();
    let path = location.strip_prefix("http://127.0.0.1:5000").unwrap_or(location);
    let digest = format!("sha256:{}", hex(content));
    let separator = if path.contains('?') { '&' } else { '?' };
    ask(
        node,
        "PUT",
        &format!("{path}{separator}digest={digest}"),
        "Content-Type: application/octet-stream\r\n",
        content,
    );
    json!({"mediaType": kind, "digest": digest, "size": content.len()})
}

fn put_manifest(node: &Node, repository: &str, name: &str, manifest: &Value) -> Value {
    let content = manifest.to_string().into_bytes();
    let kind = manifest["mediaType"].as_str().unwrap();
    ask(node, "PUT", &format!("/v2/{repository}/manifests/{name}"), &format!("Content-Type: {kind}\r\n"), &content);
    json!({"mediaType": kind, "digest": format!("sha256:{}", hex(&content)), "size": content.len()})
}

/// The digest of an image, in hexadecimal.
fn digest_of(node: &Node, repository: &str, tag: &str) -> String {
    let accept = format!("Accept: {ANY_MANIFEST}\r\n");
    hex(&ask(node, "GET", &format!("/v2/{repository}/manifests/{tag}"), &accept, b"").1)
}

/// Signs the image in the registry as cosign does, under another name if one is given.
fn sign(node: &Node, key: &Key, repository: &str, tag: &str, name: &str) {
    let digest = digest_of(node, repository, tag);
    let payload = json!({"critical": {"identity": {"docker-reference": name}, "type": "cosign container image signature",
        "image": {"docker-manifest-digest": format!("sha256:{digest}")}}, "optional": null});
    let payload = payload.to_string().into_bytes();
    let mut layer = put_blob(node, repository, &payload, PAYLOAD);
    layer["annotations"] = json!({"dev.cosignproject.cosign/signature": key.sign(&payload)});
    let config = put_blob(node, repository, b"{}", "application/vnd.oci.image.config.v1+json");
    let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer]});
    put_manifest(node, repository, &format!("sha256-{digest}.sig"), &manifest);
}

/// Attaches a bundle to the image, as cosign does at a registry without a list of referrers.
fn sign_by_bundle(node: &Node, key: &Key, repository: &str, tag: &str) {
    let digest = digest_of(node, repository, tag);
    let statement = json!({"_type": "https://in-toto.io/Statement/v1", "subject": [{"digest": {"sha256": digest}}],
        "predicateType": "https://sigstore.dev/cosign/sign/v1", "predicate": {}});
    let (kind, payload) = ("application/vnd.in-toto+json", statement.to_string());
    let content = format!("DSSEv1 {} {kind} {} {payload}", kind.len(), payload.len());
    let envelope = json!({"payload": base64(payload.as_bytes()), "payloadType": kind,
        "signatures": [{"sig": key.sign(content.as_bytes())}]});
    let bundle =
        json!({"mediaType": BUNDLE, "verificationMaterial": {"publicKey": {"hint": ""}}, "dsseEnvelope": envelope});
    let layer = put_blob(node, repository, bundle.to_string().as_bytes(), BUNDLE);
    let config = put_blob(node, repository, b"{}", "application/vnd.oci.empty.v1+json");
    let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "artifactType": BUNDLE, "config": config,
        "layers": [layer]});
    let mut referrer = put_manifest(node, repository, "bundle", &manifest);
    referrer["artifactType"] = json!(BUNDLE);
    let index =
        json!({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [referrer]});
    put_manifest(node, repository, &format!("sha256-{digest}"), &index);
}

/// A policy that requires this key of the registry's images.
fn write_policy(node: &Node, key: &Key) {
    let signed = json!({"type": "sigstoreSigned", "keyPath": public(&key.0)});
    let policy = json!({"default": [{"type": "insecureAcceptAnything"}],
        "transports": {"docker": {"127.0.0.1:5000": [signed]}}});
    fs::write(node.folder().join("policy.json"), policy.to_string()).unwrap();
}

fn start(images: &str) -> Node {
    let mut node = Node::with_runtime();
    let policy = node.folder().join("policy.json");
    let config = node.folder().join("coracle.yaml");
    fs::write(&config, format!("images: {{signaturePolicy: {}{images}}}\n", policy.display())).unwrap();
    node.add_arguments(&["--coracle-config", &config.display().to_string()]);
    node
}

fn run(node: &Node, name: &str, image: &str, policy: &str) {
    let manifest = Manifest::new(name).container_with("main", STAY, &format!("imagePullPolicy: {policy}"));
    node.write_manifest(name, &manifest.spec("hostNetwork: true").text().replace(BUSYBOX, image));
}

fn wait_until_ready(node: &Node, name: &str) {
    node.wait_until(&format!("{name} is ready"), |pods| pods.has(name, |pod| pod.is_ready()));
}

#[track_caller]
fn wait_until_refused(node: &Node, name: &str, why: &str) {
    node.wait_until(&format!("{name} to be refused: {why}"), |pods| {
        pods.has(name, |pod| {
            let container = pod.container("main");
            container.waiting_message().contains("signature validation failed")
                && container.waiting_message().contains(why)
        })
    });
}

const REPOSITORY: &str = "127.0.0.1:5000/team/app";

/// Pushes the signed image `team/app:1`, and others whose signatures are not good for their names.
fn push_images(node: &Node, registry: &Registry, key: &Key) {
    let other = Key::new(node, "other");
    registry.push_busybox(node, "team/app:1");
    sign(node, key, "team/app", "1", &format!("{REPOSITORY}:1"));
    registry.push_busybox(node, "team/replayed:1");
    sign(node, key, "team/replayed", "1", &format!("{REPOSITORY}:1"));
    registry.push_busybox(node, "team/foreign:1");
    sign(node, &other, "team/foreign", "1", "127.0.0.1:5000/team/foreign:1");
    registry.push_busybox(node, "team/unsigned:1");
}

fn check_ways(images: &str) {
    let mut node = start(images);
    let registry = Registry::start(&node);
    let key = Key::new(&node, "key");
    push_images(&node, &registry, &key);
    write_policy(&node, &key);
    node.start_agent();
    let image = format!("{REPOSITORY}:1");
    run(&node, "signed", &image, "IfNotPresent");
    for (name, why) in [
        ("replayed", "it is for 127.0.0.1:5000/team/app:1 (transports.docker[\"127.0.0.1:5000\"][0])"),
        ("foreign", "it is not by a key of the policy"),
        ("unsigned", "it has no signature"),
    ] {
        run(&node, name, &format!("127.0.0.1:5000/team/{name}:1"), "Always");
        wait_until_refused(&node, name, why);
        node.remove_manifest(name);
    }
    wait_until_ready(&node, "signed");
    let status = node.pods().get("signed").unwrap().json()["status"]["containerStatuses"][0].clone();
    assert_eq!(status["image"], image.as_str(), "{status}");
    let digest = digest_of(&node, "team/app", "1");
    assert_eq!(status["imageID"], format!("{REPOSITORY}@sha256:{digest}"), "{status}");
    let names = node.image_names();
    let is_refused = |name: &String| name.contains("unsigned") || name.contains("foreign");
    assert!(names.contains(&image) && !names.iter().any(is_refused), "{names:?}");
    verify_offline(node, registry, &image);
}

/// Without the registry the kept signature counts, also after a restart, until the policy asks for another key.
fn verify_offline(mut node: Node, mut registry: Registry, image: &str) {
    registry.stop();
    node.kill_agent();
    node.start_agent();
    run(&node, "again", image, "IfNotPresent");
    wait_until_ready(&node, "again");
    let renewed = Key::new(&node, "renewed");
    write_policy(&node, &renewed);
    run(&node, "late", image, "Never");
    wait_until_refused(&node, "late", "it is not by a key of the policy");
    fs::write(node.folder().join("policy.json"), r#"{"default": [{"type": "signedBy"}]}"#).unwrap();
    run(&node, "unread", image, "Never");
    wait_until_refused(&node, "unread", "policy.json: default[0]: signedBy is not supported");
    let pods = node.pods();
    assert!(["signed", "again"].iter().all(|name| pods.has(name, |pod| pod.is_ready())), "running pods stay");
}

#[test]
fn runtime_pulls_only_signed_images() {
    check_ways("");
}

#[test]
fn fetches_bring_only_signed_images() {
    check_ways(", fetch: resumable");
}

#[test]
fn image_of_an_archive_needs_the_signature_of_the_registry() {
    let mut node = start("");
    let registry = Registry::start(&node);
    let key = Key::new(&node, "key");
    write_policy(&node, &key);
    // As an archive brings it: without a digest of the registry.
    let image = format!("{REPOSITORY}:1");
    node.tag_image(BUSYBOX, &image);
    node.start_agent();
    run(&node, "preloaded", &image, "Never");
    // In CRI-O's store each image has a digest.
    let why =
        if Node::is_on_crio() { "manifest unknown" } else { "it has no digest by which a registry could be asked" };
    wait_until_refused(&node, "preloaded", why);
    registry.push_busybox(&node, "team/app:1");
    sign(&node, &key, "team/app", "1", &image);
    run(&node, "pulled", &image, "IfNotPresent");
    wait_until_ready(&node, "pulled");
    wait_until_ready(&node, "preloaded");
}

/// An archive of an image in the form of `cosign save`: without a name, and with a signature by the key.
fn signed_archive(node: &Node, name: &str, key: &Key) -> (String, PathBuf) {
    let (image, file) = archive(node, name);
    let layout = node.folder().join(format!("layout-{name}"));
    fs::create_dir(&layout).unwrap();
    assert!(Command::new("tar").arg("-xf").arg(&file).arg("-C").arg(&layout).status().unwrap().success());
    let _ = fs::remove_file(layout.join("manifest.json"));
    let index: Value = serde_json::from_slice(&fs::read(layout.join("index.json")).unwrap()).unwrap();
    let put = |content: &[u8], kind: &str| {
        fs::write(layout.join("blobs/sha256").join(hex(content)), content).unwrap();
        json!({"mediaType": kind, "digest": format!("sha256:{}", hex(content)), "size": content.len()})
    };
    let mut top = index["manifests"][0].clone();
    let payload = json!({"critical": {"identity": {"docker-reference": image}, "type": "cosign container image signature",
        "image": {"docker-manifest-digest": top["digest"]}}, "optional": null});
    let payload = payload.to_string().into_bytes();
    let mut layer = put(&payload, PAYLOAD);
    layer["annotations"] = json!({"dev.cosignproject.cosign/signature": key.sign(&payload)});
    let config = put(b"{}", "application/vnd.oci.image.config.v1+json");
    let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer]});
    let mut signatures = put(manifest.to_string().as_bytes(), MANIFEST);
    top["annotations"] = json!({"kind": "dev.cosignproject.cosign/image"});
    if Node::is_on_crio() {
        top["annotations"]["org.opencontainers.image.ref.name"] = json!(image);
    }
    signatures["annotations"] = json!({"kind": "dev.cosignproject.cosign/sigs"});
    let index = json!({"schemaVersion": 2, "manifests": [top, signatures]});
    fs::write(layout.join("index.json"), index.to_string()).unwrap();
    assert!(Command::new("tar").arg("-C").arg(&layout).arg("-cf").arg(&file).arg(".").status().unwrap().success());
    (image, file)
}

#[test]
fn signed_archive_needs_no_registry() {
    let mut node = start("");
    let (key, other) = (Key::new(&node, "key"), Key::new(&node, "other"));
    let policy = json!({"default": [{"type": "sigstoreSigned", "keyPath": public(&key.0)}]});
    fs::write(node.folder().join("policy.json"), policy.to_string()).unwrap();
    node.start_agent();
    let signed = signed_archive(&node, "signed", &key);
    let foreign = signed_archive(&node, "foreign", &other);
    let unsigned = archive(&node, "unsigned");
    for (name, (image, file)) in [("signed", &signed), ("foreign", &foreign), ("unsigned", &unsigned)] {
        place(&node, file);
        wait_for_state(&node, &format!("{name}.tar"), "imported");
        run(&node, name, image, "Never");
    }
    wait_until_ready(&node, "signed");
    wait_until_refused(&node, "foreign", "it is not by a key of the policy (default[0])");
    wait_until_refused(&node, "unsigned", "it has no signature (default[0])");
    let names = node.image_names();
    let count = |part: &str| names.iter().filter(|name| name.contains(part)).count();
    // CRI-O finds an image by its digest without a name.
    let names_of_image = if Node::is_on_crio() { 1 } else { 2 };
    assert_eq!((count("localhost/signed"), count("import-"), count(".sig")), (names_of_image, 0, 0), "{names:?}");

    node.kill_agent();
    fs::remove_file(node.folder().join("pods/coracle/images/signed.tar")).unwrap();
    node.start_agent();
    run(&node, "again", &signed.0, "Never");
    wait_until_ready(&node, "again");
}

#[test]
fn bundle_is_good_for_an_image_by_digest() {
    let mut node = start("");
    let registry = Registry::start(&node);
    let key = Key::new(&node, "key");
    write_policy(&node, &key);
    let made = make_image(&node, "app", 1 << 10);
    registry.push(&node, &made, "team/app:1");
    node.remove_image(&made);
    sign_by_bundle(&node, &key, "team/app", "1");
    node.start_agent();
    run(&node, "by-tag", &format!("{REPOSITORY}:1"), "Always");
    wait_until_refused(&node, "by-tag", "it names no image");
    let digest = digest_of(&node, "team/app", "1");
    run(&node, "by-digest", &format!("{REPOSITORY}@sha256:{digest}"), "IfNotPresent");
    wait_until_ready(&node, "by-digest");
}

/// CRI-O and skopeo judge by the same file, also when a container is created.
#[test]
fn one_policy_serves_cri_o_too() {
    if !Node::is_on_crio() {
        eprintln!("not run: this is containerd");
        return;
    }
    let mut node = Node::bare();
    let shared = node.folder().join("etc-containers");
    fs::create_dir_all(shared.join("registries.d")).unwrap();
    fs::write(shared.join("registries.d/default.yaml"), "default-docker: {use-sigstore-attachments: true}\n").unwrap();
    node.enclosure().run(&["mount", "--bind", &shared.display().to_string(), "/etc/containers"]);
    let key = Key::new(&node, "key");
    let open = json!({"": [{"type": "insecureAcceptAnything"}]});
    let policy = json!({"default": [{"type": "reject"}], "transports": {
        "docker": {"127.0.0.1:5000": [{"type": "sigstoreSigned", "keyPath": public(&key.0)}],
            "localhost": [{"type": "insecureAcceptAnything"}]},
        "containers-storage": open, "dir": open, "docker-archive": open}});
    fs::write(shared.join("policy.json"), policy.to_string()).unwrap();
    let config = node.folder().join("coracle.yaml");
    fs::write(&config, "images: {signaturePolicy: /etc/containers/policy.json}\n").unwrap();
    node.add_arguments(&["--coracle-config", &config.display().to_string()]);
    node.start_containerd();
    let registry = Registry::start(&node);
    push_images(&node, &registry, &key);
    node.start_agent();
    for (name, why) in [("foreign", "it is not by a key of the policy"), ("unsigned", "it has no signature")] {
        run(&node, name, &format!("127.0.0.1:5000/team/{name}:1"), "Always");
        wait_until_refused(&node, name, why);
    }
    run(&node, "signed", &format!("{REPOSITORY}:1"), "Always");
    wait_until_ready(&node, "signed");
}
