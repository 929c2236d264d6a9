//! Errors of pod directories and volumes.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::kubelet::csi::{CsiError, Phase, UnmountFailure};
use crate::state::objects::ObjectKind;
use crate::types::api::{FieldProblem, Reason};
use crate::types::sorted::SortedSet;

/// The length of a path that the kernel refuses.
pub(crate) const PATH_MAX: usize = 4096;
/// Bytes of all subpaths of a container that have variables.
pub(super) const MAX_EXPANDED_PATHS_BYTES: usize = 1 << 20;
/// Size limit of all environment files of one container, of which the last one may exceed it.
pub(super) const MAX_ENV_FILES_BYTES: usize = 16 << 20;
/// Size limit of all values from files of one container. Linux passes at most 2 MiB with the usual stack limit.
pub(super) const MAX_ENV_VALUES_BYTES: usize = 2 << 20;

#[derive(Debug)]
pub(crate) enum Error {
    Io {
        doing: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// A container mounts a volume that the pod does not have.
    NoSuchVolume {
        volume: String,
        container: String,
    },
    /// A container has a volume device that the pod does not have.
    NoSuchDevice {
        volume: String,
        container: String,
    },
    /// An invalid or unsupported mount.
    Mount(MountProblem),
    /// A subpath that cannot be found or created.
    SubPath {
        volume: String,
        container: String,
        source: io::Error,
    },
    SetUp {
        volume: String,
        problem: Problem,
    },
    /// A CSI driver has failed.
    Csi {
        phase: Phase,
        volume: String,
        is_block: bool,
        source: CsiError,
    },
    /// The pod terminates before its volumes are set up.
    PodEnds,
    /// A CSI volume could not be unpublished or unstaged.
    Unmount(UnmountFailure),
}

/// An invalid volume mount. The messages are upstream's.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum MountProblem {
    /// A subpath has `..`.
    BackSteps { path: String },
    /// Variables in a subpath have no value.
    MissingValues { names: SortedSet<String> },
    /// A subpath with the values of its variables, or those of a container together.
    PathTooLong,
    /// The runtime does not support recursive read-only mounts.
    RecursiveReadOnly { volume: String },
}

/// Why a volume cannot be set up.
#[derive(Debug)]
pub(crate) enum Problem {
    /// A path has `..`.
    BackSteps {
        path: String,
    },
    /// The claim has no usable volume; one line.
    Claim {
        name: String,
        why: String,
    },
    /// The disk has no room for a new claim, in bytes.
    ClaimRoom {
        root: PathBuf,
        requested: u64,
        available: u64,
    },
    /// The content of its files is unknown.
    Files(FilesProblem),
    /// A mount helper program failed.
    Helper {
        program: PathBuf,
        message: String,
    },
    /// The pod requests no huge pages, or several sizes.
    HugePageSize,
    HostPathType {
        path: PathBuf,
        expected: &'static str,
    },
    Io {
        doing: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// A PersistentVolume with mount options, of a type that has none.
    MountOptions,
    /// A volume type that this version does not know.
    NoPlugin,
    /// The node affinity of a PersistentVolume does not match the node's labels.
    NodeAffinity {
        is_block: bool,
    },
    /// An emptyDir with a medium that is none.
    UnknownMedium {
        medium: String,
    },
    /// An unsupported volume type.
    Unsupported {
        kind: &'static str,
    },
}

/// Why the content of a volume's files is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FilesProblem {
    /// The file would be outside of the volume.
    BackSteps {
        path: String,
    },
    Field(FieldProblem),
    /// A source that exists only in a cluster.
    NeedsCluster {
        kind: &'static str,
    },
    NoSuchKey {
        kind: ObjectKind,
        key: String,
    },
    NoSuchObject {
        kind: ObjectKind,
        name: String,
    },
    NoToken {
        why: String,
    },
    /// No bundle with this name; `None`: no bundle matches signer and selector.
    NoTrustBundle {
        name: Option<String>,
    },
    /// The certificate is not issued yet, or never will be.
    NoCertificate {
        why: String,
    },
    /// The object could not be read from the API server.
    ObjectUnknown {
        kind: ObjectKind,
        why: String,
    },
    Several(Vec<FilesProblem>),
    /// The files of the pod's volumes have more bytes.
    TooLarge {
        most: usize,
    },
    TrustBundleUnknown {
        why: String,
    },
}

