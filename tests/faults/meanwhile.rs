//! A slow call after a cut connection does not delay pods. The simulation has the slow calls of the other moments.

use super::life::{Case, Moment, check_repeated, in_each};
use super::node::{Manifest, Node};

const CALLS: [&str; 4] = ["Version", "Status", "ListPodSandbox", "ListContainers"];

#[test]
fn hung_call_after_a_cut_connection_does_not_delay_pods() {
    let cases = CALLS.map(|call| Case { moment: Moment::Reconnect, call, skip: 0 });
    in_each(cases.into_iter(), meet);
}

fn meet(case: Case) {
    let mut node = Node::new();
    // No call times out during this test.
    node.configure("runtimeRequestTimeout: 10m\ncrashLoopBackOff: {maxContainerRestartPeriod: 1s}\n");
    case.moment.prepare(&mut node);
    let before = node.fake.look(|world| world.calls_of(case.call));
    node.fake.on(case.call).times(1).hold();
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
