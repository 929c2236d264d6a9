//! The API's defaults for fields that a pod leaves out. Pure.
//!
//! The rules are those of `pkg/apis/core/v1/defaults.go` and of the `+default` marks on the types. Defaults that a type
//! has as its `Default` (restart policy, protocol, scheme) are not repeated here.

use serde_json::{Value, json};

use super::annotations::APP_ARMOR_PREFIX;
use super::{
    CPU, Container, DownwardApiVolumeFile, EnvVarSource, HUGE_PAGES_PREFIX, HttpGetAction, LifecycleAction,
    LifecycleHandler, MEMORY, Map, ObjectFieldSelector, Pod, PodSpec, Probe, ProbeHandler, ProjectedVolumeSource,
    ProjectionSource, PullPolicy, Quantity, ResourceList, ResourceRequirements, SecurityProfile, ValueFrom, Volume,
    VolumeSource, container_limits, container_requests,
};

/// Sets the defaults in `pod`. Idempotent.
pub fn apply(pod: &mut Pod) {
    let spec = &mut pod.spec;
    for container in spec.init_containers.iter_mut().chain(&mut spec.containers) {
        requests_from_limits(&mut container.resources);
        if spec.host_network {
            host_ports(container);
        }
    }
    pod_level_resources(spec);
    spec.enable_service_links.get_or_insert(true);
    spec.security_context.get_or_insert_default();
    spec.termination_grace_period_seconds.get_or_insert(30);
    fill(&mut spec.scheduler_name, "default-scheduler");
    round_up(&mut spec.overhead);
    if let Some(resources) = &mut spec.resources {
        round_up_all(resources);
    }
    for volume in &mut spec.volumes {
        apply_to_volume(volume);
    }
    let main_and_init = spec.init_containers.iter_mut().chain(&mut spec.containers);
    for container in main_and_init.chain(&mut spec.ephemeral_containers) {
        apply_to_container(container);
        app_armor(container, &pod.metadata.annotations);
    }
}

/// Takes the profile from the annotation if the container has no field for it. It precedes the pod's field.
fn app_armor(container: &mut Container, annotations: &Map<String>) {
    let value = annotations.get(&[APP_ARMOR_PREFIX, &container.name].concat());
    let Some(profile) = value.and_then(|value| SecurityProfile::of_annotation(value)) else { return };
    container.security_context.get_or_insert_default().app_armor_profile.get_or_insert(profile);
}

fn fill(field: &mut String, default: &str) {
    if field.is_empty() {
        default.clone_into(field);
    }
}

fn requests_from_limits(resources: &mut ResourceRequirements) {
    let ResourceRequirements { limits, requests, .. } = resources;
    add_missing(requests, limits.iter());
}

fn add_missing<'a>(list: &mut ResourceList, from: impl Iterator<Item = (&'a str, &'a Quantity)>) {
    for (resource, quantity) in from {
        if !list.contains_key(resource) {
            list.insert(resource, *quantity);
        }
    }
}

/// In the host's network namespace, a container port is also a host port.
fn host_ports(container: &mut Container) {
    for port in container.ports.iter_mut().filter(|port| port.host_port == 0) {
        port.host_port = port.container_port;
    }
}

/// Fills in the pod-level requests and limits from the containers' sums, then requests from the pod's own limits.
fn pod_level_resources(spec: &mut PodSpec) {
    let Some(mut pod) = spec.resources.take() else { return };
    if !pod.limits.is_empty() || !pod.requests.is_empty() {
        let sum = container_limits(spec);
        let wanted = sum.iter().filter(|(resource, _)| is_huge_pages(resource) && !pod.requests.contains_key(resource));
        add_missing(&mut pod.limits, wanted);
    }
    if !pod.limits.is_empty() {
        let sum = container_requests(spec);
        // Huge pages cannot be overcommitted: their request equals their limit.
        add_missing(&mut pod.requests, sum.iter().filter(|(resource, _)| [CPU, MEMORY].contains(resource)));
        let limits = pod.limits.iter().filter(|(resource, _)| is_pod_level(resource));
        add_missing(&mut pod.requests, limits);
    }
    spec.resources = Some(pod);
}

fn is_huge_pages(resource: &str) -> bool {
    resource.starts_with(HUGE_PAGES_PREFIX)
}

fn is_pod_level(resource: &str) -> bool {
    [CPU, MEMORY].contains(&resource) || is_huge_pages(resource)
}

fn round_up_all(resources: &mut ResourceRequirements) {
    round_up(&mut resources.limits);
    round_up(&mut resources.requests);
}

/// Rounds every quantity up to thousandths, the finest that the API stores.
fn round_up(list: &mut ResourceList) {
    let finer: Vec<Box<str>> = list
        .iter()
        .filter(|(_, quantity)| quantity.nanos() % 1_000_000 != 0)
        .map(|(resource, _)| resource.into())
        .collect();
    for resource in finer {
        if let Some(quantity) = list.get_mut(&resource) {
            *quantity = Quantity::from_milli(quantity.milli_value(), quantity.format());
        }
    }
}

