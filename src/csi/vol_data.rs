//! What stands beside each mount about the volume there, in upstream's form: who has mounted it can be found again.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::places;
use crate::host::file;

/// Of a volume on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct VolData {
    pub(super) driver: String,
    pub(super) handle: String,
    pub(super) is_ephemeral: bool,
}

const NAME: &str = "vol_data.json";
const LARGEST: u64 = 64 << 10;
const EPHEMERAL: &str = "Ephemeral";

/// For a volume of a pod.
pub(super) fn of_pod(data: &VolData, name: &str, node: &str, attachment: &str) -> Value {
    json!({
        "attachmentID": attachment, "driverName": data.driver, "nodeName": node, "specVolID": name,
        "volumeHandle": data.handle,
        "volumeLifecycleMode": if data.is_ephemeral { EPHEMERAL } else { "Persistent" },
    })
}

/// For one that is staged.
pub(super) fn of_staged(data: &VolData) -> Value {
    json!({"driverName": data.driver, "volumeHandle": data.handle})
}

/// Written where it says something else.
pub(super) fn write(directory: &Path, content: &Value) -> io::Result<()> {
    let path = directory.join(NAME);
    let text = format!("{content}\n");
    if file::read_all(&path, LARGEST).is_ok_and(|found| found == text.as_bytes()) {
        return Ok(());
    }
    file::replace(&path, text.as_bytes())
}

/// Whether it is there, even if it cannot be read.
pub(super) fn is_at(directory: &Path) -> bool {
    !directory.join(NAME).symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// `None` where there is nothing that can be read.
pub(super) fn read(directory: &Path) -> Option<VolData> {
    let content: Value = serde_json::from_slice(&file::read_all(&directory.join(NAME), LARGEST).ok()?).ok()?;
    let text = |key: &str| content.get(key).and_then(Value::as_str).map(str::to_owned);
    Some(VolData {
        driver: text("driverName")?,
        handle: text("volumeHandle")?,
        is_ephemeral: text("volumeLifecycleMode").as_deref() == Some(EPHEMERAL),
    })
}

/// The places of a pod's volumes of this kind.
pub(super) fn volumes_of(pod: &Path) -> io::Result<Vec<PathBuf>> {
    let mut volumes = Vec::new();
    for folder in ["volumes", places::DEVICES] {
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

/// What is known of the volume at this place, if there is something that can be read.
pub(super) fn of_place(place: &Path) -> Option<VolData> {
    read(&places::data(place))
}

/// Whether a volume of another place than `own` is this one.
pub(super) fn is_used_elsewhere(own: &Path, data: &VolData) -> io::Result<bool> {
    Ok(all_volumes(places::pods(own))?.iter().any(|(volume, of)| volume != own && of == data))
}

/// Those of all pods that can be read.
pub(super) fn all_volumes(pods: &Path) -> io::Result<Vec<(PathBuf, VolData)>> {
    let mut all = Vec::new();
    for pod in fs::read_dir(pods)? {
        let volumes = volumes_of(&pod?.path())?.into_iter();
        all.extend(volumes.filter_map(|volume| of_place(&volume).map(|data| (volume, data))));
    }
    Ok(all)
}

const FOLDER: &str = "kubernetes.io~csi";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_used_elsewhere_where_the_same_is_written_of_another_place() {
        let root = std::env::temp_dir().join(format!("coracle-vol-data-{}", std::process::id()));
        let data = |handle: &str| VolData { driver: "d".to_owned(), handle: handle.to_owned(), is_ephemeral: false };
        let bring = |place: &str, handle: &str| {
            let place = root.join("pods").join(place);
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            write(&places::data(&place), &of_pod(&data(handle), "pv", "n", "a")).unwrap();
            if places::is_device(&place) {
                fs::write(&place, "").unwrap();
            }
            place
        };
        for folder in ["volumes", places::DEVICES] {
            let own = bring(&format!("u/{folder}/{FOLDER}/pv"), "h");
            bring(&format!("other/{folder}/{FOLDER}/pv-2"), "h-2");
            assert!(!is_used_elsewhere(&own, &data("h")).unwrap(), "{folder}");
            let same = bring(&format!("third/{folder}/{FOLDER}/pv"), "h");
            assert!(is_used_elsewhere(&own, &data("h")).unwrap(), "{folder}");
            assert!(is_used_elsewhere(&same, &data("h")).unwrap(), "{folder}");
            fs::remove_dir_all(root.join("pods")).unwrap();
        }
        fs::remove_dir_all(&root).unwrap();
    }
}
