//! Why the configuration of a sandbox or a container cannot be made. Pure.

use std::fmt;

use crate::state::objects::{ObjectKey, ObjectKind};
use crate::types::api::{Container, FieldProblem, Pod, Reason};

/// A pod that cannot run as it is. The words are those that `kubectl describe` shows, as upstream has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConfigError {
    /// A variable comes from a file in a volume, which cannot be read.
    EnvFile {
        why: String,
    },
    /// A field of the pod that no variable can tell.
    Field(FieldProblem),
    /// The name and domain together are longer than the kernel's name for a node.
    HostnameTooLong {
        fqdn: String,
    },
    /// `runAsNonRoot`, and the image's user is a name, which could be root's.
    ImageUserIsAName {
        user: String,
        of: ContainerName,
    },
    ImageUserIsRoot {
        of: ContainerName,
    },
    NoSuchFileKey {
        key: String,
        file: String,
    },
    NoSuchKey {
        object: ObjectKey,
        key: String,
    },
    NoSuchObject {
        kind: ObjectKind,
        name: String,
    },
    /// The API server could not be asked for an object.
    ObjectUnknown {
        kind: ObjectKind,
        why: String,
    },
    /// A seccomp profile of the type `Localhost` without a path.
    NoSeccompPath,
    /// An ephemeral container is to see the processes of one that is not there.
    NoTarget {
        name: String,
    },
    /// `runAsNonRoot` beside `runAsUser: 0`.
    RunsAsRoot {
        of: ContainerName,
    },
    /// A variable, or without a name the command, is longer than what the kernel gives to a program.
    TooLong {
        name: Option<String>,
    },
}

/// A container and its pod, as messages name them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContainerName {
    pod: String,
    container: String,
}

impl ContainerName {
    pub(crate) fn new(pod: &Pod, container: &Container) -> Self {
        let meta = &pod.metadata;
        Self { pod: format!("{}_{}({})", meta.name, meta.namespace, meta.uid), container: container.name.clone() }
    }
}

impl fmt::Display for ContainerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "(pod: {:?}, container: {})", self.pod, self.container)
    }
}

impl ConfigError {
    /// Why the container waits.
    pub(crate) fn reason(&self) -> Reason {
        Reason::CREATE_CONTAINER_CONFIG_ERROR
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EnvFile { why } => write!(f, "couldn't parse env file: {why}"),
            Self::Field(FieldProblem::NoSuchField { path }) => write!(f, "field label not supported: {path}"),
            Self::Field(problem) => problem.fmt(f),
            Self::HostnameTooLong { fqdn } => write!(
                f,
                "failed to construct FQDN from pod hostname and cluster domain, FQDN {fqdn} is too long \
                 (64 characters is the max, {} characters requested)",
                fqdn.len()
            ),
            Self::ImageUserIsAName { user, of } => write!(
                f,
                "container has runAsNonRoot and image has non-numeric user ({user}), cannot verify user is non-root {of}"
            ),
            Self::ImageUserIsRoot { of } => {
                write!(f, "container has runAsNonRoot and image will run as root {of}")
            }
            Self::NoSuchFileKey { key, file } => {
                write!(f, "environment variable key {key:?} not found in file {file:?}")
            }
            Self::NoSuchKey { object: ObjectKey { kind, namespace, name }, key } => {
                write!(f, "couldn't find key {key} in {kind} {namespace}/{name}")
            }
            Self::ObjectUnknown { kind, why } => write!(f, "failed to sync {} cache: {why}", kind.resource()),
            Self::NoSuchObject { kind, name } => write!(f, "{} {name:?} not found", kind.resource()),
            Self::NoSeccompPath => f.write_str("localhostProfile must be set if seccompProfile type is Localhost."),
            Self::NoTarget { name } => write!(f, "unable to find target container {name}"),
            Self::RunsAsRoot { of } => write!(f, "container's runAsUser breaks non-root policy {of}"),
            Self::TooLong { name: Some(name) } => {
                write!(
                    f,
                    "environment variable {name:?} is longer than the kernel gives to a program, or all of them are"
                )
            }
            Self::TooLong { name: None } => {
                f.write_str("command and args are longer than the kernel gives to a program")
            }
        }
    }
}

impl std::error::Error for ConfigError {}

impl From<FieldProblem> for ConfigError {
    fn from(problem: FieldProblem) -> Self {
        Self::Field(problem)
    }
}
