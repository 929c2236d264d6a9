//! Rows as kubectl prints them for the same pods.

use serde_json::{Value, json};

use super::*;
use crate::types::api::decode;

const NOW: i64 = 1_800_000_000;

/// The time this many seconds ago, in the API's format.
fn ago(seconds: i64) -> String {
    crate::types::timestamp::Timestamp::from_second(NOW - seconds).unwrap().to_string()
}

fn row(pod: Value) -> PodRow {
    PodRow::of(&decode::<Pod>(pod).unwrap().value, NOW)
}

/// A pod of two main containers with these statuses.
fn status_of(phase: &str, ready: bool, containers: &[Value]) -> PodRow {
    row(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "p" },
        "spec": { "containers": [{ "name": "a" }, { "name": "b" }] },
        "status": {
            "phase": phase,
            "conditions": [
                { "type": "Initialized", "status": "True" },
                { "type": "Ready", "status": if ready { "True" } else { "False" } },
            ],
            "containerStatuses": containers,
        },
    }))
}

fn container(name: &str, ready: bool, state: Value) -> Value {
    json!({ "name": name, "ready": ready, "restartCount": 0, "image": "", "imageID": "", "state": state })
}

fn running() -> Value {
    json!({ "running": { "startedAt": ago(60) } })
}

fn waiting(reason: &str) -> Value {
    json!({ "waiting": { "reason": reason } })
}

fn ended(code: i32, signal: i32, reason: &str) -> Value {
    json!({ "terminated": { "exitCode": code, "signal": signal, "reason": reason } })
}

#[test]
fn containers_decide_ready_and_status() {
    for (phase, ready, a, b, line) in [
        ("Running", true, running(), running(), ("2/2", "Running")),
        ("Pending", false, waiting("ContainerCreating"), waiting("ContainerCreating"), ("0/2", "ContainerCreating")),
        ("Running", false, waiting("CrashLoopBackOff"), running(), ("1/2", "CrashLoopBackOff")),
        ("Running", false, running(), waiting("ImagePullBackOff"), ("1/2", "ImagePullBackOff")),
        ("Running", false, waiting("ErrImagePull"), waiting("CrashLoopBackOff"), ("0/2", "ErrImagePull")),
        ("Succeeded", false, ended(0, 0, "Completed"), ended(0, 0, "Completed"), ("0/2", "Completed")),
        ("Failed", false, ended(1, 0, "Error"), ended(0, 0, "Completed"), ("0/2", "Error")),
        ("Failed", false, ended(3, 0, ""), ended(3, 9, ""), ("0/2", "ExitCode:3")),
        ("Failed", false, ended(3, 9, ""), ended(0, 0, "Completed"), ("0/2", "Signal:9")),
        ("Running", false, ended(137, 0, "OOMKilled"), running(), ("1/2", "OOMKilled")),
        ("Running", false, ended(0, 0, "Completed"), running(), ("1/2", "NotReady")),
        ("Running", true, ended(0, 0, "Completed"), running(), ("1/2", "Running")),
    ] {
        let states = [(&a, "a"), (&b, "b")];
        let statuses: Vec<Value> = states
            .map(|(state, name)| container(name, state.get("running").is_some(), state.clone()))
            .into_iter()
            .collect();
        let row = status_of(phase, ready, &statuses);
        assert_eq!((row.ready.as_str(), row.status.as_str()), line, "{a} {b}");
    }
}

#[test]
fn running_but_unready_container_is_not_counted_ready() {
    let row = status_of("Running", false, &[container("a", false, running()), container("b", true, running())]);
    assert_eq!((row.ready.as_str(), row.status.as_str()), ("1/2", "Running"));
}

#[test]
fn pod_without_statuses_shows_its_phase_or_reason() {
    let pod = |reason: &str| json!({ "spec": { "containers": [{ "name": "a" }] }, "status": { "phase": "Failed", "reason": reason } });
    assert_eq!(row(pod("")).status, "Failed");
    assert_eq!(row(pod("Evicted")).status, "Evicted");
}

