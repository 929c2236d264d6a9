//! What holds of the pods of the node: asserted in tests and simulations, absent from release builds. Pure.

use super::PodTable;
use crate::control::pod_table::{Effect, EndCause};
use crate::control::pod_workers::{Kind, State};
use crate::types::api::PodUid;

impl PodTable {
    /// The invariant that this effect would break.
    pub(super) fn broken_by(&self, effect: &Effect) -> Option<&'static str> {
        let syncs = |uid: &PodUid| self.syncing(uid).is_some();
        match effect {
            Effect::Admit { uid, .. } if self.admitted.contains(uid) => Some("a pod is admitted once"),
            Effect::Admit { uid, .. } if !syncs(uid) => Some("a pod that ends is not admitted"),
            Effect::End(end) if end.cause == EndCause::Rejected && !syncs(&end.uid) => {
                Some("a pod that ends is not rejected")
            }
            Effect::EndOrphan(pod) if self.knows(&pod.uid) => Some("a pod with a worker or of a source is no orphan"),
            Effect::EndOrphan(pod) if !self.all_sources_ready() && !self.workers.has_namesake(pod) => {
                Some("before every source has reported, only the former pod of a changed manifest ends")
            }
            Effect::Remove(uid) if self.is_wanted(uid) => Some("a pod that a source has is not removed"),
            Effect::Resize { uid, .. } if !syncs(uid) => Some("a pod that ends is not resized"),
            Effect::Supersede(uid) if syncs(uid) => Some("a pod that has not ended has no successor"),
            _ => None,
        }
    }

    /// A source has the pod.
    fn is_wanted(&self, uid: &PodUid) -> bool {
        let records = self.records.read();
        let mut wanted = records.sources.pods();
        wanted.any(|source| records.running_uid(&source.pod.metadata.uid) == uid)
    }

    /// The invariant that the pods break after their work has been started.
    pub(super) fn broken(&self) -> Option<&'static str> {
        let records = self.records.read();
        let has_worker = |uid: &PodUid| self.worker(uid).is_some();
        let mut syncing = self.workers.iter().filter(|worker| worker.state == State::Sync);
        if !self.relisted {
            Some("no work starts before the first relist")
        } else if syncing.any(|worker| worker.busy == Some(Kind::Sync) && !self.is_admitted(&worker.identity.uid)) {
            Some("only an admitted pod is synced")
        } else if !self.admitted.iter().all(has_worker) {
            Some("an admitted pod has a worker")
        } else if !self.failed.keys().all(has_worker) || !records.ending.keys().all(has_worker) {
            Some("a pod that ends has a worker until it has ended")
        } else {
            None
        }
    }
}
