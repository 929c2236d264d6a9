//! Pods of one name, one after the other: never beside each other.

use coracle::platform::cri::v1::{RemovePodSandboxRequest, RunPodSandboxRequest};
use coracle::protocol::grpc::Code;

use crate::node::{Manifest, Node, Seen};

fn web(image_is: &str) -> Manifest {
    Manifest::new("web").container("main", image_is).spec("terminationGracePeriodSeconds: 2")
}

/// The sandboxes that were ever asked for, as the uids of their pods.
fn started(node: &Node) -> Vec<String> {
    let requests = node.fake.requests::<RunPodSandboxRequest>("RunPodSandbox");
    requests.into_iter().map(|request| request.config.unwrap().metadata.unwrap().uid).collect()
}

/// A pod of the name is removed from the runtime before the next one is made.
#[track_caller]
fn check_one_after_the_other(node: &Node) {
    let mut here = 0;
    for call in node.fake.calls() {
        match &*call.method {
            "RunPodSandbox" => here += 1,
            "RemovePodSandbox" => here -= 1,
            _ => {}
        }
        assert!(here <= 1, "two pods of one name were there: {:?}", node.fake.calls());
    }
}

#[test]
fn a_changed_manifest_starts_when_nothing_of_the_old_pod_is_left() {
    let mut node = Node::new();
    node.fake.ignore_sigterm("main");
    node.apply(&web("old"));
    node.start_agent();
    node.wait_until_ready("web");
    node.apply(&web("new"));
    node.fake.wait_for_calls("StopContainer", 1);
    // While the old one takes its time, the manifest changes again: only the last one counts.
    node.apply(&web("newer"));
    node.fake.wait_for_calls("RunPodSandbox", 2);
    node.wait_until_ready("web");
    let started = started(&node);
    assert_eq!(started.len(), 2);
    assert_ne!(started[0], started[1]);
    let removed = node.fake.requests::<RemovePodSandboxRequest>("RemovePodSandbox");
    assert!(!removed.is_empty());
    check_one_after_the_other(&node);
    let command = node.fake.containers()[0].config.command.clone();
    assert_eq!(command.last().map(String::as_str), Some("newer"));
    node.remove_all_manifests();
    node.wait_until_nothing_is_left();
}

#[test]
fn a_manifest_that_is_back_while_its_pod_ends_starts_it_again_afterwards() {
    let mut node = Node::new();
    node.apply(&web("same"));
    node.start_agent();
    node.wait_until_ready("web");
    node.fake.on("StopContainer").times(1).hold();
    node.remove_manifest("web");
    node.fake.wait_for_calls("StopContainer", 1);
    node.apply(&web("same"));
    node.apply(&Manifest::new("later").container("main", ""));
    // The later manifest has been taken in, so the other was.
    node.wait_until_ready("later");
    node.fake.release("StopContainer");
    node.fake.wait_for_calls("RunPodSandbox", 3);
    node.fake.wait_for("it to run again", |world| Seen::of(world, "web").is_exactly(&[("main", 0)]));
    node.wait_until_ready("web");
    assert_eq!(node.seen("web").running(), [("main", 0)]);
    node.remove_all_manifests();
    node.wait_until_nothing_is_left();
}

#[test]
fn a_termination_that_an_agent_did_not_live_to_see_goes_on_and_what_is_wanted_again_stays() {
    for wanted_again in [false, true] {
        let mut node = Node::new();
        node.apply(&web("same"));
        node.start_agent();
        node.wait_until_ready("web");
        node.fake.on("StopContainer").times(1).hold();
        node.remove_manifest("web");
        node.fake.wait_for_calls("StopContainer", 1);
        node.kill_agent();
        let before = node.seen("web");
        if wanted_again {
            node.apply(&web("same"));
        }
        node.start_agent();
        if wanted_again {
            node.wait_until_ready("web");
            assert_eq!(node.seen("web"), before);
            // What the last agent asked for comes to its end now: the container has ended, and starts again.
            node.fake.release("StopContainer");
            node.fake.wait_for("it to run again", |world| Seen::of(world, "web").is_exactly(&[("main", 1)]));
            node.remove_manifest("web");
        }
        node.wait_until_nothing_is_left();
    }
}

