//! Pods that make one list, map or text of the API as large as an API server stores it, or two that some code
//! multiplies. The work for each must grow with the size of the pod, not with its square.
//!
//! The fields come from the API types, so a new field is tried by itself. `CORACLE_HOSTILE_MINUTES` makes the pods as
//! large as an API server takes; by default they have hundreds of entries.

use std::net::IpAddr;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use serde_json::{Map, Value, json};

use super::restart_backoff::RestartBackoff;
use super::sync_input::{self, SyncInput};
use crate::kubelet::admission::Admission;
use crate::kubelet::csi::Csi;
use crate::kubelet::kuberuntime::golden;
use crate::kubelet::status::{Resize, StatusInput, pod_status, reported, status_patch};
use crate::kubelet::volumes::{self, SetUpInputs};
use crate::platform::config::Config;
use crate::state::objects::{ObjectEvent, Objects, Topic, references};
use crate::state::pods::{ContainerState, ObservedContainer, ObservedPod, ObservedSandbox, PodDirs, SandboxState};
use crate::types::api::fields::{Field, Kind, Step, fields_of};
use crate::types::api::validation::validate_pod;
use crate::types::api::{
    ConditionStatus, Pod, PodStatus, ResourceList, Time, container_hash, decode, defaults, encode,
};
use crate::types::sorted::SortedMap;

/// Containers whose configurations are made. Each is made between two calls to the runtime, and reads the whole pod.
const CONFIGURED: usize = 20;
/// Bytes that an API server stores of an object.
const MAX_STORED_OBJECT_BYTES: usize = 1_500_000;

fn is_full() -> bool {
    std::env::var_os("CORACLE_HOSTILE_MINUTES").is_some()
}

/// The processor time of this thread.
fn cpu() -> Duration {
    Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap())
}

/// A pod on its way through the agent: the processor time of each step.
fn times(object: &Value) -> Vec<(&'static str, Duration)> {
    let mut times = Vec::new();
    let mut last = cpu();
    let mut step = |name| {
        let now = cpu();
        times.push((name, now - last));
        last = cpu();
    };
    let bytes = object.to_string();
    step("(text)");
    let object: Value = serde_json::from_str(&bytes).unwrap();
    step("(parse)");
    let Ok(decoded) = decode::<Pod>(object) else { return times };
    let mut pod = decoded.value;
    step("decode");
    defaults::apply(&mut pod);
    step("defaults");
    drop(validate_pod(&pod));
    step("validation");
    let mut objects = Objects::default();
    drop(references(&pod));
    step("references");
    for topic in Topic::of(&pod) {
        objects.on_event(ObjectEvent::Received(topic, None));
    }
    assert!(objects.are_known(&pod));
    step("objects");
    admit(&pod);
    step("admission");
    plan_volumes(&pod, &objects);
    step("volumes");
    golden::tell_of_some(&pod, CONFIGURED);
    step("configurations");
    std::hint::black_box(pod.spec.all_containers().map(container_hash).fold(0, u32::wrapping_add));
    step("hash");
    let observed = observe(&pod);
    step("(observation)");
    plan(&pod, &observed);
    step("plan");
    report(&pod, &observed);
    step("status");
    drop(encode(&pod).to_string());
    step("encode");
    times
}

fn admit(pod: &Pod) {
    let admission = Admission::new(&Config::default(), &ResourceList::new(), 110);
    let mut other = pod.clone();
    other.metadata.uid = "other".into();
    // The same pod again, with the same host ports.
    let _ = admission.admit(pod, &[&other], true, Ok(()), &|_| false);
}

fn plan_volumes(pod: &Pod, objects: &Objects) {
    let (dirs, node) = (PodDirs::new(Path::new("/k"), Path::new("/l")), golden::node());
    let csi = Csi::new(Path::new("/nowhere"), "n", async_channel::bounded(1).0, None);
    let with = SetUpInputs { dirs: &dirs, node: &node, objects };
    // The plan is made before the first await.
    drop(volumes::set_up(pod, with, &csi, Box::pin(std::future::pending())));
    let _: Rc<Csi> = csi;
}

