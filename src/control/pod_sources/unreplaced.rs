//! Static pods whose manifest changed and kept its `metadata.uid`: they run on as before, as upstream. Pure.

use std::sync::Arc;

use super::static_pod::{is_own_uid, without_amounts};
use crate::types::api::{Container, ContainerState, Pod, PodSpec, PodStatus, Time};

/// A pod that was not replaced when its manifest changed.
#[derive(Clone, Debug)]
pub(crate) struct Unreplaced {
    /// The pod that runs.
    runs: Arc<Pod>,
    /// When the manifest changed.
    since: Time,
}

impl Unreplaced {
    /// `None` if the change takes effect, or the pod gets another uid with each change.
    pub(super) fn of(runs: &Arc<Pod>, manifest: &Pod, since: Time) -> Option<Self> {
        let has_its_uid = manifest.is_static() && !is_own_uid(manifest.metadata.uid.as_str());
        let is_other = has_its_uid && fixed_part(runs) != fixed_part(manifest);
        is_other.then(|| Self { runs: Arc::clone(runs), since })
    }

    pub(super) fn runs(&self) -> &Arc<Pod> {
        &self.runs
    }

    /// Since when the pod runs with another spec than its manifest's; `None` once the containers whose fields changed
    /// were started again.
    pub(crate) fn since(&self, manifest: &Pod, status: &PodStatus) -> Option<Time> {
        let (runs, manifest) = (fixed_part(&self.runs), fixed_part(manifest));
        let without_containers = |spec: &PodSpec| PodSpec { containers: Vec::new(), ..spec.clone() };
        let is_old = |container: &Container| {
            let status = status.container_statuses.iter().find(|status| status.name == container.name);
            match status.and_then(|status| status.state.as_ref()) {
                Some(ContainerState::Running(running)) => running.started_at.is_none_or(|at| at <= self.since),
                _ => false,
            }
        };
        let mut changed = manifest.containers.iter().filter(|container| !runs.containers.contains(container));
        let lasts = without_containers(&runs) != without_containers(&manifest) || changed.any(is_old);
        lasts.then_some(self.since)
    }
}

/// What cannot be changed in a running pod: without images, and without amounts of CPU and memory.
fn fixed_part(pod: &Pod) -> PodSpec {
    let mut spec = without_amounts(pod).spec;
    for container in spec.containers.iter_mut().chain(&mut spec.init_containers) {
        container.image.clear();
    }
    spec
}
