//! The steps that bring a pod closer to its spec. Pure.

use std::time::Instant;

use crate::kubelet::kuberuntime::container_gc::{Garbage, garbage};
use crate::state::pods::{ContainerState, ObservedContainer, ObservedPod, ObservedSandbox, ProbeKind, SandboxState};
use crate::types::api::{AfterExit, ContainerRestartRule, RestartPolicy};

/// What the decision needs to know of a pod.
#[derive(Debug)]
pub(crate) struct Situation<'a> {
    pub(crate) restart_policy: RestartPolicy,
    pub(crate) host_network: bool,
    pub(crate) init: Vec<Wanted<'a>>,
    pub(crate) main: Vec<Wanted<'a>>,
    pub(crate) ephemeral: Vec<Wanted<'a>>,
    pub(crate) observed: &'a ObservedPod,
    /// The sandbox that runs outside of the pod's control group, if one does.
    pub(crate) groupless: Option<&'a str>,
    /// Instances that run and that somebody wants to begin anew, by the runtime's ids.
    pub(crate) asked: &'a [String],
    pub(crate) now: Instant,
}

/// A container of the spec.
#[derive(Clone, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) name: &'a str,
    /// Of name and image; another hash on the running instance means that it must be replaced.
    pub(crate) hash: u32,
    /// The container's own policy, where it has one.
    pub(crate) restart_policy: Option<RestartPolicy>,
    /// The exceptions to it.
    pub(crate) restart_rules: &'a [ContainerRestartRule],
    /// Crash-loop back-off: no start before this moment.
    pub(crate) not_before: Option<Instant>,
    /// The last try to start it failed: no other try before this moment.
    pub(crate) held_until: Option<Instant>,
    /// What its probes say of the instance that runs.
    pub(crate) health: Health,
    /// The instance that runs has other resources than it should.
    pub(crate) resize: Option<Resize>,
}

/// What probes have found of a running container; one without probes has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// Its startup probe has not passed yet.
    Starting,
    Started,
    /// It has failed this probe and must be ended.
    Failed(ProbeKind),
}

/// How the resources of a running container change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resize {
    /// Through the runtime, without a restart. Containers that shrink come first.
    InPlace { shrinks: bool },
    /// Its resize policy asks for a restart.
    Restart,
}

/// A container by its place in the spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Init(usize),
    Main(usize),
    Ephemeral(usize),
}

/// One step; each is one or two calls to the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Stop every container and every sandbox of the pod: a new sandbox follows, or the pod is over.
    KillPod,
    /// Create and start a sandbox.
    CreateSandbox { attempt: u32 },
    /// Stop one container; with `restarts` its place is to be filled again.
    KillContainer { id: String, place: Place, why: KillReason, restarts: bool },
    /// Stop these containers beside each other, sidecars after those that they serve: somebody wants them to begin anew.
    KillContainers { ids: Vec<String> },
    /// Forget one container that has ended: its place is filled as if it had never been.
    RemoveContainer { id: String },
    /// Have the runtime change what a container that runs may use.
    ResizeContainer { id: String, place: Place, shrinks: bool },
    /// Pull the image if it must be, create the container, start it.
    StartContainer { place: Place, restart_count: u32 },
    /// Start a container that was created before this process knew it.
    StartCreated { id: String, place: Place },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KillReason {
    DefinitionChanged,
    FailedProbe(ProbeKind),
    /// Another container has ended in a way that has all of them begin anew.
    RestartsAll,
    /// It takes other resources at its start only.
    Resized,
    /// The runtime does not know what became of it.
    StateUnknown,
}

/// What to do now, and what waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) actions: Vec<Action>,
    /// Containers that wait in crash-loop back-off, and until when.
    pub(crate) backing_off: Vec<(Place, Instant)>,
    /// When the next container that could not be started is tried again.
    pub(crate) held_until: Option<Instant>,
    /// All containers have ended and none will be started again.
    pub(crate) completed: bool,
    /// What the pod needs no longer; it goes when nothing else is to be done.
    pub(crate) garbage: Vec<Garbage>,
}

