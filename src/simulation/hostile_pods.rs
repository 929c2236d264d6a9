//! Pods with one field, or two, of any size, on a whole node: their work grows with their size, no turn of the executor
//! is long, and the lease and the pods beside them do not suffer.
//!
//! By default these are some pairs of fields with hundreds of entries. `CORACLE_HOSTILE_MINUTES` takes all pairs, and
//! every list and map of the API types, with 2000. `CORACLE_HOSTILE_SHAPE` takes those with this in the name,
//! `CORACLE_HOSTILE_ENTRIES` so many entries.

use std::time::Duration;

use serde_json::{Value, json};

use super::api_server::NODE;
use super::life::{Node, less};
use super::peak_memory::{PeakMemory, has_own_process};
use super::plan::Plan;
use super::record::Lines;
use super::wanted::{Pod, REVISION, Source, Traits};
use crate::control::pod_workers::hostile_pods::{is_full, is_repeated, shapes};
use crate::platform::rt::{self, FutureFigures, TurnFigures, simulate};
use crate::types::api::Pod as ApiPod;
use crate::types::api::fields::{Field, Kind, fields_of};

/// A pod, and the objects that it refers to.
pub(super) struct Hostile {
    pub(super) pod: Value,
    /// Created before the pod, and deleted after it.
    pub(super) objects: Vec<Value>,
    /// Merge patches of objects that the cluster has, by their paths.
    pub(super) patches: Vec<(String, Value)>,
}

impl From<Value> for Hostile {
    fn from(pod: Value) -> Self {
        Self { pod, objects: Vec::new(), patches: Vec::new() }
    }
}

impl Hostile {
    fn bytes(&self) -> usize {
        let patches = self.patches.iter().map(|(_, patch)| patch);
        [&self.pod].into_iter().chain(&self.objects).chain(patches).map(|object| object.to_string().len()).sum()
    }
}

/// What is hostile with this many entries.
pub(super) type Shape = Box<dyn Fn(usize) -> Hostile + Send>;

/// Within this time every honest pod runs, also one that comes after the hostile pod.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Within this time nothing is left of a deleted pod.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(300);
/// Entries that have containers of their own, in each check and of all pairs: each takes many calls of the runtime.
const CHECKED_CONTAINERS: usize = 48;
const ALL_CONTAINERS: usize = 100;

/// Pairs of fields in each check: the peers of the node take most of the time.
const CHECKED_PAIRS: usize = 5;

/// How a pod went through the agent.
struct Passage {
    bytes: usize,
    figures: TurnFigures,
    /// Growth of the process's memory at most, with the peers of the node.
    memory: usize,
    /// Calls of the runtime, most of which are for this pod.
    calls: u64,
    /// What the API server shows of it.
    phase: String,
}

impl Node {
    /// Makes the object a wanted pod of the node.
    fn want_object(&mut self, object: &mut Value) -> (Pod, String) {
        self.names += 1;
        let pod = Pod { name: format!("hostile-{}", self.names), source: Source::Api, traits: Traits::default() };
        let revision = self.wanted.borrow_mut().add(pod.clone());
        if resource_bytes(object) > MAX_RECORDED_RESOURCE_BYTES {
            self.wanted.borrow_mut().left_out.insert(revision.clone());
        }
        object["metadata"]["name"] = json!(pod.name);
        object["metadata"]["namespace"] = json!("default");
        object["metadata"]["labels"][REVISION] = json!(revision);
        object["spec"]["nodeName"] = json!(NODE);
        object["spec"]["serviceAccountName"] = json!("default");
        object["spec"]["terminationGracePeriodSeconds"] = json!(1);
        (pod, revision)
    }

    /// Creates the pod, and another one after it. Measures until the other pods run.
    async fn suffer(&mut self, mut hostile: Hostile) -> Result<Passage, String> {
        let (pod, revision) = self.want_object(&mut hostile.pod);
        let (bytes, memory) = (hostile.bytes(), PeakMemory::begin());
        let (calls_before, counts) = (self.runtime.calls.borrow().clone(), self.record.counts());
        self.world.turns.is_on.set(true);
        self.world.turns.take();
        self.api.change(|server| {
            hostile.objects.iter().for_each(|object| drop(server.create(object)));
            hostile.patches.iter().for_each(|(path, patch)| drop(server.patch(path, patch)));
            server.create(&hostile.pod);
        });
        self.create_pod(Traits::default());
        let begun = self.world.passed();
        let done = loop {
            rt::sleep(Duration::from_secs(1)).await;
            self.api.lease.check();
            if let Some(violation) = self.record.violation() {
                break Err(format!("{:?}: {}", violation.rule, violation.detail));
            }
            let honest = self.wanted.borrow().pods.clone();
            let mut honest = honest.iter().filter(|(other, _)| **other != revision);
            let runs = honest.try_for_each(|(revision, pod)| self.runs(revision, pod));
            if self.world.passed().saturating_sub(begun) >= START_TIMEOUT {
                break runs.map_err(|what| format!("a pod beside it: {what}"));
            }
        };
        let busiest = self.world.turns.busiest();
        let figures = self.world.turns.take();
        let by_method = less(&self.runtime.calls.borrow(), &calls_before);
        let calls = by_method.values().sum();
        if std::env::var_os("CORACLE_HOSTILE_SHAPE").is_some() {
            for (future, FutureFigures { turns, all, longest }) in busiest.iter().take(12) {
                println!("  {all:?} in {turns} turns, longest {longest:?}: {future}");
            }
            println!("  calls of the runtime: {by_method:?}");
            println!("  counts: {:?}", less(&self.record.counts(), &counts));
        }
        let status = self.api.look(|server| server.get(&pod.path())).unwrap_or_default()["status"].clone();
        let phase = [&status["phase"], &status["reason"], &status["message"]].map(|text| text.as_str().unwrap_or("-"));
        let passage = Passage { bytes, figures, memory: memory.growth(), calls, phase: phase.join(" ") };
        self.end(&pod).await?;
        self.api.change(|server| {
            hostile.objects.iter().for_each(|object| server.delete(&path_of(object), Some(0)));
            hostile.patches.iter().for_each(|(path, patch)| drop(server.patch(path, &undone(patch))));
        });
        done.map(|()| passage)
    }

