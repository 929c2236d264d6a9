//! Images imported from archives in a directory, without a registry.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::node::{BUSYBOX, Manifest, Node, PATIENCE, Pod, STAY, images, wait_for};
use super::registry::make_image;

/// Writes an image as an OCI layout archive and removes it from the runtime.
pub(super) fn archive(node: &Node, name: &str) -> (String, PathBuf) {
    let image = make_image(node, name, 200_000);
    let path = node.folder().join(format!("{name}.tar"));
    node.export_image(&image, &path);
    node.remove_image(&image);
    (image, path)
}

/// Writes busybox under another name as a docker-archive.
pub(super) fn docker_archive(node: &Node, name: &str) -> (String, PathBuf) {
    let image = BUSYBOX.replace("busybox", name);
    assert_eq!(image.len(), BUSYBOX.len(), "the archive's index must stay as long as it is");
    let bytes = fs::read(images().join("busybox.tar")).unwrap();
    let at = bytes.windows(BUSYBOX.len()).rposition(|part| part == BUSYBOX.as_bytes()).unwrap();
    let bytes = [&bytes[..at], image.as_bytes(), &bytes[at + BUSYBOX.len()..]].concat();
    let path = node.folder().join(format!("{name}.tar"));
    fs::write(&path, bytes).unwrap();
    (image, path)
}

fn directory(node: &Node) -> PathBuf {
    node.folder().join("pods/coracle/images")
}

/// Moves an archive into the directory by rename, as a copy tool does.
pub(super) fn place(node: &Node, archive: &Path) {
    let unfinished = directory(node).join(".unfinished");
    fs::copy(archive, &unfinished).unwrap();
    fs::rename(unfinished, directory(node).join(archive.file_name().unwrap())).unwrap();
}

fn pack(program: &str, archive: &Path) -> PathBuf {
    let done = Command::new(program).args(["-q", "-f"]).arg(archive).status().unwrap();
    assert!(done.success());
    let end = if program == "gzip" { "tar.gz" } else { "tar.zst" };
    archive.with_extension(end)
}

fn status(node: &Node) -> Value {
    serde_json::from_str(&node.ask(&["status", "-o", "json"]).expect("the agent answers")).unwrap()
}

/// The status of one archive.
fn shown(node: &Node, file: &str) -> Option<Value> {
    status(node)["imageArchives"]["files"].as_array()?.iter().find(|one| one["file"] == file).cloned()
}

pub(super) fn wait_for_state(node: &Node, file: &str, state: &str) -> Value {
    wait_for(&format!("{file} to be {state}"), PATIENCE, || shown(node, file).filter(|one| one["state"] == state))
}

fn manifest(name: &str, image: &str, policy: &str) -> String {
    let manifest = Manifest::new(name).container_with("main", STAY, &format!("imagePullPolicy: {policy}"));
    manifest.text().replace(BUSYBOX, image)
}

fn has(node: &Node, image: &str) -> bool {
    node.image_names().iter().any(|name| name == image)
}

#[test]
fn pods_start_from_archives_without_a_registry() {
    let node = Node::start();
    let (oci, oci_file) = archive(&node, "oci");
    let (plain, plain_file) = docker_archive(&node, "busyboy");
    let (packed, packed_file) = docker_archive(&node, "busybot");
    node.write_manifest("oci", &manifest("oci", &oci, "Never"));
    node.write_manifest("plain", &manifest("plain", &plain, "IfNotPresent"));
    node.write_manifest("packed", &manifest("packed", &packed, "Never"));
    let waits = |name: &str, reason: &str| {
        node.wait_until(reason, |pods| pods.has(name, |pod| pod.container("main").is_waiting_for(reason)))
    };
    waits("oci", "ErrImageNeverPull");
    waits("plain", "ImagePullBackOff");
    let missing = json!([
        {"image": packed, "pods": ["default/packed-node-a"]}, {"image": plain, "pods": ["default/plain-node-a"]},
        {"image": oci, "pods": ["default/oci-node-a"]},
    ]);
    assert_eq!(status(&node)["missingImages"], missing);
    assert!(
        node.ask(&["status"]).unwrap().contains(&format!("Missing images:\n  {packed} for default/packed-node-a\n"))
    );

    place(&node, &pack("zstd", &oci_file));
    place(&node, &plain_file);
    place(&node, &pack("gzip", &packed_file));
    for name in ["oci", "plain", "packed"] {
        node.wait_until(&format!("{name} runs"), |pods| {
            pods.has(name, |pod| pod.container("main").is_running() || pod.container("main").restarts() > 0)
        });
    }
    assert_eq!(status(&node)["missingImages"], json!([]));
    assert_eq!(shown(&node, "oci.tar.zst").unwrap()["images"], json!([oci]));
    let list = node.ask(&["images", "-o", "wide"]).unwrap();
    assert!(list.contains("(archive busyboy.tar), ") && list.contains("default/plain-node-a"), "{list}");
}

