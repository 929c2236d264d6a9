//! The deletion of a pod that was exported from a cluster. Pure.

use super::Warning;
use crate::types::api::ObjectMeta;

/// A pod that was exported while it terminated says so. Like the status, this belongs to the API server's pod.
pub(super) fn ignore_deletion(metadata: &mut ObjectMeta, warnings: &mut Vec<Warning>) {
    let fields = [
        ("deletionTimestamp", metadata.deletion_timestamp.take().is_some()),
        ("deletionGracePeriodSeconds", metadata.deletion_grace_period_seconds.take().is_some()),
    ];
    for (field, _) in fields.into_iter().filter(|(_, is_set)| *is_set) {
        let why = "a static pod ends when its manifest is removed".to_owned();
        warnings.push(Warning::NoEffect(format!("metadata.{field}"), why));
    }
}