    /// Deletes the pod and all others, and waits until they are gone.
    async fn end(&self, pod: &Pod) -> Result<(), String> {
        let all = std::mem::take(&mut self.wanted.borrow_mut().pods);
        for other in all.values() {
            self.api.change(|server| server.delete(&other.path(), Some(1)));
        }
        let begun = self.world.passed();
        while self.api.look(|server| !server.list("/api/v1/pods").is_empty()) {
            if self.world.passed().saturating_sub(begun) > REMOVAL_TIMEOUT {
                return Err(format!("{} or a pod beside it is not gone", pod.name));
            }
            rt::sleep(Duration::from_secs(1)).await;
        }
        Ok(())
    }
}

/// As JSON. Requests default to the limits, and the checkpoint has the text in a string.
fn resource_bytes(pod: &Value) -> usize {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    containers.map(|container| container["resources"].to_string().len()).sum()
}

/// The path of an object of the core group in its namespace.
fn path_of(object: &Value) -> String {
    let [kind, name] = [&object["kind"], &object["metadata"]["name"]].map(|text| text.as_str().unwrap_or_default());
    format!("/api/v1/namespaces/default/{}s/{name}", kind.to_lowercase())
}

/// The merge patch that removes what another one has added.
fn undone(patch: &Value) -> Value {
    match patch {
        Value::Object(fields) => fields.iter().map(|(key, value)| (key.clone(), undone(value))).collect(),
        _ => Value::Null,
    }
}

/// A node's life with each of these in turn.
fn live_with(all: Vec<Hostile>) -> Vec<Result<Passage, String>> {
    let lived = simulate(4, move |world| async move {
        let plan = Plan { seed: 4, lease: Duration::from_secs(40), episodes: Vec::new() };
        let mut node = Node::new(&world, &plan, Lines::default());
        let mut lived = Vec::new();
        for hostile in all {
            node.create_pod(Traits { secret: true, token: true, ..Traits::default() });
            node.create_pod(Traits { probe: true, side: true, ..Traits::default() });
            node.recover().await;
            let passage = node.suffer(hostile).await;
            let failed = passage.is_err();
            lived.push(passage);
            if failed {
                break;
            }
        }
        lived
    });
    lived.unwrap_or_else(|stuck| vec![Err(stuck.to_string())])
}

/// What certainly fits into the 64 KiB that the checkpoint of allocations has for a pod.
const MAX_RECORDED_RESOURCE_BYTES: usize = 20 << 10;

