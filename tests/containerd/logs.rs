//! Container logs: reading, rotation, links and removal.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::node::{Manifest, Node, PATIENCE, STAY, coracle, wait_for};

impl Node {
    fn logs(&self, line: &[&str]) -> String {
        self.ask(&[&["logs"], line].concat()).unwrap_or_default()
    }

    /// Names and sizes of a container's log files.
    fn log_files(&self, pod: &str, container: &str) -> Vec<(String, u64)> {
        let uid = self.pods().get(pod).map(|pod| pod.uid().to_owned()).unwrap_or_default();
        let folder = self.folder().join(format!("logs/default_{pod}-node-a_{uid}/{container}"));
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut files: Vec<(String, u64)> = entries
            .filter_map(|entry| Some((entry.file_name().into_string().unwrap(), entry.metadata().ok()?.len())))
            .collect();
        files.sort();
        files
    }

    fn links(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.folder().join("containers")).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    }
}

#[test]
fn log_is_read_as_kubectl_reads_it() {
    let node = Node::start();
    // The order between the two streams of one container is undefined.
    let manifest = Manifest::new("web")
        .container("main", &format!("echo one; echo two; echo three; {STAY}"))
        .container("other", &format!("echo wrong >&2; {STAY}"));
    node.apply(&manifest);
    node.wait_for_output("web", "other", "wrong");
    node.wait_for_output("web", "main", "three");
    node.wait_until("both are known to run", |pods| pods.has("web", |pod| pod.is_ready()));
    assert_eq!(node.logs(&["web"]), "one\ntwo\nthree\n");
    assert_eq!(node.logs(&["default/web-node-a", "-c", "main", "--tail", "1"]), "three\n");
    assert_eq!(node.logs(&["web", "-c", "other"]), "wrong\n");
    assert_eq!(node.logs(&["web", "--limit-bytes=5"]), "one\nt");
    assert_eq!(node.logs(&["web", "--since=1h", "--tail=-1"]), "one\ntwo\nthree\n");
    let stamped = node.logs(&["web", "--timestamps"]);
    let stamps: Vec<usize> = stamped.lines().map(|line| line.find(' ').unwrap()).collect();
    assert_eq!(stamps, [30, 30, 30], "{stamped}");
    for refused in [&["logs", "other"][..], &["logs", "web", "-c", "x"], &["logs", "web", "-p"]] {
        assert_eq!(node.ask(refused), None, "{refused:?}");
    }
    let page = node.ask(&["describe", "web"]).unwrap();
    assert!(page.contains("    State:         Running\n") && page.contains("Container started\n"), "{page}");
}

#[test]
fn follow_ends_with_the_container_and_previous_stays_readable() {
    let node = Node::start();
    let script = "echo begun; until [ -e /data/go ]; do sleep 0.1; done; echo done; rm /data/go";
    let mount = "volumeMounts: [{name: data, mountPath: /data}]";
    let manifest =
        Manifest::new("web").container_with("main", script, mount).spec("volumes: [{name: data, emptyDir: {}}]");
    node.apply(&manifest);
    let pods = node.wait_until("the container is known to run", |pods| pods.has("web", |pod| pod.is_ready()));
    let uid = pods.get("web").unwrap().uid();
    let mut command = Command::new(coracle());
    command.args(["logs", "-f", "web", "--local-socket"]).arg(node.folder().join("coracle.sock"));
    let mut follow = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut followed = BufReader::new(follow.stdout.take().unwrap());
    let mut first = String::new();
    followed.read_line(&mut first).unwrap();
    // `logs -f` is now following.
    fs::write(node.pod_folder(uid).join("volumes/kubernetes.io~empty-dir/data/go"), "").unwrap();
    let mut rest = String::new();
    followed.read_to_string(&mut rest).unwrap();
    assert!(follow.wait().unwrap().success());
    assert_eq!((first.as_str(), rest.as_str()), ("begun\n", "done\n"));
    node.wait_until("it runs again", |pods| {
        pods.has("web", |pod| pod.container("main").restarts() >= 1 && pod.is_ready())
    });
    assert_eq!(node.logs(&["web", "-p"]), "begun\ndone\n");
}

