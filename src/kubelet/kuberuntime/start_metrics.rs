//! Counts the starts of pods and containers as upstream does: each attempt, and each failure again.

use super::pod_index::ContainerIndex;
use crate::state::pods::Waiting;
use crate::types::api::{Container, Pod, Reason, VolumeSource};
use crate::types::metrics::{self, Count};
use crate::types::sorted::SortedSet;

/// The message of a runtime that could not mount an image volume starts with this (cri-api: `ErrImageVolumeMountFailed`).
const MOUNT_FAILED: &str = "ImageVolumeMountFailed";

/// The pod's sandbox is created next.
pub(super) fn pod_starts(pod: &Pod) {
    metrics::count(Count::StartedPods, &[]);
    if pod.spec.host_users == Some(false) {
        metrics::count(Count::StartedUserNamespacedPods, &[]);
    }
}

/// The pod's sandbox could not be created.
pub(super) fn sandbox_failed() {
    metrics::count(Count::StartedPodsErrors, &[]);
}

/// A plan that creates the sandbox has been executed.
pub(super) fn pod_started(pod: &Pod, has_failed: bool) {
    if pod.spec.host_users == Some(false) && has_failed {
        metrics::count(Count::StartedUserNamespacedPodsErrors, &[]);
    }
}

/// The result of a container's start. A start that was not attempted is not counted.
pub(super) fn container_started(index: ContainerIndex, failure: Option<&Waiting>) {
    if failure.is_some_and(|failure| failure.reason == Reason::CONTAINER_CREATING) {
        return;
    }
    let kind = match index {
        ContainerIndex::Init(_) => "init_container",
        ContainerIndex::Main(_) => "container",
        ContainerIndex::Ephemeral(_) => "ephemeral_container",
    };
    metrics::count(Count::StartedContainers, &[kind]);
    if let Some(failure) = failure {
        metrics::count(Count::StartedContainersErrors, &[failure.reason.as_str(), kind]);
    }
}

/// The result of creating a container, with the message of a failure.
pub(super) fn container_created(pod: &Pod, container: &Container, failure: Option<&str>) {
    let images = pod.spec.volumes.iter().filter(|volume| matches!(volume.source, VolumeSource::Image(_)));
    let images: SortedSet<&str> = images.map(|volume| volume.name.as_str()).collect();
    for _ in container.volume_mounts.iter().filter(|mount| images.contains(mount.name.as_str())) {
        metrics::count(Count::ImageVolumesRequested, &[]);
        match failure {
            None => metrics::count(Count::ImageVolumesMounted, &[]),
            Some(message) if message.starts_with(MOUNT_FAILED) => metrics::count(Count::ImageVolumesFailed, &[]),
            Some(_) => {}
        }
    }
}