#[test]
fn image_of_an_archive_is_found_by_its_digest() {
    let mut node = Node::start();
    let (image, file) = archive(&node, "plc");
    let index = Command::new("tar").arg("-xOf").arg(&file).arg("index.json").output().unwrap();
    let index: Value = serde_json::from_slice(&index.stdout).unwrap();
    let digest = index["manifests"][0]["digest"].as_str().unwrap();
    let named = format!("{image}@{digest}");
    node.write_manifest("plc", &manifest("plc", &named, "IfNotPresent"));
    node.wait_until("the image is missing", |pods| {
        pods.has("plc", |pod| pod.container("main").is_waiting_for("ImagePullBackOff"))
    });
    place(&node, &file);
    let runs = |pod: &Pod| pod.container("main").is_running() || pod.container("main").restarts() > 0;
    node.wait_until("plc runs", |pods| pods.has("plc", runs));
    assert_eq!(shown(&node, "plc.tar").unwrap()["images"], json!([image]));

    // A pod that is started later finds it too, also after a restart, which imports nothing.
    node.kill_agent();
    node.start_agent();
    node.write_manifest("later", &manifest("later", &named, "Never"));
    node.wait_until("later runs", |pods| pods.has("later", runs));
    assert_eq!(node.agent_log().matches("imported images").count(), 1);
}

#[test]
fn archives_are_imported_into_cri_o() {
    if !Node::is_on_crio() {
        eprintln!("not run: this is containerd");
        return;
    }
    let node = Node::start();
    let (plain, plain_file) = docker_archive(&node, "busyboy");
    let (packed, packed_file) = docker_archive(&node, "busybot");
    let (oci, oci_file) = ("example.org/oci:1", node.folder().join("oci.tar"));
    let from = format!("docker-archive:{}", images().join("busybox.tar").display());
    let to = format!("oci-archive:{}:{oci}", oci_file.display());
    node.enclosure().run(&["skopeo", "copy", "--quiet", &from, &to]);
    for (name, image) in [("plain", &*plain), ("packed", &packed), ("oci", oci)] {
        node.write_manifest(name, &manifest(name, image, "Never"));
        let is_missing = |pod: &Pod| pod.container("main").is_waiting_for("ErrImageNeverPull");
        node.wait_until("an image is missing", |pods| pods.has(name, is_missing));
    }
    place(&node, &pack("zstd", &oci_file));
    place(&node, &plain_file);
    place(&node, &pack("gzip", &packed_file));
    for name in ["oci", "plain", "packed"] {
        node.wait_until(&format!("{name} runs"), |pods| pods.has(name, |pod| pod.container("main").is_running()));
    }
}

/// Triggers image garbage collection, which runs after each import, until the unused image is removed: an image must
/// be seen unused once first.
fn collect(node: &Node, unused: &str, archive: &Path) {
    let unused = make_image(node, unused, 1000);
    wait_for("the unused image to go", PATIENCE, || {
        let imported = || node.agent_log().matches("imported images").count();
        let before = imported();
        place(node, archive);
        wait_for("the import", PATIENCE, || (imported() > before).then_some(()));
        (!has(node, &unused)).then_some(())
    });
}

