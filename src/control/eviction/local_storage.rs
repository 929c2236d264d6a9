//! Ephemeral storage limits of pods. Pure.

use super::usage::{Disk, PodUsage};
use crate::types::api::{Container, EPHEMERAL_STORAGE, Pod, Quantity, VolumeSource, pod_limits};
use crate::types::sorted::SortedMap;

/// Whether the pod must be measured for its storage limits at all.
pub(crate) fn has_limits(pod: &Pod) -> bool {
    let limited = |source: &VolumeSource| match source {
        VolumeSource::EmptyDir(source) => source.size_limit.is_some_and(is_positive),
        _ => false,
    };
    pod.spec.volumes.iter().any(|volume| limited(&volume.source)) || has_storage_limit(pod)
}

/// Whether a container or the pod has an ephemeral storage limit.
pub(crate) fn has_storage_limit(pod: &Pod) -> bool {
    let pod_has_limit = pod.spec.resources.iter().any(|resources| resources.limits.contains_key(EPHEMERAL_STORAGE));
    let mut containers = pod.spec.all_containers();
    pod_has_limit || containers.any(|container| container.resources.limits.contains_key(EPHEMERAL_STORAGE))
}

/// A limit that a pod exceeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExceededLimit {
    /// Upstream's name of the limit in the metrics.
    pub(crate) signal: &'static str,
    pub(crate) message: String,
}

/// The first exceeded limit, in upstream's order, which has no limits of claims. `layers_apart`: writable layers are on another file system.
pub(crate) fn exceeded(pod: &Pod, usage: &PodUsage, layers_apart: bool) -> Option<ExceededLimit> {
    let of = |signal| move |message| ExceededLimit { signal, message };
    exceeded_volume(pod, usage)
        .map(of("emptydirfs.limit"))
        .or_else(|| exceeded_claim(usage).map(of("claimfs.limit")))
        .or_else(|| exceeded_by_pod(pod, usage).map(of("ephemeralpodfs.limit")))
        .or_else(|| exceeded_by_container(pod, usage, layers_apart).map(of("ephemeralcontainerfs.limit")))
}

fn exceeded_volume(pod: &Pod, usage: &PodUsage) -> Option<String> {
    let disks: SortedMap<&str, Disk> = usage.volumes.iter().map(|seen| (seen.name.as_str(), seen.disk)).collect();
    pod.spec.volumes.iter().find_map(|volume| {
        let VolumeSource::EmptyDir(source) = &volume.source else { return None };
        let limit = source.size_limit.filter(|limit| is_positive(*limit))?;
        let used = *disks.get(volume.name.as_str())?;
        let name = &volume.name;
        is_over(used.bytes, limit).then(|| format!("Usage of EmptyDir volume {name:?} exceeds the limit \"{limit}\". "))
    })
}

fn exceeded_claim(usage: &PodUsage) -> Option<String> {
    let claim = usage.claims.iter().find(|claim| claim.disk.bytes > claim.limit)?;
    Some(format!("Usage of claim {:?} exceeds the {} bytes that it requests. ", claim.name, claim.limit))
}

fn exceeded_by_pod(pod: &Pod, usage: &PodUsage) -> Option<String> {
    let limit = *pod_limits(&pod.spec).get(EPHEMERAL_STORAGE)?;
    let used = usage.layers().plus(usage.local());
    is_over(used.bytes, limit)
        .then(|| format!("Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "))
}

fn exceeded_by_container(pod: &Pod, usage: &PodUsage, layers_apart: bool) -> Option<String> {
    let sidecars = pod.spec.init_containers.iter().filter(|container| container.is_sidecar());
    let containers = pod.spec.containers.iter().chain(sidecars).map(|container| (container.name.as_str(), container));
    let containers: SortedMap<&str, &Container> = containers.collect();
    usage.containers.iter().find_map(|seen| {
        let name = &seen.name;
        let container = containers.get(name.as_str())?;
        let limit = *container.resources.limits.get(EPHEMERAL_STORAGE).filter(|limit| !limit.is_zero())?;
        let layer = seen.layer.filter(|_| !layers_apart).unwrap_or_default();
        let used = seen.logs.unwrap_or(Disk::default()).plus(layer);
        is_over(used.bytes, limit)
            .then(|| format!("Container {name} exceeded its local ephemeral storage limit \"{limit}\". "))
    })
}

fn is_over(bytes: u64, limit: Quantity) -> bool {
    i128::from(bytes).saturating_mul(1_000_000_000) > limit.nanos()
}

fn is_positive(limit: Quantity) -> bool {
    !limit.is_zero() && !limit.is_negative()
}

#[cfg(test)]
mod tests {
    use super::super::usage::{ClaimUsage, ContainerUsage, VolumeUsage};
    use super::*;
    use crate::types::api::{Container, EmptyDirVolumeSource, RestartPolicy, Volume};

    fn container(name: &str, limit: Option<&str>) -> Container {
        let mut container = Container { name: name.to_owned(), ..Container::default() };
        let limits = limit.map(|limit| (EPHEMERAL_STORAGE, limit.parse().unwrap()));
        container.resources.limits = limits.into_iter().collect();
        container
    }

    fn empty_dir(name: &str, limit: Option<&str>) -> Volume {
        let size_limit = limit.map(|limit| limit.parse().unwrap());
        let source = EmptyDirVolumeSource { size_limit, ..EmptyDirVolumeSource::default() };
        Volume { name: name.to_owned(), source: VolumeSource::EmptyDir(Box::new(source)) }
    }

