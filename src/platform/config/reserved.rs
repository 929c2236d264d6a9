//! Resources that pods do not get. Pure.

use serde_json::Value;

use super::cgroups::check_path;
use super::check::{Problem, conflict};
use super::fields::Fields;
use crate::types::api::ResourceList;

/// Node allocatable: `systemReserved`, `kubeReserved`, `systemReservedCgroup`, `kubeReservedCgroup` and
/// `enforceNodeAllocatable`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reservations {
    pub(crate) system: ResourceList,
    pub(crate) kube: ResourceList,
    /// The control groups that these are enforced on; empty: none.
    pub(crate) system_cgroup: String,
    pub(crate) kube_cgroup: String,
    pub(crate) enforced: EnforcedLimits,
}

/// Which reservations are enforced by limits of cgroups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EnforcedLimits {
    /// The pods together are limited to what is not reserved.
    pub(crate) pods: bool,
    /// The services of the system, or those of Kubernetes, are limited to their reservation.
    pub(crate) system: bool,
    pub(crate) kube: bool,
    /// The same for CPU only.
    pub(crate) system_compressible: bool,
    pub(crate) kube_compressible: bool,
}

impl Default for Reservations {
    fn default() -> Self {
        Self {
            system: ResourceList::default(),
            kube: ResourceList::default(),
            system_cgroup: String::new(),
            kube_cgroup: String::new(),
            enforced: EnforcedLimits { pods: true, ..EnforcedLimits::default() },
        }
    }
}

const SYSTEM_CGROUP: &str = "systemReservedCgroup";
const KUBE_CGROUP: &str = "kubeReservedCgroup";

impl Reservations {
    /// The configured control groups, and the fields that they come from.
    pub(super) fn groups(&self) -> [(&'static str, &str); 2] {
        [(SYSTEM_CGROUP, &self.system_cgroup), (KUBE_CGROUP, &self.kube_cgroup)]
    }
}

/// `cgroups_per_qos`: pods have control groups.
pub(super) fn read(fields: &Fields<'_>, cgroups_per_qos: bool) -> Result<Reservations, Problem> {
    let group = |path: &str| fields.text(path).unwrap_or_default().to_owned();
    let mut reserved = Reservations {
        system: fields.reserved("systemReserved"),
        kube: fields.reserved("kubeReserved"),
        system_cgroup: group(SYSTEM_CGROUP),
        kube_cgroup: group(KUBE_CGROUP),
        enforced: EnforcedLimits::default(),
    };
    for (path, group) in reserved.groups() {
        check_path(path, group)?;
    }
    reserved.enforced = enforced(fields, &reserved, cgroups_per_qos)?;
    Ok(reserved)
}

fn enforced(fields: &Fields<'_>, reserved: &Reservations, cgroups_per_qos: bool) -> Result<EnforcedLimits, Problem> {
    const PATH: &str = "enforceNodeAllocatable";
    let levels: Vec<&str> = match fields.at(PATH).and_then(Value::as_array) {
        Some(levels) => levels.iter().filter_map(Value::as_str).filter(|level| !level.is_empty()).collect(),
        None if cgroups_per_qos => vec!["pods"],
        None => Vec::new(),
    };
    let has = |level| levels.contains(&level);
    let others = levels.iter().any(|level| *level != "none");
    if others && !cgroups_per_qos {
        return Err(conflict(PATH, "expected none where cgroupsPerQOS is false".to_owned()));
    }
    if others && has("none") {
        return Err(conflict(PATH, "none excludes all other values".to_owned()));
    }
    for (whole, compressible, group, named) in [
        ("system-reserved", "system-reserved-compressible", SYSTEM_CGROUP, &reserved.system_cgroup),
        ("kube-reserved", "kube-reserved-compressible", KUBE_CGROUP, &reserved.kube_cgroup),
    ] {
        if has(whole) && has(compressible) {
            return Err(conflict(PATH, format!("expected {whole} or {compressible}, found both")));
        }
        if (has(whole) || has(compressible)) && named.is_empty() {
            return Err(conflict(group, format!("required where {PATH} has {whole} or {compressible}")));
        }
    }
    Ok(EnforcedLimits {
        pods: has("pods"),
        system: has("system-reserved"),
        kube: has("kube-reserved"),
        system_compressible: has("system-reserved-compressible"),
        kube_compressible: has("kube-reserved-compressible"),
    })
}