/// The plan for a pod; no action, nothing waiting and not completed means that all is as it should be.
pub(crate) fn compute_pod_actions(pod: &Situation<'_>) -> Plan {
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
            }
        }
        None => plan_new_sandbox(pod, &mut plan),
    }
    // What one container gives back another one of the pod may be about to get; the rest is as it was put together.
    plan.actions.sort_by_key(|action| match action {
        Action::ResizeContainer { shrinks: true, .. } => 0,
        Action::ResizeContainer { shrinks: false, .. } => 1,
        _ => 2,
    });
    plan.garbage = garbage(pod.observed);
    plan
}

/// The sandbox that the pod can go on in; `None` asks for a new one.
///
/// As the upstream kubelet decides (`PodSandboxChanged`): exactly one ready sandbox, it is the newest, with the network
/// mode of the spec, and with an address unless the node's network is used. What the pod's control group does not hold is
/// begun anew as well (`SyncPod`).
fn usable_sandbox<'a>(pod: &Situation<'a>) -> Option<&'a ObservedSandbox> {
    let newest = pod.observed.newest_sandbox()?;
    let ready = pod.observed.sandboxes.iter().filter(|sandbox| sandbox.state == SandboxState::Ready).count();
    let usable = ready == 1
        && newest.state == SandboxState::Ready
        && newest.host_network == pod.host_network
        && (pod.host_network || !newest.ips.is_empty())
        && pod.groupless != Some(newest.id.as_str());
    usable.then_some(newest)
}

fn plan_new_sandbox(pod: &Situation<'_>, plan: &mut Plan) {
    let attempt = pod.observed.sandboxes.iter().map(|sandbox| sandbox.attempt.saturating_add(1)).max().unwrap_or(0);
    // A pod that is never restarted has had its run once a container of it was started, but for containers with a restart
    // policy of their own. What is left of it is stopped.
    let mut started = pod.observed.containers.iter().filter(|container| container.state != ContainerState::Created);
    let has_run = pod.restart_policy == RestartPolicy::Never && attempt != 0 && started.next().is_some();
    let starts: Vec<usize> = (0..pod.main.len())
        .filter(|index| pod.main.get(*index).is_some_and(|wanted| starts_in_new_sandbox(pod, wanted, has_run)))
        .collect();
    if starts.is_empty() {
        plan.completed = true;
        return;
    }
    if !pod.observed.is_gone() && (attempt != 0 || !pod.observed.is_stopped()) {
        plan.actions.push(Action::KillPod);
    }
    plan.actions.push(Action::CreateSandbox { attempt });
    if pod.init.is_empty() {
        for index in starts {
            plan_start(pod, Place::Main(index), plan);
        }
    } else {
        plan_start(pod, Place::Init(0), plan);
    }
}

