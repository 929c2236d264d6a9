//! Kernel version and AppArmor state of the host.

use std::fs;

use super::app_armor::{AppArmor, loaded};
use crate::platform::host::procfs::Procfs;
use crate::types::api::{KernelVersion, kernel_version};

pub(super) fn kernel() -> KernelVersion {
    kernel_version(&Procfs::host().sysctl::<String>("kernel/osrelease").unwrap_or_default())
}

pub(super) fn app_armor() -> AppArmor {
    let enabled = fs::read_to_string("/sys/module/apparmor/parameters/enabled").unwrap_or_default();
    let profiles = fs::read_to_string("/sys/kernel/security/apparmor/profiles");
    AppArmor { is_enabled: enabled.starts_with('Y'), profiles: profiles.ok().map(|text| loaded(&text)) }
}

/// In Rust's spelling.
pub(super) const MACHINE: &str = std::env::consts::ARCH;
