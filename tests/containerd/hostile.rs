//! A soak with hostile pods and clients: the agent stays small and answers, and honest neighbours are unharmed.
//!
//! A minute by default; CORACLE_HOSTILE_MINUTES sets the length, and CORACLE_HOSTILE_RECORD names a file for one line a
//! second: seconds, the agent's memory in KiB, and the milliseconds that `/pods` and `/healthz` took.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::node::activity::Memory;
use crate::node::{Manifest, Node, Pods, STAY};

const HONEST: [&str; 3] = ["honest-a", "honest-b", "honest-c"];
/// Most memory of the agent that is not backed by a file, in KiB. It is built without optimization here.
const MOST_MEMORY: u64 = 64 << 10;
/// Longest time that a response may take on this busy machine.
const SLOWEST: Duration = Duration::from_secs(10);
const HEALTHZ: &str = "127.0.0.1:10248";

fn length() -> Duration {
    let minutes = std::env::var("CORACLE_HOSTILE_MINUTES").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(60) * minutes.unwrap_or(1)
}

/// Pods that try to harm the node, within the limits of a shared machine.
fn hostile() -> Vec<Manifest> {
    let limited =
        "volumes: [{name: d, emptyDir: {sizeLimit: 1Gi}}, {name: m, emptyDir: {medium: Memory, sizeLimit: 8Mi}}]";
    let mounted = "volumeMounts: [{name: d, mountPath: /d}, {name: m, mountPath: /m}]";
    let probed = |probe: &str| {
        format!("{probe}: {{exec: {{command: [sh, -c, 'head -c 12000000 /dev/zero; exit 1']}}, periodSeconds: 1}}")
    };
    let hook = "lifecycle: {postStart: {exec: {command: [sh, -c, 'head -c 12000000 /dev/zero; exit 1']}}}";
    let forks = "while :; do i=0; while [ $i -lt 150 ]; do sleep 1 & i=$((i + 1)); done; wait; done";
    let logs = "while :; do head -c 2000000 /dev/zero | tr '\\0' 'x' | fold -w 180; sleep 0.5; done";
    let disk = "while :; do dd if=/dev/zero of=/m/full bs=1M; rm -f /m/full; sleep 1; done";
    // A tree deeper than a walk has descriptors, a wide one, and one with hard links.
    let trees = "cd /d; i=0; while [ $i -lt 300 ]; do mkdir d && cd d; i=$((i + 1)); done; cd /d; mkdir w; cd w; \
                 seq 4000 | xargs mkdir; echo > f; seq 4000 | while read n; do ln f l$n; done; sleep 100000";
    vec![
        Manifest::new("forks").container("main", forks),
        Manifest::new("logs").container("main", logs),
        Manifest::new("disk").container_with("main", disk, mounted).spec(limited),
        Manifest::new("trees").container_with("main", trees, mounted).spec(limited),
        // Each restart finds the file that the previous run has left.
        Manifest::new("hosts").container("main", "truncate -s 8G /etc/hosts; sleep 1; exit 1"),
        Manifest::new("message").container("main", "head -c 30000000 /dev/zero > /dev/termination-log; exit 1"),
        Manifest::new("probe-a").container_with("main", STAY, &probed("readinessProbe")),
        Manifest::new("probe-b").container_with("main", STAY, &probed("readinessProbe")),
        Manifest::new("hook").container_with("main", STAY, hook),
    ]
}

/// Connects to the local socket and sends `request`.
fn local(node: &Path, request: &str) -> std::io::Result<UnixStream> {
    let mut stream = UnixStream::connect(node.join("coracle.sock"))?;
    stream.set_read_timeout(Some(SLOWEST))?;
    stream.write_all(request.as_bytes())?;
    Ok(stream)
}

/// The time until a response is complete. Panics if there is none.
#[track_caller]
fn timed(mut stream: impl std::io::Read, begun: Instant) -> Duration {
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&answer));
    begun.elapsed()
}