/// The image exists on the node.
pub(super) fn with_image(pod: &Value) -> Value {
    let image = r#""image":"busybox","imagePullPolicy":"IfNotPresent""#;
    serde_json::from_str(&pod.to_string().replace(r#""image":"b""#, image)).unwrap()
}

/// Processor time that four times the entries may take, as a multiple, and the same for any pod.
const MAX_TIME_FACTOR: u32 = 5;
const CONSTANT_TIME: Duration = Duration::from_millis(150);
/// Longest turn of an unoptimized build, which is ten to thirty times slower than a release.
const MAX_DEBUG_TURN: Duration = Duration::from_millis(500);
/// Memory of the process for any pod, and for each byte of it, most of which the peers take: the API server keeps every
/// version of an object. Fields that multiply have taken gigabytes.
const CONSTANT_MEMORY_BYTES: usize = 128 << 20;
const MEMORY_BYTES_PER_BYTE: usize = 256;

fn containers(pod: &Value) -> usize {
    pod.to_string().matches("\"image\":\"").count()
}

/// Entries of pods of this shape.
fn entries(shape: &Shape) -> usize {
    let has_containers = containers(&shape(8).pod) > 4;
    match (has_containers, is_full()) {
        (true, true) => ALL_CONTAINERS,
        (true, false) => CHECKED_CONTAINERS,
        (false, true) => 2000,
        (false, false) => 600,
    }
}

/// What is wrong with a shape of `most` entries.
pub(super) fn faults(name: &str, shape: &Shape, most: usize) -> Vec<String> {
    let entries = std::env::var("CORACLE_HOSTILE_ENTRIES").ok();
    let most = entries.map_or(most, |entries| entries.parse().unwrap());
    let mut found = Vec::new();
    for _ in 0..3 {
        found.clear();
        let lived = live_with(vec![shape(most / 4), shape(most)]);
        let mut passed = Vec::new();
        for (size, passage) in [most / 4, most].into_iter().zip(lived) {
            match passage {
                Ok(Passage { bytes, figures, memory, calls, phase }) => {
                    println!(
                        "{name}: {size} entries, {bytes} bytes: {:?}, longest turn {:?} ({}), pools {:?}, {calls} calls, \
                         {} KiB of memory; {phase}",
                        figures.all,
                        figures.longest,
                        figures.whose,
                        figures.pools,
                        memory >> 10
                    );
                    if memory > CONSTANT_MEMORY_BYTES + MEMORY_BYTES_PER_BYTE * bytes {
                        found.push(format!("{name}: {} KiB with {size} entries, {bytes} bytes", memory >> 10));
                    }
                    passed.push((figures, calls));
                }
                Err(what) => found.push(format!("{name}: {size} entries: {what}")),
            }
        }
        if let [(less, less_calls), (more, more_calls)] = passed[..] {
            if more_calls > less_calls * u64::from(MAX_TIME_FACTOR) {
                found.push(format!("{name}: {less_calls} calls with {} entries, {more_calls} with {most}", most / 4));
            }
            if more.all > less.all * MAX_TIME_FACTOR + CONSTANT_TIME {
                found.push(format!("{name}: {:?} with {} entries, {:?} with {most}", less.all, most / 4, more.all));
            }
            if more.longest > MAX_DEBUG_TURN {
                found.push(format!("{name}: a turn of {:?} with {most} entries: {}", more.longest, more.whose));
            }
        }
        if found.is_empty() {
            break;
        }
        println!("{}", found.join("\n"));
    }
    found
}

/// Hostile pods alone.
fn of_pods(shape: impl Fn(usize) -> Value + Send + 'static) -> Shape {
    Box::new(move |count| with_image(&shape(count)).into())
}

/// Lists and maps that a tenant decides, except those that keep a pod from being created or deleted. A hook that fails
/// stops its container. Fields of init and ephemeral containers are read by the code for all containers, and each text by
/// the steps that [`crate::control::pod_workers::hostile_pods`] takes: most of them the API server limits.
fn is_tried(field: &Field) -> bool {
    let path = field.written();
    let is_large = matches!(field.kind, Kind::List | Kind::Map);
    let is_left_out = path.starts_with("status") || path == "metadata.finalizers" || path.contains(".lifecycle.");
    is_large && !is_repeated(field) && !is_left_out
}

#[test]
fn hostile_pods_take_time_in_proportion_and_no_other_pod_suffers() {
    if !has_own_process("simulation::hostile_pods::hostile_pods_take_time_in_proportion_and_no_other_pod_suffers") {
        return;
    }
    let only = std::env::var("CORACLE_HOSTILE_SHAPE").unwrap_or_default();
    let mut all: Vec<(String, Shape)> =
        shapes::PAIRS.iter().map(|(name, shape)| ((*name).to_owned(), of_pods(shape))).collect();
    let fields = fields_of::<ApiPod>();
    if is_full() {
        for field in fields.iter().filter(|field| is_tried(field)) {
            let (one, fields) = (field.clone(), fields.clone());
            all.push((field.written(), of_pods(move |count| shapes::large(&one, &fields, count).unwrap_or_default())));
        }
    }
    all.retain(|(name, _)| name.contains(&only));
    if !is_full() && only.is_empty() {
        all.truncate(CHECKED_PAIRS);
    }
    let found: Vec<String> = all.iter().flat_map(|(name, shape)| faults(name, shape, entries(shape))).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// An API server keeps such a pod for ever if its deletion waits for its last status.
#[test]
fn pod_whose_status_the_api_server_cannot_store_is_deleted() {
    super::need_root();
    let ended = simulate(4, |world| async move {
        let plan = Plan { seed: 4, lease: Duration::from_secs(40), episodes: Vec::new() };
        let mut node = Node::new(&world, &plan, Lines::default());
        node.recover().await;
        let shape =
            shapes::PAIRS.iter().find(|(name, _)| *name == "fields of other containers in variables").unwrap().1;
        let mut object = with_image(&shape(100));
        let (pod, _) = node.want_object(&mut object);
        let mut stored = node.api.change(|server| server.create(&object));
        // The server does without the managed fields rather than without the object.
        stored["metadata"]["managedFields"] = Value::Null;
        node.api.change(|server| server.set_largest_object(stored.to_string().len() + 500));
        rt::sleep(START_TIMEOUT).await;
        let status = node.api.look(|server| server.get(&pod.path())).unwrap()["status"].clone();
        assert_eq!(status["startTime"], Value::Null, "its status is stored");
        node.end(&pod).await?;
        node.record.violation().map_or(Ok(()), |violation| Err(violation.detail))
    });
    assert_eq!(ended.unwrap(), Ok(()));
}
