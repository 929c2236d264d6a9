//! Pods that make one list, map or text of the API as large as an API server stores it, or two that some code
//! multiplies. The work for each must grow with the size of the pod, not with its square.
//!
//! The fields come from the API types, so a new field is tried by itself. `CORACLE_HOSTILE_MINUTES` makes the pods as
//! large as an API server takes; by default they have hundreds of entries.

pub(crate) mod shapes;

use std::net::IpAddr;
use std::path::Path;
use std::rc::Rc;
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
use crate::types::sorted::SortedMap;

/// Bytes that an API server stores of an object.
const MAX_STORED_OBJECT_BYTES: usize = 1_500_000;

pub(crate) fn is_full() -> bool {
    std::env::var_os("CORACLE_HOSTILE_MINUTES").is_some()
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
const MAX_DEBUG_STEP: Duration = Duration::from_secs(5);
/// What four times the entries may take, as a multiple. The sum is for clocks and caches.
const MAX_STEP_TIME_FACTOR: u32 = 5;
const STEP_TIME_NOISE: Duration = Duration::from_millis(4);

/// The steps whose work grows faster than the pod.
fn faults(name: &str, pod: &dyn Fn(usize) -> Value) -> Vec<String> {
    let small = size_of_small(pod);
    let mut found = Vec::new();
    for attempt in 0..5 {
        let (less, more) = (measure(pod, small, 2 + attempt), measure(pod, 4 * small, 2 + attempt));
        let grown = less.iter().zip(&more).filter(|((step, less), (_, more))| {
            !step.starts_with('(') && (*more > *less * MAX_STEP_TIME_FACTOR + STEP_TIME_NOISE || *more > MAX_DEBUG_STEP)
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
    let (mut tried, mut refused) = (0, Vec::new());
    let mut found = Vec::new();
    for field in all.iter().filter(|field| is_full() || !is_repeated(field)) {
        let Some(one) = large(field, &all, 1) else { continue };
        tried += 1;
        if decode::<Pod>(one).is_err() {
            refused.push(field.written());
        }
        found.extend(faults(&field.written(), &|count| large(field, &all, count).unwrap()));
    }
    eprintln!("{tried} lists, maps and texts, not decoded: {refused:?}");
    assert!(tried > 300 && refused.len() < tried / 10, "{tried}");
    assert!(found.is_empty(), "{}", found.join("\n"));
}

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
    assert!(best(2000) > best(500) * MAX_STEP_TIME_FACTOR + STEP_TIME_NOISE);
}
