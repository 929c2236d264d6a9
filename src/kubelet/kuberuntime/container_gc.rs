//! Garbage of a living pod: dead containers and empty sandboxes. Pure.

use crate::state::pods::{ContainerState, ObservedContainer, ObservedPod, ObservedSandbox, SandboxState};
use crate::types::sorted::SortedSet;

/// Dead instances kept per container, for its last state and previous log (kubelet: `maxPerPodContainerCount`).
const KEPT_DEAD_INSTANCES: usize = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Garbage {
    Container { id: String, name: String, restart_count: u32 },
    Sandbox { id: String },
}

pub(super) fn garbage(pod: &ObservedPod) -> Vec<Garbage> {
    let containers = dead_beyond(pod, KEPT_DEAD_INSTANCES).into_iter().chain(never_started(pod)).map(Garbage::of);
    let sandboxes = old_sandboxes(pod).into_iter().map(|sandbox| Garbage::Sandbox { id: sandbox.id.clone() });
    containers.chain(sandboxes).collect()
}

/// All containers of a terminated pod, if under disk pressure not even last states are kept.
pub(crate) fn all_containers(pod: &ObservedPod) -> Vec<Garbage> {
    dead_beyond(pod, 0).into_iter().chain(never_started(pod)).map(Garbage::of).collect()
}

impl Garbage {
    fn of(container: &ObservedContainer) -> Self {
        let ObservedContainer { id, name, restart_count, .. } = container;
        Self::Container { id: id.clone(), name: name.clone(), restart_count: *restart_count }
    }
}

/// The dead instances except the newest `most` of each container.
fn dead_beyond(pod: &ObservedPod, most: usize) -> Vec<&ObservedContainer> {
    let names: SortedSet<&str> = pod.containers.iter().map(|container| container.name.as_str()).collect();
    let dead = |name| pod.containers.named(name).filter(|container| container.exit().is_some()).skip(most);
    names.into_iter().flat_map(dead).collect()
}

/// Containers created in a sandbox that stopped before they were started.
fn never_started(pod: &ObservedPod) -> impl Iterator<Item = &ObservedContainer> {
    pod.containers.iter().filter(|container| container.state == ContainerState::Created && !pod.may_run(container))
}

/// Sandboxes that are not ready, not the newest, and empty.
fn old_sandboxes(pod: &ObservedPod) -> Vec<&ObservedSandbox> {
    let used = |id: &str| pod.containers.iter().any(|container| container.sandbox_id == id);
    let old = pod.sandboxes.iter().skip(1);
    old.filter(|sandbox| sandbox.state == SandboxState::NotReady && !used(&sandbox.id)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::api::PodUid;

    fn container(id: &str, name: &str, state: ContainerState) -> ObservedContainer {
        ObservedContainer::seen(id, name, "s1", state)
    }

    fn sandbox(id: &str, state: SandboxState) -> ObservedSandbox {
        ObservedSandbox {
            id: id.to_owned(),
            attempt: 0,
            state,
            created_at: 0,
            host_network: false,
            ips: Vec::new(),
            has_address: false,
            pid: None,
        }
    }

    fn pod() -> ObservedPod {
        ObservedPod::new(PodUid::from("u"), "default", "web")
    }

    fn dead_instance(id: &str, name: &str) -> Garbage {
        Garbage::Container { id: id.to_owned(), name: name.to_owned(), restart_count: 0 }
    }

    #[test]
    fn newest_dead_instance_of_each_container_is_kept() {
        let dead = || ContainerState::Exited(Box::default());
        let mut pod = pod();
        *pod.containers = vec![
            container("a3", "a", ContainerState::Running { started_at: 0 }),
            container("a2", "a", dead()),
            container("b1", "b", dead()),
            container("a1", "a", dead()),
            container("a0", "a", dead()),
        ];
        let ids: Vec<&str> = dead_beyond(&pod, 1).into_iter().map(|container| container.id.as_str()).collect();
        assert_eq!(ids, ["a1", "a0"]);
        let all =
            [dead_instance("a2", "a"), dead_instance("a1", "a"), dead_instance("a0", "a"), dead_instance("b1", "b")];
        assert_eq!(all_containers(&pod), all);
    }

    #[test]
    fn old_sandbox_is_removed_once_empty() {
        let mut pod = pod();
        pod.sandboxes = vec![
            sandbox("s2", SandboxState::NotReady),
            sandbox("s1", SandboxState::NotReady),
            sandbox("s0", SandboxState::NotReady),
        ];
        *pod.containers = vec![container("a", "a", ContainerState::Exited(Box::default()))];
        let ids: Vec<&str> = old_sandboxes(&pod).into_iter().map(|sandbox| sandbox.id.as_str()).collect();
        assert_eq!(ids, ["s0"]);
    }

    #[test]
    fn container_created_in_a_stopped_sandbox_is_removed() {
        let mut pod = pod();
        pod.sandboxes = vec![sandbox("s2", SandboxState::Ready), sandbox("s1", SandboxState::NotReady)];
        let mut created = container("new", "a", ContainerState::Created);
        created.sandbox_id = "s2".to_owned();
        *pod.containers = vec![created, container("old", "a", ContainerState::Created)];
        assert_eq!(garbage(&pod), [dead_instance("old", "a")]);
    }
}
