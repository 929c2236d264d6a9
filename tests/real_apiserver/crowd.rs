//! A full node: pods that each have a ConfigMap, a Secret, a service account token and a startup probe.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::node::activity::{Activity, Done, Memory};
use super::node::{BUSYBOX, NODE_NAME, Node, wait_for};

/// The default maximum of pods on a node.
pub(crate) const PODS: usize = 110;
/// One pod refers to this many ConfigMaps, none of which exists.
const MISSING: usize = 300;
/// The pods are on the node's network, so each has a port of its own.
const FIRST_PORT: usize = 20_000;
const CROWD_TIMEOUT: Duration = Duration::from_secs(180);

/// The pods and the times of their start.
pub(crate) struct Crowd {
    pods: Vec<Value>,
    /// From the first bind to the start of the last container.
    pub(crate) until_running: Duration,
    /// From the first bind until the API server has each pod as ready.
    pub(crate) until_ready: Duration,
}

impl Crowd {
    /// Fills the node. One pod has only references to ConfigMaps that do not exist, and is created first.
    pub(crate) fn start(cluster: &Cluster) -> Self {
        create(cluster, "create", objects("one"));
        let (bind, begun) = (Timestamp::now(), Instant::now());
        create(cluster, "create", std::iter::once(greedy()).chain((1..PODS).map(honest)));
        let pods = wait_until_ready(cluster);
        let until_ready = begun.elapsed();
        let last = pods.iter().map(last_start).max().unwrap();
        Self { pods, until_running: Duration::try_from(last.duration_since(bind)).unwrap_or_default(), until_ready }
    }

    /// Changes each ConfigMap and Secret. Returns the time from the first change until the last file follows.
    pub(crate) fn change_objects(&self, cluster: &Cluster) -> Duration {
        let begun = Instant::now();
        create(cluster, "replace", objects("two"));
        let mut left: Vec<(&Value, &str)> = self.honest().flat_map(|pod| FILES.map(|plugin| (pod, plugin))).collect();
        wait_for("the files to follow their objects", CROWD_TIMEOUT, || {
            left.retain(|(pod, plugin)| cluster.volume_file(pod, plugin, "k").as_deref() != Some("two"));
            left.is_empty().then_some(())
        });
        begun.elapsed()
    }

    fn honest(&self) -> impl Iterator<Item = &Value> {
        self.pods.iter().filter(|pod| pod["metadata"]["name"] != GREEDY)
    }

    /// Replaces the pod with the missing ConfigMaps by one like the others. The agent looks for them every minute.
    pub(crate) fn replace_greedy(&mut self, cluster: &Cluster) {
        cluster.kubectl(&["delete", "pod", GREEDY, "--timeout=60s"]);
        create(cluster, "create", [honest(PODS)]);
        self.pods = wait_until_ready(cluster);
    }
}

/// Waits until the API server has each pod as ready, and returns them.
#[track_caller]
fn wait_until_ready(cluster: &Cluster) -> Vec<Value> {
    let limit = format!("--timeout={}s", CROWD_TIMEOUT.as_secs());
    let waited = ["wait", "--for=condition=Ready", "pod", "--all", &limit];
    let waited = cluster.plane.try_kubectl(&cluster.node, &waited);
    let pods = cluster.get(&["pods"])["items"].as_array().unwrap().clone();
    assert!(waited.status.success(), "not all pods are ready: {}", phases(&pods));
    assert_eq!(pods.len(), PODS);
    pods
}

const GREEDY: &str = "greedy";
/// The volume plugins of the files that change.
const FILES: [&str; 2] = ["kubernetes.io~configmap", "kubernetes.io~secret"];

/// Sends all objects with one kubectl.
fn create(cluster: &Cluster, verb: &str, objects: impl IntoIterator<Item = Value>) {
    let items: Vec<Value> = objects.into_iter().collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    cluster.kubectl_with(&[verb, "--validate=false", "--filename", "-"], &list.to_string());
}

