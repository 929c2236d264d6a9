//! Computes the actions that bring a pod closer to its spec. Pure.

use std::time::Instant;

use crate::kubelet::kuberuntime::container_gc::{Garbage, garbage};
use crate::kubelet::kuberuntime::pod_index::ContainerIndex;
use crate::state::pods::{ContainerState, ObservedContainer, ObservedPod, ObservedSandbox, ProbeKind, SandboxState};
use crate::types::api::{AfterExit, ContainerRestartRule, RestartPolicy};
use crate::types::sorted::{SortOnce, SortedSet};

/// The inputs of the plan.
#[derive(Debug)]
pub(crate) struct ActionInputs<'a> {
    pub(crate) restart_policy: RestartPolicy,
    pub(crate) host_network: bool,
    pub(crate) init: Vec<WantedContainer<'a>>,
    pub(crate) main: Vec<WantedContainer<'a>>,
    pub(crate) ephemeral: Vec<WantedContainer<'a>>,
    pub(crate) observed: &'a ObservedPod,
    /// The sandbox running outside of the pod's cgroup, if any.
    pub(crate) groupless: Option<&'a str>,
    /// Ids of running instances with a requested restart.
    pub(crate) to_restart: &'a [String],
    /// The pod's own resources must be resized.
    pub(crate) resizes_pod: bool,
    pub(crate) now: Instant,
}

/// A container of the spec.
#[derive(Clone, Debug)]
pub(crate) struct WantedContainer<'a> {
    pub(crate) name: &'a str,
    /// Hash of name and image; a running instance with another hash must be replaced.
    pub(crate) hash: u32,
    /// The container's own restart policy, if it has one.
    pub(crate) restart_policy: Option<RestartPolicy>,
    /// Exceptions to the restart policy.
    pub(crate) restart_rules: &'a [ContainerRestartRule],
    /// Crash-loop back-off: no start before this time.
    pub(crate) not_before: Option<Instant>,
    /// The last start failed: no retry before this time.
    pub(crate) held_until: Option<Instant>,
    /// Probe state of the running instance.
    pub(crate) health: ProbedHealth,
    /// The running instance must be resized.
    pub(crate) resize: Option<Resize>,
}

/// Probe state of a running container; without probes it is healthy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbedHealth {
    /// The startup probe has not passed yet.
    Starting,
    Started,
    /// It failed this probe and must be killed.
    Failed(ProbeKind),
}

/// How the resources of a running container change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resize {
    /// Through the runtime, without a restart. Containers that shrink come first.
    InPlace { shrinks: bool },
    /// Its resize policy requires a restart.
    Restart,
}

/// An action; each is one or two calls to the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Stop all containers and sandboxes of the pod, before a new sandbox or because the pod is done.
    KillPod,
    CreateSandbox {
        attempt: u32,
    },
    /// Stop one container; `restarts`: it will be started again.
    KillContainer {
        id: String,
        container: ContainerIndex,
        why: KillReason,
        restarts: bool,
    },
    /// Stop these containers concurrently, sidecars last, because they will be started again.
    KillContainers {
        ids: Vec<String>,
        why: KillReason,
    },
    /// Remove one exited container, so that it starts as if for the first time.
    RemoveContainer {
        id: String,
    },
    /// Set the pod's own resources. Its cgroup is updated around every resize.
    ResizePod,
    /// Update the resources of a running container.
    ResizeContainer {
        id: String,
        container: ContainerIndex,
        shrinks: bool,
    },
    /// Pull the image if needed, create the container and start it.
    StartContainer {
        container: ContainerIndex,
        restart_count: u32,
    },
    /// Start a container that was created before this process knew it.
    StartCreated {
        id: String,
        container: ContainerIndex,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KillReason {
    DefinitionChanged,
    FailedProbe(ProbeKind),
    /// A user requested a restart.
    Requested,
    /// Another container's exit restarts all containers.
    RestartsAll,
    /// Its resize policy requires a restart.
    Resized,
    /// The runtime reports an unknown state.
    StateUnknown,
}

/// Actions to execute now, and what waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) actions: Vec<Action>,
    /// Containers in crash-loop back-off, and until when.
    pub(crate) backing_off: Vec<(ContainerIndex, Instant)>,
    /// When the next failed start is retried.
    pub(crate) held_until: Option<Instant>,
    /// All containers have exited and none will restart.
    pub(crate) completed: bool,
    /// A resize has failed and is left out until its retry. The pod's cgroup keeps the room for both its old and its new
    /// resources.
    pub(crate) resize_waits: bool,
    /// Garbage to collect when there are no actions.
    pub(crate) garbage: Vec<Garbage>,
}

