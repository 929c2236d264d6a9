//! Pod conditions. Pure.
//!
//! As generated in pkg/kubelet/status/generate.go.

use std::borrow::Cow;

use crate::state::pods::{ObservedPod, SandboxState};
use crate::types::api::{
    ConditionStatus, Container, ContainerState, ContainerStatus, Pod, PodCondition, PodPhase, PodStatus, Reason,
    RestartRuleAction, Time, conditions,
};

use super::{OwnCondition, PodFailure, Resize, ResizeProgress, StatusesByName, restarts_all};
use crate::types::sorted::SortedMap;

#[derive(Clone, Copy, Debug)]
pub(super) struct ConditionInputs<'a> {
    pub(super) pod: &'a Pod,
    pub(super) observed: &'a ObservedPod,
    pub(super) phase: PodPhase,
    pub(super) init: &'a StatusesByName<'a>,
    pub(super) main: &'a StatusesByName<'a>,
    pub(super) previous: &'a PodStatus,
    pub(super) now: Time,
    pub(super) resize: Resize<'a>,
    pub(super) failed: Option<&'a PodFailure>,
    pub(super) shows_sandbox: bool,
    pub(super) own: &'a [OwnCondition],
}

/// All conditions in upstream's order: those of other controllers unchanged, then the kubelet's own.
pub(super) fn conditions(inputs: &ConditionInputs<'_>) -> Vec<PodCondition> {
    let mut conditions: Vec<PodCondition> =
        inputs.pod.status.conditions.iter().filter(|c| !is_own(&c.kind)).cloned().collect();
    // DisruptionTarget records an eviction, which cannot be derived from the observed state.
    let recorded = find(&inputs.previous.conditions, conditions::DISRUPTION_TARGET).cloned();
    if let Some(disruption) = recorded.or_else(|| disruption(inputs)) {
        conditions.retain(|condition| condition.kind != conditions::DISRUPTION_TARGET);
        conditions.push(disruption);
    }
    conditions.extend(resize(inputs));
    let containers_ready = containers_ready(inputs);
    let ready = ready(inputs, &containers_ready, &conditions);
    if inputs.shows_sandbox {
        let sandbox = ConditionResult::plain(has_usable_sandbox(inputs.pod, inputs.observed));
        conditions.push(sandbox.into_condition(conditions::POD_READY_TO_START_CONTAINERS, inputs));
    }
    for (kind, verdict) in [
        (conditions::INITIALIZED, initialized(inputs)),
        (conditions::READY, ready),
        (conditions::CONTAINERS_READY, containers_ready),
        (conditions::POD_SCHEDULED, ConditionResult::plain(true)),
    ] {
        conditions.push(verdict.into_condition(kind, inputs));
    }
    conditions.extend(
        restarting(inputs).map(|verdict| verdict.into_condition(conditions::ALL_CONTAINERS_RESTARTING, inputs)),
    );
    conditions.extend(inputs.own.iter().map(|own_condition| own_condition.to_condition(inputs)));
    conditions
}

impl OwnCondition {
    fn to_condition(&self, inputs: &ConditionInputs<'_>) -> PodCondition {
        let before = find(&inputs.previous.conditions, self.kind).filter(|before| before.status == self.status);
        PodCondition {
            kind: Cow::Borrowed(self.kind),
            status: self.status,
            last_probe_time: None,
            last_transition_time: before.and_then(|before| before.last_transition_time).or(Some(inputs.now)),
            observed_generation: inputs.pod.metadata.generation,
            reason: self.reason.clone(),
            message: self.message.clone(),
        }
    }
}

/// `AllContainersRestarting`: true from the exit that triggers the restart until that container is removed. `None` if
/// no container has a RestartAllContainers rule.
fn restarting(inputs: &ConditionInputs<'_>) -> Option<ConditionResult> {
    let spec = &inputs.pod.spec;
    let could_ask = |container: &&Container| {
        let mut actions = container.restart_policy_rules.iter().map(|rule| rule.action);
        actions.any(|action| action == RestartRuleAction::RestartAllContainers)
    };
    spec.init_containers.iter().chain(&spec.containers).find(could_ask)?;
    if let Some(reason) = terminal_reason(inputs.phase) {
        return Some(ConditionResult::not(reason, String::new()));
    }
    Some(match restarts_all(inputs.pod, inputs.observed) {
        true => ConditionResult {
            holds: true,
            reason: Reason::RESTART_ALL_CONTAINERS_STARTED,
            message: "container exited with restart policy rule".to_owned(),
        },
        false => ConditionResult::plain(false),
    })
}

