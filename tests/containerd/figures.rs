//! Resource usage of the node and its pods where the pods have no pod cgroups and the runtime's CRI stats are used.

#[path = "../../src/types/metrics/parsed.rs"]
mod parsed;

use serde_json::Value;

use super::door::{self, OPEN};
use super::node::{Manifest, Node, PATIENCE, STAY, page, wait_for};

impl Node {
    /// The body of a response on the local socket.
    fn page(&self, path: &str) -> String {
        page(self.folder(), path)
    }

    fn summary(&self) -> Value {
        serde_json::from_str(&self.page("/stats/summary")).unwrap()
    }
}

/// The pod of a summary that belongs to this manifest.
fn pod<'a>(summary: &'a Value, name: &str) -> Option<&'a Value> {
    let is_it = |pod: &&Value| pod["podRef"]["name"].as_str().is_some_and(|full| full.starts_with(name));
    summary["pods"].as_array().unwrap().iter().find(is_it)
}

#[test]
fn summary_shows_a_pods_actual_usage() {
    let node = Node::start();
    let mount = "volumeMounts: [{name: data, mountPath: /data}, {name: mem, mountPath: /mem}]";
    // 3 MiB in the writable layer, 5 MiB in the volume, 2 MiB in a memory-backed file, then a busy loop.
    let script = "dd if=/dev/zero of=/layer bs=1M count=3; dd if=/dev/zero of=/data/f bs=1M count=5; \
                  dd if=/dev/zero of=/mem/f bs=1M count=2; while :; do :; done";
    let busy = Manifest::new("busy")
        .container_with("main", script, mount)
        .spec("volumes: [{name: data, emptyDir: {}}, {name: mem, emptyDir: {medium: Memory}}]");
    node.apply(&busy);
    node.apply(&Manifest::new("idle").container("main", STAY));
    node.wait_until("both run", |pods| ["busy", "idle"].iter().all(|name| pods.has(name, |pod| pod.is_ready())));
    let number = |value: &Value, path: &str| value.pointer(path).and_then(Value::as_u64).unwrap_or(0);
    // The runtime measures writable layers every ten seconds.
    let summary = wait_for("the runtime to have counted the layer", PATIENCE, || {
        let summary = node.summary();
        let layer = number(pod(&summary, "busy")?, "/containers/0/rootfs/usedBytes");
        let is_busy = number(pod(&summary, "busy")?, "/cpu/usageNanoCores") > 100_000_000;
        let images = number(&summary, "/node/runtime/imageFs/usedBytes");
        (layer >= 3 << 20 && images > 0 && is_busy).then_some(summary)
    });
    let [busy, idle] = ["busy", "idle"].map(|name| pod(&summary, name).unwrap());
    for (path, least, most) in [
        ("/containers/0/cpu/usageNanoCores", 100_000_000, 1_100_000_000),
        ("/containers/0/memory/workingSetBytes", 2 << 20, 64 << 20),
        ("/containers/0/rootfs/usedBytes", 3 << 20, 4 << 20),
        ("/memory/workingSetBytes", 2 << 20, 64 << 20),
        ("/network/interfaces/0/rxBytes", 0, 1 << 20),
    ] {
        let value = number(busy, path);
        assert!((least..=most).contains(&value), "{path} is {value}: {busy:#}");
    }
    assert!(busy["network"]["interfaces"][0]["name"].is_string(), "{busy:#}");
    assert!(number(idle, "/cpu/usageNanoCores") < 100_000_000, "{idle:#}");
    assert!(number(idle, "/containers/0/memory/workingSetBytes") > 0, "{idle:#}");
    for (path, least) in [
        ("/node/memory/workingSetBytes", 1 << 20),
        ("/node/cpu/usageNanoCores", 100_000_000),
        ("/node/fs/capacityBytes", 1 << 20),
        ("/node/rlimit/curproc", 2),
    ] {
        assert!(number(&summary, path) >= least, "{path}: {:#}", summary["node"]);
    }
    // The metrics pages of the same agent agree with the summary and are well formed.
    let resource = parsed::parse(&node.page("/metrics/resource"));
    let of_busy = [("container", "main"), ("pod", busy["podRef"]["name"].as_str().unwrap())];
    assert!(resource["container_cpu_usage_seconds_total"].value(&of_busy) > 0.1);
    assert_eq!(resource["resource_scrape_error"].value(&[]), 0.0);
    let cadvisor = parsed::parse(&node.page("/metrics/cadvisor"));
    assert!(cadvisor["container_memory_working_set_bytes"].value(&of_busy) > f64::from(2 << 20));
    assert!(cadvisor["machine_memory_bytes"].value(&[]) > f64::from(1 << 20));
    let table = node.ask(&["top", "-n", "default"]).unwrap();
    let row = table.lines().find(|line| line.starts_with("default") && line.contains("busy")).unwrap();
    assert!(row.contains("Mi"), "{table}");
    let own = parsed::parse(&node.page("/metrics"));
    assert_eq!(own["kubelet_running_pods"].value(&[]), 2.0);
    assert_eq!(own["kubelet_desired_pods"].value(&[("static", "true")]), 2.0);
    assert_eq!(own["kubelet_started_containers_total"].value(&[("container_type", "container")]), 2.0);
    assert_eq!(own["kubelet_runtime_operations_total"].value(&[("operation_type", "run_podsandbox")]), 2.0);
    let starts = own["kubelet_pod_start_duration_seconds"].samples.iter().find(|sample| sample.0.ends_with("_count"));
    assert_eq!(starts.unwrap().2, 2.0);
    for (name, family) in own.iter().filter(|(name, _)| !name.starts_with("process_") && !name.starts_with("coracle_"))
    {
        assert!(!family.help.is_empty() && !family.label_names().is_empty(), "{name}");
    }
    // A removed pod disappears from the metrics.
    node.remove_manifest("idle");
    node.wait_until_gone("idle");
    assert!(pod(&node.summary(), "idle").is_none());
}

