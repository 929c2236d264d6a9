//! The static CPU policy: exclusive CPUs for containers of guaranteed pods with integer CPU requests. Pure.
//!
//! `staticPolicy` in pkg/kubelet/cm/cpumanager.

use super::cpu_assignment::{take_by_cache, take_distributed, take_packed};
use super::cpu_topology::{Level, Topology};
use super::pod_level::{PodLevel, all_containers, check_pool, cpus_of_pod};
use super::rejection::{AllocationRejection, unexpected};
use super::settings_error::SettingsError;
use super::topology_manager::{self, Hints, Nodes};
use crate::platform::config::CpuOptions;
use crate::state::pods::{Assigned, PodCpus};
use crate::types::api::{CPU, Container, Pod, PodUid, Reason};
use crate::types::cpu_set::CpuSet;
use crate::types::sorted::{SortOnce, SortedMap};

#[derive(Clone, Debug)]
pub(crate) struct CpuManager {
    pub(super) topology: Topology,
    /// CPUs that are never exclusive.
    pub(super) reserved: CpuSet,
    options: CpuOptions,
    level: PodLevel,
}

impl CpuManager {
    /// Reserves the CPUs in `named`, or if that is empty any `count` CPUs.
    pub(super) fn new(
        topology: Topology,
        named: &CpuSet,
        count: usize,
        options: CpuOptions,
        level: PodLevel,
    ) -> Result<Self, SettingsError> {
        let online_cpus = topology.all();
        if !named.is_within(&online_cpus) {
            return Err(SettingsError::OfflineCpus { reserved: named.clone(), online: online_cpus });
        }
        let mut policy = Self { topology, reserved: named.clone(), options, level };
        if named.is_empty() {
            if count == 0 {
                return Err(SettingsError::NoReservedCpus);
            }
            let reserved = policy.take(&online_cpus, count);
            policy.reserved = reserved.ok_or(SettingsError::TooFewCpus { reserved: count, online: online_cpus })?;
        }
        Ok(policy)
    }

    /// `full-pcpus-only`.
    pub(super) fn has_whole_cores(&self) -> bool {
        self.options.full_cores
    }

    /// CPUs that can be exclusive.
    pub(super) fn allocatable(&self) -> CpuSet {
        self.topology.all().without(&self.reserved)
    }

    /// CPUs of all containers without exclusive ones. Reserved CPUs are among them without `strict-cpu-reservation`:
    /// they are kept from exclusive use only.
    pub(super) fn shared(&self, assigned: &Assigned) -> CpuSet {
        let shared = self.topology.all().without(&all_of(assigned));
        if self.options.strict_reservation { shared.without(&self.reserved) } else { shared }
    }

    /// The entries of `found` that are possible exclusive sets, smallest first, because shared sets are larger.
    pub(super) fn plausible(&self, mut observed_cpus: Vec<(PodUid, String, CpuSet)>) -> Assigned {
        let allocatable = self.allocatable();
        observed_cpus.retain(|(.., cpus)| !cpus.is_empty() && cpus.is_within(&allocatable));
        observed_cpus.sort_once_by_key(|(.., cpus)| cpus.len());
        let mut assigned = Assigned::new();
        for (pod, container, cpus) in observed_cpus {
            let mut others = assigned.iter().filter(|(other_pod, _)| **other_pod != pod);
            if !others.any(|(_, other_pod)| other_pod.all().overlaps(&cpus)) {
                assigned.entry(pod).or_default().containers.insert(container, cpus);
            }
        }
        assigned
    }

    /// Adds the CPUs of pods as a whole, as far as they are possible.
    pub(super) fn add_whole(&self, assigned: &mut Assigned, observed_cpus: Vec<(PodUid, CpuSet)>) {
        let allocatable = self.allocatable();
        for (pod, whole) in observed_cpus {
            let mut others = assigned.iter().filter(|(other, _)| **other != pod);
            if !whole.is_empty()
                && whole.is_within(&allocatable)
                && !others.any(|(_, other)| other.all().overlaps(&whole))
            {
                assigned.entry(pod).or_default().whole = whole;
            }
        }
    }

