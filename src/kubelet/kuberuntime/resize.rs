//! Changing what a container that runs may use, and what it has been given until now.

use std::path::Path;

use crate::kubelet::kuberuntime::cpu_placement::put;
use crate::kubelet::kuberuntime::error::ResizeError;
use crate::kubelet::kuberuntime::resources::container_resources;
use crate::kubelet::kuberuntime::{PodRuntime, Resize};
use crate::platform::cgroups::{CpuMax, HIERARCHY, Limit, Tree, is_weight_of};
use crate::platform::cri::v1::LinuxContainerResources;
use crate::platform::host::procfs::Procfs;
use crate::state::pods::ObservedContainer;
use crate::types::api::{CPU, Container, MEMORY, Pod, ResizeRestartPolicy};

/// What a container has been given, in the runtime's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Told {
    shares: i64,
    /// 0 is no limit.
    quota: i64,
    period: i64,
    /// 0 is no limit.
    memory: i64,
}

impl Told {
    pub(super) fn of(resources: &LinuxContainerResources) -> Self {
        Self {
            shares: resources.cpu_shares,
            // None is -1 where it was lifted.
            quota: resources.cpu_quota.max(0),
            period: resources.cpu_period,
            memory: resources.memory_limit_in_bytes,
        }
    }

    /// What the kernel shows of a container that another process has made. Where it shows nothing else than what
    /// `wanted` comes to, that is what the container was given.
    fn shown(group: &Shown, wanted: &Self) -> Self {
        let is_same_weight = is_weight_of(group.weight, wanted.shares);
        let quota = match group.cpu_max.quota {
            Limit::Max => 0,
            Limit::At(quota) => i64::try_from(quota).unwrap_or(i64::MAX),
        };
        let memory = match group.memory_max {
            Limit::Max => 0,
            Limit::At(bytes) => i64::try_from(bytes).unwrap_or(i64::MAX),
        };
        // The kernel counts in pages, which have up to 64 KiB.
        let is_same_memory = wanted.memory != 0 && memory != 0 && (0..1 << 16).contains(&(wanted.memory - memory));
        Self {
            shares: if is_same_weight { wanted.shares } else { 0 },
            quota,
            period: if quota == 0 { wanted.period } else { i64::try_from(group.cpu_max.period).unwrap_or(0) },
            memory: if is_same_memory { wanted.memory } else { memory },
        }
    }

    fn resize(&self, wanted: &Self, container: &Container) -> Option<Resize> {
        let cpu = (self.shares, self.quota, self.period) != (wanted.shares, wanted.quota, wanted.period);
        let memory = self.memory != wanted.memory;
        if !cpu && !memory {
            return None;
        }
        let restarts = |resource: &str| {
            let policy = container.resize_policy.iter().find(|policy| policy.resource_name == resource);
            policy.is_some_and(|policy| policy.restart_policy == ResizeRestartPolicy::RestartContainer)
        };
        if cpu && restarts(CPU) || memory && restarts(MEMORY) {
            return Some(Resize::Restart);
        }
        let no_limit_is_most = |limit: i64| if limit == 0 { i64::MAX } else { limit };
        let shrinks = no_limit_is_most(wanted.memory) < no_limit_is_most(self.memory)
            || no_limit_is_most(wanted.quota) < no_limit_is_most(self.quota);
        Some(Resize::InPlace { shrinks })
    }
}

/// A container's group.
#[derive(Clone, Copy, Debug)]
struct Shown {
    weight: u64,
    cpu_max: CpuMax,
    memory_max: Limit,
}

impl PodRuntime {
    /// How the container that runs has to change to have what its spec gives it. What it has is known from when this
    /// process made it, or else from the kernel; where neither tells, it has what it should.
    pub(crate) fn resize_of(
        &self,
        pod: &Pod,
        container: &Container,
        is_init: bool,
        running: &ObservedContainer,
    ) -> Option<Resize> {
        let mut wanted = container_resources(pod, container, is_init, &self.node);
        put(&mut wanted, &self.placements.borrow(), &pod.metadata.uid, &container.name);
        let wanted = Told::of(&wanted);
        let mut told = self.told.borrow_mut();
        let told = told.entry(running.id.clone()).or_insert_with(|| {
            let shown = running.pid.filter(|_| self.node.cgroup_v2).and_then(show);
            shown.map_or(wanted, |shown| Told::shown(&shown, &wanted))
        });
        told.resize(&wanted, container)
    }

    pub(super) fn note_told(&self, id: &str, resources: &LinuxContainerResources) {
        self.told.borrow_mut().insert(id.to_owned(), Told::of(resources));
    }

