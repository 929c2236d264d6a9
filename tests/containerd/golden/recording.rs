//! The recordings in `tests/data`.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::containerd::node::{Event, Events};

/// Every recorded pod.
pub(super) const PODS: [&str; 27] = [
    "completed",
    "config-missing",
    "crashloop",
    "deadline",
    "dns-hosts",
    "env",
    "failed",
    "guaranteed",
    "hooks",
    "hostnetwork",
    "hostport",
    "image-missing",
    "init-fails",
    "init-sidecar",
    "liveness-fails",
    "mount-missing",
    "never-pull",
    "nonroot",
    "not-ready",
    "on-failure",
    "oom",
    "readiness-gate",
    "running",
    "security",
    "share-pid",
    "static-one-node1",
    "volumes",
];

/// A recorded pod: its object from the API server and the CRI requests for it.
pub(super) struct Recording {
    pub(super) name: &'static str,
    pub(super) pod: Value,
    /// Null if no sandbox was created.
    pub(super) sandbox: Value,
    pub(super) containers: Vec<Value>,
    pub(super) events: Events,
}

impl Recording {
    pub(super) fn read(name: &'static str) -> Self {
        let pod = read_json(&data(&format!("upstream-1.36/pods/{name}.json")));
        let sent = data(&format!("golden/{name}.json"));
        let mut sent = if sent.exists() { read_json(&sent) } else { Value::Null };
        let containers = match sent["containers"].take() {
            Value::Array(containers) => containers,
            _ => Vec::new(),
        };
        let events = read_json(&data(&format!("golden/events/{name}.json")));
        let events = Events(events.as_array().unwrap().iter().map(|event| Event(in_full(event))).collect());
        Self { name, pod, sandbox: sent["sandbox"].take(), containers, events }
    }

    /// The manifest's name. The name of a recorded static pod ends with that of its node.
    pub(super) fn manifest(&self) -> &'static str {
        manifest_of(self.name)
    }

    pub(super) fn has_configs(&self) -> bool {
        !self.sandbox.is_null()
    }
}

/// The ConfigMap and the Secret that the recorded pods use.
pub(super) fn objects() -> String {
    let text = fs::read_to_string(data("manifests/00-objects.yaml")).unwrap();
    let documents = text.split("---\n").filter(|document| !document.contains("kind: Namespace"));
    documents.collect::<Vec<_>>().join("---\n")
}

/// The manifest of a pod without the token volume, which needs an API server.
pub(super) fn manifest(name: &str) -> String {
    let files = fs::read_dir(data("manifests")).unwrap().map(|file| file.unwrap().path());
    let wanted = format!("{}.yaml", manifest_of(name));
    let is_it = |path: &PathBuf| {
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        file == wanted || file.split_once('-').is_some_and(|(number, rest)| number.len() == 2 && rest == wanted)
    };
    let file = files.into_iter().find(is_it).unwrap_or_else(|| panic!("no manifest of {name}"));
    let text = fs::read_to_string(file).unwrap();
    // On a busy machine a pod may need longer than 5 s to start.
    let text = text.replace("activeDeadlineSeconds: 5", "activeDeadlineSeconds: 45");
    text.lines().filter(|line| !line.contains("serviceAccountToken")).map(|line| format!("{line}\n")).collect()
}

pub(super) fn seen_inside(pod: &str, what: &str) -> String {
    fs::read_to_string(data(&format!("golden/inside/{pod}-{what}.txt"))).unwrap()
}

/// Restores the field path of the container, which the recording stores separately.
fn in_full(event: &Value) -> Value {
    let mut full = event.clone();
    full["involvedObject"] = json!({"fieldPath": event["fieldPath"]});
    full
}

fn manifest_of(name: &str) -> &str {
    name.strip_suffix("-node1").unwrap_or(name)
}

fn read_json(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn data(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(path)
}
