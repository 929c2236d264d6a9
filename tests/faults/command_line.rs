//! Client commands against an agent with a fake runtime.

use std::fs;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use super::node::{CORACLE, Manifest, Node};
use crate::wait::wait_for;

/// Exit code, stdout and stderr of a command line.
fn run(node: &Node, line: &[&str]) -> (i32, String, String) {
    run_on(node, line, "")
}

/// The same with this standard input.
fn run_on(node: &Node, line: &[&str], input: &str) -> (i32, String, String) {
    let mut command = Command::new(CORACLE);
    // The socket of the environment: no flag is needed.
    command.args(line).env("CORACLE_SOCKET", node.folder().join("coracle.sock"));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

#[track_caller]
fn succeeds(node: &Node, line: &[&str]) -> String {
    let (code, stdout, stderr) = run(node, line);
    assert_eq!(code, 0, "{line:?}: {stdout}{stderr}");
    stdout
}

fn manifest(name: &str, command: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, labels: {{app: {name}}}}}\nspec:\n  \
         terminationGracePeriodSeconds: 0\n  containers:\n  - {{name: main, image: \"{}\", command: [\"{command}\"]}}\n",
        super::node::BUSYBOX
    )
}

#[test]
fn pods_are_listed_in_the_ways_of_other_tools() {
    let mut node = Node::new();
    node.apply(&Manifest::new("web").container("main", "one"));
    node.apply(&Manifest::new("db").container("main", "one"));
    node.start_agent();
    node.wait_until_ready("web");
    node.wait_until_ready("db");
    let names = succeeds(&node, &["get", "pods", "-A", "-o", "name"]);
    assert_eq!(names.lines().count(), 2, "{names}");
    assert!(names.lines().all(|line| line.starts_with("pod/")), "{names}");
    assert!(succeeds(&node, &["ps"]).contains("web"));
    let phase = succeeds(&node, &["pods", "web", "-o", "jsonpath={.status.phase}"]);
    assert_eq!(phase, "Running");
    let (code, _, stderr) = run(&node, &["pods", "nothing"]);
    assert_eq!((code, &*stderr), (1, "coracle: no pod nothing; coracle pods lists all pods\n"));
    assert!(succeeds(&node, &["inspect", "web"]).contains("Containers:"));
}

#[test]
fn applied_directory_is_compared_waited_for_and_deleted() {
    let mut node = Node::new();
    node.start_agent();
    node.wait_until("the runtime", |_| node.says_that_the_runtime_is_ready());
    let folder = node.folder().join("wanted");
    fs::create_dir(&folder).unwrap();
    for name in ["one", "two"] {
        fs::write(folder.join(format!("{name}.yaml")), manifest(name, "run")).unwrap();
    }
    fs::write(folder.join("one.yaml.bak"), "no manifest").unwrap();
    let wanted = folder.to_str().unwrap();

    let (code, stdout, stderr) = run(&node, &["apply", "--dry-run", "-f", wanted]);
    assert_eq!((code, &*stdout), (0, "pod default/one created (dry run)\npod default/two created (dry run)\n"));
    assert!(stderr.contains("one.yaml.bak: skipped"), "{stderr}");
    assert_eq!(succeeds(&node, &["pods"]), "No pods.\n");

    assert_eq!(succeeds(&node, &["apply", wanted]), "pod default/one created\npod default/two created\n");
    let ready = succeeds(&node, &["wait", "--for=condition=Ready", "one", "two", "--timeout", "60s"]);
    assert_eq!(ready.lines().count(), 2, "{ready}");

    let one = folder.join("one.yaml");
    assert_eq!(run(&node, &["diff", "-f", one.to_str().unwrap()]), (0, String::new(), String::new()));
    let (code, difference, _) = run_on(&node, &["diff", "-"], &manifest("one", "other"));
    assert_eq!(code, 1);
    assert!(difference.contains("\n-  - {name: main") && difference.contains("[\"other\"]"), "{difference}");

    let deleted = succeeds(&node, &["rm", "-f", wanted, "--wait"]);
    assert_eq!(deleted, "pod default/one deleted\npod default/two deleted\n");
    let gone = succeeds(&node, &["wait", "--for=delete", "one", "two"]);
    assert_eq!(gone.lines().count(), 2);
}

#[test]
fn wait_ends_with_the_state_of_the_pod() {
    let mut node = Node::new();
    node.start_agent();
    node.wait_until("the runtime", |_| node.says_that_the_runtime_is_ready());
    let (code, _, stderr) = run(&node, &["wait", "web", "--timeout", "1s"]);
    let line = "coracle: pod web is not ready after 1 s: no pod web; coracle pods lists all pods\n";
    assert_eq!((code, &*stderr), (1, line));
}

