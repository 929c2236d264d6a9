//! When the control groups are looked after.

use std::rc::Rc;

use async_channel::Sender;

use crate::api::PodUid;
use crate::container_manager::ContainerManager;
use crate::pod_workers::State;
use crate::pods::SyncEvent;
use crate::rt;
use crate::sync_loop::SyncLoop;

impl SyncLoop {
    /// The groups above the pods, and those that belong to no pod any more; with each look at everything.
    pub(super) fn look_after_groups(&mut self) {
        let is_busy = self.node_groups.as_ref().is_some_and(|task| !task.is_finished());
        if is_busy || !self.can_work() {
            return;
        }
        let groups = Rc::clone(&self.groups);
        let known: Option<Vec<PodUid>> =
            self.books.borrow().sources.all_ready().then(|| self.workers.uids().cloned().collect());
        self.node_groups = Some(rt::spawn(look_after(groups, known, self.sender.clone())));
    }

    /// Burstable pods together weigh what they ask for.
    pub(super) fn weigh_burstable(&mut self) {
        if !std::mem::take(&mut self.weigh) {
            return;
        }
        let active = self.workers.iter().filter(|worker| worker.state == State::Sync);
        let pods = active.filter_map(|worker| worker.pod.as_deref());
        if let Some(task) = self.groups.weigh(pods) {
            self.weighing = Some(task);
        }
    }
}

async fn look_after(groups: Rc<ContainerManager>, known: Option<Vec<PodUid>>, inbox: Sender<SyncEvent>) {
    if let Some(event) = groups.ensure_node().await {
        // The loop is gone only when the process ends.
        let _ = inbox.send(SyncEvent::NodeHappened(event)).await;
    }
    if let Some(known) = known {
        groups.remove_strays(&known).await;
    }
}
