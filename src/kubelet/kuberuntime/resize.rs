//! Resizes running containers, and tracks their current resources.

use std::cell::RefCell;
use std::iter::repeat;
use std::path::Path;
use std::rc::Rc;

use crate::kubelet::allocation::Allocations;
use crate::kubelet::kuberuntime::cpu_placement::put;
use crate::kubelet::kuberuntime::error::ResizeError;
use crate::kubelet::kuberuntime::pod_actions::KillReason;
use crate::kubelet::kuberuntime::pod_index::PodIndex;
use crate::kubelet::kuberuntime::resources::{MEMORY_HIGH, container_resources, may_swap, overhead, sandbox_resources};
use crate::kubelet::kuberuntime::{Action, Plan, Resize};
use crate::kubelet::node::NodeSettings;
use crate::platform::cgroups::{self, CpuMax, HIERARCHY, Limit, Tree, Values, is_weight_of};
use crate::platform::cri::v1::LinuxContainerResources;
use crate::platform::cri::{self, RuntimeService};
use crate::platform::host::procfs::Procfs;
use crate::state::pods::{ObservedContainer, ObservedPod, ObservedResources, Placements};
use crate::types::api::{CPU, Container, MEMORY, Pod, Quantity, ResizeRestartPolicy, ResourceRequirements};
use crate::types::owned::View;
use crate::types::sorted::SortedMap;

/// Resources of a container as sent to the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AppliedResources {
    shares: i64,
    /// 0: no limit.
    quota: i64,
    period: i64,
    /// 0: no limit.
    memory: i64,
    /// Not part of the message to the runtime; a change of it counts as a resize.
    memory_request: i64,
}

impl AppliedResources {
    fn of(resources: &LinuxContainerResources, container: &Container) -> Self {
        Self {
            memory_request: container.resources.request(MEMORY).map_or(0, Quantity::value),
            shares: resources.cpu_shares,
            // A lifted quota is -1.
            quota: resources.cpu_quota.max(0),
            period: resources.cpu_period,
            memory: resources.memory_limit_in_bytes,
        }
    }

    /// The resources of a container created by another process, from its cgroup. If the cgroup's values are what
    /// `wanted` would give, it is assumed to have `wanted`. A cgroup does not show the memory request.
    fn of_cgroup(group: &CgroupResources, wanted: &Self) -> Self {
        // Many shares have the same weight, so a weight cannot be turned back into shares.
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
            memory_request: wanted.memory_request,
        }
    }

    fn resize(&self, wanted: &Self, container: &Container) -> Option<Resize> {
        let cpu = (self.shares, self.quota, self.period) != (wanted.shares, wanted.quota, wanted.period);
        let memory = (self.memory, self.memory_request) != (wanted.memory, wanted.memory_request);
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

/// A container's resources, as far as they are known.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownResources {
    /// Those of the last update that succeeded.
    applied: AppliedResources,
    /// The container may have others: a later update failed or had no answer, or the runtime reports others.
    is_uncertain: bool,
}

impl KnownResources {
    fn certain(applied: AppliedResources) -> Self {
        Self { applied, is_uncertain: false }
    }

    /// Those of a container that another process created or updated, from its cgroup. A cgroup with neither those that it
    /// should have nor those of the checkpoint has lost an update, which is no reason to restart the container.
    fn of_cgroup(group: &CgroupResources, wanted: &AppliedResources, recorded: AppliedResources) -> Self {
        let has = |resources: &AppliedResources| AppliedResources::of_cgroup(group, resources) == *resources;
        match has(wanted) {
            true => Self::certain(AppliedResources { memory_request: recorded.memory_request, ..*wanted }),
            false => Self { applied: recorded, is_uncertain: !has(&recorded) },
        }
    }

    /// Those of a container that another process created or updated. `recorded`: from the checkpoint. The runtime reports
    /// no memory request.
    fn reported(by_runtime: &ObservedResources, recorded: AppliedResources) -> Self {
        let quota = by_runtime.cpu_quota.max(0);
        let reported = AppliedResources {
            shares: by_runtime.cpu_shares,
            quota,
            period: if quota == 0 { recorded.period } else { by_runtime.cpu_period },
            memory: by_runtime.memory_limit.max(0),
            memory_request: recorded.memory_request,
        };
        Self { applied: recorded, is_uncertain: reported != recorded }
    }

    fn resize(&self, wanted: &AppliedResources, container: &Container) -> Option<Resize> {
        // An update that is in force already changes nothing; one that is not, and is not sent again, never comes.
        let again = self.is_uncertain.then_some(Resize::InPlace { shrinks: false });
        self.applied.resize(wanted, container).or(again)
    }
}

