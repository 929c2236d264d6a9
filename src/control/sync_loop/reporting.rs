//! Reports pod statuses to the API server, and maintains the mirror pods of static pods.

use std::sync::Arc;
use std::time::Instant;

use crate::control::cluster::{StaticPods, StatusManager};
use crate::control::pod_workers::State;
use crate::control::sync_loop::effect::Effect;
use crate::control::sync_loop::pod_table::PodTable;
use crate::platform::host::clock;
use crate::state::pods::{MirrorDone, NodeFields, ReportDone, SourcePod};
use crate::types::api::{Pod, PodUid};
use crate::types::owned::{Owned, View};

#[derive(Default)]
pub(super) struct Reporting {
    /// `None` without a cluster.
    manager: Option<StatusManager>,
    unreported: Owned<usize>,
}

impl Reporting {
    pub(super) fn set_manager(&mut self, manager: StatusManager) {
        self.manager = Some(manager);
    }

    /// Number of pods whose status has not been reported.
    pub(super) fn unreported(&self) -> View<usize> {
        self.unreported.view()
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.manager.as_ref().and_then(StatusManager::due)
    }

    pub(super) fn is_reporting(&self) -> bool {
        self.manager.as_ref().is_some_and(StatusManager::is_reporting)
    }

    pub(super) fn on_node_terms(&mut self, terms: &NodeFields) {
        if let Some(manager) = &mut self.manager {
            manager.node_is(&terms.uid);
        }
    }

    pub(super) fn on_reported(&mut self, done: &ReportDone, now: Instant) {
        if let Some(manager) = &mut self.manager {
            manager.reported(done, now);
        }
    }

    pub(super) fn on_mirrored(&mut self, done: MirrorDone, now: Instant) {
        if let Some(manager) = &mut self.manager {
            manager.mirrored(done, now);
        }
    }

    /// The API server accepts statuses again. The manager sends the pending ones in this round.
    pub(super) fn on_statuses_admitted(&mut self) {
        if let Some(manager) = &mut self.manager {
            manager.admitted();
        }
    }

    /// Uses the API server's status of the pod until the node reports one.
    pub(super) fn on_api_pod(&mut self, pod: &Pod) {
        if let Some(manager) = self.manager.as_mut().filter(|_| !pod.is_static()) {
            manager.on_server_pod(pod);
        }
    }

    /// The API server listed its pods. The listed statuses replace what was reported before.
    pub(super) fn on_listed(&mut self, pods: &[SourcePod]) -> Vec<Effect> {
        let Some(manager) = &mut self.manager else { return Vec::new() };
        manager.relisted(pods);
        pods.iter().map(|source| Effect::MarkStatus(source.pod.metadata.uid.clone())).collect()
    }

    /// Static pods or their mirror pods changed, or a static pod has ended.
    pub(super) fn on_sources_changed(&mut self, pods: &PodTable) -> Vec<Effect> {
        let Some(manager) = &mut self.manager else { return Vec::new() };
        let records = pods.records();
        let sources = &records.sources;
        let own = sources.pods().map(|source| &source.pod).filter(|pod| pod.is_static());
        let own = own.map(|pod| (records.running_uid(&pod.metadata.uid).clone(), Arc::clone(pod)));
        let own: Vec<(PodUid, Arc<Pod>)> = own.collect();
        let ending = records.ending.iter().filter(|(uid, pod)| pod.is_static() && pods.may_run(uid));
        let ending: Vec<(PodUid, Arc<Pod>)> = ending.map(|(uid, pod)| (uid.clone(), Arc::clone(pod))).collect();
        let effects = own.iter().chain(&ending).map(|(uid, _)| Effect::MarkStatus(uid.clone())).collect();
        manager.set_mirror_pods(StaticPods { own, ending }, sources.all_ready(), sources.mirrors().to_vec());
        effects
    }

    /// The pod's status changed.
    pub(super) fn on_status(&mut self, uid: &PodUid, pods: &PodTable) {
        let Some(manager) = &mut self.manager else { return };
        let Some(worker) = pods.worker(uid) else { return };
        let records = pods.records();
        let Some(status) = records.statuses.status(uid) else { return };
        let may_run = matches!(worker.state, State::Sync | State::Terminating { .. });
        manager.set_pod_status(uid, status, may_run, clock::now());
        // A successor of the same uid: the API server was restored, and does not delete the pod in its present history.
        let deleted = worker.pod.as_ref().filter(|pod| !pod.is_static() && worker.successor.is_none());
        let deleted = deleted.is_some_and(|pod| pod.metadata.deletion_timestamp.is_some());
        if deleted && worker.state == State::Finished {
            manager.finish_deletion(uid);
        }
    }

    pub(super) fn forget(&mut self, uid: &PodUid) {
        if let Some(manager) = &mut self.manager {
            manager.forget(uid);
        }
    }

    /// Sends the statuses that are due.
    pub(super) fn round(&mut self, now: Instant) {
        if let Some(manager) = &mut self.manager {
            manager.start(now);
            *self.unreported.write() = manager.unreported();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::sync_loop::testing::with_node;

    #[test]
    fn nothing_is_reported_without_a_cluster() {
        with_node(|node| {
            let mut reporting = Reporting::default();
            assert_eq!(reporting.on_sources_changed(&node.pods), []);
            assert_eq!(reporting.on_listed(&[]), []);
            assert_eq!((reporting.next_due(), reporting.is_reporting()), (None, false));
        });
    }
}