    /// The exclusive CPUs of the pod's containers: their present ones, or else free ones. `near` is called for each
    /// container and returns the NUMA nodes to prefer.
    pub(super) fn allocate(
        &self,
        assigned: &Assigned,
        pod: &Pod,
        near: &mut PreferredNodes<'_>,
    ) -> Result<PodCpus, AllocationRejection> {
        if self.level.is_whole(pod) {
            return self.allocate_pod(assigned, pod, near);
        }
        let had = assigned.get(&pod.metadata.uid);
        let had_by = |container: &Container| {
            let cpus = had?.containers.get(&container.name)?;
            (cpus.len() == self.own_cpus(pod, container)).then_some(cpus)
        };
        let pod_containers = || all_containers(pod);
        let kept = |ended: bool| {
            let kept =
                pod_containers().filter(|(_, ends)| !ends || ended).filter_map(|(container, _)| had_by(container));
            kept.fold(CpuSet::EMPTY, |sum, cpus| sum.with(cpus))
        };
        let mut free = self.free_for(assigned, &pod.metadata.uid).without(&kept(true));
        let (stays, mut reusable) = (kept(false), CpuSet::EMPTY);
        let mut taken = SortedMap::<String, CpuSet>::new();
        for (container, ends) in pod_containers() {
            let wanted = self.own_cpus(pod, container);
            let hints = || {
                let hints = had_by(container).map(|has| self.hints(has, &CpuSet::EMPTY, wanted));
                (wanted > 0).then(|| hints.unwrap_or_else(|| self.hints(&free, &reusable, wanted)))
            };
            let nodes = near(container, &hints)?;
            if wanted == 0 {
                continue;
            }
            let cpus = match had_by(container) {
                Some(cpus) => cpus.clone(),
                None => {
                    self.check_cores(wanted, &free.clone().with(&reusable))?;
                    self.choose(&free, &reusable, wanted, nodes.map(Nodes::numbers).as_ref())?
                }
            };
            free.remove(&cpus);
            if ends {
                reusable.add(&cpus.clone().without(&stays));
            } else {
                reusable.remove(&cpus);
            }
            taken.insert(container.name.clone(), cpus);
        }
        Ok(PodCpus { containers: taken, ..PodCpus::default() })
    }

    /// The CPUs of a pod as a whole: its present ones, or else free ones. Its containers divide them.
    fn allocate_pod(
        &self,
        assigned: &Assigned,
        pod: &Pod,
        near: &mut PreferredNodes<'_>,
    ) -> Result<PodCpus, AllocationRejection> {
        let mut nodes = None;
        for (container, _) in all_containers(pod) {
            nodes = near(container, &|| None)?;
        }
        let wanted = cpus_of_pod(pod);
        if wanted == 0 {
            return Ok(PodCpus::default());
        }
        self.check_pool(pod)?;
        let had = assigned.get(&pod.metadata.uid).cloned().unwrap_or_default();
        let has = had.all();
        let pod_cpu_set = if has.len() == wanted {
            has
        } else {
            let free = self.free_for(assigned, &pod.metadata.uid);
            self.check_cores(wanted, &free)?;
            self.choose(&free, &has, wanted, nodes.map(Nodes::numbers).as_ref())?
        };
        self.divide(pod, pod_cpu_set, &had.containers)
    }