/// All containers run.
fn observe(pod: &Pod) -> ObservedPod {
    let meta = &pod.metadata;
    let mut observed = ObservedPod::new(meta.uid.clone(), &meta.namespace, &meta.name);
    observed.sandboxes.push(ObservedSandbox {
        id: "s".to_owned(),
        attempt: 0,
        state: SandboxState::Ready,
        created_at: 1,
        host_network: pod.spec.host_network,
        ips: vec![IpAddr::from([10, 0, 0, 2])],
        pid: None,
    });
    let running = pod.spec.all_containers().enumerate().map(|(number, container)| {
        let state = ContainerState::Running { started_at: 1 };
        ObservedContainer::seen(&format!("id-{number}"), &container.name, "s", state)
    });
    observed.containers.extend(running);
    observed
}

fn plan(pod: &Pod, observed: &ObservedPod) {
    let input = SyncInput {
        observed: Some(observed),
        probed: &SortedMap::new(),
        held_until: &|_| None,
        resize_of: &|_, _, _| None,
        resizes_pod: false,
        groupless: None,
        to_restart: &[],
    };
    let mut backoff = RestartBackoff::new(Duration::from_secs(300));
    let planned = sync_input::plan(pod, &input, &mut backoff, Instant::now());
    drop(planned.replaced());
    drop(sync_input::restarts(pod, &planned, observed));
}

/// The status, and again after it was reported.
fn report(pod: &Pod, observed: &ObservedPod) {
    let mut previous: Option<PodStatus> = None;
    for second in 1..4 {
        let now = Time::from_unix_nanos(second * 1_000_000_000);
        let status = pod_status(&StatusInput {
            devices: &[],
            replaced: &[],
            pod,
            observed,
            previous: previous.as_ref(),
            waiting: &SortedMap::new(),
            backing_off: &[],
            probed: &SortedMap::new(),
            host_ips: &[],
            runtime_name: "x",
            now,
            ended: false,
            failed: None,
            resize: Resize::default(),
            recursive_read_only: None,
            actuated: None,
        });
        let shown = previous.as_ref().unwrap_or(&pod.status);
        let mut wanted = reported(shown, &status, true, now);
        drop(status_patch(shown, &wanted));
        wanted.conditions.iter_mut().for_each(|condition| condition.status = ConditionStatus::True);
        previous = Some(wanted);
    }
}

/// The time of each step for a pod of `size` entries, the best of several.
fn measure(pod: &dyn Fn(usize) -> Value, size: usize, runs: usize) -> Vec<(&'static str, Duration)> {
    let object = pod(size);
    let mut best = times(&object);
    for _ in 1..runs {
        for (best, time) in best.iter_mut().zip(times(&object)) {
            best.1 = best.1.min(time.1);
        }
    }
    best
}

/// Processor time that a step may take for a pod of the largest size in a debug build, which is ten to thirty times
/// slower than a release: 100 ms there.
const LONGEST_STEP: Duration = Duration::from_secs(5);
/// What four times the entries may take, as a multiple. The sum is for clocks and caches.
const GROWTH: u32 = 5;
const NOISE: Duration = Duration::from_millis(4);

/// The steps whose work grows faster than the pod.
fn faults(name: &str, pod: &dyn Fn(usize) -> Value) -> Vec<String> {
    let small = size_of_small(pod);
    let mut found = Vec::new();
    for attempt in 0..3 {
        let (less, more) = (measure(pod, small, 2 + attempt), measure(pod, 4 * small, 2 + attempt));
        let grown = less.iter().zip(&more).filter(|((step, less), (_, more))| {
            !step.starts_with('(') && (*more > *less * GROWTH + NOISE || *more > LONGEST_STEP)
        });
        found = grown
            .map(|((step, less), (_, more))| {
                format!("{name}: {step} of {small} entries {less:?}, of four times {more:?}")
            })
            .collect();
        if found.is_empty() {
            return found;
        }
    }
    found
}

/// A quarter of what an API server takes, or what is quickly tried.
fn size_of_small(pod: &dyn Fn(usize) -> Value) -> usize {
    let (hundred, none) = (pod(100).to_string().len(), pod(0).to_string().len());
    let each = (hundred.saturating_sub(none) / 100).max(1);
    let largest = MAX_STORED_OBJECT_BYTES / each / 4;
    if is_full() { largest } else { largest.min(500) }
}

fn base() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "ns", "uid": "u"},
        "spec": {"nodeName": "n", "containers": [{"name": "a", "image": "b"}]}
    })
}