    fn pod(containers: Vec<Container>, volumes: Vec<Volume>) -> Pod {
        let mut pod = Pod::default();
        pod.spec.containers = containers;
        pod.spec.volumes = volumes;
        pod
    }

    fn disk(bytes: u64) -> Disk {
        Disk { bytes, inodes: 1 }
    }

    fn uses(name: &str, layer: u64, logs: u64) -> ContainerUsage {
        ContainerUsage { name: name.to_owned(), memory: None, layer: Some(disk(layer)), logs: Some(disk(logs)) }
    }

    fn volume(name: &str, bytes: u64, in_memory: bool) -> VolumeUsage {
        VolumeUsage { name: name.to_owned(), disk: disk(bytes), in_memory }
    }

    #[test]
    fn volume_exceeds_its_limit_by_one_byte() {
        let pod = pod(vec![container("x", None)], vec![empty_dir("free", None), empty_dir("data", Some("1Ki"))]);
        let told = |free, data| {
            let volumes = vec![volume("free", free, false), volume("data", data, true)];
            exceeded(&pod, &PodUsage { volumes, ..PodUsage::default() }, false)
        };
        assert_eq!(told(1 << 40, 1024), None);
        let message = "Usage of EmptyDir volume \"data\" exceeds the limit \"1Ki\". ".to_owned();
        assert_eq!(told(0, 1025), Some(ExceededLimit { signal: "emptydirfs.limit", message }));
        assert_eq!(exceeded(&pod, &PodUsage::default(), false), None, "unmeasured usage is within the limit");
    }

    #[test]
    fn claim_exceeds_what_it_requests_on_any_disk() {
        let told = |bytes, on_node_disk| {
            let claim = ClaimUsage { name: "data".to_owned(), disk: disk(bytes), limit: 65536, on_node_disk };
            let usage = PodUsage { claims: vec![claim], ..PodUsage::default() };
            exceeded(&Pod::default(), &usage, false)
        };
        assert_eq!(told(65536, true), None);
        let message = "Usage of claim \"data\" exceeds the 65536 bytes that it requests. ".to_owned();
        let expected = Some(ExceededLimit { signal: "claimfs.limit", message });
        assert_eq!((told(65537, true), told(65537, false)), (expected.clone(), expected));
    }

    #[test]
    fn container_usage_has_logs_and_layers_on_the_same_disk() {
        let pod = pod(vec![container("x", Some("1Ki")), container("y", None)], Vec::new());
        let told = |layer, logs, apart| {
            let usage = PodUsage { containers: vec![uses("x", layer, logs)], ..PodUsage::default() };
            exceeded_by_container(&pod, &usage, apart)
        };
        assert_eq!(told(1000, 24, false), None);
        assert_eq!(told(1000, 25, true), None);
        let expected = "Container x exceeded its local ephemeral storage limit \"1Ki\". ";
        assert_eq!(told(1000, 25, false).as_deref(), Some(expected));
    }

    #[test]
    fn container_may_exceed_its_limit_while_the_pod_is_within_its_own() {
        let pod = pod(vec![container("x", Some("1Ki")), container("y", Some("1Ki"))], Vec::new());
        let usage = PodUsage { containers: vec![uses("x", 1000, 25)], ..PodUsage::default() };
        let signal = exceeded(&pod, &usage, false).map(|exceeded| exceeded.signal);
        assert_eq!(signal, Some("ephemeralcontainerfs.limit"));
    }

    #[test]
    fn sidecar_has_a_limit_as_other_containers_but_an_init_container_that_ends_has_none() {
        let mut pod = pod(vec![container("x", None)], Vec::new());
        let sidecar = Container { restart_policy: Some(RestartPolicy::Always), ..container("s", Some("1Ki")) };
        pod.spec.init_containers = vec![container("i", Some("1Ki")), sidecar];
        let exceeds = |name: &str| {
            let usage = PodUsage { containers: vec![uses(name, 1000, 25)], ..PodUsage::default() };
            exceeded_by_container(&pod, &usage, false)
        };
        assert_eq!(exceeds("i"), None);
        assert_eq!(exceeds("s").unwrap(), "Container s exceeded its local ephemeral storage limit \"1Ki\". ");
    }

    #[test]
    fn pod_usage_has_everything_on_the_disk() {
        let pod = pod(vec![container("x", Some("1Ki")), container("y", Some("1Ki"))], vec![empty_dir("data", None)]);
        let told = |data, in_memory, own| {
            let containers = vec![uses("x", 500, 0), uses("y", 500, 0)];
            let volumes = vec![volume("data", data, in_memory)];
            exceeded(&pod, &PodUsage { containers, volumes, pod_files: disk(own), ..PodUsage::default() }, false)
        };
        assert_eq!(told(1000, false, 48), None);
        assert_eq!(told(5000, true, 48), None);
        let message = "Pod ephemeral local storage usage exceeds the total limit of containers 2Ki. ".to_owned();
        assert_eq!(told(1000, false, 49), Some(ExceededLimit { signal: "ephemeralpodfs.limit", message }));
    }

    #[test]
    fn only_pods_with_limits_are_measured() {
        assert!(!has_limits(&pod(vec![container("x", None)], vec![empty_dir("data", None)])));
        assert!(!has_limits(&pod(Vec::new(), vec![empty_dir("data", Some("0"))])));
        assert!(has_limits(&pod(Vec::new(), vec![empty_dir("data", Some("1"))])));
        assert!(has_limits(&pod(vec![container("x", Some("1"))], Vec::new())));
    }
}
