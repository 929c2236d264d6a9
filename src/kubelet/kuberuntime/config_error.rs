//! Why the configuration of a sandbox or container cannot be created. Pure.

use std::fmt;

use crate::state::objects::{ObjectKey, ObjectKind};
use crate::types::api::{CommandTooLong, Container, FieldProblem, Pod, Reason};

/// The messages are upstream's, as shown by `kubectl describe`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConfigError {
    Command(CommandTooLong),
    /// An environment variable comes from a file that cannot be read.
    EnvFile {
        why: String,
    },
    /// A pod field that environment variables do not support.
    Field(FieldProblem),
    /// Host name and domain together exceed the kernel's limit.
    HostnameTooLong {
        fqdn: String,
    },
    /// `runAsNonRoot` is set, and the image's user is a name, which could be root.
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
    /// The object could not be read from the API server.
    ObjectUnknown {
        kind: ObjectKind,
        why: String,
    },
    /// A seccomp profile of type `Localhost` without a path.
    NoSeccompPath,
    /// The target of an ephemeral container does not exist.
    NoTarget {
        name: String,
    },
    /// `runAsNonRoot` together with `runAsUser: 0`.
    RunsAsRoot {
        of: ContainerName,
    },
    /// The objects of a container's `envFrom`, or the Services, have more variables, also if one replaces another.
    TooManyVariables {
        most: usize,
    },
    /// An environment variable, or all of them together, exceed the kernel's limit.
    VariableTooLong {
        name: String,
    },
}

/// A container and its pod in the format of messages.
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
    /// The reason for which the container waits.
    pub(crate) fn reason(&self) -> Reason {
        Reason::CREATE_CONTAINER_CONFIG_ERROR
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(problem) => problem.fmt(f),
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
            Self::TooManyVariables { most } => {
                write!(f, "the objects of the container's environment have more than {most} variables")
            }
            Self::VariableTooLong { name } => {
                write!(f, "environment variable {name:?} exceeds the kernel's size limit, or all of them together do")
            }
        }
    }
}

impl std::error::Error for ConfigError {}

impl From<CommandTooLong> for ConfigError {
    fn from(problem: CommandTooLong) -> Self {
        Self::Command(problem)
    }
}

impl From<FieldProblem> for ConfigError {
    fn from(problem: FieldProblem) -> Self {
        Self::Field(problem)
    }
}