#[test]
fn follow_fails_when_the_agent_dies_and_can_be_resumed() {
    let mut node = Node::start();
    let mount = "volumeMounts: [{name: data, mountPath: /data}]";
    let script = "echo begun; until [ -e /data/go ]; do sleep 0.1; done; echo done";
    let manifest = Manifest::new("web").container_with("main", script, mount);
    node.apply(&manifest.spec("restartPolicy: Never").spec("volumes: [{name: data, emptyDir: {}}]"));
    let pods = node.wait_until("the container is known to run", |pods| pods.has("web", |pod| pod.is_ready()));
    let uid = pods.get("web").unwrap().uid();
    let follow = |node: &Node| {
        let mut command = Command::new(coracle());
        command.args(["logs", "-f", "web", "--local-socket"]).arg(node.folder().join("coracle.sock"));
        let mut follow = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut followed = BufReader::new(follow.stdout.take().unwrap());
        let mut first = String::new();
        followed.read_line(&mut first).unwrap();
        assert_eq!(first, "begun\n");
        (follow, followed)
    };
    let (mut first, _) = follow(&node);
    node.kill_agent();
    assert!(!first.wait().unwrap().success(), "a log that was cut short was taken for a whole one");
    node.start_agent();
    node.wait_until("the container is known to run", |pods| pods.has("web", |pod| pod.is_ready()));
    let (mut second, mut followed) = follow(&node);
    fs::write(node.pod_folder(uid).join("volumes/kubernetes.io~empty-dir/data/go"), "").unwrap();
    let mut rest = String::new();
    followed.read_to_string(&mut rest).unwrap();
    assert!(second.wait().unwrap().success());
    assert_eq!(rest, "done\n");
}

#[test]
fn log_storm_stays_within_the_limit_without_gaps() {
    let mut node = Node::with_runtime();
    node.configure_agent("containerLogMaxSize: 1Mi\ncontainerLogMaxFiles: 3\n");
    node.start_agent();
    // 12 MB of numbered lines.
    let storm = "BEGIN { for (i = 1; i <= 200000; i++) print \"line\", i, \"of a storm that fills a disk\" }";
    let script = format!("awk '{storm}'; echo over; {STAY}");
    node.apply(&Manifest::new("web").container("main", &script));
    wait_for("the storm to be over", PATIENCE, || node.logs(&["web", "--tail=1"]).starts_with("over").then_some(()));
    let files = wait_for("the limit to hold", PATIENCE, || {
        let files = node.log_files("web", "main");
        (files.iter().map(|(_, size)| size).sum::<u64>() <= 3 << 20).then_some(files)
    });
    assert!(files.len() <= 3 && files.iter().all(|(name, _)| name.starts_with("0.log")), "{files:?}");
    let text = node.logs(&["web"]);
    let numbers: Vec<u32> = text.lines().filter_map(|line| line.split(' ').nth(1)?.parse().ok()).collect();
    assert!(numbers.len() > 1000, "{files:?}");
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "a line of the kept files is missing");
    assert_eq!(numbers.last(), Some(&200_000));
}

#[test]
fn logging_resumes_after_the_disk_was_full() {
    let mut node = Node::with_runtime();
    let logs = node.folder().join("logs").display().to_string();
    node.enclosure().run(&["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", &logs]);
    node.enclosure().run(&["dd", "if=/dev/zero", &format!("of={logs}/ballast"), "bs=1k", "count=1200"]);
    // More than the free space: the disk fills up before rotation removes the oldest file.
    node.configure_agent("containerLogMaxSize: 300Ki\ncontainerLogMaxFiles: 4\n");
    node.start_agent();
    let lines = "BEGIN { for (;;) { for (k = 0; k < 200; k++) print \"line\", ++i, \"of a container that never stops\"; \
                 fflush(); system(\"sleep 0.05\") } }";
    node.apply(&Manifest::new("web").container("main", &format!("awk '{lines}'")));
    let room = || nix::sys::statvfs::statvfs(&node.enclosure().path(std::path::Path::new(&logs))).unwrap();
    wait_for("the disk to be full", PATIENCE, || (room().blocks_available() == 0).then_some(()));
    let newest = || {
        let text = node.logs(&["web", "--tail=1"]);
        text.split(' ').nth(1).and_then(|number| number.parse::<u64>().ok()).unwrap_or(0)
    };
    let last = newest();
    let pods = node.wait_until("the pod is seen on the full disk", |pods| pods.has("web", |pod| pod.is_ready()));
    assert_eq!(pods.get("web").unwrap().container("main").restarts(), 0);
    node.enclosure().run(&["rm", &format!("{logs}/ballast")]);
    // Lines written while the disk was full are lost; later ones are not.
    wait_for("lines to come again", PATIENCE, || (newest() > last + 1000).then_some(()));
    assert_eq!(node.pods().get("web").unwrap().container("main").restarts(), 0);
}

