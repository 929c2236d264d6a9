//! A soak with hostile pods and clients: the agent stays small and answers, and honest neighbours are unharmed.
//!
//! A minute by default; CORACLE_HOSTILE_MINUTES sets the length, and CORACLE_HOSTILE_RECORD names a file for one line a
//! second: seconds, the agent's resident and anonymous memory in KiB, and the milliseconds that `/pods` and `/healthz`
//! took. The test prints these over time.

use std::fmt::Write as _;
use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::node::activity::Memory;
use super::node::{Manifest, Node, Pods, STAY};

const HONEST: [&str; 3] = ["honest-a", "honest-b", "honest-c"];
/// Most memory of the agent that is not backed by a file, in KiB. It is built without optimization here.
const MAX_MEMORY_KIB: u64 = 64 << 10;
/// Longest time that 99 of 100 responses may take, without the time in which the agent or the client waits for a
/// processor: other tests may run beside it.
const SLOW: Duration = Duration::from_secs(5);
/// A client that waits this long for a response gives up.
const SLOWEST: Duration = Duration::from_secs(60);
/// Longest time until a new honest pod is ready, or an honest pod is removed.
const SLOWEST_START: Duration = Duration::from_secs(60);
const HEALTHZ: &str = "127.0.0.1:10248";

fn length() -> Duration {
    let minutes = std::env::var("CORACLE_HOSTILE_MINUTES").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(60) * minutes.unwrap_or(1)
}

/// Pods that a starved agent would restart or report as not ready.
fn honest() -> [Manifest; 3] {
    let exec = "livenessProbe: {exec: {command: ['true']}, periodSeconds: 5, timeoutSeconds: 10}";
    let get = "livenessProbe: {httpGet: {port: 8080}, periodSeconds: 5, timeoutSeconds: 10}, \
               readinessProbe: {httpGet: {port: 8080}, periodSeconds: 5, timeoutSeconds: 10}";
    let [a, b, c] = HONEST.map(Manifest::new);
    let serve = "mkdir /w; echo here > /w/index.html; httpd -f -p 8080 -h /w";
    [a.container("main", STAY), b.container_with("main", STAY, exec), c.container_with("main", serve, get)]
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
    // A body that never ends, to a probe.
    let answers = "while :; do (printf 'HTTP/1.1 200 OK\\r\\n\\r\\n'; cat /dev/zero) | nc -l -p 8080; done";
    let get = "readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1}";
    // A megabyte for each variable.
    let key = |n: usize| format!("{{name: A{n}, valueFrom: {{fileKeyRef: {{volumeName: d, path: e, key: A}}}}}}");
    let keys = (0..100).map(key).collect::<Vec<_>>().join(", ");
    let variables = "volumeMounts: [{name: d, mountPath: /d}]";
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
        Manifest::new("answers").container_with("main", answers, get),
        Manifest::new("variables")
            .init_container_with(
                "write",
                "(printf \"A='\"; head -c 1000000 /dev/zero | tr '\\0' x; echo \"'\") > /d/e",
                variables,
            )
            .container_with("main", "exit 1", &format!("env: [{keys}]"))
            .spec("volumes: [{name: d, emptyDir: {}}]"),
    ]
}

/// Connects to the local socket and sends `request`.
fn local(node: &Path, request: &str) -> std::io::Result<UnixStream> {
    let mut stream = UnixStream::connect(node.join("coracle.sock"))?;
    stream.set_read_timeout(Some(SLOWEST))?;
    stream.write_all(request.as_bytes())?;
    Ok(stream)
}

/// How long a thread has waited for a processor.
fn queued(thread: &str) -> Duration {
    let text = fs::read_to_string(format!("/proc/{thread}/schedstat")).unwrap();
    // Nanoseconds on a processor, then nanoseconds in the run queue.
    Duration::from_nanos(text.split_whitespace().nth(1).unwrap().parse().unwrap())
}

/// How long a request to the agent took, in all and without the time in which this thread or the agent's first one,
/// which answers, waited for a processor.
struct Latency {
    all: Duration,
    own: Duration,
}

impl Latency {
    fn of<T>(agent: u32, request: impl FnOnce() -> T) -> (T, Self) {
        let queues = || queued(&agent.to_string()) + queued("thread-self");
        let (begun, before) = (Instant::now(), queues());
        let answer = request();
        let all = begun.elapsed();
        (answer, Self { all, own: all.saturating_sub(queues().saturating_sub(before)) })
    }
}

#[track_caller]
fn body_of(answer: &str) -> String {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    assert!(head.starts_with("HTTP/1.1 200 "), "{answer}");
    body.to_owned()
}

