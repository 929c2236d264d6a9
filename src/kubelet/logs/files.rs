//! Lists and removes the log files of one container run: the current file and the rotated ones.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::rotated_names::stamp_in;
use crate::platform::host::regular_file;
use crate::types::sorted::SortOnce;

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
            Ok(metadata) if metadata.is_file() => files.push(LogFile {
                path,
                stamp,
                inode: metadata.ino(),
                size: metadata.len(),
                modified: metadata.mtime(),
            }),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    files.sort_once_by(|a, b| (a.stamp.is_none(), &a.stamp).cmp(&(b.stamp.is_none(), &b.stamp)));
    Ok(files)
}

/// A listed file that is opened later.
#[derive(Debug)]
pub(super) enum Opened {
    File(File),
    Gone,
    /// Its path now has another file, after a rotation or because a container replaced it.
    Replaced,
}

impl LogFile {
    /// Opens the file; neither a link nor a pipe or device that has its place.
    pub(super) fn open(&self) -> io::Result<Opened> {
        match regular_file::open(&self.path, OFlags::RDONLY) {
            Ok(Some(file)) if file.metadata()?.ino() == self.inode => Ok(Opened::File(file)),
            Ok(_) => Ok(Opened::Replaced),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Opened::Gone),
            Err(error) => Err(error),
        }
    }
}

/// Removes a log and its rotated files.
pub(crate) fn remove_log(log: &Path) {
    // A file that cannot be removed now is removed with its pod.
    for file in list(log).unwrap_or_default() {
        let _ = fs::remove_file(file.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaced_file_is_not_opened() {
        let folder = std::env::temp_dir().join(format!("coracle-log-files-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let log = folder.join("0.log");
        let listed = || {
            let _ = fs::remove_file(&log);
            fs::write(&log, "x").unwrap();
            list(&log).unwrap().pop().unwrap()
        };
        let replaced = |by: &dyn Fn()| {
            let file = listed();
            // The old file keeps its inode until it is closed.
            let _held = File::open(&log).unwrap();
            fs::remove_file(&log).unwrap();
            by();
            matches!(file.open().unwrap(), Opened::Replaced)
        };
        assert!(matches!(listed().open().unwrap(), Opened::File(_)));
        assert!(replaced(&|| fs::write(&log, "y").unwrap()));
        assert!(replaced(&|| std::os::unix::fs::symlink("/etc/shadow", &log).unwrap()));
        assert!(replaced(&|| nix::unistd::mkfifo(&log, nix::sys::stat::Mode::S_IRWXU).unwrap()));
        assert!(replaced(&|| drop(std::os::unix::net::UnixListener::bind(&log).unwrap())));
        let gone = listed();
        fs::remove_file(&log).unwrap();
        assert!(matches!(gone.open().unwrap(), Opened::Gone));
        fs::remove_dir_all(&folder).unwrap();
    }
}
