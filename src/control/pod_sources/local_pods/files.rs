//! The files of the node's own pods. Blocks: for the blocking pool.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::platform::host::directories::set_aside;
use crate::platform::host::durable::{self, StoredFile};

/// The doors take no more of a manifest.
const LIMIT: u64 = 1 << 20;

/// What a pod's file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Loaded {
    Manifest(Vec<u8>),
    /// What is there is not what was put there.
    Damaged,
}

/// The name of a pod's file. Neither part has an underscore, so that no two pods have the same.
pub(super) fn key(namespace: &str, name: &str) -> String {
    format!("{namespace}_{name}{END}")
}

/// Namespace and name of the pod whose file has this name.
pub(super) fn names(key: &str) -> Option<(&str, &str)> {
    key.strip_suffix(END)?.split_once('_')
}

/// Every pod's file by its name, in order. A damaged one is set aside, and is told of until the pod is put or deleted.
pub(super) fn load(directory: &Path) -> io::Result<Vec<(String, io::Result<Loaded>)>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry?.file_name().into_string());
    }
    names.sort_unstable();
    let mut files = Vec::new();
    for name in &names {
        if names.iter().any(|other| name.strip_suffix(ASIDE) == Some(other)) {
            continue;
        }
        if let Some(key) = name.strip_suffix(ASIDE).filter(|key| self::names(key).is_some()) {
            files.push((key.to_owned(), Ok(Loaded::Damaged)));
        } else if self::names(name).is_some() {
            let path = directory.join(name);
            let loaded = read(&path);
            if matches!(loaded, Ok(Loaded::Damaged)) {
                // It is told of either way.
                let _ = set_aside(&path);
            }
            files.push((name.clone(), loaded));
        }
    }
    Ok(files)
}

pub(super) fn read(path: &Path) -> io::Result<Loaded> {
    Ok(match durable::read(path, LIMIT)? {
        StoredFile::Whole(text) => Loaded::Manifest(text),
        StoredFile::Damaged | StoredFile::Nothing => Loaded::Damaged,
    })
}

/// Done when it is on the disk. False if it was there already.
pub(super) fn write(path: &Path, text: &[u8]) -> io::Result<bool> {
    let changed = durable::write_changed(path, text)?;
    // What was damaged has been replaced.
    durable::remove(&aside(path))?;
    Ok(changed)
}

pub(super) fn remove(path: &Path) -> io::Result<()> {
    durable::remove(&aside(path))?;
    durable::remove(path)
}

fn aside(path: &Path) -> PathBuf {
    let mut aside = OsString::from(path);
    aside.push(ASIDE);
    PathBuf::from(aside)
}

const END: &str = ".yaml";
const ASIDE: &str = ".corrupt";
