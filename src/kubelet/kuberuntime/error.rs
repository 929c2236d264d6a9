//! Errors of sandbox creation, of containers to be stopped, and of container resizes. Pure.

use std::fmt;
use std::io;

use super::config_error::ConfigError;
use super::etc_hosts::FileError;
use super::user_namespace::UserRangeError;
use crate::platform::cri;
use crate::types::api::Reason;

/// The messages are those of upstream's events.
#[derive(Debug)]
pub(super) enum SandboxError {
    Config(ConfigError),
    /// The node's resolver file could not be read.
    Dns(FileError),
    NoRuntimeClass {
        class: String,
    },
    /// The RuntimeClass could not be read from the API server.
    RuntimeClassUnknown {
        class: String,
        why: String,
    },
    /// The runtime handler does not support user namespaces.
    NoUserNamespaces {
        handler: String,
    },
    UserRange(UserRangeError),
    /// Something of the pod's former sandbox runs.
    Former(KillError),
    Run(cri::Error),
    /// The sandbox was created, but its status could not be read.
    Status(cri::Error),
}

impl SandboxError {
    /// The reason of the event, and the operation.
    pub(super) fn event(&self) -> (Reason, &'static str) {
        match self {
            Self::Status(_) => (Reason::FAILED_POD_SANDBOX_STATUS, "get pod sandbox status"),
            Self::Config(_)
            | Self::Dns(_)
            | Self::NoRuntimeClass { .. }
            | Self::RuntimeClassUnknown { .. }
            | Self::NoUserNamespaces { .. }
            | Self::UserRange(_)
            | Self::Former(_)
            | Self::Run(_) => (Reason::FAILED_CREATE_POD_SANDBOX, "create pod sandbox"),
        }
    }
}

impl fmt::Display for SandboxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Dns(error) => error.fmt(f),
            Self::NoRuntimeClass { class } => write!(f, "runtimeclass.node.k8s.io {class:?} not found"),
            Self::RuntimeClassUnknown { class, why } => write!(f, "runtimeclass.node.k8s.io {class:?}: {why}"),
            Self::NoUserNamespaces { handler } => {
                f.write_str("can't set `spec.hostUsers: false`, ")?;
                match handler.as_str() {
                    "" => f.write_str("runtime does")?,
                    handler => write!(f, "RuntimeClass handler {handler:?} does")?,
                }
                f.write_str(" not support user namespaces")
            }
            Self::UserRange(_) => f.write_str("create user namespace"),
            Self::Former(error) => error.fmt(f),
            // In the format of Go's gRPC.
            Self::Run(error) | Self::Status(error) => match error.status() {
                Some(status) => write!(f, "rpc error: code = {} desc = {}", status.code, status.message),
                None => error.fmt(f),
            },
        }
    }
}

impl std::error::Error for SandboxError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Config(error) => error.source(),
            Self::Dns(error) => error.source(),
            Self::UserRange(error) => Some(error),
            Self::Former(error) => error.source(),
            // The message already has the runtime's text.
            Self::Run(error) | Self::Status(error) if error.status().is_some() => None,
            Self::Run(error) | Self::Status(error) => error.source(),
            Self::NoRuntimeClass { .. } | Self::RuntimeClassUnknown { .. } | Self::NoUserNamespaces { .. } => None,
        }
    }
}

impl From<KillError> for SandboxError {
    fn from(error: KillError) -> Self {
        Self::Former(error)
    }
}

impl From<ConfigError> for SandboxError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

/// Why a container may still run.
#[derive(Debug)]
pub(crate) enum KillError {
    Runtime(cri::Error),
    /// The processes of the pod's containers could not be found.
    Look(io::Error),
    /// The runtime may be creating it.
    Unlisted {
        id: String,
    },
    /// A process does not exit when it is killed, because it waits for a device or a file system.
    Survives {
        container: String,
        pid: u32,
    },
}

impl fmt::Display for KillError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Runtime(error) => error.fmt(f),
            Self::Look(_) => f.write_str("look for processes of the pod"),
            Self::Unlisted { id } => write!(f, "container {id} runs, and the runtime does not list it yet"),
            Self::Survives { container, pid } => {
                write!(f, "process {pid} of container {container:?} was killed and has not exited")
            }
        }
    }
}

impl std::error::Error for KillError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Runtime(error) => error.source(),
            Self::Look(error) => Some(error),
            Self::Unlisted { .. } | Self::Survives { .. } => None,
        }
    }
}

impl From<cri::Error> for KillError {
    fn from(error: cri::Error) -> Self {
        Self::Runtime(error)
    }
}

/// Why a running container was not resized.
#[derive(Debug)]
pub(super) enum ResizeError {
    /// The kernel would kill processes to get below the limit.
    BelowUsage {
        limit: u64,
        used: u64,
    },
    Runtime(cri::Error),
}

impl fmt::Display for ResizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BelowUsage { limit, used } => {
                write!(f, "attempting to set memory limit ({limit}) below current usage ({used})")
            }
            Self::Runtime(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ResizeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::BelowUsage { .. } => None,
            Self::Runtime(error) => error.source(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtime_without_user_namespaces_is_named() {
        let told = |handler: &str| SandboxError::NoUserNamespaces { handler: handler.to_owned() }.to_string();
        let message = "can't set `spec.hostUsers: false`, runtime does not support user namespaces";
        assert_eq!(told(""), message);
        assert!(told("kata").contains("RuntimeClass handler \"kata\" does not support"));
    }
}
