//! Observes a pod, and removes its garbage.

use crate::kubelet::kuberuntime::{Garbage, PodRuntime};
use crate::state::pods::{ObservedCache, ObservedPod, WorkDone, WorkResult};
use crate::types::error::ErrorChain;
use crate::types::owned::View;

pub(super) async fn relist_pod(runtime: &PodRuntime, observed: &ObservedPod, cache: &View<ObservedCache>) -> WorkDone {
    let uid = observed.uid.clone();
    let (observation, failure) = match runtime.observe_pod(&uid, cache).await {
        Ok(observation) => (Some(observation), None),
        Err(error) => (None, Some(ErrorChain(&error).to_string())),
    };
    WorkDone {
        uid,
        observation,
        result: WorkResult::Synced { containers: Vec::new(), failure, resize_failure: None, warnings: Vec::new() },
    }
}

pub(super) async fn collect(
    runtime: &PodRuntime,
    observed: &ObservedPod,
    garbage: &[Garbage],
    cache: &View<ObservedCache>,
) -> WorkDone {
    let uid = observed.uid.clone();
    let all_removed = runtime.remover.collect(observed, garbage).await;
    // If the observation fails, the next work observes the pod.
    let observation = runtime.observe_pod(&uid, cache).await.ok();
    WorkDone { uid, observation, result: WorkResult::Collected { all_removed } }
}
