//! Orphaned pods: pods in the runtime and directories on disk that belong to no pod of any source.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use crate::control::pod_table::{Effect, PodRecords, PodTable};
use crate::control::sync_loop::leftovers::Leftovers;
use crate::kubelet::csi::Csi;
use crate::kubelet::kuberuntime::PodRuntime;
use crate::kubelet::volumes;
use crate::platform::rt;
use crate::state::pods::{ObservedPod, is_uid_in_name};
use crate::types::api::PodUid;
use crate::types::error::ErrorChain;
use crate::types::owned::View;

pub(super) struct Orphans {
    csi: Rc<Csi>,
    /// Removes the directories of former pods. Runs once, when all pods are known, and again while something is left.
    removal: Option<rt::Task<()>>,
    leftovers: Leftovers,
    /// The errors of the last removal, until the next round.
    outcome: Rc<RefCell<Option<Vec<String>>>>,
}

impl Orphans {
    pub(super) fn new(csi: Rc<Csi>) -> Self {
        Self { csi, removal: None, leftovers: Leftovers::default(), outcome: Rc::default() }
    }

    pub(super) fn leftovers(&self) -> View<Vec<String>> {
        self.leftovers.view()
    }

    /// A pod has ended that could not be removed completely.
    pub(super) fn add_leftovers(&mut self, errors: &[String]) {
        self.leftovers.add(errors);
    }

    /// Ends running pods that no source has, once all sources are ready. The previous pod of a changed manifest ends at
    /// once, because the new pod waits for it.
    pub(super) fn round(&self, pods: &PodTable) -> Vec<Effect> {
        let (all_ready, workers, observed) = (pods.all_sources_ready(), pods.workers(), pods.observed());
        let free = observed.iter().map(|pod| &**pod).chain(workers.all_unseen());
        let free = free.filter(|pod| !pods.knows(&pod.uid));
        let is_static = |pod: &ObservedPod| pod.source.as_deref().is_some_and(|source| source != "api");
        let is_former = |pod: &ObservedPod| is_static(pod) && workers.has_namesake(pod);
        free.filter(|pod| all_ready || is_former(pod)).cloned().map(Effect::EndOrphan).collect()
    }

    /// Removes the directories of unknown pods. Runs after orphaned pods in the runtime have got workers.
    pub(super) fn remove_directories(&mut self, pods: &PodTable, now: Instant) {
        if !pods.all_sources_ready() {
            return;
        }
        if let Some(errors) = self.outcome.take() {
            self.leftovers.replace(errors, now);
        }
        // Also without a removal before, so that it is scheduled.
        let is_due = self.leftovers.is_due(now);
        if self.removal.as_ref().is_none_or(|task| task.is_finished() && is_due) {
            let kept_pods = pods.known_uids();
            let (runtime, csi) = (Rc::clone(pods.runtime()), Rc::clone(&self.csi));
            self.removal = Some(rt::spawn(remove(runtime, csi, kept_pods, pods.view(), Rc::clone(&self.outcome))));
        }
    }
}

/// Removes the directories of every pod that is neither in `kept_pods` nor wanted by a source, and dangling links to logs.
async fn remove(
    runtime: Rc<PodRuntime>,
    csi: Rc<Csi>,
    kept_pods: Vec<PodUid>,
    records: View<PodRecords>,
    outcome: Rc<RefCell<Option<Vec<String>>>>,
) {
    // A directory may belong to a pod that was added since.
    let is_known = |name: &str| {
        let records = records.read();
        let mut wanted = records.sources.pods().map(|pod| records.running_uid(&pod.pod.metadata.uid));
        wanted.any(|uid| is_uid_in_name(uid, name)) || kept_pods.iter().any(|uid| is_uid_in_name(uid, name))
    };
    let failures = match volumes::find_pods(&runtime.dirs).await {
        Ok(directories) => directories.remove_orphaned(&is_known, &csi, &runtime.removals).await,
        Err(error) => vec![error],
    };
    for error in &failures {
        log!(warn, "failed to remove directory of orphaned pod", error = ErrorChain(error));
    }
    outcome.replace(Some(failures.iter().map(|error| ErrorChain(error).to_string()).collect()));
    runtime.remover.remove_dead_log_links().await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::pod_table::testing::{pod, with_node};
    use crate::state::pods::{SourceName, SourceUpdate};

    #[test]
    fn pod_without_a_worker_ends_as_an_orphan() {
        with_node(|mut node| {
            let now = rt::now();
            let [known, orphan] = ["known", "orphan"].map(|uid| ObservedPod::new(uid.into(), "default", uid));
            node.pods.apply([Effect::Update(pod("known"))], now);
            node.list(vec![known, orphan.clone()]);
            let orphans = Orphans::new(node.csi);
            assert_eq!(orphans.round(&node.pods), [Effect::EndOrphan(orphan.clone())]);
            node.pods.apply([Effect::EndOrphan(orphan)], now);
            assert_eq!(orphans.round(&node.pods), []);
        });
    }

    #[test]
    fn pod_that_its_source_cannot_read_is_no_orphan() {
        with_node(|mut node| {
            node.pods.receive(SourceUpdate {
                source: SourceName::Api,
                pods: Vec::new(),
                objects: Vec::new(),
                mirrors: Vec::new(),
                problems: Vec::new(),
                unread: vec!["unread".into()],
                complete: true,
                relisted: true,
            });
            let [unread, orphan] = ["unread", "orphan"].map(|uid| ObservedPod::new(uid.into(), "default", uid));
            node.list(vec![unread, orphan.clone()]);
            assert!(node.pods.all_sources_ready());
            assert_eq!(Orphans::new(node.csi).round(&node.pods), [Effect::EndOrphan(orphan)]);
            assert!(node.pods.known_uids().contains(&"unread".into()));
        });
    }
}
