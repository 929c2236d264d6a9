//! Defaults and rules that the server applies to written objects. Pure.

use serde_json::{Map, Value, json};

use super::api_error::ApiError;
use super::resources::{Resource, Target};

/// Prepares a new object for storage.
pub(crate) fn prepare_for_create(resource: &Resource, object: &mut Value) {
    match resource.kind {
        "Pod" if resource.group.is_empty() => {
            default_pod(&mut object["spec"]);
            object["metadata"]["generation"] = json!(1);
            object["status"] = json!({ "phase": "Pending", "qosClass": qos_class(&object["spec"]) });
        }
        "Namespace" => {
            let name = object["metadata"]["name"].clone();
            object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
            object["spec"] = json!({ "finalizers": ["kubernetes"] });
            object["status"] = json!({ "phase": "Active" });
        }
        "Secret" => default(object, "type", json!("Opaque")),
        "Service" => {
            let spec = &mut object["spec"];
            for (name, value) in [("type", json!("ClusterIP")), ("sessionAffinity", json!("None"))] {
                default(spec, name, value);
            }
            object["status"] = json!({ "loadBalancer": {} });
        }
        "PersistentVolume" | "PersistentVolumeClaim" => {
            default(object, "status", json!({ "phase": "Pending" }));
            default(&mut object["spec"], "volumeMode", json!("Filesystem"));
        }
        "CertificateSigningRequest" => object["status"] = json!({}),
        "VolumeAttachment" => default(object, "status", json!({ "attached": false })),
        _ => {}
    }
}

/// Applies upstream's admission defaults to a new object. They have no field manager.
pub(crate) fn admit_create(resource: &Resource, object: &mut Value) {
    if resource.is_core("nodes") {
        let spec = &mut object["spec"];
        let taint = json!({ "effect": "NoSchedule", "key": "node.kubernetes.io/not-ready" });
        let taints = spec["taints"].as_array().cloned().unwrap_or_default();
        if !taints.contains(&taint) {
            spec["taints"] = Value::Array([taints, vec![taint]].concat());
        }
    } else if resource.is_core("pods") {
        let spec = &mut object["spec"];
        default(spec, "preemptionPolicy", json!("PreemptLowerPriority"));
        default(spec, "priority", json!(0));
        for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
            tolerate(spec, key);
        }
    }
}

/// Adds the required fields of the type, and removes empty optional ones.
pub(crate) fn complete(resource: &Resource, object: &mut Value) {
    remove_empty(object);
    let times: &[&str] = match resource.kind {
        "Node" if object["status"].is_object() => {
            default_node_status(&mut object["status"]);
            &["lastHeartbeatTime", "lastTransitionTime"]
        }
        "Pod" | "PersistentVolumeClaim" => &["lastProbeTime", "lastTransitionTime"],
        "Event" => {
            for time in ["eventTime", "firstTimestamp", "lastTimestamp"] {
                write_null(object, time);
            }
            default(object, "reportingComponent", json!(""));
            default(object, "reportingInstance", json!(""));
            default(object, "source", json!({}));
            return;
        }
        _ => return,
    };
    if let Some(status) = object.get_mut("status") {
        for condition in items(status, "conditions") {
            times.iter().for_each(|time| write_null(condition, time));
        }
    }
}

fn write_null(object: &mut Value, field: &str) {
    if let Value::Object(fields) = object {
        fields.entry(field).or_insert(Value::Null);
    }
}

/// Removes empty maps and lists.
fn remove_empty(object: &mut Value) {
    const MAPS: &[&str] = &[
        "labels",
        "annotations",
        "capacity",
        "allocatable",
        "limits",
        "requests",
        "nodeSelector",
        "data",
        "binaryData",
        "matchLabels",
    ];
    match object {
        Value::Object(fields) => {
            fields.values_mut().for_each(remove_empty);
            fields.retain(|name, value| match value {
                Value::Object(inner) => !inner.is_empty() || !MAPS.contains(&name.as_str()),
                Value::Array(items) => !items.is_empty() || ["containers", "drivers"].contains(&name.as_str()),
                _ => true,
            });
        }
        Value::Array(items) => items.iter_mut().for_each(remove_empty),
        _ => {}
    }
}

fn default_node_status(status: &mut Value) {
    default(status, "daemonEndpoints", json!({ "kubeletEndpoint": { "Port": 0 } }));
    for field in [
        "architecture",
        "bootID",
        "containerRuntimeVersion",
        "kernelVersion",
        "kubeProxyVersion",
        "kubeletVersion",
        "machineID",
        "operatingSystem",
        "osImage",
        "systemUUID",
    ] {
        default(&mut status["nodeInfo"], field, json!(""));
    }
    let capacity = status["capacity"].clone();
    default(status, "allocatable", capacity);
}

