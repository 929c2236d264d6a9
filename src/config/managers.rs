//! Which processors are kept for whom. Pure.

use super::check::{Problem, go_bool};
use super::effective::{Config, conflict};
use super::fields::Fields;
use crate::api::{CPU, Format, Quantity};
use crate::cpu_set::CpuSet;

/// The managers of the node's resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Managers {
    /// `None`: no container has processors for itself.
    pub(crate) static_cpus: Option<CpuOptions>,
    /// `None`: processors and other resources are not brought together.
    pub(crate) topology: Option<TopologyManager>,
    /// Those of the system, by their numbers; empty: it has as many as are reserved.
    pub(crate) reserved_cpus: CpuSet,
}

/// How the static policy chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuOptions {
    /// Whole cores only.
    pub(crate) full_cores: bool,
    /// What is reserved is not shared by other containers either.
    pub(crate) strict_reservation: bool,
    /// More than one node has is spread evenly.
    pub(crate) across_nodes: bool,
}

/// Whether the resources of a container have to be near each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TopologyManager {
    pub(crate) policy: TopologyPolicy,
    /// Those of all of a pod's containers are brought together, not those of each.
    pub(crate) pod_scope: bool,
    /// With more nodes there are too many combinations.
    pub(crate) most_nodes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TopologyPolicy {
    /// As near as they can be.
    BestEffort,
    /// As near as they can ever be on this machine.
    Restricted,
    /// In one node.
    SingleNumaNode,
}

/// Fewer cannot be asked for.
const MOST_NODES: usize = 8;
const OPTIONS: &str = "cpuManagerPolicyOptions";
const RESERVED: &str = "reservedSystemCPUs";

impl Config {
    pub(super) fn take_managers(&mut self, fields: &Fields<'_>) -> Result<(), Problem> {
        let is_set = |name: &str| fields.text(&format!("{OPTIONS}.{name}")).and_then(go_bool) == Some(true);
        if fields.text("cpuManagerPolicy") == Some("static") {
            self.managers.static_cpus = Some(CpuOptions {
                full_cores: is_set("full-pcpus-only"),
                strict_reservation: is_set("strict-cpu-reservation"),
                across_nodes: is_set("distribute-cpus-across-numa"),
            });
        } else if fields.at(OPTIONS).and_then(|options| options.as_object()).is_some_and(|options| !options.is_empty())
        {
            return Err(conflict(OPTIONS, "expected cpuManagerPolicy static beside it".to_owned()));
        }
        self.managers.topology = topology(fields)?;
        let Some(reserved) = fields.text(RESERVED).and_then(CpuSet::parse) else { return Ok(()) };
        for (group, path) in
            [(&self.system_reserved_cgroup, "systemReservedCgroup"), (&self.kube_reserved_cgroup, "kubeReservedCgroup")]
        {
            if !group.is_empty() {
                return Err(conflict(RESERVED, format!("expected no {path} beside it")));
            }
        }
        // As many processors are the system's, whatever else is said of them.
        let count = i64::try_from(reserved.len()).unwrap_or(i64::MAX);
        self.system_reserved.insert(CPU, Quantity::new(count, Format::DecimalSi));
        self.kube_reserved.remove(CPU);
        self.managers.reserved_cpus = reserved;
        Ok(())
    }
}

fn topology(fields: &Fields<'_>) -> Result<Option<TopologyManager>, Problem> {
    const MOST: &str = "topologyManagerPolicyOptions.max-allowable-numa-nodes";
    let policy = match fields.text("topologyManagerPolicy") {
        Some("best-effort") => TopologyPolicy::BestEffort,
        Some("restricted") => TopologyPolicy::Restricted,
        Some("single-numa-node") => TopologyPolicy::SingleNumaNode,
        _ => return Ok(None),
    };
    let most = fields.text(MOST).map(|most| most.parse().ok().filter(|most| *most >= MOST_NODES).ok_or(most));
    let most_nodes = most.unwrap_or(Ok(MOST_NODES));
    let most_nodes =
        most_nodes.map_err(|found| conflict(MOST, format!("expected a number from {MOST_NODES}, found {found:?}")))?;
    Ok(Some(TopologyManager { policy, pod_scope: fields.text("topologyManagerScope") == Some("pod"), most_nodes }))
}
