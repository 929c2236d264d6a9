//! Probes that are asked through the runtime, while the runtime or the container behaves badly.

use coracle::platform::cri::v1::ExecSyncResponse;
use coracle::protocol::grpc::Code;
use coracle::protocol::protobuf::encode;

use crate::node::{Manifest, Node};

/// A node with a pod `web` whose container has these fields, as `livenessProbe: {…}`.
fn node_with(fields: &str) -> Node {
    let mut node = Node::new();
    node.apply(&Manifest::new("web").container_with("main", "", fields).spec("terminationGracePeriodSeconds: 1"));
    node.start_agent();
    node
}

/// A probe that asks the runtime to run `word`, every second.
fn exec(kind: &str, word: &str, more: &str) -> String {
    format!("{kind}: {{exec: {{command: [{word}]}}, periodSeconds: 1{more}}}")
}

fn answer(exit_code: i32, stdout: &[u8]) -> Vec<u8> {
    encode(&ExecSyncResponse { exit_code, stdout: stdout.to_vec(), stderr: Vec::new() })
}

#[test]
fn a_container_is_ready_while_its_probe_says_so() {
    let node = node_with(&exec("readinessProbe", "ask", ", failureThreshold: 2"));
    node.wait_until_ready("web");
    node.fake.on("ExecSync").answer(&answer(1, b"no\n"));
    node.wait_until("it is not ready", |pods| pods.has("web", |pod| !pod.is_ready()));
    assert!(node.log().contains("warn Readiness probe failed: no\\n pod=default/web"));
    node.fake.clear_faults();
    node.wait_until_ready("web");
    assert_eq!(node.seen("web").running(), [("main", 0)]);
}

#[test]
fn a_container_that_does_not_live_is_replaced() {
    let node = node_with(&exec("livenessProbe", "ask", ", failureThreshold: 2"));
    node.wait_until_ready("web");
    node.fake.on("ExecSync").answer(&answer(1, b"")).times(2);
    node.wait_until("it runs anew", |pods| {
        pods.has("web", |pod| pod.is_ready() && pod.container("main").restarts() == 1)
    });
    assert!(node.log().contains("Container main failed liveness probe, will be restarted"));
}

#[test]
fn what_has_not_started_is_neither_ready_nor_asked_for_anything_else() {
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
fn a_runtime_that_cannot_ask_says_nothing_about_the_container() {
    let node = node_with(&exec("livenessProbe", "ask", ", failureThreshold: 1"));
    node.wait_until_ready("web");
    node.fake.on("ExecSync").fail(Code::Unknown, "no processes left").times(7);
    // Three tries at each of two moments, and one more.
    let before = node.fake.look(|world| world.calls_of("ExecSync"));
    node.fake.wait_for_calls("ExecSync", before + 9);
    assert_eq!(node.seen("web").running(), [("main", 0)]);
    assert!(node.log().contains(
        "Liveness probe errored and resulted in unknown state: rpc error: code = Unknown desc = no processes left"
    ));
}

#[test]
fn a_command_that_takes_too_long_has_failed() {
    let node = node_with(&exec("livenessProbe", "ask", ", failureThreshold: 1"));
    node.wait_until_ready("web");
    node.fake.on("ExecSync").fail(Code::DeadlineExceeded, "timeout 1s exceeded").times(1);
    node.wait_until("it runs anew", |pods| {
        pods.has("web", |pod| pod.is_ready() && pod.container("main").restarts() == 1)
    });
    assert!(node.log().contains("Liveness probe failed: command timed out"));
}

#[test]
fn a_question_that_hangs_holds_up_neither_the_other_probes_nor_the_end_of_the_pod() {
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
fn output_without_end_is_cut() {
    let node = node_with(&exec("readinessProbe", "ask", ""));
    node.wait_until_ready("web");
    node.fake.on("ExecSync").answer(&answer(1, &[b'x'; 4 << 20]));
    node.wait_until("it is not ready", |pods| pods.has("web", |pod| !pod.is_ready()));
    let longest = node.log().lines().map(str::len).max().unwrap();
    assert!((900..3000).contains(&longest), "a line of {longest} bytes");
}

#[test]
fn another_agent_ends_no_container_that_has_started_long_ago() {
    // Started after one question; then the probe would say no.
    let fields = exec("startupProbe", "start", ", failureThreshold: 1");
    let mut node = node_with(&fields);
    node.wait_until_ready("web");
    let before = node.seen("web").ids().iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
    // It is known that it ran before the next agent if that was ten seconds ago.
    node.wait_until("it has run for long", |_| node.age() >= 13);
    node.kill_agent();
    node.fake.on("ExecSync").answer(&answer(1, b"started already"));
    node.start_agent();
    node.wait_until_ready("web");
    assert_eq!(node.seen("web").ids(), before);
}
