//! The stored pairs of certificate and key, in the upstream kubelet's layout.
//!
//! ```text
//! kubelet-client-current.pem -> kubelet-client-2026-01-02-03-04-05.pem    the current pair
//! kubelet-client.key.tmp                                                  a key that has no certificate yet
//! ```
//!
//! At every moment either the previous or the new pair is current, also after a power failure. A file that cannot be
//! read as a pair is set aside (`*.corrupt`), and the newest other pair is used.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::key::{Key, KeyError};
use super::pair::{Pair, PairError};
use crate::platform::host::directories::set_aside;
use crate::platform::host::file;
use crate::types::api::Time;
use crate::types::sorted::SortOnce;

/// The files of one certificate.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    directory: PathBuf,
    /// `kubelet-client` or `kubelet-server`.
    prefix: &'static str,
}

/// Size limit of a pair, which normally has a few kilobytes.
const MAX_CERTIFICATE_PAIR_BYTES: u64 = 1 << 20;

impl Store {
    pub(crate) fn new(directory: PathBuf, prefix: &'static str) -> Self {
        Self { directory, prefix }
    }

    /// The symlink to the current pair.
    pub(crate) fn current_path(&self) -> PathBuf {
        self.directory.join(format!("{}-current.pem", self.prefix))
    }

    pub(crate) fn current(&self) -> Result<Option<Pair>, StoreError> {
        let link = self.current_path();
        match read_pair(&link)? {
            Some(Ok(pair)) => return Ok(Some(pair)),
            Some(Err(fault)) => {
                let file = fs::canonicalize(&link).unwrap_or_else(|_| link.clone());
                log!(warn, "failed to read certificate", file = file.display(), error = fault);
                set_aside(&file).map_err(|cause| StoreError::io("set aside", &file, cause))?;
            }
            None => {}
        }
        // Left by an interrupted update: the symlink before its rename, or files without a symlink.
        for file in self.others()? {
            match read_pair(&file)? {
                Some(Ok(pair)) => {
                    self.link(&file)?;
                    return Ok(Some(pair));
                }
                Some(Err(fault)) => log!(warn, "failed to read certificate", file = file.display(), error = fault),
                None => {}
            }
        }
        Ok(None)
    }

    /// Makes `pair` the current one. Keeps the previous pair and removes older ones. The previous pair takes over if
    /// the file of the new one is damaged.
    pub(crate) fn put(&self, pair: &Pair, now: Time) -> Result<(), StoreError> {
        let before = fs::canonicalize(self.current_path()).ok();
        let file = self.free_name(now);
        file::replace(&file, pair.to_pem().as_bytes()).map_err(|cause| StoreError::io("write", &file, cause))?;
        self.link(&file)?;
        let kept = |other: &PathBuf| *other == file || Some(other) == before.as_ref();
        for other in self.others()?.into_iter().filter(|other| !kept(other)) {
            // A file that cannot be removed does no harm.
            let _ = fs::remove_file(other);
        }
        Ok(())
    }

    /// The key of the pending request, also after a restart; else a new key.
    pub(crate) fn key(&self) -> Result<Key, StoreError> {
        let path = self.key_path();
        match read(&path)?.map(|text| Key::from_pem(&text)) {
            Some(Ok(key)) => return Ok(key),
            Some(Err(fault)) => {
                log!(warn, "failed to read key", file = path.display(), error = fault);
                set_aside(&path).map_err(|cause| StoreError::io("set aside", &path, cause))?;
            }
            None => {}
        }
        let key = Key::generate().map_err(StoreError::Key)?;
        file::replace(&path, key.to_pem().as_bytes()).map_err(|cause| StoreError::io("write", &path, cause))?;
        Ok(key)
    }

    /// Called when the key has its certificate or will never get one.
    pub(crate) fn forget_key(&self) -> Result<(), StoreError> {
        remove(&self.key_path())
    }

    fn key_path(&self) -> PathBuf {
        self.directory.join(format!("{}.key.tmp", self.prefix))
    }

