//! Data files beside CSI mounts, in upstream's format, with the driver and handle of each volume.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::paths;
use crate::platform::host::file;

/// Data of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct VolData {
    pub(super) driver: String,
    pub(super) handle: String,
    pub(super) is_ephemeral: bool,
}

const VOL_DATA_FILE: &str = "vol_data.json";
const MOUNT_LABEL: &str = "seLinuxMountContext";
const MAX_VOL_DATA_BYTES: u64 = 1 << 20;
const EPHEMERAL_VOL_DATA_MODE: &str = "Ephemeral";

/// The content for a pod's volume.
pub(super) fn of_pod(data: &VolData, name: &str, node: &str, attachment: &str) -> Value {
    json!({
        "attachmentID": attachment, "driverName": data.driver, "nodeName": node, "specVolID": name,
        "volumeHandle": data.handle,
        "volumeLifecycleMode": if data.is_ephemeral { EPHEMERAL_VOL_DATA_MODE } else { "Persistent" },
    })
}

/// The content for a staged volume.
pub(super) fn of_staged(data: &VolData) -> Value {
    json!({"driverName": data.driver, "volumeHandle": data.handle})
}

/// Adds the SELinux label that the volume is mounted with.
pub(super) fn with_label(mut content: Value, label: Option<&str>) -> Value {
    if let (Some(label), Some(content)) = (label, content.as_object_mut()) {
        content.insert(MOUNT_LABEL.to_owned(), json!(label));
    }
    content
}

/// Writes the file if its content differs.
pub(super) fn write(directory: &Path, content: &Value) -> io::Result<()> {
    let path = directory.join(VOL_DATA_FILE);
    let text = format!("{content}\n");
    if file::read_all(&path, MAX_VOL_DATA_BYTES).is_ok_and(|written| written == text.as_bytes()) {
        return Ok(());
    }
    file::replace_within(&path, text.as_bytes(), MAX_VOL_DATA_BYTES)
}