    /// Gives each container its exclusive CPUs of the pod, or those that are left.
    fn divide(
        &self,
        pod: &Pod,
        whole: CpuSet,
        had: &SortedMap<String, CpuSet>,
    ) -> Result<PodCpus, AllocationRejection> {
        let mut unassigned = whole.clone();
        let mut pod_cpus = PodCpus::default();
        for (container, ends) in all_containers(pod) {
            let wanted = self.own_cpus(pod, container);
            let cpus = if wanted == 0 {
                // Containers that do not end get what all exclusive ones leave.
                pod_cpus.sharing.push(container.name.clone());
                unassigned.clone()
            } else {
                let has = had.get(&container.name).filter(|has| has.len() == wanted && has.is_within(&unassigned));
                match has {
                    Some(has) => has.clone(),
                    None => self.choose(&unassigned, &CpuSet::EMPTY, wanted, None)?,
                }
            };
            if wanted > 0 && !ends {
                unassigned.remove(&cpus);
            }
            pod_cpus.containers.insert(container.name.clone(), cpus);
        }
        for (container, _) in all_containers(pod).filter(|(_, ends)| !ends) {
            if pod_cpus.sharing.contains(&container.name) {
                pod_cpus.containers.insert(container.name.clone(), unassigned.clone());
            }
        }
        pod_cpus.whole = whole;
        Ok(pod_cpus)
    }

    fn check_pool(&self, pod: &Pod) -> Result<(), AllocationRejection> {
        let count = |cpus| u64::try_from(cpus).unwrap_or(u64::MAX);
        let exclusive_cpus = |container: &Container| {
            Some(self.own_cpus(pod, container)).filter(|exclusive_cpus| *exclusive_cpus > 0).map(count)
        };
        check_pool(pod, CPU, count(cpus_of_pod(pod)), &exclusive_cpus)
    }

    /// Number of exclusive CPUs of a container.
    pub(super) fn own_cpus(&self, pod: &Pod, container: &Container) -> usize {
        self.level.own_cpus(pod, container)
    }

    /// The CPUs that no other pod has.
    fn free_for(&self, assigned: &Assigned, pod: &PodUid) -> CpuSet {
        let others = assigned.iter().filter(|(other, _)| *other != pod);
        others.fold(self.allocatable(), |free, (_, other)| free.without(&other.all()))
    }

    /// Hints for all containers of the pod together; `None` if no container needs exclusive CPUs.
    pub(super) fn pod_hints(&self, assigned: &Assigned, pod: &Pod) -> Option<Hints> {
        let wanted = match self.level.is_whole(pod) {
            true if cpus_of_pod(pod) > 0 && self.check_pool(pod).is_err() => return Some(Hints::new()),
            true => cpus_of_pod(pod),
            false => self.most_cpus(pod),
        };
        let has = assigned.get(&pod.metadata.uid).map(PodCpus::all).unwrap_or_default();
        let free = self.allocatable().without(&all_of(assigned));
        (wanted > 0).then(|| match has.len() == wanted {
            true => self.hints(&has, &CpuSet::EMPTY, wanted),
            false => self.hints(&free, &has, wanted),
        })
    }

    /// The most exclusive CPUs that the pod's containers have at a time.
    fn most_cpus(&self, pod: &Pod) -> usize {
        let (mut most, mut stay) = (0, 0);
        for (container, ends) in all_containers(pod) {
            let wanted = stay + self.own_cpus(pod, container);
            most = most.max(wanted);
            stay = if ends { stay } else { wanted };
        }
        most
    }

    /// The NUMA node sets that have enough CPUs and include all reusable ones.
    fn hints(&self, free: &CpuSet, reusable: &CpuSet, wanted: usize) -> Hints {
        let (all_cpus, nodes) = (self.topology.all(), Nodes::of(&self.topology.nodes()));
        let near = |cpus: &CpuSet, nodes: Nodes| self.topology.within(Level::Node, &nodes.numbers()).common(cpus).len();
        let can = |nodes| {
            let reused = near(reusable, nodes);
            reused == reusable.len() && near(free, nodes) + reused >= wanted
        };
        topology_manager::hints(nodes, &|nodes| near(&all_cpus, nodes) >= wanted, &can)
    }

