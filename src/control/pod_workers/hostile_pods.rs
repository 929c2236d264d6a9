//! Pods that make one list, map or text of the API as large as an API server stores it, or two that some code
//! multiplies. The work for each must grow with the size of the pod, not with its square.
//!
//! The fields come from the API types, so a new field is tried by itself. `CORACLE_HOSTILE_MINUTES` makes the pods as
//! large as an API server takes, and prints the slowest step of each; by default they have hundreds of entries.

pub(crate) mod shapes;

use std::net::IpAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use shapes::{PAIRS, large};

use super::restart_backoff::RestartBackoff;
use super::sync_input::{self, SyncInput};
use crate::kubelet::admission::Admission;
use crate::kubelet::csi::Csi;
use crate::kubelet::kuberuntime::golden;
use crate::kubelet::probes::probe_command;
use crate::kubelet::status::{
    PodHealth, PodSituation, Resize, StatusInput, pod_health, pod_status, reported, status_patch,
};
use crate::kubelet::volumes::{self, SetUpInputs};
use crate::platform::config::Config;
use crate::platform::rt::processor_time as cpu;
use crate::state::objects::{ObjectEvent, Objects, Topic, references};
use crate::state::pods::{ContainerState, ObservedContainer, ObservedPod, ObservedSandbox, PodDirs, SandboxState};
use crate::types::api::fields::{Field, fields_of};
use crate::types::api::validation::validate_pod;
use crate::types::api::{
    ConditionStatus, Pod, PodStatus, ProbeHandler, ResourceList, Time, container_hash, decode, defaults, encode,
};
use crate::types::sorted::{SortedMap, steps};

/// Bytes that an API server stores of an object.
const MAX_STORED_OBJECT_BYTES: usize = 1_500_000;

pub(crate) fn is_full() -> bool {
    std::env::var_os("CORACLE_HOSTILE_MINUTES").is_some()
}

/// The work for a pod in a step on its way through the agent. A name in parentheses is of the test.
struct Step {
    name: &'static str,
    /// Processor time.
    time: Duration,
    /// Entries that sorted maps and sets compare and move.
    moves: usize,
}

fn steps_of(object: &Value) -> Vec<Step> {
    let mut steps = Vec::new();
    let (mut last, mut moved) = (cpu(), steps::all());
    let mut step = |name| {
        let (time, moves) = (cpu() - last, steps::all() - moved);
        steps.push(Step { name, time, moves });
        (last, moved) = (cpu(), steps::all());
    };
    let bytes = object.to_string();
    step("(text)");
    let object: Value = serde_json::from_str(&bytes).unwrap();
    step("(parse)");
    let Ok(decoded) = decode::<Pod>(object) else { return steps };
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
    golden::report_everything(&pod);
    step("configurations");
    expand_probe_commands(&pod);
    step("probe commands");
    golden::stop_everything(&pod);
    step("stop");
    let resized = golden::resized(&pod);
    step("(resized pods)");
    assert!(golden::can_resize(&resized));
    step("resize");
    drop(resized);
    step("(end of the resized pods)");
    std::hint::black_box(pod.spec.all_containers().map(container_hash).fold(0, u32::wrapping_add));
    step("hash");
    let observed = observe(&pod);
    step("(observation)");
    golden::list_everything(&observed);
    step("lists");
    plan(&pod, &observed);
    step("plan");
    report(&pod, &observed);
    step("status");
    drop(encode(&pod).to_string());
    step("encode");
    steps
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

fn expand_probe_commands(pod: &Pod) {
    for container in pod.spec.all_containers() {
        for probe in [&container.liveness_probe, &container.readiness_probe].into_iter().flatten() {
            if let ProbeHandler::Exec(action) = &probe.handler {
                let _ = std::hint::black_box(probe_command(container, action));
            }
        }
    }
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
        has_address: true,
        pid: None,
    });
    let running = pod.spec.all_containers().zip(1_u64..).map(|(container, number)| {
        let state = ContainerState::Running { started_at: 1 };
        // In no order, as those of runtimes: sorted runs would make some sizes less work than others.
        let id = format!("{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        ObservedContainer::seen(&id, &container.name, "s", state)
    });
    observed.containers.extend(running);
    observed
}

fn plan(pod: &Pod, observed: &ObservedPod) {
    let input = SyncInput {
        observed: Some(observed),
        probed: &SortedMap::new(),
        held_until: &|_| None,
        resizes: &SortedMap::new(),
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
            shows_sandbox: true,
            own_conditions: &[],
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
        let situation = PodSituation { pod, status: &status, warnings: &[], unreplaced_since: None, now };
        assert!(!matches!(pod_health(situation), PodHealth::Done));
        wanted.conditions.iter_mut().for_each(|condition| condition.status = ConditionStatus::True);
        previous = Some(wanted);
    }
}

/// The steps for a pod of `size` entries, with the best time of several.
fn measure(pod: &dyn Fn(usize) -> Value, size: usize, runs: usize) -> Vec<Step> {
    let object = pod(size);
    let mut best = steps_of(&object);
    for _ in 1..runs {
        for (best, step) in best.iter_mut().zip(steps_of(&object)) {
            best.time = best.time.min(step.time);
        }
    }
    best
}