#[test]
fn pod_that_keeps_its_uid_is_shown_as_not_replaced() {
    let mut node = Node::new();
    let with = |command: &str| {
        manifest("own", command).replace("{name: own,", "{name: own, uid: 0f9b1c2d3e4f5a6b7c8d9e0f1a2b3c4d,")
    };
    node.write_manifest("own", &with("one"));
    node.start_agent();
    node.wait_until_ready("own");
    let is_marked = |node: &Node| run(node, &["status"]).1.contains("metadata.uid has not");
    node.write_manifest("own", &with("two"));
    wait_for("the problem", || is_marked(&node));
    let described = succeeds(&node, &["describe", "own"]);
    assert!(described.contains("leave it out") && described.contains("NotReplaced"), "{described}");
    node.kill_agent();
    node.start_agent();
    wait_for("the problem after a restart", || is_marked(&node));
    node.write_manifest("own", &with("one"));
    wait_for("the end of the problem", || !is_marked(&node));
    node.kill_agent();
    node.write_manifest("own", &with("three"));
    node.start_agent();
    wait_for("the problem of a change without an agent", || is_marked(&node));
}

#[test]
fn age_survives_a_restart_of_the_agent() {
    let mut node = Node::new();
    node.apply(&Manifest::new("web").container("main", "one"));
    node.start_agent();
    node.wait_until_ready("web");
    let start = |node: &Node| succeeds(node, &["pods", "web", "-o", "jsonpath={.status.startTime}"]);
    let before = start(&node);
    node.kill_agent();
    std::thread::sleep(std::time::Duration::from_millis(2100));
    node.start_agent();
    node.wait_until_ready("web");
    // The pod started in the second of its sandbox, or in the one before.
    let seconds = |time: &str| time.trim_end_matches('Z').rsplit(':').next().unwrap().parse::<i64>().unwrap();
    let later = (seconds(&start(&node)) - seconds(&before)).rem_euclid(60);
    assert!(later <= 1, "{before} {}", start(&node));
}

#[test]
fn unused_images_are_pruned() {
    let mut node = Node::new();
    node.fake.add_image("r.example/unused:1");
    node.apply(&Manifest::new("web").container("main", "one"));
    node.start_agent();
    node.wait_until_ready("web");
    let pruned = succeeds(&node, &["images", "prune"]);
    assert!(pruned.contains("removed r.example/unused:1") && pruned.contains("in unused images removed"), "{pruned}");
    let left = succeeds(&node, &["images"]);
    assert!(!left.contains("unused") && left.contains("busybox"), "{left}");
}

#[test]
fn logs_of_several_containers_have_their_names() {
    let mut node = Node::new();
    node.apply(&Manifest::new("web").container("main", "one").container("other", "one"));
    node.start_agent();
    node.wait_until_ready("web");
    for container in node.fake.containers() {
        fs::write(&container.log_path, "2026-01-02T15:04:05.000000000Z stdout F hello\n").unwrap();
    }
    let text = succeeds(&node, &["logs", "web", "--all-containers"]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[0].ends_with("/main] hello") && lines[1].ends_with("/other] hello"), "{text}");
    assert!(succeeds(&node, &["logs", "-t", "web", "other"]).starts_with("2026-01-02T15:04:05"));
    let none = succeeds(&node, &["logs", "web", "-c", "main", "--since-time", "2026-01-02T15:04:06Z"]);
    assert_eq!(none, "");
}

#[test]
fn ended_pod_runs_again() {
    let mut node = Node::new();
    node.apply(&Manifest::new("job").container("main", "one").spec("restartPolicy: Never"));
    node.start_agent();
    node.wait_until_ready("job");
    let (code, _, stderr) = run(&node, &["rerun", "job"]);
    assert_eq!((code, stderr.contains("has not ended (Running)")), (1, true), "{stderr}");
    node.fake.exit("main", 0);
    assert_eq!(succeeds(&node, &["wait", "job", "--until", "done"]), "pod job is done\n");
    assert!(succeeds(&node, &["rerun", "job"]).ends_with(" runs again\n"));
    node.wait_until_ready("job");
    node.fake.wait_for_calls("StartContainer", 2);
}

