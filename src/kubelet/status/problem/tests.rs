use serde_json::{Value, json};

use super::*;
use crate::types::api::{PodUid, Reason, decode};

/// 2027-01-15T08:00:00Z.
const NOW: &str = "2027-01-15T08:00:00Z";

fn time(text: &str) -> Time {
    decode(text.into()).unwrap().value
}

/// A pod with the container `main` of image `r.example/app:1`, and this status.
fn pod(spec: Value, status: Value) -> Pod {
    let mut whole = json!({
        "metadata": { "name": "web", "namespace": "default", "uid": "u" },
        "spec": { "containers": [{ "name": "main", "image": "r.example/app:1" }] },
        "status": status,
    });
    for (key, value) in spec.as_object().unwrap() {
        whole["spec"][key] = value.clone();
    }
    decode(whole).unwrap().value
}

fn health(pod: &Pod, warnings: &[(Reason, &str, &str)]) -> PodHealth {
    let uid = PodUid::from("u");
    let warnings: Vec<PodWarning<'_>> = warnings
        .iter()
        .map(|(reason, message, first)| PodWarning {
            pod: &uid,
            reason,
            message,
            field_path: "spec.containers{main}",
            first: time(first),
            last: time("2027-01-15T07:59:50Z"),
        })
        .collect();
    let status = &pod.status;
    pod_health(PodSituation { pod, status, warnings: &warnings, unreplaced_since: None, now: time(NOW) })
}

/// Reason, cause and advice of the pod with this state of `main`.
#[track_caller]
fn check_state(state: Value, expected: [&str; 3]) -> PodProblem {
    check(&pod(json!({}), with_state(state, json!({}))), &[], expected)
}

fn with_state(state: Value, last: Value) -> Value {
    json!({
        "phase": "Pending", "startTime": "2027-01-15T07:50:00Z",
        "containerStatuses": [{ "name": "main", "restartCount": 4, "state": state, "lastState": last }],
    })
}

#[track_caller]
fn check(pod: &Pod, warnings: &[(Reason, &str, &str)], [reason, cause, advice]: [&str; 3]) -> PodProblem {
    let PodHealth::Failing(problem) = health(pod, warnings) else {
        panic!("the pod fails: {:?}", health(pod, warnings))
    };
    assert_eq!((&*problem.reason, &*problem.cause), (reason, cause));
    assert!(problem.advice.contains(advice), "{}", problem.advice);
    problem
}

#[test]
fn rejected_pod_has_the_reason_and_message_of_admission() {
    let message = "Pod was rejected: Predicate NodePorts failed: node(s) didn't have free ports: TCP 80 is used by a";
    let status = json!({ "phase": "Failed", "reason": "NodePorts", "message": message });
    let cause = "Predicate NodePorts failed: node(s) didn't have free ports: TCP 80 is used by a";
    check(&pod(json!({}), status), &[], ["NodePorts", cause, "choose another hostPort"]);
}

#[test]
fn failed_pull_names_the_image_and_the_usual_cause() {
    for (message, why, advice) in [
        (
            "failed to pull and unpack image \"r.example/app:1\": failed to resolve reference \"r.example/app:1\": \
             r.example/app:1: not found",
            "the registry does not have it",
            "name and tag",
        ),
        (
            "rpc error: code = Unknown desc = failed to do request: Head \"https://r.example/v2/\": dial tcp: lookup \
             r.example: no such host",
            "the registry's name cannot be resolved",
            "DNS",
        ),
        (
            "pull access denied, repository does not exist or may require authorization: authorization failed",
            { "the registry denies access, or the image does not exist" },
            "pull Secret",
        ),
        (
            "no match for platform in manifest: not found",
            "it has no variant for this machine's architecture",
            "build with --platform linux/",
        ),
        ("tls: failed to verify certificate: x509: expired", "the registry's certificate is not trusted", "clock"),
        ("r.example/app:1: strange", "strange", "check the image's name"),
    ] {
        let state = json!({ "waiting": { "reason": "ImagePullBackOff", "message": message } });
        let cause = format!("container main: image r.example/app:1 cannot be pulled: {why}");
        check_state(state, ["ImagePullBackOff", &cause, advice]);
    }
}

