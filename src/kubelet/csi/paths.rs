//! Where the parts of a volume are: upstream's layout. Pure.
//!
//! Everything follows from the volume's place in the directory of its pod: a directory with a mount in it
//! (`pods/<uid>/volumes/kubernetes.io~csi/<name>`), or a link to a device (`pods/<uid>/volumeDevices/kubernetes.io~csi/<name>`).

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::types::api::PodUid;

/// Of a pod's directory: where its devices are.
pub(super) const DEVICES: &str = "volumeDevices";

/// Whether the volume is a device.
pub(super) fn is_device(place: &Path) -> bool {
    place.ancestors().nth(2).and_then(Path::file_name) == Some(OsStr::new(DEVICES))
}

/// Where the driver publishes it.
pub(crate) fn target(place: &Path) -> PathBuf {
    match is_device(place) {
        true => published(place).join(pod_of(place).file_name().unwrap_or_default()),
        false => place.join("mount"),
    }
}

/// The directory with what is written about it.
pub(super) fn data(place: &Path) -> PathBuf {
    match is_device(place) {
        true => own(place).join("data"),
        false => place.to_owned(),
    }
}

/// Where a device is staged.
pub(super) fn staged_device(place: &Path) -> PathBuf {
    devices(place).join("staging").join(name(place))
}

/// The directory that a device is published in, for every pod that has it.
pub(super) fn published(place: &Path) -> PathBuf {
    devices(place).join("publish").join(name(place))
}

/// What is known of a device on this node.
pub(super) fn own(place: &Path) -> PathBuf {
    devices(place).join(name(place))
}

/// The directory of pods that the volume's pod is in.
pub(super) fn pods(place: &Path) -> &Path {
    place.ancestors().nth(4).unwrap_or(place)
}

pub(super) fn pod_uid(place: &Path) -> PodUid {
    pod_of(place).file_name().unwrap_or_default().to_string_lossy().as_ref().into()
}

fn pod_of(place: &Path) -> &Path {
    place.ancestors().nth(3).unwrap_or(place)
}

fn devices(place: &Path) -> PathBuf {
    pods(place).with_file_name("plugins").join("kubernetes.io/csi").join(DEVICES)
}

fn name(place: &Path) -> &OsStr {
    place.file_name().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_its_mount_and_its_data_in_it() {
        let place = Path::new("/k/pods/u-1/volumes/kubernetes.io~csi/pv");
        assert!(!is_device(place));
        assert_eq!((target(place), data(place)), (place.join("mount"), place.to_owned()));
        assert_eq!(pods(place), Path::new("/k/pods"));
    }

    #[test]
    fn a_device_is_published_and_known_beside_the_driver() {
        let place = Path::new("/k/pods/u-1/volumeDevices/kubernetes.io~csi/pv");
        assert!(is_device(place));
        let below = Path::new("/k/plugins/kubernetes.io/csi/volumeDevices");
        assert_eq!(target(place), below.join("publish/pv/u-1"));
        assert_eq!(data(place), below.join("pv/data"));
        assert_eq!(staged_device(place), below.join("staging/pv"));
    }
}
