//! `fsGroup` and `fsGroupChangePolicy` of a pod. Pure.

use crate::types::api::{FsGroupChangePolicy, PodSpec};

pub(super) fn fs_group(spec: &PodSpec) -> Option<u32> {
    spec.security_context.as_ref()?.fs_group.and_then(|group| u32::try_from(group).ok())
}

/// `fsGroupChangePolicy: OnRootMismatch`: change the files only if the volume's root differs.
pub(super) fn changes_on_root_mismatch(spec: &PodSpec) -> bool {
    let policy = spec.security_context.as_ref().and_then(|context| context.fs_group_change_policy);
    policy == Some(FsGroupChangePolicy::OnRootMismatch)
}
