//! `coracle apply`, `delete` and `restart` on a node.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::node::{Manifest, Node, PATIENCE, STAY, coracle, wait_for};

/// Runs a command and returns its exit code, stdout and stderr.
fn said(node: &Node, line: &[&str], input: &str) -> (Option<i32>, String, String) {
    let mut child = Command::new(coracle())
        .args(line)
        .arg("--local-socket")
        .arg(node.folder().join("coracle.sock"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let done = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (done.status.code(), text(done.stdout), text(done.stderr))
}

fn kept(node: &Node, name: &str) -> PathBuf {
    node.folder().join(format!("pods/coracle/pods/default_{name}.yaml"))
}

#[test]
fn applied_pod_survives_a_power_cut_until_deleted() {
    let mut node = Node::start();
    let web = Manifest::new("web").container_with("main", STAY, "envFrom: [{configMapRef: {name: settings}}]");
    let settings = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {COLOUR: blue}\n";
    let text = format!("{}---\n{settings}", web.text());
    let apply = |node: &Node, text: &str| said(node, &["apply", "-f", "-"], text);
    assert_eq!(apply(&node, &text), (Some(0), "pod default/web created\n".to_owned(), String::new()));
    assert!(kept(&node, "web").exists(), "it was answered before it was kept");
    let before = node.wait_until("the pod is ready", |pods| pods.has("web", |pod| pod.is_ready()));
    let before = before.get("web").unwrap();
    assert_eq!(before.json()["metadata"]["annotations"]["kubernetes.io/config.source"], "local");
    assert!(node.ask(&["pods", "-o", "wide"]).unwrap().contains("local:default/web"));
    assert!(node.ask(&["status"]).unwrap().contains("\n  local: 1 pods\n"));

    assert_eq!(apply(&node, &text).1, "pod default/web unchanged\n");
    let (code, out, error) = apply(&node, &text.replace("image: ", "imaje: "));
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(error.starts_with("coracle: standard input: document 1 (line 1): spec.containers[0].image: "), "{error}");

    // The agent finds the pod again after it was killed.
    node.kill_agent();
    node.start_agent();
    let after = node.wait_until("the pod is known again", |pods| pods.has("web", |pod| pod.is_ready()));
    assert_eq!(after.get("web").unwrap().container("main").id(), before.container("main").id());

    node.cut_power();
    node.start_containerd();
    node.start_agent();
    let after = node.wait_until("the pod runs again", |pods| pods.has("web", |pod| pod.is_ready()));
    assert_eq!(after.get("web").unwrap().uid(), before.uid());

    let changed = text.replace("COLOUR", "SHADE").replace("name: web", "name: web, labels: {a: b}");
    assert_eq!(apply(&node, &changed).1, "pod default/web changed\n");
    node.wait_until("the other pod is ready", |pods| {
        pods.has("web", |pod| pod.uid() != before.uid() && pod.is_ready())
    });

    assert_eq!(
        said(&node, &["delete", "web", "--wait"], ""),
        (Some(0), "pod default/web deleted\n".to_owned(), String::new())
    );
    assert!(node.pods().get("web").is_none(), "it did not wait");
    assert!(!kept(&node, "web").exists());
    node.wait_until_gone("web");
    let (code, _, error) = said(&node, &["delete", "web"], "");
    assert_eq!((code, error.as_str()), (Some(1), "coracle: no pod web; coracle pods lists all pods\n"));
}

#[test]
fn manifest_directory_and_applied_pods_do_not_replace_each_other() {
    let mut node = Node::start();
    let web = Manifest::new("web").container("main", STAY);
    node.apply(&web);
    node.wait_until("the pod is ready", |pods| pods.has("web", |pod| pod.is_ready()));
    let place = node.folder().join("manifests/web.yaml");
    let (code, _, error) = said(&node, &["delete", "web"], "");
    let line = format!("coracle: pod default/web comes from {}: change or remove it there\n", place.display());
    assert_eq!((code, error), (Some(1), line));
    let (code, _, error) = said(&node, &["apply", "-f", "-"], &web.text());
    assert_eq!(code, Some(1));
    assert!(error.contains(&format!("comes from {} already", place.display())), "{error}");

    let other = Manifest::new("other").container("main", STAY);
    assert_eq!(said(&node, &["apply", "-f", "-"], &other.text()).0, Some(0));
    let before = node.wait_until("it is ready", |pods| pods.has("other", |pod| pod.is_ready()));
    let id = before.get("other").unwrap().container("main").id();
    // A later file with the same pod is ignored and reported in one line.
    node.apply(&other);
    wait_for("the file to be told of", PATIENCE, || node.source_errors().contains("other.yaml").then_some(()));
    assert!(node.source_errors().contains("local:default/other has a pod of this name or uid"));
    assert!(node.pods().has("other", |pod| pod.container("main").id() == id));
    node.remove_manifest("other");
    wait_for("the file to be forgotten", PATIENCE, || node.source_errors().is_empty().then_some(()));

    node.kill_agent();
    let whole = fs::read(kept(&node, "other")).unwrap();
    fs::write(kept(&node, "other"), &whole[..whole.len() / 2]).unwrap();
    node.start_agent();
    node.wait_until("the other pods are known", |pods| pods.has("web", |pod| pod.is_ready()));
    assert!(node.source_errors().contains("local:default/other: its file is corrupt and was set aside"));
    assert_eq!(node.running_containers("other")[0].id, id, "what a damaged file had started was ended");
    assert_eq!(said(&node, &["apply", "-f", "-"], &other.text()).0, Some(0));
    let after = node.wait_until("it is known again", |pods| pods.has("other", |pod| pod.is_ready()));
    assert_eq!(after.get("other").unwrap().container("main").id(), id, "the same manifest is another pod");
    assert_eq!(node.source_errors(), "");
}

#[test]
fn restart_restarts_containers_in_place_and_counts_them() {
    let node = Node::start();
    let stays = "trap 'echo told; exit 0' TERM; while true; do sleep 1 & wait; done";
    let web = Manifest::new("web").container("main", stays).container("other", STAY);
    node.apply(&web);
    node.apply(&Manifest::new("once").container("main", STAY).spec("restartPolicy: Never"));
    let before = node.wait_until("the pods are ready", |pods| {
        pods.has("web", |pod| pod.is_ready()) && pods.has("once", |pod| pod.is_ready())
    });
    let before = before.get("web").unwrap();
    let (code, out, error) = said(&node, &["restart", "web", "-c", "main", "--wait"], "");
    assert_eq!((code, out.as_str(), error.as_str()), (Some(0), "pod default/web-node-a restarted: main\n", ""));
    node.wait_for_output("web", "main", "told");
    let pods = node.pods();
    let after = pods.get("web").unwrap();
    assert_eq!((after.container("main").restarts(), after.container("other").restarts()), (1, 0));
    assert_eq!(after.container("other").id(), before.container("other").id(), "its neighbour was touched");
    assert_eq!((after.ip(), after.uid()), (before.ip(), before.uid()), "the pod was replaced");
    assert_eq!(after.container("main").last_exit_code(), Some(0));

    // Requested restarts cause no back-off.
    for restarts in 2..4 {
        assert_eq!(said(&node, &["restart", "web", "-c", "main", "--wait"], "").0, Some(0));
        assert_eq!(node.pods().get("web").unwrap().container("main").restarts(), restarts);
    }

    let (code, _, error) = said(&node, &["restart", "once"], "");
    assert_eq!(code, Some(1));
    assert!(
        error.starts_with("coracle: container main of pod once-node-a runs once (restartPolicy Never): "),
        "{error}"
    );
    let (code, _, error) = said(&node, &["restart", "web", "-c", "x"], "");
    assert_eq!((code, error.as_str()), (Some(1), "coracle: pod web-node-a has no container x, only main, other\n"));
}

#[test]
fn restart_ends_a_containers_back_off() {
    let node = Node::start();
    let manifest = Manifest::new("web")
        .container_with(
            "main",
            "if [ -e /data/go ]; then sleep 3600; fi; exit 1",
            "volumeMounts: [{name: data, mountPath: /data}]",
        )
        .spec("volumes: [{name: data, emptyDir: {}}]");
    node.apply(&manifest);
    // The third back-off lasts 40 seconds.
    let pods = node.wait_until("it backs off", |pods| {
        pods.has("web", |pod| {
            pod.container("main").restarts() == 3 && pod.container("main").is_waiting_for("CrashLoopBackOff")
        })
    });
    let folder = node.pod_folder(pods.get("web").unwrap().uid());
    fs::write(folder.join("volumes/kubernetes.io~empty-dir/data/go"), "").unwrap();
    let asked = std::time::Instant::now();
    assert_eq!(said(&node, &["restart", "web", "--wait"], "").0, Some(0));
    assert!(asked.elapsed().as_secs() < 20, "it waited for {:?}", asked.elapsed());
    assert_eq!(node.pods().get("web").unwrap().container("main").restarts(), 4);
}