    /// Every file of this store: pairs, symlinks, keys, and files set aside.
    pub(crate) fn files(&self) -> Result<Vec<PathBuf>, StoreError> {
        let parts = ["-", ".key.", ".crt", ".key"].map(|part| [self.prefix, part].concat());
        let mut files = self.list()?;
        files.retain(|name| parts.iter().any(|part| name.starts_with(part)));
        Ok(files.into_iter().map(|name| self.directory.join(name)).collect())
    }

    fn list(&self) -> Result<Vec<String>, StoreError> {
        let failed = |cause| StoreError::io("list", &self.directory, cause);
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed)?,
        };
        let mut names = Vec::new();
        for entry in entries {
            names.extend(entry.map_err(failed)?.file_name().into_string());
        }
        names.sort_once();
        Ok(names)
    }

    /// Files that may hold a pair, most likely first: the target of an unfinished symlink, then the newest.
    fn others(&self) -> Result<Vec<PathBuf>, StoreError> {
        let dated = |name: &&String| {
            let stamp = name.strip_prefix(self.prefix).and_then(|rest| rest.strip_prefix('-')?.strip_suffix(".pem"));
            stamp.is_some_and(|stamp| stamp.len() >= 19 && stamp.chars().all(|c| c.is_ascii_digit() || c == '-'))
        };
        let names = self.list()?;
        let files = names.iter().filter(dated).rev().map(|name| self.directory.join(name));
        Ok(fs::canonicalize(self.updated_path()).ok().into_iter().chain(files).collect())
    }

    fn updated_path(&self) -> PathBuf {
        self.directory.join(format!("{}-updated.pem", self.prefix))
    }

    /// An unused name for this time: after the clock is set back, a name may exist already.
    fn free_name(&self, now: Time) -> PathBuf {
        let stamp = now.to_string().replace(['T', ':'], "-");
        let stamp = stamp.trim_end_matches('Z');
        let name = |more: &str| self.directory.join(format!("{}-{stamp}{more}.pem", self.prefix));
        let more = (1..1000).map(|number| format!("-{number:03}"));
        let mut names = std::iter::once(String::new()).chain(more).map(|more| name(&more));
        names.find(|path| !path.exists()).unwrap_or_else(|| name("-1000"))
    }

    /// Points the symlink to `file`.
    fn link(&self, file: &Path) -> Result<(), StoreError> {
        let (link, updated) = (self.current_path(), self.updated_path());
        let linked = || {
            match fs::remove_file(&updated) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => symlink(file, &updated)?,
            }
            fs::rename(&updated, &link)?;
            File::open(&self.directory)?.sync_all()
        };
        linked().map_err(|cause| StoreError::io("link", &link, cause))
    }
}

/// The content of a file; `None` if it does not exist.
fn read(path: &Path) -> Result<Option<Vec<u8>>, StoreError> {
    match file::read_all(path, MAX_CERTIFICATE_PAIR_BYTES) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(StoreError::io("read", path, cause)),
    }
}

fn read_pair(path: &Path) -> Result<Option<Result<Pair, PairError>>, StoreError> {
    Ok(read(path)?.map(|text| Pair::from_pem(&text, &text)))
}

fn remove(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StoreError::io("remove", path, error)),
        _ => Ok(()),
    }
}

#[derive(Debug)]
pub(crate) enum StoreError {
    Io { doing: &'static str, path: PathBuf, cause: io::Error },
    Key(KeyError),
}

impl StoreError {
    pub(super) fn io(doing: &'static str, path: &Path, cause: io::Error) -> Self {
        Self::Io { doing, path: path.to_owned(), cause }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { doing, path, .. } => write!(f, "{doing} {}", path.display()),
            Self::Key(_) => f.write_str("generate a key"),
        }
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { cause, .. } => Some(cause),
            Self::Key(error) => Some(error),
        }
    }
}

#[cfg(test)]
mod tests;