/// Whether the file exists, even if it is unreadable.
pub(super) fn is_at(directory: &Path) -> bool {
    !directory.join(VOL_DATA_FILE).symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// `None` if the file is missing or corrupt; an error if it cannot be read.
fn read<T>(directory: &Path, parse: impl Fn(&Value) -> Option<T>) -> io::Result<Option<T>> {
    match file::read_all(&directory.join(VOL_DATA_FILE), MAX_VOL_DATA_BYTES) {
        Ok(text) => Ok(serde_json::from_slice(&text).ok().as_ref().and_then(parse)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

fn parse(content: &Value) -> Option<VolData> {
    let text = |key: &str| content.get(key).and_then(Value::as_str).map(str::to_owned);
    Some(VolData {
        driver: text("driverName")?,
        handle: text("volumeHandle")?,
        is_ephemeral: text("volumeLifecycleMode").as_deref() == Some(EPHEMERAL_VOL_DATA_MODE),
    })
}

/// Paths of a pod's CSI volumes.
pub(super) fn volumes_of(pod: &Path) -> io::Result<Vec<PathBuf>> {
    let mut volumes = Vec::new();
    for folder in ["volumes", paths::DEVICES] {
        let entries = match fs::read_dir(pod.join(folder).join(FOLDER)) {
            Ok(entries) => entries,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => continue,
            Err(error) => return Err(error),
        };
        for entry in entries {
            volumes.push(entry?.path());
        }
    }
    Ok(volumes)
}

/// The volume at this path; `None` if its data file is missing or corrupt.
pub(super) fn of_place(path: &Path) -> io::Result<Option<VolData>> {
    read(&paths::data(path), parse)
}

/// The SELinux label that the volume at this path is mounted with, as far as its data file tells.
pub(super) fn label_at(path: &Path) -> Option<String> {
    let label = |content: &Value| content.get(MOUNT_LABEL).and_then(Value::as_str).map(str::to_owned);
    read(&paths::data(path), label).ok().flatten()
}

/// Whether another path than `path` that `is_other` accepts has the same volume.
pub(super) fn is_used_elsewhere(path: &Path, data: &VolData, is_other: &dyn Fn(&Path) -> bool) -> io::Result<bool> {
    Ok(all_volumes(paths::pods(path))?.iter().any(|(volume, of)| volume != path && of == data && is_other(volume)))
}

/// The volumes of all pods, except those with a missing or corrupt data file.
fn all_volumes(pods: &Path) -> io::Result<Vec<(PathBuf, VolData)>> {
    find_volumes(pods, &|_, error| Err(error))
}

/// As [`all_volumes`], without those that cannot be read, which are logged.
pub(super) fn readable_volumes(pods: &Path) -> Vec<(PathBuf, VolData)> {
    let skipped = |path: &Path, error: io::Error| {
        log!(warn, "failed to read CSI volumes, skipping them", path = path.display(), error = error);
        Ok(())
    };
    find_volumes(pods, &skipped).unwrap_or_default()
}

/// `failed` decides whether the rest is still read.
fn find_volumes(
    pods: &Path,
    failed: &dyn Fn(&Path, io::Error) -> io::Result<()>,
) -> io::Result<Vec<(PathBuf, VolData)>> {
    let mut volumes = Vec::new();
    for pod in fs::read_dir(pods)? {
        let pod = match pod {
            Ok(pod) => pod.path(),
            Err(error) => {
                failed(pods, error)?;
                continue;
            }
        };
        let of_pod = volumes_of(&pod).or_else(|error| failed(&pod, error).map(|()| Vec::new()))?;
        for volume in of_pod {
            match of_place(&volume) {
                Ok(data) => volumes.extend(data.map(|data| (volume, data))),
                Err(error) => failed(&volume, error)?,
            }
        }
    }
    Ok(volumes)
}

const FOLDER: &str = "kubernetes.io~csi";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volume_is_used_elsewhere_if_another_path_has_its_data() {
        let root = std::env::temp_dir().join(format!("coracle-vol-data-{}", std::process::id()));
        let data = |handle: &str| VolData { driver: "d".to_owned(), handle: handle.to_owned(), is_ephemeral: false };
        let bring = |name: &str, handle: &str| {
            let place = root.join("pods").join(name);
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            write(&paths::data(&place), &of_pod(&data(handle), "pv", "n", "a")).unwrap();
            if paths::is_device(&place) {
                fs::write(&place, "").unwrap();
            }
            place
        };
        for folder in ["volumes", paths::DEVICES] {
            let own = bring(&format!("u/{folder}/{FOLDER}/pv"), "h");
            bring(&format!("other/{folder}/{FOLDER}/pv-2"), "h-2");
            assert!(!is_used_elsewhere(&own, &data("h"), &|_| true).unwrap(), "{folder}");
            let same = bring(&format!("third/{folder}/{FOLDER}/pv"), "h");
            assert!(is_used_elsewhere(&own, &data("h"), &|_| true).unwrap(), "{folder}");
            assert!(!is_used_elsewhere(&own, &data("h"), &|other| other != same).unwrap(), "{folder}");
            assert!(is_used_elsewhere(&same, &data("h"), &|_| true).unwrap(), "{folder}");
            assert_eq!(label_at(&same), None, "{folder}");
            write(&paths::data(&same), &with_label(of_pod(&data("h"), "pv", "n", "a"), Some("a:b:c:s0:c1"))).unwrap();
            assert_eq!(label_at(&same).as_deref(), Some("a:b:c:s0:c1"), "{folder}");
            assert!(is_used_elsewhere(&own, &data("h"), &|other| label_at(other).is_some()).unwrap(), "{folder}");
            fs::remove_dir_all(root.join("pods")).unwrap();
        }
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn unreadable_volume_hides_no_other_volume() {
        let root = std::env::temp_dir().join(format!("coracle-vol-data-skip-{}", std::process::id()));
        let data = VolData { driver: "d".to_owned(), handle: "h".to_owned(), is_ephemeral: false };
        let place = |pod: &str| root.join(pod).join("volumes").join(FOLDER).join("pv");
        for pod in ["a", "c"] {
            fs::create_dir_all(place(pod)).unwrap();
            write(&paths::data(&place(pod)), &of_pod(&data, "pv", "n", "a")).unwrap();
        }
        // A directory, which cannot be read as a file.
        fs::create_dir_all(paths::data(&place("b")).join(VOL_DATA_FILE)).unwrap();
        let mut paths: Vec<PathBuf> = readable_volumes(&root).into_iter().map(|(path, _)| path).collect();
        paths.sort();
        assert_eq!(paths, [place("a"), place("c")]);
        assert!(is_used_elsewhere(&root.join("x/volumes/y/z"), &data, &|_| true).is_err());
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn unreadable_file_is_an_error_unlike_a_missing_one() {
        let place =
            std::env::temp_dir().join(format!("coracle-vol-data-unread-{}/volumes/{FOLDER}/pv", std::process::id()));
        let file = paths::data(&place).join(VOL_DATA_FILE);
        let mut found = vec![of_place(&place)];
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "{").unwrap();
        found.push(of_place(&place));
        fs::remove_file(&file).unwrap();
        // A directory, which cannot be read as a file.
        fs::create_dir(&file).unwrap();
        found.push(of_place(&place));
        fs::remove_dir_all(place.ancestors().nth(3).unwrap()).unwrap();
        assert!(matches!(found[..], [Ok(None), Ok(None), Err(_)]), "{found:?}");
    }
}
