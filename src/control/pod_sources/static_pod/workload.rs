//! Deployments, DaemonSets and StatefulSets of manifests: each is one or several static pods of its template. Pure.
//!
//! The pods are named after the document, so that a new version replaces the former one by its name. Versions, trials and
//! rollbacks are those of static pods: `progressDeadlineSeconds` and `revisionHistoryLimit` become annotations.

use serde_json::{Map, Value};

use super::volume_claim::{object_of, refuse_cluster_fields, without_effect as without_effect_of_claim};
use super::workload_fields::{WorkloadKind, take_known_fields};
use super::{Fnv128a, Object, ObjectError, Origin, Warning, read, set_namespace, static_pod, valid};
use crate::state::objects::ConfigObject;
use crate::types::api::annotations::{KEEP_VERSIONS, ONE_AT_A_TIME, READY_WITHIN};
use crate::types::api::validation::{FieldError, validate_static_pod, validate_volume_claim};
use crate::types::api::{
    ObjectMeta, OwnerReference, PersistentVolumeClaimVolumeSource, Pod, PodUid, RestartPolicy, UpdateStrategy,
    UpdateStrategyType, Volume, VolumeClaim, VolumeSource, Workload, WorkloadSpec, encode_text,
};

/// A document, and the pods that it stands for.
#[derive(Debug)]
pub(crate) struct WorkloadPods {
    pub(crate) kind: WorkloadKind,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Each with the name that it has on the node.
    pub(crate) pods: Vec<Pod>,
    /// Of the templates of a StatefulSet.
    pub(crate) claims: Vec<ConfigObject>,
}

/// A pod each at most, so that one document cannot occupy the node's memory.
pub(super) const MAX_REPLICAS: i32 = 250;
/// The pods of one document share nothing.
pub(super) const MAX_REPLICAS_BYTES: usize = 4 << 20;
/// The longest time of a trial.
const MAX_PROGRESS_DEADLINE_SECONDS: i32 = 86_400;
/// Upstream's default.
const PROGRESS_DEADLINE_SECONDS: i32 = 600;
/// The most versions that are kept.
const MAX_KEPT_VERSIONS: i32 = 10;

const APPS_V1: &str = "apps/v1";

pub(super) fn read_workload(
    mut object: Map<String, Value>,
    kind: WorkloadKind,
    origin: &Origin<'_>,
    warnings: &mut Vec<Warning>,
) -> Result<Object, ObjectError> {
    let mut faults = take_known_fields(kind, &mut object, warnings);
    let first = warnings.len();
    let (mut workload, errors): (Workload, _) = read(object, warnings)?;
    refuse_cluster_fields(warnings, first, &mut faults);
    set_namespace(&mut workload.metadata);
    check(kind, &workload, &mut faults);
    without_effect(&workload, warnings);
    let pods = pods(kind, &workload, origin);
    check_pods(&pods, &mut faults);
    let claims = claims(&workload, &mut faults, warnings);
    valid(errors, faults)?;
    let count = usize::try_from(replicas(kind, &workload.spec)).unwrap_or_default();
    let ObjectMeta { namespace, name, .. } = workload.metadata;
    let pods = pods.into_iter().take(count).collect();
    Ok(Object::Workload(Box::new(WorkloadPods { kind, namespace, name, pods, claims })))
}

fn replicas(kind: WorkloadKind, spec: &WorkloadSpec) -> i32 {
    match kind {
        WorkloadKind::CronJob | WorkloadKind::DaemonSet | WorkloadKind::Job => 1,
        WorkloadKind::Deployment | WorkloadKind::StatefulSet => spec.replicas.unwrap_or(1),
    }
}

fn strategy(kind: WorkloadKind, spec: &WorkloadSpec) -> &UpdateStrategy {
    match kind {
        WorkloadKind::Deployment => &spec.strategy,
        WorkloadKind::CronJob | WorkloadKind::DaemonSet | WorkloadKind::Job | WorkloadKind::StatefulSet => {
            &spec.update_strategy
        }
    }
}

pub(super) fn fault(faults: &mut Vec<FieldError>, path: &str, problem: &str) {
    faults.push(FieldError { path: path.to_owned(), problem: problem.to_owned() });
}

fn check(kind: WorkloadKind, workload: &Workload, faults: &mut Vec<FieldError>) {
    let spec = &workload.spec;
    if workload.api_version != APPS_V1 {
        fault(faults, "apiVersion", "expected apps/v1");
    }
    check_replicas(kind, spec, faults);
    match &spec.selector {
        None => fault(faults, "spec.selector", "required: the labels of the template"),
        Some(selector) if !selector.selects(&spec.template.metadata.labels) => {
            fault(faults, "spec.selector", "does not match the labels of the template");
        }
        Some(_) => {}
    }
    if spec.paused {
        fault(faults, "spec.paused", HOLD_INSTEAD);
    }
    if spec.progress_deadline_seconds.is_some_and(|seconds| seconds < 1) {
        fault(faults, "spec.progressDeadlineSeconds", "must be greater than 0");
    }
    if spec.revision_history_limit.is_some_and(|limit| limit < 0) {
        fault(faults, "spec.revisionHistoryLimit", "must not be negative");
    }
    check_strategy(kind, strategy(kind, spec), faults);
    let template = &spec.template.spec;
    if template.restart_policy != RestartPolicy::Always {
        fault(faults, "spec.template.spec.restartPolicy", "must be Always");
    }
    if template.active_deadline_seconds.is_some() {
        fault(faults, "spec.template.spec.activeDeadlineSeconds", "must not be set in a template");
    }
}