#[test]
fn garbage_collection_keeps_images_whose_archive_exists() {
    let mut node = Node::with_runtime();
    let (kept, kept_file) = archive(&node, "kept");
    let others = ["one", "two", "three"].map(|name| archive(&node, name).1);
    node.configure_agent("imageGCHighThresholdPercent: 1\nimageGCLowThresholdPercent: 0\nimageMinimumGCAge: 1ms\n");
    fs::create_dir_all(directory(&node)).unwrap();
    fs::copy(&kept_file, directory(&node).join("kept.tar")).unwrap();
    node.start_agent();
    wait_for_state(&node, "kept.tar", "imported");
    collect(&node, "first", &others[0]);
    assert!(has(&node, &kept), "it was removed beside its archive");
    let remove = node.coracle("images", &["remove", &kept]).output().unwrap();
    let told = format!("coracle: image {kept} is in use by (archive kept.tar)\n");
    assert_eq!(String::from_utf8(remove.stderr).unwrap(), told);

    // After a kill the agent remembers its imports and repeats none.
    node.kill_agent();
    let before = node.agent_log().matches("imported images").count();
    node.start_agent();
    collect(&node, "second", &others[1]);
    assert!(has(&node, &kept), "it was forgotten");
    let imported = node.agent_log();
    assert!(imported.matches("imported images").count() > before && imported.matches("file=kept.tar").count() == 1);

    fs::remove_file(directory(&node).join("kept.tar")).unwrap();
    wait_for("the archive to be gone", PATIENCE, || shown(&node, "kept.tar").is_none().then_some(()));
    collect(&node, "third", &others[2]);
    assert!(!has(&node, &kept), "nothing needed it, and it is there");
    assert!(has(&node, "localhost/one:1"));
}

#[test]
fn truncated_archive_is_reported_and_does_not_block_others() {
    let mut node = Node::start();
    let (image, file) = archive(&node, "good");
    let bytes = fs::read(&file).unwrap();
    wait_for("the directory", PATIENCE, || directory(&node).exists().then_some(()));
    fs::write(directory(&node).join("bad.tar"), &bytes[..bytes.len() / 2]).unwrap();
    fs::write(directory(&node).join("text.tar"), "hello").unwrap();
    place(&node, &file);
    wait_for_state(&node, "good.tar", "imported");
    assert_eq!(wait_for_state(&node, "bad.tar", "refused")["message"], "it is cut short");
    wait_for_state(&node, "text.tar", "refused");
    let told = "  text.tar: refused: it is not a tar archive, plain or compressed with gzip or zstd\n";
    let text = node.ask(&["status"]).unwrap();
    assert!(text.contains("  bad.tar: refused: it is cut short\n") && text.contains(told), "{text}");
    assert!(node.agent_log().contains("bad.tar"));

    // An archive whose file changes is imported again.
    fs::write(directory(&node).join("bad.tar"), &bytes).unwrap();
    wait_for_state(&node, "bad.tar", "imported");

    // The agent imports an image that the runtime lost again: at a start, and when a pod needs it.
    node.kill_agent();
    node.remove_image(&image);
    node.start_agent();
    wait_for("the image to come back", PATIENCE, || has(&node, &image).then_some(()));
    wait_for_state(&node, "good.tar", "imported");
    node.remove_image(&image);
    node.write_manifest("web", &manifest("web", &image, "Never"));
    node.wait_until("the pod runs", |pods| {
        pods.has("web", |pod| pod.container("main").restarts() > 0 || pod.is_ready())
    });
}

#[test]
fn image_import_prints_the_imported_images() {
    let node = Node::start();
    let (first, first_file) = archive(&node, "first");
    let (second, second_file) = docker_archive(&node, "busyboy");
    let import = |files: &[&Path]| {
        let files = files.iter().map(|file| file.display().to_string());
        let words: Vec<String> = std::iter::once("import".to_owned()).chain(files).collect();
        let done = node.coracle("images", &words.iter().map(String::as_str).collect::<Vec<_>>()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (done.status.code(), text(done.stdout), text(done.stderr))
    };
    assert_eq!(import(&[&first_file, &second_file]), (Some(0), format!("{first}\n{second}\n"), String::new()));
    assert!(has(&node, &first) && has(&node, &second));
    // A second import of the same archive is a no-op.
    assert_eq!(import(&[&first_file]), (Some(0), format!("{first}\n"), String::new()));
    let bad = node.folder().join("bad.tar");
    fs::write(&bad, "hello").unwrap();
    let told = "coracle: bad.tar: it is not a tar archive, plain or compressed with gzip or zstd\n".to_owned();
    assert_eq!(import(&[&bad]), (Some(1), String::new(), told));
    let (code, _, error) = import(&[Path::new("/nowhere/x.tar")]);
    assert_eq!(code, Some(1));
    assert!(error.starts_with("coracle: /nowhere/x.tar: "), "{error}");
}
