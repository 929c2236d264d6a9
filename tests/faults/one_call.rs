//! One call of a pod's life goes wrong, once: the pod comes to its end all the same, and nothing is made twice.

use coracle::protocol::grpc::Code;

use crate::fake_cri::FakeCri;
use crate::life::{Case, cases, check_repeated, in_each};
use crate::node::Node;

#[derive(Clone, Copy, Debug)]
enum Fault {
    Fails,
    FailsAsUnavailable,
    Hangs,
    HangsAfterItsEffect,
    AnswersGarbage,
    SpeaksNoHttp,
    IsCutBeforeItsEffect,
    IsCutAfterItsEffect,
    IsCutInItsAnswer,
}

impl Fault {
    fn arm(self, fake: &FakeCri, case: Case, about: &str) {
        let on = fake.on(case.call).about(about).skip(case.skip).times(1);
        drop(match self {
            Self::Fails => on.fail(Code::Unknown, "no luck today"),
            Self::FailsAsUnavailable => on.fail(Code::Unavailable, "transport is closing"),
            Self::Hangs => on.hang(),
            Self::HangsAfterItsEffect => on.hang_after_effect(),
            Self::AnswersGarbage => on.answer(b"\x0a\xff\xff\xff\xff"),
            Self::SpeaksNoHttp => on.speak(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
            Self::IsCutBeforeItsEffect => on.cut_before_effect(),
            Self::IsCutAfterItsEffect => on.cut_after_effect(),
            Self::IsCutInItsAnswer => on.cut_in_answer(),
        });
    }
}

#[test]
fn a_pod_comes_to_its_end_when_any_call_fails() {
    meet_everywhere(Fault::Fails);
}

#[test]
fn a_pod_comes_to_its_end_when_any_call_fails_as_unavailable() {
    meet_everywhere(Fault::FailsAsUnavailable);
}

#[test]
fn a_pod_comes_to_its_end_when_any_call_hangs() {
    meet_everywhere(Fault::Hangs);
}

#[test]
fn a_pod_comes_to_its_end_when_any_call_hangs_after_its_effect() {
    meet_everywhere(Fault::HangsAfterItsEffect);
}

#[test]
fn a_pod_comes_to_its_end_when_any_call_answers_garbage() {
    meet_everywhere(Fault::AnswersGarbage);
}

#[test]
fn a_pod_comes_to_its_end_when_any_call_is_answered_without_http() {
    meet_everywhere(Fault::SpeaksNoHttp);
}

#[test]
fn a_pod_comes_to_its_end_when_any_call_is_cut_before_its_effect() {
    meet_everywhere(Fault::IsCutBeforeItsEffect);
}

#[test]
fn a_pod_comes_to_its_end_when_any_call_is_cut_after_its_effect() {
    meet_everywhere(Fault::IsCutAfterItsEffect);
}

#[test]
fn a_pod_comes_to_its_end_when_any_call_is_cut_in_its_answer() {
    meet_everywhere(Fault::IsCutInItsAnswer);
}

#[track_caller]
fn meet_everywhere(fault: Fault) {
    // A pull takes as long as it takes: no time is too long for a slow line.
    let hangs = matches!(fault, Fault::Hangs | Fault::HangsAfterItsEffect);
    in_each(cases().filter(|case| !(hangs && case.call == "PullImage")), |case| meet(case, fault));
}

/// A start takes 16 calls, a removal 17.
const MOST_CALLS: usize = 60;

fn meet(case: Case, fault: Fault) {
    let mut node = Node::new();
    case.moment.prepare(&mut node);
    let other = node.seen("other");
    let (of_its_kind, all) = node.fake.look(|world| (world.calls_of(case.call), world.calls.len()));
    fault.arm(&node.fake, case, &case.about(&node));
    case.moment.happens(&mut node);
    case.wait_for_call(&node, of_its_kind);
    case.moment.is_over(&node);
    assert_eq!(node.seen("other").ids(), other.ids(), "another pod was touched");
    let calls = node.fake.calls();
    check_repeated(&calls);
    let made = calls.len() - all;
    assert!(made <= MOST_CALLS, "{made} calls: {calls:?}");
    node.remove_all_manifests();
    node.wait_until_nothing_is_left();
}
