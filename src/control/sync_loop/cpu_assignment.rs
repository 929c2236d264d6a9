//! Processors for containers: given when a pod is taken, given back when it has ended, and told to who runs.

use std::rc::Rc;

use crate::control::pod_workers::State;
use crate::control::sync_loop::SyncLoop;
use crate::kubelet::resource_managers::{InUse, Own, ResourceManagers, write_state};
use crate::platform::cgroups::{cpuset_of, mems_of};
use crate::platform::rt;
use crate::state::pods::{Placed, SyncEvent};
use crate::types::api::PodUid;
use crate::types::error::ErrorChain;

/// What was decided is carried out here.
#[derive(Debug)]
pub(super) struct CpuAssignment {
    managers: ResourceManagers,
    /// Containers have come, or others are to have what they have.
    due: bool,
    task: Option<rt::Task<()>>,
    /// What went wrong the last time, so that it is told once.
    fault: Option<String>,
}

impl CpuAssignment {
    pub(super) fn new(managers: ResourceManagers) -> Self {
        Self { managers, due: false, task: None, fault: None }
    }

    pub(super) fn managers(&self) -> &ResourceManagers {
        &self.managers
    }

    /// Something runs that may not be where it should.
    pub(super) fn look_again(&mut self) {
        self.due = true;
    }

    /// The pod is taken, and these processors are its containers' own.
    pub(super) fn give(&mut self, pod: &PodUid, own: Own) {
        self.due |= self.managers.give(pod, own);
    }
}

impl SyncLoop {
    /// Before any pod is taken: where nothing tells who has which processors, what runs does.
    pub(super) fn learn_processors(&mut self) {
        if self.parts.cpus.managers.is_forgetful() {
            let processes = self.pods.runtime().processes().into_iter();
            let in_use = processes.map(|(pod, container, pid)| InUse {
                pod,
                container,
                cpus: cpuset_of(pid).unwrap_or_default(),
                mems: mems_of(pid).unwrap_or_default(),
            });
            self.parts.cpus.managers.learn(in_use.collect());
        }
    }

    /// Writes down who has which processors, and moves who is elsewhere.
    pub(super) fn place(&mut self) {
        self.give_back_processors();
        let placing = &mut self.parts.cpus;
        let managers = &mut placing.managers;
        let is_news = managers.is_unwritten() && placing.fault.is_none();
        if placing.task.is_some() || !is_news && !placing.due {
            return;
        }
        placing.due = false;
        let misplaced = self.pods.runtime().misplaced();
        // What the file says of containers that are held to nothing any more holds until they are not.
        let files = if managers.is_static() || misplaced.is_empty() { managers.take_unwritten() } else { Vec::new() };
        if misplaced.is_empty() && files.is_empty() {
            return;
        }
        let (runtime, inbox) = (Rc::clone(self.pods.runtime()), self.sender.clone());
        placing.task = Some(rt::spawn(async move {
            let mut placed = Placed::default();
            for (path, text) in files {
                let shown = path.display().to_string();
                if let Err(error) = rt::blocking(move || write_state(&path, &text)).await {
                    placed.is_unwritten = true;
                    placed.fault = Some(format!("write {shown}: {error}"));
                }
            }
            for container in misplaced {
                match runtime.place(&container).await {
                    Ok(()) => log!(info, "container moved", container = container.name, processors = container.cpus),
                    Err(error) => {
                        let fault =
                            format!("move container {} to {}: {}", container.name, container.cpus, ErrorChain(&error));
                        placed.fault = Some(fault);
                    }
                }
            }
            // The loop is gone when the process ends.
            let _ = inbox.send(SyncEvent::Placed(placed)).await;
        }));
    }

    /// What has failed is tried again with the next look at the runtime.
    pub(super) fn on_placed(&mut self, placed: Placed) {
        let placing = &mut self.parts.cpus;
        placing.task = None;
        if placed.is_unwritten {
            placing.managers.not_written();
        }
        if let Some(fault) = placed.fault.as_ref().filter(|fault| placing.fault.as_ref() != Some(*fault)) {
            log!(warn, "processors not given", error = fault);
        }
        placing.fault = placed.fault;
    }

    /// Who has ended has no processors; nor has, when every source has told its pods, who is none.
    fn give_back_processors(&mut self) {
        let all_ready = self.pods.node_state().sources.all_ready();
        let pods = &self.pods;
        let given_back = self.parts.cpus.managers.keep(|uid: &PodUid| match pods.worker(uid) {
            Some(worker) => matches!(worker.state, State::Sync | State::Terminating { .. }),
            None => !all_ready,
        });
        self.parts.cpus.due |= given_back;
    }
}
