//! File operations of the store. Tests cut the power after each of them.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use crate::platform::host::file;
use crate::types::api::Time;

/// One directory. Appends and renames may be lost until they are synced. All methods block.
pub(super) trait Files: Send {
    /// The whole file, unless it has more than `limit` bytes; `None` if it does not exist.
    fn read(&mut self, name: &str, limit: u64) -> io::Result<Option<Vec<u8>>>;
    /// Writes a file, replacing an existing one.
    fn write(&mut self, name: &str, bytes: &[u8]) -> io::Result<()>;
    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()>;
    fn sync(&mut self, name: &str) -> io::Result<()>;
    /// Replaces an existing file `to`.
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;
    /// Makes changes of names durable.
    fn sync_folder(&mut self) -> io::Result<()>;
}

/// Modification time of a file; `None` if unknown.
pub(super) fn changed(path: &Path) -> Option<Time> {
    let modified = fs::metadata(path).ok()?.modified().ok()?;
    let since = modified.duration_since(UNIX_EPOCH).ok()?;
    Some(Time::from_unix_nanos(i64::try_from(since.as_nanos()).ok()?))
}

/// A directory that only this user can access.
#[derive(Debug)]
pub(super) struct Folder(pub(super) PathBuf);

impl Files for Folder {
    fn read(&mut self, name: &str, limit: u64) -> io::Result<Option<Vec<u8>>> {
        #[cfg(test)]
        crate::platform::rt::disk_access()?;
        let file = match File::open(self.0.join(name)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut bytes = Vec::new();
        file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
        if u64::try_from(bytes.len()).is_ok_and(|length| length > limit) {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("larger than {limit} bytes")));
        }
        Ok(Some(bytes))
    }

    fn write(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        #[cfg(test)]
        crate::platform::rt::disk_access()?;
        DirBuilder::new().recursive(true).mode(0o700).create(&self.0)?;
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(self.0.join(name))?;
        file.write_all(bytes)
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut file = OpenOptions::new().append(true).open(self.0.join(name))?;
        #[cfg(test)]
        if let Err(error) = crate::platform::rt::disk_access() {
            // A partial write may have happened.
            file.write_all(bytes.get(..bytes.len() / 2).unwrap_or_default())?;
            return Err(error);
        }
        file.write_all(bytes)
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        #[cfg(test)]
        crate::platform::rt::disk_access()?;
        File::open(self.0.join(name))?.sync_data()?;
        #[cfg(test)]
        crate::platform::rt::synced_file(&self.0.join(name));
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        #[cfg(test)]
        crate::platform::rt::disk_access()?;
        fs::rename(self.0.join(from), self.0.join(to))
    }

    fn sync_folder(&mut self) -> io::Result<()> {
        file::sync_folder(&self.0)
    }
}