#[test]
fn absent_and_malformed_images_have_their_own_sentence() {
    let state = json!({ "waiting": { "reason": "ErrImageNeverPull", "message": "x" } });
    let cause = "container main: image r.example/app:1 is not on the node, and imagePullPolicy is Never";
    check_state(state, ["ErrImageNeverPull", cause, "archive"]);
    let state = json!({ "waiting": { "reason": "InvalidImageName", "message": "x" } });
    let cause = "container main: image name \"r.example/app:1\" is malformed";
    check_state(state, ["InvalidImageName", cause, "REGISTRY/NAME:TAG"]);
}

#[test]
fn missing_object_is_named_with_where_to_put_it() {
    let state = json!({ "waiting": { "reason": "CreateContainerConfigError", "message": "secret \"key\" not found" } });
    let cause = "container main: secret \"key\" not found";
    check_state(state.clone(), ["CreateContainerConfigError", cause, "manifest directory"]);
    let mut of_cluster = pod(json!({}), with_state(state, json!({})));
    of_cluster.metadata.annotations.insert("kubernetes.io/config.source", "api".to_owned());
    check(&of_cluster, &[], ["CreateContainerConfigError", cause, "namespace"]);
}

#[test]
fn start_error_shows_the_command_only_as_detail() {
    for (message, cause) in [
        ("exec: \"SECRET\": executable file not found in $PATH: unknown", "its command is not in the image"),
        (
            "exec /SECRET: exec format error",
            "its program is built for another architecture, or is a script without `#!`",
        ),
        ("exec: \"/SECRET\": permission denied", "its command may not be executed"),
        ("SECRET", "the runtime does not start it"),
    ] {
        let message = ["failed to create containerd task: failed to create shim task: ", message].concat();
        let state = json!({ "waiting": { "reason": "RunContainerError", "message": message } });
        let cause = format!("container main: {cause}");
        let problem = check_state(state, ["RunContainerError", &cause, ""]);
        assert!(problem.detail.contains("SECRET") && !problem.detail.contains("shim"), "{}", problem.detail);
    }
}

fn crash(exit: Value) -> Pod {
    let message = "back-off 1m20s restarting failed container=main pod=web";
    pod(json!({}), with_state(json!({ "waiting": { "reason": "CrashLoopBackOff", "message": message } }), exit))
}

#[test]
fn crash_loop_names_exit_restarts_and_next_retry() {
    let last = json!({ "terminated": { "exitCode": 3, "reason": "Error", "finishedAt": "2027-01-15T07:59:00Z", "message": "no light" } });
    let cause = "container main exits with code 3 (4 restarts)";
    let problem = check(&crash(last), &[], ["CrashLoopBackOff", cause, "coracle logs --previous -c main web"]);
    assert_eq!((&*problem.next_retry, &*problem.detail), ("2027-01-15T08:00:20Z", "no light"));
    let out_of_memory = json!({ "terminated": { "exitCode": 137, "reason": "OOMKilled" } });
    let cause = "container main is killed because it uses more memory than it may (OOMKilled) (4 restarts)";
    check(&crash(out_of_memory), &[], ["CrashLoopBackOff", cause, "memory"]);
    let done = json!({ "terminated": { "exitCode": 0, "reason": "Completed" } });
    let cause = "container main ends with success and is started again (4 restarts)";
    check(&crash(done), &[], ["CrashLoopBackOff", cause, "OnFailure"]);
    let missing = json!({ "terminated": { "exitCode": 127, "reason": "Error" } });
    let cause = "container main exits with code 127 (4 restarts)";
    check(&crash(missing), &[], ["CrashLoopBackOff", cause, "not found: check command"]);
}

#[test]
fn crash_loop_of_a_failed_liveness_probe_names_the_probe() {
    let last = json!({ "terminated": { "exitCode": 137, "reason": "Error" } });
    let probe =
        (Reason::UNHEALTHY, "Liveness probe failed: HTTP probe failed with statuscode: 500", "2027-01-15T07:58:00Z");
    let cause = "container main is restarted because its liveness probe fails (4 restarts)";
    let problem = check(&crash(last), &[probe], ["CrashLoopBackOff", cause, "timeoutSeconds"]);
    assert_eq!(problem.detail, "Liveness probe failed: HTTP probe failed with statuscode: 500");
}

