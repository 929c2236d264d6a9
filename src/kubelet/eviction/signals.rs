//! Eviction signals and their observations. Pure.

use crate::platform::config::Signal;
use crate::state::pods::Pressure;
use crate::types::api::{EPHEMERAL_STORAGE, Format, MEMORY, Quantity};
use crate::types::sorted::SortedMap;

/// Available amount and capacity of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Observation {
    pub(crate) available: u64,
    pub(crate) capacity: u64,
}

/// A signal that could not be measured has no entry.
pub(crate) type Observations = SortedMap<Signal, Observation>;

/// The starved resource that an eviction frees, with upstream's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Starved {
    Memory,
    Storage,
    Inodes,
    Pids,
}

impl Starved {
    pub(crate) fn of(signal: Signal) -> Self {
        match signal {
            Signal::MemoryAvailable | Signal::AllocatableMemoryAvailable => Self::Memory,
            Signal::NodeFsAvailable | Signal::ImageFsAvailable | Signal::ContainerFsAvailable => Self::Storage,
            Signal::NodeFsInodesFree | Signal::ImageFsInodesFree | Signal::ContainerFsInodesFree => Self::Inodes,
            Signal::PidAvailable => Self::Pids,
        }
    }

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => MEMORY,
            Self::Storage => EPHEMERAL_STORAGE,
            Self::Inodes => "inodes",
            Self::Pids => "pids",
        }
    }

    pub(crate) fn pressure(self) -> Pressure {
        match self {
            Self::Memory => Pressure::Memory,
            Self::Storage | Self::Inodes => Pressure::Disk,
            Self::Pids => Pressure::Pid,
        }
    }

    /// `amount` as a quantity in upstream's format.
    pub(crate) fn quantity(self, amount: u64) -> Quantity {
        let format = match self {
            Self::Memory | Self::Storage => Format::BinarySi,
            Self::Inodes | Self::Pids => Format::DecimalSi,
        };
        Quantity::new(i64::try_from(amount).unwrap_or(i64::MAX), format)
    }
}

/// Fields of `/proc/meminfo` in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MemInfo {
    pub(super) total: u64,
    pub(super) available: u64,
}

impl MemInfo {
    pub(super) fn parse(text: &str) -> Self {
        let line = |key: &str| {
            let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
            rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib.saturating_mul(1024))
        };
        // Kernels before 3.14 have no MemAvailable.
        let available = line("MemAvailable:").or_else(|| line("MemFree:"));
        Self { total: line("MemTotal:").unwrap_or(0), available: available.unwrap_or(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_parsed_with_and_without_available() {
        let text = "MemTotal:        2000 kB\nMemFree:  100 kB\nMemAvailable:    500 kB\n";
        assert_eq!(MemInfo::parse(text), MemInfo { total: 2000 << 10, available: 500 << 10 });
        assert_eq!(MemInfo::parse("MemTotal: 2 kB\nMemFree: 1 kB\n"), MemInfo { total: 2048, available: 1024 });
        assert_eq!(MemInfo::parse(""), MemInfo::default());
    }
}