    /// Takes CPUs of the pod's ended init containers before free ones; within both, those in `nodes` first.
    fn choose(
        &self,
        free: &CpuSet,
        reusable: &CpuSet,
        wanted: usize,
        nodes: Option<&CpuSet>,
    ) -> Result<CpuSet, AllocationRejection> {
        let available = free.clone().with(reusable);
        let mut chosen = CpuSet::EMPTY;
        let near = nodes.map(|nodes| self.topology.within(Level::Node, nodes));
        for near in near.iter().chain([&self.topology.all()]) {
            for from in [reusable, &available] {
                let from = from.common(near).without(&chosen);
                let count = from.len().min(wanted - chosen.len());
                chosen.add(&self.take(&from, count).unwrap_or_default());
            }
        }
        if chosen.len() < wanted {
            let has = available.len();
            let lack = format!("not enough cpus available to satisfy request: requested={wanted}, available={has}");
            return Err(unexpected(&lack));
        }
        Ok(chosen)
    }

    fn take(&self, from: &CpuSet, count: usize) -> Option<CpuSet> {
        if self.options.by_cache {
            return take_by_cache(&self.topology, from, count);
        }
        if !self.options.across_nodes {
            return take_packed(&self.topology, from, count);
        }
        let group = if self.options.full_cores { self.topology.cpus_per_core() } else { 1 };
        take_distributed(&self.topology, from, count, group)
    }

    /// With `full-pcpus-only`: checks the number of free whole cores. A core with a reserved thread is not whole.
    fn check_cores(&self, wanted: usize, free: &CpuSet) -> Result<(), AllocationRejection> {
        let per_core = self.topology.cpus_per_core();
        if !self.options.full_cores {
            return Ok(());
        }
        let free_whole_cores = free.clone().without(&self.topology.whole_cores(&self.reserved)).len();
        let why = if wanted % per_core != 0 {
            format!("requested {wanted} cpus not multiple cpus per core = {per_core}")
        } else if wanted > free_whole_cores {
            format!(
                "not enough free physical CPUs: available physical CPUs = {free_whole_cores}, requested CPUs = {wanted}, CPUs per core = {per_core}"
            )
        } else {
            return Ok(());
        };
        Err((Reason::SMT_ALIGNMENT_ERROR, format!("SMT Alignment Error: {why}")))
    }
}

/// Returns the NUMA nodes to prefer for a container, given the hints for its CPUs.
pub(super) type PreferredNodes<'a> =
    dyn FnMut(&Container, &dyn Fn() -> Option<Hints>) -> Result<Option<Nodes>, AllocationRejection> + 'a;

fn all_of(assigned: &Assigned) -> CpuSet {
    assigned.values().fold(CpuSet::EMPTY, |sum, pod_cpus| sum.with(&pod_cpus.all()))
}

#[cfg(test)]
mod tests {
    use super::super::cpu_topology::tests::{board, single_socket, two_nodes};
    use super::super::guaranteed::{self, pod};
    use super::super::topology_manager::Hint;
    use super::*;
    use crate::types::api::RestartPolicy;

    fn set(text: &str) -> CpuSet {
        CpuSet::parse(text).unwrap()
    }

    fn container(name: &str, cpu: &str) -> Container {
        guaranteed::container(name, cpu, "32Mi")
    }

    fn sidecar(name: &str, cpu: &str) -> Container {
        Container { restart_policy: Some(RestartPolicy::Always), ..container(name, cpu) }
    }

    fn policy(topology: Topology, reserved: &str, options: CpuOptions) -> CpuManager {
        CpuManager::new(topology, &set(reserved), 0, options, PodLevel::Ignored).unwrap()
    }

    fn plain(topology: Topology) -> CpuManager {
        policy(topology, "0", CpuOptions::default())
    }

    fn assigned(entries: &[(&str, &str, &str)]) -> Assigned {
        let mut assigned = Assigned::new();
        for (pod, container, cpus) in entries {
            assigned.entry((*pod).into()).or_default().containers.insert((*container).to_owned(), set(cpus));
        }
        assigned
    }

    /// The exclusive CPUs as `name:cpus`, or the reason and message of the rejection.
    fn given(policy: &CpuManager, assigned: &Assigned, pod: &Pod) -> Result<String, (String, String)> {
        let own = policy.allocate(assigned, pod, &mut |_, _| Ok(None));
        let own = own.map_err(|(reason, message)| (reason.as_str().to_owned(), message))?;
        Ok(own.containers.iter().map(|(name, cpus)| format!("{name}:{cpus}")).collect::<Vec<_>>().join(" "))
    }