#[test]
fn crash_loop_of_a_failed_post_start_hook_names_the_hook() {
    let last = json!({ "terminated": { "exitCode": 143, "reason": "Error", "startedAt": "2027-01-15T07:59:45Z" } });
    let hook = (Reason::FAILED_POST_START_HOOK, "PostStartHook failed", "2027-01-15T07:58:00Z");
    let cause = "container main is restarted because its postStart hook fails (4 restarts)";
    check(&crash(last), &[hook], ["CrashLoopBackOff", cause, "check lifecycle.postStart"]);
}

#[test]
fn failed_probe_or_hook_of_an_earlier_run_is_not_why_the_last_one_ended() {
    // After the warnings.
    let last = json!({ "terminated": { "exitCode": 3, "reason": "Error", "startedAt": "2027-01-15T07:59:55Z" } });
    for warning in [
        (Reason::FAILED_POST_START_HOOK, "PostStartHook failed", "2027-01-15T07:58:00Z"),
        (Reason::UNHEALTHY, "Liveness probe failed: dial tcp", "2027-01-15T07:58:00Z"),
    ] {
        let cause = "container main exits with code 3 (4 restarts)";
        check(&crash(last.clone()), &[warning], ["CrashLoopBackOff", cause, "coracle logs --previous -c main web"]);
    }
}

#[test]
fn combined_event_of_a_probe_names_the_probe() {
    let last = json!({ "terminated": { "exitCode": 137, "reason": "Error" } });
    let text = "(combined from similar events): Liveness probe failed: after 1003ms";
    let cause = "container main is restarted because its liveness probe fails (4 restarts)";
    let warning = (Reason::UNHEALTHY, text, "2027-01-15T07:58:00Z");
    let problem = check(&crash(last), &[warning], ["CrashLoopBackOff", cause, "timeoutSeconds"]);
    assert_eq!(problem.detail, "Liveness probe failed: after 1003ms");
}

#[test]
fn repeated_warning_is_a_problem_after_thirty_seconds() {
    let starting = json!({ "waiting": { "reason": "ContainerCreating" } });
    let pod = pod(json!({}), with_state(starting, json!({})));
    let message = "MountVolume.SetUp failed for volume \"v\" : hostPath type check failed: /srv is not a directory";
    assert_eq!(health(&pod, &[(Reason::FAILED_MOUNT, message, "2027-01-15T07:59:40Z")]), PodHealth::Waiting);
    let cause = "volume \"v\" : hostPath type check failed: /srv is not a directory";
    let warning = (Reason::FAILED_MOUNT, message, "2027-01-15T07:59:00Z");
    let problem = check(&pod, &[warning], ["FailedMount", cause, "create the path"]);
    assert_eq!(problem.since, "2027-01-15T07:59:00Z");
    assert_eq!(health(&pod, &[]), PodHealth::Waiting);
}

#[test]
fn warning_explains_why_a_pod_does_not_start_again() {
    let with = |sandbox: &str, finished: &str| {
        let ended = json!({ "terminated": { "exitCode": 255, "reason": "Error", "finishedAt": finished } });
        let mut status = with_state(ended, json!({}));
        status["phase"] = json!("Running");
        status["conditions"] = json!([{ "type": "PodReadyToStartContainers", "status": sandbox }]);
        pod(json!({}), status)
    };
    let (before, after) = ("2027-01-15T07:58:00Z", "2027-01-15T07:59:55Z");
    let warnings = [
        (Reason::FAILED_CREATE_POD_SANDBOX, "pull the pause image: no route to host", "2027-01-15T07:58:30Z"),
        (Reason::FAILED_MOUNT, "secret \"key\" not found", "2027-01-15T07:58:30Z"),
    ];
    for warning in warnings {
        let reason = warning.0.as_str().to_owned();
        // After a reboot with a wrong clock the former end may seem to be later.
        for restarting in [with("False", before), with("False", after), with("True", before)] {
            check(&restarting, std::slice::from_ref(&warning), [&reason, warning.1, ""]);
        }
        // The container was started since.
        assert_eq!(health(&with("True", after), &[warning]), PodHealth::Waiting);
    }
}

