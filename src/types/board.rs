//! What the kernel tells of a board, as plain data. Pure.

use std::path::PathBuf;

/// Empty lists mean that this machine has nothing of the kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BoardReadings {
    pub(crate) flash: Vec<FlashWear>,
    pub(crate) voltages: Vec<VoltageAlarm>,
    pub(crate) zones: Vec<ThermalZone>,
    /// The root file system, and that of the data directory.
    pub(crate) file_systems: Vec<FileSystemState>,
    pub(crate) supplies: Vec<PowerSupply>,
}

/// An eMMC (JESD84-B50, EXT_CSD registers 267 to 269).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FlashWear {
    /// Such as `mmcblk0`.
    pub(crate) device: String,
    /// Of the more worn of its two areas, in tenths, rounded up: 11 is more than all.
    pub(crate) tenths_used: u8,
    /// Of the reserved blocks: 1 normal, 2 most are used, 3 nearly all are used; 0 unknown.
    pub(crate) reserve: u8,
}

/// A sensor that says whether a voltage is critically low.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VoltageAlarm {
    /// Such as `rpi_volt`.
    pub(crate) sensor: String,
    pub(crate) is_low: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ThermalZone {
    /// Such as `cpu-thermal`.
    pub(crate) name: String,
    pub(crate) millidegrees: i64,
    /// The lowest trip point at which the board slows down or switches off.
    pub(crate) limit_millidegrees: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileSystemState {
    /// The mount point.
    pub(crate) path: PathBuf,
    /// The kernel's name of its device, such as `mmcblk0p2`; empty for others.
    pub(crate) device: String,
    pub(crate) is_read_only: bool,
    /// Errors that ext4 has recorded since the last check; `None` for others.
    pub(crate) errors: Option<u64>,
    /// Failed requests of its disk since the boot; `None` if the disk does not count them.
    pub(crate) io_errors: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PowerSupply {
    pub(crate) name: String,
    pub(crate) is_battery: bool,
    /// Whether power comes from it; `None` for batteries.
    pub(crate) is_online: Option<bool>,
    pub(crate) percent: Option<u64>,
    pub(crate) is_discharging: bool,
}

impl BoardReadings {
    /// Whether a battery gives the power, and nothing else. False if nothing tells.
    pub(crate) fn is_on_battery(&self) -> bool {
        let is_online = self.supplies.iter().any(|supply| supply.is_online == Some(true));
        !is_online && self.supplies.iter().any(|supply| supply.is_battery && supply.is_discharging)
    }

    /// Whether anything changes that the kernel does not report.
    pub(crate) fn has_sensors(&self) -> bool {
        !(self.flash.is_empty() && self.voltages.is_empty() && self.zones.is_empty() && self.supplies.is_empty())
    }
}