    #[track_caller]
    fn check(policy: &CpuManager, assigned: &Assigned, pod: &Pod, expected: &str) {
        assert_eq!(given(policy, assigned, pod), Ok(expected.to_owned()));
    }

    #[test]
    fn exclusive_cpus_need_guaranteed_pods_and_integer_requests() {
        let board = plain(board(4));
        let none = Assigned::new();
        check(&board, &none, &pod("p", vec![], vec![container("a", "1"), container("b", "2")]), "a:1 b:2-3");
        check(&board, &none, &pod("p", vec![], vec![container("a", "1500m"), container("b", "1")]), "b:1");
        let mut burstable = pod("p", vec![], vec![container("a", "1")]);
        burstable.spec.containers[0].resources.limits = crate::types::api::ResourceList::default();
        check(&board, &none, &burstable, "");
        let mut whole = pod("p", vec![], vec![container("a", "1")]);
        whole.spec.resources = Some(Box::new(whole.spec.containers[0].resources.clone()));
        check(&board, &none, &whole, "");
    }

    #[test]
    fn assigned_and_reserved_cpus_are_not_given() {
        let board = plain(board(4));
        let others = assigned(&[("o", "x", "1"), ("o", "y", "3")]);
        check(&board, &others, &pod("p", vec![], vec![container("a", "1")]), "a:2");
        let message = "Allocate failed due to not enough cpus available to satisfy request: requested=2, available=1, \
                       which is unexpected";
        let refused = given(&board, &others, &pod("p", vec![], vec![container("a", "2")]));
        assert_eq!(refused, Err(("UnexpectedAdmissionError".to_owned(), message.to_owned())));
        assert_eq!(board.shared(&others).to_string(), "0,2");
    }

    #[test]
    fn pod_keeps_its_cpus_while_its_request_is_unchanged() {
        let board = plain(board(4));
        let has = assigned(&[("p", "a", "3"), ("o", "x", "1")]);
        check(&board, &has, &pod("p", vec![], vec![container("a", "1")]), "a:3");
        check(&board, &has, &pod("p", vec![], vec![container("a", "2")]), "a:2-3");
        check(&board, &has, &pod("p", vec![], vec![container("b", "1"), container("a", "1")]), "a:3 b:2");
    }

    #[test]
    fn cpus_of_ended_init_containers_are_reused_but_not_of_sidecars() {
        let board = plain(board(4));
        let none = Assigned::new();
        let ends =
            pod("p", vec![container("i", "2"), container("j", "1")], vec![container("a", "1"), container("b", "1")]);
        check(&board, &none, &ends, "a:1 b:2 i:1-2 j:1");
        let stays = pod("p", vec![sidecar("s", "1"), container("i", "1")], vec![container("a", "2")]);
        check(&board, &none, &stays, "a:2-3 i:2 s:1");
        // The same after a restart, when all CPUs are assigned already.
        let mut has = Assigned::new();
        has.insert("p".into(), board.allocate(&none, &ends, &mut |_, _| Ok(None)).unwrap());
        check(&board, &has, &ends, "a:1 b:2 i:1-2 j:1");
    }

    #[test]
    fn full_pcpus_only_gives_whole_cores() {
        let options = CpuOptions { full_cores: true, ..CpuOptions::default() };
        let threads = policy(single_socket(), "0", options);
        let none = Assigned::new();
        check(&threads, &none, &pod("p", vec![], vec![container("a", "2")]), "a:1,5");
        let refused = |cpu: &str| given(&threads, &none, &pod("p", vec![], vec![container("a", cpu)])).unwrap_err();
        let odd = "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2";
        assert_eq!(refused("3"), ("SMTAlignmentError".to_owned(), odd.to_owned()));
        // The other thread of the reserved CPU is free, but its core is not whole.
        let few = "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 6, requested CPUs = 8, \
                   CPUs per core = 2";
        assert_eq!(refused("8"), ("SMTAlignmentError".to_owned(), few.to_owned()));
        let has = assigned(&[("p", "a", "1-3,5-7")]);
        check(&threads, &has, &pod("p", vec![], vec![container("a", "6")]), "a:1-3,5-7");
    }