#[test]
fn of_two_manifests_with_one_pod_the_running_one_counts_until_it_goes() {
    let mut node = Node::new();
    node.write_manifest("b", &web("first").text());
    node.start_agent();
    node.wait_until_ready("web");
    let first = node.seen("web");
    node.write_manifest("a", &web("second").text());
    node.apply(&Manifest::new("later").container("main", ""));
    node.wait_until_ready("later");
    assert_eq!(node.seen("web"), first);
    // The next agent does not know which was first, only which runs.
    node.kill_agent();
    node.start_agent();
    node.wait_until_ready("web");
    assert_eq!(node.seen("web"), first);
    node.remove_manifest("later");
    node.fake.wait_for("the later one to go", |world| Seen::of(world, "later").sandboxes.is_empty());

    node.remove_manifest("b");
    node.fake.wait_for("the other one to run", |world| {
        let web = Seen::of(world, "web");
        web.is_exactly(&[("main", 0)]) && web != first
    });
    node.wait_until_ready("web");
    node.remove_manifest("a");
    node.wait_until_nothing_is_left();
}

#[test]
fn a_changed_manifest_replaces_a_former_pod_that_cannot_be_looked_at() {
    let mut node = Node::new();
    node.apply(&web("old"));
    node.start_agent();
    node.wait_until_ready("web");
    let old = node.seen("web");
    node.kill_agent();
    node.apply(&web("new"));
    node.fake.on("ContainerStatus").about(&old.containers[0].id).hang();
    node.start_agent();
    node.fake.wait_for("the new one to run", |world| {
        let web = Seen::of(world, "web");
        web.is_exactly(&[("main", 0)]) && web != old
    });
    node.wait_until_ready("web");
    check_one_after_the_other(&node);
    node.remove_manifest("web");
    node.wait_until_nothing_is_left();
}

#[test]
fn a_changed_manifest_replaces_its_former_pod_though_another_manifest_is_broken_and_orphans_stay() {
    let mut node = Node::new();
    node.apply(&web("old"));
    node.apply(&Manifest::new("orphan").container("main", ""));
    node.start_agent();
    node.wait_until_ready("web");
    node.wait_until_ready("orphan");
    let (old, orphan) = (node.seen("web"), node.seen("orphan"));
    node.kill_agent();
    node.apply(&web("new"));
    node.remove_manifest("orphan");
    node.write_manifest("broken", "kind: Pod\n  nothing: [");
    node.start_agent();
    node.fake.wait_for("the new one to run", |world| {
        let web = Seen::of(world, "web");
        web.is_exactly(&[("main", 0)]) && web != old
    });
    node.wait_until_ready("web");
    // It may be what the broken manifest is about.
    assert_eq!(node.seen("orphan"), orphan);
    node.remove_all_manifests();
    node.wait_until_nothing_is_left();
}

#[test]
fn of_two_pods_of_one_name_that_an_earlier_agent_left_the_first_manifests_stays_untouched() {
    let low = "10000000-0000-4000-8000-000000000000";
    let high = "f0000000-0000-4000-8000-000000000000";
    for (first, second) in [(low, high), (high, low)] {
        let mut node = Node::new();
        let text = |uid: &str| web("same").text().replace("name: web}", &format!("name: web, uid: {uid}}}"));
        node.write_manifest("a", &text(first));
        node.start_agent();
        node.wait_until_ready("web");
        let stays = node.seen("web");
        node.kill_agent();
        node.fake.double("web-node-a", second);
        assert_eq!(node.seen("web").running().len(), 2);
        node.write_manifest("b", &text(second));
        node.start_agent();
        node.fake.wait_for("the other one to go", |world| Seen::of(world, "web") == stays);
        node.wait_until_ready("web");
        assert_eq!(node.pods().get("web").unwrap().uid(), first);

        node.remove_manifest("a");
        node.fake.wait_for("the other manifest's pod to run", |world| {
            let web = Seen::of(world, "web");
            web.is_exactly(&[("main", 0)]) && web != stays
        });
        node.wait_until("it is told", |pods| pods.has("web", |pod| pod.is_ready() && pod.uid() == second));
        node.remove_all_manifests();
        node.wait_until_nothing_is_left();
    }
}

#[test]
fn a_pod_of_another_kubelet_is_taken_over_though_it_cannot_be_looked_at_yet() {
    let mut node = Node::new();
    node.apply(&web("same"));
    node.start_agent();
    node.wait_until_ready("web");
    let before = node.seen("web");
    node.kill_agent();
    let uid = "1f0c9b0e00004000800000000000000a";
    node.fake.set_uid("web-node-a", uid);
    node.fake.on("ContainerStatus").about(&before.containers[0].id).times(2).fail(Code::Unknown, "no luck today");
    node.start_agent();
    node.wait_until("it is ready", |pods| pods.has("web", |pod| pod.is_ready() && pod.uid() == uid));
    assert_eq!(node.seen("web"), before);
    node.remove_all_manifests();
    node.wait_until_nothing_is_left();
}
