//! Validates a pod's name, labels and annotations. Pure.

use super::faults::Faults;
use super::names::{ANNOTATION_KEY, DNS_LABEL, DNS_SUBDOMAIN, LABEL_KEY, LABEL_VALUE, NAME_PREFIX};
use crate::types::api::annotations::{
    APP_ARMOR_PREFIX, AUTO_UPDATE, DEVICE_SELECTORS, HOLD, KEEP_VERSIONS, NEEDS_MAINS, ONE_AT_A_TIME, OWN_SHIM,
    PULL_FIRST, READY_WITHIN, UPDATE_LOCK, UPDATE_LOCK_LIMIT, URGENT, auto_update, keep_versions, ready_within,
    update_lock, yes_or_no,
};
use crate::types::api::decode::Path;
use crate::types::api::{DeviceSelectors, Map, ObjectMeta, OwnerReference, SecurityProfile};

/// Upper bound on all annotations of an object, keys and values, in bytes.
const MAX_ANNOTATIONS_BYTES: usize = 256 * 1024;

pub(super) fn check(meta: &ObjectMeta, path: &Path<'_>, faults: &mut Faults) {
    faults.optional_name(&path.key("generateName"), &meta.generate_name, &NAME_PREFIX);
    faults.required_name(&path.key("name"), &meta.name, &DNS_SUBDOMAIN);
    faults.required_name(&path.key("namespace"), &meta.namespace, &DNS_LABEL);
    if meta.generation < 0 {
        faults.out_of_range(&path.key("generation"), meta.generation, "must not be negative");
    }
    check_labels(&meta.labels, &path.key("labels"), faults);
    check_annotations(&meta.annotations, &path.key("annotations"), faults);
    for (index, owner) in meta.owner_references.iter().enumerate() {
        check_owner(owner, &path.key("ownerReferences").index(index), faults);
    }
    for (index, finalizer) in meta.finalizers.iter().enumerate() {
        check_finalizer(finalizer, &path.key("finalizers").index(index), faults);
    }
}

/// Checks labels, and node selectors, which have the same form.
pub(super) fn check_labels(labels: &Map<String>, path: &Path<'_>, faults: &mut Faults) {
    for (key, value) in labels.iter() {
        faults.name(path, key, &LABEL_KEY);
        faults.name(&path.key(key), value, &LABEL_VALUE);
    }
}

fn check_annotations(annotations: &Map<String>, path: &Path<'_>, faults: &mut Faults) {
    let mut size = 0_usize;
    for (key, value) in annotations.iter() {
        faults.name(path, key, &ANNOTATION_KEY);
        // An empty one names no profile.
        let is_profile = key.starts_with(APP_ARMOR_PREFIX) && !value.is_empty();
        if is_profile && SecurityProfile::of_annotation(value).is_none() {
            let wanted = "must be \"runtime/default\", \"unconfined\" or \"localhost/\" and the name of a profile";
            faults.invalid(&path.key(key), value, wanted);
        }
        let is_wrong = match key {
            READY_WITHIN | UPDATE_LOCK_LIMIT if ready_within(value).is_none() => {
                Some("must be a whole number of s, m or h, as 60s, up to 24h")
            }
            AUTO_UPDATE if auto_update(value).is_none() => Some("must be a whole number of s, m or h, from 1m to 24h"),
            KEEP_VERSIONS if keep_versions(value).is_none() => Some("must be a number from 1 to 10"),
            UPDATE_LOCK if update_lock(value).is_none() => {
                Some("must be a volume of the pod and a path in it, as state/update.lock")
            }
            HOLD | NEEDS_MAINS | ONE_AT_A_TIME | OWN_SHIM | PULL_FIRST | URGENT if yes_or_no(value).is_none() => {
                Some("must be \"true\" or \"false\"")
            }
            _ => None,
        };
        if let Some(wanted) = is_wrong {
            faults.invalid(&path.key(key), value, wanted);
        }
        if key == DEVICE_SELECTORS {
            if let Err(wrong) = DeviceSelectors::parse(value) {
                faults.other(&path.key(key), format_args!("{wrong}"));
            }
        }
        size = size.saturating_add(key.len()).saturating_add(value.len());
    }
    if size > MAX_ANNOTATIONS_BYTES {
        faults.other(path, format_args!("{size} bytes: must be at most {MAX_ANNOTATIONS_BYTES} in all"));
    }
}

fn check_owner(owner: &OwnerReference, path: &Path<'_>, faults: &mut Faults) {
    let fields =
        [("apiVersion", &owner.api_version), ("kind", &owner.kind), ("name", &owner.name), ("uid", &owner.uid)];
    for (field, value) in fields {
        if value.is_empty() {
            faults.required(&path.key(field));
        }
    }
}

fn check_finalizer(finalizer: &str, path: &Path<'_>, faults: &mut Faults) {
    faults.name(path, finalizer, &LABEL_KEY);
    if !finalizer.contains('/') && !["foregroundDeletion", "kubernetes", "orphan"].contains(&finalizer) {
        faults.invalid(path, finalizer, "must have a domain before it, as in example.com/name");
    }
}
