//! The pod phase. Pure.
//!
//! As `getPhase` in pkg/kubelet/kubelet_pods.go.

use super::StatusesByName;
use crate::types::api::{AfterExit, Container, ContainerState, ContainerStatus, Pod, PodPhase, Reason};

#[derive(Clone, Copy, Debug)]
pub(super) struct Progress<'a> {
    pub(super) init: &'a StatusesByName<'a>,
    pub(super) main: &'a StatusesByName<'a>,
    /// A main container exists in the current sandbox, so the init containers are done.
    pub(super) initialized: bool,
    /// No container will start again, whatever the restart policy.
    pub(super) ended: bool,
    /// All containers will start again, whatever the restart policy.
    pub(super) restarting_all: bool,
}

pub(super) fn phase(pod: &Pod, progress: Progress<'_>) -> PodPhase {
    let restarts = |container: &Container, end| progress.restarting_all || restarts_after(pod, container, end);
    let initialization = Initialization::of(pod, progress.init, restarts);
    let mut tally = ContainerCounts::default();
    for container in pod.spec.init_containers.iter().filter(|container| container.is_sidecar()) {
        tally.add_sidecar(status_of(progress.init, container));
    }
    for container in &pod.spec.containers {
        tally.add(container, status_of(progress.main, container), restarts);
    }
    if initialization == Initialization::Failed {
        return PodPhase::Failed;
    }
    let initializing = initialization == Initialization::Pending || (tally.sidecars_pending && !progress.initialized);
    if initializing || tally.waiting {
        PodPhase::Pending
    } else if tally.running && !tally.unknown {
        PodPhase::Running
    } else if tally.stopped > 0 && !tally.unknown {
        let succeeded = if tally.stopped == tally.succeeded { PodPhase::Succeeded } else { PodPhase::Failed };
        // A terminating static pod keeps its phase: it is created again from its manifest.
        let over = progress.ended && !pod.is_static();
        if over || tally.restartable == 0 { succeeded } else { PodPhase::Running }
    } else {
        PodPhase::Pending
    }
}

/// Whether a container that exited with `code` is restarted.
pub(super) fn restarts(pod: &Pod, container: &Container, code: i32) -> bool {
    container.after_exit(pod.spec.restart_policy, code) != AfterExit::Stay
}

fn restarts_after(pod: &Pod, container: &Container, end: ExitedRun) -> bool {
    end.restarting_all || restarts(pod, container, end.code)
}

/// Progress of the init containers, without sidecars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Initialization {
    /// An init container failed and is not retried.
    Failed,
    Pending,
    Done,
}

impl Initialization {
    fn of(pod: &Pod, statuses: &StatusesByName<'_>, restarts: impl Fn(&Container, ExitedRun) -> bool) -> Self {
        let mut merged = Self::Done;
        for container in pod.spec.init_containers.iter().filter(|container| !container.is_sidecar()) {
            let container_phase = match status_of(statuses, container).and_then(LastRun::of) {
                Some(LastRun::Ended(ExitedRun { code: 0, .. })) => Self::Done,
                // A failed init container that is retried does not decide the phase; the following ones do.
                Some(LastRun::Ended(end)) if restarts(container, end) => Self::Done,
                Some(LastRun::Ended(_)) => return Self::Failed,
                Some(LastRun::Runs) | None => Self::Pending,
            };
            if container_phase == Self::Pending {
                merged = Self::Pending;
            }
        }
        merged
    }
}

/// Counts of the main containers and sidecars.
#[derive(Debug, Default)]
struct ContainerCounts {
    sidecars_pending: bool,
    waiting: bool,
    running: bool,
    unknown: bool,
    stopped: usize,
    succeeded: usize,
    /// Number of stopped containers that will restart.
    restartable: usize,
}

impl ContainerCounts {
    /// A terminated sidecar is not counted.
    fn add_sidecar(&mut self, status: Option<&ContainerStatus>) {
        let Some(status) = status else {
            self.unknown = true;
            return;
        };
        match LastRun::of(status) {
            Some(LastRun::Runs) => {
                self.sidecars_pending |= status.started != Some(true);
                self.running = true;
            }
            Some(LastRun::Ended(_)) => {}
            None => {
                self.sidecars_pending = true;
                self.waiting = true;
            }
        }
    }

    fn add(
        &mut self,
        container: &Container,
        status: Option<&ContainerStatus>,
        restarts: impl Fn(&Container, ExitedRun) -> bool,
    ) {
        let Some(status) = status else {
            self.unknown = true;
            return;
        };
        match LastRun::of(status) {
            Some(LastRun::Runs) => self.running = true,
            Some(LastRun::Ended(end)) => {
                self.stopped += 1;
                self.restartable += usize::from(restarts(container, end));
                // A container waiting for its restart is not counted as completed.
                let over = matches!(status.state, Some(ContainerState::Terminated(_)));
                self.succeeded += usize::from(over && end.code == 0);
            }
            None => self.waiting = true,
        }
    }
}

/// The container's current run, or its last one while it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastRun {
    Runs,
    Ended(ExitedRun),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ExitedRun {
    code: i32,
    /// The container was removed because all containers of the pod restart.
    restarting_all: bool,
}

impl LastRun {
    /// `None`: it has never run.
    fn of(status: &ContainerStatus) -> Option<Self> {
        match (&status.state, &status.last_state) {
            (Some(ContainerState::Running(_)), _) => Some(Self::Runs),
            (Some(ContainerState::Terminated(end)), _)
            | (Some(ContainerState::Waiting(_)), Some(ContainerState::Terminated(end))) => {
                let restarting_all = end.reason == Reason::RESTARTING_ALL_CONTAINERS;
                Some(Self::Ended(ExitedRun { code: end.exit_code, restarting_all }))
            }
            (Some(ContainerState::Waiting(_)) | None, _) => None,
        }
    }
}

fn status_of<'a>(statuses: &StatusesByName<'a>, container: &Container) -> Option<&'a ContainerStatus> {
    statuses.get(container.name.as_str()).copied()
}
