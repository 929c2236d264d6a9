//! Validates PersistentVolumeClaims of manifests. Pure.

use super::faults::Faults;
use super::metadata;
use super::names::DNS_LABEL;
use super::static_pod::too_long;
use crate::types::api::decode::Path;
use crate::types::api::{ObjectMeta, VolumeClaim};

pub(super) fn check_claim(claim: &VolumeClaim, faults: &mut Faults) {
    let root = Path::Root;
    metadata::check(&claim.metadata, &root.key("metadata"), faults);
    let uid = claim.metadata.uid.as_str();
    // It is part of the name of a directory.
    if !uid.is_empty() {
        faults.name(&root.key("metadata").key("uid"), uid, &DNS_LABEL);
    }
    check_directory(&claim.metadata, faults);
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

/// Its directory is `pvc-UID_NAMESPACE_NAME`, after a dot until it is complete.
fn check_directory(meta: &ObjectMeta, faults: &mut Faults) {
    let ObjectMeta { namespace, name, uid, .. } = meta;
    let uid = uid.as_str();
    let uid_bytes = if uid.is_empty() { DERIVED_UID_BYTES } else { uid.len() };
    let length = ".pvc-".len() + uid_bytes + "_".len() + namespace.len() + "_".len() + name.len();
    let directory = format_args!("the directory .pvc-UID_{namespace}_NAME of claim {name:?}");
    // What is too long by itself has an error already.
    let has_error = name.len() > 253 || namespace.len() > 63 || uid.len() > 63;
    if let Some(wrong) = too_long(directory, length).filter(|_| !has_error) {
        faults.other(&Path::Root.key("metadata").key("name"), wrong);
    }
}

/// A UUID as text.
const DERIVED_UID_BYTES: usize = 36;
