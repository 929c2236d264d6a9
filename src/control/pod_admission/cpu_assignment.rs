//! Exclusive CPUs of containers: allocated at admission, released when the pod has ended.

use std::path::PathBuf;
use std::rc::Rc;

use async_channel::Sender;

use crate::control::pod_table::PodTable;
use crate::control::pod_workers::State;
use crate::kubelet::kuberuntime::{MisplacedContainer, PodRuntime, processes};
use crate::kubelet::resource_managers::{InUse, PodAllocation, ResourceManagers, write_state};
use crate::platform::cgroups::{cpuset_of, mems_of};
use crate::platform::rt;
use crate::state::pods::{CpuMoveResult, SyncEvent};
use crate::types::api::PodUid;
use crate::types::error::ErrorChain;

/// The CPU and memory managers, and the task that applies their cpusets to containers. Pod workers do not: one that waits
/// for an image or a slow termination must not keep other pods from their CPUs.
pub(crate) struct CpuAssignment {
    managers: ResourceManagers,
    inbox: Sender<SyncEvent>,
    /// Containers may run on CPUs other than those assigned to them.
    has_misplaced_containers: bool,
    task: Option<rt::Task<()>>,
    /// The last failure, so that a repeated failure is logged once.
    fault: Option<String>,
}

impl CpuAssignment {
    pub(crate) fn new(managers: ResourceManagers, inbox: Sender<SyncEvent>) -> Self {
        Self { managers, inbox, has_misplaced_containers: false, task: None, fault: None }
    }

    pub(crate) fn managers(&self) -> &ResourceManagers {
        &self.managers
    }

    /// Checks at the next round whether containers run on their CPUs.
    pub(crate) fn recheck(&mut self) {
        self.has_misplaced_containers = true;
    }

    /// Allocates the planned CPUs and memory to an admitted pod.
    pub(crate) fn allocate(&mut self, pod: &PodUid, allocation: PodAllocation) {
        self.has_misplaced_containers |= self.managers.allocate(pod, allocation);
    }
}

impl CpuAssignment {
    /// Without a state file, restores the assignments from the running containers. Runs before pods are admitted.
    pub(crate) fn on_first_relist(&mut self, pods: &PodTable) {
        if self.managers.is_forgetful() {
            let processes = processes(&pods.observed()).into_iter();
            let in_use = processes.map(|(pod, container, pid)| InUse {
                pod,
                container,
                cpus: cpuset_of(pid).unwrap_or_default(),
                mems: mems_of(pid).unwrap_or_default(),
            });
            self.managers.rebuild(in_use.collect());
        }
    }

    /// Writes the state files, and updates the cpusets of containers that run on the wrong CPUs.
    pub(crate) fn round(&mut self, pods: &PodTable) {
        self.release(pods);
        let is_news = self.managers.is_unwritten() && self.fault.is_none();
        if self.task.is_some() || !is_news && !self.has_misplaced_containers {
            return;
        }
        self.has_misplaced_containers = false;
        let misplaced = pods.runtime().cpus.misplaced(&self.managers.placements().read(), &pods.observed());
        // The state file keeps its assignments as long as containers are still pinned.
        let is_free = self.managers.is_static() || misplaced.is_empty();
        let files = if is_free { self.managers.take_unwritten() } else { Vec::new() };
        if misplaced.is_empty() && files.is_empty() {
            return;
        }
        let (runtime, inbox) = (Rc::clone(pods.runtime()), self.inbox.clone());
        self.task = Some(rt::spawn(async move {
            let placed = move_containers(&runtime, files, misplaced).await;
            // The loop has ended only if the process is ending.
            let _ = inbox.send(SyncEvent::CpusMoved(placed)).await;
        }));
    }

    /// Failures are retried after the next relist.
    pub(crate) fn on_cpus_moved(&mut self, placed: CpuMoveResult) {
        self.task = None;
        if placed.is_unwritten {
            self.managers.not_written();
        }
        if let Some(fault) = placed.fault.as_ref().filter(|fault| self.fault.as_ref() != Some(*fault)) {
            log!(warn, "failed to assign CPUs", error = fault);
        }
        self.fault = placed.fault;
    }

    /// Releases the CPUs of terminated pods, and of unknown pods once all sources are ready.
    fn release(&mut self, pods: &PodTable) {
        let all_ready = pods.all_sources_ready();
        self.has_misplaced_containers |= self.managers.release_others(|uid| {
            keeps_cpus(pods.worker(uid).map(|worker| worker.state), !all_ready || pods.knows(uid))
        });
    }
}

/// Whether a pod keeps its CPUs. A pod without a worker has no `state`; a source may have it.
fn keeps_cpus(state: Option<State>, may_exist: bool) -> bool {
    match state {
        Some(State::Sync | State::Terminating { .. }) => true,
        Some(State::Terminated | State::Finished) => false,
        None => may_exist,
    }
}

async fn move_containers(
    runtime: &PodRuntime,
    files: Vec<(PathBuf, String)>,
    misplaced: Vec<MisplacedContainer>,
) -> CpuMoveResult {
    let mut placed = CpuMoveResult::default();
    for (path, text) in files {
        let shown = path.display().to_string();
        if let Err(error) = rt::blocking(move || write_state(&path, &text)).await {
            placed.is_unwritten = true;
            placed.fault = Some(format!("write {shown}: {error}"));
        }
    }
    for container in misplaced {
        match runtime.cpus.update(&container).await {
            Ok(()) => log!(info, "container moved", container = container.name, processors = container.cpus),
            Err(error) => {
                let fault = format!("move container {} to {}: {}", container.name, container.cpus, ErrorChain(&error));
                placed.fault = Some(fault);
            }
        }
    }
    placed
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn pod_keeps_its_cpus_until_its_containers_have_stopped() {
        let terminating = State::Terminating { grace: Duration::ZERO };
        for may_exist in [false, true] {
            assert!(keeps_cpus(Some(State::Sync), may_exist) && keeps_cpus(Some(terminating), may_exist));
            assert!(!keeps_cpus(Some(State::Terminated), may_exist) && !keeps_cpus(Some(State::Finished), may_exist));
        }
    }

    #[test]
    fn pod_without_a_worker_keeps_its_cpus_while_a_source_may_have_it() {
        assert!(keeps_cpus(None, true) && !keeps_cpus(None, false));
    }
}