/// Values of a container's cgroup.
#[derive(Clone, Copy, Debug)]
struct CgroupResources {
    weight: u64,
    cpu_max: CpuMax,
    memory_max: Limit,
}

/// The resources of running containers: what each has, and updates to what its pod asks for.
pub(crate) struct ContainerResources {
    cri: RuntimeService,
    node: Rc<NodeSettings>,
    /// Allocated and actuated resources.
    pub(super) allocations: Rc<Allocations>,
    /// By container id, as far as this process knows.
    applied: RefCell<SortedMap<String, KnownResources>>,
}

impl ContainerResources {
    pub(super) fn new(cri: RuntimeService, node: Rc<NodeSettings>) -> Self {
        Self { cri, node, allocations: Rc::default(), applied: RefCell::default() }
    }

    /// The resizes that the pod's running containers need, by their names. The first time a container is seen, it is
    /// learnt what it has ([`Self::learn`]).
    pub(crate) fn resizes<'a>(
        &self,
        index: &PodIndex<'a>,
        observed: &ObservedPod,
        placements: &Placements,
    ) -> SortedMap<&'a str, Resize> {
        let spec = &index.pod.spec;
        let init = spec.init_containers.iter().zip(repeat(true));
        let others = spec.containers.iter().chain(&spec.ephemeral_containers).zip(repeat(false));
        let resizes = init.chain(others).filter_map(|(container, is_init)| {
            let running = observed.container(&container.name).filter(|instance| instance.is_running())?;
            let wanted = AppliedResources::of(&self.linux_resources(index, container, is_init, placements), container);
            if !self.applied.borrow().contains_key(&running.id) {
                self.learn(index, container, is_init, running, &wanted, placements);
            }
            let resize = self.applied.borrow().get(&running.id)?.resize(&wanted, container)?;
            Some((container.name.as_str(), resize))
        });
        resizes.collect()
    }

    /// Takes over the resources of a container that another process started: those of the kernel or the runtime, and of
    /// the checkpoint; if all are unknown, it has those that it should have. The checkpoint alone may be too old: a
    /// process may end between an update and its write, or the disk may be full.
    fn learn(
        &self,
        index: &PodIndex<'_>,
        container: &Container,
        is_init: bool,
        running: &ObservedContainer,
        wanted: &AppliedResources,
        placements: &Placements,
    ) {
        let pod = index.pod;
        let recorded = self.recorded(index, container, is_init, placements).unwrap_or_else(|| {
            // Started by a kubelet without a checkpoint.
            let actuated = actuated_resources(pod, container);
            self.allocations.actuated.set_container(&pod.metadata.uid, &container.name, &actuated);
            *wanted
        });
        let of_kernel = self.group_of(running).and_then(|(tree, group)| show(&tree, &group));
        let known_resources = match (of_kernel, &running.resources) {
            (Some(shown), _) => KnownResources::of_cgroup(&shown, wanted, recorded),
            (None, Some(reported)) => KnownResources::reported(reported, recorded),
            (None, None) => KnownResources::certain(recorded),
        };
        self.applied.borrow_mut().insert(running.id.clone(), known_resources);
    }

    /// The container's resources in the checkpoint.
    fn recorded(
        &self,
        index: &PodIndex<'_>,
        container: &Container,
        is_init: bool,
        placements: &Placements,
    ) -> Option<AppliedResources> {
        let resources = self.allocations.actuated.container(&index.pod.metadata.uid, &container.name)?;
        let container = Container { resources, ..container.clone() };
        Some(AppliedResources::of(&self.linux_resources(index, &container, is_init, placements), &container))
    }

    fn linux_resources(
        &self,
        index: &PodIndex<'_>,
        container: &Container,
        is_init: bool,
        placements: &Placements,
    ) -> LinuxContainerResources {
        let mut resources = container_resources(index, container, is_init, &self.node);
        put(&mut resources, placements, &index.pod.metadata.uid, &container.name);
        resources
    }

    /// Records the resources of a container that is about to be created. If they differ from those of its last
    /// instance, the checkpoint is written before the container exists, so that a restarted agent does not resize it
    /// again.
    pub(super) async fn record_actuated(&self, pod: &Pod, container: &Container) {
        let (uid, actuated) = (&pod.metadata.uid, &self.allocations.actuated);
        if actuated.set_container(uid, &container.name, &actuated_resources(pod, container)) {
            actuated.flush().await;
        }
    }

    pub(super) fn record_applied(&self, id: &str, resources: &LinuxContainerResources, container: &Container) {
        let known_resources = KnownResources::certain(AppliedResources::of(resources, container));
        self.applied.borrow_mut().insert(id.to_owned(), known_resources);
    }

    fn set_uncertain(&self, id: &str, is_uncertain: bool) {
        if let Some(known_resources) = self.applied.borrow_mut().get_mut(id) {
            known_resources.is_uncertain = is_uncertain;
        }
    }

    /// Forgets containers that no longer exist.
    pub(super) fn forget_unless(&self, exists: impl Fn(&str) -> bool) {
        self.applied.borrow_mut().retain(|id, _| exists(id));
    }

    pub(super) async fn resize(
        &self,
        index: &PodIndex<'_>,
        container: &Container,
        is_init: bool,
        running: &ObservedContainer,
        placements: &View<Placements>,
    ) -> Result<(), ResizeError> {
        let pod = index.pod;
        let resources = self.linux_resources(index, container, is_init, &placements.read());
        // The kernel would kill processes until the rest fits. As upstream, the resize waits instead.
        if let Some(used) = self.group_of(running).and_then(|(tree, group)| memory_used(&tree, &group)) {
            let limit = u64::try_from(resources.memory_limit_in_bytes).unwrap_or(0);
            if limit > 0 && used > limit {
                return Err(ResizeError::BelowUsage { limit, used });
            }
        }
        let request = update_request(resources.clone(), self.node.cgroup_v2);
        self.set_uncertain(&running.id, true);
        if let Err(error) =
            self.cri.of_pod(pod.metadata.uid.as_str()).update_container_resources(&running.id, &request).await
        {
            // A runtime without this call has changed nothing, and never will.
            if error.is_unimplemented() {
                self.set_uncertain(&running.id, false);
            }
            return Err(ResizeError::Runtime(error));
        }
        self.record_applied(&running.id, &resources, container);
        let actuated = &self.allocations.actuated;
        actuated.set_container(&pod.metadata.uid, &container.name, &actuated_resources(pod, container));
        Ok(())
    }

    /// The container's cgroup, without cgroup v2 `None`.
    fn group_of(&self, running: &ObservedContainer) -> Option<(Tree, String)> {
        let pid = running.pid.filter(|_| self.node.cgroup_v2)?;
        let cgroups = Procfs::host().process(pid).cgroups()?;
        Some((Tree::new(Path::new(HIERARCHY)), cgroups::group_of(&running.id, cgroups.v2()?).to_owned()))
    }

    /// Whether the pod's own resources differ from the actuated ones. Without a record, the allocated resources are
    /// assumed to be actuated.
    pub(crate) fn resizes_pod(&self, pod: &Pod) -> bool {
        let Some(actuated) = self.allocations.actuated.get(&pod.metadata.uid) else { return false };
        match (&actuated.pod_level, &pod.spec.resources) {
            (None, _) => false,
            (Some(actuated), pod_level) => {
                let nothing = ResourceRequirements::default();
                let pod_level = pod_level.as_deref().unwrap_or(&nothing);
                [CPU, MEMORY].into_iter().any(|resource| {
                    actuated.request(resource) != pod_level.request(resource)
                        || actuated.limit(resource) != pod_level.limit(resource)
                })
            }
        }
    }

    /// Records that the pod's cgroup has the pod's own resources.
    pub(crate) fn record_pod(&self, pod: &Pod) {
        let actuated = &self.allocations.actuated;
        if pod.spec.resources.is_some() || actuated.get(&pod.metadata.uid).is_some_and(|info| info.pod_level.is_some())
        {
            actuated.set_pod_level(&pod.metadata.uid, pod.spec.resources.as_deref());
        }
    }

    /// Sends the resources of the sandbox, `limits` or those of the spec, to the runtime before its cgroup is updated.
    /// Fails if the runtime refuses them; a runtime that does not implement the call is no failure.
    pub(crate) async fn update_sandbox(
        &self,
        pod: &Pod,
        sandbox_id: &str,
        limits: Option<&Values>,
    ) -> Result<(), cri::Error> {
        let overhead = overhead(&pod.spec, &self.node);
        let mut resources = sandbox_resources(&pod.spec, &self.node);
        if let Some(limits) = limits {
            put_limits(&mut resources, limits, &overhead);
        }
        match self
            .cri
            .of_pod(pod.metadata.uid.as_str())
            .update_pod_sandbox_resources(sandbox_id, &overhead, &resources)
            .await
        {
            Err(error) if error.is_unimplemented() => Ok(()),
            // containerd 2.2 reports an unimplemented call with another code.
            Err(error) if error.status().is_some_and(|status| status.message.contains("not implemented")) => Ok(()),
            done => done,
        }
    }

    /// Whether the container may swap.
    pub(crate) fn may_swap(&self, index: &PodIndex<'_>, container: &Container) -> bool {
        may_swap(index, container, &self.node)
    }
}

