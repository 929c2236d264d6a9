//! The static CPU policy: exclusive CPUs for containers of guaranteed pods with integer CPU requests. Pure.
//!
//! `staticPolicy` in pkg/kubelet/cm/cpumanager.

use super::cpu_assignment::{take_by_cache, take_distributed, take_packed};
use super::cpu_topology::{Level, Topology};
use super::settings_error::SettingsError;
use super::topology_manager::{self, Hints, Nodes};
use crate::platform::config::CpuOptions;
use crate::state::pods::Assigned;
use crate::types::api::{CPU, Container, Pod, PodUid, QosClass, Reason, qos_class};
use crate::types::cpu_set::CpuSet;
use crate::types::sorted::SortedMap;

/// The reason and message of a rejected pod, as upstream.
pub(crate) type AllocationRejection = (Reason, String);

#[derive(Clone, Debug)]
pub(crate) struct CpuManager {
    pub(super) topology: Topology,
    /// CPUs that are never exclusive.
    pub(super) reserved: CpuSet,
    options: CpuOptions,
}

impl CpuManager {
    /// Reserves the CPUs in `named`, or if that is empty any `count` CPUs.
    pub(super) fn new(
        topology: Topology,
        named: &CpuSet,
        count: usize,
        options: CpuOptions,
    ) -> Result<Self, SettingsError> {
        let all = topology.all();
        if !named.is_within(&all) {
            return Err(SettingsError::OfflineCpus { reserved: named.clone(), online: all });
        }
        let mut policy = Self { topology, reserved: named.clone(), options };
        if named.is_empty() {
            if count == 0 {
                return Err(SettingsError::NoReservedCpus);
            }
            let reserved = policy.take(&all, count);
            policy.reserved = reserved.ok_or(SettingsError::TooFewCpus { reserved: count, online: all })?;
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

    /// CPUs of all containers without exclusive ones.
    pub(super) fn shared(&self, assigned: &Assigned) -> CpuSet {
        let shared = self.topology.all().without(&all_of(assigned));
        if self.options.strict_reservation { shared.without(&self.reserved) } else { shared }
    }

    /// The entries of `found` that are possible exclusive sets, smallest first, because shared sets are larger.
    pub(super) fn plausible(&self, mut found: Vec<(PodUid, String, CpuSet)>) -> Assigned {
        let allocatable = self.allocatable();
        found.retain(|(.., cpus)| !cpus.is_empty() && cpus.is_within(&allocatable));
        found.sort_by_key(|(.., cpus)| cpus.len());
        let mut assigned = Assigned::new();
        for (pod, container, cpus) in found {
            let mut others = assigned.iter().filter(|(other, _)| **other != pod);
            if !others.any(|(_, containers)| containers.values().any(|other| other.overlaps(&cpus))) {
                assigned.entry(pod).or_default().insert(container, cpus);
            }
        }
        assigned
    }

    /// The exclusive CPUs of the pod's containers: their present ones, or else free ones. `near` is called for each
    /// container and returns the NUMA nodes to prefer.
    pub(super) fn allocate(
        &self,
        assigned: &Assigned,
        pod: &Pod,
        near: &mut PreferredNodes<'_>,
    ) -> Result<SortedMap<String, CpuSet>, AllocationRejection> {
        let had = assigned.get(&pod.metadata.uid);
        let had_by = |container: &Container| {
            let cpus = had?.get(&container.name)?;
            (cpus.len() == own_cpus(pod, container)).then_some(cpus)
        };
        // An init container ends before the next one starts, unless it is a sidecar.
        let init = pod.spec.init_containers.iter().map(|container| (container, !container.is_sidecar()));
        let all = || init.clone().chain(pod.spec.containers.iter().map(|container| (container, false)));
        let kept = |ended: bool| {
            let kept = all().filter(|(_, ends)| !ends || ended).filter_map(|(container, _)| had_by(container));
            kept.fold(CpuSet::EMPTY, |sum, cpus| sum.with(cpus))
        };
        let others = assigned.iter().filter(|(other, _)| **other != pod.metadata.uid);
        let others = others.flat_map(|(_, containers)| containers.values());
        let taken_by_others = others.fold(kept(true), |sum, cpus| sum.with(cpus));
        let mut free = self.allocatable().without(&taken_by_others);
        let (stays, mut reusable) = (kept(false), CpuSet::EMPTY);
        let mut taken = SortedMap::<String, CpuSet>::new();
        for (container, ends) in all() {
            let wanted = own_cpus(pod, container);
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
        Ok(taken)
    }

    /// Hints for all containers of the pod together; `None` if no container needs exclusive CPUs.
    pub(super) fn pod_hints(&self, assigned: &Assigned, pod: &Pod) -> Option<Hints> {
        let (mut init, mut stay) = (0, 0);
        for container in &pod.spec.init_containers {
            let wanted = stay + own_cpus(pod, container);
            init = init.max(wanted);
            stay = if container.is_sidecar() { wanted } else { stay };
        }
        let wanted = pod.spec.containers.iter().fold(stay, |sum, container| sum + own_cpus(pod, container)).max(init);
        let had = assigned.get(&pod.metadata.uid);
        let has = had.into_iter().flat_map(SortedMap::values).fold(CpuSet::EMPTY, |sum, cpus| sum.with(cpus));
        let free = self.allocatable().without(&all_of(assigned));
        (wanted > 0).then(|| match has.len() == wanted {
            true => self.hints(&has, &CpuSet::EMPTY, wanted),
            false => self.hints(&free, &has, wanted),
        })
    }

    /// The NUMA node sets that have enough CPUs and include all reusable ones.
    fn hints(&self, free: &CpuSet, reusable: &CpuSet, wanted: usize) -> Hints {
        let (all, nodes) = (self.topology.all(), Nodes::of(&self.topology.nodes()));
        let near = |cpus: &CpuSet, nodes: Nodes| self.topology.within(Level::Node, &nodes.numbers()).common(cpus).len();
        let can = |nodes| {
            let reused = near(reusable, nodes);
            reused == reusable.len() && near(free, nodes) + reused >= wanted
        };
        topology_manager::hints(nodes, &|nodes| near(&all, nodes) >= wanted, &can)
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
        let whole = free.clone().without(&self.topology.whole_cores(&self.reserved)).len();
        let why = if wanted % per_core != 0 {
            format!("requested {wanted} cpus not multiple cpus per core = {per_core}")
        } else if wanted > whole {
            format!(
                "not enough free physical CPUs: available physical CPUs = {whole}, requested CPUs = {wanted}, CPUs per core = {per_core}"
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
    let sets = assigned.values().flat_map(SortedMap::values);
    sets.fold(CpuSet::EMPTY, |sum, cpus| sum.with(cpus))
}

/// The rejection for a failed allocation.
pub(crate) fn unexpected(why: &str) -> AllocationRejection {
    (Reason::UNEXPECTED_ADMISSION_ERROR, format!("Allocate failed due to {why}, which is unexpected"))
}

/// Number of exclusive CPUs of a container; zero in pods with pod-level resources.
pub(super) fn own_cpus(pod: &Pod, container: &Container) -> usize {
    let whole = pod.spec.resources.as_deref().is_some_and(|all| !all.requests.is_empty() || !all.limits.is_empty());
    if whole || qos_class(pod) != QosClass::Guaranteed {
        return 0;
    }
    let request = container.resources.request(CPU).unwrap_or_default();
    let is_whole = i128::from(request.value()) * 1_000_000_000 == request.nanos();
    if is_whole { usize::try_from(request.value()).unwrap_or(0) } else { 0 }
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
        CpuManager::new(topology, &set(reserved), 0, options).unwrap()
    }

    fn plain(topology: Topology) -> CpuManager {
        policy(topology, "0", CpuOptions::default())
    }

    fn assigned(entries: &[(&str, &str, &str)]) -> Assigned {
        let mut assigned = Assigned::new();
        for (pod, container, cpus) in entries {
            assigned.entry((*pod).into()).or_default().insert((*container).to_owned(), set(cpus));
        }
        assigned
    }

    /// The exclusive CPUs as `name:cpus`, or the reason and message of the rejection.
    fn given(policy: &CpuManager, assigned: &Assigned, pod: &Pod) -> Result<String, (String, String)> {
        let own = policy.allocate(assigned, pod, &mut |_, _| Ok(None));
        let own = own.map_err(|(reason, message)| (reason.as_str().to_owned(), message))?;
        Ok(own.iter().map(|(name, cpus)| format!("{name}:{cpus}")).collect::<Vec<_>>().join(" "))
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
            nodes.allocate(&Assigned::new(), &asks, &mut |_, _| Ok(Some(near))).unwrap()["a"].to_string()
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
            let policy = CpuManager::new(single_socket(), &CpuSet::EMPTY, count, CpuOptions::default());
            policy.map(|policy| policy.reserved.to_string()).map_err(|error| error.to_string())
        };
        assert_eq!((reserved(1), reserved(2)), (Ok("0".to_owned()), Ok("0,4".to_owned())));
        assert!(reserved(0).unwrap_err().starts_with("cpuManagerPolicy: "));
        assert!(reserved(9).unwrap_err().ends_with("9 of cpu for both, but 0-7 are online"));
        let offline = CpuManager::new(board(2), &set("1-2"), 0, CpuOptions::default()).unwrap_err();
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
}
