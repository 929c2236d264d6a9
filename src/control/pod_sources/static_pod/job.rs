//! Jobs of manifests. A document becomes one pod, the template with the Job's spec in an annotation, from which the
//! node makes the pods of the Job. Pure.

use serde_json::{Map, Value};

use super::workload::{MAX_REPLICAS, MAX_REPLICAS_BYTES, check_pods, fault, owner, owning_workload};
use super::workload_fields::{WorkloadKind, take_known_fields};
use super::{Fnv128a, Object, ObjectError, Origin, Warning, WorkloadPods, read, set_namespace, static_pod, valid};
use crate::types::api::annotations::{
    AUTO_UPDATE, CONFIG_HASH, CRON_JOB, JOB, KEEP_VERSIONS, NEEDS_MAINS, PULL_FIRST, READY_WITHIN,
};
use crate::types::api::validation::FieldError;
use crate::types::api::{
    self, CompletionMode, EnvVar, EnvVars, Job, JobSpec, ObjectMeta, OwnerReference, Pod, PodPhase, PodTemplate,
    PodUid, RestartPolicy, decode_bytes, encode, encode_text,
};

/// The name is a label of the pods.
const MAX_JOB_NAME_BYTES: usize = 63;
/// Upstream's limit for indexed Jobs.
const MAX_COMPLETIONS: i32 = 100_000;

pub(super) const BATCH_V1: &str = "batch/v1";

pub(super) fn read_job(
    object: Map<String, Value>,
    origin: &Origin<'_>,
    warnings: &mut Vec<Warning>,
) -> Result<Object, ObjectError> {
    let (job, template) = read_template(object, origin, warnings)?;
    let ObjectMeta { namespace, name, .. } = job.metadata;
    let pods = WorkloadPods { kind: WorkloadKind::Job, namespace, name, pods: vec![template], claims: Vec::new() };
    Ok(Object::Workload(Box::new(pods)))
}

/// The Job, and the pod that stands for it.
pub(super) fn read_template(
    mut object: Map<String, Value>,
    origin: &Origin<'_>,
    warnings: &mut Vec<Warning>,
) -> Result<(Job, Pod), ObjectError> {
    let mut faults = take_known_fields(WorkloadKind::Job, &mut object, warnings);
    let (mut job, errors): (Job, _) = read(object, warnings)?;
    set_namespace(&mut job.metadata);
    if job.api_version != BATCH_V1 {
        fault(&mut faults, "apiVersion", "expected batch/v1");
    }
    if job.metadata.name.len() > MAX_JOB_NAME_BYTES {
        fault(&mut faults, "metadata.name", "must have at most 63 characters, because it is a label of the pods");
    }
    check(&job.spec, &mut faults);
    for (key, _) in job.metadata.annotations.iter().filter(|(key, _)| key.starts_with("coracle.dev/")) {
        let path = format!("metadata.annotations[{key:?}]");
        warnings.push(Warning::NoEffect(path, "put it into spec.template.metadata".to_owned()));
    }
    let in_template = job.spec.template.metadata.annotations.iter().map(|(key, _)| key);
    for key in
        in_template.filter(|key| [AUTO_UPDATE, KEEP_VERSIONS, NEEDS_MAINS, PULL_FIRST, READY_WITHIN].contains(key))
    {
        let path = format!("spec.template.metadata.annotations[{key:?}]");
        warnings.push(Warning::NoEffect(path, "a changed Job is another Job, without a trial".to_owned()));
    }
    let template = template(&job, origin);
    check_pods(std::slice::from_ref(&template), &mut faults);
    valid(errors, faults)?;
    Ok((job, template))
}

