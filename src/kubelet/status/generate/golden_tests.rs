//! Compares generated statuses with those recorded from the upstream kubelet.
//!
//! `tests/data/upstream-1.36/pods` has the pods with their statuses, `tests/data/golden/status` the runtime's
//! sandboxes and containers from about the same time. Each status is generated in three steps of the pod's life:
//! nothing exists, all containers running, the recorded state.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Instant;

use serde_json::Value;

use super::*;
use crate::kubelet::status::{ActiveDeadlines, deadline_exceeded};
use crate::state::pods::{self, Exit, ObservedContainer, ObservedSandbox, SandboxState};
use crate::types::api::{ContainerState, ContainerStatus, decode, encode};

/// A recording, and the facts missing from its files.
#[derive(Clone, Copy)]
struct Recording {
    name: &'static str,
    /// The phase at the API server when the status was generated.
    shown: PodPhase,
    ended: bool,
    backing_off: Option<(&'static str, u64)>,
    not_ready: Option<&'static str>,
}

const RUNNING: Recording =
    Recording { name: "", shown: PodPhase::Running, ended: false, backing_off: None, not_ready: None };
const GOLDEN_PENDING: Recording = Recording { shown: PodPhase::Pending, ..RUNNING };
const ENDED: Recording = Recording { ended: true, ..RUNNING };

const RECORDINGS: &[Recording] = &[
    Recording { name: "completed", ..ENDED },
    Recording { name: "config-missing", ..GOLDEN_PENDING },
    Recording { name: "crashloop", ..RUNNING },
    Recording { name: "deadline", ..ENDED },
    Recording { name: "dns-hosts", ..RUNNING },
    Recording { name: "env", ..RUNNING },
    Recording { name: "failed", ..ENDED },
    Recording { name: "guaranteed", ..RUNNING },
    Recording { name: "hooks", backing_off: Some(("bad", 80)), ..RUNNING },
    Recording { name: "hostnetwork", ..RUNNING },
    Recording { name: "hostport", ..RUNNING },
    Recording { name: "image-missing", ..GOLDEN_PENDING },
    Recording { name: "init-fails", ended: true, ..GOLDEN_PENDING },
    Recording { name: "init-sidecar", ..RUNNING },
    Recording { name: "liveness-fails", backing_off: Some(("main", 80)), ..RUNNING },
    Recording { name: "mount-missing", ..GOLDEN_PENDING },
    Recording { name: "never-pull", ..GOLDEN_PENDING },
    Recording { name: "nonroot", ..GOLDEN_PENDING },
    Recording { name: "not-ready", not_ready: Some("main"), ..RUNNING },
    Recording { name: "on-failure", ..RUNNING },
    Recording { name: "oom", ..ENDED },
    Recording { name: "readiness-gate", ..RUNNING },
    Recording { name: "running", ..RUNNING },
    Recording { name: "security", ..RUNNING },
    Recording { name: "share-pid", ..RUNNING },
    Recording { name: "static-one-node1", ..GOLDEN_PENDING },
    Recording { name: "volumes", ..RUNNING },
];

const GOLDEN_NODE_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1));

#[test]
fn generated_statuses_match_the_recorded_ones() {
    for recording in RECORDINGS {
        let (mut pod, expected) = recorded_pod(recording.name);
        let recorded = recorded_sight(recording.name, &expected);
        let made = live(recording, &mut pod, &recorded, &expected);
        assert_eq!(comparable(&made), comparable(&expected), "{}", recording.name);
    }
}

#[test]
fn every_recording_is_used() {
    let mut names: Vec<String> = fs::read_dir(data("golden/status"))
        .unwrap()
        .map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    assert_eq!(names, RECORDINGS.iter().map(|recording| recording.name).collect::<Vec<_>>());
}

