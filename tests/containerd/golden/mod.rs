//! Runs the recorded pods and compares CRI requests, pod status, events and the view from inside the container with
//! what the upstream kubelet 1.36 produced from the same manifest on the same runtime.

mod comparable;
mod inside;
mod recording;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::node::{BUSYBOX, Node, POLL};
use comparable::differences;
use recording::{PODS, Recording};

/// Limit for all pods side by side on a busy machine.
const ALL_AT_ONCE: Duration = Duration::from_secs(300);
/// The image that the manifests name.
const IMAGE: &str = "registry.k8s.io/e2e-test-images/busybox:1.37.0-1";
/// Settings of the recording node, without its address.
const SETTINGS: &str = "clusterDNS: [10.96.0.10]\nclusterDomain: cluster.local\n";
const NODE_IP: &str = "10.88.0.1";

#[test]
fn every_recorded_pod_matches_the_upstream_kubelet() {
    let mut node = Node::with_runtime();
    node.ctr(&["images", "tag", BUSYBOX, IMAGE]);
    node.configure_agent(SETTINGS);
    // A pod on the host network uses the host's resolver. This is the recording host's.
    std::fs::write(node.folder().join("resolv.conf"), "nameserver 10.96.0.10\n").unwrap();
    node.add_arguments(&["--node-ip", NODE_IP]);
    node.start_agent();
    node.write_manifest("00-objects", &recording::objects());
    for pod in PODS {
        node.write_manifest(pod, &recording::manifest(pod));
    }
    let recordings: Vec<Recording> = PODS.iter().map(|pod| Recording::read(pod)).collect();
    let mut left: BTreeMap<&str, String> = PODS.iter().map(|pod| (*pod, "never looked at".to_owned())).collect();
    let until = Instant::now() + ALL_AT_ONCE;
    while !left.is_empty() && Instant::now() < until {
        std::thread::sleep(POLL);
        let pods = node.pods();
        for recording in &recordings {
            if left.contains_key(recording.name) {
                let Some(pod) = pods.get(recording.manifest()) else { continue };
                let configs =
                    if recording.has_configs() { node.configurations(recording.manifest()) } else { Vec::new() };
                let told = node.events(recording.manifest());
                match differences(recording, pod, &configs, &told) {
                    found if found.is_empty() => drop(left.remove(recording.name)),
                    found => drop(left.insert(recording.name, found.join("\n  "))),
                }
            }
        }
    }
    let told: Vec<String> = left.iter().map(|(pod, found)| format!("{pod}:\n  {found}")).collect();
    assert!(left.is_empty(), "not as recorded:\n{}", told.join("\n"));
    let seen: Vec<String> = inside::RECORDED.iter().flat_map(|pod| inside::differences(&node, pod)).collect();
    assert!(seen.is_empty(), "not as recorded from inside:\n{}", seen.join("\n"));
}

/// The CRI configuration of a sandbox or container, as containerd stores it.
pub(crate) struct Configuration {
    /// Empty for a sandbox.
    pub(crate) container: String,
    pub(crate) config: Value,
}

impl Node {
    /// The CRI configurations of a manifest's pod, as they were sent.
    fn configurations(&self, manifest: &str) -> Vec<Configuration> {
        let tasks = self.tasks_of(manifest).into_iter();
        tasks
            .filter_map(|task| Some(Configuration { config: self.configuration(&task.id)?, container: task.container }))
            .collect()
    }

    /// `None` if the container was removed meanwhile.
    fn configuration(&self, id: &str) -> Option<Value> {
        let done = self.ctr_command(&["containers", "info", id]).output().unwrap();
        let info: Value = serde_json::from_slice(&done.stdout).ok()?;
        let extensions = info["Extensions"].as_object()?;
        let metadata = extensions.values().find_map(|extension| extension["value"].as_str())?;
        let mut metadata: Value = serde_json::from_slice(&from_base64(metadata)).ok()?;
        let mut config = metadata["Metadata"]["Config"].take();
        // Coracle's own, for pods whose manifest keeps its uid.
        config["annotations"].as_object_mut()?.remove("coracle.dev/spec-hash");
        Some(config)
    }
}

fn from_base64(text: &str) -> Vec<u8> {
    let digits = text.bytes().filter_map(|byte| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    });
    let digits: Vec<u32> = digits.map(u32::from).collect();
    let bytes = digits.chunks(4).flat_map(|four| {
        let word = four.iter().enumerate().fold(0, |word, (place, digit)| word | digit << (18 - 6 * place));
        word.to_be_bytes().into_iter().skip(1).take(four.len() * 6 / 8)
    });
    bytes.collect()
}
