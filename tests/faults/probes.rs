//! Exec probes, with a misbehaving runtime or container.

use coracle::platform::cri::v1::ExecSyncResponse;
use coracle::protocol::grpc::Code;
use coracle::protocol::protobuf::encode;

use super::node::{Manifest, Node};

/// A node with a pod `web` whose container has these fields, such as `livenessProbe: {…}`.
fn node_with(fields: &str) -> Node {
    let mut node = Node::new();
    node.apply(&Manifest::new("web").container_with("main", "", fields).spec("terminationGracePeriodSeconds: 1"));
    node.start_agent();
    node
}

/// An exec probe of `word` with a period of one second.
fn exec(kind: &str, word: &str, more: &str) -> String {
    format!("{kind}: {{exec: {{command: [{word}]}}, periodSeconds: 1{more}}}")
}

fn answer(exit_code: i32, stdout: &[u8]) -> Vec<u8> {
    encode(&ExecSyncResponse { exit_code, stdout: stdout.to_vec(), stderr: Vec::new() })
}

#[test]
fn readiness_follows_the_readiness_probe() {
    let node = node_with(&exec("readinessProbe", "ask", ", failureThreshold: 2"));
    node.wait_until_ready("web");
    node.fake.on("ExecSync").answer(&answer(1, b"no\n"));
    node.wait_until("the pod is not ready", |pods| pods.has("web", |pod| !pod.is_ready()));
    assert!(node.log().contains("warn Readiness probe failed: no\\n pod=default/web"));
    node.fake.clear_faults();
    node.wait_until_ready("web");
    assert_eq!(node.seen("web").running(), [("main", 0)]);
}

#[test]
fn failed_liveness_probe_restarts_the_container() {
    let node = node_with(&exec("livenessProbe", "ask", ", failureThreshold: 2"));
    node.wait_until_ready("web");
    node.fake.on("ExecSync").answer(&answer(1, b"")).times(2);
    node.wait_until("the container has restarted", |pods| {
        pods.has("web", |pod| pod.is_ready() && pod.container("main").restarts() == 1)
    });
    assert!(node.log().contains("Container main failed liveness probe, will be restarted"));
}

#[test]
fn before_startup_succeeds_a_container_is_unready_and_not_probed_otherwise() {
    let fields =
        [exec("startupProbe", "start", ", failureThreshold: 100"), exec("livenessProbe", "live", "")].join(", ");
    let mut node = Node::new();
    node.fake.on("ExecSync").about("start").answer(&answer(1, b"not yet"));
    node.apply(&Manifest::new("web").container_with("main", "", &fields));
    node.start_agent();
    node.fake.wait_for_calls("ExecSync", 3);
    let asked = |word: &str| {
        let calls = node.fake.calls();
        calls.iter().filter(|call| call.method == "ExecSync" && contains(&call.request, word)).count()
    };
    assert_eq!(asked("live"), 0);
    assert!(node.pods().has("web", |pod| pod.container("main").is_running() && !pod.is_ready()));
    node.fake.clear_faults();
    node.wait_until_ready("web");
    node.fake.wait_for("the liveness to be asked for", |world| {
        world.calls.iter().any(|call| contains(&call.request, "live"))
    });
    let starts = asked("start");
    node.fake.wait_for_calls("ExecSync", node.fake.look(|world| world.calls_of("ExecSync")) + 2);
    assert_eq!(asked("start"), starts, "a startup probe that has passed was asked again");
}

fn contains(request: &[u8], word: &str) -> bool {
    request.windows(word.len()).any(|part| part == word.as_bytes())
}

#[test]
fn failed_exec_calls_do_not_change_probe_results() {
    let node = node_with(&exec("livenessProbe", "ask", ", failureThreshold: 1"));
    node.wait_until_ready("web");
    node.fake.on("ExecSync").fail(Code::Unknown, "no processes left").times(7);
    // Three attempts in each of two periods, and one more.
    let before = node.fake.look(|world| world.calls_of("ExecSync"));
    node.fake.wait_for_calls("ExecSync", before + 9);
    assert_eq!(node.seen("web").running(), [("main", 0)]);
    assert!(node.log().contains(
        "Liveness probe errored and resulted in unknown state: rpc error: code = Unknown desc = no processes left"
    ));
}

#[test]
fn probe_command_that_times_out_has_failed() {
    let node = node_with(&exec("livenessProbe", "ask", ", failureThreshold: 1"));
    node.wait_until_ready("web");
    node.fake.on("ExecSync").fail(Code::DeadlineExceeded, "timeout 1s exceeded").times(1);
    node.wait_until("the container has restarted", |pods| {
        pods.has("web", |pod| pod.is_ready() && pod.container("main").restarts() == 1)
    });
    assert!(node.log().contains("Liveness probe failed: command timed out"));
}

#[test]
fn hung_probe_delays_neither_other_probes_nor_termination() {
    let fields = [exec("readinessProbe", "ready", ""), exec("livenessProbe", "live", "")].join(", ");
    let mut node = Node::new();
    node.fake.on("ExecSync").about("live").hang();
    node.apply(&Manifest::new("web").container_with("main", "", &fields).spec("terminationGracePeriodSeconds: 1"));
    node.start_agent();
    node.wait_until_ready("web");
    node.remove_manifest("web");
    node.wait_until_nothing_is_left();
}

#[test]
fn endless_probe_output_is_truncated() {
    let node = node_with(&exec("readinessProbe", "ask", ""));
    node.wait_until_ready("web");
    node.fake.on("ExecSync").answer(&answer(1, &[b'x'; 4 << 20]));
    node.wait_until("the pod is not ready", |pods| pods.has("web", |pod| !pod.is_ready()));
    let longest = node.log().lines().map(str::len).max().unwrap();
    assert!((900..3000).contains(&longest), "a line of {longest} bytes");
}

#[test]
fn restarted_agent_does_not_repeat_startup_probes_of_old_containers() {
    // The startup probe succeeds once and would fail afterwards.
    let fields = exec("startupProbe", "start", ", failureThreshold: 1");
    let mut node = node_with(&fields);
    node.wait_until_ready("web");
    let before = node.seen("web").ids().iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
    // After ten seconds the container counts as started before the next agent.
    node.wait_until("the agent has run for 13 seconds", |_| node.age() >= 13);
    node.kill_agent();
    node.fake.on("ExecSync").answer(&answer(1, b"started already"));
    node.start_agent();
    node.wait_until_ready("web");
    assert_eq!(node.seen("web").ids(), before);
}
