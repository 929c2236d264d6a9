//! Why the settings of the managers do not fit this machine. Pure.

use std::fmt;

use crate::types::cpu_set::CpuSet;

/// The messages name the setting.
#[derive(Debug)]
pub(crate) enum SettingsError {
    /// `prefer-closest-numa-nodes`, as upstream, which does not start without distances.
    NoDistances,
    /// The static CPU policy without reserved CPUs.
    NoReservedCpus,
    /// A reserved CPU is not online.
    OfflineCpus {
        reserved: CpuSet,
        online: CpuSet,
    },
    ReservedMemory {
        kind: String,
        expected: u64,
        found: u64,
    },
    /// More CPUs are reserved than online.
    TooFewCpus {
        reserved: usize,
        online: CpuSet,
    },
    TooManyNodes {
        most: usize,
        found: usize,
    },
    /// Memory is reserved on a NUMA node that does not exist.
    UnknownNode(u32),
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDistances => f.write_str(
                "topologyManagerPolicyOptions.prefer-closest-numa-nodes: the kernel shows no distances of NUMA nodes",
            ),
            Self::NoReservedCpus => f.write_str(
                "cpuManagerPolicy: expected CPUs in reservedSystemCPUs, or cpu in systemReserved or kubeReserved, with \
                 the static policy: containers without exclusive CPUs need one",
            ),
            Self::OfflineCpus { reserved, online } => {
                write!(f, "reservedSystemCPUs: {reserved} are not all online, online are {online}")
            }
            Self::ReservedMemory { kind, expected, found } => write!(
                f,
                "reservedMemory: expected {expected} bytes of {kind} on all nodes, the sum of systemReserved, \
                 kubeReserved and evictionHard, found {found}"
            ),
            Self::TooFewCpus { reserved, online } => {
                write!(f, "systemReserved and kubeReserved: {reserved} of cpu for both, but {online} are online")
            }
            Self::TooManyNodes { most, found } => write!(
                f,
                "topologyManagerPolicy: expected none on a machine with more than {most} NUMA nodes, found {found}"
            ),
            Self::UnknownNode(node) => write!(f, "reservedMemory: NUMA node {node} does not exist"),
        }
    }
}

impl std::error::Error for SettingsError {}