/// The limits of the pod's cgroup without the overhead. -1 is no quota, 0 no memory limit.
fn put_limits(resources: &mut LinuxContainerResources, limits: &Values, overhead: &LinuxContainerResources) {
    if let Some(max) = limits.cpu_max.filter(|_| resources.cpu_period != 0) {
        let period = i64::try_from(max.period).unwrap_or(resources.cpu_period);
        resources.cpu_quota = match max.quota {
            Limit::Max => -1,
            Limit::At(quota) => i64::try_from(quota).unwrap_or(i64::MAX).saturating_sub(overhead.cpu_quota.max(0)),
        };
        resources.cpu_period = period;
    }
    if let Some(max) = limits.memory_max {
        resources.memory_limit_in_bytes = match max {
            Limit::Max => 0,
            Limit::At(bytes) => i64::try_from(bytes).unwrap_or(i64::MAX).saturating_sub(overhead.memory_limit_in_bytes),
        };
    }
}

/// The container's resources; a limit that it does not have is the pod's (`setActuatedContainerResources`).
fn actuated_resources(pod: &Pod, container: &Container) -> ResourceRequirements {
    let mut resources = container.resources.clone();
    for resource in [CPU, MEMORY] {
        let own_limit = resources.limit(resource).filter(|limit| !limit.is_zero());
        let of_pod = pod.spec.resources.as_deref().and_then(|pod| pod.limit(resource));
        if let Some(limit) = of_pod.filter(|limit| own_limit.is_none() && !limit.is_zero()) {
            resources.limits.insert(resource, limit);
        }
    }
    resources
}