#[test]
fn next_agent_finishes_an_interrupted_log_rotation() {
    let mut node = Node::with_runtime();
    node.configure_agent("containerLogMaxSize: 100Ki\ncontainerLogMaxFiles: 2\n");
    node.start_agent();
    node.apply(&Manifest::new("web").container("main", &format!("while sleep 0.1; do echo tick; done; {STAY}")));
    node.wait_for_output("web", "main", "tick");
    let uid = node.pods().get("web").unwrap().uid().to_owned();
    node.kill_agent();
    let log = node.folder().join(format!("logs/default_web-node-a_{uid}/main/0.log"));
    fs::rename(&log, log.with_file_name("0.log.20260102-030405")).unwrap();
    node.start_agent();
    wait_for("the runtime to write to a new file", PATIENCE, || {
        fs::metadata(&log).is_ok_and(|file| file.len() > 0).then_some(())
    });
    assert_eq!(node.pods().get("web").unwrap().container("main").restarts(), 0);
}

#[test]
fn link_in_var_log_containers_lives_as_long_as_the_log() {
    let node = Node::start();
    node.apply(&Manifest::new("web").container("main", &format!("echo one; {STAY}")));
    node.wait_for_output("web", "main", "one");
    let pods = node.wait_until("the pod is ready", |pods| pods.has("web", |pod| pod.is_ready()));
    let id = pods.get("web").unwrap().container("main").id().to_owned();
    let link = node.folder().join(format!("containers/web-node-a_default_main-{id}.log"));
    let text = wait_for("the link", PATIENCE, || fs::read_to_string(&link).ok().filter(|text| !text.is_empty()));
    assert!(text.ends_with("stdout F one\n"), "{text}");
    node.remove_manifest("web");
    node.wait_until_gone("web");
    wait_for("the link to go", PATIENCE, || node.links().is_empty().then_some(()));
    assert!(fs::read_dir(node.folder().join("logs")).unwrap().next().is_none(), "its logs are left");
}

#[test]
fn only_the_newest_dead_container_is_kept() {
    let mut node = Node::with_runtime();
    node.configure_agent("crashLoopBackOff: {maxContainerRestartPeriod: 1s}\n");
    node.start_agent();
    node.apply(&Manifest::new("web").container("main", "echo one; sleep 1; exit 1"));
    wait_for("the first log", PATIENCE, || node.log_files("web", "main").first().map(drop));
    let uid = node.pods().get("web").unwrap().uid().to_owned();
    let first = node.folder().join(format!("logs/default_web-node-a_{uid}/main/0.log.20260102-030405"));
    fs::write(&first, "what rotation made of it").unwrap();
    node.wait_until("it has run four times", |pods| pods.has("web", |pod| pod.container("main").restarts() >= 3));
    wait_for("the first run's logs to go", PATIENCE, || {
        let files = node.log_files("web", "main");
        files.iter().all(|(name, _)| !name.starts_with("0.log")).then_some(())
    });
    assert!(node.log_files("web", "main").len() <= 3, "{:?}", node.log_files("web", "main"));
    let links = node.links();
    assert!(links.len() <= 3 && !links.is_empty(), "{links:?}");
}