#[test]
fn warning_about_a_slow_sandbox_lasts_until_its_next_attempt_has_failed() {
    let at = |sandbox: &str| {
        let mut status = with_state(json!({ "waiting": { "reason": "ContainerCreating" } }), json!({}));
        status["conditions"] = json!([{ "type": "PodReadyToStartContainers", "status": sandbox }]);
        let pod = pod(json!({}), status);
        let uid = PodUid::from("u");
        let warning = PodWarning {
            pod: &uid,
            reason: &Reason::FAILED_CREATE_POD_SANDBOX,
            message: "context deadline exceeded",
            field_path: "",
            first: time("2027-01-15T07:46:00Z"),
            last: time("2027-01-15T07:54:00Z"),
        };
        let status = &pod.status;
        let warnings = &[warning];
        let situation = PodSituation { pod: &pod, status, warnings, unreplaced_since: None, now: time(NOW) };
        pod_health(situation)
    };
    assert!(matches!(at("False"), PodHealth::Failing(_)), "{:?}", at("False"));
    assert_eq!(at("True"), PodHealth::Waiting);
}

#[test]
fn unready_container_is_a_problem_after_thirty_seconds() {
    let status = |started: &str| {
        json!({
            "phase": "Running",
            "conditions": [{ "type": "Ready", "status": "False", "lastTransitionTime": "2027-01-15T07:55:00Z" }],
            "containerStatuses": [{ "name": "main", "ready": false, "state": { "running": { "startedAt": started } } }],
        })
    };
    let spec = json!({ "containers": [{ "name": "main", "readinessProbe": { "exec": { "command": ["x"] } } }] });
    let fresh = pod(spec.clone(), status("2027-01-15T07:59:45Z"));
    assert_eq!(health(&fresh, &[]), PodHealth::Waiting);
    let cause = "container main is not ready: its readiness probe does not succeed";
    let probe = (Reason::UNHEALTHY, "Readiness probe failed: SECRET", "2027-01-15T07:58:00Z");
    let problem = check(&pod(spec, status("2027-01-15T07:58:00Z")), &[probe], ["NotReady", cause, "readiness probe"]);
    assert_eq!((&*problem.since, &*problem.detail), ("2027-01-15T07:55:00Z", "Readiness probe failed: SECRET"));
}

#[test]
fn init_container_that_does_not_end_is_a_problem_after_ten_minutes() {
    let spec = json!({ "initContainers": [{ "name": "db" }, { "name": "proxy", "restartPolicy": "Always" }] });
    let of = |started: &str| {
        let running = json!({ "running": { "startedAt": started } });
        let initializing = json!({ "waiting": { "reason": "PodInitializing" } });
        let status = json!({
            "phase": "Pending", "startTime": "2027-01-15T06:00:00Z",
            "initContainerStatuses": [{ "name": "db", "state": running }, { "name": "proxy", "state": initializing }],
            "containerStatuses": [{ "name": "main", "state": initializing }],
        });
        pod(spec.clone(), status)
    };
    assert_eq!(health(&of("2027-01-15T07:50:01Z"), &[]), PodHealth::Waiting);
    let cause = "init container db has not ended for more than 10 minutes, and the other containers wait for it";
    let problem = check(&of("2027-01-15T07:50:00Z"), &[], ["NotInitialized", cause, "coracle logs POD -c db"]);
    assert_eq!(problem.since, "2027-01-15T07:50:00Z");
}

#[test]
fn ready_done_and_starting_pods_have_no_problem() {
    let ready = json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] });
    assert_eq!(health(&pod(json!({}), ready), &[]), PodHealth::Running);
    assert_eq!(health(&pod(json!({}), json!({ "phase": "Succeeded" })), &[]), PodHealth::Done);
    assert_eq!(health(&pod(json!({}), json!({})), &[]), PodHealth::Waiting);
}

#[test]
fn exit_without_restart_is_a_problem_of_the_pod() {
    let ended = json!({ "terminated": { "exitCode": 2, "reason": "Error", "finishedAt": "2027-01-15T07:00:00Z" } });
    let mut status = with_state(ended, json!({}));
    let spec = json!({ "restartPolicy": "Never" });
    let problem =
        check(&pod(spec.clone(), status.clone()), &[], ["Error", "container main exits with code 2", "coracle logs"]);
    assert_eq!(problem.since, "2027-01-15T07:00:00Z");
    status["phase"] = "Failed".into();
    check(&pod(spec, status), &[], ["Error", "container main exits with code 2", "coracle logs"]);
}