/// Prepares an update for storage and keeps the half that it does not address.
pub(crate) fn prepare_for_update(target: &Target, new: &mut Value, old: &Value) {
    let resource = target.resource;
    let keep = |new: &mut Value, name: &str| restore(new, old, name);
    match (resource.status, target.subresource.as_str()) {
        (true, "status") => {
            keep(new, "spec");
            if resource.is_core("pods") {
                restore(&mut new["metadata"], &old["metadata"], "ownerReferences");
                restore(&mut new["metadata"], &old["metadata"], "deletionTimestamp");
                default(&mut new["status"], "qosClass", old["status"]["qosClass"].clone());
                keep_observed_generations(&mut new["status"], &old["status"]);
            }
        }
        (true, "approval") => {
            keep(new, "spec");
            let certificate = old["status"]["certificate"].clone();
            if !certificate.is_null() {
                new["status"]["certificate"] = certificate;
            }
        }
        (true, _) => {
            keep(new, "status");
            if resource.is_core("pods") && new["spec"] != old["spec"] {
                default_pod(&mut new["spec"]);
            }
            if resource.kind == "CertificateSigningRequest" {
                keep(new, "spec");
            }
        }
        (false, _) => {}
    }
    restore(&mut new["metadata"], &old["metadata"], "generation");
    if resource.is_core("pods") && new["spec"] != old["spec"] {
        let generation = old["metadata"]["generation"].as_u64().unwrap_or_default();
        new["metadata"]["generation"] = json!(generation + 1);
    }
}

/// Keeps the immutable metadata.
pub(crate) fn keep_metadata(resource: &Resource, new: &mut Value, old: &Value) -> Result<(), ApiError> {
    let name = old["metadata"]["name"].as_str().unwrap_or_default();
    let (before, after) = (&old["metadata"], &mut new["metadata"]);
    default(after, "uid", before["uid"].clone());
    for field in ["creationTimestamp", "deletionTimestamp", "namespace", "name"] {
        restore(after, before, field);
    }
    default(after, "deletionGracePeriodSeconds", before["deletionGracePeriodSeconds"].clone());
    for field in ["uid", "deletionGracePeriodSeconds"] {
        if after[field] != before[field] {
            let why = format!("Invalid value: {}: field is immutable", after[field]);
            return Err(ApiError::invalid(resource, name, &format!("metadata.{field}"), "FieldValueInvalid", &why));
        }
    }
    if let Value::Object(fields) = after {
        fields.retain(|_, value| !value.is_null());
    }
    Ok(())
}

/// Refuses to restart a terminated container, as the server does.
pub(crate) fn validate_pod_status(resource: &Resource, new: &Value, old: &Value) -> Result<(), ApiError> {
    let policy = old["spec"]["restartPolicy"].as_str().unwrap_or("Always");
    let name = old["metadata"]["name"].as_str().unwrap_or_default();
    let statuses = old["status"]["containerStatuses"].as_array().map(Vec::as_slice).unwrap_or_default();
    for (index, before) in statuses.iter().enumerate() {
        let ended = &before["state"]["terminated"];
        let restarts = match policy {
            "Always" => true,
            "OnFailure" => ended["exitCode"] != 0,
            _ => false,
        };
        let same = |status: &&Value| status["name"] == before["name"];
        let after = new["status"]["containerStatuses"].as_array().and_then(|all| all.iter().find(same));
        let is_ended = after.is_none_or(|after| !after["state"]["terminated"].is_null());
        // Containers with restart rules of their own are exempt.
        let has_rules = old["spec"]["containers"]
            .as_array()
            .is_some_and(|all| all.iter().any(|c| c["name"] == before["name"] && !c["restartPolicy"].is_null()));
        if !ended.is_null() && !restarts && !is_ended && !has_rules {
            let field = format!("status.containerStatuses[{index}].state");
            let why = "Forbidden: may not be transitioned to non-terminated state";
            return Err(ApiError::invalid(resource, name, &field, "FieldValueForbidden", why));
        }
    }
    Ok(())
}

/// Sets a missing field, unless `value` is null.
fn default(object: &mut Value, field: &str, value: Value) {
    if object[field].is_null() && !value.is_null() {
        object[field] = value;
    }
}

