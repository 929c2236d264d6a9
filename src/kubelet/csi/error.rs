//! Errors of CSI drivers and volumes. Pure.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::platform::rpc;
use crate::protocol::grpc::{Code, Status};
use crate::protocol::protobuf::DecodeError;

/// The messages are upstream's where upstream has one.
#[derive(Debug)]
pub(crate) enum CsiError {
    BadName {
        name: String,
    },
    Call(CallError),
    /// A failed step in upstream's terms; the source is the cause.
    During {
        doing: &'static str,
        source: Box<CsiError>,
    },
    FsGroup {
        handle: String,
        source: io::Error,
    },
    InUse,
    Io {
        doing: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    Missing(MissingObject),
    NoNodeId,
    NoUsage,
    NotRegistered {
        driver: String,
    },
    /// Another pod has the volume mounted with another SELinux label.
    OtherLabel {
        handle: String,
    },
    PodEnds,
    UnsupportedVersions {
        driver: String,
        versions: Vec<String>,
    },
}

/// A failed call to a driver.
#[derive(Debug)]
pub(crate) enum CallError {
    Answer { path: &'static str, source: DecodeError },
    Rpc(rpc::Error),
}

/// Missing data without which the volume cannot be set up yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MissingObject {
    /// The volume is not in the node status.
    NotAttached,
    NoAttachment,
    AttachmentUnknown {
        why: String,
    },
    DriverUnknown {
        driver: String,
        why: String,
    },
    /// The driver does not support this lifecycle mode; `supported` is `None` without a CSIDriver object.
    Mode {
        mode: &'static str,
        driver: String,
        supported: Option<Vec<String>>,
    },
    /// A secret that does not exist, or why it is unknown.
    Secret {
        field: &'static str,
        namespace: String,
        name: String,
        unknown: Option<String>,
    },
    NoToken,
    TokenUnknown {
        why: String,
    },
}

/// The secret for expanding a volume could not be read.
#[derive(Debug)]
pub(super) struct ExpandSecretError {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) source: Box<dyn std::error::Error>,
}

/// The step of the set-up, in upstream's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    WaitForAttach,
    MountDevice,
    SetUp,
}

/// A volume that could not be set up.
#[derive(Debug)]
pub(crate) struct SetUpError {
    pub(crate) phase: Phase,
    pub(crate) error: CsiError,
}

/// A volume that could not be unmounted.
#[derive(Debug)]
pub(crate) struct UnmountFailure {
    pub(crate) volume: PathBuf,
    pub(crate) error: CsiError,
}

impl Phase {
    /// Upstream's name of the operation.
    pub(crate) fn operation(self, is_block: bool) -> &'static str {
        match (self, is_block) {
            (Self::WaitForAttach, false) => "MountVolume.WaitForAttach",
            (Self::WaitForAttach, true) => "MapVolume.WaitForAttach",
            (Self::MountDevice, false) => "MountVolume.MountDevice",
            (Self::MountDevice, true) => "MapVolume.SetUpDevice",
            (Self::SetUp, false) => "MountVolume.SetUp",
            (Self::SetUp, true) => "MapVolume.MapPodDevice",
        }
    }
}

impl CsiError {
    /// For `map_err`.
    pub(super) fn io<'a>(doing: &'static str, path: &'a Path) -> impl Fn(io::Error) -> Self + use<'a> {
        move |source| Self::Io { doing, path: path.to_owned(), source }
    }

    /// For `map_err`.
    pub(super) fn during(doing: &'static str) -> impl Fn(Self) -> Self {
        move |source| Self::During { doing, source: Box::new(source) }
    }

    pub(super) fn in_phase(self, phase: Phase) -> SetUpError {
        SetUpError { phase, error: self }
    }
}

impl CallError {
    /// The driver's status code, if it answered.
    pub(super) fn code(&self) -> Option<Code> {
        match self {
            Self::Rpc(error) => error.status().map(|status| status.code),
            Self::Answer { .. } => None,
        }
    }
}

impl MissingObject {
    pub(crate) fn phase(&self) -> Phase {
        match self {
            Self::NotAttached | Self::NoAttachment | Self::AttachmentUnknown { .. } => Phase::WaitForAttach,
            Self::DriverUnknown { .. }
            | Self::Mode { .. }
            | Self::Secret { .. }
            | Self::NoToken
            | Self::TokenUnknown { .. } => Phase::SetUp,
        }
    }
}

