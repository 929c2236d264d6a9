//! Stops everything of a running pod, and unprepares its claims.

use std::rc::Rc;
use std::time::Duration;

use crate::kubelet::dra::{DraError, DraManager};
use crate::kubelet::kuberuntime::{KillError, PodRuntime, WorkViews};
use crate::state::pods::{Observation, ObservedCache, ObservedPod, WorkDone, WorkResult};
use crate::types::api::Pod;
use crate::types::error::ErrorChain;
use crate::types::owned::View;

/// With `by_lists`, relies on the runtime's lists and does not query how the containers exited: those queries have
/// failed.
pub(super) async fn stop_pod(
    runtime: &PodRuntime,
    dra: &Rc<DraManager>,
    views: &WorkViews,
    pod: Option<&Pod>,
    observed: &ObservedPod,
    grace: Duration,
    by_lists: bool,
) -> WorkDone {
    let uid = observed.uid.clone();
    let (observation, still) = match try_stop(runtime, &views.observed, pod, observed, grace, by_lists).await {
        Ok(after) => {
            let still = match after.pod.is_stopped() {
                // Before the pod's status shows that it has ended, so that its devices are free by then.
                true => dra.unprepare(&uid, pod, &views.objects).await.err().map(|error| unprepare_failed(&error)),
                false => Some(STILL_RUNS.to_owned()),
            };
            // The lists do not hold everything that an observation needs.
            ((!by_lists).then_some(after), still)
        }
        Err(error) => (None, Some(ErrorChain(&error).to_string())),
    };
    let result = still.map_or(WorkResult::Stopped, |failure| WorkResult::Failed { failure });
    WorkDone { uid, observation, result }
}

async fn try_stop(
    runtime: &PodRuntime,
    cache: &View<ObservedCache>,
    pod: Option<&Pod>,
    observed: &ObservedPod,
    grace: Duration,
    by_lists: bool,
) -> Result<Observation, KillError> {
    // Work started before the termination may have completed unobserved. The lists show what runs.
    let before = runtime.listed_pod(&observed.uid, cache).await?;
    runtime.kill_pod(pod, &before.pod, Some(grace), None).await?;
    let after = if by_lists {
        runtime.listed_pod(&observed.uid, cache).await
    } else {
        runtime.observe_pod(&observed.uid, cache).await
    };
    Ok(after?)
}

/// Upstream's message.
fn unprepare_failed(error: &DraError) -> String {
    format!("unprepare dynamic resources: {}", ErrorChain(error))
}

const STILL_RUNS: &str = "something of the pod still runs after it was stopped";
