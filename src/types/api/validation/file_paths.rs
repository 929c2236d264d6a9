//! Validates paths that must stay below a directory. Pure.

use super::faults::Faults;
use crate::types::api::decode::Path;

const NO_BACKSTEPS: &str = "must not contain '..'";

/// Checks that no component is `..`.
pub(super) fn without_backsteps(path: &str, field: &Path<'_>, faults: &mut Faults) {
    if has_backsteps(path) {
        faults.invalid(field, path, NO_BACKSTEPS);
    }
}

/// Checks that the path is relative and has no `..`.
pub(super) fn descending(path: &str, field: &Path<'_>, faults: &mut Faults) {
    if path.starts_with('/') {
        faults.invalid(field, path, "must be a relative path");
    } else {
        without_backsteps(path, field, faults);
    }
}

/// Checks as [`descending`], and that the path is not one of the kubelet's own in a volume (`..data`).
pub(super) fn in_volume(path: &str, field: &Path<'_>, faults: &mut Faults) {
    if path.is_empty() {
        faults.required(field);
    } else if path.starts_with("..") && !has_backsteps(path) {
        faults.invalid(field, path, "must not begin with '..'");
    } else {
        descending(path, field, faults);
    }
}

fn has_backsteps(path: &str) -> bool {
    path.split('/').any(|part| part == "..")
}
