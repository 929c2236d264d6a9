//! Validates the pod-wide fields: deadlines, namespaces, tolerations, gates; calls the other checks. Pure.

use super::faults::Faults;
use super::names::{DNS_LABEL, DNS_SUBDOMAIN, LABEL_KEY, LABEL_VALUE};
use super::scope::Scope;
use super::{containers, dns, metadata, node_affinity, resources, security, volumes};
use crate::types::api::decode::Path;
use crate::types::api::{ObjectMeta, PodResourceClaims, PodSpec, TaintEffect, Toleration, TolerationOperator};
use crate::types::sorted::Seen;

pub(super) fn check(spec: &PodSpec, meta: &ObjectMeta, path: &Path<'_>, faults: &mut Faults) {
    let scope = Scope::new(spec);
    volumes::check(spec, meta, &scope, path, faults);
    containers::check(&scope, path, faults);
    resources::check_pod(spec, path, faults);
    security::check_pod(spec, path, faults);
    dns::check(spec, path, faults);
    check_seconds(spec, path, faults);
    check_names(spec, path, faults);
    check_host_users(spec, path, faults);
    check_os(spec, path, faults);
    check_claims(&spec.resource_claims, &path.key("resourceClaims"), faults);
    check_scheduling_gates(spec, path, faults);
    metadata::check_labels(&spec.node_selector, &path.key("nodeSelector"), faults);
    node_affinity::check(spec, &path.key("affinity"), faults);
    for (index, toleration) in spec.tolerations.iter().enumerate() {
        check_toleration(toleration, &path.key("tolerations").index(index), faults);
    }
    for (index, gate) in spec.readiness_gates.iter().enumerate() {
        let path = path.key("readinessGates");
        faults.required_name(&path.index(index).key("conditionType"), &gate.condition_type, &LABEL_KEY);
    }
    if !["", "Never", "PreemptLowerPriority"].contains(&spec.preemption_policy.as_str()) {
        let wanted = "must be \"Never\" or \"PreemptLowerPriority\"";
        faults.invalid(&path.key("preemptionPolicy"), &spec.preemption_policy, wanted);
    }
}

fn check_seconds(spec: &PodSpec, path: &Path<'_>, faults: &mut Faults) {
    if spec.termination_grace_period_seconds.is_none() {
        faults.required(&path.key("terminationGracePeriodSeconds"));
    }
    if let Some(seconds) = spec.active_deadline_seconds.filter(|seconds| !(1..=i64::from(i32::MAX)).contains(seconds)) {
        let wanted = format_args!("must be from 1 to {}", i32::MAX);
        faults.out_of_range(&path.key("activeDeadlineSeconds"), seconds, wanted);
    }
}

fn check_names(spec: &PodSpec, path: &Path<'_>, faults: &mut Faults) {
    // `nodeName` is left out: the kubelet has set it itself, and no change of a manifest could correct it.
    let names = [("serviceAccountName", &spec.service_account_name), ("priorityClassName", &spec.priority_class_name)];
    for (field, name) in names {
        faults.optional_name(&path.key(field), name, &DNS_SUBDOMAIN);
    }
    if let Some(name) = &spec.runtime_class_name {
        faults.name(&path.key("runtimeClassName"), name, &DNS_SUBDOMAIN);
    }
    if !spec.ephemeral_containers.is_empty() {
        faults.forbidden(&path.key("ephemeralContainers"), "when the pod is created");
    }
}

/// A pod with a user namespace shares no namespace and no device with the host.
fn check_host_users(spec: &PodSpec, path: &Path<'_>, faults: &mut Faults) {
    if spec.host_users.unwrap_or(true) {
        return;
    }
    let host = [("hostNetwork", spec.host_network), ("hostPID", spec.host_pid), ("hostIPC", spec.host_ipc)];
    for (field, _) in host.into_iter().filter(|(_, set)| *set) {
        faults.forbidden(&path.key(field), "when hostUsers is false");
    }
    for (list, containers) in [("containers", &spec.containers), ("initContainers", &spec.init_containers)] {
        let with_devices = containers.iter().enumerate().filter(|(_, container)| !container.volume_devices.is_empty());
        for (index, _) in with_devices {
            faults.forbidden(&path.key(list).index(index).key("volumeDevices"), "when hostUsers is false");
        }
    }
}

