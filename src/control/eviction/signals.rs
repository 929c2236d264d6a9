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
