//! Lists and removes the log files of one container run: the current file and the rotated ones.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::rotated_names::stamp_in;

#[derive(Clone, Debug)]
pub(super) struct LogFile {
    pub(super) path: PathBuf,
    /// `None` for the current file.
    pub(super) stamp: Option<String>,
    pub(super) inode: u64,
    pub(super) size: u64,
    /// Seconds since 1970.
    pub(super) modified: i64,
}

/// The files of the log at `log`, oldest first; the current file, if it exists, is last. Symlinks and other
/// non-regular files are skipped.
pub(super) fn list(log: &Path) -> io::Result<Vec<LogFile>> {
    let (Some(folder), Some(name)) = (log.parent(), log.file_name().and_then(|name| name.to_str())) else {
        return Err(ErrorKind::InvalidInput.into());
    };
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let file = entry?.file_name();
        let Some(file) = file.to_str() else { continue };
        let stamp = stamp_in(file, name).map(str::to_owned);
        if stamp.is_none() && file != name {
            continue;
        }
        let path = folder.join(file);
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_file() => {
                files.push(LogFile { path, stamp, inode: found.ino(), size: found.len(), modified: found.mtime() })
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    files.sort_by(|a, b| (a.stamp.is_none(), &a.stamp).cmp(&(b.stamp.is_none(), &b.stamp)));
    Ok(files)
}

/// Removes a log and its rotated files.
pub(crate) fn remove_log(log: &Path) {
    // A file that cannot be removed now is removed with its pod.
    for file in list(log).unwrap_or_default() {
        let _ = fs::remove_file(file.path);
    }
}
