//! Successive pods of one name never overlap.

use std::fs;
use std::path::{Path, PathBuf};

use coracle::platform::cri::v1::{RemovePodSandboxRequest, RunPodSandboxRequest};
use coracle::protocol::grpc::Code;

use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::node::{Manifest, Node, Seen, page};

fn web(image_is: &str) -> Manifest {
    Manifest::new("web").container("main", image_is).spec("terminationGracePeriodSeconds: 2")
}

/// The pod UIDs of all sandboxes ever requested.
fn started(node: &Node) -> Vec<String> {
    let requests = node.fake.requests::<RunPodSandboxRequest>("RunPodSandbox");
    requests.into_iter().map(|request| request.config.unwrap().metadata.unwrap().uid).collect()
}

/// Asserts that the runtime removed each pod of the name before the next was created.
#[track_caller]
fn check_one_after_the_other(node: &Node) {
    let mut here = 0;
    for call in node.fake.calls() {
        match &*call.method {
            "RunPodSandbox" => here += 1,
            "RemovePodSandbox" => here -= 1,
            _ => {}
        }
        assert!(here <= 1, "two pods of one name existed: {:?}", node.fake.calls());
    }
}

#[test]
fn changed_manifest_starts_after_the_old_pod_is_gone() {
    let mut node = Node::new();
    node.fake.ignore_sigterm("main");
    node.apply(&web("old"));
    node.start_agent();
    node.wait_until_ready("web");
    node.apply(&web("new"));
    node.fake.wait_for_calls("StopContainer", 1);
    // The manifest changes again while the old pod terminates. Only the last version counts.
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

/// A file that cannot be removed while this lives, as on a damaged card or with `chattr +i`: something is mounted on it.
struct Unremovable(PathBuf);

impl Unremovable {
    fn in_folder(folder: &Path) -> Self {
        let file = folder.join("kept");
        fs::write(&file, "").unwrap();
        mount(Some(&file), &file, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
        Self(file)
    }
}

impl Drop for Unremovable {
    fn drop(&mut self) {
        umount2(&self.0, MntFlags::MNT_DETACH).unwrap();
    }
}

#[test]
fn next_version_starts_beside_log_files_that_cannot_be_removed() {
    let mut node = Node::new();
    node.apply(&web("old"));
    node.start_agent();
    node.wait_until_ready("web");
    let old = node.seen("web");
    let uid = started(&node).remove(0);
    let logs = node.folder().join(format!("logs/default_web-node-a_{uid}"));
    let kept = Unremovable::in_folder(&logs);
    node.apply(&web("new"));
    node.fake.wait_for("the new version to run", |world| {
        let web = Seen::of(world, "web");
        web.is_exactly(&[("main", 0)]) && web != old
    });
    node.wait_until_ready("web");
    check_one_after_the_other(&node);
    let problems = node.status()["problems"].to_string();
    assert!(problems.contains(logs.to_str().unwrap()), "{problems}");
    assert!(kept.0.exists());
    drop(kept);
    // The agent tries again after a minute, and at its start.
    node.kill_agent();
    node.start_agent();
    node.wait_until("the agent to be ready", |pods| pods.has("web", |pod| pod.is_ready()));
    node.remove_all_manifests();
    node.wait_until_nothing_is_left();
}

#[test]
fn manifest_restored_during_termination_starts_again_afterwards() {
    let mut node = Node::new();
    node.apply(&web("same"));
    node.start_agent();
    node.wait_until_ready("web");
    node.fake.on("StopContainer").times(1).hold();
    node.remove_manifest("web");
    node.fake.wait_for_calls("StopContainer", 1);
    node.apply(&web("same"));
    node.apply(&Manifest::new("later").container("main", ""));
    // The agent has read the later manifest, so it has read this one too.
    node.wait_until_ready("later");
    node.fake.release("StopContainer");
    node.fake.wait_for_calls("RunPodSandbox", 3);
    // As with upstream, the new pod of the same uid counts the containers of the former.
    node.fake.wait_for("the container to run again", |world| Seen::of(world, "web").running() == [("main", 1)]);
    node.wait_until_ready("web");
    let metrics = page(node.folder(), "/metrics");
    assert!(metrics.contains("\nkubelet_restarted_pods_total{static=\"true\"} 1\n"), "{metrics}");
    node.remove_all_manifests();
    node.wait_until_nothing_is_left();
}

#[test]
fn restarted_agent_finishes_terminations_and_keeps_wanted_pods() {
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
            // The stop that the previous agent requested completes now. The container has exited and starts again.
            node.fake.release("StopContainer");
            node.fake.wait_for("the container to run again", |world| Seen::of(world, "web").is_exactly(&[("main", 1)]));
            node.remove_manifest("web");
        }
        node.wait_until_nothing_is_left();
    }
}

#[test]
fn with_two_manifests_of_one_pod_the_running_one_wins() {
    let mut node = Node::new();
    node.write_manifest("b", &web("first").text());
    node.start_agent();
    node.wait_until_ready("web");
    let first = node.seen("web");
    node.write_manifest("a", &web("second").text());
    node.apply(&Manifest::new("later").container("main", ""));
    node.wait_until_ready("later");
    assert_eq!(node.seen("web"), first);
    // The restarted agent knows only which pod runs, not which manifest came first.
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
fn changed_manifest_replaces_a_former_pod_with_unknown_status() {
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
fn broken_manifest_blocks_no_replacement_and_keeps_orphans() {
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
    // The orphaned pod may belong to the broken manifest.
    assert_eq!(node.seen("orphan"), orphan);
    node.remove_all_manifests();
    node.wait_until_nothing_is_left();
}

#[test]
fn of_two_leftover_pods_the_one_with_a_manifest_stays_untouched() {
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
        node.wait_until("the other pod is ready", |pods| pods.has("web", |pod| pod.is_ready() && pod.uid() == second));
        node.remove_all_manifests();
        node.wait_until_nothing_is_left();
    }
}

#[test]
fn pod_of_another_kubelet_is_adopted_despite_failing_status() {
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
    node.wait_until("the adopted pod is ready", |pods| pods.has("web", |pod| pod.is_ready() && pod.uid() == uid));
    assert_eq!(node.seen("web"), before);
    node.remove_all_manifests();
    node.wait_until_nothing_is_left();
}
