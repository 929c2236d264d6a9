//! One call about a pod takes its time: meanwhile the other pods are served.

use crate::life::{Case, Moment, cases, check_repeated, in_each};
use crate::node::{Manifest, Node};

#[test]
fn while_any_call_about_a_pod_is_not_answered_others_are_started_and_restarted() {
    // What the runtime has must be known before anything is done.
    let known = |case: &Case| {
        let lists = ["Version", "Status", "RuntimeConfig", "ListPodSandbox", "ListContainers"];
        !(case.moment == Moment::Adoption && lists.contains(&case.call))
    };
    in_each(cases().filter(known), |case| meet(case, false));
}

#[test]
fn with_the_events_of_the_runtime_it_is_the_same() {
    in_each(cases().filter(|case| case.moment == Moment::Restart), |case| meet(case, true));
}

fn meet(case: Case, events: bool) {
    let mut node = Node::new();
    // Nothing is given up for as long as this test waits.
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
