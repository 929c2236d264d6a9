//! The pod lifecycle event generator (PLEG): notices exits by runtime events, pidfds and relists.
//!
//! `runtime_watch` relists everything when the runtime becomes available, and then rarely. `runtime_events` observes a
//! pod that the runtime reports, if the runtime supports events. `exit_watch` observes the pod of a container or
//! sandbox whose process has exited. `observations` limits how often it does. All observations go to the sync loop.
//! Upstream relists every second, which would keep a board at rest awake.

mod exit_watch;
mod observations;
mod runtime_events;
mod runtime_watch;

use std::rc::Rc;
use std::time::Duration;

use async_channel::Sender;

use crate::kubelet::kuberuntime::{PodRuntime, Process};
use crate::platform::{cri, rt};
use crate::state::pods::{Observation, ObservedCache, ObservedPod, SandboxState, SyncEvent};
use crate::types::api::PodUid;
use crate::types::owned::View;
use crate::types::sorted::{SortedMap, SortedSet};
use observations::Observations;

/// Watches the runtime's pods. Dropping it ends every watch.
pub(crate) struct Pleg {
    observer: Observer,
    observations: Rc<Observations>,
    /// The watched processes, by the id of their container or sandbox.
    watches: SortedMap<String, Watch>,
    #[expect(dead_code, reason = "dropping the task cancels it")]
    runtime_watch: rt::Task<()>,
}

/// Observes pods in the runtime. The sync loop stores the observations.
#[derive(Clone)]
pub(crate) struct Observer {
    pub(crate) runtime: Rc<PodRuntime>,
    pub(crate) observed: View<ObservedCache>,
}

struct Watch {
    pod: PodUid,
    #[expect(dead_code, reason = "dropping the task cancels it")]
    task: rt::Task<()>,
}

impl Observer {
    async fn observe_pod(&self, uid: &PodUid) -> Result<Observation, cri::Error> {
        self.runtime.observe_pod(uid, &self.observed).await
    }
}

impl Pleg {
    pub(crate) fn new(observer: Observer, relist_period: Duration, inbox: Sender<SyncEvent>) -> Self {
        let observations = Rc::new(Observations::new(observer.clone(), inbox.clone()));
        let watch = runtime_watch::run(observer.clone(), Rc::clone(&observations), relist_period, inbox);
        Self { observer, observations, watches: SortedMap::new(), runtime_watch: rt::spawn(watch) }
    }

    /// Watches exactly the running processes of this pod.
    pub(crate) fn watch(&mut self, pod: &ObservedPod) {
        let running = processes(pod);
        let ids: SortedSet<&str> = running.iter().map(|(running, _)| running.id()).collect();
        self.watches.retain(|id, watch| watch.pod != pod.uid || ids.contains(id.as_str()));
        for (process, pid) in running {
            let id = process.id().to_owned();
            if self.watches.contains_key(&id) {
                continue;
            }
            let uid = pod.uid.clone();
            let task = exit_watch::run(self.observer.clone(), Rc::clone(&self.observations), uid.clone(), process, pid);
            self.watches.insert(id, Watch { pod: uid, task: rt::spawn(task) });
        }
    }

    /// The runtime no longer has the pod.
    pub(crate) fn forget(&mut self, pod: &PodUid) {
        self.watches.retain(|_, watch| watch.pod != *pod);
    }
}

/// The running containers and sandboxes, each with the pid to watch.
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