fn check_replicas(kind: WorkloadKind, spec: &WorkloadSpec, faults: &mut Vec<FieldError>) {
    let path = "spec.replicas";
    match replicas(kind, spec) {
        ..0 => fault(faults, path, "must not be negative"),
        2.. if kind == WorkloadKind::StatefulSet => {
            fault(faults, path, "a StatefulSet has at most one pod on one node");
        }
        count if count > MAX_REPLICAS => fault(faults, path, "must be at most 250"),
        count @ 2.. => {
            let bytes = encode_text(&spec.template.spec).len();
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            if bytes.saturating_mul(count) > MAX_REPLICAS_BYTES {
                fault(faults, path, "too many for so large a template: 4 MiB in all");
            }
        }
        0 | 1 => {}
    }
}

fn check_strategy(kind: WorkloadKind, strategy: &UpdateStrategy, faults: &mut Vec<FieldError>) {
    match (kind, strategy.strategy_type) {
        (WorkloadKind::Deployment, Some(UpdateStrategyType::OnDelete)) => {
            fault(faults, "spec.strategy.type", "expected Recreate or RollingUpdate");
        }
        (WorkloadKind::DaemonSet | WorkloadKind::StatefulSet, Some(UpdateStrategyType::OnDelete)) => {
            fault(faults, "spec.updateStrategy.type", HOLD_INSTEAD);
        }
        (WorkloadKind::DaemonSet | WorkloadKind::StatefulSet, Some(UpdateStrategyType::Recreate)) => {
            fault(faults, "spec.updateStrategy.type", "expected RollingUpdate");
        }
        // A Job has no strategy.
        (WorkloadKind::CronJob | WorkloadKind::Job, Some(UpdateStrategyType::OnDelete))
        | (_, Some(UpdateStrategyType::Recreate | UpdateStrategyType::RollingUpdate) | None) => {}
    }
    if strategy.rolling_update.as_ref().is_some_and(|rolling| rolling.partition != 0) {
        fault(faults, "spec.updateStrategy.rollingUpdate.partition", HOLD_INSTEAD);
    }
}

const HOLD_INSTEAD: &str = "has no meaning on one node: coracle hold keeps the running version";

/// Names what is harmless and has no effect.
fn without_effect(workload: &Workload, warnings: &mut Vec<Warning>) {
    let spec = &workload.spec;
    let mut add = |path: String, why: &str| warnings.push(Warning::NoEffect(path, why.to_owned()));
    for (name, strategy) in [("strategy", &spec.strategy), ("updateStrategy", &spec.update_strategy)] {
        let Some(rolling) = &strategy.rolling_update else { continue };
        for (field, is_set, why) in [
            ("maxSurge", rolling.max_surge.is_some(), "two versions of a pod never run at once"),
            ("maxUnavailable", rolling.max_unavailable.is_some(), "pods are replaced one after the other"),
        ] {
            if is_set {
                add(format!("spec.{name}.rollingUpdate.{field}"), why);
            }
        }
    }
    if spec.progress_deadline_seconds.is_some_and(|seconds| seconds > MAX_PROGRESS_DEADLINE_SECONDS) {
        add("spec.progressDeadlineSeconds".to_owned(), "a trial lasts at most 24 hours");
    }
    for (key, _) in workload.metadata.annotations.iter().filter(|(key, _)| key.starts_with("coracle.dev/")) {
        add(format!("metadata.annotations[{key:?}]"), "put it into spec.template.metadata");
    }
}

/// The pods, at least one, so that the template of a workload without replicas is checked too.
fn pods(kind: WorkloadKind, workload: &Workload, origin: &Origin<'_>) -> Vec<Pod> {
    let count = replicas(kind, &workload.spec).clamp(1, MAX_REPLICAS);
    let is_numbered = count > 1 || kind == WorkloadKind::StatefulSet;
    let name = &workload.metadata.name;
    let name_of = |index: i32| if is_numbered && !name.is_empty() { format!("{name}-{index}") } else { name.clone() };
    (0..count).map(|index| pod(kind, workload, name_of(index), index, origin)).collect()
}

