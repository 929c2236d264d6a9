//! Which processes of a pod must not run, and how they are ended. Pure.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::kubelet::kuberuntime::CancelWatch;
use crate::platform::cgroups::ContainerProcesses;
use crate::state::pods::{ContainerState, ObservedContainer, ObservedPod};
use crate::types::api::{Container, LifecycleAction, Pod};
use crate::types::sorted::{SortedMap, SortedSet};

/// The containers of a pod that must not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope<'a> {
    /// The instances of this container, before another one starts.
    Container(&'a str),
    /// All containers.
    Containers,
    /// All containers and sandboxes.
    Pod,
    /// As `Pod`, before a sandbox is created. The runtime may still create one of which it has not told.
    NewSandbox,
}

/// A pod whose survivors are to end.
#[derive(Clone, Copy)]
pub(super) struct SurvivorSearch<'a> {
    pub(super) pod: Option<&'a Pod>,
    pub(super) observed: &'a ObservedPod,
    pub(super) scope: Scope<'a>,
    /// `None`: that of each container.
    pub(super) grace: Option<Duration>,
    pub(super) cancel: Option<&'a CancelWatch>,
}

/// A container or sandbox with processes that must not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Survivor<'a> {
    pub(super) id: String,
    /// `None` for a sandbox, and for what the runtime does not list.
    pub(super) container: Option<&'a ObservedContainer>,
    pub(super) kind: SurvivorKind,
    pub(super) group: Option<String>,
    /// At least one; that of the container itself comes first.
    pub(super) pids: Vec<u32>,
    /// The grace period that it was created with.
    pub(super) grace: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SurvivorKind {
    Container,
    Sandbox,
    Unlisted,
}

/// A pause process has nothing to save. It exits at SIGTERM.
const SANDBOX_GRACE: Duration = Duration::from_secs(2);
/// Of containers whose pod is not known.
const DEFAULT_SURVIVOR_GRACE: Duration = Duration::from_secs(30);
/// The runtime may take this long to list what it has created, since calls that create have such a deadline.
const UNLISTED_AGE: Duration = Duration::from_secs(300);

/// The survivors among the containers that have processes.
///
/// A container that was created and not started has a process of the runtime, which does not count.
pub(super) fn survivors<'a>(
    processes: Vec<ContainerProcesses>,
    observed: &'a ObservedPod,
    scope: Scope<'_>,
) -> Vec<Survivor<'a>> {
    if processes.is_empty() {
        return Vec::new();
    }
    let listed: SortedMap<&str, &ObservedContainer> =
        observed.containers.iter().map(|container| (container.id.as_str(), container)).collect();
    let survivor = |container_processes: ContainerProcesses| {
        let container = listed.get(container_processes.id.as_str()).copied();
        let is_sandbox = observed.sandboxes.iter().any(|sandbox| sandbox.id == container_processes.id);
        let (kind, grace) = match container {
            Some(container) if !counts(container, scope) => return None,
            Some(container) => (SurvivorKind::Container, container.grace.unwrap_or(DEFAULT_SURVIVOR_GRACE)),
            None if matches!(scope, Scope::Container(_)) => return None,
            None if is_sandbox && scope == Scope::Containers => return None,
            // A sandbox has no work to finish.
            None if is_sandbox => (SurvivorKind::Sandbox, SANDBOX_GRACE),
            None => (SurvivorKind::Unlisted, DEFAULT_SURVIVOR_GRACE),
        };
        let ContainerProcesses { id, group, pids } = container_processes;
        (!pids.is_empty()).then_some(Survivor { id, container, kind, group, pids, grace })
    };
    processes.into_iter().filter_map(survivor).collect()
}

/// The ids of the containers and sandboxes that [`survivors`] may return, as far as the runtime lists them.
pub(super) fn possible_ids(observed: &ObservedPod, scope: Scope<'_>) -> SortedSet<String> {
    let id = |container: &ObservedContainer| counts(container, scope).then(|| container.id.clone());
    let containers = || observed.containers.iter().filter_map(id);
    match scope {
        Scope::Container(name) => observed.containers.named(name).filter_map(id).collect(),
        Scope::Containers => containers().collect(),
        Scope::Pod | Scope::NewSandbox => {
            containers().chain(observed.sandboxes.iter().map(|sandbox| sandbox.id.clone())).collect()
        }
    }
}

fn counts(container: &ObservedContainer, scope: Scope<'_>) -> bool {
    let is_in_scope = match scope {
        Scope::Container(name) => container.name == name,
        Scope::Containers | Scope::Pod | Scope::NewSandbox => true,
    };
    is_in_scope && container.state != ContainerState::Created
}

/// The signal that asks the container to stop. Its image may name another one, which only the runtime knows.
pub(super) fn stop_signal(container: Option<&Container>) -> Signal {
    let lifecycle = container.and_then(|container| container.lifecycle.as_ref());
    let name = lifecycle.and_then(|lifecycle| lifecycle.stop_signal.as_deref());
    name.and_then(|name| name.parse().ok()).unwrap_or(Signal::SIGTERM)
}

/// Whether the container's `preStop` hook needs the runtime, which does not know that the container runs.
pub(super) fn has_impossible_hook(container: &Container) -> bool {
    let hook = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_stop.as_ref());
    hook.is_some_and(|hook| matches!(hook.action, LifecycleAction::Exec(_)))
}