#[test]
fn stopped_pod_does_not_run_until_it_is_started_also_after_a_restart_of_the_agent() {
    let mut node = Node::new();
    node.apply(&Manifest::new("web").container("main", "one"));
    node.apply(&Manifest::new("db").container("main", "one"));
    node.start_agent();
    node.wait_until_ready("web");
    node.wait_until_ready("db");
    assert!(succeeds(&node, &["stop", "web"]).ends_with(" stopped\n"));
    let runs = |node: &Node| node.seen("web").running().len();
    wait_for("the container has ended", || runs(&node) == 0);
    let is_listed = |node: &Node, state: &str| {
        let pods = succeeds(node, &["pods"]);
        pods.lines().any(|line| line.contains("web") && line.contains(state))
    };
    wait_for("the pod is listed as stopped", || is_listed(&node, "Stopped"));
    assert!(succeeds(&node, &["status"]).contains("2 (1 running, 1 stopped)"));
    assert!(succeeds(&node, &["describe", "web"]).contains("coracle start web-"));
    let (code, _, stderr) = run(&node, &["restart", "web"]);
    assert_eq!((code, stderr.contains("is stopped: coracle start")), (1, true), "{stderr}");

    // A changed manifest does not start it.
    node.apply(&Manifest::new("web").container("main", "two"));
    node.kill_agent();
    node.start_agent();
    node.wait_until_ready("db");
    assert!(is_listed(&node, "Stopped"));
    assert_eq!(runs(&node), 0);

    assert!(succeeds(&node, &["start", "web"]).ends_with(" started\n"));
    node.wait_until_ready("web");
    let (code, _, stderr) = run(&node, &["start", "web"]);
    assert_eq!((code, stderr.contains("is not stopped")), (1, true), "{stderr}");
}

#[test]
fn stopped_pod_is_forgotten_with_its_manifest() {
    let mut node = Node::new();
    node.apply(&Manifest::new("web").container("main", "one"));
    node.start_agent();
    node.wait_until_ready("web");
    succeeds(&node, &["stop", "web"]);
    node.remove_manifest("web");
    let stored = node.folder().join("pods/coracle/stopped-pods.json");
    wait_for("the stopped pod is forgotten", || !stored.exists());
    node.apply(&Manifest::new("web").container("main", "one"));
    node.wait_until_ready("web");
}

#[test]
fn pod_stays_as_it_is_if_the_stop_cannot_be_stored() {
    let mut node = Node::new();
    node.apply(&Manifest::new("web").container("main", "one"));
    node.start_agent();
    node.wait_until_ready("web");
    // A directory in the place of the file.
    fs::create_dir_all(node.folder().join("pods/coracle/stopped-pods.json/x")).unwrap();
    let (code, _, stderr) = run(&node, &["stop", "web"]);
    assert_eq!((code, stderr.contains("stopped pods not written")), (1, true), "{stderr}");
    assert!(succeeds(&node, &["pods"]).contains("Running"));
}

#[test]
fn members_of_the_group_read_and_change_nothing() {
    const GROUP: u32 = 64999;
    let mut node = Node::new();
    let groups = node.folder().join("group");
    fs::write(&groups, format!("root:x:0:\ncoracle:x:{GROUP}:\n")).unwrap();
    node.apply(&Manifest::new("web").container("main", "one"));
    // The agent sees this group in a mount namespace of its own.
    node.start_agent_with(|agent| {
        let script = "mount --bind \"$0\" /etc/group && exec \"$@\"";
        let mut inside = Command::new("unshare");
        inside.args(["--mount", "sh", "-c", script]).arg(&groups).arg(agent.get_program()).args(agent.get_args());
        inside.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        *agent = inside;
    });
    node.wait_until_ready("web");
    // Where every user can run it.
    let program = node.folder().join("coracle");
    fs::copy(CORACLE, &program).unwrap();
    let run_as = |group: u32, line: &[&str]| {
        let mut command = Command::new(&program);
        command.args(line).env("CORACLE_SOCKET", node.folder().join("coracle.sock"));
        let output = command.uid(64998).gid(group).stdin(Stdio::null()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    };
    for line in [&["status"][..], &["pods"], &["describe", "web"], &["events"], &["images"], &["logs", "web"]] {
        let (is_ok, stdout, stderr) = run_as(GROUP, line);
        assert!(is_ok, "{line:?}: {stdout}{stderr}");
    }
    for line in [
        &["restart", "web"][..],
        &["stop", "web"],
        &["delete", "web"],
        &["exec", "web", "--", "true"],
        &["images", "remove", "x"],
        &["images", "pull", "x"],
        &["sync"],
    ] {
        let (is_ok, stdout, stderr) = run_as(GROUP, line);
        assert!(!is_ok && stderr.contains("only root may do this"), "{line:?}: {stdout}{stderr}");
    }
    let (is_ok, _, stderr) = run_as(GROUP + 1, &["status"]);
    assert!(!is_ok && stderr.contains("ermission denied"), "{stderr}");
}
