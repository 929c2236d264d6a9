//! `coracle rollout`: pods of a DaemonSet, and updates of the agent, with boards that sleep.

use std::thread;

use serde_json::{Value, json};

use super::fleet::{Operator, ago, text};

const STATE: &str = "/api/v1/namespaces/coracle/configmaps/camera";
const QUICK: [&str; 4] = ["--settle", "1ms", "--interval", "100ms"];

fn pod_path(name: &str) -> String {
    format!("/api/v1/namespaces/vision/pods/{name}")
}

/// A pod of the DaemonSet on a board.
fn pod(operator: &Operator, board: &str, revision: &str, is_ready: bool) {
    let name = format!("camera-{board}-{revision}");
    operator.api.create(&json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": "vision",
            "labels": { "app": "camera", "controller-revision-hash": revision },
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "camera", "uid": set_uid(operator),
                "controller": true }] },
        "spec": { "nodeName": board, "containers": [{ "name": "c", "image": "i" }] },
    }));
    let status = if is_ready { "True" } else { "False" };
    operator.api.patch(
        &format!("{}/status", pod_path(&name)),
        &json!({ "status": { "phase": "Running", "conditions": [
            { "type": "Ready", "status": status, "lastTransitionTime": ago(5) } ] } }),
    );
}

fn set_uid(operator: &Operator) -> Value {
    let set = operator.api.get("/apis/apps/v1/namespaces/vision/daemonsets/camera").unwrap();
    set["metadata"]["uid"].clone()
}

/// Boards with pods of an old template of a DaemonSet that has a new one.
fn fleet(name: &str, boards: &[(&str, i64)]) -> Operator {
    let operator = Operator::new(name);
    for namespace in ["vision", "coracle"] {
        operator.api.create(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }));
    }
    operator.api.create(&json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": { "name": "camera", "namespace": "vision" },
        "spec": { "updateStrategy": { "type": "OnDelete" }, "selector": { "matchLabels": { "app": "camera" } } },
    }));
    for (number, revision) in [(1, "old"), (2, "new")] {
        operator.api.create(&json!({
            "apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": number,
            "metadata": { "name": format!("camera-{revision}"), "namespace": "vision",
                "labels": { "app": "camera", "controller-revision-hash": revision },
                "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "camera", "uid": set_uid(&operator) }] },
        }));
    }
    for &(board, silent) in boards {
        operator.board(board, silent);
        pod(&operator, board, "old", true);
    }
    operator
}

/// The kubelet of a board and the controller: the deleted pod ends, and the next one runs.
fn replace(operator: &Operator, board: &str, is_good: bool) {
    let old = pod_path(&format!("camera-{board}-old"));
    operator.api.wait(&old, "a deletion", |pod| !pod["metadata"]["deletionTimestamp"].is_null());
    operator.api.delete_with_grace(&old, 0);
    pod(operator, board, "new", is_good);
}

fn start<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["rollout", "start", "camera", "--daemonset", "vision/camera"][..], &QUICK, more].concat()
}

#[test]
fn pods_are_replaced_board_by_board_and_the_sleeping_board_has_its_turn_when_it_wakes() {
    let operator = fleet("rollout-set", &[("b-1", 5), ("b-2", 5), ("b-3", 7200), ("b-4", 5)]);
    let output = thread::scope(|scope| {
        for board in ["b-1", "b-2", "b-4"] {
            let operator = &operator;
            scope.spawn(move || replace(operator, board, true));
        }
        operator.run(&start(&["--first", "1", "--then", "100%", "--max-unavailable", "1"]))
    });
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("step 1 of 2 (1 of 4 boards): 0 done, 1 changing, 0 failed, 1 asleep\n"), "{said}");
    assert!(said.ends_with("1 board asleep: coracle rollout resume camera goes on when they have woken\n"), "{said}");
    let sleeper = operator.api.get(&pod_path("camera-b-3-old")).unwrap();
    assert!(sleeper["metadata"]["deletionTimestamp"].is_null());
    let status = text(&operator.run(&["rollout", "status", "camera"]));
    assert!(
        status.contains("3 done, 0 changing, 0 failed, 1 asleep\n") && status.contains("b-3     Pending"),
        "{status}"
    );
    // A day later it wakes, and the same command goes on.
    operator.renew("b-3", 0);
    let output = thread::scope(|scope| {
        scope.spawn(|| replace(&operator, "b-3", true));
        operator.run(&start(&["--first", "1", "--then", "100%", "--max-unavailable", "1"]))
    });
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let list = text(&operator.run(&["rollout", "status"]));
    let row: Vec<&str> = list.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..8], ["camera", "Finished", "2/2", "4", "4", "0", "0", "0"], "{list}");
    for deletion in operator.api.requests_of("delete", "/api/v1/namespaces/vision/pods/*") {
        assert!(String::from_utf8_lossy(&deletion.body).contains("\"uid\""), "another pod of the name stays");
    }
}

