//! Checks the type of hostPath volumes.

use std::fs::{self, File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::Path;

use super::error::Problem;
use crate::platform::host::directories;
use crate::types::api::HostPathType;

/// Checks `path`, and creates it if the type says so. Symlinks are followed: the path belongs to the node.
pub(super) fn check(path: &Path, kind: HostPathType) -> Result<(), Problem> {
    // Without a type the path is not accessed at all, because its file system may hang.
    if kind == HostPathType::Unset {
        return Ok(());
    }
    let metadata = match fs::metadata(path) {
        Ok(metadata) => Some(metadata),
        Err(error) if is_missing(&error) => None,
        Err(error) => return Err(Problem::io("stat", path)(error)),
    };
    let is = |test: fn(&Metadata) -> bool| metadata.as_ref().is_some_and(test);
    let (fits, expected) = match kind {
        HostPathType::Unset => return Ok(()),
        HostPathType::DirectoryOrCreate if metadata.is_none() => {
            return directories::make(path, 0o755).map_err(Problem::io("create", path));
        }
        HostPathType::FileOrCreate if metadata.is_none() => {
            return make_file(path).map_err(Problem::io("create", path));
        }
        HostPathType::Directory | HostPathType::DirectoryOrCreate => (is(Metadata::is_dir), "directory"),
        // As upstream, devices and sockets are accepted as files.
        HostPathType::File | HostPathType::FileOrCreate => (is(|metadata| !metadata.is_dir()), "file"),
        HostPathType::Socket => (is(|metadata| metadata.file_type().is_socket()), "socket file"),
        HostPathType::CharDevice => (is(|metadata| metadata.file_type().is_char_device()), "character device"),
        HostPathType::BlockDevice => (is(|metadata| metadata.file_type().is_block_device()), "block device"),
    };
    if fits { Ok(()) } else { Err(Problem::HostPathType { path: path.to_owned(), expected }) }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn make_file(path: &Path) -> io::Result<()> {
    File::options().write(true).create_new(true).open(path)?.set_permissions(Permissions::from_mode(0o644))
}