/// Clients that keep connections half open, follow logs without reading, and run commands all the time.
fn flood(node: &Node, ends: &AtomicBool) {
    let folder = node.folder();
    let mut held = Vec::new();
    while !ends.load(Ordering::Relaxed) {
        held.clear();
        for _ in 0..12 {
            held.extend(UnixStream::connect(folder.join("coracle.sock")));
        }
        let follow = "GET /containerLogs/default/logs-node-a/main?follow=true HTTP/1.1\r\nHost: x\r\n\r\n";
        for _ in 0..120 {
            held.extend(local(folder, follow));
        }
        for _ in 0..10 {
            drop(node.ask(&["exec", "honest-a-node-a", "--", "sh", "-c", "head -c 1000000 /dev/zero"]));
        }
        thread::sleep(Duration::from_millis(200));
    }
}

fn standing(pods: &Pods) -> Vec<(String, u64, bool)> {
    let of = |name: &&str| {
        let pod = pods.get(name).unwrap();
        (pod.uid().to_owned(), pod.container("main").restarts(), pod.is_ready())
    };
    HONEST.iter().map(of).collect()
}

#[test]
fn hostile_pods_and_clients_harm_neither_the_agent_nor_honest_neighbours() {
    let mut node = Node::with_runtime();
    node.configure_agent("containerLogMaxSize: 1Mi\ncontainerLogMaxFiles: 2\nimageGCHighThresholdPercent: 100\n");
    node.start_agent();
    for name in HONEST {
        node.apply(&Manifest::new(name).container("main", STAY));
    }
    let ready = |pods: &Pods| HONEST.iter().all(|name| pods.has(name, |pod| pod.is_ready()));
    let before = standing(&node.wait_until("the honest pods run", ready));
    hostile().iter().for_each(|manifest| node.apply(manifest));

    let (pid, ends, begun) = (node.agent_pid(), AtomicBool::new(false), Instant::now());
    let mut record = String::from("seconds memory_kib pods_ms healthz_ms\n");
    let (mut memory, mut slowest) = (0, Duration::ZERO);
    thread::scope(|threads| {
        threads.spawn(|| flood(&node, &ends));
        let watched = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            while begun.elapsed() < length() {
                let ask = Instant::now();
                let pods = timed(
                    local(node.folder(), "GET /pods HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap(),
                    ask,
                );
                let health = node.enclosure().on_network(|| {
                    let ask = Instant::now();
                    let mut stream = TcpStream::connect(HEALTHZ).unwrap();
                    stream.set_read_timeout(Some(SLOWEST)).unwrap();
                    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
                    timed(stream, ask)
                });
                let now = Memory::of(pid).anonymous;
                memory = memory.max(now);
                slowest = slowest.max(pods).max(health);
                let seconds = begun.elapsed().as_secs();
                writeln!(record, "{seconds} {now} {} {}", pods.as_millis(), health.as_millis()).unwrap();
                thread::sleep(Duration::from_secs(1));
            }
        }));
        ends.store(true, Ordering::Relaxed);
        watched.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    if let Some(file) = std::env::var_os("CORACLE_HOSTILE_RECORD") {
        fs::write(file, &record).unwrap();
    }
    eprintln!("agent: at most {memory} KiB, slowest answer {slowest:?}");
    assert_eq!(node.agent_pid(), pid);
    assert!(Path::new(&format!("/proc/{pid}")).exists(), "the agent has ended");
    assert!(memory < MOST_MEMORY, "the agent took {memory} KiB:\n{record}");
    assert!(slowest < SLOWEST, "an answer took {slowest:?}:\n{record}");
    let after = standing(&node.pods());
    assert_eq!(after, before, "honest pods");
    // The termination messages of the hostile pods are cut.
    let text = node.ask(&["pods", "-o", "json"]).unwrap();
    assert!(text.len() < 1 << 20, "{} bytes of pods", text.len());
    for manifest in hostile() {
        node.remove_manifest(manifest.name());
    }
    node.wait_until_within(Duration::from_secs(120), "the hostile pods are gone", |pods| pods.0.len() == HONEST.len());
}
