//! Compares a pod with its recording after removing what differs from run to run or from node to node. The lists in
//! this file name what is removed and why.

use std::collections::BTreeSet;

use serde_json::Value;

use super::recording::Recording;
use super::{Configuration, NODE_IP};
use crate::containerd::node::{Event, Events, Pod};

/// Timestamps.
const MOMENTS: [&str; 6] =
    ["finishedAt", "lastProbeTime", "lastTransitionTime", "observedGeneration", "startTime", "startedAt"];
/// Number of starts until the pod was observed. Other tests check the order of attempts.
const COUNTS: [&str; 3] = ["attempt", "log_path", "restartCount"];
/// Annotations that mark a static pod. All recorded pods but one came from an API server.
const OF_SOURCE: [&str; 4] = [
    "kubernetes.io/config.hash",
    "kubernetes.io/config.seen",
    "kubernetes.io/config.source",
    "io.kubernetes.container.restartCount",
];
/// Facts of the machine: its huge page sizes, the memory from which the OOM score of a burstable pod is computed, and
/// cgroup v2, which the recording node did not have.
const OF_MACHINE: [&str; 4] = ["cgroup_parent", "hugepage_limits", "oom_score_adj", "unified"];
/// The agent reports `resources` in full for a pod that the API server does not show as running. The recorded pods
/// were shown as running.
const OF_SHOWN: &str = "resources";
/// The runtime shows an image by any one of its names.
const OF_IMAGE: [&str; 1] = ["image"];

/// All differences between the pod and its recording.
pub(super) fn differences(
    recording: &Recording,
    pod: &Pod,
    configurations: &[Configuration],
    told: &Events,
) -> Vec<String> {
    let mut found = Vec::new();
    let recorded = Names::recorded(&recording.pod);
    let ours = Names::ours(pod);
    let recorded_status = status(&recorded, &recording.pod);
    let mut own_status = status(&ours, pod.json());
    show_crashes(&mut own_status, &recorded_status);
    compare("status", &own_status, &recorded_status, &mut found);
    if recording.has_configs() {
        let is_sandbox = |sent: &&Configuration| sent.container.is_empty();
        compare_config(
            "sandbox",
            &recorded,
            &recording.sandbox,
            configurations.iter().find(is_sandbox),
            &ours,
            &mut found,
        );
    }
    for container in &recording.containers {
        let name = container["metadata"]["name"].as_str().unwrap();
        let sent = configurations.iter().find(|sent| sent.container == name);
        compare_config(name, &recorded, container, sent, &ours, &mut found);
    }
    compare_events(&events(&ours, told), &events(&recorded, &recording.events), &mut found);
    found
}

/// Distinct events without order: their count and time depend on the machine.
fn events(names: &Names, told: &Events) -> BTreeSet<String> {
    let told = Events(told.0.iter().map(|event| Event(names.replaced(&event.0))).collect());
    told.lines().iter().map(|line| comparable_message(line)).filter(|line| !line.contains(NOT_SHARED)).collect()
}

/// The recording host had to make its mounts shared first.
const NOT_SHARED: &str = "but it is not a shared or slave mount";

fn compare_events(ours: &BTreeSet<String>, recorded: &BTreeSet<String>, found: &mut Vec<String>) {
    // On a busy machine a probe may time out.
    let by_load = |line: &&String| !line.starts_with("Warning Unhealthy");
    found.extend(ours.difference(recorded).filter(by_load).map(|line| format!("event only here: {line}")));
    found.extend(recorded.difference(ours).map(|line| format!("event only recorded: {line}")));
}

fn compare_config(
    what: &str,
    recorded: &Names,
    recording: &Value,
    sent: Option<&Configuration>,
    ours: &Names,
    found: &mut Vec<String>,
) {
    match sent {
        None => found.push(format!("{what}: not made")),
        Some(sent) => {
            compare(what, &config(ours, &sent.config), &config(recorded, recording), found);
        }
    }
}

fn status(names: &Names, pod: &Value) -> Value {
    let mut status = names.replaced(&pod["status"]);
    strip(&mut status, &[&MOMENTS, &COUNTS, &OF_IMAGE]);
    if let Some(fields) = status.as_object_mut() {
        fields.remove(OF_SHOWN);
    }
    visit(&mut status, &mut |key, value| match (key, value) {
        // The token is in a volume that only an API server adds.
        ("volumeMounts", Value::Array(mounts)) => mounts.retain(|mount| mount["mountPath"] != SERVICE_ACCOUNT),
        ("message", Value::String(message)) => *message = comparable_message(message),
        _ => {}
    });
    status
}

/// The order of two output streams is undefined, and the reason why a network is unreachable depends on the network.
fn comparable_message(message: &str) -> String {
    let mut lines: Vec<&str> = message.lines().collect();
    lines.sort_unstable();
    let sorted = lines.join("\n");
    match sorted.split_once("failed to do request: ") {
        Some((before, _)) => before.to_owned(),
        None => sorted,
    }
}

/// This agent shows a crashed container as waiting at once. Upstream shows it as terminated for a moment, which a
/// recording may have caught.
fn show_crashes(ours: &mut Value, recorded: &Value) {
    let containers = ours["containerStatuses"].as_array_mut().into_iter().flatten();
    for (container, recorded) in containers.zip(recorded["containerStatuses"].as_array().into_iter().flatten()) {
        let waits = container["state"]["waiting"]["reason"] == "CrashLoopBackOff";
        if waits && recorded["state"]["terminated"].is_object() {
            container["state"] = container["lastState"].clone();
        }
    }
}