fn objects(value: &str) -> impl Iterator<Item = Value> + use<'_> {
    (1..=PODS).flat_map(move |index| {
        let metadata = json!({"name": format!("pod-{index}")});
        [
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"k": value}}),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"k": value}}),
        ]
    })
}

/// Serves its own ConfigMap. The probe asks for it, and is over when it has succeeded once.
fn honest(index: usize) -> Value {
    let (name, port) = (format!("pod-{index}"), FIRST_PORT + index);
    let mounts = json!([{"name": "c", "mountPath": "/c"}, {"name": "s", "mountPath": "/s"}]);
    let container = json!({
        "name": "main", "image": BUSYBOX, "volumeMounts": mounts,
        "command": ["httpd", "-f", "-p", format!("127.0.0.1:{port}"), "-h", "/c"],
        "startupProbe": {"httpGet": {"host": "127.0.0.1", "port": port, "path": "/k"}, "periodSeconds": 1},
    });
    let volumes = json!([{"name": "c", "configMap": {"name": name}}, {"name": "s", "secret": {"secretName": name}}]);
    pod(&name, &container, &volumes)
}

fn greedy() -> Value {
    let missing = |index| json!({"configMap": {"name": format!("missing-{index}"), "optional": true}});
    let sources: Vec<Value> = (0..MISSING).map(missing).collect();
    let container = json!({
        "name": "main", "image": BUSYBOX, "command": ["sleep", "100000"],
        "volumeMounts": [{"name": "m", "mountPath": "/m"}],
    });
    pod(GREEDY, &container, &json!([{"name": "m", "projected": {"sources": sources}}]))
}

fn pod(name: &str, container: &Value, volumes: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "nodeName": NODE_NAME, "hostNetwork": true, "terminationGracePeriodSeconds": 1,
            "containers": [container], "volumes": volumes,
        },
    })
}

/// When the pod's container started. The API has whole seconds, so this is the end of that second.
fn last_start(pod: &Value) -> Timestamp {
    let started = &pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"];
    let started: Timestamp = started.as_str().expect("the container runs").parse().unwrap();
    started + jiff::SignedDuration::from_secs(1)
}

/// How many pods have which phase.
fn phases(pods: &[Value]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    pods.iter().for_each(|pod| *counts.entry(pod["status"]["phase"].as_str().unwrap_or("none")).or_default() += 1);
    format!("{counts:?}")
}

/// Follows the node's lease.
pub(crate) struct LeaseWatch {
    kubectl: Child,
    renewals: Arc<Mutex<Vec<Renewal>>>,
    reader: JoinHandle<()>,
}

#[derive(Clone, Copy)]
struct Renewal {
    seen: Timestamp,
    time: Timestamp,
}

impl LeaseWatch {
    pub(crate) fn start(cluster: &Cluster) -> Self {
        let output = "--output=jsonpath={.spec.renewTime}{'\\n'}";
        let arguments = ["--namespace=kube-node-lease", "get", "lease", NODE_NAME, "--watch", output];
        let mut kubectl = cluster.kubectl_process(&arguments).stdout(Stdio::piped()).spawn().unwrap();
        let renewals = Arc::new(Mutex::new(Vec::new()));
        let (lines, seen) = (BufReader::new(kubectl.stdout.take().unwrap()), Arc::clone(&renewals));
        let reader = std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                seen.lock().unwrap().push(Renewal { seen: Timestamp::now(), time: line.trim().parse().unwrap() });
            }
        });
        let watch = Self { kubectl, renewals, reader };
        wait_for("the lease", Duration::from_secs(30), || (watch.count() > 0).then_some(()));
        watch
    }

    fn count(&self) -> usize {
        self.renewals.lock().unwrap().len()
    }

    /// Waits for this many renewals.
    pub(crate) fn wait(&self, renewals: usize) {
        let until = self.count() + renewals;
        wait_for("the lease to be renewed", Duration::from_secs(600), || (self.count() >= until).then_some(()));
    }

    /// Ends the watch and returns the greatest age that the lease had at any time.
    pub(crate) fn oldest(mut self, node: &Node) -> Duration {
        let now = Timestamp::now();
        node.enclosure().run(&["pkill", "-KILL", "-x", "kubectl"]);
        self.kubectl.wait().unwrap();
        self.reader.join().unwrap();
        let renewals = self.renewals.lock().unwrap().clone();
        let ends = renewals.iter().skip(1).map(|renewal| renewal.seen).chain([now]);
        let ages = renewals.iter().zip(ends).map(|(renewal, end)| end.duration_since(renewal.time));
        Duration::try_from(ages.max().unwrap()).unwrap_or_default()
    }
}

