//! Settings of the CPU, memory and topology managers. Pure.

use serde_json::{Map, Value, json};

use super::check::{Problem, conflict, go_bool};
use super::fields::Fields;
use super::reserved::Reservations;
use crate::types::api::{CPU, Format, HUGE_PAGES_PREFIX, MEMORY, Quantity};
use crate::types::cpu_set::CpuSet;

/// The settings of the resource managers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Managers {
    /// `None`: CPU manager policy `none`, without exclusive CPUs.
    pub(crate) static_cpus: Option<CpuOptions>,
    /// `None`: topology manager policy `none`.
    pub(crate) topology: Option<TopologyManager>,
    /// Memory manager policy `Static`: containers of guaranteed pods are bound to NUMA nodes.
    pub(crate) static_memory: bool,
    /// Memory reserved for the system: NUMA node, type, and bytes.
    pub(crate) reserved_memory: Vec<(u32, String, u64)>,
    /// The CPUs reserved for the system; if empty, their number follows from the reserved amount.
    pub(crate) reserved_cpus: CpuSet,
}

/// Options of the static CPU manager policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuOptions {
    /// Allocate whole physical cores only.
    pub(crate) full_cores: bool,
    /// Keep other containers off the reserved CPUs as well.
    pub(crate) strict_reservation: bool,
    /// Distribute allocations larger than one NUMA node evenly.
    pub(crate) across_nodes: bool,
    /// Allocate from as few uncore caches as possible.
    pub(crate) by_cache: bool,
}

/// The topology manager's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TopologyManager {
    pub(crate) policy: TopologyPolicy,
    /// Align the resources of all containers of a pod together instead of per container.
    pub(crate) pod_scope: bool,
    /// The policy fails with more NUMA nodes, which have too many combinations.
    pub(crate) most_nodes: usize,
    /// Of as many NUMA nodes, prefer those with the shortest distances.
    pub(crate) closest_nodes: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TopologyPolicy {
    /// Prefer the best alignment.
    BestEffort,
    /// Require an alignment that is the best possible on this machine.
    Restricted,
    /// Require a single NUMA node.
    SingleNumaNode,
}

/// The lowest value allowed.
const MIN_MAX_NUMA_NODES: usize = 8;
const OPTIONS: &str = "cpuManagerPolicyOptions";
const ACROSS_NODES: &str = "distribute-cpus-across-numa";
const BY_CACHE: &str = "prefer-align-cpus-by-uncorecache";
const RESERVED_CPUS_FIELD: &str = "reservedSystemCPUs";
pub(super) const RESERVED_MEMORY_FIELD: &str = "reservedMemory";

/// CPUs that are reserved by number replace the CPUs in `reserved`.
pub(super) fn read(fields: &Fields<'_>, reserved: &mut Reservations) -> Result<Managers, Problem> {
    let is_set = |name: &str| fields.text(&format!("{OPTIONS}.{name}")).and_then(go_bool) == Some(true);
    let is_static = fields.text("cpuManagerPolicy") == Some("static");
    let options = fields.at(OPTIONS).and_then(Value::as_object);
    if !is_static && options.is_some_and(|options| !options.is_empty()) {
        return Err(conflict(OPTIONS, "requires cpuManagerPolicy static".to_owned()));
    }
    if is_set(BY_CACHE) && is_set(ACROSS_NODES) {
        return Err(conflict(OPTIONS, format!("{BY_CACHE} and {ACROSS_NODES} exclude each other")));
    }
    let static_cpus = is_static.then(|| CpuOptions {
        full_cores: is_set("full-pcpus-only"),
        strict_reservation: is_set("strict-cpu-reservation"),
        across_nodes: is_set(ACROSS_NODES),
        by_cache: is_set(BY_CACHE),
    });
    Ok(Managers {
        static_cpus,
        topology: topology(fields)?,
        static_memory: fields.text("memoryManagerPolicy") == Some("Static"),
        reserved_memory: reserved_memory(fields)?,
        reserved_cpus: reserved_cpus(fields, reserved)?,
    })
}