fn disruption(inputs: &ConditionInputs<'_>) -> Option<PodCondition> {
    let message = inputs.failed?.disruption.as_deref()?;
    let verdict = ConditionResult { holds: true, reason: Reason::TERMINATION_BY_KUBELET, message: message.to_owned() };
    Some(verdict.into_condition(conditions::DISRUPTION_TARGET, inputs))
}

/// Conditions of an outstanding resize. A pod in a terminal phase has none.
fn resize(inputs: &ConditionInputs<'_>) -> impl Iterator<Item = PodCondition> {
    let outstanding =
        |reason: Reason, message: &str| ConditionResult { holds: true, reason, message: message.to_owned() };
    let pending = inputs.resize.pending;
    let pending = pending.map(|(reason, message, generation)| (outstanding(reason.clone(), message), generation));
    let progress = match inputs.resize.progress {
        ResizeProgress::None => None,
        ResizeProgress::InProgress(generation) => Some((ConditionResult::plain(true), generation)),
        ResizeProgress::Failed(message, generation) => Some((outstanding(Reason::ERROR, message), generation)),
    };
    let resize_conditions = [(conditions::POD_RESIZE_PENDING, pending), (conditions::POD_RESIZE_IN_PROGRESS, progress)];
    let resize_conditions = resize_conditions.into_iter().filter(|_| !inputs.phase.is_terminal());
    resize_conditions.filter_map(|(kind, resize)| {
        let (verdict, observed_generation) = resize?;
        Some(PodCondition { observed_generation, ..verdict.into_condition(kind, inputs) })
    })
}

pub(in crate::kubelet::status) fn find<'a>(conditions: &'a [PodCondition], kind: &str) -> Option<&'a PodCondition> {
    conditions.iter().find(|condition| condition.kind == kind)
}

/// A condition type that only the kubelet writes.
pub(in crate::kubelet::status) fn is_own(kind: &str) -> bool {
    [
        conditions::POD_SCHEDULED,
        conditions::READY,
        conditions::INITIALIZED,
        conditions::CONTAINERS_READY,
        conditions::POD_READY_TO_START_CONTAINERS,
        conditions::POD_RESIZE_PENDING,
        conditions::POD_RESIZE_IN_PROGRESS,
        conditions::ALL_CONTAINERS_RESTARTING,
        conditions::TRIAL,
        conditions::UPDATE_HELD,
    ]
    .contains(&kind)
}

/// The reason for unreadiness in a terminal phase; `None` in other phases.
pub(in crate::kubelet::status) fn terminal_reason(phase: PodPhase) -> Option<Reason> {
    match phase {
        PodPhase::Succeeded => Some(Reason::POD_COMPLETED),
        PodPhase::Failed => Some(Reason::POD_FAILED),
        PodPhase::Pending | PodPhase::Running | PodPhase::Unknown => None,
    }
}

#[derive(Clone, Debug, Default)]
struct ConditionResult {
    holds: bool,
    reason: Reason,
    message: String,
}

impl ConditionResult {
    fn plain(holds: bool) -> Self {
        Self { holds, ..Self::default() }
    }

    fn not(reason: Reason, message: String) -> Self {
        Self { holds: false, reason, message }
    }

    fn into_condition(self, kind: &'static str, inputs: &ConditionInputs<'_>) -> PodCondition {
        let status = if self.holds { ConditionStatus::True } else { ConditionStatus::False };
        OwnCondition { kind, status, reason: self.reason, message: self.message }.to_condition(inputs)
    }
}

/// Whether containers can start without a new sandbox (`PodSandboxChanged`).
fn has_usable_sandbox(pod: &Pod, observed: &ObservedPod) -> bool {
    let ready = observed.sandboxes.iter().filter(|sandbox| sandbox.state == SandboxState::Ready).count();
    observed.newest_sandbox().is_some_and(|newest| {
        ready == 1
            && newest.state == SandboxState::Ready
            && newest.host_network == pod.spec.host_network
            && (pod.spec.host_network || newest.has_address)
    })
}

