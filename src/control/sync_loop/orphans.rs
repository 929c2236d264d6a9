//! Directories on disk that belong to no pod: left by pods that ended while this process did not run.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

use crate::control::sync_loop::SyncLoop;
use crate::control::sync_loop::effect::Effect;
use crate::control::sync_loop::node_state::NodeState;
use crate::kubelet::csi::Csi;
use crate::kubelet::kuberuntime::PodRuntime;
use crate::kubelet::logs::remove_dead_links;
use crate::kubelet::volumes;
use crate::platform::rt;
use crate::state::pods::ObservedPod;
use crate::types::api::PodUid;
use crate::types::error::ErrorChain;

impl SyncLoop {
    /// Ends what runs for no pod of any source, once every source has told its pods. The former pod of a manifest that has
    /// changed ends at once: the new one waits for that.
    pub(super) fn end_orphans(&mut self, now: Instant) {
        let all_ready = self.pods.all_sources_ready();
        let effects: Vec<Effect> = {
            let observed = self.pods.observed();
            let workers = self.pods.workers();
            let free = observed.iter().map(|pod| &**pod).chain(workers.all_unseen());
            let free = free.filter(|pod| workers.worker(&pod.uid).is_none());
            let is_static = |pod: &ObservedPod| pod.source.as_deref().is_some_and(|source| source != "api");
            let is_former = |pod: &ObservedPod| is_static(pod) && workers.has_namesake(pod);
            free.filter(|pod| all_ready || is_former(pod)).cloned().map(Effect::EndOrphan).collect()
        };
        self.pods.apply(effects, now);
        if !all_ready {
            return;
        }
        if self.strays.as_ref().is_none_or(|task| task.is_finished() && self.strays_failed.take()) {
            let known = self.pods.workers().uids().cloned().collect();
            let (runtime, books) = (Rc::clone(self.pods.runtime()), self.pods.shared_node_state());
            let (csi, failed) = (Rc::clone(&self.csi), Rc::clone(&self.strays_failed));
            self.strays = Some(rt::spawn(remove(runtime, csi, known, books, failed)));
        }
    }
}

/// Removes the directories of every pod that is neither in `known` nor wanted by a source, and links to logs that are gone.
/// Where something could not be removed it says that it `failed`.
async fn remove(
    runtime: Rc<PodRuntime>,
    csi: Rc<Csi>,
    mut known: Vec<PodUid>,
    books: Rc<RefCell<NodeState>>,
    failed: Rc<Cell<bool>>,
) {
    let removed = async {
        let found = volumes::find_pods(&runtime.dirs).await?;
        // A pod that has come meanwhile may have made the directories that were found.
        {
            let books = books.borrow();
            let pods = books.sources.pods();
            known.extend(pods.map(|pod| books.running_uid(&pod.pod.metadata.uid).clone()));
        }
        found.remove_strays(&known, &csi).await
    };
    if let Err(error) = removed.await {
        log!(warn, "directories of former pods not removed", error = ErrorChain(&error));
        failed.set(true);
    }
    let links = runtime.dirs.log_links();
    rt::blocking(move || remove_dead_links(&links)).await;
}
