//! Removes the mounts, directories and logs of ended pods.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::io::Errno;

use super::error::Error;
use crate::kubelet::csi::Csi;
use crate::platform::host::mounts::unmount_below;
use crate::platform::host::removals::{REMOVAL_PATIENCE, Removals};
use crate::platform::rt;
use crate::state::pods::{ObservedPod, PodDirs};
use crate::types::api::PodUid;

/// Unmounts the volumes of a terminated pod and deletes its emptyDirs; termination messages and logs stay. Returns an
/// error for each directory of which something could not be removed in time; the pod has ended all the same.
pub(crate) async fn tear_down(
    dirs: &PodDirs,
    uid: &PodUid,
    csi: &Csi,
    removals: &Removals,
) -> Result<Vec<Error>, Error> {
    let pod = dirs.pod(uid);
    give_back(&pod, uid.as_str(), csi).await?;
    let gone = [dirs.subpaths(uid), dirs.volumes(uid), dirs.volume_devices(uid), dirs.plugins(uid)];
    Ok(remove_paths(removals, uid, &gone).await)
}

/// Removes everything of a pod: mounts, directories, logs. Returns the same as [`tear_down`].
pub(crate) async fn remove(
    dirs: &PodDirs,
    observed: &ObservedPod,
    csi: &Csi,
    removals: &Removals,
) -> Result<Vec<Error>, Error> {
    let uid = &observed.uid;
    let gone = [dirs.pod(uid), dirs.logs(&observed.namespace, &observed.name, uid)];
    give_back(&dirs.pod(uid), uid.as_str(), csi).await?;
    Ok(remove_paths(removals, uid, &gone).await)
}

/// Unmounts subpaths, has the CSI drivers unpublish their volumes, and unmounts the rest. Unmounting may
/// hang, so it does not take a thread of the removals.
async fn give_back(pod: &Path, uid: &str, csi: &Csi) -> Result<(), Error> {
    let unmount = |path: PathBuf| {
        rt::slow_for(uid, move || unmount_below(&path).map_err(Error::io("unmount everything below", &path)))
    };
    // A subpath keeps the file system of its volume in use, which a driver could not release then.
    unmount(pod.join("volume-subpaths")).await?;
    csi.tear_down(pod).await.map_err(Error::Unmount)?;
    unmount(pod.to_owned()).await
}

/// Directories and log directories of pods found at one time.
#[derive(Debug)]
pub(crate) struct PodDirectories {
    pods: Vec<PathBuf>,
    logs: Vec<PathBuf>,
}

/// The caller compares them with the known pods afterwards, because pods may be added in between.
pub(crate) async fn find_pods(dirs: &PodDirs) -> Result<PodDirectories, Error> {
    let (pods, logs) = (dirs.pods().to_owned(), dirs.all_logs().to_owned());
    rt::blocking(move || Ok(PodDirectories { pods: directories(&pods)?, logs: directories(&logs)? })).await
}

impl PodDirectories {
    /// Removes the directories of pods that are not known. Asks right before each removal, as a pod may come back, for
    /// the uid as it is in the name of the directory.
    /// Returns an error for each directory of which something could not be removed in time.
    pub(crate) async fn remove_orphaned(
        self,
        is_known: &dyn Fn(&str) -> bool,
        csi: &Csi,
        removals: &Removals,
    ) -> Vec<Error> {
        let remove = async |path: PathBuf| remove_path(removals, None, &path, rt::now() + REMOVAL_PATIENCE).await.err();
        let mut failures = Vec::new();
        for pod in self.pods {
            let uid = pod.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if is_known(&uid) {
                continue;
            }
            // A file system that hangs keeps no other directory: what is unmounted late is removed later.
            match rt::deadline(REMOVAL_PATIENCE, give_back(&pod, &uid, csi)).await {
                Ok(Ok(())) if is_known(&uid) => {}
                Ok(Ok(())) => failures.extend(remove(pod).await),
                Ok(Err(error)) => failures.push(error),
                Err(_) => failures.push(Error::io("unmount everything below", &pod)(io::ErrorKind::TimedOut.into())),
            }
        }
        for logs in self.logs {
            if uid_of_logs(&logs).is_some_and(|uid| !is_known(uid)) {
                failures.extend(remove(logs).await);
            }
        }
        failures
    }
}

/// Removes all that can be removed. What takes longer than [`REMOVAL_PATIENCE`] goes on.
async fn remove_paths(removals: &Removals, uid: &PodUid, paths: &[PathBuf]) -> Vec<Error> {
    let (until, mut failures) = (rt::now() + REMOVAL_PATIENCE, Vec::new());
    for path in paths {
        failures.extend(remove_path(removals, Some(uid), path, until).await.err());
    }
    failures
}

/// Never removes a directory in which something is mounted.
async fn remove_path(removals: &Removals, uid: Option<&PodUid>, path: &Path, until: Instant) -> Result<(), Error> {
    match removals.remove(path, uid.map(PodUid::as_str), until).await {
        // A directory with such a name cannot exist.
        Err(error) if error.raw_os_error() == Some(Errno::NAMETOOLONG.raw_os_error()) => Ok(()),
        result => result.map_err(Error::io("remove", path)),
    }
}

/// The directories in `path`, without symlinks; empty if it does not exist.
fn directories(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let list = || -> io::Result<Vec<PathBuf>> {
        let mut directories = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                directories.push(entry.path());
            }
        }
        Ok(directories)
    };
    match list() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        result => result.map_err(Error::io("list", path)),
    }
}

/// The uid in `<namespace>_<name>_<uid>`; `None` for other names. Only the uid may have underscores.
fn uid_of_logs(path: &Path) -> Option<&str> {
    let uid = path.file_name()?.to_str()?.splitn(3, '_').nth(2);
    uid.filter(|uid| !uid.is_empty())
}
