//! CronJobs of manifests. A document becomes one pod: the template of its Jobs, with the spec of the CronJob in an
//! annotation. Pure.

use serde_json::{Map, Value};

use super::job::{BATCH_V1, is_cron_job, job_name, label, of_node, read_template};
use super::workload::{fault, owner, owning_workload};
use super::workload_fields::{WorkloadKind, take_known_fields};
use super::{Fnv128a, Object, ObjectError, Origin, Warning, WorkloadPods, read, set_namespace, valid};
use crate::platform::config::parse_duration;
use crate::types::api::annotations::CRON_JOB;
use crate::types::api::validation::FieldError;
use crate::types::api::{
    CronJob, CronJobSpec, DecodeError, ObjectMeta, OwnerReference, Pod, PodUid, decode_bytes, encode_text,
};
use crate::types::cron_schedule::CronSchedule;
use crate::types::time_zone::is_zone_name;

/// The names of Jobs have eleven characters more.
const MAX_CRON_JOB_NAME_BYTES: usize = 52;

pub(super) fn read_cron_job(
    mut object: Map<String, Value>,
    origin: &Origin<'_>,
    warnings: &mut Vec<Warning>,
) -> Result<Object, ObjectError> {
    let mut faults = take_known_fields(WorkloadKind::CronJob, &mut object, warnings);
    let job_template = object.get_mut("spec").and_then(|spec| spec.as_object_mut()?.remove(JOB_TEMPLATE));
    let (mut cron_job, errors): (CronJob, _) = read(object, warnings)?;
    set_namespace(&mut cron_job.metadata);
    check(&cron_job, &mut faults);
    let job_template = match job_template {
        Some(Value::Object(template)) => template,
        _ => {
            fault(&mut faults, "spec.jobTemplate", "required: an object with the spec of a Job");
            Map::new()
        }
    };
    valid(errors, faults)?;
    let first = warnings.len();
    let template = read_template(job_document(job_template, &cron_job.metadata), origin, warnings);
    for warning in warnings.iter_mut().skip(first) {
        if let Warning::NoEffect(path, _) | Warning::UnknownField(path) = warning {
            *path = in_job_template(path);
        }
    }
    let (_, mut template) = template.map_err(below_job_template)?;
    if encode_text(&template.spec).len() > MAX_CRON_TEMPLATE_BYTES {
        let problem = "must have at most 1 MiB, because the record of each Job has it".to_owned();
        return Err(ObjectError::Invalid(vec![FieldError { path: in_job_template("spec.template.spec"), problem }]));
    }
    template.metadata.owner_references =
        vec![owner(WorkloadKind::CronJob.as_str(), BATCH_V1, &cron_job.metadata, origin)];
    template.metadata.annotations.insert(CRON_JOB, encode_text(&cron_job.spec));
    let ObjectMeta { namespace, name, .. } = cron_job.metadata;
    let pods = WorkloadPods { kind: WorkloadKind::CronJob, namespace, name, pods: vec![template], claims: Vec::new() };
    Ok(Object::Workload(Box::new(pods)))
}

/// Quotes in it are escaped in a record, which has 4 MiB.
const MAX_CRON_TEMPLATE_BYTES: usize = 1 << 20;

const JOB_TEMPLATE: &str = "jobTemplate";

fn check(cron_job: &CronJob, faults: &mut Vec<FieldError>) {
    let CronJobSpec { schedule, time_zone, starting_deadline_seconds, .. } = &cron_job.spec;
    if cron_job.api_version != BATCH_V1 {
        fault(faults, "apiVersion", "expected batch/v1");
    }
    if cron_job.metadata.name.len() > MAX_CRON_JOB_NAME_BYTES {
        fault(faults, "metadata.name", "must have at most 52 characters, because its Jobs have eleven more");
    }
    if let Err(why) = CronSchedule::parse(schedule, parse_duration) {
        fault(faults, "spec.schedule", &why);
    }
    if time_zone.as_ref().is_some_and(|name| !is_zone_name(name)) {
        fault(faults, "spec.timeZone", "expected the name of a time zone, such as Europe/Berlin");
    }
    for (path, is_negative) in [
        ("spec.startingDeadlineSeconds", starting_deadline_seconds.is_some_and(|seconds| seconds < 0)),
        ("spec.successfulJobsHistoryLimit", cron_job.spec.successful_jobs_history_limit.is_some_and(|limit| limit < 0)),
        ("spec.failedJobsHistoryLimit", cron_job.spec.failed_jobs_history_limit.is_some_and(|limit| limit < 0)),
    ] {
        if is_negative {
            fault(faults, path, "must not be negative");
        }
    }
}

