//! Builds the plan of a pod's next sync from its spec and observed state. Pure: the moment is an argument.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use crate::control::pod_workers::restart_backoff::{Key, RestartBackoff};
use crate::kubelet::kuberuntime::{
    self, Action, ActionInputs, KillReason, Plan, ProbedHealth, Resize, WantedContainer,
};
use crate::kubelet::probes::ContainerProbeState;
use crate::state::pods::{ObservedContainer, ObservedPod, StartingContainer};
use crate::types::api::{self, Container, Pod};
use crate::types::sorted::{SortedMap, SortedSet};

/// The inputs of the plan besides the spec.
pub(crate) struct SyncInput<'a> {
    pub(crate) observed: Option<&'a ObservedPod>,
    pub(crate) probed: &'a SortedMap<String, ContainerProbeState>,
    /// When a container that failed to start is retried.
    pub(crate) held_until: &'a dyn Fn(&str) -> Option<Instant>,
    /// How the resources of running containers must change, by their names.
    pub(crate) resizes: &'a SortedMap<&'a str, Resize>,
    /// The pod's own resources must change.
    pub(crate) resizes_pod: bool,
    /// The sandbox that was found outside the pod's cgroup.
    pub(crate) groupless: Option<&'a str>,
    /// The instances to restart on a user's request.
    pub(crate) to_restart: &'a [String],
}

/// The next steps for `pod`.
pub(crate) fn plan<'a>(pod: &'a Pod, inputs: &SyncInput<'a>, backoff: &mut RestartBackoff, now: Instant) -> Plan {
    let SyncInput { observed, probed, held_until, resizes, resizes_pod, groupless, to_restart } = *inputs;
    let nothing;
    let observed = match observed {
        Some(observed) => observed,
        None => {
            nothing = ObservedPod::new(pod.metadata.uid.clone(), &pod.metadata.namespace, &pod.metadata.name);
            &nothing
        }
    };
    let mut wanted = |container: &'a Container| {
        let health = health(probed.get(&container.name));
        let not_before = not_before(pod, container, observed, health, backoff, now);
        WantedContainer {
            name: &container.name,
            hash: api::container_hash(container),
            restart_policy: container.restart_policy,
            restart_rules: &container.restart_policy_rules,
            not_before,
            held_until: held_until(&container.name),
            health,
            resize: resizes.get(container.name.as_str()).copied(),
        }
    };
    let init = pod.spec.init_containers.iter().map(&mut wanted).collect();
    let main = pod.spec.containers.iter().map(&mut wanted).collect();
    let ephemeral = pod.spec.ephemeral_containers.iter().map(&mut wanted).collect();
    let situation = ActionInputs {
        restart_policy: pod.spec.restart_policy,
        host_network: pod.spec.host_network,
        init,
        main,
        ephemeral,
        observed,
        groupless,
        to_restart,
        resizes_pod,
        now,
    };
    kuberuntime::compute_pod_actions(&situation)
}

fn health(probed: Option<&ContainerProbeState>) -> ProbedHealth {
    match probed {
        None => ProbedHealth::Started,
        Some(ContainerProbeState { failed: Some(probe), .. }) => ProbedHealth::Failed(*probe),
        Some(ContainerProbeState { started: false, .. }) => ProbedHealth::Starting,
        Some(_) => ProbedHealth::Started,
    }
}

/// The end of the container's crash-loop back-off, if its newest instance has exited. For an instance that is about to
/// be killed by a probe, the previous run counts, as upstream does.
fn not_before(
    pod: &Pod,
    container: &Container,
    observed: &ObservedPod,
    health: ProbedHealth,
    backoff: &mut RestartBackoff,
    now: Instant,
) -> Option<Instant> {
    let ended = match health {
        ProbedHealth::Failed(_) => newest_exited(observed, &container.name),
        ProbedHealth::Starting | ProbedHealth::Started => {
            observed.container(&container.name).filter(|instance| instance.exit().is_some())
        }
    };
    backoff.not_before(&key(pod, container), &ended?.id, now)
}

fn newest_exited<'a>(observed: &'a ObservedPod, name: &str) -> Option<&'a ObservedContainer> {
    observed.containers.named(name).find(|instance| instance.exit().is_some())
}