/// The pods at the local socket. The flood comes from the same process, whose oldest
/// connections give way to newer ones: a request that is turned away is repeated.
fn pods_page(folder: &Path) -> String {
    let begun = Instant::now();
    loop {
        let asked = local(folder, "GET /pods HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let answered = asked.and_then(|mut stream| {
            let mut answer = String::new();
            stream.read_to_string(&mut answer).map(|_| answer)
        });
        match answered {
            Ok(answer) if !answer.is_empty() => return body_of(&answer),
            Err(error) if !TURNED_AWAY.contains(&error.kind()) => panic!("{error}"),
            _ => assert!(begun.elapsed() < SLOWEST, "no answer at the local socket"),
        }
        // A client that was turned away may not come back at once, or it starves the others.
        thread::sleep(Duration::from_millis(20));
    }
}

const TURNED_AWAY: [ErrorKind; 2] = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];

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
        // The connections stay open for a while: closed at once, they would occupy nothing.
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

/// Honest pods that come and go. Returns how long each took until it was ready, and until it was gone.
fn visit(node: &Node, ends: &AtomicBool) -> Vec<(Duration, Duration)> {
    let mut took = Vec::new();
    while !ends.load(Ordering::Relaxed) {
        let name = format!("visitor-{}", took.len());
        node.apply(&Manifest::new(&name).container("main", STAY));
        let begun = Instant::now();
        node.wait_until_within(SLOWEST_START, "a new pod is ready", |pods| pods.has(&name, |pod| pod.is_ready()));
        let (ready, begun) = (begun.elapsed(), Instant::now());
        node.remove_manifest(&name);
        node.wait_until_within(SLOWEST_START, "a removed pod is gone", |pods| pods.get(&name).is_none());
        took.push((ready, begun.elapsed()));
        // Starts of honest pods are samples; the pause between two of them ends early with the test.
        let pause = Instant::now();
        while pause.elapsed() < Duration::from_secs(10) && !ends.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(200));
        }
    }
    took
}

/// What a second of the soak showed.
struct Sample {
    at: Duration,
    resident: u64,
    anonymous: u64,
    pods: Latency,
    healthz: Latency,
}

impl Sample {
    /// Asks the agent. Panics if it does not answer or an honest pod is not ready.
    fn take(node: &Node, begun: Instant) -> Self {
        let agent = node.agent_pid();
        let (body, pods) = Latency::of(agent, || pods_page(node.folder()));
        let seen = Pods::parse(&body);
        for name in HONEST {
            assert!(seen.has(name, |pod| pod.is_ready()), "{name} is not ready: {:#?}", seen.get(name));
        }
        let ask = || {
            let mut stream = TcpStream::connect(HEALTHZ).unwrap();
            stream.set_read_timeout(Some(SLOWEST)).unwrap();
            stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            body_of(&answer)
        };
        let (_, healthz) = node.enclosure().on_network(|| Latency::of(agent, ask));
        let memory = Memory::of(agent);
        Self { at: begun.elapsed(), resident: memory.rss, anonymous: memory.anonymous, pods, healthz }
    }
}

/// The value that this share of the values does not exceed.
fn percentile<T: Copy + Ord + Default>(values: impl IntoIterator<Item = T>, percent: usize) -> T {
    let mut sorted: Vec<T> = values.into_iter().collect();
    sorted.sort_unstable();
    let place = sorted.len().saturating_sub(1) * percent / 100;
    sorted.get(place).copied().unwrap_or_default()
}

/// A line for each thirtieth of the time, with a bar for the memory.
fn plot(samples: &[Sample]) -> String {
    let mut text = String::from("seconds  anonymous  resident KiB  /pods p50 p99 ms  /healthz p50 p99 ms\n");
    let most = samples.iter().map(|sample| sample.anonymous).max().unwrap_or(1).max(1);
    for part in samples.chunks(samples.len().div_ceil(30).max(1)) {
        let seconds = part.last().map_or(0, |sample| sample.at.as_secs());
        let anonymous = part.iter().map(|sample| sample.anonymous).max().unwrap_or(0);
        let resident = part.iter().map(|sample| sample.resident).max().unwrap_or(0);
        let pods = |percent| percentile(part.iter().map(|sample| sample.pods.all), percent).as_millis();
        let healthz = |percent| percentile(part.iter().map(|sample| sample.healthz.all), percent).as_millis();
        let bar = "#".repeat(usize::try_from(anonymous * 40 / most).unwrap());
        writeln!(
            text,
            "{seconds:>7}  {anonymous:>9}  {resident:>12}  {:>8} {:>7}  {:>12} {:>6}  {bar}",
            pods(50),
            pods(99),
            healthz(50),
            healthz(99)
        )
        .unwrap();
    }
    text
}

