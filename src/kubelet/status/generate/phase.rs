//! The phase of a pod, from the statuses of its containers. Pure.
//!
//! As the upstream kubelet decides (`getPhase` in pkg/kubelet/kubelet_pods.go).

use crate::types::api::{AfterExit, Container, ContainerState, ContainerStatus, Pod, PodPhase};

/// What the phase depends on beside the pod.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress<'a> {
    pub(super) init: &'a [ContainerStatus],
    pub(super) main: &'a [ContainerStatus],
    /// A main container was made in the sandbox of now: the init containers have done their part.
    pub(super) initialized: bool,
    /// No container will be started again, whatever the restart policy says.
    pub(super) ended: bool,
}

pub(super) fn phase(pod: &Pod, progress: Progress<'_>) -> PodPhase {
    let initialization = Initialization::of(pod, progress.init);
    let mut tally = Tally::default();
    for container in pod.spec.init_containers.iter().filter(|container| container.is_sidecar()) {
        tally.add_sidecar(status_of(progress.init, container));
    }
    for container in &pod.spec.containers {
        tally.add(pod, container, status_of(progress.main, container));
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
        // A static pod that ends keeps its phase: it will be made again from its manifest.
        let over = progress.ended && !pod.is_static();
        if over || tally.restartable == 0 { succeeded } else { PodPhase::Running }
    } else {
        PodPhase::Pending
    }
}

/// Whether a container that ended with `code` is started again.
pub(super) fn restarts(pod: &Pod, container: &Container, code: i32) -> bool {
    container.after_exit(pod.spec.restart_policy, code) != AfterExit::Stay
}

/// How far the init containers are, sidecars left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Initialization {
    /// One has failed and is not tried again.
    Failed,
    Pending,
    Done,
}

impl Initialization {
    fn of(pod: &Pod, statuses: &[ContainerStatus]) -> Self {
        let mut all = Self::Done;
        for container in pod.spec.init_containers.iter().filter(|container| !container.is_sidecar()) {
            let one = match status_of(statuses, container).and_then(Ran::of) {
                Some(Ran::Ended { code: 0 }) => Self::Done,
                // One that failed and is tried again does not hold the phase back: what follows it does.
                Some(Ran::Ended { code }) if restarts(pod, container, code) => Self::Done,
                Some(Ran::Ended { .. }) => return Self::Failed,
                Some(Ran::Runs) | None => Self::Pending,
            };
            if one == Self::Pending {
                all = Self::Pending;
            }
        }
        all
    }
}

/// The main containers and the sidecars, counted.
#[derive(Debug, Default)]
struct Tally {
    sidecars_pending: bool,
    waiting: bool,
    running: bool,
    unknown: bool,
    stopped: usize,
    succeeded: usize,
    /// Of those that stopped.
    restartable: usize,
}

impl Tally {
    /// A sidecar that has ended counts for nothing.
    fn add_sidecar(&mut self, status: Option<&ContainerStatus>) {
        let Some(status) = status else {
            self.unknown = true;
            return;
        };
        match Ran::of(status) {
            Some(Ran::Runs) => {
                self.sidecars_pending |= status.started != Some(true);
                self.running = true;
            }
            Some(Ran::Ended { .. }) => {}
            None => {
                self.sidecars_pending = true;
                self.waiting = true;
            }
        }
    }

    fn add(&mut self, pod: &Pod, container: &Container, status: Option<&ContainerStatus>) {
        let Some(status) = status else {
            self.unknown = true;
            return;
        };
        match Ran::of(status) {
            Some(Ran::Runs) => self.running = true,
            Some(Ran::Ended { code }) => {
                self.stopped += 1;
                self.restartable += usize::from(restarts(pod, container, code));
                // One that waits to be started again did not come to its end.
                let over = matches!(status.state, Some(ContainerState::Terminated(_)));
                self.succeeded += usize::from(over && code == 0);
            }
            None => self.waiting = true,
        }
    }
}

/// What a status tells of the container's run, be it the one of now or, while it waits, the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ran {
    Runs,
    Ended { code: i32 },
}

impl Ran {
    /// `None`: it has never run.
    fn of(status: &ContainerStatus) -> Option<Self> {
        match (&status.state, &status.last_state) {
            (Some(ContainerState::Running(_)), _) => Some(Self::Runs),
            (Some(ContainerState::Terminated(end)), _)
            | (Some(ContainerState::Waiting(_)), Some(ContainerState::Terminated(end))) => {
                Some(Self::Ended { code: end.exit_code })
            }
            (Some(ContainerState::Waiting(_)) | None, _) => None,
        }
    }
}

fn status_of<'a>(statuses: &'a [ContainerStatus], container: &Container) -> Option<&'a ContainerStatus> {
    statuses.iter().find(|status| status.name == container.name)
}