fn check(spec: &JobSpec, faults: &mut Vec<FieldError>) {
    for (path, is_negative) in [
        ("spec.completions", spec.completions.is_some_and(|count| count < 0)),
        ("spec.parallelism", spec.parallelism.is_some_and(|count| count < 0)),
        ("spec.backoffLimit", spec.backoff_limit.is_some_and(|limit| limit < 0)),
        ("spec.activeDeadlineSeconds", spec.active_deadline_seconds.is_some_and(|seconds| seconds < 0)),
        ("spec.ttlSecondsAfterFinished", spec.ttl_seconds_after_finished.is_some_and(|seconds| seconds < 0)),
    ] {
        if is_negative {
            fault(faults, path, "must not be negative");
        }
    }
    if spec.completions.is_some_and(|count| count > MAX_COMPLETIONS) {
        fault(faults, "spec.completions", "must be at most 100000");
    }
    match spec.parallelism.unwrap_or(1) {
        count if count > MAX_REPLICAS => fault(faults, "spec.parallelism", "must be at most 250 on one node"),
        count @ 2.. => {
            let bytes = encode_text(&spec.template.spec).len();
            if bytes.saturating_mul(usize::try_from(count).unwrap_or(usize::MAX)) > MAX_REPLICAS_BYTES {
                fault(faults, "spec.parallelism", "too many for so large a template: 4 MiB in all");
            }
            let ports = spec.template.spec.all_containers().flat_map(|container| &container.ports);
            if let Some(port) = ports.map(|port| port.host_port).find(|port| *port != 0) {
                fault(faults, "spec.parallelism", &format!("only one pod of a node can have the host port {port}"));
            }
        }
        _ => {}
    }
    if spec.completion_mode == CompletionMode::Indexed && spec.completions.is_none() {
        fault(faults, "spec.completions", "required when completionMode is Indexed");
    }
    if spec.template.spec.restart_policy == RestartPolicy::Always {
        fault(faults, "spec.template.spec.restartPolicy", "required: expected Never or OnFailure");
    }
}

/// The pod that stands for the Job. Its uid is a hash of what a Job cannot change: a document with another template or
/// other completions is another Job.
fn template(job: &Job, origin: &Origin<'_>) -> Pod {
    let spec = &job.spec;
    let owner = owner(WorkloadKind::Job.as_str(), BATCH_V1, &job.metadata, origin);
    let PodTemplate { metadata: ObjectMeta { mut labels, mut annotations, .. }, spec: pod_spec } =
        spec.template.clone();
    let mut hash = Fnv128a::new();
    for part in [
        &owner.uid,
        &*encode(&spec.template).to_string(),
        &*spec.completions.map_or_else(String::new, |count| count.to_string()),
        spec.completion_mode.as_str(),
    ] {
        hash.write(part.as_bytes());
        hash.write(b"\n");
    }
    label(&mut labels, &owner);
    annotations.insert(JOB, encode_text(&JobSpec { template: PodTemplate::default(), ..spec.clone() }));
    let metadata = ObjectMeta {
        name: job.metadata.name.clone(),
        namespace: job.metadata.namespace.clone(),
        uid: PodUid::from(hash.marked()),
        labels,
        annotations,
        owner_references: vec![owner],
        ..ObjectMeta::default()
    };
    static_pod(Pod { metadata, spec: pod_spec, ..Pod::default() }, origin)
}

/// The labels by which upstream's controller knows the pods of a Job.
pub(super) fn label(labels: &mut api::Map<String>, owner: &OwnerReference) {
    for prefix in ["", "batch.kubernetes.io/"] {
        labels.insert(&[prefix, "controller-uid"].concat(), owner.uid.clone());
        labels.insert(&[prefix, "job-name"].concat(), owner.name.clone());
    }
}

/// The Job whose template the pod is, without the template.
pub(crate) fn job_of_template(pod: &Pod) -> Option<JobSpec> {
    let owner = owning_workload(pod)?;
    let text = pod.annotation(JOB).filter(|_| owner.kind == WorkloadKind::Job.as_str())?;
    decode_bytes(text.as_bytes()).ok()
}

/// The name of the Job or CronJob whose template the pod is.
pub(crate) fn job_name(template: &Pod) -> &str {
    owning_workload(template).map_or("", |owner| &owner.name)
}

/// What the pod's name has after that of its Job: `-NODE`.
pub(super) fn of_node(template: &Pod) -> &str {
    template.metadata.name.strip_prefix(job_name(template)).unwrap_or_default()
}