fn apply_to_volume(volume: &mut Volume) {
    match &mut volume.source {
        VolumeSource::ConfigMap(source) => file_mode(&mut source.default_mode),
        VolumeSource::Secret(source) => file_mode(&mut source.default_mode),
        VolumeSource::DownwardApi(source) => {
            file_mode(&mut source.default_mode);
            apply_to_files(&mut source.items);
        }
        VolumeSource::Projected(source) => apply_to_projected(source),
        VolumeSource::Image(source) => {
            source.pull_policy.get_or_insert(pull_policy(&source.reference));
        }
        VolumeSource::Iscsi(source) => fill_keys(source, &[("iscsiInterface", json!("default"))]),
        VolumeSource::Rbd(source) => fill_keys(
            source,
            &[("pool", json!("rbd")), ("user", json!("admin")), ("keyring", json!("/etc/ceph/keyring"))],
        ),
        VolumeSource::AzureDisk(source) => fill_keys(
            source,
            &[
                ("cachingMode", json!("ReadWrite")),
                ("fsType", json!("ext4")),
                ("kind", json!("Shared")),
                ("readOnly", json!(false)),
            ],
        ),
        VolumeSource::ScaleIo(source) => {
            fill_keys(source, &[("storageMode", json!("ThinProvisioned")), ("fsType", json!("xfs"))]);
        }
        // The API server removes unknown fields first.
        unknown @ VolumeSource::Unknown => *unknown = VolumeSource::EmptyDir(Box::default()),
        // The others have no default, or get it from their type.
        _ => {}
    }
}

fn file_mode(mode: &mut Option<i32>) {
    mode.get_or_insert(0o644);
}

fn apply_to_projected(volume: &mut ProjectedVolumeSource) {
    file_mode(&mut volume.default_mode);
    for source in volume.sources.iter_mut().filter_map(|projection| projection.source.as_mut()) {
        match source {
            ProjectionSource::DownwardApi(source) => apply_to_files(&mut source.items),
            ProjectionSource::ServiceAccountToken(source) => {
                source.expiration_seconds.get_or_insert(60 * 60);
            }
            ProjectionSource::ClusterTrustBundle(_)
            | ProjectionSource::ConfigMap(_)
            | ProjectionSource::PodCertificate(_)
            | ProjectionSource::Secret(_) => {}
        }
    }
}

fn apply_to_files(files: &mut [DownwardApiVolumeFile]) {
    for field in files.iter_mut().filter_map(|file| file.field_ref.as_mut()) {
        apply_to_field(field);
    }
}

fn apply_to_field(field: &mut ObjectFieldSelector) {
    fill(&mut field.api_version, "v1");
}

/// Sets the keys that are missing or empty strings.
fn fill_keys(object: &mut Value, defaults: &[(&str, Value)]) {
    let Some(object) = object.as_object_mut() else { return };
    for (key, default) in defaults {
        let value = object.entry(*key).or_insert(Value::Null);
        if value.is_null() || value.as_str() == Some("") {
            value.clone_from(default);
        }
    }
}

fn apply_to_container(container: &mut Container) {
    container.image_pull_policy.get_or_insert(pull_policy(&container.image));
    fill(&mut container.termination_message_path, "/dev/termination-log");
    round_up_all(&mut container.resources);
    container.env.sources_mut().for_each(apply_to_variable);
    let probes = [&mut container.liveness_probe, &mut container.readiness_probe, &mut container.startup_probe];
    for probe in probes.into_iter().flatten() {
        apply_to_probe(probe);
    }
    if let Some(lifecycle) = &mut container.lifecycle {
        for LifecycleHandler { action } in [&mut lifecycle.post_start, &mut lifecycle.pre_stop].into_iter().flatten() {
            if let LifecycleAction::HttpGet(request) = action {
                apply_to_request(request);
            }
        }
    }
}

fn apply_to_variable(from: &mut ValueFrom) {
    match &mut from.source {
        EnvVarSource::Field(field) => apply_to_field(field),
        EnvVarSource::FileKey(key) => {
            key.optional.get_or_insert(false);
        }
        EnvVarSource::ConfigMapKey(_) | EnvVarSource::ResourceField(_) | EnvVarSource::SecretKey(_) => {}
    }
}

fn apply_to_probe(probe: &mut Probe) {
    let numbers = [
        (&mut probe.timeout_seconds, 1),
        (&mut probe.period_seconds, 10),
        (&mut probe.success_threshold, 1),
        (&mut probe.failure_threshold, 3),
    ];
    for (number, default) in numbers {
        if *number == 0 {
            *number = default;
        }
    }
    match &mut probe.handler {
        ProbeHandler::Grpc(request) => {
            request.service.get_or_insert_default();
        }
        ProbeHandler::HttpGet(request) => apply_to_request(request),
        ProbeHandler::Exec(_) | ProbeHandler::TcpSocket(_) => {}
    }
}

fn apply_to_request(request: &mut HttpGetAction) {
    fill(&mut request.path, "/");
}

/// `latest`, or neither tag nor digest, means Always; anything else IfNotPresent.
fn pull_policy(image: &str) -> PullPolicy {
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    // A colon before the last slash belongs to the registry's port.
    let last = name.rsplit_once('/').map_or(name, |(_, last)| last);
    match (last.split_once(':'), digest) {
        (Some((_, "latest")), _) => PullPolicy::Always,
        (None, None) if !image.is_empty() => PullPolicy::Always,
        _ => PullPolicy::IfNotPresent,
    }
}

#[cfg(test)]
mod tests;
