//! Control groups of v2: their names, their files, and systemd where it owns them.
//!
//! [`Tree`] is the hierarchy as the kernel shows it, below a root that is given. [`Groups`] makes, sets and removes
//! groups with either driver. Everything here blocks, for microseconds with files and for milliseconds with systemd.

mod error;
mod groups;
mod name;
mod stat_files;
mod systemd;
mod tree;
mod values;

pub(crate) use error::CgroupError;
pub(crate) use groups::Groups;
pub(crate) use name::{CgroupName, is_pod};
pub(crate) use stat_files::oom_kills;
pub(crate) use values::{CpuMax, LEAST_SHARES, Limit, Values, cpu_quota, cpu_shares, cpu_weight, page_size_name};