    #[test]
    fn reserved_cpus_are_shared_unless_strict() {
        let strict = CpuOptions { strict_reservation: true, ..CpuOptions::default() };
        let has = assigned(&[("p", "a", "2")]);
        assert_eq!(plain(board(4)).shared(&has).to_string(), "0-1,3");
        assert_eq!(policy(board(4), "0", strict).shared(&has).to_string(), "1,3");
    }

    #[test]
    fn distribution_over_nodes_is_even_if_configured() {
        let spread = CpuOptions { across_nodes: true, ..CpuOptions::default() };
        let eight = || super::super::cpu_topology::tests::machine(8, |cpu| (cpu / 4, 0, cpu));
        let asks = pod("p", vec![], vec![container("a", "6")]);
        assert_eq!(given(&policy(eight(), "0", CpuOptions::default()), &Assigned::new(), &asks).unwrap(), "a:1-2,4-7");
        assert_eq!(given(&policy(eight(), "0", spread), &Assigned::new(), &asks).unwrap(), "a:1-6");
    }

    #[test]
    fn cpus_are_taken_from_the_preferred_node() {
        let nodes = plain(two_nodes());
        let own = |near: &str, cpu: &str| {
            let asks = pod("p", vec![], vec![container("a", cpu)]);
            let near = Nodes::of(&set(near));
            nodes.allocate(&Assigned::new(), &asks, &mut |_, _| Ok(Some(near))).unwrap().containers["a"].to_string()
        };
        assert_eq!([own("1", "1"), own("0", "1"), own("0", "2"), own("1", "2")], ["2", "1", "1-2", "2-3"]);
    }

    /// Hints as `0` or `0-1`, with a `+` if preferred.
    fn written(hints: Option<Hints>) -> Option<Vec<String>> {
        let nodes = |hint: &Hint| hint.nodes.unwrap().numbers().to_string();
        Some(hints?.iter().map(|hint| format!("{}{}", nodes(hint), if hint.preferred { "+" } else { "" })).collect())
    }

    #[test]
    fn hints_are_the_node_sets_with_enough_cpus() {
        let nodes = plain(two_nodes());
        let hints = |assigned: &Assigned, cpus: &[&str]| {
            let containers = cpus.iter().map(|cpu| container(cpu, cpu)).collect();
            let asks = pod("p", vec![], containers);
            let mut told = Vec::new();
            let given = nodes.allocate(assigned, &asks, &mut |_, hints| {
                told.push(written(hints()));
                Ok(None)
            });
            (given.is_ok(), told, written(nodes.pod_hints(assigned, &asks)))
        };
        let list = |hints: &[&str]| Some(hints.iter().map(|hint| (*hint).to_owned()).collect::<Vec<_>>());
        let none = Assigned::new();
        assert_eq!(hints(&none, &["1"]), (true, vec![list(&["0+", "1+", "0-1"])], list(&["0+", "1+", "0-1"])));
        // One of the first node's two CPUs is reserved.
        let two = list(&["1+", "0-1"]);
        assert_eq!(hints(&none, &["2"]), (true, vec![two.clone()], two.clone()));
        assert_eq!(hints(&none, &["3"]), (true, vec![list(&["0-1+"])], list(&["0-1+"])));
        // Hints for the second container are requested after the first has its CPUs.
        assert_eq!(hints(&none, &["1", "500m"]).1, [list(&["0+", "1+", "0-1"]), None]);
        assert_eq!(hints(&assigned(&[("p", "2", "2-3")]), &["2"]), (true, vec![two.clone()], two));
        assert_eq!(hints(&assigned(&[("o", "x", "2")]), &["2"]), (true, vec![list(&["0-1"])], list(&["0-1"])));
        assert_eq!(hints(&assigned(&[("o", "x", "1-3")]), &["1"]), (false, vec![list(&[])], list(&[])));
    }

