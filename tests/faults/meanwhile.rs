//! A slow call about one pod does not delay the others.

use crate::life::{Case, Moment, cases, check_repeated, in_each};
use crate::node::{Manifest, Node};

#[test]
fn a_hung_call_about_one_pod_does_not_delay_others() {
    // The agent must know the runtime's state before it acts.
    let known = |case: &Case| {
        let lists = ["Version", "Status", "RuntimeConfig", "ListPodSandbox", "ListContainers"];
        !(case.moment == Moment::Adoption && lists.contains(&case.call))
    };
    in_each(cases().filter(known), |case| meet(case, false));
}

#[test]
fn a_hung_call_does_not_delay_others_with_runtime_events() {
    in_each(cases().filter(|case| case.moment == Moment::Restart), |case| meet(case, true));
}

fn meet(case: Case, events: bool) {
    let mut node = Node::new();
    // No call times out during this test.
    node.configure("runtimeRequestTimeout: 10m\ncrashLoopBackOff: {maxContainerRestartPeriod: 1s}\n");
    if events {
        node.fake.enable_events();
    }
    case.moment.prepare(&mut node);
    let before = node.fake.look(|world| world.calls_of(case.call));
    node.fake.on(case.call).about(&case.about(&node)).skip(case.skip).times(1).hold();
    case.moment.happens(&mut node);
    case.wait_for_call(&node, before);

    node.fake.exit("other-node-a/main", 1);
    node.apply(&Manifest::new("third").container("main", ""));
    node.wait_until("another pod is started again", |pods| {
        pods.has("other", |pod| pod.is_ready() && pod.container("main").restarts() == 1)
    });
    node.wait_until_ready("third");

    node.fake.release(case.call);
    case.moment.is_over(&node);
    check_repeated(&node.fake.calls());
    node.remove_all_manifests();
    node.wait_until_nothing_is_left();
}
