//! The manifests of `examples/` on a real runtime, with busybox in place of images that no registry here has.

use std::fs;
use std::path::Path;

use super::node::{BUSYBOX, Node, STAY};

/// They wait for a device that this machine does not have.
const WITH_DEVICES: [&str; 3] = ["camera", "gpu", "serial-device"];
/// It runs a program of its image, which busybox has not: see `log_forwarder.rs`.
const WITH_OWN_PROGRAM: &str = "log-forwarder";

#[test]
fn every_example_without_a_device_runs() {
    let node = Node::start();
    let mut names = Vec::new();
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples")).unwrap() {
        let path = entry.unwrap().path();
        // Folders have objects of a cluster.
        if path.is_dir() {
            continue;
        }
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if !WITH_DEVICES.contains(&name.as_str()) && name != WITH_OWN_PROGRAM {
            let manifest = fs::read_to_string(&path).unwrap();
            node.write_manifest(&name, &with_busybox(&manifest, node.folder()));
            names.extend(pods_of(&manifest));
        }
    }
    assert!(names.len() >= 10, "{names:?}");
    for name in &names {
        node.wait_until(&format!("{name} runs"), |pods| {
            pods.has(name, |pod| ["Running", "Succeeded"].contains(&pod.phase()))
        });
    }
}

fn pods_of(manifest: &str) -> Vec<String> {
    let names = |document: &str| {
        let after = |key: &str| document.split_once(key).and_then(|(_, value)| value.lines().next()).map(str::to_owned);
        let Some(name) = after("\n  name: ") else { return Vec::new() };
        let replicas = after("\n  replicas: ").map_or(1, |count| count.parse::<usize>().unwrap());
        match after("\nkind: ").unwrap_or_default().as_str() {
            "Pod" | "DaemonSet" => vec![name],
            "Deployment" if replicas == 1 => vec![name],
            "Deployment" | "StatefulSet" => (0..replicas).map(|index| format!("{name}-{index}")).collect(),
            _ => Vec::new(),
        }
    };
    manifest.split("\n---\n").flat_map(names).collect()
}

/// The manifest with another image, a command where the image had one of its own, and directories below `folder`.
fn with_busybox(manifest: &str, folder: &Path) -> String {
    let mut lines = Vec::new();
    let original: Vec<&str> = manifest.lines().collect();
    for (number, line) in original.iter().enumerate() {
        let indent = line.split_once("image: ").map(|(indent, _)| indent).filter(|indent| indent.trim().is_empty());
        let Some(indent) = indent else {
            lines.push((*line).to_owned());
            continue;
        };
        lines.push(format!("{indent}image: {BUSYBOX}"));
        // Of the same container, in a line or two.
        let next = original.iter().skip(number + 1).take(2);
        if !next.into_iter().any(|line| line.trim_start().starts_with("command:")) {
            lines.push(format!("{indent}command: [sh, -c, {STAY:?}]"));
        }
    }
    let below = |path: &str| folder.join(path.trim_start_matches('/')).display().to_string();
    lines.join("\n").replace("/var/lib/mqtt", &below("mqtt")).replace("/srv/www", &below("www")) + "\n"
}