    /// Containers that are no more.
    pub(super) fn forget_told(&self, known: impl Fn(&str) -> bool) {
        self.told.borrow_mut().retain(|id, _| known(id));
        self.held.borrow_mut().retain(|id, _| known(id));
    }

    pub(super) async fn resize_container(
        &self,
        pod: &Pod,
        container: &Container,
        is_init: bool,
        running: &ObservedContainer,
    ) -> Result<(), ResizeError> {
        let mut resources = container_resources(pod, container, is_init, &self.node);
        put(&mut resources, &self.placements.borrow(), &pod.metadata.uid, &container.name);
        if let Some(used) = running.pid.filter(|_| self.node.cgroup_v2).and_then(memory_used) {
            let limit = u64::try_from(resources.memory_limit_in_bytes).unwrap_or(0);
            if limit > 0 && used > limit {
                return Err(ResizeError::BelowUsage { limit, used });
            }
        }
        let mut request = resources.clone();
        // To the runtime, 0 is what it is not told of.
        for limit in [&mut request.cpu_quota, &mut request.memory_limit_in_bytes] {
            if *limit == 0 {
                *limit = -1;
            }
        }
        let updated = self.cri.update_container_resources(&running.id, &request).await;
        updated.map_err(ResizeError::Runtime)?;
        self.note_told(&running.id, &resources);
        Ok(())
    }
}

fn show(pid: u32) -> Option<Shown> {
    let (tree, group) = group_of(pid)?;
    let read = |file: &str| tree.read(&group, file).ok();
    Some(Shown {
        weight: read("cpu.weight")?.trim().parse().ok()?,
        cpu_max: CpuMax::parse(&read("cpu.max")?)?,
        memory_max: Limit::parse(&read("memory.max")?)?,
    })
}

fn memory_used(pid: u32) -> Option<u64> {
    let (tree, group) = group_of(pid)?;
    tree.read(&group, "memory.current").ok()?.trim().parse().ok()
}

fn group_of(pid: u32) -> Option<(Tree, String)> {
    let group = Procfs::host().process(pid).cgroups()?.v2()?.to_owned();
    Some((Tree::new(Path::new(HIERARCHY)), group))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::api::ContainerResizePolicy;

    const WANTED: Told = Told { shares: 102, quota: 25_000, period: 100_000, memory: 33_554_433 };

    fn shown(weight: u64, quota: Limit, memory_max: Limit) -> Shown {
        Shown { weight, cpu_max: CpuMax { quota, period: 100_000 }, memory_max }
    }

    #[test]
    fn what_the_kernel_shows_is_what_was_given_by_either_formula_and_in_pages() {
        for weight in [4, 17] {
            let kernel = shown(weight, Limit::At(25_000), Limit::At(33_554_432));
            assert_eq!(Told::shown(&kernel, &WANTED), WANTED, "{weight}");
        }
        for (kernel, what) in [
            (shown(5, Limit::At(25_000), Limit::At(33_554_432)), "weight"),
            (shown(4, Limit::Max, Limit::At(33_554_432)), "quota"),
            (shown(4, Limit::At(25_000), Limit::Max), "memory"),
            (shown(4, Limit::At(25_000), Limit::At(33_554_432 << 1)), "more memory"),
        ] {
            assert_ne!(Told::shown(&kernel, &WANTED), WANTED, "{what}");
        }
        let open = Told { quota: 0, memory: 0, ..WANTED };
        assert_eq!(Told::shown(&shown(4, Limit::Max, Limit::Max), &open), open);
    }

    #[test]
    fn a_container_is_resized_in_place_unless_it_says_otherwise() {
        let mut container = Container::default();
        let change = |container: &Container, wanted: Told| WANTED.resize(&wanted, container);
        assert_eq!(change(&container, WANTED), None);
        let more = Told { memory: WANTED.memory * 2, ..WANTED };
        assert_eq!(change(&container, more), Some(Resize::InPlace { shrinks: false }));
        let open = Told { quota: 0, ..WANTED };
        assert_eq!(change(&container, open), Some(Resize::InPlace { shrinks: false }));
        let less = Told { quota: 10_000, ..WANTED };
        assert_eq!(change(&container, less), Some(Resize::InPlace { shrinks: true }));
        container.resize_policy = vec![ContainerResizePolicy {
            resource_name: MEMORY.to_owned(),
            restart_policy: ResizeRestartPolicy::RestartContainer,
        }];
        assert_eq!(change(&container, more), Some(Resize::Restart));
        assert_eq!(change(&container, less), Some(Resize::InPlace { shrinks: true }));
    }
}