/// Computes the plan; with no action, nothing waiting and not completed, the pod is in order.
pub(crate) fn compute_pod_actions(pod: &ActionInputs<'_>) -> Plan {
    let mut plan = Plan::default();
    match usable_sandbox(pod) {
        Some(sandbox) => {
            if plan_restart_of_all(pod, sandbox, &mut plan) {
                return plan;
            }
            if plan_init_containers(pod, sandbox, &mut plan) {
                plan_main_containers(pod, sandbox, &mut plan);
            }
            if !plan.completed {
                plan_ephemeral_containers(pod, sandbox, &mut plan);
                if pod.resizes_pod {
                    plan.actions.push(Action::ResizePod);
                }
            }
        }
        None => plan_new_sandbox(pod, &mut plan),
    }
    // Decreases come before increases, so that freed resources are available; other actions keep their order.
    plan.actions.sort_once_by_key(|action| match action {
        Action::ResizeContainer { shrinks: true, .. } => 0,
        Action::ResizeContainer { shrinks: false, .. } => 1,
        _ => 2,
    });
    plan.garbage = garbage(pod.observed);
    plan
}

/// The sandbox that can be used; `None` means that a new one is needed.
///
/// As upstream's `PodSandboxChanged`: the only ready sandbox, the newest, with the spec's network mode, and with an IP
/// unless the pod uses the host network. As in `SyncPod`, a sandbox outside of the pod's cgroup is replaced as well.
fn usable_sandbox<'a>(pod: &ActionInputs<'a>) -> Option<&'a ObservedSandbox> {
    let newest = pod.observed.newest_sandbox()?;
    let ready = pod.observed.sandboxes.iter().filter(|sandbox| sandbox.state == SandboxState::Ready).count();
    let usable = ready == 1
        && newest.state == SandboxState::Ready
        && newest.host_network == pod.host_network
        && (pod.host_network || newest.has_address)
        && pod.groupless != Some(newest.id.as_str());
    usable.then_some(newest)
}

fn plan_new_sandbox(pod: &ActionInputs<'_>, plan: &mut Plan) {
    let attempt = pod.observed.sandboxes.iter().map(|sandbox| sandbox.attempt.saturating_add(1)).max().unwrap_or(0);
    // A pod with restartPolicy Never is done once any of its containers was started, except for containers with their
    // own restart policy. The rest is stopped.
    let mut started = pod.observed.containers.iter().filter(|container| container.state != ContainerState::Created);
    let has_run = pod.restart_policy == RestartPolicy::Never && attempt != 0 && started.next().is_some();
    let starts: Vec<usize> = (0..pod.main.len())
        .filter(|index| pod.main.get(*index).is_some_and(|wanted| starts_in_new_sandbox(pod, wanted, has_run)))
        .collect();
    if starts.is_empty() {
        *plan = Plan::completed();
        return;
    }
    if !pod.observed.is_gone() && (attempt != 0 || !pod.observed.is_stopped()) {
        plan.actions.push(Action::KillPod);
    }
    plan.actions.push(Action::CreateSandbox { attempt });
    if pod.init.is_empty() {
        for index in starts {
            plan_start(pod, ContainerIndex::Main(index), plan);
        }
    } else {
        plan_start(pod, ContainerIndex::Init(0), plan);
    }
}