impl Error {
    /// The reason of the event.
    pub(crate) fn reason(&self) -> Reason {
        match self {
            Self::Csi { is_block: true, .. }
            | Self::SetUp { problem: Problem::NodeAffinity { is_block: true }, .. } => Reason::FAILED_MAP_VOLUME,
            _ => Reason::FAILED_MOUNT,
        }
    }

    pub(super) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { doing, path, source }
    }
}

impl Problem {
    pub(super) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { doing, path, source }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { doing, path, .. } => write!(f, "{doing} {}", path.display()),
            Self::Mount(problem) => problem.fmt(f),
            Self::PodEnds => f.write_str("the pod is terminating"),
            Self::NoSuchVolume { volume, container } => {
                write!(f, "cannot find volume {volume:?} to mount into container {container:?}")
            }
            Self::Csi { phase, volume, is_block, .. } => {
                // Upstream's message, including the space before the colon.
                write!(f, "{} failed for volume {volume:?} ", phase.operation(*is_block))
            }
            Self::NoSuchDevice { volume, container } => {
                write!(f, "cannot find volume {volume:?} to pass into container {container:?}")
            }
            Self::Unmount(UnmountFailure { volume, .. }) => {
                write!(f, "UnmountVolume.TearDown failed for volume {}", volume.display())
            }
            // Upstream's message ends with a space here, as for `Csi`.
            Self::SetUp { volume, problem } => {
                let doing = match problem {
                    Problem::MountOptions => "MountVolume.MountOptionSupport check",
                    Problem::NodeAffinity { is_block: false } => "MountVolume.NodeAffinity check",
                    Problem::NodeAffinity { is_block: true } => "MapVolume.NodeAffinity check",
                    _ => "MountVolume.SetUp",
                };
                write!(f, "{doing} failed for volume {volume:?} ")
            }
            Self::SubPath { volume, container, .. } => {
                write!(f, "failed to prepare subPath for volumeMount {volume:?} of container {container:?}")
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } | Self::SubPath { source, .. } => Some(source),
            Self::SetUp { problem, .. } => Some(problem),
            Self::Csi { source, .. } | Self::Unmount(UnmountFailure { error: source, .. }) => Some(source),
            Self::Mount(_) | Self::NoSuchDevice { .. } | Self::NoSuchVolume { .. } | Self::PodEnds => None,
        }
    }
}

impl fmt::Display for MountProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BackSteps { path } if path.starts_with('/') => {
                write!(f, "error SubPath `{path}` must not be an absolute path")
            }
            Self::BackSteps { path } => write!(f, "unable to provision SubPath `{path}`: must not contain '..'"),
            Self::MissingValues { names } => {
                let names = names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
                write!(f, "missing value for {names}")
            }
            Self::PathTooLong => write!(
                f,
                "a subPathExpr exceeds {} bytes with the values of its variables, or all of the container do {}",
                PATH_MAX - 1,
                MAX_EXPANDED_PATHS_BYTES
            ),
            Self::RecursiveReadOnly { volume } => write!(
                f,
                "failed to resolve recursive read-only mode: volume {volume:?} requested recursive read-only mode, \
                 but it is not supported by the runtime"
            ),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BackSteps { path } => write!(f, "invalid path {path:?}: must not contain '..'"),
            Self::Claim { name, why } => write!(f, "error processing PVC {name}: {why}"),
            Self::ClaimRoom { root, requested, available } => {
                write!(f, "the claim requests {requested} bytes, and {} has {available} free", root.display())
            }
            Self::Files(problem) => problem.fmt(f),
            Self::Helper { program, message } => write!(f, "{}: {message}", program.display()),
            Self::HugePageSize => f.write_str("medium HugePages requires a pod that requests huge pages of one size"),
            Self::HostPathType { path, expected } => {
                write!(f, "hostPath type check failed: {} is not a {expected}", path.display())
            }
            Self::Io { doing, path, .. } => write!(f, "{doing} {}", path.display()),
            Self::MountOptions => f.write_str("mount options are not supported for this volume type"),
            Self::NoPlugin => f.write_str("no volume plugin matched"),
            Self::NodeAffinity { .. } => f.write_str("no matching NodeSelectorTerms"),
            Self::UnknownMedium { medium } => write!(f, "unknown storage medium {medium:?}"),
            Self::Unsupported { kind } => write!(f, "volumes of the kind {kind} are not supported"),
        }
    }
}

