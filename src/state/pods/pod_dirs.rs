//! Where the files of pods are: the paths that a kubelet gives them. Pure.

use std::path::{Path, PathBuf};

use crate::types::api::PodUid;

/// The directories that hold the files of all pods.
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

    /// Holds a directory for each pod, named by its uid.
    pub(crate) fn pods(&self) -> &Path {
        &self.pods
    }

    /// Holds a directory for the logs of each pod.
    pub(crate) fn all_logs(&self) -> &Path {
        &self.logs
    }

    /// The log of a container's start after so many others.
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

    /// Holds a link to the log of each container: `/var/log/containers`, beside the directory of the logs.
    pub(crate) fn log_links(&self) -> PathBuf {
        self.logs.with_file_name("containers")
    }

    pub(crate) fn pod(&self, uid: &PodUid) -> PathBuf {
        self.pods.join(component(uid.as_str()))
    }

    pub(crate) fn volumes(&self, uid: &PodUid) -> PathBuf {
        self.pod(uid).join("volumes")
    }

    /// The place of one volume: `volumes/kubernetes.io~empty-dir/<name>`.
    pub(crate) fn volume(&self, uid: &PodUid, plugin: &str, name: &str) -> PathBuf {
        self.volumes(uid).join(component(plugin)).join(component(name))
    }

    /// The devices that are volumes.
    pub(crate) fn volume_devices(&self, uid: &PodUid) -> PathBuf {
        self.pod(uid).join("volumeDevices")
    }

    /// The link to one of them: `volumeDevices/kubernetes.io~csi/<name>`.
    pub(crate) fn volume_device(&self, uid: &PodUid, plugin: &str, name: &str) -> PathBuf {
        self.volume_devices(uid).join(component(plugin)).join(component(name))
    }

    pub(crate) fn plugins(&self, uid: &PodUid) -> PathBuf {
        self.pod(uid).join("plugins")
    }

    /// What a volume plugin keeps for itself about one volume.
    pub(crate) fn plugin(&self, uid: &PodUid, plugin: &str, name: &str) -> PathBuf {
        self.plugins(uid).join(component(plugin)).join(component(name))
    }

    /// The files of one container: its termination messages.
    pub(crate) fn container(&self, uid: &PodUid, container: &str) -> PathBuf {
        self.pod(uid).join("containers").join(component(container))
    }

    /// The bind mounts of a pod's subpaths.
    pub(crate) fn subpaths(&self, uid: &PodUid) -> PathBuf {
        self.pod(uid).join("volume-subpaths")
    }

    /// The file that is `/etc/hosts` in the pod's containers.
    pub(crate) fn etc_hosts(&self, uid: &PodUid) -> PathBuf {
        self.pod(uid).join("etc-hosts")
    }

    /// The logs of a pod; those of a container are in a directory of its name below it.
    pub(crate) fn logs(&self, namespace: &str, name: &str, uid: &PodUid) -> PathBuf {
        let directory = [namespace, "_", name, "_", uid.as_str()].concat();
        self.logs.join(component(&directory))
    }
}

/// `name` as one component of a path: it can neither leave its directory nor be the directory itself.
///
/// Uids and names come from manifests and from labels that any client of the runtime may have written.
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
    fn paths_are_those_of_a_kubelet() {
        let uid = PodUid::from("1-2");
        let volume = dirs().volume(&uid, "kubernetes.io/empty-dir", "disk");
        assert_eq!(volume, Path::new("/var/lib/kubelet/pods/1-2/volumes/kubernetes.io~empty-dir/disk"));
        assert_eq!(dirs().etc_hosts(&uid), Path::new("/var/lib/kubelet/pods/1-2/etc-hosts"));
        assert_eq!(dirs().container(&uid, "main"), Path::new("/var/lib/kubelet/pods/1-2/containers/main"));
        assert_eq!(dirs().logs("default", "web", &uid), Path::new("/var/log/pods/default_web_1-2"));
        assert_eq!(dirs().log_links(), Path::new("/var/log/containers"));
    }

    #[test]
    fn no_uid_leads_out_of_the_directory_of_pods() {
        for uid in ["", ".", "..", "../..", "/", "a/../../b", "/etc"] {
            let path = dirs().pod(&PodUid::from(uid));
            assert_eq!(path.parent(), Some(dirs().pods()), "{uid:?} became {}", path.display());
            assert!(path.file_name().is_some(), "{uid:?} became {}", path.display());
        }
        assert_eq!(dirs().logs("..", "", &PodUid::from("/..")).parent(), Some(dirs().all_logs()));
    }
}
