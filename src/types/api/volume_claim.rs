//! PersistentVolumeClaims of manifests, as far as they have a meaning on one node. Pure.

use super::map::Map;
use super::metadata::{Dropped, ObjectMeta};
use super::quantity::Quantity;

object! {
    /// A `v1.PersistentVolumeClaim`, also as a template of a StatefulSet.
    pub struct VolumeClaim {
        api_version: String,
        kind: String,
        metadata: ObjectMeta,
        spec: VolumeClaimSpec,
        status: Dropped,
    }
}

object! {
    pub struct VolumeClaimSpec {
        access_modes: Vec<String>,
        resources: VolumeClaimResources,
        storage_class_name: Option<String>,
        volume_mode: Option<String>,
    }
}

object! {
    pub struct VolumeClaimResources {
        requests: Map<Quantity>,
        limits: Map<Quantity>,
    }
}

impl VolumeClaim {
    /// The requested bytes.
    pub fn storage(&self) -> u64 {
        let requested = self.spec.resources.requests.get("storage");
        requested.map_or(0, |storage| u64::try_from(storage.value()).unwrap_or_default())
    }
}