/// Processor time that a step may take for a pod of the largest size in a debug build, which is ten to thirty times
/// slower than a release: 100 ms there.
const MAX_DEBUG_STEP: Duration = Duration::from_secs(5);
/// What four times the entries may take, as a multiple.
const MAX_STEP_FACTOR: usize = 5;
const STEP_MOVES_NOISE: usize = 1000;

/// For clocks and caches. The allocator takes the pages of the largest pods from the kernel, and returns them.
fn step_time_noise() -> Duration {
    Duration::from_millis(if is_full() { 100 } else { 4 })
}

/// The steps whose work grows faster than the pod.
fn faults(name: &str, pod: &dyn Fn(usize) -> Value) -> Vec<String> {
    let small = size_of_small(pod);
    let mut found = Vec::new();
    for attempt in 0..5 {
        let (less, more) = (measure(pod, small, 2 + attempt), measure(pod, 4 * small, 2 + attempt));
        let pairs = less.iter().zip(&more).filter(|(less, _)| !less.name.starts_with('('));
        found = pairs.filter_map(|(less, more)| fault(less, more)).collect();
        if is_full() {
            let of_agent = more.iter().filter(|step| !step.name.starts_with('('));
            if let Some(Step { name: step, time, moves }) = of_agent.max_by_key(|step| step.time) {
                println!("{name}: {} entries, {step} takes {time:?} and moves {moves} entries", 4 * small);
            }
        }
        found.iter_mut().for_each(|found| *found = format!("{name}, {small} entries and four times: {found}"));
        if found.is_empty() {
            return found;
        }
    }
    found
}

/// What has grown too fast in a step, from a pod to one with four times the entries.
fn fault(less: &Step, more: &Step) -> Option<String> {
    let max_time = less.time * u32::try_from(MAX_STEP_FACTOR).unwrap() + step_time_noise();
    if more.time > max_time.min(MAX_DEBUG_STEP) {
        return Some(format!("{} takes {:?} and {:?}", more.name, less.time, more.time));
    }
    let max_moves = less.moves * MAX_STEP_FACTOR + STEP_MOVES_NOISE;
    (more.moves > max_moves).then(|| format!("{} moves {} and {} entries", more.name, less.moves, more.moves))
}

/// A pod with so many entries.
type PodOfSize<'a> = Box<dyn Fn(usize) -> Value + Sync + 'a>;

/// [`faults`] of all of these, several at once: each has the processor time of its own thread.
fn faults_of_all(pods: &[(String, PodOfSize)]) -> Vec<String> {
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some((name, pod)) = pods.get(next.fetch_add(1, Ordering::Relaxed)) {
            let faults = faults(name, pod);
            found.lock().unwrap().extend(faults);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    found.into_inner().unwrap()
}

/// A quarter of what an API server takes, or what is quickly tried.
fn size_of_small(pod: &dyn Fn(usize) -> Value) -> usize {
    let (hundred, none) = (pod(100).to_string().len(), pod(0).to_string().len());
    let each = (hundred.saturating_sub(none) / 100).max(1);
    let largest = MAX_STORED_OBJECT_BYTES / each / 4;
    if is_full() { largest } else { largest.min(500) }
}

/// Whether other containers have the same field.
pub(crate) fn is_repeated(field: &Field) -> bool {
    let path = field.written();
    ["spec.initContainers[0].", "spec.ephemeralContainers[0].", "metadata.managedFields"]
        .iter()
        .any(|other| path.starts_with(other))
}

/// Each list, map and text of a pod.
#[test]
fn work_for_each_list_map_and_text_of_a_pod_grows_with_its_size() {
    let all = fields_of::<Pod>();
    let mut pods: Vec<(String, PodOfSize)> = Vec::new();
    let mut refused = Vec::new();
    for field in all.iter().filter(|field| is_full() || !is_repeated(field)) {
        let Some(one) = large(field, &all, 1) else { continue };
        if decode::<Pod>(one).is_err() {
            refused.push(field.written());
        }
        pods.push((field.written(), Box::new(|count| large(field, &all, count).unwrap())));
    }
    eprintln!("{} lists, maps and texts, not decoded: {refused:?}", pods.len());
    assert!(pods.len() > 300 && refused.len() < pods.len() / 10, "{}", pods.len());
    let found = faults_of_all(&pods);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn work_for_pairs_of_large_fields_grows_with_their_size() {
    let pods: Vec<(String, PodOfSize)> =
        PAIRS.iter().map(|(name, pod)| ((*name).to_owned(), Box::new(pod) as PodOfSize)).collect();
    let found = faults_of_all(&pods);
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
    let best = |count| Step { name: "", time: (0..3).map(|_| time(count)).min().unwrap(), moves: 0 };
    // Longer than the noise of the times.
    let small = if is_full() { 5_000 } else { 500 };
    assert!(fault(&best(small), &best(4 * small)).is_some());
}