/// A pod with `value` in this field. Missing parents are created.
fn with_field(path: &[Step], value: Value) -> Value {
    let mut pod = base();
    let mut at = &mut pod;
    for step in path {
        at = match step {
            Step::Key(key) => {
                if !at.is_object() {
                    *at = json!({});
                }
                at.as_object_mut().unwrap().entry(key.clone()).or_insert(Value::Null)
            }
            Step::First => {
                if !at.is_array() {
                    *at = json!([{"name": "x"}]);
                }
                &mut at.as_array_mut().unwrap()[0]
            }
        };
    }
    *at = value;
    pod
}

/// The value of a field in entry `number` of a list, distinct for each.
fn distinct(kind: Kind, key: &str, number: usize) -> Option<Value> {
    let text = match key {
        "mountPath" | "devicePath" => format!("/m/{number}"),
        "ip" => format!("10.{}.{}.{}", number >> 16 & 255, number >> 8 & 255, number & 255),
        "image" => "b".to_owned(),
        // In descending order, which is the slowest for sorted lists.
        _ => format!("x{:07}", 9_999_999 - number),
    };
    match kind {
        Kind::Text => Some(Value::from(text)),
        Kind::Int32 if key == "containerPort" || key == "hostPort" => Some(json!(number % 65_535 + 1)),
        Kind::Int32 | Kind::Int64 => Some(json!(number)),
        Kind::IntOrText => Some(json!(number)),
        Kind::Quantity => Some(json!("1")),
        Kind::Words(words) => words.first().map(|word| json!(word)),
        Kind::Any | Kind::Bool | Kind::List | Kind::Map | Kind::Object | Kind::Time => None,
    }
}

const IDENTITY: [&str; 14] = [
    "name",
    "key",
    "path",
    "mountPath",
    "devicePath",
    "image",
    "ip",
    "conditionType",
    "type",
    "topologyKey",
    "containerPort",
    "hostPort",
    "operator",
    "value",
];

/// A pod in which the list or map `field` has `count` entries; `None` for other fields.
fn large(field: &Field, all: &[Field], count: usize) -> Option<Value> {
    let depth = field.path.len();
    let inside = |child: &&Field| child.path.len() > depth && child.path.starts_with(&field.path);
    match field.kind {
        Kind::Map => {
            let value = all.iter().find(|child| inside(child) && child.path.len() == depth + 1);
            let value = |number| value.and_then(|child| distinct(child.kind, "", number)).unwrap_or(json!({}));
            let entries: Map<String, Value> =
                (0..count).map(|number| (format!("k{:07}", 9_999_999 - number), value(number))).collect();
            Some(with_field(&field.path, entries.into()))
        }
        Kind::List => {
            let element = all.iter().find(|child| inside(child) && child.path.len() == depth + 1)?;
            let children: Vec<&Field> =
                all.iter().filter(inside).filter(|child| child.path.len() == depth + 2).collect();
            let entry = |number: usize| match element.kind {
                Kind::Object => {
                    let named = children.iter().filter_map(|child| {
                        let Some(Step::Key(key)) = child.path.last() else { return None };
                        let value = IDENTITY.contains(&key.as_str()).then(|| distinct(child.kind, key, number))??;
                        Some((key.clone(), value))
                    });
                    Value::Object(named.collect())
                }
                Kind::Any => json!({"name": format!("x{:07}", 9_999_999 - number), "resourceClaimName": "c"}),
                kind => distinct(kind, "", number).unwrap_or(json!({})),
            };
            Some(with_field(&field.path, (0..count).map(entry).collect()))
        }
        Kind::Any
        | Kind::Bool
        | Kind::Int32
        | Kind::Int64
        | Kind::IntOrText
        | Kind::Object
        | Kind::Quantity
        | Kind::Text
        | Kind::Time
        | Kind::Words(_) => None,
    }
}

/// Each list and map of a pod. The three kinds of containers have the same fields.
#[test]
fn work_for_each_list_and_map_of_a_pod_grows_with_its_size() {
    let all = fields_of::<Pod>();
    let again = |field: &&Field| {
        let path = field.written();
        ["spec.initContainers[0].", "spec.ephemeralContainers[0].", "metadata.managedFields"]
            .iter()
            .any(|other| path.starts_with(other))
    };
    let (mut tried, mut refused) = (0, Vec::new());
    let mut found = Vec::new();
    for field in all.iter().filter(|field| is_full() || !again(field)) {
        let Some(one) = large(field, &all, 1) else { continue };
        tried += 1;
        if decode::<Pod>(one).is_err() {
            refused.push(field.written());
        }
        found.extend(faults(&field.written(), &|count| large(field, &all, count).unwrap()));
    }
    eprintln!("{tried} lists and maps, not decoded: {refused:?}");
    assert!(tried > 60 && refused.len() < tried / 10, "{tried}");
    assert!(found.is_empty(), "{}", found.join("\n"));
}