#[test]
fn hostile_pods_and_clients_harm_neither_the_agent_nor_honest_neighbours() {
    let mut node = Node::with_runtime();
    node.configure_agent("containerLogMaxSize: 1Mi\ncontainerLogMaxFiles: 2\nimageGCHighThresholdPercent: 100\n");
    node.start_agent();
    honest().iter().for_each(|manifest| node.apply(manifest));
    let ready = |pods: &Pods| HONEST.iter().all(|name| pods.has(name, |pod| pod.is_ready()));
    let before = standing(&node.wait_until("the honest pods run", ready));
    hostile().iter().for_each(|manifest| node.apply(manifest));

    let (pid, ends, begun) = (node.agent_pid(), AtomicBool::new(false), Instant::now());
    let mut samples = Vec::new();
    let visits = thread::scope(|threads| {
        threads.spawn(|| flood(&node, &ends));
        let visitors = threads.spawn(|| visit(&node, &ends));
        let watched = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            while begun.elapsed() < length() && !visitors.is_finished() {
                samples.push(Sample::take(&node, begun));
                // One sample each second.
                thread::sleep(Duration::from_secs(1));
            }
        }));
        ends.store(true, Ordering::Relaxed);
        let visits = visitors.join();
        eprint!("{}", plot(&samples));
        watched.and(visits).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    if let Some(file) = std::env::var_os("CORACLE_HOSTILE_RECORD") {
        let line = |sample: &Sample| {
            let Sample { at, resident, anonymous, pods, healthz } = sample;
            format!("{} {resident} {anonymous} {} {}\n", at.as_secs(), pods.all.as_millis(), healthz.all.as_millis())
        };
        let lines: String = samples.iter().map(line).collect();
        fs::write(file, format!("seconds resident anonymous pods_ms healthz_ms\n{lines}")).unwrap();
    }
    let memory = samples.iter().map(|sample| sample.anonymous).max().unwrap();
    let slowest = samples.iter().map(|sample| sample.pods.all.max(sample.healthz.all)).max().unwrap();
    let starts = |percent| percentile(visits.iter().map(|(ready, _)| *ready), percent);
    let removals = |percent| percentile(visits.iter().map(|(_, gone)| *gone), percent);
    eprintln!("agent: at most {memory} KiB, slowest answer {slowest:?}");
    let [pods, healthz] = [latency(&samples, 99, |s| s.pods.own), latency(&samples, 99, |s| s.healthz.own)];
    eprintln!("without waits for a processor: /pods p99 {pods:?}, /healthz p99 {healthz:?}");
    eprintln!(
        "/pods: p50 {:?}, p99 {:?}",
        latency(&samples, 50, |s| s.pods.all),
        latency(&samples, 99, |s| s.pods.all)
    );
    eprintln!(
        "/healthz: p50 {:?}, p99 {:?}",
        latency(&samples, 50, |s| s.healthz.all),
        latency(&samples, 99, |s| s.healthz.all)
    );
    eprintln!(
        "{} honest pods came and went: ready after p50 {:?}, at most {:?}; gone after p50 {:?}, at most {:?}",
        visits.len(),
        starts(50),
        starts(100),
        removals(50),
        removals(100)
    );
    assert_eq!(node.agent_pid(), pid);
    assert!(Path::new(&format!("/proc/{pid}")).exists(), "the agent has ended");
    assert!(memory < MAX_MEMORY_KIB, "the agent took {memory} KiB");
    for slow in [pods, healthz] {
        assert!(slow < SLOW, "one of a hundred answers took {slow:?}, without waits for a processor");
    }
    assert!(!visits.is_empty(), "no honest pod came and went");
    // Memory that grows with the time of the soak shows here, not what the first minutes need.
    let typical = |part: &[Sample]| percentile(part.iter().map(|sample| sample.anonymous), 50);
    let (early, late) = samples.split_at(samples.len() / 2);
    let (early, late) = (typical(early), typical(late));
    assert!(late < early + early / 2 + 4096, "the agent's memory grew from {early} to {late} KiB");
    let after = standing(&node.pods());
    assert_eq!(after, before, "honest pods");
    // The termination messages of the hostile pods are cut.
    let text = node.ask(&["pods", "-o", "json"]).unwrap();
    assert!(text.len() < 1 << 20, "{} bytes of pods", text.len());
    for manifest in hostile() {
        node.remove_manifest(manifest.name());
    }
    let gone = |pods: &Pods| pods.0.len() == HONEST.len();
    node.wait_until_within(Duration::from_secs(120), "the hostile pods are gone", gone);
}

fn latency(samples: &[Sample], percent: usize, of: impl Fn(&Sample) -> Duration) -> Duration {
    percentile(samples.iter().map(of), percent)
}
