//! Paths of a volume, in upstream's layout. Pure.
//!
//! All paths follow from the volume's path in the pod's directory: a directory with a mount inside
//! (`pods/<uid>/volumes/kubernetes.io~csi/<name>`), or a symlink to a device
//! (`pods/<uid>/volumeDevices/kubernetes.io~csi/<name>`).

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::types::api::PodUid;

/// Directory of a pod's block devices, in the pod's directory.
pub(super) const DEVICES: &str = "volumeDevices";

/// Whether it is a block volume.
pub(super) fn is_device(path: &Path) -> bool {
    path.ancestors().nth(2).and_then(Path::file_name) == Some(OsStr::new(DEVICES))
}

/// The target path of NodePublishVolume.
pub(crate) fn target(path: &Path) -> PathBuf {
    match is_device(path) {
        true => published(path).join(pod_of(path).file_name().unwrap_or_default()),
        false => path.join("mount"),
    }
}

/// The directory with the volume's data file.
pub(super) fn data(path: &Path) -> PathBuf {
    match is_device(path) {
        true => data_directory(path).join("data"),
        false => path.to_owned(),
    }
}

/// The staging path of a block volume.
pub(super) fn staged_device(path: &Path) -> PathBuf {
    devices(path).join("staging").join(name(path))
}

/// The parent of the publish paths of a block volume, one per pod.
pub(super) fn published(path: &Path) -> PathBuf {
    devices(path).join("publish").join(name(path))
}

/// The directory of everything about a block volume.
pub(super) fn data_directory(path: &Path) -> PathBuf {
    devices(path).join(name(path))
}

/// The directory of all pods.
pub(super) fn pods(path: &Path) -> &Path {
    path.ancestors().nth(4).unwrap_or(path)
}

pub(super) fn pod_uid(path: &Path) -> PodUid {
    pod_of(path).file_name().unwrap_or_default().to_string_lossy().as_ref().into()
}

fn pod_of(path: &Path) -> &Path {
    path.ancestors().nth(3).unwrap_or(path)
}

fn devices(path: &Path) -> PathBuf {
    pods(path).with_file_name("plugins").join("kubernetes.io/csi").join(DEVICES)
}

fn name(path: &Path) -> &OsStr {
    path.file_name().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounted_volume_has_its_mount_and_data_inside() {
        let place = Path::new("/k/pods/u-1/volumes/kubernetes.io~csi/pv");
        assert!(!is_device(place));
        assert_eq!((target(place), data(place)), (place.join("mount"), place.to_owned()));
        assert_eq!(pods(place), Path::new("/k/pods"));
    }

    #[test]
    fn block_volume_is_published_in_the_plugins_directory() {
        let place = Path::new("/k/pods/u-1/volumeDevices/kubernetes.io~csi/pv");
        assert!(is_device(place));
        let below = Path::new("/k/plugins/kubernetes.io/csi/volumeDevices");
        assert_eq!(target(place), below.join("publish/pv/u-1"));
        assert_eq!(data(place), below.join("pv/data"));
        assert_eq!(staged_device(place), below.join("staging/pv"));
    }
}
