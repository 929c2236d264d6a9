//! Lifecycle hooks in real containers.

use std::fs;
use std::path::PathBuf;

use super::node::{Events, Manifest, Node, PATIENCE, STAY, wait_for};
use super::tls_server::{SELF_SIGNED, Server};

/// Applies a pod `web` whose container mounts the returned folder at `/host`.
fn apply(node: &Node, script: &str, lifecycle: &str) -> PathBuf {
    let folder = node.folder().join("shared");
    fs::create_dir_all(&folder).unwrap();
    let fields = format!("volumeMounts: [{{name: host, mountPath: /host}}], lifecycle: {{{lifecycle}}}");
    let manifest = Manifest::new("web").container_with("main", script, &fields);
    let volume = format!("volumes: [{{name: host, hostPath: {{path: {}}}}}]", folder.display());
    node.apply(&manifest.spec(&volume).spec("terminationGracePeriodSeconds: 10"));
    folder
}

fn wait_until_ready(node: &Node) {
    node.wait_until("the pod is ready", |pods| pods.has("web", |pod| pod.is_ready()));
}

#[test]
fn container_becomes_ready_after_its_post_start_hook() {
    let node = Node::start();
    let hook = "postStart: {exec: {command: [sh, -c, 'sleep 1; echo $0 >/host/hook', done]}}";
    let folder = apply(&node, STAY, hook);
    wait_until_ready(&node);
    assert_eq!(fs::read_to_string(folder.join("hook")).unwrap(), "done\n");
}

#[test]
fn failed_post_start_hook_restarts_the_container() {
    let node = Node::start();
    let hook = "postStart: {exec: {command: [sh, -c, 'test -e /host/tried || { touch /host/tried; exit 4; }']}}";
    apply(&node, STAY, hook);
    node.wait_until("the second try is ready", |pods| {
        pods.has("web", |pod| pod.is_ready() && pod.container("main").restarts() == 1)
    });
    for told in ["PostStartHook failed", "FailedPostStartHook"] {
        assert!(node.agent_log().contains(&format!("{told} pod=default/web-node-a container=main")), "{told}");
    }
}

#[test]
fn pre_stop_command_finishes_before_the_signal() {
    let node = Node::start();
    let script = "trap 'echo signal >>/host/order; exit' TERM; sleep 100000 & wait";
    let hook = "preStop: {exec: {command: [sh, -c, 'sleep 1; echo hook >>/host/order']}}";
    let folder = apply(&node, script, hook);
    wait_until_ready(&node);
    node.remove_manifest("web");
    node.wait_until_gone("web");
    assert_eq!(fs::read_to_string(folder.join("order")).unwrap(), "hook\nsignal\n");
}

#[test]
fn pre_stop_http_hook_is_called() {
    let node = Node::start();
    let listens = "until cat /proc/net/tcp* | grep -q ':1F90 .* 0A '; do sleep 0.1; done; touch /host/listens";
    let answer = "printf 'HTTP/1.0 500 Never mind\\r\\n\\r\\n'";
    let script = format!("{answer} | nc -l -p 8080 >/host/request & {listens}; {STAY}");
    let hook = "preStop: {httpGet: {path: /bye, port: 8080, httpHeaders: [{name: x-why, value: update}]}}";
    let folder = apply(&node, &script, hook);
    node.wait_until("somebody listens", |_| folder.join("listens").exists());
    wait_until_ready(&node);
    node.remove_manifest("web");
    node.wait_until_gone("web");
    let request = fs::read_to_string(folder.join("request")).unwrap();
    assert!(request.starts_with("GET /bye HTTP/1.1\r\nHost: 10.88."), "{request}");
    assert!(request.contains("\r\nUser-Agent: kube-lifecycle/1.36\r\nAccept: */*\r\nX-Why: update\r\n"), "{request}");
    assert!(!node.agent_log().contains("PreStopHook failed"));
}

#[test]
fn https_hook_falls_back_to_http_without_its_authorization_header() {
    let node = Node::start();
    let (tls, plain) = (Server::with_certificate(&node, SELF_SIGNED), Server::without_tls(&node));
    let hook = |path: &str, server: &Server| {
        let headers = "httpHeaders: [{name: Authorization, value: secret}]";
        let page = format!("host: 127.0.0.1, port: {}, path: {path}, scheme: HTTPS, {headers}", server.port);
        format!("{{httpGet: {{{page}}}}}")
    };
    let (start, stop) = (hook("/start", &tls), hook("/stop", &plain));
    apply(&node, STAY, &format!("postStart: {start}, preStop: {stop}"));
    wait_until_ready(&node);
    let request = tls.request();
    assert!(request.starts_with("GET /start ") && request.contains("\r\nAuthorization: secret\r\n"), "{request}");
    node.remove_manifest("web");
    node.wait_until_gone("web");
    let request = plain.request();
    assert!(request.starts_with("GET /stop ") && !request.contains("secret"), "{request}");
    let address = format!("127.0.0.1:{}", plain.port);
    let told = format!("request to HTTPS lifecycle hook {address} got HTTP response, retry with HTTP succeeded");
    let events = Events::parse(&node.ask(&["events", "-o", "json"]).unwrap());
    assert!(events.find("LifecycleHTTPFallback", &told).is_some(), "{:#?}", events.lines());
}

#[test]
fn next_agent_runs_the_hook_recorded_on_a_container() {
    let mut node = Node::start();
    let folder = apply(&node, STAY, "preStop: {exec: {command: [touch, /host/hook]}}");
    wait_until_ready(&node);
    node.kill_agent();
    node.remove_manifest("web");
    node.start_agent();
    wait_for("the hook to be run", PATIENCE, || folder.join("hook").exists().then_some(()));
    node.wait_until_gone("web");
}

/// Upstream gives the hook the whole grace period, and the two seconds of its container after that.
#[test]
fn sidecars_pre_stop_hook_that_does_not_exit_runs_until_its_container_is_killed() {
    let node = Node::start();
    let folder = node.folder().join("shared");
    fs::create_dir_all(&folder).unwrap();
    let sidecar = |name: &str| {
        let hook = format!(
            "preStop: {{exec: {{command: [sh, -c, 'while true; do date +%s >>/host/{name}; sleep 0.1; done']}}}}"
        );
        let script = "trap '' TERM; while true; do sleep 1; done";
        (name.to_owned(), script, format!("restartPolicy: Always, lifecycle: {{{hook}}}, {MOUNT}"))
    };
    let mut manifest = Manifest::new("web");
    for (name, script, fields) in [sidecar("one"), sidecar("two")] {
        manifest = manifest.init_container_with(&name, script, &fields);
    }
    let manifest = manifest.container("main", "sleep 1");
    let volume = format!("volumes: [{{name: host, hostPath: {{path: {}}}}}]", folder.display());
    node.apply(&manifest.spec(&volume).spec("restartPolicy: Never").spec("terminationGracePeriodSeconds: 4"));
    node.wait_until("the pod has succeeded", |pods| pods.has("web", |pod| pod.phase() == "Succeeded"));
    for name in ["one", "two"] {
        let text = fs::read_to_string(folder.join(name)).unwrap();
        let seconds: Vec<u64> = text.lines().map(|line| line.parse().unwrap()).collect();
        let lasted = seconds.last().unwrap() - seconds[0];
        assert!((5..=7).contains(&lasted), "the hook of {name} ran for {lasted} s");
    }
}

const MOUNT: &str = "volumeMounts: [{name: host, mountPath: /host}]";
