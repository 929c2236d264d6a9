//! Power cuts, after which files on the disk may be damaged.

use std::fs;
use std::path::{Path, PathBuf};

use super::node::{Manifest, Node, STAY};

/// A pod on the bridge network with a volume on disk and one in memory.
fn manifest(more: &str) -> Manifest {
    let mounts = "volumeMounts: [{name: disk, mountPath: /disk}, {name: part, mountPath: /part, subPath: a/b}, \
                  {name: memory, mountPath: /memory}]";
    Manifest::new("web")
        .container_with("main", &format!("touch /disk/x /part/x /memory/x || exit 1; {STAY}"), mounts)
        .spec("volumes: [{name: disk, emptyDir: {}}, {name: part, emptyDir: {}}, {name: memory, emptyDir: {medium: Memory}}]")
        .spec(more)
}

fn running() -> (Node, String) {
    let node = Node::start();
    node.apply(&manifest(""));
    let pods = node.wait_until("the pod is ready", |pods| pods.has("web", |pod| pod.is_ready()));
    let uid = pods.get("web").unwrap().uid().to_owned();
    (node, uid)
}

/// Checks that the pod comes back with this restart count, can be replaced, and is removed completely.
fn comes_back_and_goes(mut node: Node, restarts: u64) {
    node.start_containerd();
    node.start_agent();
    let pods = node.wait_until("the pod is ready again", |pods| pods.has("web", |pod| pod.is_ready()));
    let pod = pods.get("web").unwrap();
    assert_eq!(pod.container("main").restarts(), restarts);
    node.apply(&manifest("priority: 7"));
    let before = pod.uid().to_owned();
    node.wait_until("the pod is replaced", |pods| pods.has("web", |pod| pod.is_ready() && pod.uid() != before));
    node.remove_manifest("web");
    node.wait_until_gone("web");
    assert_eq!(leases(&node), Vec::<PathBuf>::new(), "addresses are left behind");
}

/// The allocated addresses.
fn leases(node: &Node) -> Vec<PathBuf> {
    let folder = node.enclosure().path(&node.folder().join("containerd/ipam/bridge"));
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().contains("10.88."))).collect()
}

/// The files that a power cut may have truncated.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    entries.into_iter().flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn pod_comes_back_after_a_power_cut_with_its_restart_count() {
    let (mut node, _) = running();
    node.cut_power();
    comes_back_and_goes(node, 1);
}

#[test]
fn pod_comes_back_with_empty_cni_results() {
    let (mut node, _) = running();
    node.cut_power();
    let results = files(&node.enclosure().path(Path::new("/var/lib/cni/results")));
    assert!(!results.is_empty(), "the test is about files that are not there");
    results.iter().for_each(|file| fs::write(file, "").unwrap());
    comes_back_and_goes(node, 1);
}

#[test]
fn pod_comes_back_with_an_empty_runtime_state() {
    let (mut node, _) = running();
    node.cut_power();
    let kept = node.enclosure().path(&node.folder().join("containerd/root/io.containerd.grpc.v1.cri"));
    let kept = files(&kept);
    assert!(!kept.is_empty(), "the test is about files that are not there");
    kept.iter().for_each(|file| fs::write(file, "").unwrap());
    comes_back_and_goes(node, 1);
}

#[test]
fn pod_comes_back_with_files_in_place_of_its_directories() {
    let upper = ["volumes", "plugins"];
    let lower = ["volumes/kubernetes.io~empty-dir/disk", "plugins/kubernetes.io~empty-dir/memory", "volume-subpaths"];
    for damaged in [&upper[..], &lower, &["volumes/kubernetes.io~empty-dir", "containers/main"]] {
        let (mut node, uid) = running();
        node.cut_power();
        for path in damaged.iter().map(|path| node.pod_folder(&uid).join(path)) {
            fs::remove_dir_all(&path).unwrap();
            fs::write(&path, "").unwrap();
        }
        comes_back_and_goes(node, 1);
    }
}

#[test]
fn pod_comes_back_with_damaged_pod_and_log_directories() {
    let (mut node, uid) = running();
    node.cut_power();
    let pod = node.pod_folder(&uid);
    fs::remove_dir_all(&pod).unwrap();
    fs::write(&pod, "").unwrap();
    node.start_containerd();
    node.start_agent();
    node.wait_until("the pod is ready again", |pods| pods.has("web", |pod| pod.is_ready()));

    node.cut_power();
    fs::remove_file(pod.join("etc-hosts")).unwrap();
    fs::create_dir(pod.join("etc-hosts")).unwrap();
    let logs = node.folder().join(format!("logs/default_web-node-a_{uid}"));
    fs::remove_dir_all(&logs).unwrap();
    fs::write(&logs, "").unwrap();
    comes_back_and_goes(node, 2);
}
