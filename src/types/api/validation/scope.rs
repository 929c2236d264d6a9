//! What the fields of a container may refer to: the pod's volumes, containers and claims. Pure.

use crate::types::api::{PodSpec, VolumeSource};
use crate::types::sorted::{SortedMap, SortedSet};

/// Built once for a pod: searching the volume list for every mount would be quadratic.
#[derive(Debug)]
pub(super) struct Scope<'a> {
    pub(super) spec: &'a PodSpec,
    pub(super) volumes: SortedMap<&'a str, &'a VolumeSource>,
    pub(super) containers: SortedSet<&'a str>,
    pub(super) claims: SortedSet<&'a str>,
}

impl<'a> Scope<'a> {
    pub(super) fn new(spec: &'a PodSpec) -> Self {
        let claims = spec.resource_claims.iter().filter_map(|claim| claim.get("name"));
        Self {
            spec,
            volumes: spec.volumes.iter().map(|volume| (volume.name.as_str(), &volume.source)).collect(),
            containers: spec.all_containers().map(|container| container.name.as_str()).collect(),
            claims: claims.collect(),
        }
    }

    /// Whether the pod runs in the host's user namespace.
    pub(super) fn host_users(&self) -> bool {
        self.spec.host_users.unwrap_or(true)
    }
}
