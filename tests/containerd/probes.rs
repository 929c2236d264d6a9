//! Probes against a real runtime and real sockets.

use std::time::Duration;

use super::node::{Manifest, Node, PATIENCE, STAY, wait_for};
use super::tls_server::{EXPIRED, SELF_SIGNED, Server};

/// Applies a pod `web` with one container that runs `script` and has these fields.
fn apply(node: &Node, script: &str, fields: &str) {
    let manifest = Manifest::new("web").container_with("main", script, fields);
    node.apply(&manifest.spec("terminationGracePeriodSeconds: 1"));
}

fn wait_until_ready(node: &Node) {
    node.wait_until("the pod is ready", |pods| pods.has("web", |pod| pod.is_ready()));
}

#[track_caller]
fn wait_for_log(node: &Node, text: &str) {
    wait_for(&format!("the agent to log {text:?}"), PATIENCE, || node.agent_log().contains(text).then_some(()));
}

/// Creates a file in the running container.
fn touch(node: &Node, path: &str) {
    let container = node.running_containers("web").pop().expect("the container runs").container;
    let done = node.coracle("exec", &["web", "-c", &container, "--", "touch", path]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn pod_is_not_ready_while_its_probe_page_is_missing() {
    let node = Node::start();
    let probe = "ports: [{name: web, containerPort: 8080}], \
                 readinessProbe: {httpGet: {path: /ready, port: web}, periodSeconds: 1}";
    apply(&node, &format!("mkdir /www; httpd -p 8080 -h /www; {STAY}"), probe);
    wait_for_log(&node, "Readiness probe failed: HTTP probe failed with statuscode: 404");
    assert!(node.pods().has("web", |pod| pod.container("main").is_running() && !pod.is_ready()));
    touch(&node, "/www/ready");
    wait_until_ready(&node);
    assert!(node.pods().has("web", |pod| pod.container("main").restarts() == 0));
}

#[test]
fn failed_liveness_probe_restarts_the_container_with_upstreams_message() {
    let node = Node::start();
    apply(&node, STAY, "livenessProbe: {httpGet: {path: /live, port: 81}, periodSeconds: 1, failureThreshold: 2}");
    let pods = node.wait_until("it was started again", |pods| {
        pods.has("web", |pod| pod.container("main").restarts() == 1 && pod.container("main").is_running())
    });
    let ip = pods.get("web").unwrap().ip();
    let url = format!("\"http://{ip}:81/live\"");
    wait_for_log(&node, &format!("Liveness probe failed: Get {url}: dial tcp {ip}:81: connect: connection refused"));
    wait_for_log(&node, "Container main failed liveness probe, will be restarted");
    // The shell exits with the status of the process it waited for.
    assert!(pods.get("web").unwrap().container("main").last_exit_code().is_some());
}

#[test]
fn exec_probe_decides_liveness() {
    let node = Node::start();
    let probe = "env: [{name: FILE, value: /tmp/broken}], \
                 livenessProbe: {exec: {command: [test, '!', -e, $(FILE)]}, periodSeconds: 1, failureThreshold: 1, \
                 terminationGracePeriodSeconds: 3}";
    apply(&node, &format!("mkdir -p /tmp; {STAY}"), probe);
    wait_until_ready(&node);
    touch(&node, "/tmp/broken");
    node.wait_until("it was started again", |pods| {
        pods.has("web", |pod| pod.is_ready() && pod.container("main").restarts() == 1)
    });
}

#[test]
fn readiness_follows_a_successful_tcp_startup_probe() {
    let node = Node::start();
    let probes = "startupProbe: {tcpSocket: {port: 8080}, periodSeconds: 1, failureThreshold: 60}, \
                  readinessProbe: {exec: {command: [sh, -c, 'echo asked >>/tmp/asked']}, periodSeconds: 1}";
    let script = format!("mkdir -p /tmp; until test -e /tmp/go; do sleep 0.1; done; httpd -p 8080; {STAY}");
    apply(&node, &script, probes);
    wait_for_log(&node, ":8080: connect: connection refused");
    let main = |node: &Node| {
        let id = node.running_containers("web").pop().expect("the container runs").id;
        let asked = node.ctr_command(&["tasks", "exec", "--exec-id", "look", &id, "test", "-e", "/tmp/asked"]);
        { asked }.status().unwrap().success()
    };
    assert!(!main(&node), "the readiness was asked for before the start");
    touch(&node, "/tmp/go");
    wait_until_ready(&node);
    assert!(main(&node));
}

#[test]
fn hanging_exec_probe_is_killed_and_fails() {
    let node = Node::start();
    apply(&node, STAY, "readinessProbe: {exec: {command: [sleep, '1000']}, periodSeconds: 1}");
    wait_for_log(&node, "Readiness probe failed: command timed out: \"sleep 1000\" timed out after 1s");
    assert!(node.pods().has("web", |pod| pod.container("main").is_running() && !pod.is_ready()));
}

#[test]
fn host_network_pod_is_probed_at_the_nodes_address() {
    let node = Node::start();
    let manifest = Manifest::new("web").container_with(
        "main",
        &format!("mkdir /www; touch /www/ready; httpd -p 8080 -h /www; {STAY}"),
        "readinessProbe: {httpGet: {path: /ready, port: 8080}, periodSeconds: 1}",
    );
    node.apply(&manifest.spec("hostNetwork: true"));
    wait_until_ready(&node);
}

#[test]
fn sidecar_that_has_not_started_delays_the_other_containers() {
    let node = Node::start();
    let side = format!("mkdir -p /tmp; {STAY}");
    let text = Manifest::new("web").init_container("side", &side).container("main", STAY).text();
    let fields = "restartPolicy: Always, startupProbe: {exec: {command: [test, -e, /tmp/go]}, periodSeconds: 1}";
    node.write_manifest("web", &text.replacen("]}\n", &format!("], {fields}}}\n"), 1));
    wait_for_log(&node, "Startup probe failed");
    assert!(node.pods().has("web", |pod| pod.container("side").is_running() && !pod.container("main").is_running()));
    touch(&node, "/tmp/go");
    wait_until_ready(&node);
}

#[test]
fn next_agent_resumes_probes_without_restarts() {
    let mut node = Node::start();
    let probes = "livenessProbe: {exec: {command: ['true']}, periodSeconds: 1}, \
                  readinessProbe: {exec: {command: ['true']}, periodSeconds: 1}";
    apply(&node, STAY, probes);
    wait_until_ready(&node);
    let before = node.running_containers("web");
    node.kill_agent();
    node.start_agent();
    node.wait_until_within(Duration::from_secs(10), "the pod is ready", |pods| pods.has("web", |pod| pod.is_ready()));
    assert_eq!(node.running_containers("web"), before);
}

/// A readiness probe over HTTPS against a server on this port of the node.
fn https(port: u16) -> String {
    let page = format!("host: 127.0.0.1, port: {port}, path: /ready, scheme: HTTPS");
    format!("readinessProbe: {{httpGet: {{{page}}}, periodSeconds: 1}}")
}

#[test]
fn https_probe_accepts_any_certificate() {
    let node = Node::start();
    let servers = [SELF_SIGNED, EXPIRED].map(|certificate| Server::with_certificate(&node, certificate));
    let manifest = Manifest::new("web").container_with("main", STAY, &https(servers[0].port)).container_with(
        "other",
        STAY,
        &https(servers[1].port),
    );
    node.apply(&manifest);
    wait_until_ready(&node);
    for server in servers {
        let request = server.request();
        let host = format!("GET /ready HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nUser-Agent: kube-probe/", server.port);
        assert!(request.starts_with(&host), "{request}");
    }
}

#[test]
fn failed_tls_handshake_is_reported_with_upstreams_message() {
    let node = Node::start();
    let (silent, plain) = (Server::silent(&node), Server::without_tls(&node));
    let manifest = Manifest::new("web").container_with("main", STAY, &https(silent.port)).container_with(
        "other",
        STAY,
        &https(plain.port),
    );
    node.apply(&manifest);
    for (server, why) in [
        (silent, "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"),
        (plain, "http: server gave HTTP response to HTTPS client"),
    ] {
        let url = format!("\"https://127.0.0.1:{}/ready\"", server.port);
        wait_for_log(&node, &format!("Readiness probe failed: Get {url}: {why}"));
    }
    assert!(!node.pods().has("web", |pod| pod.is_ready()));
}