#[test]
fn volume_usage_is_measured_while_a_request_waits() {
    let node = Node::start();
    let mount = "volumeMounts: [{name: data, mountPath: /data}]";
    let script = format!("dd if=/dev/zero of=/data/f bs=1M count=5; echo written; {STAY}");
    let manifest =
        Manifest::new("web").container_with("main", &script, mount).spec("volumes: [{name: data, emptyDir: {}}]");
    node.apply(&manifest);
    node.wait_for_output("web", "main", "written");
    node.wait_until("it is known to run", |pods| pods.has("web", |pod| pod.is_ready()));
    // The first request starts the walk; on a busy machine the walk may outlast the request.
    let volume = wait_for("the walk to be over", PATIENCE, || {
        pod(&node.summary(), "web").map(|pod| pod["volume"][0].clone()).filter(|volume| volume.is_object())
    });
    assert_eq!(volume["name"], "data");
    let used = volume["usedBytes"].as_u64().unwrap();
    assert!((5 << 20..6 << 20).contains(&used), "{volume}");
}

#[test]
fn probe_counters_live_as_long_as_their_pod() {
    let node = Node::start();
    let probes = "livenessProbe: {exec: {command: ['true']}, periodSeconds: 1}, \
                  readinessProbe: {exec: {command: ['false']}, periodSeconds: 1, failureThreshold: 1000}";
    node.apply(&Manifest::new("web").container_with("main", STAY, probes));
    let count = |kind: &str, result: &str| {
        let families = parsed::parse(&node.page("/metrics/probes"));
        let labels = [("probe_type", kind), ("result", result), ("container", "main")];
        let is_it = |sample: &&(String, parsed::Series, f64, Option<i64>)| {
            labels.iter().all(|(name, value)| sample.1.get(*name).is_some_and(|has| has == value))
        };
        families.get("prober_probe_total")?.samples.iter().find(is_it).map(|sample| sample.2)
    };
    wait_for("both to have been asked twice", PATIENCE, || {
        let twice = |kind, result| count(kind, result).is_some_and(|count| count >= 2.0);
        (twice("Liveness", "successful") && twice("Readiness", "failed")).then_some(())
    });
    node.remove_manifest("web");
    node.wait_until_gone("web");
    let families = parsed::parse(&node.page("/metrics/probes"));
    assert_eq!(families.keys().collect::<Vec<_>>(), ["process_start_time_seconds"]);
}

#[test]
fn every_metrics_page_on_port_10250_is_well_formed() {
    let mut node = Node::with_runtime();
    node.configure_agent(OPEN);
    node.start_agent();
    let probe = "livenessProbe: {exec: {command: ['true']}, periodSeconds: 1}";
    node.apply(&Manifest::new("web").container_with("main", STAY, probe).container("side", STAY));
    node.apply(&Manifest::new("other").container("main", STAY));
    node.wait_until("both run", |pods| ["web", "other"].iter().all(|name| pods.has(name, |pod| pod.is_ready())));
    // The parser rejects duplicate series and anything else that Prometheus rejects.
    for (path, family, least) in [
        ("/metrics", "kubelet_running_pods", 1),
        ("/metrics/cadvisor", "container_memory_working_set_bytes", 3),
        ("/metrics/resource", "container_memory_working_set_bytes", 3),
    ] {
        let families = parsed::parse(&door::get(&node, path));
        let samples = families.get(family).map_or(0, |family| family.samples.len());
        assert!(samples >= least, "{path}: {samples} of {family}");
    }
    wait_for("the probe to be counted", PATIENCE, || {
        parsed::parse(&door::get(&node, "/metrics/probes")).contains_key("prober_probe_total").then_some(())
    });
    let summary: Value = serde_json::from_str(&door::get(&node, "/stats/summary")).unwrap();
    let mut names: Vec<&str> =
        summary["pods"].as_array().unwrap().iter().filter_map(|pod| pod["podRef"]["name"].as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["other-node-a", "web-node-a"]);
    assert_eq!(pod(&summary, "web").unwrap()["containers"].as_array().unwrap().len(), 2);
}
