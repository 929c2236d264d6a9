//! When the control groups are looked after.

use std::rc::Rc;
use std::sync::Arc;

use async_channel::Sender;

use crate::control::pod_workers::{State, Worker};
use crate::control::sync_loop::SyncLoop;
use crate::kubelet::container_manager::ContainerManager;
use crate::platform::rt;
use crate::state::pods::{SandboxState, SyncEvent};
use crate::types::api::{Pod, PodUid};

impl SyncLoop {
    /// The groups above the pods, and those that belong to no pod any more; with each look at everything.
    pub(super) fn look_after_groups(&mut self) {
        let is_busy = self.node_groups.as_ref().is_some_and(|task| !task.is_finished());
        if is_busy || !self.pods.can_work() {
            return;
        }
        let groups = Rc::clone(&self.groups);
        let known: Option<Vec<PodUid>> =
            self.pods.node_state().sources.all_ready().then(|| self.pods.workers().uids().cloned().collect());
        self.node_groups = Some(rt::spawn(look_after(groups, known, self.running_pods(), self.sender.clone())));
    }

    /// The pods that have a sandbox, and its id. None while it is not known whose words name their groups.
    fn running_pods(&self) -> Vec<(Arc<Pod>, String)> {
        let seen = self.pods.observed();
        let running = |worker: &Worker| {
            let pod = worker.pod.as_ref().filter(|_| worker.state == State::Sync)?;
            let sandbox = seen.pod(&pod.metadata.uid)?.newest_sandbox()?;
            (sandbox.state == SandboxState::Ready).then(|| (Arc::clone(pod), sandbox.id.clone()))
        };
        let told = self.pods.runtime().has_told_cgroup_driver();
        self.pods.workers().iter().filter(|_| told).filter_map(running).collect()
    }

    /// Burstable pods together weigh what they ask for.
    pub(super) fn weigh_burstable(&mut self) {
        if !std::mem::take(&mut self.weigh) {
            return;
        }
        let active = self.pods.workers().iter().filter(|worker| worker.state == State::Sync);
        let pods = active.filter_map(|worker| worker.pod.as_deref());
        if let Some(task) = self.groups.weigh(pods) {
            self.weighing = Some(task);
        }
    }
}

async fn look_after(
    groups: Rc<ContainerManager>,
    known: Option<Vec<PodUid>>,
    running: Vec<(Arc<Pod>, String)>,
    inbox: Sender<SyncEvent>,
) {
    if let Some(event) = groups.ensure_node().await {
        // The loop is gone only when the process ends.
        let _ = inbox.send(SyncEvent::NodeHappened(event)).await;
    }
    if let Some(known) = known {
        groups.remove_strays(&known).await;
    }
    let groupless = groups.without_group(running.iter().map(|(pod, _)| Arc::clone(pod)).collect()).await;
    for (pod, sandbox) in running.into_iter().filter(|(pod, _)| groupless.contains(&pod.metadata.uid)) {
        let _ = inbox.send(SyncEvent::Groupless(pod.metadata.uid.clone(), sandbox)).await;
    }
}
