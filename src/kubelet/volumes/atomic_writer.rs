//! Writes the files of a volume atomically: readers see either all old files or all new ones.
//!
//! ```text
//!   volume/..data      -> ..2        the current directory: a symlink that is replaced by rename
//!   volume/..2/key                   the files
//!   volume/key         -> ..data/key what the pod sees
//! ```
//!
//! Upstream's layout, except that the directory has a number instead of a timestamp, because the clock may be wrong.
//! Leftovers of a crash are found by listing. Nothing is synced: files torn by a power failure differ from the
//! payload and are written again before a container starts.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown, symlink};
use std::path::{Component, Path, PathBuf};

use super::error::Problem;
use super::payload::{Payload, PayloadFile};
use crate::platform::host::file::read_head;
use crate::platform::host::remove_tree::remove_tree;
use crate::types::error::ErrorChain;
use crate::types::sorted::SortedSet;

/// Makes the files in `volume` equal `payload`; `group` may read them. Writes nothing if they are equal already.
pub(super) fn write(volume: &Path, payload: &Payload, group: Option<u32>) -> Result<(), Problem> {
    let current = current(volume);
    remove_leftovers(volume, current.as_deref()).map_err(Problem::io("list", volume))?;
    let old = current.as_ref().map(|name| volume.join(name));
    let same = old.as_ref().is_some_and(|old| holds(old, payload, group).unwrap_or(false));
    if !same {
        let name = next_name(volume, current.as_deref());
        let new = volume.join(&name);
        let written = write_files(&new, payload, group)
            .and_then(|()| switch(volume, &name).map_err(Problem::io("link", &volume.join(DATA))));
        if let Err(problem) = written {
            // An incomplete directory is useless, and may be what filled the disk.
            let _ = fs::remove_file(volume.join(NEW_DATA));
            let _ = remove_tree(&new);
            return Err(problem);
        }
    }
    show(volume, payload).map_err(Problem::io("create symlinks in", volume))?;
    if let Some(old) = old.filter(|_| !same) {
        remove(&old);
    }
    Ok(())
}

/// Whether the volume has been written before and can be read.
pub(super) fn has_content(volume: &Path) -> bool {
    current(volume).is_some()
}

/// The current directory, if it exists.
fn current(volume: &Path) -> Option<OsString> {
    let target = fs::read_link(volume.join(DATA)).ok()?;
    let mut parts = target.components();
    let (Some(Component::Normal(name)), None) = (parts.next(), parts.next()) else { return None };
    (is_kept_back(name) && volume.join(name).is_dir()).then(|| name.to_owned())
}

/// Whether the name has a prefix that is reserved for the layout.
fn is_kept_back(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b"..")
}

/// Removes leftovers of a crash: directories that are not current, and a `..data` that a damaged file system has
/// turned into something else.
fn remove_leftovers(volume: &Path, current: Option<&OsStr>) -> io::Result<()> {
    for entry in fs::read_dir(volume)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_switch = name == DATA && entry.file_type()?.is_symlink();
        if is_kept_back(&name) && !is_switch && Some(name.as_os_str()) != current {
            remove(&entry.path());
        }
    }
    Ok(())
}

/// What cannot be removed does not keep new files out. The next write tries again.
fn remove(old: &Path) {
    if let Err(error) = remove_tree(old) {
        log!(warn, "failed to remove old files of volume", path = old.display(), error = ErrorChain(&error));
    }
}

/// A name that nothing has. All old directories but the current one have been removed, unless they cannot be.
fn next_name(volume: &Path, current: Option<&OsStr>) -> String {
    let number = current.and_then(|name| name.to_str()?.strip_prefix("..")?.parse::<u64>().ok());
    let first = number.map_or(1, |number| number.wrapping_add(1));
    let mut names = (0..MAX_TRIED_NAMES).map(|more| format!("..{}", first.wrapping_add(more)));
    let is_free = |name: &String| fs::symlink_metadata(volume.join(name)).is_err();
    names.find(is_free).unwrap_or_else(|| format!("..{first}"))
}