/// The template as a Job that has the name of the CronJob.
fn job_document(mut template: Map<String, Value>, of_cron_job: &ObjectMeta) -> Map<String, Value> {
    let metadata = template.entry("metadata").or_insert(Value::Null);
    if metadata.is_null() {
        *metadata = Value::Object(Map::new());
    }
    // Anything else is an error of the Job.
    if let Value::Object(metadata) = metadata {
        metadata.insert("name".to_owned(), of_cron_job.name.clone().into());
        metadata.insert("namespace".to_owned(), of_cron_job.namespace.clone().into());
    }
    template.insert("apiVersion".to_owned(), BATCH_V1.into());
    template.insert("kind".to_owned(), WorkloadKind::Job.as_str().into());
    template
}

/// Name and namespace are those of the CronJob.
fn in_job_template(path: &str) -> String {
    let is_of_cron_job = ["metadata.name", "metadata.namespace"].contains(&path);
    [if is_of_cron_job { "" } else { BEFORE_JOB }, path].concat()
}

const BEFORE_JOB: &str = "spec.jobTemplate.";

fn below_job_template(error: ObjectError) -> ObjectError {
    let below = |faults: Vec<FieldError>| {
        let faults = faults.into_iter().map(|fault| FieldError { path: in_job_template(&fault.path), ..fault });
        faults.collect()
    };
    match error {
        ObjectError::Decode(errors, faults) => {
            let errors: Vec<DecodeError> = errors.into_iter().map(|error| error.below(BEFORE_JOB)).collect();
            ObjectError::Decode(errors, below(faults))
        }
        ObjectError::Invalid(faults) => ObjectError::Invalid(below(faults)),
        ObjectError::Field { .. } | ObjectError::Unsupported { .. } => error,
    }
}

/// The CronJob whose template the pod is.
pub(crate) fn cron_job_of_template(pod: &Pod) -> Option<CronJobSpec> {
    decode_bytes(pod.annotation(CRON_JOB).filter(|_| is_cron_job(pod))?.as_bytes()).ok()
}

/// The name of the Job for this Unix time.
pub(crate) fn scheduled_job_name(cron_template: &Pod, time: i64) -> String {
    format!("{}-{}", job_name(cron_template), time.div_euclid(60))
}

/// The template of the Job for this Unix time.
pub(crate) fn scheduled_job(cron_template: &Pod, time: i64) -> Pod {
    let name = scheduled_job_name(cron_template, time);
    let of_cron_job = owning_workload(cron_template).map_or("", |owner| &owner.uid);
    let uid = |of: &str| {
        let mut hash = Fnv128a::new();
        for part in [of, "/", &name] {
            hash.write(part.as_bytes());
        }
        hash.marked()
    };
    let owner = OwnerReference {
        api_version: BATCH_V1.to_owned(),
        kind: WorkloadKind::Job.as_str().to_owned(),
        uid: uid(of_cron_job),
        name: name.clone(),
        controller: Some(true),
        ..OwnerReference::default()
    };
    let mut pod = cron_template.clone();
    let metadata = &mut pod.metadata;
    metadata.uid = PodUid::from(uid(cron_template.metadata.uid.as_str()));
    metadata.name = [&name, of_node(cron_template)].concat();
    metadata.annotations.remove(CRON_JOB);
    label(&mut metadata.labels, &owner);
    metadata.owner_references = vec![owner];
    pod
}

#[cfg(test)]
mod tests;
