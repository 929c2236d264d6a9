//! Shims that are killed and leave the processes of their containers alive: nothing of a pod may run twice.
//!
//! Each instance of a container writes its own number ten times a second. An instance that still writes after its
//! successor has begun runs beside it.

use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::endurance::rounds;
use super::node::{Events, Manifest, Node, PATIENCE, Task, processes_of, wait_for};

const BEAT: &str = "ID=$(cat /proc/sys/kernel/random/uuid); beat() { echo $NAME $ID >>/host/beats; sleep 0.1; }";
/// Reports SIGTERM and exits.
const EXITS: &str = "trap 'echo $NAME >>/host/signalled; exit' TERM";
const STAY: &str = "while true; do beat; done";

/// A pod `web` whose containers share a folder of the machine.
struct BeatingPod {
    manifest: Manifest,
    folder: PathBuf,
}

impl BeatingPod {
    fn new(node: &Node) -> Self {
        let folder = node.folder().join("shared");
        fs::create_dir_all(&folder).unwrap();
        let volume = format!("volumes: [{{name: host, hostPath: {{path: {}}}}}]", folder.display());
        Self { manifest: Manifest::new("web").spec(&volume), folder }
    }

    fn container(self, name: &str, script: &str, fields: &str) -> Self {
        let (script, fields) = beating(name, script, fields);
        Self { manifest: self.manifest.container_with(name, &script, &fields), ..self }
    }

    fn init_container(self, name: &str, script: &str) -> Self {
        let (script, fields) = beating(name, script, "");
        Self { manifest: self.manifest.init_container_with(name, &script, &fields), ..self }
    }

    fn spec(self, line: &str) -> Self {
        Self { manifest: self.manifest.spec(line), ..self }
    }

