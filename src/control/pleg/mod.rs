//! Pod lifecycle events: exits noticed by the runtime's own events, by pidfd, by relist.
//!
//! Three things look at the runtime: `runtime_watch` at everything, when the runtime is reached and then rarely;
//! `runtime_events` at a pod that the runtime names, where the runtime can tell; and `exit_watch` at the pod of a
//! container or sandbox whose process has just ended. Whatever was seen goes to the sync loop.

mod exit_watch;
mod runtime_events;
mod runtime_watch;

use std::rc::Rc;
use std::time::Duration;

use async_channel::Sender;

use crate::kubelet::kuberuntime::{PodRuntime, Process};
use crate::platform::rt;
use crate::state::pods::{ObservedPod, SandboxState, SyncEvent};
use crate::types::api::PodUid;
use crate::types::sorted::SortedMap;

/// Dropping it ends every watch.
pub(crate) struct Pleg {
    runtime: Rc<PodRuntime>,
    inbox: Sender<SyncEvent>,
    /// The processes that are watched, by the id of their container or sandbox.
    watches: SortedMap<String, Watch>,
    #[expect(dead_code, reason = "dropping the task cancels it")]
    runtime_watch: rt::Task<()>,
}

struct Watch {
    pod: PodUid,
    #[expect(dead_code, reason = "dropping the task cancels it")]
    task: rt::Task<()>,
}

impl Pleg {
    pub(crate) fn new(runtime: Rc<PodRuntime>, relist_period: Duration, inbox: Sender<SyncEvent>) -> Self {
        let runtime_watch = rt::spawn(runtime_watch::run(Rc::clone(&runtime), relist_period, inbox.clone()));
        Self { runtime, inbox, watches: SortedMap::new(), runtime_watch }
    }

    /// Watches what runs of this pod, and nothing else of it any more.
    pub(crate) fn watch(&mut self, pod: &ObservedPod) {
        let running = processes(pod);
        self.watches.retain(|id, watch| watch.pod != pod.uid || running.iter().any(|(running, _)| running.id() == id));
        for (process, pid) in running {
            let id = process.id().to_owned();
            if self.watches.contains_key(&id) {
                continue;
            }
            let uid = pod.uid.clone();
            let task = exit_watch::run(Rc::clone(&self.runtime), self.inbox.clone(), uid.clone(), process, pid);
            self.watches.insert(id, Watch { pod: uid, task: rt::spawn(task) });
        }
    }

    /// The pod is gone from the runtime.
    pub(crate) fn forget(&mut self, pod: &PodUid) {
        self.watches.retain(|_, watch| watch.pod != *pod);
    }
}

/// The containers and sandboxes that run, each with the process to watch.
fn processes(pod: &ObservedPod) -> Vec<(Process, u32)> {
    let sandboxes = pod
        .sandboxes
        .iter()
        .filter(|sandbox| sandbox.state == SandboxState::Ready)
        .filter_map(|sandbox| Some((Process::Sandbox(sandbox.id.clone()), sandbox.pid?)));
    let containers = pod
        .containers
        .iter()
        .filter(|container| container.is_running())
        .filter_map(|container| Some((Process::Container(container.id.clone()), container.pid?)));
    sandboxes.chain(containers).collect()
}
