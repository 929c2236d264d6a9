//! Watchdogs: a hung runtime must not reset the node, a hung agent must.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{Pid, mkfifo};

use super::node::{Manifest, Node};
use crate::wait::{PATIENCE, wait_for};

/// Short, but long enough for a busy machine.
const INTERVAL: Duration = Duration::from_secs(4);

/// A service manager that listens to its service.
struct Manager {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Manager {
    fn of(node: &Node) -> Self {
        let path = node.folder().join("notify.sock");
        let socket = UnixDatagram::bind(&path).unwrap();
        Self { socket, path }
    }

    /// Makes the command's process the watched service.
    fn watch(&self, command: &mut Command) {
        command.env("NOTIFY_SOCKET", &self.path).env("WATCHDOG_USEC", INTERVAL.as_micros().to_string());
    }

    /// Whether the service sends `word` within `limit`.
    fn hears(&self, word: &str, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        loop {
            let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            self.socket.set_read_timeout(Some(left)).unwrap();
            let mut bytes = [0; 256];
            match self.socket.recv(&mut bytes) {
                Ok(length) if String::from_utf8_lossy(&bytes[..length]).lines().any(|line| line == word) => {
                    return true;
                }
                Ok(_) => {}
                Err(_) if Instant::now() >= until => return false,
                Err(_) => {}
            }
        }
    }

    /// Asserts a heartbeat within the interval after which a service manager kills the service.
    #[track_caller]
    fn hears_a_beat(&self) {
        assert!(self.hears("WATCHDOG=1", INTERVAL), "no beat for {INTERVAL:?}");
    }