impl Plan {
    /// Whether a container is resized.
    pub(crate) fn resizes(&self) -> bool {
        let resizes = self.actions.iter().any(|action| {
            matches!(
                action,
                Action::ResizePod
                    | Action::ResizeContainer { .. }
                    | Action::KillContainer { why: KillReason::Resized, .. }
            )
        });
        resizes && !self.resize_waits
    }

    /// The plan without the updates of running containers: they would not fit in the pod's cgroup, or have failed before.
    pub(crate) fn without_resizes(&self) -> Self {
        let mut plan = Self { resize_waits: true, ..self.clone() };
        plan.actions.retain(|action| !matches!(action, Action::ResizePod | Action::ResizeContainer { .. }));
        plan
    }
}

fn show(tree: &Tree, group: &str) -> Option<CgroupResources> {
    let read = |file: &str| tree.read(group, file).ok();
    Some(CgroupResources {
        weight: read("cpu.weight")?.trim().parse().ok()?,
        cpu_max: CpuMax::parse(&read("cpu.max")?)?,
        memory_max: Limit::parse(&read("memory.max")?)?,
    })
}

fn memory_used(tree: &Tree, group: &str) -> Option<u64> {
    tree.read(group, "memory.current").ok()?.trim().parse().ok()
}

/// The update of a container to `resources`.
fn update_request(mut resources: LinuxContainerResources, cgroup_v2: bool) -> LinuxContainerResources {
    // In an update, 0 means unchanged.
    for limit in [&mut resources.cpu_quota, &mut resources.memory_limit_in_bytes] {
        if *limit == 0 {
            *limit = -1;
        }
    }
    // A file without a value is unchanged, too: what former resources or settings have throttled would stay so.
    if cgroup_v2 && !resources.unified.contains_key(MEMORY_HIGH) {
        resources.unified.insert(MEMORY_HIGH.to_owned(), "max".to_owned());
    }
    resources
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::api::ContainerResizePolicy;

    const WANTED: AppliedResources =
        AppliedResources { shares: 102, quota: 25_000, period: 100_000, memory: 33_554_433, memory_request: 1 };

    fn shown(weight: u64, quota: Limit, memory_max: Limit) -> CgroupResources {
        CgroupResources { weight, cpu_max: CpuMax { quota, period: 100_000 }, memory_max }
    }

    #[test]
    fn update_ends_a_throttling_that_the_resources_do_not_have() {
        let high = |resources: &LinuxContainerResources, cgroup_v2| {
            update_request(resources.clone(), cgroup_v2).unified.get(MEMORY_HIGH).cloned()
        };
        let mut resources = LinuxContainerResources::default();
        assert_eq!(high(&resources, true).as_deref(), Some("max"));
        assert_eq!(high(&resources, false), None, "cgroup v1 has no such file");
        resources.unified.insert(MEMORY_HIGH.to_owned(), "4096".to_owned());
        assert_eq!(high(&resources, true).as_deref(), Some("4096"));
    }

    #[test]
    fn cgroup_values_match_the_wanted_ones_with_either_weight_formula_and_page_rounding() {
        for weight in [4, 17] {
            let kernel = shown(weight, Limit::At(25_000), Limit::At(33_554_432));
            assert_eq!(AppliedResources::of_cgroup(&kernel, &WANTED), WANTED, "{weight}");
        }
        for (kernel, what) in [
            (shown(5, Limit::At(25_000), Limit::At(33_554_432)), "weight"),
            (shown(4, Limit::Max, Limit::At(33_554_432)), "quota"),
            (shown(4, Limit::At(25_000), Limit::Max), "memory"),
            (shown(4, Limit::At(25_000), Limit::At(33_554_432 << 1)), "more memory"),
        ] {
            assert_ne!(AppliedResources::of_cgroup(&kernel, &WANTED), WANTED, "{what}");
        }
        let open = AppliedResources { quota: 0, memory: 0, ..WANTED };
        assert_eq!(AppliedResources::of_cgroup(&shown(4, Limit::Max, Limit::Max), &open), open);
    }

    #[test]
    fn container_whose_cgroup_has_lost_an_update_is_not_restarted() {
        let restarts = |resource: &str| ContainerResizePolicy {
            resource_name: resource.to_owned(),
            restart_policy: ResizeRestartPolicy::RestartContainer,
        };
        let container = Container { resize_policy: vec![restarts(CPU), restarts(MEMORY)], ..Container::default() };
        let resize = |group: &CgroupResources, recorded| {
            KnownResources::of_cgroup(group, &WANTED, recorded).resize(&WANTED, &container)
        };
        let updated = shown(4, Limit::At(25_000), Limit::At(33_554_432));
        let defaults = shown(100, Limit::Max, Limit::Max);
        let before = AppliedResources { quota: 0, memory: 0, shares: 2613, ..WANTED };
        assert_eq!(resize(&updated, WANTED), None);
        assert_eq!(resize(&updated, before), None, "the checkpoint is older than the update");
        assert_eq!(resize(&defaults, WANTED), Some(Resize::InPlace { shrinks: false }));
        assert_eq!(resize(&shown(100, Limit::Max, Limit::Max), before), Some(Resize::Restart), "it was never resized");
    }

    #[test]
    fn recorded_resources_are_uncertain_if_the_runtime_reports_others() {
        let is_uncertain = |recorded: AppliedResources, quota, period, memory| {
            let cpu_shares = recorded.shares;
            let by_runtime =
                ObservedResources { cpu_shares, cpu_quota: quota, cpu_period: period, memory_limit: memory };
            KnownResources::reported(&by_runtime, recorded).is_uncertain
        };
        assert!(!is_uncertain(WANTED, WANTED.quota, WANTED.period, WANTED.memory));
        assert!(is_uncertain(WANTED, WANTED.quota, WANTED.period, WANTED.memory << 1));
        // Limits that a container never had, or that an update has lifted.
        let open = AppliedResources { quota: 0, memory: 0, ..WANTED };
        for none in [0, -1] {
            assert!(!is_uncertain(open, none, 0, none));
            assert!(is_uncertain(WANTED, none, 0, none));
        }
    }

    #[test]
    fn sandbox_gets_the_limits_of_the_cgroup_without_the_overhead() {
        let overhead = LinuxContainerResources { cpu_quota: 25_000, memory_limit_in_bytes: 100, ..Default::default() };
        let applied = |quota: Limit, memory: Limit| {
            let mut resources =
                LinuxContainerResources { cpu_shares: 102, cpu_period: 100_000, cpu_quota: 1, ..Default::default() };
            let cpu_max = Some(CpuMax { quota, period: 100_000 });
            put_limits(&mut resources, &Values { cpu_max, memory_max: Some(memory), ..Values::default() }, &overhead);
            (resources.cpu_shares, resources.cpu_quota, resources.memory_limit_in_bytes)
        };
        assert_eq!(applied(Limit::At(75_000), Limit::At(1000)), (102, 50_000, 900));
        assert_eq!(applied(Limit::Max, Limit::Max), (102, -1, 0));
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

    #[test]
    fn container_is_updated_again_when_the_last_update_may_have_taken_effect() {
        let container = Container::default();
        assert_eq!(KnownResources::certain(WANTED).resize(&WANTED, &container), None);
        let uncertain = KnownResources { applied: WANTED, is_uncertain: true };
        assert_eq!(uncertain.resize(&WANTED, &container), Some(Resize::InPlace { shrinks: false }));
    }
}