fn pod(kind: WorkloadKind, workload: &Workload, name: String, index: i32, origin: &Origin<'_>) -> Pod {
    let spec = &workload.spec;
    let template = spec.template.clone();
    let metadata = ObjectMeta {
        name,
        namespace: workload.metadata.namespace.clone(),
        labels: template.metadata.labels,
        annotations: template.metadata.annotations,
        owner_references: vec![owner(kind.as_str(), APPS_V1, &workload.metadata, origin)],
        ..ObjectMeta::default()
    };
    let mut pod = Pod { metadata, spec: template.spec, ..Pod::default() };
    if kind == WorkloadKind::StatefulSet {
        let labels = &mut pod.metadata.labels;
        labels.insert("apps.kubernetes.io/pod-index", index.to_string());
        labels.insert("statefulset.kubernetes.io/pod-name", pod.metadata.name.clone());
        pod.spec.hostname.clone_from(&pod.metadata.name);
        pod.spec.subdomain.clone_from(&spec.service_name);
        for template in &spec.volume_claim_templates {
            let name = &template.metadata.name;
            // As upstream, a claim takes the place of a volume with its name.
            pod.spec.volumes.retain(|volume| volume.name != *name);
            let source =
                PersistentVolumeClaimVolumeSource { claim_name: claim_name(workload, template), read_only: false };
            let source = VolumeSource::PersistentVolumeClaim(Box::new(source));
            pod.spec.volumes.push(Volume { name: name.clone(), source });
        }
    }
    let annotations = &mut pod.metadata.annotations;
    if kind == WorkloadKind::Deployment && annotations.get(READY_WITHIN).is_none() {
        let seconds = spec.progress_deadline_seconds.unwrap_or(PROGRESS_DEADLINE_SECONDS);
        annotations.insert(READY_WITHIN, format!("{}s", seconds.clamp(1, MAX_PROGRESS_DEADLINE_SECONDS)));
    }
    if let Some(limit) = spec.revision_history_limit.filter(|_| annotations.get(KEEP_VERSIONS).is_none()) {
        // The running version counts too.
        let kept = limit.saturating_add(1).clamp(1, MAX_KEPT_VERSIONS);
        annotations.insert(KEEP_VERSIONS, kept.to_string());
    }
    let is_rolling = strategy(kind, spec).strategy_type != Some(UpdateStrategyType::Recreate);
    if is_rolling && replicas(kind, spec) > 1 && annotations.get(ONE_AT_A_TIME).is_none() {
        annotations.insert(ONE_AT_A_TIME, "true".to_owned());
    }
    static_pod(pod, origin)
}

/// The claims of the one pod of a StatefulSet: `TEMPLATE-NAME-0`.
fn claims(workload: &Workload, faults: &mut Vec<FieldError>, warnings: &mut Vec<Warning>) -> Vec<ConfigObject> {
    let mut claims = Vec::new();
    for (index, template) in workload.spec.volume_claim_templates.iter().enumerate() {
        let mut claim = template.clone();
        claim.metadata.name = claim_name(workload, template);
        claim.metadata.namespace.clone_from(&workload.metadata.namespace);
        claim.metadata.uid = PodUid::default();
        let before = format!("spec.volumeClaimTemplates[{index}].");
        if template.metadata.name.is_empty() {
            fault(faults, &format!("{before}metadata.name"), "required");
        }
        faults.extend(validate_volume_claim(&claim).into_iter().map(|mut fault| {
            fault.path.insert_str(0, &before);
            fault
        }));
        without_effect_of_claim(&claim, &before, warnings);
        claims.push(object_of(claim));
    }
    claims
}

fn claim_name(workload: &Workload, template: &VolumeClaim) -> String {
    format!("{}-{}-0", template.metadata.name, workload.metadata.name)
}

/// Names the document in its pods. The uid is recognised by [`super::is_own_uid`].
pub(super) fn owner(kind: &str, api_version: &str, metadata: &ObjectMeta, origin: &Origin<'_>) -> OwnerReference {
    let mut hash = Fnv128a::new();
    for part in [kind, "/", &metadata.namespace, "/", &metadata.name, "/", origin.path] {
        hash.write(part.as_bytes());
    }
    OwnerReference {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: metadata.name.clone(),
        uid: hash.marked(),
        controller: Some(true),
        ..OwnerReference::default()
    }
}

/// Pods of one template differ in their number only, and the last has the longest name.
pub(super) fn check_pods(pods: &[Pod], faults: &mut Vec<FieldError>) {
    let Some(last) = pods.last() else { return };
    // The owner repeats the name of the document.
    let of_pod =
        validate_static_pod(last).into_iter().filter(|fault| !fault.path.starts_with("metadata.ownerReferences"));
    faults.extend(of_pod.map(|mut fault| {
        let is_of_document = ["metadata.name", "metadata.namespace"].contains(&&*fault.path);
        if !is_of_document {
            fault.path.insert_str(0, "spec.template.");
        }
        fault
    }));
    let ports = last.spec.all_containers().flat_map(|container| &container.ports);
    if let Some(port) = ports.map(|port| port.host_port).find(|port| *port != 0 && pods.len() > 1) {
        let problem = format!("only one pod of a node can have the host port {port}");
        faults.push(FieldError { path: "spec.replicas".to_owned(), problem });
    }
}

/// The workload that a pod of a manifest belongs to.
pub(crate) fn owning_workload(pod: &Pod) -> Option<&OwnerReference> {
    let mut owners = pod.metadata.owner_references.iter().filter(|_| pod.is_static());
    owners.find(|owner| owner.controller == Some(true) && super::is_own_uid(&owner.uid))
}

#[cfg(test)]
mod tests;
