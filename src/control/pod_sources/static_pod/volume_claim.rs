//! PersistentVolumeClaims of manifests: directories of the node. Pure.

use serde_json::{Map, Value};

use super::{Fnv128a, Object, ObjectError, Warning, read, set_namespace, valid};
use crate::state::objects::ConfigObject;
use crate::types::api::VolumeClaim;
use crate::types::api::validation::{FieldError, validate_volume_claim};

pub(super) fn read_claim(object: Map<String, Value>, warnings: &mut Vec<Warning>) -> Result<Object, ObjectError> {
    let first = warnings.len();
    let (mut claim, errors): (VolumeClaim, _) = read(object, warnings)?;
    let mut faults = Vec::new();
    refuse_cluster_fields(warnings, first, &mut faults);
    set_namespace(&mut claim.metadata);
    faults.extend(validate_volume_claim(&claim));
    without_effect(&claim, "", warnings);
    valid(errors, faults)?;
    Ok(Object::Config(object_of(claim)))
}

/// Unknown fields of claims that only a cluster can carry out become errors. `first`: the first warning that is meant.
pub(super) fn refuse_cluster_fields(warnings: &mut Vec<Warning>, first: usize, faults: &mut Vec<FieldError>) {
    let known = warnings.split_off(first.min(warnings.len()));
    for warning in known {
        match warning {
            Warning::UnknownField(path) if is_of_cluster(&path) => {
                let problem = "has no meaning on one node: a claim is a new directory".to_owned();
                faults.push(FieldError { path, problem });
            }
            other => warnings.push(other),
        }
    }
}

fn is_of_cluster(path: &str) -> bool {
    let of_template = path.strip_prefix("spec.volumeClaimTemplates[").and_then(|rest| rest.split_once("]."));
    CLUSTER_CLAIM_FIELDS.contains(&of_template.map_or(path, |(_, path)| path))
}

/// Fields that choose or fill a volume.
const CLUSTER_CLAIM_FIELDS: [&str; 4] = ["spec.dataSource", "spec.dataSourceRef", "spec.selector", "spec.volumeName"];

/// Names what is harmless and has no effect. `before` stands before the paths.
pub(super) fn without_effect(claim: &VolumeClaim, before: &str, warnings: &mut Vec<Warning>) {
    let spec = &claim.spec;
    if spec.storage_class_name.as_ref().is_some_and(|class| !["", "local-path"].contains(&class.as_str())) {
        let path = format!("{before}spec.storageClassName");
        warnings.push(Warning::NoEffect(path, "a claim is a directory of the node".to_owned()));
    }
    if spec.resources.limits.iter().next().is_some() {
        let path = format!("{before}spec.resources.limits");
        warnings.push(Warning::NoEffect(path, "requests.storage is checked when the directory is made".to_owned()));
    }
}

/// The claim with the uid of its directory: its own, as one that was exported from a cluster has it, or one that depends
/// on its name only.
pub(super) fn object_of(mut claim: VolumeClaim) -> ConfigObject {
    let metadata = &mut claim.metadata;
    if metadata.uid.is_empty() {
        let mut hash = Fnv128a::new();
        for part in ["claim:", &metadata.namespace, "/", &metadata.name] {
            hash.write(part.as_bytes());
        }
        let digits = format!("{:032x}", hash.0);
        let mut uid = String::with_capacity(36);
        for (index, digit) in digits.chars().enumerate() {
            if [8, 12, 16, 20].contains(&index) {
                uid.push('-');
            }
            uid.push(digit);
        }
        metadata.uid = uid.into();
    }
    claim.into()
}