/// A pod with init containers `one`, `side` (a sidecar) and `two`, and a waiting main container.
fn initializing(statuses: Vec<Value>) -> PodRow {
    row(json!({
        "spec": {
            "initContainers": [{ "name": "one" }, { "name": "side", "restartPolicy": "Always" }, { "name": "two" }],
            "containers": [{ "name": "main" }],
        },
        "status": {
            "phase": "Pending",
            "initContainerStatuses": statuses,
            "containerStatuses": [container("main", false, waiting("PodInitializing"))],
        },
    }))
}

#[test]
fn pending_init_container_decides_the_status() {
    let done = || container("one", true, ended(0, 0, "Completed"));
    let mut side = container("side", true, running());
    side["started"] = json!(true);
    for (statuses, line) in [
        (vec![container("one", false, running())], ("0/2", "Init:0/3")),
        (vec![container("one", false, waiting("PodInitializing"))], ("0/2", "Init:0/3")),
        (vec![container("one", false, waiting("CrashLoopBackOff"))], ("0/2", "Init:CrashLoopBackOff")),
        (vec![container("one", false, ended(1, 0, "Error"))], ("0/2", "Init:Error")),
        (vec![container("one", false, ended(2, 0, ""))], ("0/2", "Init:ExitCode:2")),
        (vec![container("one", false, ended(2, 15, ""))], ("0/2", "Init:Signal:15")),
        (vec![done(), container("side", false, running())], ("0/2", "Init:1/3")),
        (vec![done(), side.clone(), container("two", false, running())], ("1/2", "Init:2/3")),
        (vec![done(), side, container("two", true, ended(0, 0, "Completed"))], ("1/2", "PodInitializing")),
    ] {
        let row = initializing(statuses);
        assert_eq!((row.ready.as_str(), row.status.as_str()), line);
    }
}

#[test]
fn only_sidecar_restarts_count_after_initialization() {
    let mut one = container("one", true, ended(0, 0, "Completed"));
    one["restartCount"] = json!(7);
    let mut side = container("side", true, running());
    side["started"] = json!(true);
    side["restartCount"] = json!(2);
    side["lastState"] = json!({ "terminated": { "exitCode": 1, "finishedAt": ago(90) } });
    let two = container("two", false, running());
    assert_eq!(initializing(vec![one.clone(), side.clone(), two]).restarts, "9 (90s ago)");
    let two = container("two", true, ended(0, 0, "Completed"));
    assert_eq!(initializing(vec![one, side, two]).restarts, "2 (90s ago)");
}

#[test]
fn deleted_pod_is_terminating_until_its_phase_is_terminal() {
    let pod = |phase: &str| {
        json!({
            "metadata": { "deletionTimestamp": ago(3), "creationTimestamp": ago(7200) },
            "spec": { "containers": [{ "name": "a" }] },
            "status": { "phase": phase },
        })
    };
    assert_eq!(row(pod("Running")).status, "Terminating");
    assert_eq!(row(pod("Succeeded")).status, "Succeeded");
    assert_eq!(row(pod("Running")).age, "120m");
}

#[test]
fn age_of_a_pod_without_creation_time_counts_from_its_start() {
    let row = row(json!({ "status": { "startTime": ago(5) } }));
    assert_eq!(row.age, "5s");
}

#[test]
fn ages_have_at_most_two_units() {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    for (seconds, text) in [
        (-100, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (2 * MINUTE, "2m"),
        (9 * MINUTE + 59, "9m59s"),
        (10 * MINUTE + 1, "10m"),
        (179 * MINUTE, "179m"),
        (3 * HOUR, "3h"),
        (7 * HOUR + 59 * MINUTE, "7h59m"),
        (8 * HOUR + 59 * MINUTE, "8h"),
        (47 * HOUR, "47h"),
        (2 * DAY, "2d"),
        (7 * DAY + 23 * HOUR, "7d23h"),
        (8 * DAY + 23 * HOUR, "8d"),
        (729 * DAY, "729d"),
        (730 * DAY, "2y"),
        (8 * 365 * DAY - DAY, "7y364d"),
        (8 * 365 * DAY, "8y"),
    ] {
        assert_eq!(age(seconds), text, "{seconds}");
    }
}