/// The containers that the plan starts after an earlier run. Each of these starts, once tried, counts for the back-off.
pub(crate) fn restarts(pod: &Pod, plan: &Plan, observed: &ObservedPod) -> Vec<Key> {
    let starts = plan.actions.iter().filter_map(|action| match action {
        Action::StartContainer { container: container_index, .. } => container_index.of(pod),
        Action::CreateSandbox { .. }
        | Action::KillContainer { .. }
        | Action::KillContainers { .. }
        | Action::KillPod
        | Action::RemoveContainer { .. }
        | Action::ResizePod
        | Action::ResizeContainer { .. }
        | Action::StartCreated { .. } => None,
    });
    // A requested restart is not a crash.
    // A plan kills them first.
    let requested: &[String] = match plan.actions.first() {
        Some(Action::KillContainers { ids, why: KillReason::Requested }) => ids,
        _ => &[],
    };
    let requested: SortedSet<&str> = requested.iter().map(String::as_str).collect();
    let is_requested =
        |name: &str| observed.container(name).is_some_and(|newest| requested.contains(newest.id.as_str()));
    let again =
        starts.filter(|container| newest_exited(observed, &container.name).is_some() && !is_requested(&container.name));
    again.map(|container| key(pod, container)).collect()
}

/// The containers with a `postStart` hook that the plan starts.
pub(crate) fn hooked(pod: &Pod, plan: &Plan, observed: &ObservedPod) -> Vec<StartingContainer> {
    let started = plan.actions.iter().filter_map(|action| match action {
        Action::StartContainer { container: container_index, .. }
        | Action::StartCreated { container: container_index, .. } => container_index.of(pod),
        Action::KillPod
        | Action::CreateSandbox { .. }
        | Action::KillContainer { .. }
        | Action::KillContainers { .. }
        | Action::RemoveContainer { .. }
        | Action::ResizePod
        | Action::ResizeContainer { .. } => None,
    });
    let has_hook = |container: &&Container| container.lifecycle.as_ref().is_some_and(|all| all.post_start.is_some());
    let starting = started.filter(has_hook).map(|container| {
        let former = observed.container(&container.name).filter(|newest| newest.is_running());
        StartingContainer { name: container.name.clone(), former: former.map(|former| former.id.clone()) }
    });
    starting.collect()
}

/// The containers that the plan leaves in crash-loop back-off, with their wait.
pub(crate) fn backing_off(pod: &Pod, plan: &Plan, backoff: &RestartBackoff) -> Vec<(String, Duration)> {
    let containers = plan.backing_off.iter().filter_map(|(container_index, _)| container_index.of(pod));
    containers.filter_map(|container| Some((container.name.clone(), backoff.wait(&key(pod, container))?))).collect()
}

fn key(pod: &Pod, container: &Container) -> Key {
    // Compared within this process only: its values may differ between builds.
    let mut hasher = DefaultHasher::new();
    container.image.hash(&mut hasher);
    // Hashes the canonical text: the same quantity written differently is the same definition.
    api::encode(&container.resources).to_string().hash(&mut hasher);
    Key { pod: pod.metadata.uid.clone(), container: container.name.clone(), definition: hasher.finish() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::kuberuntime::ContainerIndex;
    use crate::state::pods::ContainerState;
    use crate::types::api::{ExecAction, Lifecycle, LifecycleAction, LifecycleHandler};

    #[test]
    fn instance_that_a_start_replaces_waits_for_no_hook() {
        let exec = ExecAction { command: std::iter::once("true").collect() };
        let post_start = Some(LifecycleHandler { action: LifecycleAction::Exec(exec) });
        let lifecycle = Some(Box::new(Lifecycle { post_start, ..Lifecycle::default() }));
        let mut pod = Pod::default();
        pod.spec.containers = vec![Container { name: "main".to_owned(), lifecycle, ..Container::default() }];
        let former = |state, action| {
            let mut observed = ObservedPod::new("u".into(), "default", "web");
            observed.containers.push(ObservedContainer::seen("old", "main", "s", state));
            let plan = Plan { actions: vec![action], ..Plan::default() };
            hooked(&pod, &plan, &observed).into_iter().map(|starting| starting.former).collect::<Vec<_>>()
        };
        let container = ContainerIndex::Main(0);
        let start = Action::StartContainer { container, restart_count: 1 };
        let start_created = Action::StartCreated { id: "old".to_owned(), container };
        assert_eq!(former(ContainerState::Running { started_at: 1 }, start), [Some("old".to_owned())]);
        assert_eq!(former(ContainerState::Created, start_created), [None]);
    }
}