fn check_os(spec: &PodSpec, path: &Path<'_>, faults: &mut Faults) {
    let Some(os) = &spec.os else { return };
    let path = path.key("os");
    match os.name.as_str() {
        "" => faults.required(&path.key("name")),
        // Admission checks that the node runs this system.
        "linux" | "windows" => {}
        other => faults.invalid(&path.key("name"), other, "must be \"linux\" or \"windows\""),
    }
}

fn check_claims(claims: &PodResourceClaims, path: &Path<'_>, faults: &mut Faults) {
    let mut names = Seen::default();
    for (index, claim) in claims.iter().enumerate() {
        let path = path.index(index);
        let text = |key: &str| claim.get(key);
        let name = text("name").unwrap_or_default();
        faults.required_name(&path.key("name"), name, &DNS_LABEL);
        if !name.is_empty() && !names.insert(name) {
            faults.duplicate(&path.key("name"), name);
        }
        match (text("resourceClaimName"), text("resourceClaimTemplateName")) {
            (Some(name), None) => faults.name(&path.key("resourceClaimName"), name, &DNS_SUBDOMAIN),
            (None, Some(name)) => faults.name(&path.key("resourceClaimTemplateName"), name, &DNS_SUBDOMAIN),
            (None, None) => faults.required_as(&path, "one of resourceClaimName and resourceClaimTemplateName"),
            (Some(_), Some(_)) => {
                faults.other(&path, "only one of resourceClaimName and resourceClaimTemplateName may be given");
            }
        }
    }
}

/// A pod with scheduling gates must not be assigned to a node yet.
fn check_scheduling_gates(spec: &PodSpec, path: &Path<'_>, faults: &mut Faults) {
    let mut names = Seen::default();
    for (index, gate) in spec.scheduling_gates.iter().enumerate() {
        let gates = path.key("schedulingGates");
        let path = gates.index(index);
        let name = gate.get("name").unwrap_or_default();
        faults.required_name(&path.key("name"), name, &LABEL_KEY);
        if !name.is_empty() && !names.insert(name) {
            faults.duplicate(&path.key("name"), name);
        }
    }
    if !spec.node_name.is_empty() && !spec.scheduling_gates.is_empty() {
        faults.forbidden(&path.key("schedulingGates"), "when nodeName is set");
    }
}

fn check_toleration(toleration: &Toleration, path: &Path<'_>, faults: &mut Faults) {
    let operator = toleration.operator.unwrap_or(TolerationOperator::Equal);
    faults.optional_name(&path.key("key"), &toleration.key, &LABEL_KEY);
    if toleration.key.is_empty() && operator != TolerationOperator::Exists {
        faults.invalid(&path.key("operator"), operator.as_str(), "must be \"Exists\" when there is no key");
    }
    if toleration.toleration_seconds.is_some() && toleration.effect != Some(TaintEffect::NoExecute) {
        let effect = toleration.effect.map_or("", TaintEffect::as_str);
        faults.invalid(&path.key("effect"), effect, "must be \"NoExecute\" when tolerationSeconds is set");
    }
    let value = &toleration.value;
    match operator {
        TolerationOperator::Equal => faults.name(&path.key("value"), value, &LABEL_VALUE),
        TolerationOperator::Exists if !value.is_empty() => {
            faults.invalid(&path.key("value"), value, "must be empty when the operator is \"Exists\"");
        }
        TolerationOperator::Gt | TolerationOperator::Lt if value.parse::<i64>().is_err() => {
            faults.invalid(&path.key("value"), value, "must be a whole number when the operator is \"Gt\" or \"Lt\"");
        }
        TolerationOperator::Exists | TolerationOperator::Gt | TolerationOperator::Lt => {}
    }
}