#[test]
fn crash_looping_container_fails_between_its_exits() {
    let ended = |exit_code: i32, reason: &str| {
        json!({ "terminated": {
            "exitCode": exit_code, "reason": reason,
            "startedAt": "2027-01-15T07:58:00Z", "finishedAt": "2027-01-15T07:58:20Z",
        } })
    };
    let running = |since: &str| json!({ "running": { "startedAt": since } });
    let with = |started: &str, last: Value| {
        let mut status = with_state(running(started), last);
        status["phase"] = json!("Running");
        status["containerStatuses"][0]["ready"] = json!(true);
        status["conditions"] = json!([{ "type": "Ready", "status": "True" }]);
        pod(json!({}), status)
    };
    // Its back-off was 80 seconds.
    let cause = "container main exits with code 1 (4 restarts)";
    let young = with("2027-01-15T07:58:50Z", ended(1, "Error"));
    let problem = check(&young, &[], ["CrashLoopBackOff", cause, "coracle logs --previous"]);
    assert_eq!((&*problem.since, &*problem.next_retry), ("2027-01-15T07:58:20Z", ""));
    for healthy in [
        with("2027-01-15T07:58:30Z", ended(1, "Error")),
        with("2027-01-15T07:58:50Z", ended(0, "Completed")),
        with("2027-01-15T07:58:50Z", ended(143, "Error")),
    ] {
        assert_eq!(health(&healthy, &[]), PodHealth::Running);
    }
}

#[test]
fn pod_that_was_not_replaced_says_so() {
    let status = json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] });
    let pod = pod(json!({}), status);
    let since = Some(time("2027-01-15T07:59:00Z"));
    let situation =
        PodSituation { pod: &pod, status: &pod.status, warnings: &[], unreplaced_since: since, now: time(NOW) };
    let PodHealth::Failing(problem) = pod_health(situation) else { panic!("it runs with another spec") };
    assert_eq!((&*problem.reason, &*problem.since), ("NotReplaced", "2027-01-15T07:59:00Z"));
    assert!(problem.cause.contains("metadata.uid") && problem.advice.contains("leave it out"), "{problem:?}");
}

#[test]
fn probe_of_a_port_without_its_name_is_a_problem_although_the_pod_is_ready() {
    let with = |port: Value, kind: &str| {
        let container = json!({
            "name": "main", "image": "a", "ports": [{ "name": "http", "containerPort": 80 }],
            kind: { "httpGet": { "path": "/", "port": port } },
        });
        let running = json!({ "running": { "startedAt": "2027-01-15T07:59:55Z" } });
        let status = json!({
            "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }],
            "containerStatuses": [{ "name": "main", "ready": true, "state": running }],
        });
        pod(json!({ "containers": [container] }), status)
    };
    let cause = "container main: its liveness probe does not run: no port of the container is named \"htpp\"";
    check(&with(json!("htpp"), "livenessProbe"), &[], ["Unhealthy", cause, "write the number"]);
    check(&with(json!("htpp"), "readinessProbe"), &[], ["Unhealthy", &cause.replace("liveness", "readiness"), "name"]);
    for port in [json!("http"), json!("8080"), json!(8080)] {
        assert_eq!(health(&with(port, "livenessProbe"), &[]), PodHealth::Running);
    }
}

#[test]
fn too_little_memory_missing_handlers_and_devices_have_their_advice() {
    let message = "failed to create containerd task: OCI runtime create failed: runc create failed: unable to start \
                   container process: error setting cgroup config for procHooks process: unable to set memory limit to 1";
    let cause = "container main: its memory limit is too low to start it";
    let state = json!({ "waiting": { "reason": "RunContainerError", "message": message } });
    check_state(state, ["RunContainerError", cause, "64m is less than a byte"]);
    let starting = pod(json!({}), json!({ "phase": "Pending" }));
    let long_ago = "2027-01-15T07:50:00Z";
    let sandbox = "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to get sandbox runtime: no \
                   runtime for \"kata\" is configured";
    let expected = ["FailedCreatePodSandBox", "no runtime for \"kata\" is configured", "runtimeClassName"];
    check(&starting, &[(Reason::FAILED_CREATE_POD_SANDBOX, sandbox, long_ago)], expected);
    let devices = "the pod waits for its devices: no device plugin has registered example.com/gpu";
    check(&starting, &[(Reason::FAILED_SYNC, devices, long_ago)], ["FailedSync", devices, "devices rule"]);
}
