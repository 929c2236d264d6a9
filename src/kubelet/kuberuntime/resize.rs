//! Resizes running containers, and tracks their current resources.

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

/// Resources of a container as sent to the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AppliedResources {
    shares: i64,
    /// 0: no limit.
    quota: i64,
    period: i64,
    /// 0: no limit.
    memory: i64,
}

impl AppliedResources {
    pub(super) fn of(resources: &LinuxContainerResources) -> Self {
        Self {
            shares: resources.cpu_shares,
            // A lifted quota is -1.
            quota: resources.cpu_quota.max(0),
            period: resources.cpu_period,
            memory: resources.memory_limit_in_bytes,
        }
    }

    /// The resources of a container created by another process, from its cgroup. If the cgroup's values are what
    /// `wanted` would give, it is assumed to have `wanted`.
    fn shown(group: &ReportedResources, wanted: &Self) -> Self {
        let is_same_weight = is_weight_of(group.weight, wanted.shares);
        let quota = match group.cpu_max.quota {
            Limit::Max => 0,
            Limit::At(quota) => i64::try_from(quota).unwrap_or(i64::MAX),
        };
        let memory = match group.memory_max {
            Limit::Max => 0,
            Limit::At(bytes) => i64::try_from(bytes).unwrap_or(i64::MAX),
        };
        // The kernel rounds down to pages, which may have up to 64 KiB.
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

/// Values of a container's cgroup.
#[derive(Clone, Copy, Debug)]
struct ReportedResources {
    weight: u64,
    cpu_max: CpuMax,
    memory_max: Limit,
}

impl PodRuntime {
    /// The resize needed for a running container. Its current resources are known from this process or read from the
    /// kernel; if they are unknown, none is needed.
    pub(crate) fn resize_of(
        &self,
        pod: &Pod,
        container: &Container,
        is_init: bool,
        running: &ObservedContainer,
    ) -> Option<Resize> {
        let mut wanted = container_resources(pod, container, is_init, &self.node);
        put(&mut wanted, &self.placements.borrow(), &pod.metadata.uid, &container.name);
        let wanted = AppliedResources::of(&wanted);
        let mut told = self.told.borrow_mut();
        let told = told.entry(running.id.clone()).or_insert_with(|| {
            let shown = running.pid.filter(|_| self.node.cgroup_v2).and_then(show);
            shown.map_or(wanted, |shown| AppliedResources::shown(&shown, &wanted))
        });
        told.resize(&wanted, container)
    }

    pub(super) fn note_told(&self, id: &str, resources: &LinuxContainerResources) {
        self.told.borrow_mut().insert(id.to_owned(), AppliedResources::of(resources));
    }

    /// Forgets containers that no longer exist.
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
        // In an update, 0 means unchanged.
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

fn show(pid: u32) -> Option<ReportedResources> {
    let (tree, group) = group_of(pid)?;
    let read = |file: &str| tree.read(&group, file).ok();
    Some(ReportedResources {
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

    const WANTED: AppliedResources =
        AppliedResources { shares: 102, quota: 25_000, period: 100_000, memory: 33_554_433 };

    fn shown(weight: u64, quota: Limit, memory_max: Limit) -> ReportedResources {
        ReportedResources { weight, cpu_max: CpuMax { quota, period: 100_000 }, memory_max }
    }

    #[test]
    fn cgroup_values_match_the_wanted_ones_with_either_weight_formula_and_page_rounding() {
        for weight in [4, 17] {
            let kernel = shown(weight, Limit::At(25_000), Limit::At(33_554_432));
            assert_eq!(AppliedResources::shown(&kernel, &WANTED), WANTED, "{weight}");
        }
        for (kernel, what) in [
            (shown(5, Limit::At(25_000), Limit::At(33_554_432)), "weight"),
            (shown(4, Limit::Max, Limit::At(33_554_432)), "quota"),
            (shown(4, Limit::At(25_000), Limit::Max), "memory"),
            (shown(4, Limit::At(25_000), Limit::At(33_554_432 << 1)), "more memory"),
        ] {
            assert_ne!(AppliedResources::shown(&kernel, &WANTED), WANTED, "{what}");
        }
        let open = AppliedResources { quota: 0, memory: 0, ..WANTED };
        assert_eq!(AppliedResources::shown(&shown(4, Limit::Max, Limit::Max), &open), open);
    }

    #[test]
    fn container_is_resized_in_place_unless_its_policy_requires_a_restart() {
        let mut container = Container::default();
        let change = |container: &Container, wanted: AppliedResources| WANTED.resize(&wanted, container);
        assert_eq!(change(&container, WANTED), None);
        let more = AppliedResources { memory: WANTED.memory * 2, ..WANTED };
        assert_eq!(change(&container, more), Some(Resize::InPlace { shrinks: false }));
        let open = AppliedResources { quota: 0, ..WANTED };
        assert_eq!(change(&container, open), Some(Resize::InPlace { shrinks: false }));
        let less = AppliedResources { quota: 10_000, ..WANTED };
        assert_eq!(change(&container, less), Some(Resize::InPlace { shrinks: true }));
        container.resize_policy = vec![ContainerResizePolicy {
            resource_name: MEMORY.to_owned(),
            restart_policy: ResizeRestartPolicy::RestartContainer,
        }];
        assert_eq!(change(&container, more), Some(Resize::Restart));
        assert_eq!(change(&container, less), Some(Resize::InPlace { shrinks: true }));
    }
}