/// Plans the next step of the initialisation; true when it is over and the main containers may run.
fn plan_init_containers(pod: &Situation<'_>, sandbox: &ObservedSandbox, plan: &mut Plan) -> bool {
    // Init containers may have been cleaned away since; a main container in this sandbox proves that they ran, and a
    // later init container that those before it did.
    let initialized = pod.main.iter().any(|wanted| in_sandbox(pod, wanted, sandbox).is_some());
    let reached = pod.init.iter().rposition(|wanted| in_sandbox(pod, wanted, sandbox).is_some()).unwrap_or(0);
    for (index, wanted) in pod.init.iter().enumerate() {
        let place = Place::Init(index);
        let sidecar = wanted.restart_policy == Some(RestartPolicy::Always);
        let has_gone_on = initialized || index < reached;
        if has_gone_on && !sidecar {
            continue;
        }
        match in_sandbox(pod, wanted, sandbox).map(|container| (&container.state, container)) {
            None => plan_start(pod, place, plan),
            Some((ContainerState::Running { .. }, container)) if pod.asked.contains(&container.id) => {
                plan_restart_on_request(container, place, plan);
            }
            Some((ContainerState::Running { .. }, container)) if container.hash == Some(wanted.hash) => {
                match wanted.health {
                    Health::Starting => plan_resize(pod, container, wanted, place, plan),
                    Health::Started if sidecar => {
                        plan_resize(pod, container, wanted, place, plan);
                        continue;
                    }
                    Health::Started => return false,
                    Health::Failed(probe) => {
                        plan_end_of_unhealthy(pod, container, place, probe, plan);
                        // Once it has started, what comes next does not wait for it any more.
                        if probe == ProbeKind::Liveness {
                            continue;
                        }
                    }
                }
            }
            Some((ContainerState::Running { .. }, container)) => {
                plan_replacement(pod, container, place, KillReason::DefinitionChanged, plan);
            }
            Some((ContainerState::Unknown, container)) => {
                plan_replacement(pod, container, place, KillReason::StateUnknown, plan);
            }
            Some((ContainerState::Created, container)) => plan_created(pod, container, wanted, place, plan),
            Some((ContainerState::Exited(exit), _)) => {
                if exit.code == 0 && !sidecar {
                    continue;
                }
                if wanted.after_exit(pod.restart_policy, exit.code) == AfterExit::Stay {
                    plan.completed = true;
                    return false;
                }
                plan_start(pod, place, plan);
            }
        }
        if !has_gone_on {
            return false;
        }
    }
    true
}

fn plan_main_containers(pod: &Situation<'_>, sandbox: &ObservedSandbox, plan: &mut Plan) {
    // Sidecars that are started again count as well.
    let mut kept = plan.waits_or_acts();
    for (index, wanted) in pod.main.iter().enumerate() {
        let place = Place::Main(index);
        // Not only of this sandbox: one that succeeded in an older sandbox has succeeded.
        let Some(container) = pod.observed.container(wanted.name) else {
            plan_start(pod, place, plan);
            continue;
        };
        match &container.state {
            ContainerState::Running { .. } if pod.asked.contains(&container.id) => {
                plan_restart_on_request(container, place, plan);
            }
            ContainerState::Running { .. } if container.hash != Some(wanted.hash) => {
                plan_replacement(pod, container, place, KillReason::DefinitionChanged, plan);
            }
            ContainerState::Running { .. } => match wanted.health {
                Health::Failed(probe) => plan_end_of_unhealthy(pod, container, place, probe, plan),
                Health::Starting | Health::Started => {
                    plan_resize(pod, container, wanted, place, plan);
                    kept = true;
                }
            },
            ContainerState::Unknown => plan_replacement(pod, container, place, KillReason::StateUnknown, plan),
            ContainerState::Created if container.sandbox_id == sandbox.id => {
                plan_created(pod, container, wanted, place, plan);
            }
            ContainerState::Created => plan_start(pod, place, plan),
            ContainerState::Exited(exit) => {
                if wanted.after_exit(pod.restart_policy, exit.code) != AfterExit::Stay {
                    plan_start(pod, place, plan);
                }
            }
        }
    }
    plan.completed = !kept && !plan.waits_or_acts();
}

/// A container has ended that has everything begin anew: what runs is ended, and then all is forgotten, the one that has
/// asked for it last. Until then it is seen, whatever comes between. True if there is one.
fn plan_restart_of_all(pod: &Situation<'_>, sandbox: &ObservedSandbox, plan: &mut Plan) -> bool {
    let places = (0..pod.main.len()).map(Place::Main).chain((0..pod.init.len()).rev().map(Place::Init));
    let instances: Vec<(Place, &ObservedContainer)> =
        places.filter_map(|place| Some((place, in_sandbox(pod, pod.wanted(place)?, sandbox)?))).collect();
    let asks = |(place, container): &&(Place, &ObservedContainer)| {
        let after = |code| pod.wanted(*place).map(|wanted| wanted.after_exit(pod.restart_policy, code));
        container.exit().is_some_and(|exit| after(exit.code) == Some(AfterExit::RestartAll))
    };
    let Some((_, asking)) = instances.iter().find(asks) else { return false };
    for (place, container) in instances.iter().filter(|(_, container)| container.exit().is_none()) {
        if container.state != ContainerState::Created {
            let (id, why) = (container.id.clone(), KillReason::RestartsAll);
            plan.actions.push(Action::KillContainer { id, place: *place, why, restarts: true });
        }
    }
    let is_named = |container: &&ObservedContainer| instances.iter().any(|(_, other)| other.name == container.name);
    let all = pod.observed.containers.iter().filter(is_named).filter(|container| container.id != asking.id);
    let remove = |container: &ObservedContainer| Action::RemoveContainer { id: container.id.clone() };
    plan.actions.extend(all.map(remove));
    plan.actions.push(remove(asking));
    true
}

