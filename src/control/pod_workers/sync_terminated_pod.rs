//! Cleans up after a pod that has ended.

use super::error::CleanUpError;
use crate::kubelet::container_manager::ContainerManager;
use crate::kubelet::csi::Csi;
use crate::kubelet::kuberuntime::PodRuntime;
use crate::kubelet::volumes;
use crate::state::pods::{Observation, ObservedCache, ObservedPod, WorkDone, WorkResult};
use crate::types::error::ErrorChain;
use crate::types::owned::View;

/// Always removes the volumes. With `purge`, when no source wants the pod, also removes its directories, logs,
/// containers and sandboxes.
///
/// Whether the next pod of that name may start depends on its processes and mounts only: neither files nor dead
/// containers that cannot be removed, or not in time, are a failure of the first two steps.
pub(super) async fn clean_up_pod(
    runtime: &PodRuntime,
    groups: &ContainerManager,
    csi: &Csi,
    observed: &ObservedPod,
    cache: &View<ObservedCache>,
    purge: bool,
) -> WorkDone {
    let (observation, result) = match release(runtime, groups, csi, observed, purge).await {
        Err(error) => (None, WorkResult::Failed { failure: ErrorChain(&error).to_string() }),
        Ok(left) if !purge => (None, WorkResult::Cleaned { purged: false, left }),
        Ok(left) => match remove_containers(runtime, observed, cache).await {
            Ok(observation) => (Some(observation), WorkResult::Cleaned { purged: true, left }),
            Err(error) => (None, WorkResult::NotPurged { failure: ErrorChain(&error).to_string() }),
        },
    };
    WorkDone { uid: observed.uid.clone(), observation, result }
}

/// Ends all processes and removes mounts and files. Returns the errors of files that cannot be removed.
async fn release(
    runtime: &PodRuntime,
    groups: &ContainerManager,
    csi: &Csi,
    observed: &ObservedPod,
    purge: bool,
) -> Result<Vec<String>, CleanUpError> {
    // The containers have exited. Processes that outlived them must not keep a volume busy.
    groups.remove_pod(&observed.uid).await.map_err(CleanUpError::Cgroup)?;
    let leftovers = match purge {
        true => volumes::remove(&runtime.dirs, observed, csi, &runtime.removals).await,
        false => volumes::tear_down(&runtime.dirs, &observed.uid, csi, &runtime.removals).await,
    };
    let leftovers = leftovers.map_err(CleanUpError::Volumes)?;
    Ok(leftovers.iter().map(|error| ErrorChain(error).to_string()).collect())
}

/// Removes the containers and sandboxes from the runtime, and dangling links to their logs.
async fn remove_containers(
    runtime: &PodRuntime,
    observed: &ObservedPod,
    cache: &View<ObservedCache>,
) -> Result<Observation, CleanUpError> {
    runtime.remover.remove_pod(observed).await.map_err(CleanUpError::Runtime)?;
    let mut remaining = runtime.listed_pod(&observed.uid, cache).await.map_err(CleanUpError::Runtime)?;
    if !remaining.pod.is_gone() {
        // The pod could never be observed.
        runtime.remover.remove_pod(&remaining.pod).await.map_err(CleanUpError::Runtime)?;
        remaining = runtime.listed_pod(&observed.uid, cache).await.map_err(CleanUpError::Runtime)?;
    }
    runtime.remover.remove_dead_log_links().await;
    match remaining.pod.is_gone() {
        true => Ok(remaining),
        false => Err(CleanUpError::StillListed),
    }
}