fn initialized(inputs: &ConditionInputs<'_>) -> ConditionResult {
    let done = |container: &Container, status: &ContainerStatus| {
        if container.is_sidecar() { status.started == Some(true) } else { status.ready }
    };
    let lists = Lists::of(inputs.pod.spec.init_containers.iter(), inputs.init, done);
    if inputs.phase == PodPhase::Succeeded && lists.unknown.is_empty() {
        return ConditionResult { holds: true, reason: Reason::POD_COMPLETED, message: String::new() };
    }
    // A restarting sidecar does not undo the initialization.
    let has_started = |status: &ContainerStatus| {
        matches!(status.state, Some(ContainerState::Running(_) | ContainerState::Terminated(_)))
    };
    if inputs.main.values().any(|status| has_started(status)) {
        return ConditionResult::plain(true);
    }
    match lists.message("incomplete") {
        Some(message) => ConditionResult::not(Reason::CONTAINERS_NOT_INITIALIZED, message),
        None => ConditionResult::plain(true),
    }
}

fn containers_ready(inputs: &ConditionInputs<'_>) -> ConditionResult {
    let spec = &inputs.pod.spec;
    let sidecars = spec.init_containers.iter().filter(|container| container.is_sidecar());
    let ready = |_: &Container, status: &ContainerStatus| status.ready;
    let mut lists = Lists::of(sidecars, inputs.init, ready);
    lists.append(Lists::of(spec.containers.iter(), inputs.main, ready));
    match terminal_reason(inputs.phase) {
        Some(reason) if inputs.phase == PodPhase::Failed || lists.unknown.is_empty() => {
            ConditionResult::not(reason, String::new())
        }
        Some(_) | None => match lists.message("unready") {
            Some(message) => ConditionResult::not(Reason::CONTAINERS_NOT_READY, message),
            None => ConditionResult::plain(true),
        },
    }
}

/// True if all containers are ready and every readiness gate is true.
fn ready(
    inputs: &ConditionInputs<'_>,
    containers_ready: &ConditionResult,
    other_conditions: &[PodCondition],
) -> ConditionResult {
    if !containers_ready.holds {
        return containers_ready.clone();
    }
    let by_kind = other_conditions.iter().rev().map(|condition| (&*condition.kind, condition));
    let by_kind: SortedMap<&str, &PodCondition> = by_kind.collect();
    let mut closed = Vec::new();
    for gate in &inputs.pod.spec.readiness_gates {
        let kind = &gate.condition_type;
        match by_kind.get(kind.as_str()) {
            None => closed.push(format!("corresponding condition of pod readiness gate {kind:?} does not exist.")),
            Some(condition) if condition.status != ConditionStatus::True => {
                let status = condition.status;
                closed.push(format!("the status of pod readiness gate {kind:?} is not \"True\", but {status}"));
            }
            Some(_) => {}
        }
    }
    if closed.is_empty() {
        ConditionResult::plain(true)
    } else {
        ConditionResult::not(Reason::READINESS_GATES_NOT_READY, closed.join(", "))
    }
}

/// Names of the containers that keep a condition false.
#[derive(Debug, Default)]
struct Lists<'a> {
    unknown: Vec<&'a str>,
    lacking: Vec<&'a str>,
}

impl<'a> Lists<'a> {
    fn of(
        containers: impl Iterator<Item = &'a Container>,
        statuses: &StatusesByName<'_>,
        holds: fn(&Container, &ContainerStatus) -> bool,
    ) -> Self {
        let mut lists = Self::default();
        for container in containers {
            match statuses.get(container.name.as_str()) {
                None => lists.unknown.push(&container.name),
                Some(status) if !holds(container, status) => lists.lacking.push(&container.name),
                Some(_) => {}
            }
        }
        lists
    }

    fn append(&mut self, mut other: Self) {
        self.unknown.append(&mut other.unknown);
        self.lacking.append(&mut other.lacking);
    }

    fn message(&self, lacking: &str) -> Option<String> {
        let parts: Vec<String> = [("unknown", &self.unknown), (lacking, &self.lacking)]
            .into_iter()
            .filter(|(_, names)| !names.is_empty())
            .map(|(what, names)| format!("containers with {what} status: [{}]", names.join(" ")))
            .collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}
