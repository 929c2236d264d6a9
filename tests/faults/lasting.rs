//! Calls about one pod that fail permanently: the agent keeps retrying, spares the runtime and serves the other pods.

use std::time::Instant;

use coracle::protocol::grpc::Code;

use super::life::{Case, Moment, UID, check_repeated, in_each};
use super::node::{Node, Seen};

/// Calls whose requests identify the pod, and `PodSandboxStatus`, which no other pod needs meanwhile.
const CASES: &[(Moment, &[&str])] = &[
    (
        Moment::Start,
        &["RunPodSandbox", "PodSandboxStatus", "ImageStatus", "CreateContainer", "ListPodSandbox", "ListContainers"],
    ),
    (Moment::Restart, &["ContainerStatus", "CreateContainer"]),
    (Moment::SecondRestart, &["RemoveContainer"]),
    (Moment::Adoption, &["PodSandboxStatus", "ContainerStatus"]),
    (
        Moment::Removal,
        &[
            "ListPodSandbox",
            "StopContainer",
            "StopPodSandbox",
            "ContainerStatus",
            "PodSandboxStatus",
            "RemovePodSandbox",
        ],
    ),
];

fn cases() -> impl Iterator<Item = Case> {
    CASES.iter().flat_map(|(moment, calls)| calls.iter().map(|&call| Case { moment: *moment, call, skip: 0 }))
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    Fails,
    AnswersGarbage,
    IsCut,
    Hangs,
}

impl Fault {
    /// Makes every call about the pod fail from now on.
    fn arm(self, case: Case, node: &Node) {
        let about = about(case, node);
        let on = node.fake.on(case.call).about(&about);
        drop(match self {
            Self::Fails => on.fail(Code::Unknown, "no luck today"),
            Self::AnswersGarbage => on.answer(b"\x0a\xff\xff\xff\xff"),
            Self::IsCut => on.cut_before_effect(),
            Self::Hangs => on.hang(),
        });
    }
}

#[test]
fn call_that_always_fails_is_retried_slowly() {
    in_each(cases(), |case| meet(case, Fault::Fails));
}

#[test]
fn call_with_malformed_answers_is_retried_slowly() {
    in_each(cases(), |case| meet(case, Fault::AnswersGarbage));
}

#[test]
fn call_that_always_breaks_the_connection_is_retried_slowly() {
    in_each(cases(), |case| meet(case, Fault::IsCut));
}

/// The status calls of the runtime.
const STATUSES: [&str; 2] = ["PodSandboxStatus", "ContainerStatus"];

#[test]
fn removed_pod_is_stopped_although_its_status_always_fails() {
    let cases = STATUSES.map(|call| Case { moment: Moment::Removal, call, skip: 0 });
    for fault in [Fault::Fails, Fault::AnswersGarbage, Fault::Hangs] {
        in_each(cases.into_iter(), |case| {
            let mut node = Node::new();
            case.moment.prepare(&mut node);
            fault.arm(case, &node);
            case.moment.happens(&mut node);
            case.moment.is_over(&node);
            check_repeated(&node.fake.calls());
            node.remove_all_manifests();
            node.wait_until_nothing_is_left();
        });
    }
}

#[test]
fn restarted_agent_stops_an_orphaned_pod_although_its_status_always_fails() {
    let cases = STATUSES.map(|call| Case { moment: Moment::Adoption, call, skip: 0 });
    for fault in [Fault::Fails, Fault::AnswersGarbage, Fault::Hangs] {
        in_each(cases.into_iter(), |case| {
            let mut node = Node::new();
            case.moment.prepare(&mut node);
            fault.arm(case, &node);
            let other = node.seen("other");
            node.remove_manifest("web");
            case.moment.happens(&mut node);
            node.fake.wait_for("the pod to go", |world| Seen::of(world, "web").sandboxes.is_empty());
            assert_eq!(node.seen("other").ids(), other.ids(), "another pod was touched");
            node.remove_all_manifests();
            node.wait_until_nothing_is_left();
        });
    }
}

fn about(case: Case, node: &Node) -> String {
    let web = node.seen("web");
    match case.call {
        "PodSandboxStatus" if case.moment == Moment::Start => String::new(),
        "PodSandboxStatus" | "StopPodSandbox" | "RemovePodSandbox" => web.sandboxes[0].clone(),
        "ImageStatus" => "registry.example".to_owned(),
        "ContainerStatus" | "StopContainer" | "RemoveContainer" => {
            web.containers.iter().find(|container| container.name == "main").unwrap().id.clone()
        }
        _ => UID.to_owned(),
    }
}

/// Calls allowed at once: other pods restart three times, at 14 calls each.
const AT_ONCE: f64 = 60.0;
const A_SECOND: f64 = 40.0;

fn meet(case: Case, fault: Fault) {
    let mut node = Node::new();
    case.moment.prepare(&mut node);
    let (of_its_kind, all) = node.fake.look(|world| (world.calls_of(case.call), world.calls.len()));
    fault.arm(case, &node);
    case.moment.happens(&mut node);
    case.wait_for_call(&node, of_its_kind);
    let begun = Instant::now();
    // Each restart but the first backs off for a second.
    for restarts in 1..=3 {
        node.fake.exit("other-node-a/main", 1);
        node.fake
            .wait_for("another pod to run again", |world| Seen::of(world, "other").running() == [("main", restarts)]);
    }
    let (calls, took) = (node.fake.calls().split_off(all), begun.elapsed());
    let most = AT_ONCE + A_SECOND * took.as_secs_f64();
    assert!((calls.len() as f64) < most, "{} calls in {took:?}: {calls:?}", calls.len());

    node.fake.clear_faults();
    case.moment.is_over(&node);
    check_repeated(&node.fake.calls());
    node.remove_all_manifests();
    node.wait_until_nothing_is_left();
}