#[test]
fn pod_that_does_not_get_ready_in_time_stops_the_rollout_until_it_is_resumed() {
    let operator = fleet("rollout-late", &[("b-1", 5), ("b-2", 5)]);
    let line = start(&["--first", "1", "--order", "name", "--within", "1s"]);
    let output = thread::scope(|scope| {
        scope.spawn(|| replace(&operator, "b-1", false));
        operator.run(&line)
    });
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("camera is Stopped: 1 board failed, as b-1: not healthy within 1 s"), "{said}");
    assert!(operator.api.get(&pod_path("camera-b-2-old")).unwrap()["metadata"]["deletionTimestamp"].is_null());
    let again = operator.run(&line);
    assert!(String::from_utf8_lossy(&again.stderr).contains("coracle rollout resume camera goes on"), "{again:?}");
    let changed = operator.run(&["rollout", "resume", "camera", "--first", "2"]);
    let refused = "coracle: rollout resume: --first: the plan stays as it was started\n";
    assert_eq!((changed.status.code(), String::from_utf8_lossy(&changed.stderr).as_ref()), (Some(2), refused));
    // Its owner mends it.
    let path = format!("{}/status", pod_path("camera-b-1-new"));
    let ready = json!({ "type": "Ready", "status": "True", "lastTransitionTime": ago(5) });
    operator.api.patch(&path, &json!({ "status": { "conditions": [ready] } }));
    let output = thread::scope(|scope| {
        scope.spawn(|| replace(&operator, "b-2", true));
        operator.run(&["rollout", "resume", "camera", "--interval", "100ms"])
    });
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn dry_run_prints_the_requests_and_sends_none() {
    let operator = fleet("rollout-dry", &[("b-1", 5), ("b-2", 5)]);
    let output = operator.run(&start(&["--dry-run", "--order", "name"]));
    let uid = operator.api.get(&pod_path("camera-b-1-old")).unwrap()["metadata"]["uid"].clone();
    let printed = text(&output);
    let lines: Vec<&str> = printed.lines().collect();
    assert!(lines[0].starts_with("POST /api/v1/namespaces/coracle/configmaps {\"apiVersion\":\"v1\""), "{printed}");
    let deletion = format!("DELETE {} {}", pod_path("camera-b-1-old"), json!({ "preconditions": { "uid": uid } }));
    assert_eq!(lines[1..], [deletion.as_str()]);
    let changes = ["create", "patch", "update", "delete"];
    let own = |verb: &&str| operator.api.count(verb, "/api/v1/namespaces/coracle/*") > 0;
    assert!(!changes.iter().any(own) && operator.api.get(STATE).is_none());
}

#[test]
fn daemonset_that_replaces_its_pods_itself_is_refused() {
    let operator = fleet("rollout-rolling", &[("b-1", 5)]);
    let strategy = json!({ "spec": { "updateStrategy": { "type": "RollingUpdate" } } });
    operator.api.patch("/apis/apps/v1/namespaces/vision/daemonsets/camera", &strategy);
    let output = operator.run(&start(&[]));
    let expected = "coracle: rollout: daemonset vision/camera: updateStrategy: expected OnDelete, found \
                    \"RollingUpdate\": its controller replaces the pods\n";
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(1), expected));
}

/// The agent of a board that tries the URL of an annotation.
fn try_program(operator: &Operator, board: &str, url: &str, verdict: &str) {
    let path = format!("/api/v1/nodes/{board}");
    operator.api.wait(&path, "the annotation", |node| node["metadata"]["annotations"]["coracle.dev/upgrade"] == *url);
    let (status, line) = match verdict {
        "" => ("True", "version 2 (ab) accepted".to_owned()),
        why => ("False", format!("version 2 (ab) rejected: {why}; the former one runs")),
    };
    operator.api.patch(&path, &json!({ "metadata": { "annotations": { "coracle.dev/upgrade-tried": url } } }));
    let mut node = operator.api.get(&path).unwrap();
    let condition = json!({ "type": "AgentUpgraded", "status": status, "message": line });
    node["status"]["conditions"].as_array_mut().unwrap().push(condition);
    let conditions = node["status"]["conditions"].clone();
    operator.api.patch(&(path + "/status"), &json!({ "status": { "conditions": conditions } }));
}