/// Plans the next step of the initialization; true when it is complete and main containers may start.
fn plan_init_containers(pod: &ActionInputs<'_>, sandbox: &ObservedSandbox, plan: &mut Plan) -> bool {
    // Init containers may have been removed; a main or later init container in this sandbox proves their completion.
    let initialized = pod.main.iter().any(|wanted| in_sandbox(pod, wanted, sandbox).is_some());
    let reached = pod.init.iter().rposition(|wanted| in_sandbox(pod, wanted, sandbox).is_some()).unwrap_or(0);
    for (number, wanted) in pod.init.iter().enumerate() {
        let index = ContainerIndex::Init(number);
        let sidecar = wanted.restart_policy == Some(RestartPolicy::Always);
        let has_gone_on = initialized || number < reached;
        if has_gone_on && !sidecar {
            continue;
        }
        match in_sandbox(pod, wanted, sandbox).map(|container| (&container.state, container)) {
            None => plan_start(pod, index, plan),
            Some((ContainerState::Running { .. }, container)) if pod.to_restart.contains(&container.id) => {
                plan_restart_on_request(container, index, plan);
            }
            // As upstream, only a sidecar is replaced when its definition has changed.
            Some((ContainerState::Running { .. }, container)) if container.hash == Some(wanted.hash) || !sidecar => {
                match wanted.health {
                    ProbedHealth::Starting => plan_resize(container, wanted, index, plan),
                    ProbedHealth::Started if sidecar => {
                        plan_resize(container, wanted, index, plan);
                        continue;
                    }
                    ProbedHealth::Started => {
                        plan_resize(container, wanted, index, plan);
                        return false;
                    }
                    ProbedHealth::Failed(probe) => {
                        plan_end_of_unhealthy(pod, container, index, probe, plan);
                        // A sidecar that has started does not block the following containers.
                        if probe == ProbeKind::Liveness {
                            continue;
                        }
                    }
                }
            }
            Some((ContainerState::Running { .. }, container)) => {
                plan_replacement(container, index, KillReason::DefinitionChanged, plan);
            }
            // It may have failed, and so the pod.
            Some((ContainerState::Unknown, _))
                if wanted.restart_policy.unwrap_or(pod.restart_policy) == RestartPolicy::Never =>
            {
                *plan = Plan::completed();
                return false;
            }
            Some((ContainerState::Unknown, container)) => {
                plan_replacement(container, index, KillReason::StateUnknown, plan);
            }
            Some((ContainerState::Created, container)) => plan_created(pod, container, wanted, index, plan),
            Some((ContainerState::Exited(exit), _)) => {
                if exit.code == 0 && !sidecar {
                    continue;
                }
                if wanted.after_exit(pod.restart_policy, exit.code) == AfterExit::Stay {
                    *plan = Plan::completed();
                    return false;
                }
                plan_start(pod, index, plan);
            }
        }
        if !has_gone_on {
            return false;
        }
    }
    true
}

fn plan_main_containers(pod: &ActionInputs<'_>, sandbox: &ObservedSandbox, plan: &mut Plan) {
    let (actions, waits, held_until) = (plan.actions.len(), plan.backing_off.len(), plan.held_until.take());
    let mut kept = false;
    for (number, wanted) in pod.main.iter().enumerate() {
        let index = ContainerIndex::Main(number);
        // Includes older sandboxes: a container that succeeded there has succeeded.
        let Some(container) = pod.observed.container(wanted.name) else {
            plan_start(pod, index, plan);
            continue;
        };
        match &container.state {
            ContainerState::Running { .. } if pod.to_restart.contains(&container.id) => {
                plan_restart_on_request(container, index, plan);
            }
            ContainerState::Running { .. } if container.hash != Some(wanted.hash) => {
                plan_replacement(container, index, KillReason::DefinitionChanged, plan);
            }
            ContainerState::Running { .. } => match wanted.health {
                ProbedHealth::Failed(probe) => plan_end_of_unhealthy(pod, container, index, probe, plan),
                ProbedHealth::Starting | ProbedHealth::Started => {
                    plan_resize(container, wanted, index, plan);
                    kept = true;
                }
            },
            ContainerState::Unknown => plan_replacement(container, index, KillReason::StateUnknown, plan),
            ContainerState::Created if container.sandbox_id == sandbox.id => {
                plan_created(pod, container, wanted, index, plan);
            }
            ContainerState::Created => plan_start(pod, index, plan),
            ContainerState::Exited(exit) => {
                if wanted.after_exit(pod.restart_policy, exit.code) != AfterExit::Stay {
                    plan_start(pod, index, plan);
                }
            }
        }
    }
    kept |= plan.actions.len() != actions || plan.backing_off.len() != waits || plan.held_until.is_some();
    if kept {
        plan.held_until = plan.held_until.into_iter().chain(held_until).min();
    } else {
        *plan = Plan::completed();
    }
}