/// The pod's status after these steps.
fn live(recording: &Recording, pod: &mut Pod, recorded: &ObservedPod, expected: &PodStatus) -> PodStatus {
    let waiting = recorded_waiting(expected);
    let backing_off: Vec<(String, Duration)> = recording
        .backing_off
        .map(|(name, seconds)| (name.to_owned(), Duration::from_secs(seconds)))
        .into_iter()
        .collect();
    let not_ready = recording
        .not_ready
        .map(|name| (name.to_owned(), ContainerProbeState { ready: false, ..ContainerProbeState::default() }));
    let probed = not_ready.into_iter().collect();
    let start = Time::from_unix_nanos(0);
    let mut deadlines = ActiveDeadlines::default();
    deadlines.note(pod, Instant::now(), start);
    let overdue = deadlines.take_overdue(Instant::now() + Duration::from_secs(100));
    let failed = (!overdue.is_empty()).then(deadline_exceeded);

    let nothing = ObservedPod::new(recorded.uid.clone(), &recorded.namespace, &recorded.name);
    let running = all_running(recorded, expected);
    let none = SortedMap::new();
    let mut previous: Option<PodStatus> = None;
    for (step, observed) in [&nothing, &running, recorded, recorded].into_iter().enumerate() {
        let last = step >= 2;
        pod.status.phase = if last { recording.shown } else { PodPhase::Pending };
        let status = pod_status(&StatusInput {
            shows_sandbox: true,
            own_conditions: &[],
            devices: &[],
            replaced: &[],
            pod,
            observed,
            previous: previous.as_ref(),
            waiting: if last { &waiting } else { &none },
            backing_off: if last { &backing_off } else { &[] },
            probed: &probed,
            host_ips: &[GOLDEN_NODE_ADDRESS],
            runtime_name: "containerd",
            now: start,
            ended: last && recording.ended,
            failed: failed.as_ref().filter(|_| last),
            resize: Resize::default(),
            recursive_read_only: Some(false),
            actuated: None,
        });
        previous = Some(status);
    }
    previous.unwrap()
}

/// As JSON, without the timestamps of the recording kubelet.
fn comparable(status: &PodStatus) -> Value {
    let mut status = encode(status);
    let fields = status.as_object_mut().unwrap();
    fields.remove("startTime");
    for condition in fields["conditions"].as_array_mut().unwrap() {
        condition.as_object_mut().unwrap().remove("lastTransitionTime");
    }
    status
}

fn data(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(path)
}

