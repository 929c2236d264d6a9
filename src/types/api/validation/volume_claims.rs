//! Validates PersistentVolumeClaims of manifests. Pure.

use super::faults::Faults;
use super::metadata;
use super::names::DNS_LABEL;
use crate::types::api::VolumeClaim;
use crate::types::api::decode::Path;

pub(super) fn check_claim(claim: &VolumeClaim, faults: &mut Faults) {
    let root = Path::Root;
    metadata::check(&claim.metadata, &root.key("metadata"), faults);
    let uid = claim.metadata.uid.as_str();
    // It is part of the name of a directory.
    if !uid.is_empty() {
        faults.name(&root.key("metadata").key("uid"), uid, &DNS_LABEL);
    }
    let path = root.key("spec");
    let spec = &claim.spec;
    let modes = path.key("accessModes");
    if spec.access_modes.is_empty() {
        faults.required(&modes);
    }
    for (index, mode) in spec.access_modes.iter().enumerate() {
        match mode.as_str() {
            "ReadWriteOnce" | "ReadOnlyMany" | "ReadWriteMany" => {}
            "ReadWriteOncePod" => {
                faults.other(&modes.index(index), "ReadWriteOncePod is not kept on one node: use ReadWriteOnce");
            }
            other => {
                faults.invalid(&modes.index(index), other, "expected ReadWriteOnce, ReadOnlyMany or ReadWriteMany")
            }
        }
    }
    let resources = path.key("resources");
    let requests = resources.key("requests");
    if claim.storage() == 0 {
        faults.required_as(&requests.key("storage"), "the space that the node has to have free");
    }
    match spec.volume_mode.as_deref() {
        None | Some("" | "Filesystem") => {}
        Some("Block") => {
            faults.other(&path.key("volumeMode"), "Block has no meaning on one node: a claim is a directory")
        }
        Some(other) => faults.invalid(&path.key("volumeMode"), other, "expected Filesystem"),
    }
}
