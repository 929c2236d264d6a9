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
