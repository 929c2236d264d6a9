//! Errors of device plugin registration and device allocation. Pure.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::allocations::InsufficientDevices;
use super::v1beta1::DEVICE_PLUGIN_VERSION;
use crate::platform::rpc;

/// The messages are upstream's where upstream has one.
#[derive(Debug)]
pub(crate) enum DeviceError {
    BadName {
        resource: String,
    },
    /// The resource is defined by a rule of the configuration.
    ByRule {
        resource: String,
    },
    Checkpoint(io::Error),
    Endpoint {
        endpoint: String,
        directory: PathBuf,
    },
    Gone {
        resource: String,
    },
    Lacks(InsufficientDevices),
    /// The response to `Allocate` has no containers.
    NoContainers,
    Plugin(PluginError),
    PodEnds,
    /// A failed step in upstream's terms; the source is the cause.
    During {
        doing: &'static str,
        source: Box<DeviceError>,
    },
    TakenBack {
        resource: String,
    },
    TooMany {
        most: usize,
    },
    /// Unsupported API version in a registration.
    Version {
        version: String,
    },
    /// Unsupported API versions of a plugin found by the plugin watcher.
    Versions {
        versions: Vec<String>,
    },
}

/// A failed call to a plugin, in the format of Go's gRPC.
#[derive(Debug)]
pub(crate) struct PluginError(pub(super) rpc::Error);

impl DeviceError {
    /// For `map_err`.
    pub(super) fn during(doing: &'static str) -> impl Fn(Self) -> Self {
        move |source| Self::During { doing, source: Box::new(source) }
    }

    /// The plugin itself has refused; other errors are retried.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            Self::During { source, .. } => source.is_refusal(),
            Self::NoContainers => true,
            Self::Plugin(PluginError(error)) => error.status().is_some(),
            Self::BadName { .. }
            | Self::ByRule { .. }
            | Self::Checkpoint(_)
            | Self::Endpoint { .. }
            | Self::Gone { .. }
            | Self::Lacks(_)
            | Self::PodEnds
            | Self::TakenBack { .. }
            | Self::TooMany { .. }
            | Self::Version { .. }
            | Self::Versions { .. } => false,
        }
    }
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadName { resource } => write!(f, "the ResourceName {resource:?} is invalid"),
            Self::ByRule { resource } => write!(f, "{resource} is defined by a rule of this node"),
            Self::Checkpoint(_) => f.write_str("write the device checkpoint"),
            Self::Endpoint { endpoint, directory } => {
                write!(f, "endpoint {endpoint:?}: expected the name of a socket in {}", directory.display())
            }
            Self::Gone { resource } => write!(f, "the device plugin of {resource} is gone"),
            Self::Lacks(InsufficientDevices(why)) => f.write_str(why),
            Self::NoContainers => f.write_str("no containers return in allocation response"),
            Self::Plugin(error) => error.fmt(f),
            Self::PodEnds => f.write_str("the pod is terminating"),
            Self::During { doing, .. } => f.write_str(doing),
            Self::TakenBack { resource } => write!(f, "devices of {resource} were released meanwhile"),
            Self::TooMany { most } => write!(f, "the limit of {most} resources is reached"),
            Self::Version { version } => write!(
                f,
                "requested API version {version:?} is not supported by kubelet. Supported version is [{DEVICE_PLUGIN_VERSION:?}]"
            ),
            Self::Versions { versions } => {
                write!(
                    f,
                    "manager version, {DEVICE_PLUGIN_VERSION}, is not among plugin supported versions {versions:?}"
                )
            }
        }
    }
}

impl fmt::Display for PluginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.status() {
            Some(status) => write!(f, "rpc error: code = {} desc = {}", status.code, status.message),
            None => self.0.fmt(f),
        }
    }
}

impl std::error::Error for DeviceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Checkpoint(source) => Some(source),
            Self::During { source, .. } => Some(&**source),
            Self::Plugin(error) => error.source(),
            Self::BadName { .. }
            | Self::ByRule { .. }
            | Self::Endpoint { .. }
            | Self::Gone { .. }
            | Self::Lacks(_)
            | Self::NoContainers
            | Self::PodEnds
            | Self::TakenBack { .. }
            | Self::TooMany { .. }
            | Self::Version { .. }
            | Self::Versions { .. } => None,
        }
    }
}

impl std::error::Error for PluginError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

impl From<rpc::Error> for DeviceError {
    fn from(error: rpc::Error) -> Self {
        Self::Plugin(PluginError(error))
    }
}