#[test]
fn program_that_a_board_rejects_reaches_no_other_board() {
    let boards: Vec<String> = (0..6).map(|at| format!("b-{at}")).collect();
    let silent: Vec<(&str, i64)> = boards.iter().map(|name| (name.as_str(), 5)).collect();
    let operator = fleet("rollout-agent", &silent);
    let url = "https://fleet.example/v2/coracle-{arch}";
    let line =
        ["rollout", "start", "agent-2", "--agent", url, "--first", "2", "--max-unavailable", "2", "--order", "name"];
    let line = [&line[..], &QUICK].concat();
    let output = thread::scope(|scope| {
        scope.spawn(|| try_program(&operator, "b-0", url, ""));
        scope.spawn(|| try_program(&operator, "b-1", url, "no verdict in 3 starts"));
        operator.run(&line)
    });
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("as b-1: version 2 (ab) rejected: no verdict in 3 starts"), "{said}");
    for name in &boards[2..] {
        let node = operator.api.get(&format!("/api/v1/nodes/{name}")).unwrap();
        assert!(node["metadata"]["annotations"]["coracle.dev/upgrade"].is_null(), "{name}");
    }
    let json: Value =
        serde_json::from_slice(&operator.run(&["rollout", "status", "agent-2", "-o", "json"]).stdout).unwrap();
    assert_eq!((&json["phase"], &json["figures"]["failed"]), (&json!("Stopped"), &json!(1)));
    // Another program for the same boards waits for the owner of this one.
    let other = ["rollout", "start", "agent-3", "--agent", "https://fleet.example/v3/coracle", "-l", "site=b"];
    let refused = operator.run(&[&other[..], &QUICK, &["--dry-run"]].concat());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("rollout agent-2 of programs of the agent is not over"));
    let aborted = operator.run(&["rollout", "abort", "agent-2"]);
    assert_eq!(text(&aborted), "agent-2: Aborted\n", "{aborted:?}");
    let taken = operator.run(&[&other[..], &QUICK, &["--dry-run"]].concat());
    assert!(text(&taken).contains("PATCH /api/v1/nodes/b-"), "{taken:?}");
}

#[test]
fn paused_rollout_ends_its_command_and_resume_goes_on() {
    let operator = fleet("rollout-pause", &[("b-1", 5), ("b-2", 5)]);
    let line = start(&["--first", "1", "--order", "name"]);
    let output = thread::scope(|scope| {
        let command = scope.spawn(|| operator.run(&line));
        operator.api.wait(STATE, "the rollout", |_| true);
        operator
            .api
            .wait(&pod_path("camera-b-1-old"), "a deletion", |pod| !pod["metadata"]["deletionTimestamp"].is_null());
        let paused = operator.run(&["rollout", "pause", "camera"]);
        assert_eq!(text(&paused), "camera: Paused\n", "{paused:?}");
        command.join().unwrap()
    });
    assert!(String::from_utf8_lossy(&output.stderr).contains("camera is Paused"), "{output:?}");
    let output = thread::scope(|scope| {
        for board in ["b-1", "b-2"] {
            let operator = &operator;
            scope.spawn(move || replace(operator, board, true));
        }
        operator.run(&["rollout", "resume", "camera", "--interval", "100ms"])
    });
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn mistakes_have_one_line_each() {
    let operator = fleet("rollout-mistakes", &[("b-1", 5)]);
    let actions = "expected start NAME, status [NAME], pause NAME, resume NAME, abort NAME or rights [USER]";
    for (line, code, message) in [
        (&["rollout", "go"][..], 2, format!("rollout: {actions}, found \"go\"")),
        (&["rollout", "start", "x"], 2, "rollout start: expected one of --daemonset NAMESPACE/NAME, --agent URL and --config URL".to_owned()),
        (&["rollout", "start", "x", "--daemonset", "d"], 2, "rollout start: --daemonset: expected NAMESPACE/NAME, found \"d\"".to_owned()),
        (&["rollout", "pause", "x"], 1, "rollout: x: no rollout of this fleet; pods of this board are deployment/NAME or POD (coracle rollback, hold, confirm)".to_owned()),
        (&["rollout", "start", "x", "--agent", "https://f/c", "-n", "nowhere"], 1, "rollout: namespace nowhere not found: coracle rollout rights | kubectl apply -f -".to_owned()),
    ] {
        let output = operator.run(line);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), said), (Some(code), format!("coracle: {message}\n")), "{line:?}");
    }
    assert!(text(&operator.run(&["rollout", "rights", "ops"])).contains("name: \"ops\""));
}