/// Pod `serial` of the Job with this template. `ended`: its phase, if it has ended; it never runs again.
/// Name and uid follow from template and number, so that a restarted agent finds the pods that it made.
pub(crate) fn job_pod(template: &Pod, serial: u32, index: Option<u32>, ended: Option<PodPhase>) -> Pod {
    let name = job_name(template);
    let hash = pod_hash(template, serial);
    let of_index = index.map_or_else(String::new, |index| format!("-{index}"));
    let mut pod = template.clone();
    let metadata = &mut pod.metadata;
    metadata.name = [name, &of_index, "-", &suffix(hash.0), of_node(template)].concat();
    metadata.uid = PodUid::from(hash.marked());
    metadata.annotations.remove(JOB);
    metadata.annotations.insert(CONFIG_HASH, metadata.uid.as_str().to_owned());
    if let Some(index) = index {
        let index = index.to_string();
        metadata.labels.insert(COMPLETION_INDEX, index.clone());
        metadata.annotations.insert(COMPLETION_INDEX, index.clone());
        pod.spec.hostname = [name, &of_index].concat();
        for container in pod.spec.init_containers.iter_mut().chain(&mut pod.spec.containers) {
            add_variable(&mut container.env, "JOB_COMPLETION_INDEX", &index);
        }
    }
    if let Some(phase) = ended {
        pod.status.phase = phase;
    }
    pod
}

pub(crate) fn job_pod_uid(template: &Pod, serial: u32) -> PodUid {
    PodUid::from(pod_hash(template, serial).marked())
}

fn pod_hash(template: &Pod, serial: u32) -> Fnv128a {
    let mut hash = Fnv128a::new();
    for part in [template.metadata.uid.as_str(), "/", &serial.to_string()] {
        hash.write(part.as_bytes());
    }
    hash
}

/// Label and annotation of the pods of an indexed Job.
const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// As upstream, before the variables of the template, unless that has one of this name.
fn add_variable(variables: &mut EnvVars, name: &str, value: &str) {
    if variables.iter().any(|variable| variable.name == name) {
        return;
    }
    let own = EnvVar { name: name.to_owned(), value: value.to_owned(), value_from: None };
    let others = variables.iter().map(|variable| EnvVar {
        name: variable.name.to_owned(),
        value: variable.value.to_owned(),
        value_from: variable.value_from.cloned().map(Box::new),
    });
    *variables = std::iter::once(own).chain(others).collect();
}

/// Five characters of upstream's alphabet of generated names, which has no vowels so that no words come out.
fn suffix(mut hash: u128) -> String {
    let letters = std::iter::repeat_with(|| {
        let count = u128::try_from(GENERATED_NAME_LETTERS.len()).unwrap_or(1);
        let letter = usize::try_from(hash % count).ok().and_then(|at| GENERATED_NAME_LETTERS.get(at));
        hash /= count;
        letter.map_or('x', |letter| char::from(*letter))
    });
    letters.take(GENERATED_NAME_CHARS).collect()
}

const GENERATED_NAME_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const GENERATED_NAME_CHARS: usize = 5;

/// Whether the pod is the template of a CronJob.
pub(super) fn is_cron_job(pod: &Pod) -> bool {
    pod.annotation(CRON_JOB).is_some()
        && owning_workload(pod).is_some_and(|owner| owner.kind == WorkloadKind::CronJob.as_str())
}

/// Whether a pod of this name may be one of the Job, `NAME-xxxxx-NODE` or `NAME-INDEX-xxxxx-NODE`, or of the CronJob,
/// whose Jobs are `NAME-MINUTES`.
pub(crate) fn is_pod_name_of(template: &Pod, pod_name: &str) -> bool {
    let rest = pod_name.strip_prefix(job_name(template));
    let Some(rest) = rest.and_then(|rest| rest.strip_suffix(of_node(template))?.strip_prefix('-')) else {
        return false;
    };
    let numbers = if is_cron_job(template) { 2 } else { 1 };
    let generated = (0..numbers).fold(rest, |rest, _| match rest.split_once('-') {
        Some((number, generated)) if number.parse::<u32>().is_ok() => generated,
        _ => rest,
    });
    generated.len() == GENERATED_NAME_CHARS && generated.bytes().all(|byte| GENERATED_NAME_LETTERS.contains(&byte))
}

#[cfg(test)]
mod tests;