impl fmt::Display for CsiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadName { name } => {
                write!(f, "plugin validation failed with err: {name:?} is not a valid name of a CSI driver")
            }
            Self::Call(error) => error.fmt(f),
            Self::During { doing, .. } => f.write_str(doing),
            Self::FsGroup { handle, .. } => write!(f, "applyFSGroup failed for vol {handle}"),
            Self::InUse => {
                f.write_str("volume uses the ReadWriteOncePod access mode and is already in use by another pod")
            }
            Self::Io { doing, path, .. } => write!(f, "{doing} {}", path.display()),
            Self::Missing(missing) => missing.fmt(f),
            Self::NoNodeId => f.write_str("error adding CSI driver node info: driverNodeID must not be empty"),
            Self::NoUsage => f.write_str("failed to get usage from response. usage is nil"),
            Self::NotRegistered { driver } => {
                write!(f, "driver name {driver} not found in the list of registered CSI drivers")
            }
            Self::OtherLabel { handle } => write!(
                f,
                "waiting for unmount of volume {handle:?}, because it is already mounted to a different pod with a \
                 different SELinux label"
            ),
            Self::PodEnds => f.write_str("the pod is terminating"),
            Self::UnsupportedVersions { driver, versions } => write!(
                f,
                "plugin validation failed with err: CSI driver {driver} has no version that is supported among \
                 {versions:?}: expected 1.x"
            ),
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answer { path, .. } => write!(f, "read the answer to {path}"),
            Self::Rpc(rpc::Error::Status(Status { code, message, .. })) => {
                write!(f, "rpc error: code = {code} desc = {message}")
            }
            Self::Rpc(rpc::Error::DeadlineExceeded) => {
                f.write_str("rpc error: code = DeadlineExceeded desc = context deadline exceeded")
            }
            Self::Rpc(error) => write!(f, "rpc error: code = Unavailable desc = {error}"),
        }
    }
}

impl fmt::Display for MissingObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAttached => f.write_str("volume not attached according to node status"),
            Self::NoAttachment => f.write_str("no existing VolumeAttachment found"),
            Self::AttachmentUnknown { why } => f.write_str(why),
            Self::DriverUnknown { driver, why } => write!(f, "failed to get CSIDriver {driver}: {why}"),
            Self::Mode { mode, driver, supported: Some(supported) } => {
                write!(f, "volume mode {mode:?} not supported by driver {driver} (only supports {supported:?})")
            }
            Self::Mode { mode, driver, supported: None } => {
                write!(f, "volume mode {mode:?} not supported by driver {driver} (no CSIDriver object)")
            }
            Self::Secret { field, namespace, name, unknown: None } => {
                write!(f, "fetching {field} {namespace}/{name} failed: secrets {name:?} not found")
            }
            Self::Secret { field, namespace, name, unknown: Some(why) } => {
                write!(f, "fetching {field} {namespace}/{name} failed: {why}")
            }
            Self::NoToken => f.write_str("failed to fetch token: the server has none"),
            Self::TokenUnknown { why } => write!(f, "failed to fetch token: {why}"),
        }
    }
}

impl std::error::Error for CsiError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Call(error) => error.source(),
            Self::During { source, .. } => Some(&**source),
            Self::FsGroup { source, .. } | Self::Io { source, .. } => Some(source),
            Self::BadName { .. }
            | Self::InUse
            | Self::OtherLabel { .. }
            | Self::Missing(_)
            | Self::NoNodeId
            | Self::NoUsage
            | Self::NotRegistered { .. }
            | Self::PodEnds
            | Self::UnsupportedVersions { .. } => None,
        }
    }
}

impl std::error::Error for CallError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Answer { source, .. } => Some(source),
            Self::Rpc(error) => error.source(),
        }
    }
}

impl fmt::Display for ExpandSecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expander.NodeExpand failed to get NodeExpandSecretRef {}/{}", self.namespace, self.name)
    }
}

impl std::error::Error for ExpandSecretError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.source)
    }
}

impl From<CallError> for CsiError {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}
