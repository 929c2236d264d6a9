//! A pod's observed state in the runtime. Pure.

use core::net::IpAddr;
use std::cell::OnceCell;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use crate::types::api::PodUid;
use crate::types::sorted::{SortOnce, SortedSet};

/// All sandboxes and containers of one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObservedPod {
    pub(crate) uid: PodUid,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// `kubernetes.io/config.source` from the newest sandbox.
    pub(crate) source: Option<String>,
    /// The pods of one group share a shim of the runtime; from the newest sandbox.
    pub(crate) shim_group: Option<Box<str>>,
    /// Hash of the spec without containers, from the newest sandbox of a static pod.
    pub(crate) spec_hash: Option<u32>,
    /// Newest first.
    pub(crate) sandboxes: Vec<ObservedSandbox>,
    /// Newest first, of all sandboxes.
    pub(crate) containers: ContainerInstances,
}

/// The instances of all containers, newest first. A pod may have thousands, and each is looked up by its name.
#[derive(Clone, Debug, Default)]
pub(crate) struct ContainerInstances {
    instances: Vec<ObservedContainer>,
    /// Positions in the order of names, then newest first. Made by the first lookup after a change.
    by_name: OnceCell<Box<[u32]>>,
}

impl ContainerInstances {
    /// The newest instance of container `name`.
    pub(crate) fn newest(&self, name: &str) -> Option<&ObservedContainer> {
        self.named(name).next()
    }

    /// The instances of container `name`, newest first.
    pub(crate) fn named<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a ObservedContainer> {
        let by_name = self.by_name.get_or_init(|| {
            let mut places: Vec<u32> = (0..u32::try_from(self.instances.len()).unwrap_or(u32::MAX)).collect();
            places.sort_once_by_key(|place| self.name_at(*place));
            places.into()
        });
        let first = by_name.partition_point(|index| self.name_at(*index) < Some(name));
        let places = by_name.get(first..).unwrap_or_default();
        places.iter().map_while(move |place| self.at(*place).filter(|instance| instance.name == name))
    }

    fn at(&self, index: u32) -> Option<&ObservedContainer> {
        self.instances.get(usize::try_from(index).ok()?)
    }

    fn name_at(&self, index: u32) -> Option<&str> {
        self.at(index).map(|instance| instance.name.as_str())
    }
}

impl Deref for ContainerInstances {
    type Target = Vec<ObservedContainer>;

    fn deref(&self) -> &Vec<ObservedContainer> {
        &self.instances
    }
}

impl DerefMut for ContainerInstances {
    fn deref_mut(&mut self) -> &mut Vec<ObservedContainer> {
        self.by_name.take();
        &mut self.instances
    }
}

impl PartialEq for ContainerInstances {
    fn eq(&self, other: &Self) -> bool {
        self.instances == other.instances
    }
}

impl Eq for ContainerInstances {}

impl FromIterator<ObservedContainer> for ContainerInstances {
    fn from_iter<I: IntoIterator<Item = ObservedContainer>>(instances: I) -> Self {
        Self { instances: instances.into_iter().collect(), by_name: OnceCell::new() }
    }
}

impl<'a> IntoIterator for &'a ContainerInstances {
    type Item = &'a ObservedContainer;
    type IntoIter = std::slice::Iter<'a, ObservedContainer>;

    fn into_iter(self) -> Self::IntoIter {
        self.instances.iter()
    }
}

impl<'a> IntoIterator for &'a mut ContainerInstances {
    type Item = &'a mut ObservedContainer;
    type IntoIter = std::slice::IterMut<'a, ObservedContainer>;

