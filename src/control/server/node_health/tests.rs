use super::super::node_problems::PodCounts;
use super::*;
use crate::control::server::{
    ApiServerStatus, ConditionStatus, RuntimeStatus, SourceStatus, SyncStatus, VersionStatus,
};
use crate::kubelet::status::PodProblem;

/// A node on which nothing is wrong.
fn node() -> NodeStatus {
    let runtime =
        RuntimeStatus { name: "containerd".to_owned(), ready: true, network_ready: true, ..RuntimeStatus::default() };
    NodeStatus { healthy: true, runtime, ..NodeStatus::default() }
}

fn verdict(name: &str, health: PodHealth) -> PodVerdict {
    PodVerdict { pod: name.to_owned(), uid: name.to_owned(), health }
}

#[track_caller]
fn check(mut status: NodeStatus, pods: Vec<PodVerdict>, health: NodeHealth, problems: &[&str]) -> NodeStatus {
    status.judge(pods);
    let found = status.problems.iter().map(|problem| format!("{}: {}", problem.subject, problem.cause));
    assert_eq!(
        (status.health, found.collect::<Vec<_>>()),
        (health, problems.iter().map(|&text| text.to_owned()).collect())
    );
    status
}

#[test]
fn node_is_ok_while_its_pods_run_start_or_are_done() {
    let healths = [PodHealth::Running, PodHealth::Waiting, PodHealth::Done];
    let status = check(node(), healths.map(|health| verdict("p", health)).into(), NodeHealth::Ok, &[]);
    assert_eq!(status.pod_counts, PodCounts { running: 1, waiting: 1, done: 1, failing: 0, stopped: 0 });
}

#[test]
fn failing_pod_and_refused_manifest_degrade_the_node() {
    let problem = PodProblem { reason: "Error".to_owned(), cause: "it exits".to_owned(), ..PodProblem::default() };
    let mut status = node();
    let errors = vec!["web.yaml: spec: required".to_owned()];
    status.sources = vec![SourceStatus { ready: true, errors, ..SourceStatus::default() }];
    let pods = vec![verdict("default/a", PodHealth::Failing(problem)), verdict("default/b", PodHealth::Running)];
    let problems = ["pod default/a: Error: it exits", "manifest: web.yaml: spec: required"];
    let status = check(status, pods, NodeHealth::Degraded, &problems);
    assert_eq!(status.pod_counts, PodCounts { running: 1, failing: 1, waiting: 0, done: 0, stopped: 0 });
}

#[test]
fn stalled_agent_and_silent_runtime_are_down_and_come_first() {
    let mut status = node();
    status.versions = vec![VersionStatus {
        pod: "default/a".to_owned(),
        state: "rolled back".to_owned(),
        message: "not ready within 10s".to_owned(),
        earlier: 0,
    }];
    status.healthy = false;
    status.runtime.ready = false;
    status.runtime.endpoint = "/run/c.sock".to_owned();
    let problems = [
        "agent: the sync loop does not move: pods run on, changes are not applied",
        "runtime: not ready (/run/c.sock)",
        "pod default/a: version rolled back: not ready within 10s",
    ];
    check(status, Vec::new(), NodeHealth::Down, &problems);
}

#[test]
fn closed_window_is_not_a_lost_connection() {
    let mut status = node();
    status.api_server = Some(ApiServerStatus { server: "k:6443".to_owned(), ..ApiServerStatus::default() });
    check(status.clone(), Vec::new(), NodeHealth::Degraded, &["API server: not connected: k:6443"]);
    status.sync = Some(SyncStatus { open: false, ..SyncStatus::default() });
    check(status, Vec::new(), NodeHealth::Ok, &[]);
}

#[test]
fn problem_of_the_board_degrades_the_node_and_has_its_advice() {
    let mut status = node();
    let condition = |kind: &str, status: &str, message: &str| ConditionStatus {
        kind: kind.to_owned(),
        status: status.to_owned(),
        message: message.to_owned(),
        ..ConditionStatus::default()
    };
    status.conditions = vec![
        condition("DiskPressure", "True", "kubelet has disk pressure"),
        condition("FlashWorn", "True", "mmcblk0 is worn; replace it"),
        condition("Overheated", "False", "no temperature is at its limit"),
    ];
    let problems = ["DiskPressure: kubelet has disk pressure", "FlashWorn: mmcblk0 is worn"];
    let status = check(status, Vec::new(), NodeHealth::Degraded, &problems);
    let shown = |at: usize| (status.problems[at].severity, &*status.problems[at].advice);
    assert_eq!([shown(0), shown(1)], [(Severity::Failing, ""), (Severity::Warning, "replace it")]);
}
