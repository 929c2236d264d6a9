//! The files of pods put on this node. Blocking: runs in the blocking pool.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::platform::host::directories::set_aside;
use crate::platform::host::durable::{self, StoredFile};
use crate::types::sorted::SortOnce;

/// The APIs accept no longer manifest.
const MAX_LOCAL_POD_BYTES: u64 = 1 << 20;

/// The content of a pod's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FileContent {
    Manifest(Vec<u8>),
    /// The content does not match its checksum.
    Damaged,
}

/// The name of a pod's file. Neither part contains an underscore, so the name is unique.
pub(super) fn key(namespace: &str, name: &str) -> String {
    format!("{namespace}_{name}{LOCAL_POD_SUFFIX}")
}

/// Namespace and name of the pod with this file name.
pub(super) fn names(key: &str) -> Option<(&str, &str)> {
    key.strip_suffix(LOCAL_POD_SUFFIX)?.split_once('_')
}

/// Every pod's file, in order of name. A damaged file is set aside, and reported until its pod is put or deleted.
pub(super) fn load(directory: &Path) -> io::Result<Vec<(String, io::Result<FileContent>)>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry?.file_name().into_string());
    }
    names.sort_once();
    let mut files = Vec::new();
    for name in &names {
        if names.iter().any(|other| name.strip_suffix(CORRUPT_POD_SUFFIX) == Some(other)) {
            continue;
        }
        if let Some(key) = name.strip_suffix(CORRUPT_POD_SUFFIX).filter(|key| self::names(key).is_some()) {
            files.push((key.to_owned(), Ok(FileContent::Damaged)));
        } else if self::names(name).is_some() {
            let path = directory.join(name);
            let loaded = read(&path);
            if matches!(loaded, Ok(FileContent::Damaged)) {
                // The damage is reported either way.
                let _ = set_aside(&path);
            }
            files.push((name.clone(), loaded));
        }
    }
    Ok(files)
}

pub(super) fn read(path: &Path) -> io::Result<FileContent> {
    Ok(match durable::read(path, MAX_LOCAL_POD_BYTES)? {
        StoredFile::Whole(text) => FileContent::Manifest(text),
        StoredFile::Damaged | StoredFile::Nothing => FileContent::Damaged,
    })
}

/// Returns once the file is on disk. False if it already had this content.
pub(super) fn write(path: &Path, text: &[u8]) -> io::Result<bool> {
    let changed = durable::write_changed(path, text)?;
    // The damaged file has been replaced.
    durable::remove(&aside(path))?;
    Ok(changed)
}

pub(super) fn remove(path: &Path) -> io::Result<()> {
    durable::remove(&aside(path))?;
    durable::remove(path)
}

fn aside(path: &Path) -> PathBuf {
    let mut aside = OsString::from(path);
    aside.push(CORRUPT_POD_SUFFIX);
    PathBuf::from(aside)
}

const LOCAL_POD_SUFFIX: &str = ".yaml";
const CORRUPT_POD_SUFFIX: &str = ".corrupt";