    fn into_iter(self) -> Self::IntoIter {
        self.by_name.take();
        self.instances.iter_mut()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObservedSandbox {
    pub(crate) id: String,
    pub(crate) attempt: u32,
    pub(crate) state: SandboxState,
    /// Nanoseconds since 1970, by the runtime's clock.
    pub(crate) created_at: i64,
    /// The sandbox uses the node's network namespace.
    pub(crate) host_network: bool,
    pub(crate) ips: Vec<IpAddr>,
    /// The runtime reports an address, even if it cannot be read, or no network at all. Only a sandbox without an address
    /// is replaced, as upstream: after an unreadable one the next would be no better.
    pub(crate) has_address: bool,
    /// Pid of the sandbox process, if the runtime reports it.
    pub(crate) pid: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SandboxState {
    Ready,
    NotReady,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObservedContainer {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) sandbox_id: String,
    pub(crate) state: ContainerState,
    /// Nanoseconds since 1970, by the runtime's clock.
    pub(crate) created_at: i64,
    /// The image name as reported by the runtime.
    pub(crate) image: String,
    pub(crate) image_id: String,
    /// `io.kubernetes.container.hash`; `None` on a container that was not created by a kubelet.
    pub(crate) hash: Option<u32>,
    /// Hash of the spec that it runs, from the annotations of a static pod's container.
    pub(crate) spec_hash: Option<u32>,
    pub(crate) restart_count: u32,
    /// The pod's termination grace period, from the container's annotations.
    pub(crate) grace: Option<Duration>,
    pub(crate) pid: Option<u32>,
    /// User of the first process, if the runtime reports it.
    pub(crate) user: Option<Box<ObservedUser>>,
    /// Devices that it was created with, from its annotations.
    pub(crate) devices: Option<Box<str>>,
    /// What it had when it was observed, if it runs and the runtime reports it.
    pub(crate) resources: Option<Box<ObservedResources>>,
}

/// Resources of a container as the runtime reports them. For limits, neither 0 nor a negative value is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObservedResources {
    pub(crate) cpu_shares: i64,
    /// Microseconds in each period.
    pub(crate) cpu_quota: i64,
    /// Microseconds.
    pub(crate) cpu_period: i64,
    /// Bytes.
    pub(crate) memory_limit: i64,
}

/// User and group ids of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObservedUser {
    pub(crate) uid: i64,
    pub(crate) gid: i64,
    pub(crate) groups: Vec<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ContainerState {
    Created,
    Running {
        started_at: i64,
    },
    Exited(Box<Exit>),
    /// Reported as unknown by the runtime.
    Unknown,
}

/// A container of which a new instance is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StartingContainer {
    pub(crate) name: String,
    /// Id of the instance that ran before, and may still do.
    pub(crate) former: Option<String>,
}

/// How a container exited. Times are nanoseconds since 1970; 0 is unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Exit {
    pub(crate) code: i32,
    pub(crate) reason: String,
    /// The termination message, or the runtime's message.
    pub(crate) message: String,
    pub(crate) started_at: i64,
    pub(crate) finished_at: i64,
}

impl ObservedPod {
    pub(crate) fn new(uid: PodUid, namespace: &str, name: &str) -> Self {
        Self {
            uid,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            source: None,
            shim_group: None,
            spec_hash: None,
            sandboxes: Vec::new(),
            containers: ContainerInstances::default(),
        }
    }

    /// The newest instance of container `name`.
    pub(crate) fn container(&self, name: &str) -> Option<&ObservedContainer> {
        self.containers.newest(name)
    }

    pub(crate) fn newest_sandbox(&self) -> Option<&ObservedSandbox> {
        self.sandboxes.first()
    }

    pub(crate) fn ready_sandbox(&self) -> Option<&ObservedSandbox> {
        self.sandboxes.iter().find(|sandbox| sandbox.state == SandboxState::Ready)
    }

    /// The runtime has nothing of the pod.
    pub(crate) fn is_gone(&self) -> bool {
        self.sandboxes.is_empty() && self.containers.is_empty()
    }

    /// No sandbox is ready and no container may be running.
    pub(crate) fn is_stopped(&self) -> bool {
        self.ready_sandbox().is_none() && !self.containers.iter().any(|container| self.may_run(container))
    }

    /// False for an exited container, and for a never started one whose sandbox has stopped: it cannot be started any
    /// more. The runtime keeps such a container as created; it cannot be stopped, only removed.
    pub(crate) fn may_run(&self, container: &ObservedContainer) -> bool {
        match container.state {
            ContainerState::Exited(_) => false,
            ContainerState::Created => self
                .sandboxes
                .iter()
                .any(|sandbox| sandbox.id == container.sandbox_id && sandbox.state == SandboxState::Ready),
            ContainerState::Running { .. } | ContainerState::Unknown => true,
        }
    }