/// Each is started once, also before the others have begun, and the pod waits for none of them.
fn plan_ephemeral_containers(pod: &Situation<'_>, sandbox: &ObservedSandbox, plan: &mut Plan) {
    let mut own = Plan::default();
    for (index, wanted) in pod.ephemeral.iter().enumerate() {
        let place = Place::Ephemeral(index);
        match pod.observed.container(wanted.name) {
            None => plan_start(pod, place, &mut own),
            Some(container) if container.state == ContainerState::Created && container.sandbox_id == sandbox.id => {
                plan_created(pod, container, wanted, place, &mut own);
            }
            Some(_) => {}
        }
    }
    own.actions.append(&mut plan.actions);
    plan.actions = own.actions;
    plan.held_until = plan.held_until.into_iter().chain(own.held_until).min();
}

fn plan_start(pod: &Situation<'_>, place: Place, plan: &mut Plan) {
    let Some(wanted) = pod.wanted(place) else { return };
    if plan.holds(wanted, pod.now) {
        return;
    }
    match wanted.not_before {
        Some(moment) if moment > pod.now => plan.backing_off.push((place, moment)),
        Some(_) | None => {
            let previous = pod.observed.container(wanted.name);
            let restart_count = previous.map_or(0, |container| container.restart_count.saturating_add(1));
            plan.actions.push(Action::StartContainer { place, restart_count });
        }
    }
}

fn plan_replacement(pod: &Situation<'_>, old: &ObservedContainer, place: Place, why: KillReason, plan: &mut Plan) {
    plan.actions.push(Action::KillContainer { id: old.id.clone(), place, why, restarts: true });
    let restart_count = old.restart_count.saturating_add(1);
    // A replaced container did not crash: it does not wait.
    debug_assert!(pod.wanted(place).is_some());
    plan.actions.push(Action::StartContainer { place, restart_count });
}

/// All of them are ended before the first one starts. It is no crash, and none of them waits, nor does it depend on a
/// policy whether it starts again.
fn plan_restart_on_request(old: &ObservedContainer, place: Place, plan: &mut Plan) {
    match plan.actions.first_mut() {
        Some(Action::KillContainers { ids }) => ids.push(old.id.clone()),
        _ => plan.actions.insert(0, Action::KillContainers { ids: vec![old.id.clone()] }),
    }
    plan.actions.push(Action::StartContainer { place, restart_count: old.restart_count.saturating_add(1) });
}

fn plan_resize(pod: &Situation<'_>, container: &ObservedContainer, wanted: &Wanted<'_>, place: Place, plan: &mut Plan) {
    match wanted.resize {
        None => {}
        Some(Resize::InPlace { shrinks }) => {
            plan.actions.push(Action::ResizeContainer { id: container.id.clone(), place, shrinks });
        }
        Some(Resize::Restart) => plan_replacement(pod, container, place, KillReason::Resized, plan),
    }
}

/// A container that has failed a probe is ended, and started again unless its policy is never to. It is started at once
/// unless the run before it has left a back-off.
fn plan_end_of_unhealthy(
    pod: &Situation<'_>,
    container: &ObservedContainer,
    place: Place,
    probe: ProbeKind,
    plan: &mut Plan,
) {
    let own = pod.wanted(place).and_then(|wanted| wanted.restart_policy);
    let restarts = own.unwrap_or(pod.restart_policy) != RestartPolicy::Never;
    let why = KillReason::FailedProbe(probe);
    plan.actions.push(Action::KillContainer { id: container.id.clone(), place, why, restarts });
    if restarts {
        plan_start(pod, place, plan);
    }
}

