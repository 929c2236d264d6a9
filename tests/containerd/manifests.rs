//! Manifests that are edited, broken, repaired and removed.

use std::fs;

use super::node::{Manifest, Node, PATIENCE, STAY, wait_for};

#[test]
fn edited_manifest_replaces_its_pod() {
    let node = Node::start();
    node.apply(&Manifest::new("web").container("main", &format!("echo old; {STAY}")));
    let old = node.wait_until("the pod is ready", |pods| pods.has("web", |pod| pod.is_ready()));
    let old = old.get("web").unwrap();
    node.apply(&Manifest::new("web").container("main", &format!("echo new; {STAY}")));
    let new =
        node.wait_until("the new pod is ready", |pods| pods.has("web", |pod| pod.uid() != old.uid() && pod.is_ready()));
    let new = new.get("web").unwrap();
    assert_eq!(new.container("main").restarts(), 0);
    wait_for("nothing of the old pod to be left", PATIENCE, || {
        let tasks = node.tasks();
        (tasks.len() == 2 && tasks[1].id == new.container("main").id()).then_some(())
    });
    assert!(!node.pod_folder(old.uid()).exists(), "the old pod's directory was left");
}

#[test]
fn broken_manifest_keeps_its_pod_and_shows_the_error() {
    let node = Node::start();
    let good = Manifest::new("web").container("main", STAY);
    node.apply(&good);
    let before = node.wait_until("the pod is ready", |pods| pods.has("web", |pod| pod.is_ready()));
    let id = before.get("web").unwrap().container("main").id();

    for broken in ["apiVersion: v1\nkind: Pod\nmetadata: {name: web\n", &good.text().replace("image:", "imaje:")] {
        node.write_manifest("web", broken);
        wait_for("the status to name the file", PATIENCE, || node.source_errors().contains("web.yaml").then_some(()));
        assert!(node.agent_log().contains("web.yaml"), "the log does not name the file");
        let pods = node.pods();
        assert!(pods.has("web", |pod| pod.is_ready() && pod.container("main").id() == id), "the pod was touched");
    }

    node.apply(&good);
    wait_for("the source to be clean again", PATIENCE, || node.source_errors().is_empty().then_some(()));
    assert_eq!(node.running_containers("web")[0].id, id, "the repaired manifest is the same, but its pod was replaced");
}

#[test]
fn removed_manifest_leaves_nothing_of_its_pod() {
    let node = Node::start();
    let manifest = Manifest::new("web")
        .init_container("first", "exit 0")
        .container_with("main", STAY, "volumeMounts: [{name: data, mountPath: /data}]")
        .spec("volumes: [{name: data, emptyDir: {}}, {name: memory, emptyDir: {medium: Memory}}]");
    node.apply(&manifest);
    let pods = node.wait_until("the pod is ready", |pods| pods.has("web", |pod| pod.is_ready()));
    let folder = node.pod_folder(pods.get("web").unwrap().uid());
    assert!(folder.exists());
    node.remove_manifest("web");
    node.wait_until_gone("web");
    wait_for("the pod's directory to go", PATIENCE, || (!folder.exists()).then_some(()));
    wait_for("the pod's logs to go", PATIENCE, || {
        fs::read_dir(node.folder().join("logs")).unwrap().next().is_none().then_some(())
    });
}

#[test]
fn directory_that_disappears_removes_nothing() {
    let node = Node::start();
    node.apply(&Manifest::new("web").container("main", STAY));
    let pods = node.wait_until("the pod is ready", |pods| pods.has("web", |pod| pod.is_ready()));
    let id = pods.get("web").unwrap().container("main").id();
    let (manifests, away) = (node.folder().join("manifests"), node.folder().join("away"));
    fs::rename(&manifests, &away).unwrap();
    wait_for("the agent to say so", PATIENCE, || (!node.source_errors().is_empty()).then_some(()));
    assert!(node.pods().has("web", |pod| pod.is_ready() && pod.container("main").id() == id));
    // The directory is watched again once it is back.
    fs::rename(&away, &manifests).unwrap();
    node.apply(&Manifest::new("late").container("main", STAY));
    let pods = node.wait_until("the later pod is ready", |pods| pods.has("late", |pod| pod.is_ready()));
    assert_eq!(pods.get("web").unwrap().container("main").id(), id);
}

#[test]
fn one_file_may_hold_several_pods_and_lists() {
    let node = Node::start();
    let item = Manifest::new("three").container("main", STAY).text();
    let item = item.lines().map(|line| format!("  {line}\n")).collect::<String>().replacen("  ", "- ", 1);
    let one = Manifest::new("one").container("main", STAY).text();
    let two = Manifest::new("two").container("main", STAY).text();
    node.write_manifest("all", &format!("{one}---\n{two}---\napiVersion: v1\nkind: List\nitems:\n{item}"));
    node.wait_until("all three are ready", |pods| {
        ["one", "two", "three"].iter().all(|name| pods.has(name, |pod| pod.is_ready()))
    });
    node.write_manifest("all", &two);
    node.wait_until_gone("one");
    node.wait_until_gone("three");
    assert!(node.pods().has("two", |pod| pod.is_ready() && pod.container("main").restarts() == 0));
}
