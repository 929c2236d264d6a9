//! Kernel version and AppArmor support of the host.

use std::fs;

use crate::platform::host::procfs::Procfs;
use crate::types::api::{KernelVersion, kernel_version};

pub(super) fn kernel() -> KernelVersion {
    kernel_version(&Procfs::host().sysctl::<String>("kernel/osrelease").unwrap_or_default())
}

pub(super) fn has_app_armor() -> bool {
    let enabled = fs::read_to_string("/sys/module/apparmor/parameters/enabled").unwrap_or_default();
    enabled.starts_with('Y')
}

/// In Rust's spelling.
pub(super) const MACHINE: &str = std::env::consts::ARCH;
