//! Paths of pod files, as in the upstream kubelet. Pure.

use std::path::{Path, PathBuf};

use crate::types::api::PodUid;

/// Directories with the files of all pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodDirs {
    pods: PathBuf,
    logs: PathBuf,
}

impl PodDirs {
    /// The directories below `root_dir` (`/var/lib/kubelet`) and `pod_logs_dir` (`/var/log/pods`).
    pub(crate) fn new(root_dir: &Path, pod_logs_dir: &Path) -> Self {
        Self { pods: root_dir.join("pods"), logs: pod_logs_dir.to_owned() }
    }

    /// Has one directory per pod, named by uid.
    pub(crate) fn pods(&self) -> &Path {
        &self.pods
    }

    /// Has one directory per pod for its logs.
    pub(crate) fn all_logs(&self) -> &Path {
        &self.logs
    }

    /// Log of the container instance with this restart count.
    pub(crate) fn log(
        &self,
        namespace: &str,
        name: &str,
        uid: &PodUid,
        container: &str,
        restart_count: u32,
    ) -> PathBuf {
        self.logs(namespace, name, uid).join(component(container)).join(format!("{restart_count}.log"))
    }

    /// Has a symlink to the log of each container, wherever the logs are: collectors look nowhere else. Upstream's
    /// `DefaultContainerLogsDir`.
    pub(crate) fn log_links(&self) -> PathBuf {
        PathBuf::from("/var/log/containers")
    }

    pub(crate) fn pod(&self, uid: &PodUid) -> PathBuf {
        self.pods.join(component(uid.as_str()))
    }

    pub(crate) fn volumes(&self, uid: &PodUid) -> PathBuf {
        self.pod(uid).join("volumes")
    }

    /// Directory of a volume: `volumes/kubernetes.io~empty-dir/<name>`.
    pub(crate) fn volume(&self, uid: &PodUid, plugin: &str, name: &str) -> PathBuf {
        self.volumes(uid).join(component(plugin)).join(component(name))
    }

    /// Directory of the block volumes.
    pub(crate) fn volume_devices(&self, uid: &PodUid) -> PathBuf {
        self.pod(uid).join("volumeDevices")
    }

    /// Symlink to a block device: `volumeDevices/kubernetes.io~csi/<name>`.
    pub(crate) fn volume_device(&self, uid: &PodUid, plugin: &str, name: &str) -> PathBuf {
        self.volume_devices(uid).join(component(plugin)).join(component(name))
    }

    pub(crate) fn plugins(&self, uid: &PodUid) -> PathBuf {
        self.pod(uid).join("plugins")
    }

    /// A volume plugin's own data about a volume.
    pub(crate) fn plugin(&self, uid: &PodUid, plugin: &str, name: &str) -> PathBuf {
        self.plugins(uid).join(component(plugin)).join(component(name))
    }

    /// Has one directory per container.
    fn containers(&self, uid: &PodUid) -> PathBuf {
        self.pod(uid).join("containers")
    }

    /// Files of one container: its termination messages.
    pub(crate) fn container(&self, uid: &PodUid, container: &str) -> PathBuf {
        self.containers(uid).join(component(container))
    }

    /// The termination message of the container instance with this restart count.
    pub(crate) fn termination_log(&self, uid: &PodUid, container: &str, restart_count: u32) -> PathBuf {
        self.container(uid, container).join(format!("{restart_count}.log"))
    }

    /// Files of the pod that its containers write, outside of volumes and logs.
    pub(crate) fn own_files(&self, uid: &PodUid) -> [PathBuf; 2] {
        [self.etc_hosts(uid), self.containers(uid)]
    }

    /// Bind mounts of the pod's subpaths.
    pub(crate) fn subpaths(&self, uid: &PodUid) -> PathBuf {
        self.pod(uid).join("volume-subpaths")
    }

    /// The file mounted as `/etc/hosts` in the pod's containers.
    pub(crate) fn etc_hosts(&self, uid: &PodUid) -> PathBuf {
        self.pod(uid).join("etc-hosts")
    }

    /// Logs of a pod, with a directory per container.
    pub(crate) fn logs(&self, namespace: &str, name: &str, uid: &PodUid) -> PathBuf {
        let directory = [namespace, "_", name, "_", uid.as_str()].concat();
        self.logs.join(component(&directory))
    }
}

/// Whether the uid is `name`, as directories and log directories have it in their names.
pub(crate) fn is_uid_in_name(uid: &PodUid, name: &str) -> bool {
    let uid = uid.as_str();
    // Only a changed component has a tilde, as no uid of an API server has.
    uid == name || (name.contains('~') && component(uid) == name)
}

/// `name` as a single path component that cannot leave the directory or be the directory itself.
///
/// Uids and names come from manifests and from labels, which any client of the runtime may have written.
fn component(name: &str) -> String {
    let name = name.replace(['/', '\0'], "~");
    match name.as_str() {
        "" | "." | ".." => ["~", &name].concat(),
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dirs() -> PodDirs {
        PodDirs::new(Path::new("/var/lib/kubelet"), Path::new("/var/log/pods"))
    }

    #[test]
    fn paths_are_upstreams() {
        let uid = PodUid::from("1-2");
        let volume = dirs().volume(&uid, "kubernetes.io/empty-dir", "disk");
        assert_eq!(volume, Path::new("/var/lib/kubelet/pods/1-2/volumes/kubernetes.io~empty-dir/disk"));
        assert_eq!(dirs().etc_hosts(&uid), Path::new("/var/lib/kubelet/pods/1-2/etc-hosts"));
        assert_eq!(dirs().container(&uid, "main"), Path::new("/var/lib/kubelet/pods/1-2/containers/main"));
        assert_eq!(dirs().logs("default", "web", &uid), Path::new("/var/log/pods/default_web_1-2"));
        for logs in ["/var/log/pods", "/data/log/pods"] {
            let dirs = PodDirs::new(Path::new("/var/lib/kubelet"), Path::new(logs));
            assert_eq!(dirs.log_links(), Path::new("/var/log/containers"));
        }
    }

    #[test]
    fn uid_cannot_leave_the_pods_directory() {
        for uid in ["", ".", "..", "../..", "/", "a/../../b", "/etc"] {
            let path = dirs().pod(&PodUid::from(uid));
            assert_eq!(path.parent(), Some(dirs().pods()), "{uid:?} became {}", path.display());
            assert!(path.file_name().is_some(), "{uid:?} became {}", path.display());
            let name = path.file_name().unwrap().to_str().unwrap();
            assert!(is_uid_in_name(&PodUid::from(uid), name), "{uid:?} became {name}");
            assert!(!is_uid_in_name(&PodUid::from("a/b"), name));
        }
        assert_eq!(dirs().logs("..", "", &PodUid::from("/..")).parent(), Some(dirs().all_logs()));
    }
}