    #[test]
    fn reserved_count_must_be_positive_and_available() {
        let reserved = |count| {
            let policy =
                CpuManager::new(single_socket(), &CpuSet::EMPTY, count, CpuOptions::default(), PodLevel::Ignored);
            policy.map(|policy| policy.reserved.to_string()).map_err(|error| error.to_string())
        };
        assert_eq!((reserved(1), reserved(2)), (Ok("0".to_owned()), Ok("0,4".to_owned())));
        assert!(reserved(0).unwrap_err().starts_with("cpuManagerPolicy: "));
        assert!(reserved(9).unwrap_err().ends_with("9 of cpu for both, but 0-7 are online"));
        let offline = CpuManager::new(board(2), &set("1-2"), 0, CpuOptions::default(), PodLevel::Ignored).unwrap_err();
        assert_eq!(offline.to_string(), "reservedSystemCPUs: 1-2 are not all online, online are 0-1");
    }

    #[test]
    fn observed_cpu_sets_are_exclusive_if_no_other_pod_has_them() {
        let found = |entries: &[(&str, &str, &str)]| -> Vec<(PodUid, String, CpuSet)> {
            entries.iter().map(|(pod, name, cpus)| ((*pod).into(), (*name).to_owned(), set(cpus))).collect()
        };
        let board = plain(board(4));
        let all = [("s", "shared", "0,3"), ("p", "a", "1"), ("p", "init", "1-2"), ("old", "x", "5"), ("none", "y", "")];
        assert_eq!(board.plausible(found(&all)), assigned(&[("p", "a", "1"), ("p", "init", "1-2")]));
        // Containers that have not been moved yet have larger sets, with or without the reserved CPU.
        let late = [("late", "x", "0-3"), ("stale", "y", "1-3"), ("p", "a", "1")];
        assert_eq!(board.plausible(found(&late)), assigned(&[("p", "a", "1")]));
    }

    /// A pod with resources of its own: its CPUs, and containers as [`container`] or (without CPUs) in its pool.
    fn whole(cpu: &str, init: Vec<Container>, containers: Vec<Container>) -> Pod {
        let mut whole = pod("p", init, containers);
        whole.spec.resources = Some(Box::new(guaranteed::container("", cpu, "1Gi").resources));
        whole
    }

    fn sharing(name: &str) -> Container {
        Container { name: name.to_owned(), ..Container::default() }
    }

    fn at(level: PodLevel, topology: Topology) -> CpuManager {
        CpuManager::new(topology, &set("0"), 0, CpuOptions::default(), level).unwrap()
    }

    #[test]
    fn containers_of_a_pod_with_resources_get_exclusive_cpus_of_the_node_in_the_container_scope() {
        let board = at(PodLevel::ByContainer, board(4));
        let mut burstable = container("b", "1");
        burstable.resources.limits = crate::types::api::ResourceList::default();
        let mixed = whole("3", vec![], vec![container("a", "2"), sharing("s"), burstable, container("c", "500m")]);
        check(&board, &Assigned::new(), &mixed, "a:1-2");
    }

