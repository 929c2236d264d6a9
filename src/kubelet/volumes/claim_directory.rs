//! The directories of claims from manifests, in the layout of local-path-provisioner: `pvc-UID_NAMESPACE_NAME`.
//!
//! A directory is made when the first pod needs it, and stays when pods and claims go.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::error::Problem;
use crate::platform::host::directories;
use crate::platform::host::file_system;

/// Makes the directory unless it is there. `bytes` have to be free then.
pub(super) fn set_up(path: &Path, bytes: u64) -> Result<(), Problem> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => return Ok(()),
        Ok(_) => return Err(Problem::HostPathType { path: path.to_owned(), expected: "directory" }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(Problem::io("stat", path)(error)),
    }
    let root = path.parent().unwrap_or(path);
    directories::make(root, 0o755).map_err(Problem::io("create", root))?;
    let room = file_system::room(root).map_err(Problem::io("statfs", root))?;
    if room.available < bytes {
        let (available, root) = (room.available, root.to_owned());
        return Err(Problem::ClaimRoom { root, requested: bytes, available });
    }
    // With its mode from the beginning: a container may run as any user.
    let unfinished = root.join(format!(".{}", path.file_name().unwrap_or_default().to_string_lossy()));
    let made = match fs::create_dir(&unfinished) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    };
    made.and_then(|()| fs::set_permissions(&unfinished, Permissions::from_mode(0o777)))
        .and_then(|()| fs::rename(&unfinished, path))
        // Another pod may have made it at the same moment.
        .or_else(|error| if path.is_dir() { Ok(()) } else { Err(error) })
        .map_err(Problem::io("create", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_is_made_if_there_is_room_and_is_kept() {
        let root = std::env::temp_dir().join(format!("coracle-claims-{}", std::process::id()));
        let path = root.join("pvc-u_default_data");
        let full = set_up(&path, u64::MAX).unwrap_err().to_string();
        assert!(full.contains("requests 18446744073709551615 bytes") && !path.exists(), "{full}");
        set_up(&path, 1).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o777);
        fs::write(path.join("kept"), "x").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
        // The data may fill the disk by now, and its owner may have changed the mode.
        set_up(&path, u64::MAX).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o700);
        assert_eq!(fs::read_dir(&root).unwrap().count(), 1);
        let file = root.join("pvc-u_default_file");
        fs::write(&file, "").unwrap();
        assert!(set_up(&file, 1).unwrap_err().to_string().contains("is not a directory"));
        fs::remove_dir_all(&root).unwrap();
    }
}
