//! Control groups of v2: their names, their files, and systemd where it owns them.
//!
//! [`Tree`] is the hierarchy as the kernel shows it, below a root that is given. [`Groups`] makes, sets and removes
//! groups with either driver. Everything here blocks, for microseconds with files and for milliseconds with systemd.

mod cpuset;
mod error;
mod groups;
mod name;
mod stat_files;
mod systemd;
mod tree;
mod usage;
mod values;

pub(crate) use cpuset::{cpuset_of, mems_of};
pub(crate) use error::CgroupError;
pub(crate) use groups::Groups;
pub(crate) use name::{CgroupName, is_pod};
#[cfg(test)]
pub(crate) use stat_files::Bound;
pub(crate) use stat_files::{CpuStat, MemoryStat, oom_kills};
pub(crate) use tree::Tree;
pub(crate) use usage::{Depth, Usage, UsageReader};
pub(crate) use values::{
    CpuMax, LEAST_SHARES, Limit, Values, cpu_quota, cpu_shares, cpu_weight, is_weight_of, page_size_name,
};

/// Where the hierarchy is mounted.
pub(crate) const HIERARCHY: &str = "/sys/fs/cgroup";