/// The message of the event.
pub(super) fn message(survivor: &Survivor<'_>, spec: Option<&Container>, grace: Duration) -> String {
    let Survivor { id, kind, pids, .. } = survivor;
    let (count, first, name) = (pids.len(), survivor.first_pid(), survivor.name());
    let claim = match kind {
        SurvivorKind::Container => format!("The runtime reported the exit of container {name} ({id})"),
        SurvivorKind::Sandbox => format!("The runtime reported the exit of sandbox {id}"),
        SurvivorKind::Unlisted => format!("The runtime does not list container {id}"),
    };
    let skipped = if spec.is_some_and(has_impossible_hook) { ", without its preStop command" } else { "" };
    let (signal, grace) = (stop_signal(spec), grace.as_secs());
    format!(
        "{claim}, but process {first} of it still runs ({count} in all). Stopping it with {signal}, and SIGKILL after \
         {grace}s{skipped}; nothing replaces it before"
    )
}

impl Survivor<'_> {
    /// The container's name; empty if it is not known.
    pub(super) fn name(&self) -> &str {
        self.container.map_or("", |container| &container.name)
    }

    pub(super) fn first_pid(&self) -> u32 {
        self.pids.first().copied().unwrap_or_default()
    }

    /// Whether the runtime may still be creating it. `age` is that of a process.
    pub(super) fn is_young(&self, age: impl FnOnce(u32) -> Option<Duration>) -> bool {
        self.kind == SurvivorKind::Unlisted && age(self.first_pid()).is_none_or(|age| age < UNLISTED_AGE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::pods::{ObservedSandbox, SandboxState};
    use crate::types::api::{ExecAction, Lifecycle, LifecycleHandler};

    fn observed() -> ObservedPod {
        let mut pod = ObservedPod::new("u".into(), "default", "web");
        let exited = || ContainerState::Exited(Box::default());
        pod.containers = [
            ObservedContainer::seen("c3", "main", "s1", ContainerState::Created),
            ObservedContainer::seen("c2", "main", "s1", ContainerState::Running { started_at: 1 }),
            ObservedContainer::seen("c1", "main", "s1", exited()),
            ObservedContainer::seen("c0", "side", "s1", exited()),
        ]
        .into_iter()
        .collect();
        pod.sandboxes = vec![ObservedSandbox {
            id: "s1".to_owned(),
            attempt: 0,
            state: SandboxState::NotReady,
            created_at: 0,
            host_network: false,
            ips: Vec::new(),
            has_address: false,
            pid: None,
        }];
        pod
    }

    fn processes(id: &str) -> ContainerProcesses {
        ContainerProcesses { id: id.to_owned(), group: None, pids: vec![7, 9] }
    }

    #[track_caller]
    fn check(scope: Scope<'_>, expected: &[&str], listed: &[&str]) {
        let observed = observed();
        let all = ["s1", "c0", "c1", "c2", "c3", "lost"].map(processes).to_vec();
        let found = survivors(all, &observed, scope);
        assert_eq!(found.iter().map(|one| one.id.as_str()).collect::<Vec<_>>(), expected);
        assert_eq!(possible_ids(&observed, scope).iter().collect::<Vec<_>>(), listed);
    }

    #[test]
    fn survivors_are_those_in_scope() {
        // Whatever the observation says of it, an instance must not run when another one starts.
        check(Scope::Container("main"), &["c1", "c2"], &["c1", "c2"]);
        check(Scope::Container("new"), &[], &[]);
        check(Scope::Containers, &["c0", "c1", "c2", "lost"], &["c0", "c1", "c2"]);
        check(Scope::Pod, &["s1", "c0", "c1", "c2", "lost"], &["c0", "c1", "c2", "s1"]);
        check(Scope::NewSandbox, &["s1", "c0", "c1", "c2", "lost"], &["c0", "c1", "c2", "s1"]);
    }

    #[test]
    fn container_without_processes_has_not_survived() {
        let empty = ContainerProcesses { pids: Vec::new(), ..processes("c1") };
        assert_eq!(survivors(vec![empty], &observed(), Scope::Pod), []);
    }

    #[test]
    fn young_container_that_is_not_listed_may_be_in_creation() {
        let observed = observed();
        let of = |id: &str| survivors(vec![processes(id)], &observed, Scope::NewSandbox).remove(0);
        let aged = |seconds| move |_| Some(Duration::from_secs(seconds));
        assert!(of("lost").is_young(aged(10)) && of("lost").is_young(|_| None));
        assert!(!of("lost").is_young(aged(300)) && !of("c1").is_young(aged(10)) && !of("s1").is_young(aged(10)));
    }

    #[test]
    fn message_names_the_process_and_what_is_done() {
        let observed = observed();
        let of = |id: &str| survivors(vec![processes(id)], &observed, Scope::Pod).remove(0);
        let action = LifecycleAction::Exec(ExecAction::default());
        let lifecycle = Lifecycle {
            pre_stop: Some(LifecycleHandler { action }),
            stop_signal: Some("SIGINT".to_owned()),
            ..Lifecycle::default()
        };
        let spec = Container { lifecycle: Some(Box::new(lifecycle)), ..Container::default() };
        assert_eq!(
            message(&of("c1"), Some(&spec), Duration::from_secs(5)),
            "The runtime reported the exit of container main (c1), but process 7 of it still runs (2 in all). Stopping \
             it with SIGINT, and SIGKILL after 5s, without its preStop command; nothing replaces it before"
        );
        assert!(
            message(&of("s1"), None, Duration::ZERO).starts_with("The runtime reported the exit of sandbox s1, but")
        );
        assert!(message(&of("lost"), None, Duration::ZERO).contains("does not list container lost"));
    }
}
