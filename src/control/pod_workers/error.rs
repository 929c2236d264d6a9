//! Why a pod was not synced, or not cleaned up. Pure.

use std::error::Error;
use std::fmt;

use crate::kubelet::devices::DeviceError;
use crate::kubelet::dra::DraError;
use crate::kubelet::volumes;
use crate::platform::cgroups::CgroupError;
use crate::platform::cri;
use crate::types::api::Reason;

/// The messages are upstream's where upstream has one.
#[derive(Debug)]
pub(super) enum SyncError {
    /// The pod's cgroup, which upstream's message calls its container.
    Cgroup(CgroupError),
    Claims(DraError),
    Devices(DeviceError),
    /// The pod is to be rejected.
    DevicesRefused(DeviceError),
    /// Files of an earlier pod with this uid are still being removed.
    FormerFiles,
    ResizeRefused(cri::Error),
}

/// What is left of a pod that has ended.
#[derive(Debug)]
pub(super) enum CleanUpError {
    /// Its processes.
    Cgroup(CgroupError),
    /// Its mounts.
    Volumes(volumes::Error),
    /// The runtime did not remove its containers, or did not list them.
    Runtime(cri::Error),
    /// The runtime removed its containers and sandboxes, and still lists some.
    StillListed,
}

impl SyncError {
    /// The reason of the event.
    pub(super) fn reason(&self) -> Reason {
        match self {
            Self::Cgroup(_) => Reason::FAILED_CREATE_POD_CONTAINER,
            Self::Claims(_) => Reason::FAILED_PREPARE_DYNAMIC_RESOURCES,
            Self::Devices(_) | Self::DevicesRefused(_) | Self::FormerFiles | Self::ResizeRefused(_) => {
                Reason::FAILED_SYNC
            }
        }
    }
}

impl fmt::Display for SyncError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cgroup(_) => f.write_str("unable to ensure pod container exists"),
            Self::Claims(_) => f.write_str("Failed to prepare dynamic resources: prepare dynamic resources"),
            Self::Devices(_) => f.write_str("the pod waits for its devices"),
            Self::DevicesRefused(error) => error.fmt(f),
            Self::FormerFiles => f.write_str("files of an earlier pod with this uid are still being removed"),
            Self::ResizeRefused(_) => f.write_str("resize refused by the runtime"),
        }
    }
}

impl Error for SyncError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Cgroup(error) => Some(error),
            Self::Claims(error) => Some(error),
            Self::Devices(error) => Some(error),
            Self::DevicesRefused(error) => error.source(),
            Self::FormerFiles => None,
            Self::ResizeRefused(error) => Some(error),
        }
    }
}

impl fmt::Display for CleanUpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cgroup(error) => error.fmt(f),
            Self::Volumes(error) => error.fmt(f),
            Self::Runtime(error) => error.fmt(f),
            Self::StillListed => f.write_str("the runtime still has containers or sandboxes of the removed pod"),
        }
    }
}

impl Error for CleanUpError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Cgroup(error) => error.source(),
            Self::Volumes(error) => error.source(),
            Self::Runtime(error) => error.source(),
            Self::StillListed => None,
        }
    }
}