/// Plans the restart of all containers after an exit with a RestartAllContainers rule: kills running ones, then
/// removes all, the exited one last so that an interrupted restart continues. True if there is such an exit.
fn plan_restart_of_all(pod: &ActionInputs<'_>, sandbox: &ObservedSandbox, plan: &mut Plan) -> bool {
    let indices =
        (0..pod.main.len()).map(ContainerIndex::Main).chain((0..pod.init.len()).rev().map(ContainerIndex::Init));
    let instances: Vec<(ContainerIndex, &ObservedContainer)> =
        indices.filter_map(|index| Some((index, in_sandbox(pod, pod.wanted(index)?, sandbox)?))).collect();
    let asks = |(index, container): &&(ContainerIndex, &ObservedContainer)| {
        let after = |code| pod.wanted(*index).map(|wanted| wanted.after_exit(pod.restart_policy, code));
        container.exit().is_some_and(|exit| after(exit.code) == Some(AfterExit::RestartAll))
    };
    let Some((_, asking)) = instances.iter().find(asks) else { return false };
    let may_run = |container: &&ObservedContainer| {
        matches!(container.state, ContainerState::Running { .. } | ContainerState::Unknown)
    };
    let victims = instances.iter().map(|(_, container)| *container).filter(may_run);
    let ids: Vec<String> = victims.map(|container| container.id.clone()).collect();
    if !ids.is_empty() {
        plan.actions.push(Action::KillContainers { ids, why: KillReason::RestartsAll });
    }
    let names: SortedSet<&str> = instances.iter().map(|(_, other)| other.name.as_str()).collect();
    let others = pod.observed.containers.iter().filter(|one| names.contains(&*one.name) && one.id != asking.id);
    let remove = |container: &ObservedContainer| Action::RemoveContainer { id: container.id.clone() };
    plan.actions.extend(others.map(remove));
    plan.actions.push(remove(asking));
    true
}

/// Ephemeral containers start once, before init containers, which may fail for ever, and do not affect completion.
fn plan_ephemeral_containers(pod: &ActionInputs<'_>, sandbox: &ObservedSandbox, plan: &mut Plan) {
    let mut container_plan = Plan::default();
    for (number, wanted) in pod.ephemeral.iter().enumerate() {
        let index = ContainerIndex::Ephemeral(number);
        match pod.observed.container(wanted.name) {
            None => plan_start(pod, index, &mut container_plan),
            Some(container) if container.state == ContainerState::Created && container.sandbox_id == sandbox.id => {
                plan_created(pod, container, wanted, index, &mut container_plan);
            }
            Some(_) => {}
        }
    }
    container_plan.actions.append(&mut plan.actions);
    plan.actions = container_plan.actions;
    plan.held_until = plan.held_until.into_iter().chain(container_plan.held_until).min();
}

fn plan_start(pod: &ActionInputs<'_>, index: ContainerIndex, plan: &mut Plan) {
    let Some(wanted) = pod.wanted(index) else { return };
    if plan.holds(wanted, pod.now) {
        return;
    }
    match wanted.not_before {
        Some(time) if time > pod.now => plan.backing_off.push((index, time)),
        Some(_) | None => {
            let previous = pod.observed.container(wanted.name);
            let restart_count = previous.map_or(0, |container| container.restart_count.saturating_add(1));
            plan.actions.push(Action::StartContainer { container: index, restart_count });
        }
    }
}

fn plan_replacement(old: &ObservedContainer, index: ContainerIndex, why: KillReason, plan: &mut Plan) {
    plan.actions.push(Action::KillContainer { id: old.id.clone(), container: index, why, restarts: true });
    let restart_count = old.restart_count.saturating_add(1);
    // A replaced container did not crash, so it has no back-off.
    plan.actions.push(Action::StartContainer { container: index, restart_count });
}

/// All are stopped before the first one starts. They have no back-off, and restart whatever their policy.
fn plan_restart_on_request(old: &ObservedContainer, index: ContainerIndex, plan: &mut Plan) {
    match plan.actions.first_mut() {
        Some(Action::KillContainers { ids, .. }) => ids.push(old.id.clone()),
        _ => {
            let (ids, why) = (vec![old.id.clone()], KillReason::Requested);
            plan.actions.insert(0, Action::KillContainers { ids, why });
        }
    }
    plan.actions.push(Action::StartContainer { container: index, restart_count: old.restart_count.saturating_add(1) });
}

fn plan_resize(container: &ObservedContainer, wanted: &WantedContainer<'_>, index: ContainerIndex, plan: &mut Plan) {
    match wanted.resize {
        None => {}
        Some(Resize::InPlace { shrinks }) => {
            plan.actions.push(Action::ResizeContainer { id: container.id.clone(), container: index, shrinks });
        }
        Some(Resize::Restart) => plan_replacement(container, index, KillReason::Resized, plan),
    }
}

/// Kills a container that failed a probe and restarts it unless its policy is Never. The restart may be delayed by
/// the back-off of the previous run.
fn plan_end_of_unhealthy(
    pod: &ActionInputs<'_>,
    container: &ObservedContainer,
    index: ContainerIndex,
    probe: ProbeKind,
    plan: &mut Plan,
) {
    let own_policy = pod.wanted(index).and_then(|wanted| wanted.restart_policy);
    let restarts = own_policy.unwrap_or(pod.restart_policy) != RestartPolicy::Never;
    let why = KillReason::FailedProbe(probe);
    plan.actions.push(Action::KillContainer { id: container.id.clone(), container: index, why, restarts });
    if restarts {
        plan_start(pod, index, plan);
    }
}

