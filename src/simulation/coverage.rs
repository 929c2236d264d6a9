//! What simulations have reached: states of pods, the states in which steps met them, and faults at the same time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use super::container_runtime::revision as revision_of;
use super::life::Node;
use super::plan::StepKind;
use super::wanted::REVISION;
use crate::platform::cri::v1;

/// The state of a pod in the world and at the API server, without names and numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct PodState {
    is_wanted: bool,
    /// Whether the newest sandbox is ready; `None` without one.
    sandbox: Option<bool>,
    /// The state of the newest instance of each container.
    containers: BTreeMap<String, &'static str>,
    /// At the API server; empty without an object.
    phase: String,
    is_deleted: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Coverage {
    states: BTreeSet<PodState>,
    met: BTreeSet<(String, PodState)>,
    pairs: BTreeSet<(String, String)>,
    /// The ends of faults that last.
    lasting: BTreeMap<String, Duration>,
}

impl Coverage {
    fn step(&mut self, kind: &StepKind, pods: Vec<PodState>, now: Duration) {
        let name = name(kind);
        for pod in pods {
            self.met.insert((name.clone(), pod.clone()));
            self.states.insert(pod);
        }
        self.lasting.retain(|_, end| *end > now);
        let Some(lasts) = lasts(kind) else { return };
        for other in self.lasting.keys().filter(|other| **other != name) {
            let (one, other) = (name.clone().min(other.clone()), name.clone().max(other.clone()));
            self.pairs.insert((one, other));
        }
        let end = self.lasting.entry(name).or_default();
        *end = (now + lasts).max(*end);
    }

    /// All faults end.
    pub(super) fn heal(&mut self) {
        self.lasting.clear();
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.states.extend(other.states.iter().cloned());
        self.met.extend(other.met.iter().cloned());
        self.pairs.extend(other.pairs.iter().cloned());
    }
}

/// Number of kinds of faults that last.
const LASTING_FAULT_KINDS: usize = 14;

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (states, met, pairs) = (self.states.len(), self.met.len(), self.pairs.len());
        let all = LASTING_FAULT_KINDS * (LASTING_FAULT_KINDS - 1) / 2;
        write!(f, "{states} states of a pod, {met} steps in a state, {pairs} of {all} pairs of faults at once")
    }
}

/// The kind of a step, without its numbers.
fn name(kind: &StepKind) -> String {
    let shown = format!("{kind:?}");
    shown.split(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default().to_owned()
}

fn lasts(kind: &StepKind) -> Option<Duration> {
    match kind {
        StepKind::ApiGone { lasts }
        | StepKind::ApiSilent { lasts }
        | StepKind::ApiFails { lasts, .. }
        | StepKind::ApiDelay { lasts, .. }
        | StepKind::RuntimeGone { lasts }
        | StepKind::RuntimeSilent { lasts }
        | StepKind::RuntimeFails { lasts, .. }
        | StepKind::SlowDisk { lasts, .. }
        | StepKind::FullDisk { lasts }
        | StepKind::SlowMachine { lasts, .. }
        | StepKind::DiskFails { lasts, .. }
        | StepKind::NamesFail { lasts, .. }
        | StepKind::PluginGone { lasts, .. }
        | StepKind::PluginFails { lasts, .. } => Some(*lasts),
        _ => None,
    }
}

impl Node {
    /// Notes what the step meets.
    pub(super) fn cover(&mut self, step: &StepKind) {
        let pods = self.pod_states();
        self.coverage.step(step, pods, self.world.passed());
    }

    fn pod_states(&self) -> Vec<PodState> {
        let mut pods: BTreeMap<String, PodState> = BTreeMap::new();
        for revision in self.wanted.borrow().pods.keys() {
            pods.entry(revision.clone()).or_default().is_wanted = true;
        }
        self.runtime.look(|runtime| {
            // Older ones come first.
            for sandbox in &runtime.world.sandboxes {
                let pod = pods.entry(revision_of(&sandbox.config.labels, sandbox)).or_default();
                pod.sandbox = Some(sandbox.is_ready());
                let containers = runtime.world.containers.iter().filter(|one| one.sandbox_id == sandbox.id);
                pod.containers.extend(containers.map(|one| (one.name().to_owned(), state(one.state))));
            }
        });
        for object in self.api.look(|server| server.list("/api/v1/pods")) {
            let metadata = &object["metadata"];
            let Some(revision) = metadata["labels"][REVISION].as_str() else { continue };
            let pod = pods.entry(revision.to_owned()).or_default();
            pod.phase = object["status"]["phase"].as_str().unwrap_or_default().to_owned();
            pod.is_deleted = metadata["deletionTimestamp"].is_string();
        }
        pods.into_values().collect()
    }
}

fn state(state: v1::ContainerState) -> &'static str {
    match state {
        v1::ContainerState::Created => "created",
        v1::ContainerState::Running => "running",
        v1::ContainerState::Exited => "exited",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_meetings_and_pairs_are_counted_once() {
        let lasts = Duration::from_secs(10);
        let (gone, full) = (StepKind::ApiGone { lasts }, StepKind::FullDisk { lasts });
        let running = PodState { phase: "Running".to_owned(), ..PodState::default() };
        let mut coverage = Coverage::default();
        let at = Duration::from_secs;
        coverage.step(&gone, vec![running.clone(), PodState::default()], at(0));
        coverage.step(&full, vec![running.clone()], at(9));
        coverage.step(&gone, vec![running.clone()], at(18));
        // The disk has room again, the API server is still gone.
        coverage.step(&StepKind::Compact, vec![running.clone()], at(27));
        coverage.step(&StepKind::RuntimeGone { lasts }, vec![running], at(28));
        let expected = "2 states of a pod, 5 steps in a state, 1 of 91 pairs of faults at once";
        assert_eq!(coverage.to_string(), expected);
    }

    #[test]
    fn every_lasting_fault_of_a_plan_is_known() {
        for step in [StepKind::ApiCut, StepKind::EndWatches] {
            assert_eq!(lasts(&step), None);
        }
        let lasts_by_name = |what: &StepKind| format!("{what:?}").contains("lasts: ");
        let plans =
            (0..20).map(|seed| super::super::plan::Plan::new(seed, Duration::from_secs(86_400), Duration::ZERO));
        let mut lasting = BTreeSet::new();
        for step in plans.flat_map(|plan| plan.episodes).flat_map(|episode| episode.steps) {
            assert_eq!(lasts(&step.kind).is_some(), lasts_by_name(&step.kind), "{:?}", step.kind);
            lasting.extend(lasts(&step.kind).map(|_| name(&step.kind)));
        }
        assert_eq!(lasting.len(), LASTING_FAULT_KINDS, "{lasting:?}");
    }
}
