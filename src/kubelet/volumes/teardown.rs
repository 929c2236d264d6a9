//! Removes the mounts, directories and logs of ended pods.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::error::Error;
use crate::kubelet::csi::Csi;
use crate::platform::host::mounts::unmount_below;
use crate::platform::host::remove_tree::remove_tree;
use crate::platform::rt;
use crate::state::pods::{ObservedPod, PodDirs};
use crate::types::api::PodUid;

/// Unmounts the volumes of a terminated pod and deletes its emptyDirs; termination messages and logs stay.
pub(crate) async fn tear_down(dirs: &PodDirs, uid: &PodUid, csi: &Csi) -> Result<(), Error> {
    let pod = dirs.pod(uid);
    give_back(&pod, uid.as_str(), csi).await?;
    let gone = [dirs.subpaths(uid), dirs.volumes(uid), dirs.volume_devices(uid), dirs.plugins(uid)];
    rt::remove_for(uid.as_str(), move || gone.iter().try_for_each(|path| remove_path(path))).await
}

/// Removes everything of a pod: mounts, directories, logs.
pub(crate) async fn remove(dirs: &PodDirs, observed: &ObservedPod, csi: &Csi) -> Result<(), Error> {
    let uid = &observed.uid;
    let (pod, logs) = (dirs.pod(uid), dirs.logs(&observed.namespace, &observed.name, uid));
    give_back(&pod, uid.as_str(), csi).await?;
    rt::remove_for(uid.as_str(), move || {
        remove_path(&pod)?;
        remove_path(&logs)
    })
    .await
}

/// Unmounts subpaths, has the CSI drivers unpublish their volumes, and unmounts the rest. Unmounting may
/// hang, so it does not take a thread of the removals.
async fn give_back(pod: &Path, uid: &str, csi: &Csi) -> Result<(), Error> {
    let unmount = |path: PathBuf| {
        rt::slow_for(uid, move || unmount_below(&path).map_err(Error::io("unmount everything below", &path)))
    };
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
    /// Removes the directories of pods not in `known`. Continues after a failure and returns an error for one.
    pub(crate) async fn remove_strays(self, known: &[PodUid], csi: &Csi) -> Result<(), Error> {
        let is_stray = |uid: &str| known.iter().all(|known| known.as_str() != uid);
        let is_stray_pod = |path: &PathBuf| path.file_name().and_then(|uid| uid.to_str()).is_none_or(is_stray);
        let pods: Vec<PathBuf> = self.pods.into_iter().filter(is_stray_pod).collect();
        let logs: Vec<PathBuf> = self.logs.into_iter().filter(|logs| uid_of_logs(logs).is_some_and(is_stray)).collect();
        let mut outcome = Ok(());
        let mut given_back = Vec::new();
        for pod in pods {
            let uid = pod.file_name().unwrap_or_default().to_string_lossy();
            match give_back(&pod, &uid, csi).await {
                Ok(()) => given_back.push(pod),
                Err(error) => outcome = Err(error),
            }
        }
        let removed = rt::remove(move || {
            let pods = given_back.iter().map(|pod| remove_path(pod)).collect::<Vec<_>>();
            pods.into_iter().chain(logs.iter().map(|logs| remove_path(logs))).fold(Ok(()), Result::and)
        });
        removed.await.and(outcome)
    }
}

/// Never removes a directory in which something is mounted.
fn remove_path(path: &Path) -> Result<(), Error> {
    remove_tree(path).map_err(Error::io("remove", path))
}

/// The directories in `path`, without symlinks; empty if it does not exist.
fn directories(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let list = || -> io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                found.push(entry.path());
            }
        }
        Ok(found)
    };
    match list() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        result => result.map_err(Error::io("list", path)),
    }
}

/// The uid in `<namespace>_<name>_<uid>`; `None` for other names.
fn uid_of_logs(path: &Path) -> Option<&str> {
    let mut parts = path.file_name()?.to_str()?.split('_');
    let (Some(_), Some(_), Some(uid), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return None;
    };
    Some(uid).filter(|uid| !uid.is_empty())
}
