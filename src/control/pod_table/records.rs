//! The pods of the sources and their statuses: what the pod table writes and others read. Pure.

use std::sync::Arc;

use crate::control::pod_sources::merge::Sources;
use crate::kubelet::pod_resources::ListedPod;
use crate::kubelet::status::PodStatuses;
use crate::state::pods::RuntimeState;
use crate::types::api::{Pod, PodUid, Time};
use crate::types::sorted::SortedMap;

/// Only the pod table writes it.
pub(crate) struct PodRecords {
    pub(crate) sources: Sources,
    pub(crate) statuses: PodStatuses,
    pub(crate) runtime: RuntimeState,
    /// The last relist had every pod with its containers: a pod that was not observed does not run.
    pub(crate) relisted_all: bool,
    /// Pods that no source has any more and that have not ended yet.
    pub(crate) ending: SortedMap<PodUid, Arc<Pod>>,
    /// Pods that run with another spec than their manifest's, which kept its uid, and since when.
    pub(super) unreplaced: SortedMap<PodUid, Time>,
    /// Running uids of pods that another kubelet started, by the uid of their manifest.
    pub(super) takeovers: SortedMap<PodUid, PodUid>,
}

impl PodRecords {
    pub(crate) fn new(sources: Sources) -> Self {
        Self {
            sources,
            statuses: PodStatuses::default(),
            runtime: RuntimeState::default(),
            relisted_all: false,
            ending: SortedMap::new(),
            unreplaced: SortedMap::new(),
            takeovers: SortedMap::new(),
        }
    }

    /// The running uid of a manifest's pod. It differs from the manifest's uid only for adopted pods.
    pub(crate) fn running_uid<'a>(&'a self, manifest_uid: &'a PodUid) -> &'a PodUid {
        self.takeovers.get(manifest_uid).unwrap_or(manifest_uid)
    }

    /// Since when the pod with this running uid runs with another spec than its manifest's.
    pub(crate) fn unreplaced_since(&self, running_uid: &PodUid) -> Option<Time> {
        self.unreplaced.get(running_uid).copied()
    }

    /// The wanted and the ending pods.
    pub(crate) fn pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.sources.pods().map(|source| &source.pod).chain(self.ending.values())
    }

    /// The wanted and the ending pods under their running uids.
    pub(crate) fn listed(&self) -> Vec<ListedPod> {
        let listed = |pod: &Arc<Pod>| {
            let uid = self.running_uid(&pod.metadata.uid).clone();
            let is_active = self.statuses.status(&uid).is_some_and(|status| !status.phase.is_terminal());
            ListedPod { uid, pod: Arc::clone(pod), is_active }
        };
        self.pods().map(listed).collect()
    }

    /// The static pod is shown as ending: its manifest is gone.
    pub(crate) fn is_ending_static(&self, uid: &PodUid) -> bool {
        self.ending.get(uid).is_some_and(|pod| pod.is_static())
    }
}