    /// Discards earlier messages.
    fn forget(&self) {
        while self.hears("WATCHDOG=1", Duration::from_millis(1)) {}
    }
}

/// A node with a running pod and a watched agent.
fn watched(mut node: Node) -> (Node, Manager) {
    let manager = Manager::of(&node);
    node.apply(&Manifest::new("web").container("main", ""));
    node.start_agent_with(|command| manager.watch(command));
    assert!(manager.hears("READY=1", PATIENCE));
    manager.hears_a_beat();
    node.wait_until_ready("web");
    (node, manager)
}

fn stall_file(node: &Node) -> PathBuf {
    node.folder().join("pods/coracle/last-stall.json")
}

/// The agent's main thread, stopped through ptrace. The other threads run on. It resumes when this is dropped.
struct Held(Pid);

impl Held {
    fn hold(node: &Node) -> Self {
        let pid = node.agent_pid();
        ptrace::seize(pid, ptrace::Options::empty()).unwrap();
        ptrace::interrupt(pid).unwrap();
        waitpid(pid, Some(WaitPidFlag::__WALL)).unwrap();
        Self(pid)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // The agent may have been killed.
        let _ = ptrace::detach(self.0, None);
    }
}

/// An agent whose sync loop has stalled long enough to be detected.
fn stalled() -> (Node, Manager, Held) {
    let (node, manager) = watched(Node::new());
    let held = Held::hold(&node);
    wait_for("the stall to be written down", || stall_file(&node).exists());
    manager.forget();
    (node, manager, held)
}

#[test]
fn panic_of_the_last_process_is_shown_and_logged_once() {
    let mut node = Node::new();
    let path = node.folder().join("pods/coracle/last-panic.json");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let record =
        r#"{"time": "2026-11-20T20:24:00Z", "thread": "main", "location": "src/a.rs:7:9", "message": "no pod"}"#;
    fs::write(&path, record).unwrap();
    let line = "error the last process panicked";
    for _ in 0..2 {
        node.start_agent();
        node.wait_until("an answer", |_| node.says_that_the_runtime_is_ready());
        let page = node.ask(&["status"]).unwrap();
        assert!(
            page.contains("Last panic:\n  2026-11-20T20:24:00Z") && page.contains("src/a.rs:7:9: no pod"),
            "{page}"
        );
        wait_for("the start to be noted", || fs::read_to_string(&path).unwrap().contains("nextStart"));
        node.kill_agent();
    }
    assert_eq!(node.log().matches(line).count(), 1, "{}", node.log());
}

#[test]
fn hung_runtime_does_not_stop_the_heartbeat() {
    let (node, manager) = watched(Node::new());
    node.fake.on("*").hang();
    node.remove_manifest("web");
    for _ in 0..6 {
        manager.hears_a_beat();
    }
    assert_eq!(node.status()["lastStall"], serde_json::Value::Null);
}

#[test]
fn stalled_loop_stops_the_heartbeat_and_the_next_agent_reports_it() {
    let (mut node, manager, _held) = stalled();
    assert!(!manager.hears("WATCHDOG=1", INTERVAL));
    let before = node.seen("web");
    // The service manager would kill the agent in the end.
    node.kill_agent();
    node.start_agent();
    node.wait_until_ready("web");
    assert_eq!(node.seen("web"), before);
    let stall = &node.status()["lastStall"];
    assert!(stall["nextStart"].is_string() && stall["doing"] == "another task held its thread", "{stall}");
    assert_eq!(stall["thread"]["state"], "t (tracing stop)");
    assert!(stall["seconds"].as_u64().is_some_and(|seconds| seconds >= 2), "{stall}");
    assert_eq!(node.log().matches("previous process stalled").count(), 1);
    // The stall is logged once and shown until another one happens.
    let kept = || fs::read_to_string(stall_file(&node)).unwrap_or_default().contains("nextStart");
    wait_for("the start to be noted", kept);
    node.kill_agent();
    node.start_agent();
    wait_for("the next agent to answer", || node.status()["lastStall"].is_object());
    assert_eq!(node.log().matches("previous process stalled").count(), 1);
}

#[test]
fn heartbeat_resumes_after_a_stall() {
    let (node, manager, held) = stalled();
    drop(held);
    assert!(manager.hears("WATCHDOG=1", PATIENCE));
    manager.hears_a_beat();
    let stall = &node.status()["lastStall"];
    assert!(stall["movedAgainAfterSeconds"].as_u64().is_some_and(|seconds| seconds >= 2), "{stall}");
    assert_eq!(stall["nextStart"], serde_json::Value::Null);
}

#[test]
fn suspended_agent_is_identified_by_its_last_heartbeat_and_pods_survive() {
    let (mut node, manager) = watched(Node::inside(Path::new("/dev/shm")));
    let before = node.seen("web");
    manager.hears_a_beat();
    node.signal(Signal::SIGSTOP);
    manager.forget();
    assert!(!manager.hears("WATCHDOG=1", INTERVAL));
    node.kill_agent();
    node.start_agent();
    node.wait_until_ready("web");
    let stall = &node.status()["lastStall"];
    assert!(stall["doing"] == "" && stall["seconds"].as_u64().is_some_and(|seconds| seconds >= 4), "{stall}");
    assert!(stall["nextStart"].is_string(), "{stall}");
    assert_eq!(node.seen("web"), before);
}

#[test]
fn killed_agent_has_not_stalled() {
    let (mut node, manager) = watched(Node::inside(Path::new("/dev/shm")));
    manager.hears_a_beat();
    node.kill_agent();
    node.start_agent();
    node.wait_until_ready("web");
    assert_eq!(node.status()["lastStall"], serde_json::Value::Null);
}

#[test]
fn damaged_stall_record_is_set_aside() {
    let mut node = Node::new();
    let file = stall_file(&node);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, "{\"time\":").unwrap();
    node.apply(&Manifest::new("web").container("main", ""));
    node.start_agent();
    node.wait_until_ready("web");
    assert!(!file.exists() && file.with_extension("json.corrupt").exists());
}

/// A watchdog device simulated by a pipe, so that the test can read what the agent writes.
fn device(path: &Path) -> File {
    mkfifo(path, Mode::S_IRWXU).unwrap();
    OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path).unwrap()
}

#[test]
fn watchdog_device_is_fed_and_stopped_at_an_orderly_exit() {
    let mut node = Node::new();
    let path = node.folder().join("watchdog9");
    let mut pipe = device(&path);
    node.start_agent_with(|command| {
        command.arg("--watchdog-device").arg(&path);
    });
    let mut told = Vec::new();
    wait_for("two writes to the device", || {
        // The agent may not have opened the pipe yet, or written to it.
        let _ = pipe.read_to_end(&mut told);
        told.len() >= 2
    });
    let device = &node.status()["watchdog"]["device"];
    assert!(device["armed"] == true && device["timeoutSeconds"] == 10, "{device}");
    node.signal(Signal::SIGTERM);
    node.wait_for_the_agents_end();
    pipe.read_to_end(&mut told).unwrap();
    assert_eq!(told, b"..V");
}

#[test]
fn sigterm_ends_an_agent_with_a_hung_loop_within_five_seconds() {
    let (mut node, _manager) = watched(Node::new());
    let held = Held::hold(&node);
    let begun = Instant::now();
    node.signal(Signal::SIGTERM);
    node.wait_for_the_agents_end();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert!(node.log().contains("failed to shut down in time"), "{}", node.log());
    drop(held);
}