    /// The lines of a file that the containers write.
    fn lines(&self, file: &str) -> Vec<String> {
        let text = fs::read_to_string(self.folder.join(file)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// The instances of a container in the order of their writes, each as often as it was interrupted by another.
    fn instances(&self, container: &str) -> Vec<String> {
        let mut instances: Vec<String> = self.lines("beats");
        instances.retain(|line| line.split(' ').next() == Some(container));
        instances.dedup();
        instances
    }

    /// Waits until `count` instances of a container have started, and one more second.
    #[track_caller]
    fn wait_for_starts(&self, container: &str, count: usize) {
        wait_for(&format!("start {count} of {container}"), PATIENCE, || {
            (self.instances(container).len() >= count).then_some(())
        });
        sleep(Duration::from_secs(1));
        assert_eq!(self.instances(container).len(), count, "instances of {container} ran beside each other");
    }
}

fn beating(name: &str, script: &str, fields: &str) -> (String, String) {
    let more = if fields.is_empty() { String::new() } else { format!(", {fields}") };
    let fields =
        format!("env: [{{name: NAME, value: {name}}}], volumeMounts: [{{name: host, mountPath: /host}}]{more}");
    (format!("{BEAT}; {script}"), fields)
}

fn container(node: &Node, name: &str) -> Task {
    let running = node.running_containers("web");
    running.into_iter().find(|task| task.container == name).expect("the container runs")
}

/// The shim or conmon of a container: the parent of its first process. `None` without a process.
fn shim_of(id: &str) -> Option<Pid> {
    let status = fs::read_to_string(format!("/proc/{}/status", processes_of(id).first()?)).ok()?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()?;
    let name = fs::read_to_string(format!("/proc/{parent}/comm")).ok()?;
    (name.starts_with("containerd-shim") || name.starts_with("conmon")).then(|| Pid::from_raw(parent))
}

/// Kills the shim of a container, and returns the processes of the container.
fn kill_shim(id: &str) -> Vec<i32> {
    let processes = processes_of(id);
    kill(shim_of(id).expect("the container has a shim"), Signal::SIGKILL).unwrap();
    processes
}

fn events(node: &Node) -> Events {
    Events::parse(&node.ask(&["events", "-o", "json"]).expect("the agent answers"))
}

#[test]
fn survivor_of_a_dead_shim_ends_before_its_replacement_starts() {
    let node = Node::with_leaking_shims();
    let pod = BeatingPod::new(&node).container("main", &format!("{EXITS}; {STAY}"), "");
    node.apply(&pod.manifest);
    pod.wait_for_starts("main", 1);
    let task = container(&node, "main");
    kill_shim(&task.id);
    pod.wait_for_starts("main", 2);
    assert_eq!(pod.lines("signalled"), ["main"]);
    assert_eq!(processes_of(&task.id), [0; 0]);
    let events = events(&node);
    let told = format!("The runtime reported the exit of container main ({}), but ", task.id);
    assert!(events.find("ContainerSurvived", &told).is_some(), "{:#?}", events.lines());
}

#[test]
fn survivor_that_ignores_the_signal_is_killed_after_the_grace_period() {
    let node = Node::with_leaking_shims();
    let pod = BeatingPod::new(&node)
        .container("main", &format!("trap 'date +%s >>/host/signalled' TERM; date +%s >>/host/begun; {STAY}"), "")
        .spec("terminationGracePeriodSeconds: 3");
    node.apply(&pod.manifest);
    pod.wait_for_starts("main", 1);
    kill_shim(&container(&node, "main").id);
    pod.wait_for_starts("main", 2);
    let second = |file: &str, place: usize| pod.lines(file)[place].parse::<u64>().unwrap();
    let waited = second("begun", 1) - second("signalled", 0);
    assert!((2..=8).contains(&waited), "the replacement started {waited} s after the signal");
}

#[test]
fn every_container_of_a_pod_survives_once() {
    let node = Node::with_leaking_shims();
    let pod = BeatingPod::new(&node).container("one", &format!("{EXITS}; {STAY}"), "").container(
        "two",
        &format!("{EXITS}; {STAY}"),
        "",
    );
    node.apply(&pod.manifest);
    ["one", "two"].iter().for_each(|name| pod.wait_for_starts(name, 1));
    kill_shim(&container(&node, "one").id);
    ["one", "two"].iter().for_each(|name| pod.wait_for_starts(name, 2));
    assert_eq!(node.running_containers("web").len(), 2);
}

#[test]
fn http_hook_of_a_survivor_is_called() {
    let node = Node::with_leaking_shims();
    let answer = "printf 'HTTP/1.0 200 OK\\r\\n\\r\\n'";
    let script = format!("{answer} | nc -l -p 8080 >>/host/request & {EXITS}; {STAY}");
    let hook = "lifecycle: {preStop: {httpGet: {path: /bye, port: 8080}}}";
    let pod = BeatingPod::new(&node).container("main", &script, hook);
    node.apply(&pod.manifest);
    pod.wait_for_starts("main", 1);
    node.wait_until("the pod is ready", |pods| pods.has("web", |pod| pod.is_ready()));
    kill_shim(&container(&node, "main").id);
    pod.wait_for_starts("main", 2);
    assert!(pod.lines("request").iter().any(|line| line.starts_with("GET /bye ")), "{:?}", pod.lines("request"));
}

#[test]
fn init_container_survives_once() {
    let node = Node::with_leaking_shims();
    let pod = BeatingPod::new(&node)
        .init_container("first", &format!("{EXITS}; until test -e /host/go; do beat; done"))
        .container("main", &format!("{EXITS}; {STAY}"), "");
    node.apply(&pod.manifest);
    pod.wait_for_starts("first", 1);
    kill_shim(&container(&node, "first").id);
    pod.wait_for_starts("first", 2);
    fs::write(pod.folder.join("go"), "").unwrap();
    pod.wait_for_starts("main", 1);
}

#[test]
fn terminating_pod_is_gone_only_when_its_survivors_are() {
    let node = Node::with_leaking_shims();
    let script = format!("trap 'sleep 2; echo $NAME >>/host/signalled; exit' TERM; {STAY}");
    let hook = "lifecycle: {preStop: {exec: {command: [sleep, '20']}}}";
    let pod = BeatingPod::new(&node).container("main", &script, hook);
    node.apply(&pod.manifest);
    pod.wait_for_starts("main", 1);
    let task = container(&node, "main");
    let uid = node.pods().get("web").unwrap().uid().to_owned();
    node.remove_manifest("web");
    wait_for("the hook to run", PATIENCE, || node.agent_log().contains("Stopping container main").then_some(()));
    let processes = kill_shim(&task.id);
    wait_for("its directory to go", PATIENCE, || (!node.pod_folder(&uid).exists()).then_some(()));
    let left: Vec<&i32> = processes.iter().filter(|pid| fs::exists(format!("/proc/{pid}")).unwrap()).collect();
    assert_eq!(left, [&0; 0], "processes of a pod that has ended");
    assert_eq!(pod.lines("signalled"), ["main"]);
}

#[test]
fn survivor_of_a_pod_that_never_restarts_ends() {
    let node = Node::with_leaking_shims();
    let pod = BeatingPod::new(&node).container("main", &format!("{EXITS}; {STAY}"), "").spec("restartPolicy: Never");
    node.apply(&pod.manifest);
    pod.wait_for_starts("main", 1);
    let task = container(&node, "main");
    kill_shim(&task.id);
    node.wait_until("the pod has failed", |pods| pods.has("web", |pod| pod.phase() == "Failed"));
    wait_for("its processes to end", PATIENCE, || processes_of(&task.id).is_empty().then_some(()));
    assert_eq!(pod.lines("signalled"), ["main"]);
}

#[test]
fn next_agent_ends_the_survivors() {
    let mut node = Node::with_leaking_shims();
    let pod = BeatingPod::new(&node).container("main", &format!("{EXITS}; {STAY}"), "");
    node.apply(&pod.manifest);
    pod.wait_for_starts("main", 1);
    let task = container(&node, "main");
    node.kill_agent();
    let processes = kill_shim(&task.id);
    wait_for("the runtime to report the exit", PATIENCE, || node.running_containers("web").is_empty().then_some(()));
    assert!(processes.iter().any(|pid| fs::exists(format!("/proc/{pid}")).unwrap()), "nothing has survived");
    node.start_agent();
    pod.wait_for_starts("main", 2);
    assert_eq!(pod.lines("signalled"), ["main"]);
}

#[test]
fn survivor_of_shim_and_daemon_ends_before_its_replacement_starts() {
    let mut node = Node::with_leaking_shims();
    let pod = BeatingPod::new(&node).container("main", &format!("{EXITS}; {STAY}"), "");
    node.apply(&pod.manifest);
    pod.wait_for_starts("main", 1);
    let task = container(&node, "main");
    node.stop_containerd(Signal::SIGKILL);
    kill_shim(&task.id);
    node.start_containerd();
    pod.wait_for_starts("main", 2);
}

#[test]
fn container_whose_shim_dies_during_its_start_runs_once() {
    let node = Node::with_leaking_shims();
    let hook = "lifecycle: {postStart: {exec: {command: [sh, -c, 'echo >>/host/hooked; sleep 2']}}}";
    let pod = BeatingPod::new(&node).container("main", &format!("{EXITS}; {STAY}"), hook);
    node.apply(&pod.manifest);
    wait_for("the hook", PATIENCE, || (!pod.lines("hooked").is_empty()).then_some(()));
    kill_shim(&container(&node, "main").id);
    pod.wait_for_starts("main", 2);
}

/// A hundred rounds if CORACLE_ENDURANCE is set, otherwise a few.
#[test]
fn shims_and_daemons_that_die_at_any_time_leave_one_instance() {
    let mut node = Node::with_leaking_shims();
    node.configure_agent("syncFrequency: 1s\ncrashLoopBackOff: {maxContainerRestartPeriod: 1s}\n");
    node.kill_agent();
    node.start_agent();
    let pod = BeatingPod::new(&node).container("main", &format!("{EXITS}; {STAY}"), "");
    node.apply(&pod.manifest);
    pod.wait_for_starts("main", 1);
    for round in 1..=rounds().max(3) {
        // From before the next start to well after it.
        sleep(Duration::from_millis(round * 619 % 4000));
        let shims: Vec<Pid> = node.tasks_of("web").iter().filter_map(|task| shim_of(&task.id)).collect();
        let daemon = round % 3 != 0;
        if daemon {
            node.stop_containerd(Signal::SIGKILL);
        }
        if round % 3 != 1 {
            // One that has ended meanwhile is no matter.
            for shim in shims {
                let _ = kill(shim, Signal::SIGKILL);
            }
        }
        if daemon {
            node.start_containerd();
        }
    }
    wait_for("the pod to run again", PATIENCE, || {
        let before = pod.lines("beats").len();
        sleep(Duration::from_millis(500));
        // CRI-O reports a container without its conmon as running, as it is.
        let was_replaced = Node::is_on_crio() || pod.instances("main").len() > 1;
        (was_replaced && pod.lines("beats").len() > before).then_some(())
    });
    let instances = pod.instances("main");
    let mut different = instances.clone();
    different.sort();
    different.dedup();
    assert_eq!(instances.len(), different.len(), "instances ran beside each other: {instances:?}");
}
