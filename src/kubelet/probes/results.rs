//! What probes have found of one pod's containers, and which of them are asked now. Pure.
//!
//! ```text
//!                     passed                          failed for good
//!   startup probe ------------> readiness, liveness -----------------> none until another instance runs
//!        | failed for good                                                          ^
//!        '--------------------------------------------------------------------------'
//! ```
//!
//! Only what runs is asked. A result is about one instance of a container; the next instance begins anew.

use std::time::Duration;

use crate::state::pods::{ObservedContainer, ObservedPod, ProbeKind, ProbeResult};
use crate::types::api::{Container, PodSpec, Probe};
use crate::types::sorted::SortedMap;

/// What is known of a running container that has probes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Probed {
    /// The instance that this is about.
    pub(crate) container_id: String,
    pub(crate) started: bool,
    pub(crate) ready: bool,
    /// It has failed this probe and is to be ended.
    pub(crate) failed: Option<ProbeKind>,
}

impl Default for Probed {
    /// As of a container without probes.
    fn default() -> Self {
        Self { container_id: String::new(), started: true, ready: true, failed: None }
    }
}

/// A container with probes that has begun to run, or that was found running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// How long it has run.
    pub(super) age: Duration,
    /// It ran before this agent did.
    pub(super) adopted: bool,
    /// What the pod's status said of this instance before this agent ran.
    pub(super) was_started: bool,
    pub(super) was_ready: bool,
}

#[derive(Debug, Default)]
pub(super) struct Book {
    /// By the container's name.
    probed: SortedMap<String, Probed>,
}

impl Book {
    pub(super) fn probed(&self) -> &SortedMap<String, Probed> {
        &self.probed
    }

    /// Takes in what runs now. `find` is asked about each instance that is new.
    pub(super) fn see(&mut self, spec: &PodSpec, observed: &ObservedPod, find: impl Fn(&ObservedContainer) -> Found) {
        for (_, container) in with_probes(spec) {
            let Some(running) = observed.container(&container.name).filter(|instance| instance.is_running()) else {
                self.probed.remove(&container.name);
                continue;
            };
            let known = self.probed.get(&container.name);
            if known.is_none_or(|known| known.container_id != running.id) {
                let probed = first_sight(container, running, find(running));
                self.probed.insert(container.name.clone(), probed);
            }
        }
    }

    /// True if the result is news.
    pub(super) fn take_in(&mut self, result: &ProbeResult) -> bool {
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

    /// Whether this probe of the container is to be asked. Of a pod that ends only the readiness counts.
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

/// The containers whose probes count, each by its place among the pod's containers: main containers and sidecars.
pub(super) fn with_probes(spec: &PodSpec) -> impl Iterator<Item = (usize, &Container)> {
    let init = spec.init_containers.len();
    let counts = move |index: usize, container: &Container| index >= init || container.is_sidecar();
    let all = spec.init_containers.iter().chain(&spec.containers).enumerate();
    all.filter(move |(index, container)| {
        counts(*index, container) && ProbeKind::ALL.iter().any(|kind| probe_of(container, *kind).is_some())
    })
}

pub(super) fn container_at(spec: &PodSpec, place: usize) -> Option<&Container> {
    spec.init_containers.iter().chain(&spec.containers).nth(place)
}

pub(super) fn probe_of(container: &Container, kind: ProbeKind) -> Option<&Probe> {
    match kind {
        ProbeKind::Startup => container.startup_probe.as_deref(),
        ProbeKind::Readiness => container.readiness_probe.as_deref(),
        ProbeKind::Liveness => container.liveness_probe.as_deref(),
    }
}

/// What holds until the first result: alive, not ready, and not started if a probe has to say so.
///
/// A container that was found running keeps what its status said. Without a status, one that has run for longer than
/// its startup probe would have let it live has passed that probe: it must not be ended by a question that was meant
/// for its first moments.
fn first_sight(container: &Container, running: &ObservedContainer, found: Found) -> Probed {
    let outlived = |probe: &Probe| found.adopted && (found.was_started || found.age > longest_start(probe));
    Probed {
        container_id: running.id.clone(),
        started: container.startup_probe.as_deref().is_none_or(outlived),
        ready: container.readiness_probe.is_none() || (found.adopted && found.was_ready),
        failed: None,
    }
}

/// The latest moment after its start at which a container is ended by its startup probe.
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
