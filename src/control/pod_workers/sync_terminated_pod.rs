//! Cleans up after a pod that has ended.

use std::error::Error;

use crate::kubelet::container_manager::ContainerManager;
use crate::kubelet::csi::Csi;
use crate::kubelet::kuberuntime::PodRuntime;
use crate::kubelet::logs::remove_dead_links;
use crate::kubelet::volumes;
use crate::platform::rt;
use crate::state::pods::{Observation, ObservedPod, WorkDone, WorkResult};
use crate::types::error::ErrorChain;

/// Always removes the volumes. With `purge`, when no source wants the pod, also removes its containers, sandboxes,
/// directories and logs.
pub(super) async fn clean_up_pod(
    runtime: &PodRuntime,
    groups: &ContainerManager,
    csi: &Csi,
    observed: &ObservedPod,
    purge: bool,
) -> WorkDone {
    let uid = observed.uid.clone();
    match try_clean_up(runtime, groups, csi, observed, purge).await {
        Ok(observation) => WorkDone { uid, observation, result: WorkResult::Cleaned { purged: purge } },
        Err(error) => {
            let failure = ErrorChain(&*error).to_string();
            WorkDone { uid, observation: None, result: WorkResult::Failed { failure } }
        }
    }
}

async fn try_clean_up(
    runtime: &PodRuntime,
    groups: &ContainerManager,
    csi: &Csi,
    observed: &ObservedPod,
    purge: bool,
) -> Result<Option<Observation>, Box<dyn Error>> {
    if !purge {
        // The containers have exited. Processes that outlived them must not keep a volume busy.
        groups.remove_pod(&observed.uid).await?;
        volumes::tear_down(&runtime.dirs, &observed.uid, csi).await?;
        return Ok(None);
    }
    runtime.remove_pod(observed).await?;
    let mut left = runtime.listed_pod(&observed.uid).await?;
    if !left.pod.is_gone() {
        // The pod could never be observed.
        runtime.remove_pod(&left.pod).await?;
        left = runtime.listed_pod(&observed.uid).await?;
    }
    if !left.pod.is_gone() {
        return Err("the runtime still has containers or sandboxes of the removed pod".into());
    }
    groups.remove_pod(&observed.uid).await?;
    volumes::remove(&runtime.dirs, observed, csi).await?;
    let links = runtime.dirs.log_links();
    rt::blocking(move || remove_dead_links(&links)).await;
    Ok(Some(left))
}
