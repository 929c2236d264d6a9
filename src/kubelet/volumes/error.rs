//! What can go wrong with a pod's directories and volumes.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::kubelet::csi::{CsiError, Phase, Unmounted};
use crate::state::objects::ObjectKind;
use crate::types::api::{FieldProblem, Reason};
use crate::types::sorted::SortedSet;

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
    /// A container is to have a device that the pod does not have.
    NoSuchDevice {
        volume: String,
        container: String,
    },
    /// A mount that this node cannot make as it is asked for.
    Mount(MountProblem),
    /// A part of a volume that cannot be found or made in it.
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
    /// A volume of a CSI driver could not be taken away.
    Unmount(Unmounted),
}

/// What is wrong with how a volume is to be mounted. The words are upstream's.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum MountProblem {
    /// The path of a part leads out of the volume.
    BackSteps { path: String },
    /// Variables in the path of a part that have no value.
    MissingValues { names: SortedSet<String> },
    /// The runtime cannot make what is mounted below a volume read-only too.
    RecursiveReadOnly { volume: String },
}

/// What is wrong with a volume.
#[derive(Debug)]
pub(crate) enum Problem {
    /// A path leads out of where it begins.
    BackSteps {
        path: String,
    },
    /// There is nothing to mount for a claim: one line.
    Claim {
        name: String,
        why: String,
    },
    /// What its files should say cannot be told.
    Files(FilesProblem),
    /// A program that mounts has failed.
    Helper {
        program: PathBuf,
        what: String,
    },
    /// The pod asks for huge pages of no size, or of several.
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
    /// A kind of volume that this kubelet does not have.
    Unsupported {
        kind: &'static str,
    },
}

/// Why it cannot be told what the files of a volume should say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FilesProblem {
    /// A file would lie outside of the volume.
    BackSteps {
        path: String,
    },
    Field(FieldProblem),
    /// Something that only an API server has.
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
    /// No bundle of this name; `None`: none that a signer and a selector ask for.
    NoTrustBundle {
        name: Option<String>,
    },
    /// The API server could not be asked for an object.
    ObjectUnknown {
        kind: ObjectKind,
        why: String,
    },
    Several(Vec<FilesProblem>),
    TrustBundleUnknown {
        why: String,
    },
}

impl Error {
    /// The reason of the event that tells of it.
    pub(crate) fn reason(&self) -> Reason {
        match self {
            Self::Csi { is_block: true, .. } => Reason::FAILED_MAP_VOLUME,
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
            Self::NoSuchVolume { volume, container } => {
                write!(f, "cannot find volume {volume:?} to mount into container {container:?}")
            }
            Self::Csi { phase, volume, is_block, .. } => {
                let doing = match (phase, is_block) {
                    (Phase::WaitForAttach, false) => "MountVolume.WaitForAttach",
                    (Phase::WaitForAttach, true) => "MapVolume.WaitForAttach",
                    (Phase::MountDevice, false) => "MountVolume.MountDevice",
                    (Phase::MountDevice, true) => "MapVolume.SetUpDevice",
                    (Phase::SetUp, false) => "MountVolume.SetUp",
                    (Phase::SetUp, true) => "MapVolume.MapPodDevice",
                };
                // Upstream's words, down to the space before the colon that follows.
                write!(f, "{doing} failed for volume {volume:?} ")
            }
            Self::NoSuchDevice { volume, container } => {
                write!(f, "cannot find volume {volume:?} to pass into container {container:?}")
            }
            Self::Unmount(Unmounted { volume, .. }) => {
                write!(f, "UnmountVolume.TearDown failed for volume {}", volume.display())
            }
            // As for Csi.
            Self::SetUp { volume, .. } => write!(f, "MountVolume.SetUp failed for volume {volume:?} "),
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
            Self::Csi { source, .. } | Self::Unmount(Unmounted { error: source, .. }) => Some(source),
            Self::Mount(_) | Self::NoSuchDevice { .. } | Self::NoSuchVolume { .. } => None,
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
            Self::Files(problem) => problem.fmt(f),
            Self::Helper { program, what } => write!(f, "{}: {what}", program.display()),
            Self::HugePageSize => f.write_str("medium HugePages takes a pod that asks for huge pages of one size"),
            Self::HostPathType { path, expected } => {
                write!(f, "hostPath type check failed: {} is not a {expected}", path.display())
            }
            Self::Io { doing, path, .. } => write!(f, "{doing} {}", path.display()),
            Self::Unsupported { kind } => write!(f, "volumes of the kind {kind} are not supported"),
        }
    }
}

impl fmt::Display for FilesProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BackSteps { path } => write!(f, "invalid path {path:?}: must not contain or begin with '..'"),
            Self::Field(problem) => problem.fmt(f),
            Self::NeedsCluster { kind } => write!(f, "{kind} needs a cluster, and this node has joined none"),
            Self::NoSuchKey { kind: ObjectKind::ConfigMap, key } => {
                write!(f, "configmap references non-existent config key: {key}")
            }
            Self::NoSuchKey { kind: ObjectKind::Secret, key } => {
                write!(f, "references non-existent secret key: {key}")
            }
            Self::NoSuchObject { kind, name } => write!(f, "{} {name:?} not found", kind.resource()),
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
        }
    }
}

impl std::error::Error for FilesProblem {}

/// Why a variable cannot be had from a file in a volume.
#[derive(Debug)]
pub(crate) enum EnvFileError {
    /// Its number, and what is wrong with it.
    Line(usize, &'static str),
    NoVolume {
        volume: String,
    },
    Read(io::Error),
}

impl fmt::Display for EnvFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(number, problem) => write!(f, "line {number}: {problem}"),
            Self::NoVolume { volume } => write!(f, "cannot find the volume {volume:?} referenced by FileKeyRef"),
            Self::Read(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for EnvFileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Line(..) | Self::NoVolume { .. } => None,
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
            | Self::Files(_)
            | Self::Helper { .. }
            | Self::HugePageSize
            | Self::HostPathType { .. }
            | Self::Unsupported { .. } => None,
        }
    }
}