fn plan_created(
    pod: &Situation<'_>,
    container: &ObservedContainer,
    wanted: &Wanted<'_>,
    place: Place,
    plan: &mut Plan,
) {
    if plan.holds(wanted, pod.now) {
        return;
    }
    if container.hash == Some(wanted.hash) {
        plan.actions.push(Action::StartCreated { id: container.id.clone(), place });
    } else {
        plan_replacement(pod, container, place, KillReason::DefinitionChanged, plan);
    }
}

fn starts_in_new_sandbox(pod: &Situation<'_>, wanted: &Wanted<'_>, pod_has_run: bool) -> bool {
    if pod_has_run && wanted.restart_policy.is_none() {
        return false;
    }
    let exit = pod.observed.container(wanted.name).and_then(ObservedContainer::exit);
    exit.is_none_or(|exit| wanted.after_exit(pod.restart_policy, exit.code) != AfterExit::Stay)
}

fn in_sandbox<'a>(
    pod: &Situation<'a>,
    wanted: &Wanted<'_>,
    sandbox: &ObservedSandbox,
) -> Option<&'a ObservedContainer> {
    pod.observed.container(wanted.name).filter(|container| container.sandbox_id == sandbox.id)
}

impl Plan {
    /// A container gets other resources than it has.
    pub(crate) fn resizes(&self) -> bool {
        self.actions.iter().any(|action| {
            matches!(action, Action::ResizeContainer { .. } | Action::KillContainer { why: KillReason::Resized, .. })
        })
    }

    /// It makes anew what was made before, sandbox or container, though no container has ended by itself.
    pub(crate) fn remakes(&self) -> bool {
        self.actions.iter().any(|action| match action {
            Action::CreateSandbox { .. } | Action::KillContainer { .. } | Action::RemoveContainer { .. } => true,
            Action::KillPod
            | Action::KillContainers { .. }
            | Action::ResizeContainer { .. }
            | Action::StartContainer { .. }
            | Action::StartCreated { .. } => false,
        })
    }

    /// This instance is ended because somebody wants it to begin anew.
    pub(crate) fn kills_on_request(&self, id: &str) -> bool {
        self.actions
            .iter()
            .any(|action| matches!(action, Action::KillContainers { ids } if ids.iter().any(|one| one == id)))
    }

    pub(crate) fn starts(&self) -> bool {
        self.creates_sandbox() || self.actions.iter().any(|action| matches!(action, Action::StartContainer { .. }))
    }

    pub(crate) fn creates_sandbox(&self) -> bool {
        self.actions.iter().any(|action| matches!(action, Action::CreateSandbox { .. }))
    }

    /// True, and noted, if the container must not be tried again yet.
    fn holds(&mut self, wanted: &Wanted<'_>, now: Instant) -> bool {
        let Some(moment) = wanted.held_until.filter(|moment| *moment > now) else { return false };
        self.held_until = Some(self.held_until.map_or(moment, |other| other.min(moment)));
        true
    }

    fn waits_or_acts(&self) -> bool {
        !self.actions.is_empty() || !self.backing_off.is_empty() || self.held_until.is_some()
    }
}

impl Wanted<'_> {
    fn after_exit(&self, pod: RestartPolicy, code: i32) -> AfterExit {
        AfterExit::of(self.restart_policy, self.restart_rules, pod, code)
    }
}

impl<'a> Situation<'a> {
    pub(crate) fn wanted(&self, place: Place) -> Option<&Wanted<'a>> {
        match place {
            Place::Init(index) => self.init.get(index),
            Place::Main(index) => self.main.get(index),
            Place::Ephemeral(index) => self.ephemeral.get(index),
        }
    }
}

#[cfg(test)]
mod tests;
