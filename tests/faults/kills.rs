//! The agent is killed between any two calls of a pod's life: the next one goes on from what the runtime has.

use crate::life::{Case, cases, check_repeated, in_each};
use crate::node::Node;

/// What becomes of the call that was under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// It is never acted on.
    None,
    /// It is acted on before there is another agent.
    Unseen,
    /// It is acted on when the next agent has looked at everything.
    Late,
}

#[test]
fn an_agent_that_is_killed_before_any_call_is_followed_by_one_that_goes_on() {
    in_each(cases(), |case| meet(case, Effect::None));
}

#[test]
fn an_agent_that_is_killed_after_any_call_is_followed_by_one_that_goes_on() {
    in_each(cases(), |case| meet(case, Effect::Unseen));
}

#[test]
fn what_a_killed_agent_had_asked_for_may_come_when_the_next_one_is_at_work() {
    in_each(cases(), |case| meet(case, Effect::Late));
}

fn meet(case: Case, effect: Effect) {
    let mut node = Node::new();
    case.moment.prepare(&mut node);
    let other = node.seen("other");
    let before = node.fake.look(|world| world.calls_of(case.call));
    let about = case.about(&node);
    let on = node.fake.on(case.call).about(&about).skip(case.skip).times(1);
    drop(if effect == Effect::None { on.hang() } else { on.hold() });
    case.moment.happens(&mut node);
    case.wait_for_call(&node, before);
    node.kill_agent();
    if effect == Effect::Unseen {
        node.fake.release(case.call);
    }
    let looks = node.fake.look(|world| world.calls_of("ListContainers"));
    node.start_agent();
    if effect == Effect::Late {
        node.fake.wait_for_calls("ListContainers", looks + 1);
        node.fake.release(case.call);
    }
    case.moment.is_over(&node);
    assert_eq!(node.seen("other").ids(), other.ids(), "another pod was touched");
    check_repeated(&node.fake.calls());
    node.remove_all_manifests();
    node.wait_until_nothing_is_left();
}