impl fmt::Display for FilesProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BackSteps { path } => write!(f, "invalid path {path:?}: must not contain or begin with '..'"),
            Self::Field(problem) => problem.fmt(f),
            Self::NeedsCluster { kind } => write!(f, "{kind} needs a cluster, but this node is not part of one"),
            Self::NoSuchKey { kind: ObjectKind::ConfigMap, key } => {
                write!(f, "configmap references non-existent config key: {key}")
            }
            Self::NoSuchKey { kind: ObjectKind::Secret | ObjectKind::Service | ObjectKind::VolumeClaim, key } => {
                write!(f, "references non-existent secret key: {key}")
            }
            Self::NoSuchObject { kind, name } => write!(f, "{} {name:?} not found", kind.resource()),
            Self::NoCertificate { why } => f.write_str(why),
            Self::NoToken { why } => write!(f, "failed to fetch token: {why}"),
            Self::NoTrustBundle { name: Some(name) } => {
                let what = format!("clustertrustbundle.certificates.k8s.io {name:?} not found");
                write!(f, "while getting ClusterTrustBundle: {what}")
            }
            Self::NoTrustBundle { name: None } => {
                f.write_str("combination of signerName and labelSelector matched zero ClusterTrustBundles")
            }
            Self::TrustBundleUnknown { why } => write!(f, "failed to sync clustertrustbundle cache: {why}"),
            Self::ObjectUnknown { kind, why } => write!(f, "failed to sync {} cache: {why}", kind.resource()),
            Self::Several(problems) => {
                for (index, problem) in problems.iter().enumerate() {
                    write!(f, "{}{problem}", if index == 0 { "[" } else { ", " })?;
                }
                f.write_str("]")
            }
            Self::TooLarge { most } => write!(f, "the files of the pod's volumes take more than {most} bytes"),
        }
    }
}

impl std::error::Error for FilesProblem {}

/// Why an environment variable cannot be read from a file in a volume.
#[derive(Clone, Debug)]
pub(crate) enum EnvFileError {
    /// All environment files of the container have more bytes.
    FilesTooLarge,
    /// The line number and the problem.
    Line(usize, &'static str),
    NoVolume {
        volume: String,
    },
    Read(Arc<io::Error>),
    /// All values of the container have more bytes.
    ValuesTooLarge,
}

impl fmt::Display for EnvFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FilesTooLarge => write!(f, "the environment files have more than {MAX_ENV_FILES_BYTES} bytes"),
            Self::Line(number, problem) => write!(f, "line {number}: {problem}"),
            Self::NoVolume { volume } => write!(f, "cannot find the volume {volume:?} referenced by FileKeyRef"),
            Self::Read(error) => error.fmt(f),
            Self::ValuesTooLarge => write!(f, "the values from files have more than {MAX_ENV_VALUES_BYTES} bytes"),
        }
    }
}

impl std::error::Error for EnvFileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::FilesTooLarge | Self::Line(..) | Self::NoVolume { .. } | Self::ValuesTooLarge => None,
            Self::Read(error) => error.source(),
        }
    }
}

impl std::error::Error for Problem {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::BackSteps { .. }
            | Self::Claim { .. }
            | Self::ClaimRoom { .. }
            | Self::Files(_)
            | Self::Helper { .. }
            | Self::HugePageSize
            | Self::HostPathType { .. }
            | Self::MountOptions
            | Self::NoPlugin
            | Self::NodeAffinity { .. }
            | Self::UnknownMedium { .. }
            | Self::Unsupported { .. } => None,
        }
    }
}
