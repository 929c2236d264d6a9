//! Probe results of one pod's containers, and the probes to run. Pure.
//!
//! ```text
//!                     passed                          failed (threshold)
//!   startup probe ------------> readiness, liveness -----------------> none until another instance runs
//!        | failed (threshold)                                                       ^
//!        '--------------------------------------------------------------------------'
//! ```
//!
//! Only running containers are probed. A result belongs to one instance of a container; the next instance starts
//! over.

use std::time::Duration;

use crate::state::pods::{ObservedContainer, ObservedPod, ProbeKind, ProbeResult};
use crate::types::api::{Container, PodSpec, Probe};
use crate::types::sorted::SortedMap;

/// Probe state of a running container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContainerProbeState {
    /// The instance that the results belong to.
    pub(crate) container_id: String,
    pub(crate) started: bool,
    pub(crate) ready: bool,
    /// It failed this probe and must be killed.
    pub(crate) failed: Option<ProbeKind>,
}

impl Default for ContainerProbeState {
    /// The state of a container without probes.
    fn default() -> Self {
        Self { container_id: String::new(), started: true, ready: true, failed: None }
    }
}

/// A container with probes that has started or was found running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProbeOutcome {
    pub(super) age: Duration,
    /// It was started before this agent.
    pub(super) adopted: bool,
    /// The pod's status had this instance as started when the agent began.
    pub(super) was_started: bool,
    pub(super) was_ready: bool,
}

#[derive(Debug, Default)]
pub(super) struct ProbeResults {
    /// By container name.
    probed: SortedMap<String, ContainerProbeState>,
}

impl ProbeResults {
    pub(super) fn probed(&self) -> &SortedMap<String, ContainerProbeState> {
        &self.probed
    }

    /// Updates the running instances. `find` is called for each new one.
    pub(super) fn on_observation(
        &mut self,
        spec: &PodSpec,
        observed: &ObservedPod,
        find: impl Fn(&ObservedContainer) -> ProbeOutcome,
    ) {
        for (_, container) in with_probes(spec) {
            let Some(running) = observed.container(&container.name).filter(|instance| instance.is_running()) else {
                self.probed.remove(&container.name);
                continue;
            };
            let probed_container = self.probed.get(&container.name);
            if probed_container.is_none_or(|probed_container| probed_container.container_id != running.id) {
                let probed = first_sight(container, running, find(running));
                self.probed.insert(container.name.clone(), probed);
            }
        }
    }

    /// True if the result changes something.
    pub(super) fn set(&mut self, result: &ProbeResult) -> bool {
        let Some(probed) = self.probed.get_mut(&result.container) else { return false };
        if probed.container_id != result.container_id {
            return false;
        }
        let before = probed.clone();
        match (result.kind, result.passed) {
            (ProbeKind::Startup, true) => probed.started = true,
            (ProbeKind::Readiness, passed) => probed.ready = passed,
            (ProbeKind::Startup | ProbeKind::Liveness, false) => probed.failed = Some(result.kind),
            (ProbeKind::Liveness, true) => {}
        }
        *probed != before
    }

    /// Whether this probe must run now. A terminating pod runs only its readiness probes, which tell whether its
    /// endpoints still serve (KEP-1669).
    pub(super) fn is_due(&self, container: &Container, kind: ProbeKind, ending: bool) -> bool {
        let Some(probed) = self.probed.get(&container.name).filter(|_| probe_of(container, kind).is_some()) else {
            return false;
        };
        let healthy = probed.failed.is_none() && !ending;
        match kind {
            ProbeKind::Startup => healthy && !probed.started,
            ProbeKind::Readiness => probed.started,
            ProbeKind::Liveness => healthy && probed.started,
        }
    }

    pub(super) fn instance(&self, container: &Container) -> Option<&str> {
        self.probed.get(&container.name).map(|probed| probed.container_id.as_str())
    }
}

/// The containers whose probes run, with their index in the pod: main containers and sidecars.
pub(super) fn with_probes(spec: &PodSpec) -> impl Iterator<Item = (usize, &Container)> {
    let init = spec.init_containers.len();
    let counts = move |index: usize, container: &Container| index >= init || container.is_sidecar();
    let containers = spec.init_containers.iter().chain(&spec.containers).enumerate();
    containers.filter(move |(index, container)| {
        counts(*index, container) && ProbeKind::ALL.iter().any(|kind| probe_of(container, *kind).is_some())
    })
}

pub(super) fn container_at(spec: &PodSpec, index: usize) -> Option<&Container> {
    spec.init_containers.iter().chain(&spec.containers).nth(index)
}

pub(super) fn probe_of(container: &Container, kind: ProbeKind) -> Option<&Probe> {
    match kind {
        ProbeKind::Startup => container.startup_probe.as_deref(),
        ProbeKind::Readiness => container.readiness_probe.as_deref(),
        ProbeKind::Liveness => container.liveness_probe.as_deref(),
    }
}

/// The state until the first result: alive, not ready, and not started if there is a startup probe.
///
/// A container that was found running keeps the state in the pod's status. Without a status, a container that has run
/// longer than its startup probe allows has passed that probe: a startup probe must not kill it now.
fn first_sight(container: &Container, running: &ObservedContainer, outcome: ProbeOutcome) -> ContainerProbeState {
    let outlived = |probe: &Probe| outcome.adopted && (outcome.was_started || outcome.age > longest_start(probe));
    ContainerProbeState {
        container_id: running.id.clone(),
        started: container.startup_probe.as_deref().is_none_or(outlived),
        ready: container.readiness_probe.is_none() || (outcome.adopted && outcome.was_ready),
        failed: None,
    }
}

/// The latest time after the start at which the startup probe kills the container.
fn longest_start(probe: &Probe) -> Duration {
    let tries = u32::try_from(probe.failure_threshold).unwrap_or(0);
    let each = seconds(probe.period_seconds).max(seconds(probe.timeout_seconds));
    seconds(probe.initial_delay_seconds) + each.saturating_mul(tries.saturating_add(1))
}

pub(super) fn seconds(number: i32) -> Duration {
    Duration::from_secs(u64::try_from(number).unwrap_or(0))
}

#[cfg(test)]
mod tests;