fn reserved_cpus(fields: &Fields<'_>, reserved: &mut Reservations) -> Result<CpuSet, Problem> {
    let Some(cpus) = fields.text(RESERVED_CPUS_FIELD).and_then(CpuSet::parse) else { return Ok(CpuSet::default()) };
    for (path, group) in reserved.groups() {
        if !group.is_empty() {
            return Err(conflict(RESERVED_CPUS_FIELD, format!("must not be set with {path}")));
        }
    }
    let count = i64::try_from(cpus.len()).unwrap_or(i64::MAX);
    reserved.system.insert(CPU, Quantity::new(count, Format::DecimalSi));
    reserved.kube.remove(CPU);
    Ok(cpus)
}

fn reserved_memory(fields: &Fields<'_>) -> Result<Vec<(u32, String, u64)>, Problem> {
    let mut reserved: Vec<(u32, String, u64)> = Vec::new();
    for reservation in fields.at(RESERVED_MEMORY_FIELD).and_then(Value::as_array).into_iter().flatten() {
        let node = reservation.get("numaNode").and_then(Value::as_u64).unwrap_or(0);
        let node = u32::try_from(node).unwrap_or(u32::MAX);
        for (kind, size) in reservation.get("limits").and_then(Value::as_object).into_iter().flatten() {
            let text = size.as_str().map_or_else(|| size.to_string(), str::to_owned);
            let size = text.parse().ok().and_then(|size: Quantity| u64::try_from(size.value()).ok()).unwrap_or(0);
            let is_memory = kind == MEMORY || kind.starts_with(HUGE_PAGES_PREFIX);
            let fault = if !is_memory {
                format!("expected memory or hugepages-SIZE, found {kind:?}")
            } else if size == 0 {
                format!("expected more than 0 of {kind} on node {node}")
            } else if reserved.iter().any(|(other, name, _)| *other == node && name == kind) {
                format!("{kind} on node {node} is given twice")
            } else {
                reserved.push((node, kind.clone(), size));
                continue;
            };
            return Err(conflict(RESERVED_MEMORY_FIELD, fault));
        }
    }
    Ok(reserved)
}

/// Converts `--reserved-memory` to the form of the field: `0:memory=1Gi,hugepages-2Mi=4Mi;1:memory=1Gi`.
pub(super) fn parse_reserved_memory(text: &str) -> Result<Value, String> {
    let wanted = || format!("expected NODE:KIND=QUANTITY,... such as 0:memory=1Gi, found {text:?}");
    let mut reservations = Vec::new();
    for reservation in text.split(';') {
        let (node, limits) = reservation.split_once(':').ok_or_else(wanted)?;
        let node: u32 = node.trim().parse().map_err(|_| wanted())?;
        let mut list = Map::new();
        for limit in limits.split(',') {
            let (kind, size) = limit.split_once('=').ok_or_else(wanted)?;
            size.trim().parse::<Quantity>().map_err(|_| wanted())?;
            list.insert(kind.trim().to_owned(), json!(size.trim()));
        }
        reservations.push(json!({ "numaNode": node, "limits": list }));
    }
    Ok(Value::Array(reservations))
}

fn topology(fields: &Fields<'_>) -> Result<Option<TopologyManager>, Problem> {
    const CLOSEST_NODES_OPTION: &str = "topologyManagerPolicyOptions.prefer-closest-numa-nodes";
    const NODE_LIMIT_OPTION: &str = "topologyManagerPolicyOptions.max-allowable-numa-nodes";
    let policy = match fields.text("topologyManagerPolicy") {
        Some("best-effort") => TopologyPolicy::BestEffort,
        Some("restricted") => TopologyPolicy::Restricted,
        Some("single-numa-node") => TopologyPolicy::SingleNumaNode,
        _ => return Ok(None),
    };
    let most = fields
        .text(NODE_LIMIT_OPTION)
        .map(|most| most.parse().ok().filter(|most| *most >= MIN_MAX_NUMA_NODES).ok_or(most));
    let most_nodes = most.unwrap_or(Ok(MIN_MAX_NUMA_NODES));
    let most_nodes = most_nodes.map_err(|value| {
        conflict(NODE_LIMIT_OPTION, format!("expected a number from {MIN_MAX_NUMA_NODES}, found {value:?}"))
    })?;
    let pod_scope = fields.text("topologyManagerScope") == Some("pod");
    let closest_nodes = fields.text(CLOSEST_NODES_OPTION).and_then(go_bool) == Some(true);
    Ok(Some(TopologyManager { policy, pod_scope, most_nodes, closest_nodes }))
}