/// What the agent uses while nothing changes.
pub(crate) struct Rest {
    seconds: f64,
    done: Done,
    bytes: u64,
    /// Resident memory in KiB.
    pub(crate) memory: u64,
}

impl Rest {
    /// Measures from one renewal of the lease to a later one, because most traffic of a node at rest is renewals.
    pub(crate) fn measure(node: &Node, lease: &LeaseWatch, renewals: usize) -> Self {
        lease.wait(1);
        let (begun, activity, bytes) = (Instant::now(), Activity::of(node.agent_pid()), bytes_on_wire(node));
        lease.wait(renewals);
        let done = Activity::of(node.agent_pid()).since(&activity);
        let sent = bytes_on_wire(node);
        let bytes = sent.iter().map(|(socket, now)| now - bytes.get(socket).copied().unwrap_or_default()).sum();
        let memory = Memory::of(node.agent_pid()).rss;
        Self { seconds: begun.elapsed().as_secs_f64(), done, bytes, memory }
    }

    /// In percent of a core.
    pub(crate) fn cpu(&self) -> f64 {
        self.done.cpu.as_secs_f64() / self.seconds * 100.0
    }

    pub(crate) fn wakes_per_second(&self) -> f64 {
        f64::from(u32::try_from(self.done.wakes).unwrap()) / self.seconds
    }

    pub(crate) fn megabytes_per_day(&self) -> f64 {
        f64::from(u32::try_from(self.bytes).unwrap()) / self.seconds * 86_400.0 / 1e6
    }
}

/// Bytes in both directions for each of the agent's connections to the API server, including the heads of IP and TCP.
fn bytes_on_wire(node: &Node) -> BTreeMap<String, u64> {
    let text = node.enclosure().run(&[
        "ss",
        "--tcp",
        "--info",
        "--extended",
        "--oneline",
        "--no-header",
        "dport",
        "=",
        ":6443",
    ]);
    let of_agent = sockets_of(node.agent_pid());
    let number = |line: &str, key: &str| -> u64 {
        let value = line.split_whitespace().find_map(|word| word.strip_prefix(key));
        value.and_then(|value| value.parse().ok()).unwrap_or_default()
    };
    let lines = text.lines().filter_map(|line| {
        let socket = line.split_whitespace().find_map(|word| word.strip_prefix("ino:"))?;
        let bytes = number(line, "bytes_sent:") + number(line, "bytes_received:");
        let segments = number(line, "segs_out:") + number(line, "segs_in:");
        of_agent.iter().any(|own| own == socket).then(|| (socket.to_owned(), bytes + segments * HEADS))
    });
    lines.collect()
}

/// IPv4 and TCP with timestamps.
const HEADS: u64 = 20 + 32;

/// Inodes of a process's sockets.
fn sockets_of(pid: u32) -> Vec<String> {
    let descriptors = fs::read_dir(Path::new("/proc").join(pid.to_string()).join("fd")).unwrap().flatten();
    let targets = descriptors.filter_map(|descriptor| fs::read_link(descriptor.path()).ok());
    targets
        .filter_map(|target| Some(target.to_str()?.strip_prefix("socket:[")?.trim_end_matches(']').to_owned()))
        .collect()
}