    #[test]
    fn containers_divide_the_cpus_of_their_pod_in_the_pod_scope() {
        let eight = at(PodLevel::Whole, board(8));
        let none = Assigned::new();
        check(&eight, &none, &whole("4", vec![], vec![sharing("a"), sharing("b")]), "a:1-4 b:1-4");
        check(&eight, &none, &whole("4", vec![], vec![container("a", "2"), sharing("b")]), "a:1-2 b:3-4");
        // Init containers that end share what sidecars leave so far, sidecars what all containers leave.
        let init = vec![sharing("i"), sidecar("s", "1"), sharing("j"), container("k", "3")];
        let late = Container { restart_policy: Some(RestartPolicy::Always), ..sharing("t") };
        let pod = whole("4", [init, vec![late]].concat(), vec![container("a", "2"), sharing("b")]);
        check(&eight, &none, &pod, "a:2-3 b:4 i:1-4 j:2-4 k:2-4 s:1 t:4");
        let own = eight.allocate(&none, &pod, &mut |_, _| Ok(None)).unwrap();
        assert_eq!((own.whole.to_string(), own.sharing.join(" ")), ("1-4".to_owned(), "i j t b".to_owned()));
        // CPUs that no container uses belong to the pod.
        let has =
            [("p".into(), eight.allocate(&none, &whole("4", vec![], vec![container("a", "1")]), &mut |_, _| Ok(None)))];
        let has: Assigned = has.map(|(pod, own): (PodUid, _)| (pod, own.unwrap())).into_iter().collect();
        assert_eq!(eight.shared(&has).to_string(), "0,5-7");
        let other = Pod { metadata: guaranteed::pod("q", vec![], vec![]).metadata, ..pod };
        check(&eight, &has, &Pod { spec: guaranteed::pod("", vec![], vec![container("a", "1")]).spec, ..other }, "a:5");
    }

    #[test]
    fn pod_keeps_its_cpus_and_their_division_after_a_restart() {
        let eight = at(PodLevel::Whole, board(8));
        let pod = whole("4", vec![], vec![container("a", "2"), sharing("b")]);
        let mut has = assigned(&[("p", "a", "5-6"), ("p", "b", "3,7"), ("o", "x", "1")]);
        has.get_mut("p").unwrap().whole = set("3,5-7");
        check(&eight, &has, &pod, "a:5-6 b:3,7");
        // The state was rebuilt from running containers, of which one has ended.
        check(&eight, &assigned(&[("p", "a", "5-6"), ("o", "x", "1")]), &pod, "a:5-6 b:2-3");
    }

    #[test]
    fn pod_whose_shared_pool_is_empty_is_rejected_with_upstreams_message() {
        let eight = at(PodLevel::Whole, board(8));
        let check_rejected = |pod: &Pod, expected: &str| {
            let reason = "EmptyPodSharedPoolError".to_owned();
            assert_eq!(given(&eight, &Assigned::new(), pod), Err((reason, format!("pod rejected, {expected}"))));
            assert_eq!(eight.pod_hints(&Assigned::new(), pod), Some(Vec::new()));
        };
        let full = whole("2", vec![], vec![container("a", "1"), container("b", "1"), sharing("c")]);
        check_rejected(
            &full,
            "sum of exclusive container cpu requests equals pod budget, leaving no cpus for shared containers",
        );
        let sidecars = vec![sidecar("s", "2"), sharing("i")];
        check_rejected(&whole("2", sidecars, vec![]), "pod has shared init containers but no cpus available for them");
        let large = vec![sidecar("s", "1"), container("i", "2")];
        check_rejected(
            &whole("2", large, vec![]),
            "largest exclusive init container requests 2 cpus, but only 1 available",
        );
        let fraction = whole("1500m", vec![], vec![container("a", "1")]);
        assert_eq!(given(&eight, &Assigned::new(), &fraction), Ok(String::new()), "the pod has no exclusive CPUs");
        let few = whole("8", vec![], vec![sharing("a")]);
        assert_eq!(given(&eight, &Assigned::new(), &few).unwrap_err().0, "UnexpectedAdmissionError");
    }

    #[test]
    fn hints_are_for_the_cpus_of_the_pod() {
        let nodes = at(PodLevel::Whole, two_nodes());
        let hints = |cpu, containers| written(nodes.pod_hints(&Assigned::new(), &whole(cpu, vec![], containers)));
        assert_eq!(hints("2", vec![sharing("a")]).unwrap(), ["1+", "0-1"]);
        assert_eq!(hints("2", vec![container("a", "1"), sharing("b")]).unwrap(), ["1+", "0-1"]);
        assert_eq!(hints("1500m", vec![container("a", "1")]), None);
    }
}