fn with_spec(fields: Value) -> Value {
    let mut pod = base();
    let Value::Object(fields) = fields else { panic!() };
    for (key, value) in fields {
        match pod["spec"].get_mut(&key) {
            // The first container gets the fields of the first one given.
            Some(Value::Array(known)) if key == "containers" => {
                let mut given = value.as_array().unwrap().iter().cloned();
                let first = given.next().unwrap_or(json!({}));
                known[0].as_object_mut().unwrap().extend(first.as_object().unwrap().clone());
                known.extend(given);
            }
            _ => pod["spec"][key] = value,
        }
    }
    pod
}

fn list(count: usize, entry: impl Fn(usize) -> Value) -> Value {
    (0..count).map(entry).collect()
}

type Shape = (&'static str, fn(usize) -> Value);

/// Two fields that some code multiplies.
const PAIRS: &[Shape] = &[
    ("volumes and mounts", |count| {
        with_spec(json!({
            "volumes": list(count, |n| json!({"name": format!("v{n}"), "configMap": {"name": "m", "optional": true}})),
            "containers": [{"volumeMounts": list(count, |n| json!({"name": format!("v{n}"), "mountPath": format!("/m/{n}")}))}],
        }))
    }),
    ("mounts inside each other", |count| {
        with_spec(json!({
            "volumes": [{"name": "v", "emptyDir": {}}, {"name": "c", "configMap": {"name": "m", "optional": true}}],
            "containers": [{"volumeMounts": list(count, |n| {
                json!({"name": if n == 0 { "c" } else { "v" }, "mountPath": if n == 0 { "/m".to_owned() } else { format!("/m/{n}") }})
            })}],
        }))
    }),
    ("volumes and containers", |count| {
        with_spec(json!({
            "volumes": list(count, |n| json!({"name": format!("v{n}"), "secret": {"secretName": "m", "optional": true}})),
            "containers": list(count, |n| {
                json!({"name": format!("c{n}"), "image": "b", "volumeMounts": [{"name": format!("v{n}"), "mountPath": "/m"}]})
            }),
        }))
    }),
    ("variables that refer to each other", |count| {
        with_spec(json!({"containers": [{
            "env": list(count, |n| json!({"name": format!("E{:07}", 9_999_999 - n), "value": format!("$(E{:07})", 9_999_999)})),
        }]}))
    }),
    ("variables and references in arguments", |count| {
        with_spec(json!({"containers": [{
            "env": list(count, |n| json!({"name": format!("E{n}"), "value": ""})),
            "args": [(0..count).map(|n| format!("$(E{n})")).collect::<String>()],
            "command": ["$(".repeat(count * 4)],
        }]}))
    }),
    ("fields of other containers in variables", |count| {
        let field = |n: usize| json!({"containerName": format!("c{n}"), "resource": "limits.memory"});
        with_spec(json!({
            "initContainers": list(count, |n| json!({"name": format!("c{n}"), "image": "b"})),
            "containers": [{"env": list(count, |n| json!({"name": format!("E{n}"), "valueFrom": {"resourceFieldRef": field(n)}}))}],
        }))
    }),
    ("fields of containers in files", |count| {
        let field = |n: usize| json!({"containerName": format!("c{n}"), "resource": "limits.memory"});
        with_spec(json!({
            "containers": list(count, |n| json!({"name": if n == 0 { "a".to_owned() } else { format!("c{n}") }, "image": "b",
                "volumeMounts": [{"name": "d", "mountPath": "/d"}]})),
            "volumes": [{"name": "d", "downwardAPI": {"items": list(count, |n| {
                json!({"path": format!("p{:07}", 9_999_999 - n), "resourceFieldRef": field(n.max(1))})
            })}}],
        }))
    }),
    ("annotations in files", |count| {
        let mut pod = with_spec(json!({
            "containers": [{"volumeMounts": [{"name": "d", "mountPath": "/d"}]}],
            "volumes": [{"name": "d", "downwardAPI": {"items": list(count, |n| {
                json!({"path": format!("p{:07}", 9_999_999 - n), "fieldRef": {"fieldPath": "metadata.annotations"}})
            })}}],
        }));
        pod["metadata"]["annotations"] = json!({"a": "x".repeat(count * 20)});
        pod
    }),
    ("tokens and containers", |count| {
        with_spec(json!({
            "containers": list(count, |n| json!({"name": if n == 0 { "a".to_owned() } else { format!("c{n}") }, "image": "b",
                "securityContext": {"runAsUser": 1}, "volumeMounts": [{"name": "t", "mountPath": "/d"}]})),
            "volumes": [{"name": "t", "projected": {"sources": list(count, |n| {
                json!({"serviceAccountToken": {"path": format!("p{n}"), "audience": format!("a{n}")}})
            })}}],
        }))
    }),
    ("containers and their statuses", |count| {
        let status =
            |n: usize| json!({"name": format!("c{n}"), "image": "b", "imageID": "", "ready": false, "restartCount": 0});
        let mut pod = with_spec(json!({"containers": list(count, |n| {
            json!({"name": if n == 0 { "a".to_owned() } else { format!("c{n}") }, "image": "b"})
        })}));
        pod["status"] = json!({"containerStatuses": list(count, status)});
        pod
    }),
    ("readiness gates and conditions", |count| {
        let mut pod =
            with_spec(json!({"readinessGates": list(count, |n| json!({"conditionType": format!("x/c{n}")}))}));
        pod["status"] =
            json!({"conditions": list(count, |n| json!({"type": format!("x/c{}", count - n - 1), "status": "True"}))});
        pod
    }),
    ("resource claims and their statuses", |count| {
        let mut pod = with_spec(json!({"resourceClaims": list(count, |n| {
            json!({"name": format!("r{n}"), "resourceClaimTemplateName": "t"})
        })}));
        pod["status"] = json!({"resourceClaimStatuses": list(count, |n| {
            json!({"name": format!("r{}", count - n - 1), "resourceClaimName": format!("c{n}")})
        })});
        pod
    }),
    ("host ports", |count| {
        with_spec(json!({"containers": [{"ports": list(count, |n| {
            json!({"containerPort": 1, "hostPort": n % 65_535 + 1, "hostIP": format!("10.0.0.{}", n >> 16)})
        })}]}))
    }),
    ("extended resources and containers", |count| {
        let named = |n: usize| if n == 0 { "a".to_owned() } else { format!("c{n}") };
        with_spec(json!({"containers": list(count, |n| {
            json!({"name": named(n), "image": "b", "resources": {"limits": {format!("x.io/r{n}"): "1"}}})
        })}))
    }),
    ("tolerations of one taint", |count| {
        with_spec(
            json!({"tolerations": list(count, |n| json!({"key": format!("k{n}"), "operator": "Exists", "effect": "NoExecute"}))}),
        )
    }),
    ("node affinity", |count| {
        let term =
            |n: usize| json!({"matchExpressions": [{"key": format!("k{n}"), "operator": "In", "values": ["v"]}]});
        let terms = json!({"nodeSelectorTerms": list(count, term)});
        with_spec(json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}))
    }),
    ("huge pages volumes and containers", |count| {
        with_spec(json!({
            "volumes": list(count, |n| json!({"name": format!("v{n}"), "emptyDir": {"medium": "HugePages"}})),
            "containers": list(count, |n| json!({"name": if n == 0 { "a".to_owned() } else { format!("c{n}") }, "image": "b",
                "resources": {"limits": {"hugepages-2Mi": "2Mi", "memory": "1"}, "requests": {"hugepages-2Mi": "2Mi"}},
                "volumeMounts": [{"name": format!("v{n}"), "mountPath": "/v"}]})),
        }))
    }),
    ("restart rules and exit codes", |count| {
        with_spec(json!({"containers": [{"restartPolicy": "Never", "restartPolicyRules": list(count, |n| {
            json!({"action": "Restart", "exitCodes": {"operator": "In", "values": [n]}})
        })}]}))
    }),
];

#[test]
fn work_for_pairs_of_large_fields_grows_with_their_size() {
    let found: Vec<String> = PAIRS.iter().flat_map(|(name, pod)| faults(name, pod)).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Otherwise the tests above could not fail.
#[test]
fn work_that_grows_with_the_square_is_found() {
    let square = |count: u64| {
        (0..count * 4).flat_map(|one| (0..count).map(move |other| std::hint::black_box(one ^ other))).sum::<u64>()
    };
    let time = |count| {
        let begun = cpu();
        std::hint::black_box(square(count));
        cpu() - begun
    };
    let best = |count| (0..3).map(|_| time(count)).min().unwrap();
    assert!(best(2000) > best(500) * GROWTH + NOISE);
}
