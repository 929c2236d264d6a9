//! Schedules the upkeep of the node's cgroups.

use std::rc::Rc;
use std::sync::Arc;

use async_channel::Sender;

use crate::control::pod_table::PodTable;
use crate::control::pod_workers::{State, Worker};
use crate::kubelet::container_manager::ContainerManager;
use crate::platform::rt;
use crate::state::pods::{SandboxState, SyncEvent};
use crate::types::api::{Pod, PodUid};

/// The tasks that maintain the cgroups above the pods.
pub(super) struct NodeCgroups {
    groups: Rc<ContainerManager>,
    inbox: Sender<SyncEvent>,
    task: Option<rt::Task<()>>,
    /// Updates the CPU weight of the burstable pods' cgroup.
    weighing: Option<rt::Task<()>>,
    /// Pods were added, changed or removed, which may change the CPU weight of the burstable pods.
    weigh: bool,
    /// The look at all pods has included the pods of every source.
    has_seen_all_pods: bool,
}

impl NodeCgroups {
    pub(super) fn new(groups: Rc<ContainerManager>, inbox: Sender<SyncEvent>) -> Self {
        Self { groups, inbox, task: None, weighing: None, weigh: true, has_seen_all_pods: false }
    }

    /// The runtime may have reported its cgroup driver.
    pub(super) fn on_runtime(&self, pods: &PodTable) {
        self.groups.use_driver(pods.runtime().cgroup_driver());
    }

    pub(super) fn on_pods_changed(&mut self) {
        self.weigh = true;
    }

    /// Maintains the cgroups above the pods, and removes the cgroups of pods that no longer exist. Runs after each
    /// relist.
    pub(super) fn maintain(&mut self, pods: &PodTable) {
        let is_busy = self.task.as_ref().is_some_and(|task| !task.is_finished());
        if is_busy || !pods.can_work() {
            return;
        }
        self.spawn_maintenance(pods);
    }

    fn spawn_maintenance(&mut self, pods: &PodTable) {
        self.has_seen_all_pods |= pods.all_sources_ready();
        let known_pods = pods.all_sources_ready().then(|| pods.known_uids());
        let maintenance = maintain(Rc::clone(&self.groups), known_pods, running_pods(pods), self.inbox.clone());
        let former = self.task.take();
        self.task = Some(rt::spawn(async move {
            if let Some(former) = former {
                former.await;
            }
            maintenance.await;
        }));
    }

    /// Maintains the cgroups once all sources have named their pods, which may be after the first relist: the next one
    /// is a minute away. Then sets the weight of the burstable pods' cgroup to the sum of their requests.
    pub(super) fn round(&mut self, pods: &PodTable) {
        if !self.has_seen_all_pods && pods.all_sources_ready() {
            self.spawn_maintenance(pods);
        }
        if !std::mem::take(&mut self.weigh) {
            return;
        }
        let active = pods.workers().iter().filter(|worker| worker.state == State::Sync);
        let pods = active.filter_map(|worker| worker.pod.as_deref());
        if let Some(task) = self.groups.update_demand(pods) {
            self.weighing = Some(task);
        }
    }
}

/// Pods with a sandbox, and its id. Empty while the cgroup driver, which names the cgroups, is unknown.
fn running_pods(pods: &PodTable) -> Vec<(Arc<Pod>, String)> {
    let observed = pods.observed();
    let running = |worker: &Worker| {
        let pod = worker.pod.as_ref().filter(|_| worker.state == State::Sync)?;
        let sandbox = observed.pod(&pod.metadata.uid)?.newest_sandbox()?;
        (sandbox.state == SandboxState::Ready).then(|| (Arc::clone(pod), sandbox.id.clone()))
    };
    let is_told = pods.runtime().has_reported_cgroup_driver();
    pods.workers().iter().filter(|_| is_told).filter_map(running).collect()
}

async fn maintain(
    groups: Rc<ContainerManager>,
    pods_with_cgroups: Option<Vec<PodUid>>,
    running: Vec<(Arc<Pod>, String)>,
    inbox: Sender<SyncEvent>,
) {
    if let Some(event) = groups.ensure_node().await {
        // The loop has ended only if the process is ending.
        let _ = inbox.send(SyncEvent::NodeEvent(event)).await;
    }
    if let Some(known_pods) = pods_with_cgroups {
        groups.remove_orphaned(&known_pods).await;
    }
    let groupless = groups.pods_without_cgroup(running.iter().map(|(pod, _)| Arc::clone(pod)).collect()).await;
    for (pod, sandbox) in running.into_iter().filter(|(pod, _)| groupless.contains(&pod.metadata.uid)) {
        let _ = inbox.send(SyncEvent::Groupless(pod.metadata.uid.clone(), sandbox)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::pod_table::testing::with_node;

    #[test]
    fn burstable_weight_is_updated_once_per_change() {
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