const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

fn config(names: &Names, config: &Value) -> Value {
    let mut config = names.replaced(config);
    strip(&mut config, &[&COUNTS, &OF_SOURCE, &OF_MACHINE, &OF_IMAGE]);
    visit(&mut config, &mut |key, value| match (key, value) {
        // The log of each start has a random name.
        ("mounts", Value::Array(mounts)) => {
            mounts.retain(|mount| mount["container_path"] != SERVICE_ACCOUNT);
            for mount in mounts.iter_mut().filter(|mount| mount["container_path"] == "/dev/termination-log") {
                let path = mount["host_path"].as_str().and_then(|path| path.rsplit_once('/')).unwrap().0.to_owned();
                mount["host_path"] = path.into();
            }
        }
        // The order comes from a Go map and is random.
        ("envs", Value::Array(variables)) => {
            variables.sort_by_key(|variable| variable["key"].as_str().unwrap_or_default().to_owned());
        }
        _ => {}
    });
    config
}

/// Names that differ between runs, with their placeholders.
struct Names(Vec<(String, &'static str)>);

impl Names {
    fn recorded(pod: &Value) -> Self {
        let mut names = Self::of(pod, "10.77.0.1");
        names.0.push(("-node1".to_owned(), ""));
        names
    }

    fn ours(pod: &Pod) -> Self {
        let mut names = Self::of(pod.json(), NODE_IP);
        names.0.push(("-node-a".to_owned(), ""));
        names.0.push((std::env::temp_dir().display().to_string(), "/tmp"));
        names
    }

    fn of(pod: &Value, host: &str) -> Self {
        let mut names = Vec::new();
        if let Some(uid) = pod["metadata"]["uid"].as_str() {
            names.push((uid.to_owned(), "ID"));
        }
        // A pod on the host network has the host's address.
        names.push((format!("\"{host}\""), "\"HOST-IP\""));
        for ip in pod["status"]["podIPs"].as_array().into_iter().flatten() {
            names.push((ip["ip"].as_str().unwrap().to_owned(), "POD-IP"));
        }
        Self(names)
    }

    fn replaced(&self, value: &Value) -> Value {
        let mut text = value.to_string();
        for (name, stands) in &self.0 {
            text = text.replace(name, stands);
        }
        text = without_identities(&text);
        text = own_folders(&text);
        text = without_waits(&text);
        serde_json::from_str(&text).unwrap()
    }
}

/// Removes ids and digests (long hexadecimal words), among them the static pod's uid.
fn without_identities(text: &str) -> String {
    let mut out = String::new();
    let mut run = String::new();
    let end = |run: &mut String, out: &mut String| {
        out.push_str(if run.len() >= 32 { "ID" } else { run });
        run.clear();
    };
    for c in text.chars() {
        if c.is_ascii_digit() || ('a'..='f').contains(&c) {
            run.push(c);
        } else {
            end(&mut run, &mut out);
            out.push(c);
        }
    }
    end(&mut run, &mut out);
    out
}

/// Replaces the paths of a test's folder by those of a node.
fn own_folders(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("/tmp/coracle-") {
        out.push_str(before);
        let inside = after.find('/').and_then(|slash| after.get(slash..)).unwrap_or_default();
        let (place, left) = [("/pods/", "/var/lib/kubelet/"), ("/logs/", "/var/log/pods/")]
            .into_iter()
            .find_map(|(folder, place)| Some((place, inside.strip_prefix(folder)?)))
            .unwrap_or(("/tmp", inside));
        out.push_str(place);
        rest = left;
    }
    out + rest
}

/// Removes the back-off durations of crashed containers.
fn without_waits(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("back-off ") {
        out.push_str(before);
        out.push_str("back-off ");
        rest = after.find(' ').and_then(|space| after.get(space..)).unwrap_or(after);
    }
    out + rest
}

fn strip(value: &mut Value, keys: &[&[&str]]) {
    match value {
        Value::Object(fields) => {
            fields.retain(|key, _| !keys.iter().any(|keys| keys.contains(&key.as_str())));
            fields.values_mut().for_each(|value| strip(value, keys));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| strip(item, keys)),
        _ => {}
    }
}

fn visit(value: &mut Value, change: &mut impl FnMut(&str, &mut Value)) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields.iter_mut() {
                change(key, value);
                visit(value, change);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| visit(item, change)),
        _ => {}
    }
}

/// Compares two values. Absent, null and empty are equal, because Go omits empty values.
fn compare(path: &str, ours: &Value, recorded: &Value, found: &mut Vec<String>) {
    match (ours, recorded) {
        (Value::Object(one), Value::Object(other)) => {
            for key in one.keys().chain(other.keys().filter(|key| !one.contains_key(*key))) {
                let of = |fields: &serde_json::Map<String, Value>| fields.get(key).cloned().unwrap_or(Value::Null);
                compare(&format!("{path}.{key}"), &of(one), &of(other), found);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (index, (one, other)) in one.iter().zip(other).enumerate() {
                compare(&format!("{path}[{index}]"), one, other, found);
            }
        }
        (one, other) if is_empty(one) && is_empty(other) => {}
        (one, other) if one == other => {}
        (one, other) => found.push(format!("{path}: here {one}, recorded {other}")),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}
