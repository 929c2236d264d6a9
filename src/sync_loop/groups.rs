//! When the control groups are looked after, and what they tell of pods.

use std::rc::Rc;

use async_channel::Sender;

use crate::api::{PodUid, Reason};
use crate::container_manager::ContainerManager;
use crate::pod_workers::State;
use crate::pods::{ContainerState, ObservedContainer, ObservedPod, SyncEvent};
use crate::rt;
use crate::sync_loop::SyncLoop;

/// 128 and the number of SIGKILL.
const KILLED: i32 = 137;

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

    /// The runtime does not always see why a container was killed: with systemd the group is gone before it looks. The
    /// pod's own group, which outlives it, has counted the kill.
    pub(super) fn note_oom_kills(&self, pod: &mut ObservedPod) {
        let seen = self.seen.borrow();
        let known = seen.pod(&pod.uid);
        let is_news = |container: &ObservedContainer| {
            let before = known.and_then(|pod| pod.containers.iter().find(|known| known.id == container.id));
            before.is_none_or(|before| before.exit().is_none())
        };
        let oom = Reason::OOM_KILLED;
        for container in pod.containers.iter_mut().filter(|container| is_news(container)) {
            let ContainerState::Exited(exit) = &mut container.state else { continue };
            let told = exit.reason == oom.as_str();
            if !told && exit.code != KILLED {
                continue;
            }
            // What the runtime has told of is accounted for, too.
            let killed = self.groups.take_oom_kills(&pod.uid);
            if killed && !told {
                exit.reason = oom.as_str().to_owned();
            }
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
