//! Ending everything of a pod that runs.

use std::time::Duration;

use crate::kubelet::kuberuntime::PodRuntime;
use crate::platform::cri;
use crate::state::pods::{Observation, ObservedPod, WorkDone, WorkResult};
use crate::types::api::Pod;
use crate::types::error::ErrorChain;

/// With `by_lists` the runtime is not asked how the containers ended: it has not told.
pub(super) async fn stop_pod(
    runtime: &PodRuntime,
    pod: Option<&Pod>,
    observed: &ObservedPod,
    grace: Duration,
    by_lists: bool,
) -> WorkDone {
    let uid = observed.uid.clone();
    let (observation, still) = match try_stop(runtime, pod, observed, grace, by_lists).await {
        Ok(after) => {
            let stopped = after.pod.is_stopped();
            // What the lists tell is not all that is to be known of a pod.
            ((!by_lists).then_some(after), (!stopped).then(|| STILL_RUNS.to_owned()))
        }
        Err(error) => (None, Some(ErrorChain(&error).to_string())),
    };
    let result = still.map_or(WorkResult::Stopped, |failure| WorkResult::Failed { failure });
    WorkDone { uid, observation, result }
}

async fn try_stop(
    runtime: &PodRuntime,
    pod: Option<&Pod>,
    observed: &ObservedPod,
    grace: Duration,
    by_lists: bool,
) -> Result<Observation, cri::Error> {
    // What was begun before the pod was asked to end may have come to its end unseen. What runs is in the lists.
    let before = runtime.listed_pod(&observed.uid).await?;
    runtime.kill_pod(pod, &before.pod, Some(grace)).await?;
    if by_lists { runtime.listed_pod(&observed.uid).await } else { runtime.observe_pod(&observed.uid).await }
}

const STILL_RUNS: &str = "something of the pod still runs after it was stopped";
