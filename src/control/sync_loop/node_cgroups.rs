//! Schedules the care for the control groups of the node.

use std::rc::Rc;
use std::sync::Arc;

use async_channel::Sender;

use crate::control::pod_workers::{State, Worker};
use crate::control::sync_loop::pod_table::PodTable;
use crate::kubelet::container_manager::ContainerManager;
use crate::platform::rt;
use crate::state::pods::{SandboxState, SyncEvent};
use crate::types::api::{Pod, PodUid};

/// The tasks that keep the control groups above the pods.
pub(super) struct NodeCgroups {
    groups: Rc<ContainerManager>,
    inbox: Sender<SyncEvent>,
    task: Option<rt::Task<()>>,
    /// The group of burstable pods gets another weight.
    weighing: Option<rt::Task<()>>,
    /// Pods came, changed or went: together the burstable pods may have another weight.
    weigh: bool,
}

impl NodeCgroups {
    pub(super) fn new(groups: Rc<ContainerManager>, inbox: Sender<SyncEvent>) -> Self {
        Self { groups, inbox, task: None, weighing: None, weigh: true }
    }

    /// The runtime may have told its cgroup driver.
    pub(super) fn on_runtime(&self, pods: &PodTable) {
        self.groups.use_driver(pods.runtime().cgroup_driver());
    }

    pub(super) fn on_pods_changed(&mut self) {
        self.weigh = true;
    }

    /// After each relist: looks after the groups above the pods, and the groups of pods that no longer exist.
    pub(super) fn look_after(&mut self, pods: &PodTable) {
        let is_busy = self.task.as_ref().is_some_and(|task| !task.is_finished());
        if is_busy || !pods.can_work() {
            return;
        }
        let known = pods.all_sources_ready().then(|| pods.workers().uids().cloned().collect());
        let groups = Rc::clone(&self.groups);
        self.task = Some(rt::spawn(look_after(groups, known, running_pods(pods), self.inbox.clone())));
    }

    /// Gives the burstable pods together the weight of their requests.
    pub(super) fn round(&mut self, pods: &PodTable) {
        if !std::mem::take(&mut self.weigh) {
            return;
        }
        let active = pods.workers().iter().filter(|worker| worker.state == State::Sync);
        let pods = active.filter_map(|worker| worker.pod.as_deref());
        if let Some(task) = self.groups.weigh(pods) {
            self.weighing = Some(task);
        }
    }
}

/// The pods that have a sandbox, and its id. None while the cgroup driver is not known, which names the groups.
fn running_pods(pods: &PodTable) -> Vec<(Arc<Pod>, String)> {
    let observed = pods.observed();
    let running = |worker: &Worker| {
        let pod = worker.pod.as_ref().filter(|_| worker.state == State::Sync)?;
        let sandbox = observed.pod(&pod.metadata.uid)?.newest_sandbox()?;
        (sandbox.state == SandboxState::Ready).then(|| (Arc::clone(pod), sandbox.id.clone()))
    };
    let is_told = pods.runtime().has_told_cgroup_driver();
    pods.workers().iter().filter(|_| is_told).filter_map(running).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::sync_loop::testing::with_node;

    #[test]
    fn burstable_pods_are_weighed_once_for_each_change() {
        with_node(|node| {
            let mut cgroups = NodeCgroups::new(node.groups, node.inbox);
            assert!(cgroups.weigh);
            cgroups.round(&node.pods);
            assert!(!cgroups.weigh);
            cgroups.on_pods_changed();
            assert!(cgroups.weigh);
        });
    }
}
