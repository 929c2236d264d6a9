//! Errors of dynamic resource allocation. Pure.

use std::fmt;
use std::io;

use crate::platform::rpc;
use crate::state::objects::{ClaimNotCreated, DEVICE_FILES_DRIVER};

/// The messages are upstream's where upstream has one.
#[derive(Debug)]
pub(crate) enum DraError {
    /// The driver's plugin could not be called.
    Call {
        method: &'static str,
        source: rpc::Error,
    },
    Checkpoint(io::Error),
    /// The driver's error for one claim.
    Claim {
        method: &'static str,
        claim: String,
        message: String,
    },
    /// The claim cannot be read, or this pod may not use it.
    ClaimUnusable {
        why: String,
    },
    ClaimMissing {
        name: String,
    },
    ClaimNotCreated(ClaimNotCreated),
    /// The device file of a claim does not exist.
    FileMissing {
        device: String,
    },
    /// A container has the device file of a claim as a limit.
    FileInUse {
        device: String,
        path: String,
    },
    /// The claim is being unprepared for another pod.
    Leaving {
        name: String,
    },
    NoVersions,
    NotRegistered {
        driver: String,
    },
    /// A claim of the same name that was deleted is still prepared.
    OldClaim {
        name: String,
        uid: String,
    },
    /// A plugin wants to be the driver of the node's device files.
    OwnDriver,
    PodEnds,
    Skipped {
        method: &'static str,
        count: usize,
    },
    Unprepared {
        name: String,
        namespace: String,
    },
    UnknownClaim {
        method: &'static str,
        uid: String,
    },
    UnsupportedVersions {
        versions: Vec<String>,
    },
}

impl fmt::Display for DraError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call { method, .. } => f.write_str(method),
            Self::Checkpoint(_) => f.write_str("checkpoint ResourceClaim state"),
            Self::Claim { method, claim, message } => write!(f, "{method} failed for ResourceClaim {claim}: {message}"),
            Self::ClaimUnusable { why } => f.write_str(why),
            Self::ClaimMissing { name } => write!(f, "fetch ResourceClaim {name}: not found"),
            Self::ClaimNotCreated(error) => error.fmt(f),
            Self::FileMissing { device } => write!(f, "device {device} of this node is gone"),
            Self::FileInUse { device, path } => {
                write!(f, "device {device} ({path}) is given to a container that has it as a limit")
            }
            Self::Leaving { name } => write!(f, "ResourceClaim {name} is being unprepared"),
            Self::NoVersions => f.write_str("empty list of supported gRPC services (aka supported versions)"),
            Self::NotRegistered { driver } => write!(f, "DRA driver {driver} is not registered"),
            Self::OldClaim { name, uid } => write!(
                f,
                "old ResourceClaim with same name {name} and different UID {uid} still exists (previous pod \
                 force-deleted?!)"
            ),
            Self::OwnDriver => write!(f, "{DEVICE_FILES_DRIVER} is the driver of this node's device files"),
            Self::PodEnds => f.write_str("the pod is terminating"),
            Self::Skipped { method, count } => write!(f, "{method} skipped {count} ResourceClaims"),
            Self::Unprepared { name, namespace } => {
                write!(f, "unable to get claim info for ResourceClaim {name} in namespace {namespace}")
            }
            Self::UnknownClaim { method, uid } => write!(f, "{method} returned result for unknown claim UID {uid}"),
            Self::UnsupportedVersions { versions } => write!(
                f,
                "none of services supported by the plugin ({versions:?}) are supported by the kubelet ({:?})",
                super::v1::SERVICES
            ),
        }
    }
}

impl std::error::Error for DraError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Call { source, .. } => Some(source),
            Self::Checkpoint(source) => Some(source),
            Self::Claim { .. }
            | Self::ClaimUnusable { .. }
            | Self::ClaimMissing { .. }
            | Self::ClaimNotCreated(_)
            | Self::FileInUse { .. }
            | Self::FileMissing { .. }
            | Self::Leaving { .. }
            | Self::NoVersions
            | Self::NotRegistered { .. }
            | Self::OldClaim { .. }
            | Self::OwnDriver
            | Self::PodEnds
            | Self::Skipped { .. }
            | Self::Unprepared { .. }
            | Self::UnknownClaim { .. }
            | Self::UnsupportedVersions { .. } => None,
        }
    }
}