fn plan_created(
    pod: &ActionInputs<'_>,
    container: &ObservedContainer,
    wanted: &WantedContainer<'_>,
    index: ContainerIndex,
    plan: &mut Plan,
) {
    if plan.holds(wanted, pod.now) {
        return;
    }
    if container.hash == Some(wanted.hash) {
        plan.actions.push(Action::StartCreated { id: container.id.clone(), container: index });
    } else {
        plan_replacement(container, index, KillReason::DefinitionChanged, plan);
    }
}

fn starts_in_new_sandbox(pod: &ActionInputs<'_>, wanted: &WantedContainer<'_>, pod_has_run: bool) -> bool {
    if pod_has_run && wanted.restart_policy.is_none() {
        return false;
    }
    let Some(newest) = pod.observed.container(wanted.name) else { return true };
    match newest.exit() {
        Some(exit) => wanted.after_exit(pod.restart_policy, exit.code) != AfterExit::Stay,
        // Its own policy holds although its exit is not known: it ran, and ends with the former sandbox.
        None => newest.state == ContainerState::Created || wanted.restart_policy != Some(RestartPolicy::Never),
    }
}

fn in_sandbox<'a>(
    pod: &ActionInputs<'a>,
    wanted: &WantedContainer<'_>,
    sandbox: &ObservedSandbox,
) -> Option<&'a ObservedContainer> {
    pod.observed.container(wanted.name).filter(|container| container.sandbox_id == sandbox.id)
}

impl Plan {
    /// The pod is completed: its sidecars are stopped, none is started, and none in back-off delays the end.
    fn completed() -> Self {
        Self { completed: true, ..Self::default() }
    }

    /// Whether a sandbox or container is recreated although no container exited by itself.
    pub(crate) fn recreates(&self) -> bool {
        self.actions.iter().any(|action| match action {
            Action::CreateSandbox { .. } | Action::KillContainer { .. } | Action::RemoveContainer { .. } => true,
            Action::KillPod
            | Action::KillContainers { .. }
            | Action::ResizePod
            | Action::ResizeContainer { .. }
            | Action::StartContainer { .. }
            | Action::StartCreated { .. } => false,
        })
    }

    /// The running instances that the plan replaces: it kills them and starts their containers.
    pub(crate) fn replaced(&self) -> Vec<String> {
        let started = |action: &Action| match action {
            Action::StartContainer { container: index, .. } => Some(*index),
            _ => None,
        };
        let starts: SortedSet<ContainerIndex> = self.actions.iter().filter_map(started).collect();
        let ids = self.actions.iter().flat_map(|action| match action {
            Action::KillContainer { id, container: index, .. } if starts.contains(index) => std::slice::from_ref(id),
            Action::KillContainers { ids, why: KillReason::Requested } => ids,
            _ => &[],
        });
        ids.cloned().collect()
    }

    pub(crate) fn starts(&self) -> bool {
        self.creates_sandbox() || self.actions.iter().any(|action| matches!(action, Action::StartContainer { .. }))
    }

    pub(crate) fn creates_sandbox(&self) -> bool {
        self.actions.iter().any(|action| matches!(action, Action::CreateSandbox { .. }))
    }

    /// True, and recorded, if the container must not be retried yet.
    fn holds(&mut self, wanted: &WantedContainer<'_>, now: Instant) -> bool {
        let Some(time) = wanted.held_until.filter(|moment| *moment > now) else { return false };
        self.held_until = Some(self.held_until.map_or(time, |other| other.min(time)));
        true
    }
}

impl WantedContainer<'_> {
    fn after_exit(&self, pod: RestartPolicy, code: i32) -> AfterExit {
        AfterExit::of(self.restart_policy, self.restart_rules, pod, code)
    }
}

impl<'a> ActionInputs<'a> {
    pub(crate) fn wanted(&self, container: ContainerIndex) -> Option<&WantedContainer<'a>> {
        match container {
            ContainerIndex::Init(index) => self.init.get(index),
            ContainerIndex::Main(index) => self.main.get(index),
            ContainerIndex::Ephemeral(index) => self.ephemeral.get(index),
        }
    }
}

#[cfg(test)]
mod tests;
