//! How the containers of a pod use its volumes, in maps: a pod may have thousands of volumes and mounts. Pure.

use std::path::PathBuf;

use super::nested::nested_mount_points;
use crate::types::api::{Container, HUGE_PAGES_PREFIX, MEMORY, PodSpec, Quantity, pod_limits};
use crate::types::sorted::{SortOnce, SortedMap, SortedSet};

/// What the plans of all volumes of a pod share.
#[derive(Debug)]
pub(super) struct VolumeUses<'a> {
    /// The containers that mount a volume, by its name.
    mounting: SortedMap<&'a str, Vec<&'a Container>>,
    /// Volumes that containers use as block devices.
    passed: SortedSet<&'a str>,
    mount_points: SortedMap<&'a str, Vec<PathBuf>>,
    /// The pod's memory limit; `None` if a container has none.
    pub(super) memory_limit: Option<Quantity>,
    /// The page size, if the pod requests huge pages of exactly one size.
    pub(super) page_size: Option<Quantity>,
}

impl<'a> VolumeUses<'a> {
    pub(super) fn of(spec: &'a PodSpec) -> Self {
        let devices = spec.all_containers().flat_map(|container| &container.volume_devices);
        Self {
            mounting: mounting(spec),
            passed: devices.map(|device| device.name.as_str()).collect(),
            mount_points: nested_mount_points(spec),
            memory_limit: memory_limit(spec),
            page_size: page_size(spec),
        }
    }

    /// A volume that no container uses is ignored, even if it is invalid.
    pub(super) fn is_used(&self, volume: &str) -> bool {
        self.is_mounted(volume) || self.is_passed(volume)
    }

    pub(super) fn is_mounted(&self, volume: &str) -> bool {
        self.mounting.contains_key(volume)
    }

    /// A container uses it as a block device.
    pub(super) fn is_passed(&self, volume: &str) -> bool {
        self.passed.contains(volume)
    }

    /// The containers that mount the volume.
    pub(super) fn mounting(&self, volume: &str) -> &[&'a Container] {
        self.mounting.get(volume).map(Vec::as_slice).unwrap_or_default()
    }

    /// Paths inside the volume where containers mount something else.
    pub(super) fn mount_points(&self, volume: &str) -> &[PathBuf] {
        self.mount_points.get(volume).map(Vec::as_slice).unwrap_or_default()
    }
}

fn mounting(spec: &PodSpec) -> SortedMap<&str, Vec<&Container>> {
    let mounts = |container| -> Vec<(&str, &Container)> {
        let container: &Container = container;
        container.volume_mounts.iter().map(|mount| (mount.name.as_str(), container)).collect()
    };
    let mut mounts_by_volume: Vec<(&str, &Container)> = spec.all_containers().flat_map(mounts).collect();
    mounts_by_volume.sort_once_by_key(|(volume, _)| *volume);
    let mut containers_by_volume: Vec<(&str, Vec<&Container>)> = Vec::new();
    for (volume, container) in mounts_by_volume {
        match containers_by_volume.last_mut() {
            Some((last, containers)) if *last == volume => {
                if !containers.last().is_some_and(|last| std::ptr::eq(*last, container)) {
                    containers.push(container);
                }
            }
            Some(_) | None => containers_by_volume.push((volume, vec![container])),
        }
    }
    containers_by_volume.into_iter().collect()
}

/// The pod has a limit only if each of its containers has one, or the pod itself.
fn memory_limit(spec: &PodSpec) -> Option<Quantity> {
    let limited = |container: &Container| container.resources.limit(MEMORY).is_some_and(|limit| !limit.is_zero());
    let pod_limit = spec.resources.as_ref().and_then(|pod| pod.limit(MEMORY));
    let has_limit = pod_limit.is_some() || spec.containers.iter().chain(&spec.init_containers).all(limited);
    has_limit.then(|| pod_limits(spec).get(MEMORY).copied()).flatten()
}

fn page_size(spec: &PodSpec) -> Option<Quantity> {
    let lists = spec.all_containers().map(|container| &container.resources.requests);
    let names = lists.flat_map(|list| list.iter().map(|(name, _)| name));
    let mut sizes = names.filter_map(|name| name.strip_prefix(HUGE_PAGES_PREFIX)?.parse::<Quantity>().ok());
    let first = sizes.next()?;
    sizes.all(|size| size == first).then_some(first)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::types::api::decode;

    #[test]
    fn container_without_a_limit_leaves_the_pod_unlimited() {
        let mut spec: PodSpec = decode(json!({"containers": [{"name": "a"}]})).unwrap().value;
        let limit = |spec: &PodSpec| VolumeUses::of(spec).memory_limit;
        assert_eq!(limit(&spec), None);
        spec.containers[0].resources.limits.insert(MEMORY, "8Mi".parse().unwrap());
        assert_eq!(limit(&spec), "8Mi".parse().ok());
        spec.init_containers.push(Container::default());
        assert_eq!(limit(&spec), None);
    }

    #[test]
    fn mounts_devices_and_containers_are_found_by_volume() {
        let mounts = json!([{"name": "v", "mountPath": "/v"}, {"name": "w", "mountPath": "/v/w"},
            {"name": "v", "mountPath": "/again"}]);
        let spec: PodSpec = decode(json!({
            "containers": [{"name": "a", "volumeMounts": mounts}],
            "initContainers": [{"name": "b", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
            "ephemeralContainers": [{"name": "c", "volumeDevices": [{"name": "d", "devicePath": "/d"}]}],
        }))
        .unwrap()
        .value;
        let uses = VolumeUses::of(&spec);
        let names = |volume: &str| uses.mounting(volume).iter().map(|user| user.name.as_str()).collect::<Vec<_>>();
        assert_eq!((names("v"), names("w"), names("d")), (vec!["b", "a"], vec!["a"], vec![]));
        assert_eq!((uses.is_mounted("d"), uses.is_passed("d"), uses.is_used("d")), (false, true, true));
        assert!(!uses.is_used("x") && !uses.is_passed("v"));
        assert_eq!(uses.mount_points("v"), [PathBuf::from("w")]);
    }
}