/// Whether the files in `directory` are exactly those of the payload.
fn holds(directory: &Path, payload: &Payload, group: Option<u32>) -> io::Result<bool> {
    for (path, file) in payload {
        let there = directory.join(path);
        let metadata = fs::symlink_metadata(&there)?;
        let fits = metadata.is_file()
            && usize::try_from(metadata.size()).is_ok_and(|size| size == file.content.len())
            && metadata.mode() & 0o7777 == mode(file, group)
            && file.user.is_none_or(|user| metadata.uid() == user);
        if !fits || read_head(&there, file.content.len().saturating_add(1))? != *file.content {
            return Ok(false);
        }
    }
    Ok(count_files(directory)? == payload.len())
}

fn count_files(directory: &Path) -> io::Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        count += if entry.file_type()?.is_dir() { count_files(&entry.path())? } else { 1 };
    }
    Ok(count)
}

/// The group may read the file (`SetVolumeOwnership` in pkg/volume/volume_linux.go).
fn mode(file: &PayloadFile, group: Option<u32>) -> u32 {
    if group.is_some() { file.mode | 0o440 } else { file.mode }
}

fn write_files(directory: &Path, payload: &Payload, group: Option<u32>) -> Result<(), Problem> {
    make_directory(directory, group)?;
    let mut made: SortedSet<&Path> = SortedSet::new();
    for (path, file) in payload {
        let above: Vec<&Path> = path.ancestors().skip(1).filter(|path| !path.as_os_str().is_empty()).collect();
        for path in above.into_iter().rev() {
            if made.insert(path) {
                make_directory(&directory.join(path), group)?;
            }
        }
        let path = directory.join(path);
        write_file(&path, file, group).map_err(Problem::io("write", &path))?;
    }
    Ok(())
}

fn make_directory(path: &Path, group: Option<u32>) -> Result<(), Problem> {
    let make = || -> io::Result<()> {
        fs::create_dir(path)?;
        let directory = File::open(path)?;
        if group.is_some() {
            fchown(&directory, None, group)?;
        }
        directory.set_permissions(Permissions::from_mode(if group.is_some() { 0o2755 } else { 0o755 }))
    };
    make().map_err(Problem::io("create", path))
}

fn write_file(path: &Path, file: &PayloadFile, group: Option<u32>) -> io::Result<()> {
    let mut made = File::options().write(true).create_new(true).open(path)?;
    made.write_all(&file.content)?;
    if group.is_some() || file.user.is_some() {
        fchown(&made, file.user, group)?;
    }
    made.set_permissions(Permissions::from_mode(mode(file, group)))
}

fn switch(volume: &Path, name: &str) -> io::Result<()> {
    let new = volume.join(NEW_DATA);
    symlink(name, &new)?;
    fs::rename(new, volume.join(DATA))
}

/// Creates symlinks to the files and removes those to missing ones. Anything that is not our symlink stays.
fn show(volume: &Path, payload: &Payload) -> io::Result<()> {
    let wanted: SortedSet<&OsStr> =
        payload.keys().filter_map(|path| path.components().next()).map(Component::as_os_str).collect();
    for name in &wanted {
        let (target, link) = (link_to(name), volume.join(name));
        match symlink(&target, &link) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // A directory is a mount point of another volume of the pod.
                if !fs::symlink_metadata(&link)?.is_dir() && fs::read_link(&link).ok().as_ref() != Some(&target) {
                    fs::remove_file(&link)?;
                    symlink(&target, &link)?;
                }
            }
            result => result?,
        }
    }
    for entry in fs::read_dir(volume)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_ours = || fs::read_link(entry.path()).is_ok_and(|target| target == link_to(&name));
        if !is_kept_back(&name) && !wanted.contains(name.as_os_str()) && is_ours() {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn link_to(name: &OsStr) -> PathBuf {
    Path::new(DATA).join(name)
}

const DATA: &str = "..data";
const NEW_DATA: &str = "..data_tmp";
/// How many names are tried for new files.
const MAX_TRIED_NAMES: u64 = 1000;

#[cfg(test)]
mod tests;
