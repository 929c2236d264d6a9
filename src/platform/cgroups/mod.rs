//! cgroup v2: names, files, and systemd where it manages them.
//!
//! [`Tree`] is the hierarchy below a given root. [`Groups`] creates, updates and removes groups with either driver.
//! Everything here blocks, for microseconds with files and for milliseconds with systemd.

mod containers;
mod cpuset;
mod error;
mod groups;
mod name;
mod stat_files;
mod systemd;
mod tree;
mod usage;
mod values;

pub(crate) use containers::{ContainerProcesses, anywhere, below, group_of, signal_process_of};
pub(crate) use cpuset::{cpuset_of, mems_of};
pub(crate) use error::CgroupError;
pub(crate) use groups::Groups;
pub(crate) use name::{CLASSES, CgroupName, is_pod};
#[cfg(test)]
pub(crate) use stat_files::Bound;
pub(crate) use stat_files::{CpuStat, DeviceIo, MemoryStat, oom_kills};
pub(crate) use tree::Tree;
pub(crate) use usage::{Depth, Usage, UsageReader};
pub(crate) use values::{
    CpuMax, Limit, MIN_CPU_SHARES, Values, cpu_quota, cpu_shares, cpu_weight, is_weight_of, page_size_name,
};

/// The usual mount point.
pub(crate) const HIERARCHY: &str = "/sys/fs/cgroup";