fn json(folder: &str, name: &str) -> Value {
    let path = data(folder).join(format!("{name}.json"));
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// The pod before the node knew it, and the status it got.
fn recorded_pod(name: &str) -> (Pod, PodStatus) {
    let mut pod: Pod = decode(json("upstream-1.36/pods", name)).unwrap().value;
    let status = std::mem::take(&mut pod.status);
    if pod.is_mirror() {
        // The API server set the mirror pod's generation; the static pod has none.
        pod.metadata.generation = 0;
    }
    (pod, status)
}

/// Why containers waited after a failed start.
fn recorded_waiting(expected: &PodStatus) -> SortedMap<String, Waiting> {
    let defaults = [Reason::CONTAINER_CREATING, Reason::POD_INITIALIZING, Reason::CRASH_LOOP_BACK_OFF];
    let of = |status: &ContainerStatus| match &status.state {
        Some(ContainerState::Waiting(state)) if !defaults.contains(&state.reason) => {
            Some((status.name.clone(), Waiting::new(state.reason.clone(), state.message.clone())))
        }
        _ => None,
    };
    expected.container_statuses.iter().filter_map(of).collect()
}

fn recorded_sight(name: &str, expected: &PodStatus) -> ObservedPod {
    let file = json("golden/status", name);
    let sandboxes = file["sandboxes"].as_array().unwrap();
    let meta = sandboxes.first().map_or(Value::Null, |sandbox| sandbox["metadata"].clone());
    let word = |key: &str| meta[key].as_str().unwrap_or_default().to_owned();
    let mut pod = ObservedPod::new(word("uid").as_str().into(), &word("namespace"), &word("name"));
    pod.sandboxes = sandboxes.iter().map(sandbox).collect();
    let statuses = || expected.init_container_statuses.iter().chain(&expected.container_statuses);
    pod.containers = file["containers"].as_array().unwrap().iter().map(|seen| container(seen, expected)).collect();
    for container in &mut pod.containers {
        container.sandbox_id.clone_from(&pod.sandboxes[0].id);
    }
    // The previous instance still existed when the status was made, and was gone when the runtime was queried.
    for status in statuses() {
        if let Some(ContainerState::Terminated(end)) = &status.last_state {
            let newest = pod.container(&status.name).unwrap();
            let id = end.container_id.strip_prefix("containerd://").unwrap();
            if newest.id != id {
                let exit = Exit {
                    code: end.exit_code,
                    reason: end.reason.to_string(),
                    message: end.message.clone(),
                    started_at: end.started_at.unwrap().unix_seconds() * 1_000_000_000,
                    finished_at: end.finished_at.unwrap().unix_seconds() * 1_000_000_000,
                };
                let mut older = newest.clone();
                older.id = id.to_owned();
                older.created_at = exit.started_at;
                older.restart_count -= 1;
                older.state = pods::ContainerState::Exited(Box::new(exit));
                pod.containers.push(older);
            }
        }
    }
    pod
}

fn sandbox(seen: &Value) -> ObservedSandbox {
    ObservedSandbox {
        id: text(&seen["id"]),
        attempt: 0,
        state: if seen["state"] == "SANDBOX_READY" { SandboxState::Ready } else { SandboxState::NotReady },
        created_at: nanos(&seen["createdAt"]),
        host_network: seen["linux"]["namespaces"]["options"]["network"] == "NODE",
        ips: seen["network"]["ip"].as_str().unwrap().parse().into_iter().collect(),
        has_address: true,
        pid: None,
    }
}

fn container(seen: &Value, expected: &PodStatus) -> ObservedContainer {
    let id = text(&seen["id"]);
    let state = match seen["state"].as_str().unwrap() {
        "CONTAINER_RUNNING" => pods::ContainerState::Running { started_at: nanos(&seen["startedAt"]) },
        "CONTAINER_EXITED" => pods::ContainerState::Exited(Box::new(Exit {
            code: seen["exitCode"].as_i64().unwrap().try_into().unwrap(),
            reason: text(&seen["reason"]),
            message: termination_message(&id, expected),
            started_at: nanos(&seen["startedAt"]),
            finished_at: nanos(&seen["finishedAt"]),
        })),
        other => panic!("{other}"),
    };
    ObservedContainer {
        id,
        name: text(&seen["metadata"]["name"]),
        sandbox_id: String::new(),
        state,
        created_at: nanos(&seen["createdAt"]),
        image: text(&seen["image"]["image"]),
        image_id: text(&seen["imageRef"]),
        hash: None,
        spec_hash: None,
        restart_count: text(&seen["restartCount"]).parse().unwrap(),
        grace: None,
        pid: None,
        user: None,
        devices: None,
        resources: None,
    }
}

/// It was in a file that is not part of the recording.
fn termination_message(id: &str, expected: &PodStatus) -> String {
    let all = expected.container_statuses.iter().chain(&expected.init_container_statuses);
    let ends = all.flat_map(|status| [&status.state, &status.last_state]).filter_map(|state| match state {
        Some(ContainerState::Terminated(end)) => Some(end),
        _ => None,
    });
    let mut own = ends.filter(|end| end.container_id.ends_with(id));
    own.next().map_or_else(String::new, |end| end.message.clone())
}

/// The same pod while all its containers were running.
fn all_running(recorded: &ObservedPod, expected: &PodStatus) -> ObservedPod {
    let mut pod = recorded.clone();
    for sandbox in &mut pod.sandboxes {
        sandbox.state = SandboxState::Ready;
        if !sandbox.host_network {
            sandbox.ips = expected.pod_ips.iter().map(|ip| ip.ip.parse().unwrap()).collect();
        }
    }
    for container in &mut pod.containers {
        if let pods::ContainerState::Exited(exit) = &container.state {
            container.state = pods::ContainerState::Running { started_at: exit.started_at };
        }
    }
    pod
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn nanos(value: &Value) -> i64 {
    let time: crate::types::timestamp::Timestamp = value.as_str().unwrap().parse().unwrap();
    time.as_nanosecond()
}