    /// A copy in which the new instances of these containers are created but not running.
    pub(crate) fn without_running(&self, starting: &[StartingContainer]) -> Self {
        let mut pod = self.clone();
        let new = starting.iter().filter_map(|starting| {
            let newest = self.container(&starting.name).filter(|newest| newest.is_running())?;
            (starting.former.as_ref() != Some(&newest.id)).then_some(newest.id.as_str())
        });
        let new: SortedSet<&str> = new.collect();
        for container in pod.containers.iter_mut().filter(|container| new.contains(container.id.as_str())) {
            container.state = ContainerState::Created;
        }
        pod
    }

    /// The longest grace period of its containers.
    pub(crate) fn grace(&self) -> Option<Duration> {
        self.containers.iter().filter_map(|container| container.grace).max()
    }
}

impl ObservedContainer {
    /// A container with default values for everything else.
    #[cfg(test)]
    pub(crate) fn seen(id: &str, name: &str, sandbox_id: &str, state: ContainerState) -> Self {
        Self {
            id: id.to_owned(),
            name: name.to_owned(),
            sandbox_id: sandbox_id.to_owned(),
            state,
            created_at: 0,
            image: String::new(),
            image_id: String::new(),
            hash: None,
            spec_hash: None,
            restart_count: 0,
            grace: None,
            pid: None,
            user: None,
            devices: None,
            resources: None,
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        matches!(self.state, ContainerState::Running { .. })
    }

    pub(crate) fn exit(&self) -> Option<&Exit> {
        match &self.state {
            ContainerState::Exited(exit) => Some(exit),
            ContainerState::Created | ContainerState::Running { .. } | ContainerState::Unknown => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn container_never_started_ends_with_its_sandbox() {
        let mut pod = ObservedPod::new(PodUid::from("u"), "default", "web");
        let sandbox = |state| ObservedSandbox {
            id: "s".to_owned(),
            attempt: 0,
            state,
            created_at: 0,
            host_network: false,
            ips: Vec::new(),
            has_address: false,
            pid: None,
        };
        pod.containers.push(ObservedContainer::seen("c", "main", "s", ContainerState::Created));
        assert!(pod.is_stopped(), "its sandbox is gone");
        pod.sandboxes = vec![sandbox(SandboxState::Ready)];
        assert!(!pod.is_stopped());
        pod.sandboxes = vec![sandbox(SandboxState::NotReady)];
        assert!(pod.is_stopped());
        pod.containers[0].state = ContainerState::Unknown;
        assert!(!pod.is_stopped(), "an unknown container may be running");
    }

    fn seen(id: &str, name: &str) -> ObservedContainer {
        ObservedContainer::seen(id, name, "s", ContainerState::Created)
    }

    #[test]
    fn instance_that_ran_before_a_start_stays_running() {
        let mut pod = ObservedPod::new(PodUid::from("u"), "default", "web");
        let running = ContainerState::Running { started_at: 1 };
        pod.containers.push(ObservedContainer::seen("old", "main", "s", running.clone()));
        let starting =
            |former: Option<&str>| [StartingContainer { name: "main".to_owned(), former: former.map(str::to_owned) }];
        let runs = |pod: &ObservedPod, former| pod.without_running(&starting(former)).containers[0].is_running();
        assert!(runs(&pod, Some("old")), "it is being killed");
        pod.containers.insert(0, ObservedContainer::seen("new", "main", "s", running));
        assert!(!runs(&pod, Some("old")), "its hook has not completed");
        assert!(!runs(&pod, None));
    }

    #[track_caller]
    fn check(instances: &ContainerInstances, name: &str, expected: &[&str]) {
        let found: Vec<&str> = instances.named(name).map(|instance| instance.id.as_str()).collect();
        assert_eq!(found, expected);
        assert_eq!(instances.newest(name).map(|instance| instance.id.as_str()), expected.first().copied());
    }

    #[test]
    fn instances_of_a_name_keep_their_order() {
        let mut all: ContainerInstances =
            [seen("3", "b"), seen("2", "a"), seen("1", "b"), seen("0", "c")].into_iter().collect();
        check(&all, "b", &["3", "1"]);
        check(&all, "c", &["0"]);
        for unknown in ["", "aa", "d"] {
            check(&all, unknown, &[]);
        }
        all.insert(0, seen("4", "b"));
        check(&all, "b", &["4", "3", "1"]);
        for instance in &mut all {
            instance.name.push('x');
        }
        check(&all, "bx", &["4", "3", "1"]);
        assert_eq!(all, all.iter().cloned().collect());
        check(&ContainerInstances::default(), "a", &[]);
    }
}