/// Restores a field's old value.
fn restore(new: &mut Value, old: &Value, field: &str) {
    let old = &old[field];
    if !old.is_null() {
        new[field] = old.clone();
    } else if let Value::Object(fields) = new {
        fields.remove(field);
    }
}

fn keep_observed_generations(new: &mut Value, old: &Value) {
    default(new, "observedGeneration", old["observedGeneration"].clone());
    let Some(conditions) = new["conditions"].as_array_mut() else { return };
    for condition in conditions {
        let same = |before: &&Value| before["type"] == condition["type"];
        let before = old["conditions"].as_array().and_then(|all| all.iter().find(same));
        let generation = before.map(|before| before["observedGeneration"].clone()).unwrap_or_default();
        default(condition, "observedGeneration", generation);
    }
}

fn default_pod(spec: &mut Value) {
    for (name, value) in [
        ("restartPolicy", json!("Always")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("dnsPolicy", json!("ClusterFirst")),
        ("securityContext", json!({})),
        ("schedulerName", json!("default-scheduler")),
        ("enableServiceLinks", json!(true)),
    ] {
        default(spec, name, value);
    }
    // Two names of one field.
    let account = spec["serviceAccountName"].clone();
    default(spec, "serviceAccount", account);
    for list in ["containers", "initContainers"] {
        items(spec, list).for_each(default_container);
    }
    items(spec, "volumes").for_each(default_volume);
}

/// Adds upstream's default toleration for unreachable or unready nodes.
fn tolerate(spec: &mut Value, key: &str) {
    let tolerations = spec["tolerations"].as_array().cloned().unwrap_or_default();
    let is_known = |toleration: &Value| {
        let is_about = toleration["key"] == key || toleration["key"].is_null() && toleration["operator"] == "Exists";
        is_about && (toleration["effect"].is_null() || toleration["effect"] == "NoExecute")
    };
    if !tolerations.iter().any(is_known) {
        let own = json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 });
        spec["tolerations"] = Value::Array([tolerations, vec![own]].concat());
    }
}

/// The elements of a list, if it exists.
fn items<'a>(object: &'a mut Value, field: &str) -> impl Iterator<Item = &'a mut Value> {
    object.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten()
}

fn default_container(container: &mut Value) {
    let image = container["image"].as_str().unwrap_or_default();
    let name = image.rsplit('/').next().unwrap_or_default();
    let is_latest = !name.contains('@') && (!name.contains(':') || name.ends_with(":latest"));
    let policy = if is_latest { "Always" } else { "IfNotPresent" };
    for (name, value) in [
        ("imagePullPolicy", json!(policy)),
        ("terminationMessagePath", json!("/dev/termination-log")),
        ("terminationMessagePolicy", json!("File")),
        ("resources", json!({})),
    ] {
        default(container, name, value);
    }
    if let Value::Object(limits) = container["resources"]["limits"].clone() {
        for (name, value) in limits {
            default(&mut container["resources"]["requests"], &name, value);
        }
    }
    for port in items(container, "ports") {
        default(port, "protocol", json!("TCP"));
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(probe) {
            let defaults =
                [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)];
            for (name, value) in defaults {
                default(probe, name, json!(value));
            }
        }
    }
}

fn default_volume(volume: &mut Value) {
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = volume.get_mut(source) {
            default(source, "defaultMode", json!(420));
        }
    }
    if let Some(host_path) = volume.get_mut("hostPath") {
        default(host_path, "type", json!(""));
    }
    let projected = volume.get_mut("projected").into_iter().flat_map(|projected| items(projected, "sources"));
    for token in projected.filter_map(|source| source.get_mut("serviceAccountToken")) {
        default(token, "expirationSeconds", json!(3600));
    }
}

fn qos_class(spec: &Value) -> &'static str {
    let lists = ["containers", "initContainers"];
    let containers: Vec<&Value> = lists.iter().filter_map(|list| spec[*list].as_array()).flatten().collect();
    let empty = Map::new();
    let named = |container: &Value, what: &str| container["resources"][what].as_object().unwrap_or(&empty).clone();
    let asks = |container: &&Value| !named(container, "limits").is_empty() || !named(container, "requests").is_empty();
    let is_guaranteed = |container: &&Value| {
        let (limits, requests) = (named(container, "limits"), named(container, "requests"));
        ["cpu", "memory"].iter().all(|name| limits.get(*name).is_some_and(|limit| requests.get(*name) == Some(limit)))
    };
    if containers.iter().all(is_guaranteed) {
        "Guaranteed"
    } else if containers.iter().any(asks) {
        "Burstable"
    } else {
        "BestEffort"
    }
}
