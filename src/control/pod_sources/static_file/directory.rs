//! Lists a manifest directory and reads its files. Blocking: runs in the blocking pool.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use super::files::{Content, DirectoryId, FileToRead, Listing, Stamp};
use super::names::is_manifest;
use crate::control::pod_sources::static_pod::{ManifestNode, read_manifest};
use crate::platform::host::clock;
use crate::platform::host::open_files::{NameAndInode, open_for_writing};
use crate::state::pods::SourceName;
use crate::types::api::yaml::MAX_BYTES;
use crate::types::sorted::{SortedMap, SortedSet};

/// The manifests at `path`, which is a directory or a manifest file.
///
/// `was_file`: at the last listing `path` was a manifest file. If it is missing now, it was deleted.
pub(super) fn list(path: &Path, was_file: bool) -> io::Result<Listing> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => list_directory(path, &metadata),
        Ok(metadata) => list_single(path, Some(&metadata)),
        Err(error) if was_file && error.kind() == io::ErrorKind::NotFound => list_single(path, None),
        Err(error) => Err(error),
    }
}

fn list_directory(path: &Path, metadata: &Metadata) -> io::Result<Listing> {
    #[cfg(test)]
    crate::platform::rt::disk_access()?;
    let (mut files, mut skipped) = (SortedMap::new(), SortedSet::new());
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let name = entry.file_name();
        if !is_manifest(&name) {
            let is_file = || fs::metadata(entry.path()).is_ok_and(|metadata| metadata.is_file());
            if skipped.len() < MAX_SKIPPED_FILES && is_file() {
                skipped.insert(name);
            }
            continue;
        }
        if files.len() >= MAX_MANIFESTS {
            return Err(io::Error::other("there are too many files in it"));
        }
        // Follows links: a manifest may be one. A dangling link is listed as a file that cannot be read.
        match fs::metadata(entry.path()) {
            Ok(metadata) if metadata.is_file() => drop(files.insert(name, Ok(stamp(&metadata)))),
            Ok(_) => {}
            Err(error) => drop(files.insert(name, Err(Arc::new(error)))),
        }
    }
    Ok(Listing { directory: id(metadata), single: false, files, skipped })
}

fn list_single(path: &Path, metadata: Option<&Metadata>) -> io::Result<Listing> {
    let directory = fs::metadata(path.parent().unwrap_or(Path::new("/")))?;
    let mut files = SortedMap::new();
    if let (Some(metadata), Some(name)) = (metadata, path.file_name()) {
        if !metadata.is_file() {
            return Err(io::Error::other("it is neither a directory nor a file"));
        }
        files.insert(name.to_owned(), Ok(stamp(metadata)));
    }
    Ok(Listing { directory: id(&directory), single: true, files, skipped: SortedSet::new() })
}

fn id(metadata: &Metadata) -> DirectoryId {
    let born = metadata.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
    DirectoryId { device: metadata.dev(), inode: metadata.ino(), born }
}

fn stamp(metadata: &Metadata) -> Stamp {
    Stamp {
        device: metadata.dev(),
        inode: metadata.ino(),
        size: metadata.size(),
        times: [metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec()],
    }
}

pub(super) fn read(path: &Path, node: &ManifestNode) -> Content {
    let (stamp, text) = match read_text(path) {
        Ok(read) => read,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Content::Gone,
        Err(error) => return Content::Unreadable(Arc::new(error)),
    };
    let config_seen = clock::timestamp().to_string();
    let path = path.to_string_lossy();
    Content::Read(stamp, read_manifest(&text, &node.origin(SourceName::File, &path, &config_seen)))
}

fn read_text(path: &Path) -> io::Result<(Stamp, Vec<u8>)> {
    #[cfg(test)]
    crate::platform::rt::disk_access()?;
    // Non-blocking: since the listing, the file may have become a pipe without a writer.
    let file: File = OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    // One byte more than allowed, which the parser rejects.
    let limit = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    let mut text = Vec::new();
    file.take(limit).read_to_end(&mut text)?;
    Ok((stamp(&metadata), text))
}

/// Reads manifests one after the other, so that their texts are not all in memory at once.
pub(super) fn read_all(files: Vec<FileToRead>, node: &ManifestNode) -> Vec<(OsString, Content)> {
    let half_written = half_written(&files);
    let read_unless_open = |file: FileToRead| {
        let is_open = || id_of(&file.path).is_some_and(|id| half_written.contains(&id));
        let content = if is_open() { Content::HalfWritten } else { read(&file.path, node) };
        (file.name, content)
    };
    files.into_iter().map(read_unless_open).collect()
}

/// The files that a process has open for writing. A file that its writer has closed is not asked for: the kernel reports
/// the close a moment before the descriptor is gone.
fn half_written(files: &[FileToRead]) -> SortedSet<NameAndInode> {
    // A simulated node's files are written by the test.
    #[cfg(test)]
    if crate::platform::rt::world().is_some() {
        return SortedSet::new();
    }
    let asked: SortedSet<NameAndInode> = files
        .iter()
        .filter(|file| !file.is_closed && is_recent(&file.path))
        .filter_map(|file| id_of(&file.path))
        .collect();
    if asked.is_empty() { asked } else { open_for_writing(Path::new("/proc"), &asked) }
}

/// Whether the file may still be written: each write moves its time. After a boot most manifests are old, and the question
/// to every process would delay all pods.
fn is_recent(path: &Path) -> bool {
    let Ok(metadata) = fs::metadata(path) else { return true };
    let now = clock::timestamp().as_second();
    [metadata.mtime(), metadata.ctime()].iter().any(|changed| is_near(*changed, now))
}

/// A clock that was set meanwhile makes a file older or newer than it is.
fn is_near(changed: i64, now: i64) -> bool {
    now.abs_diff(changed) < MAX_WRITING_PAUSE.as_secs()
}

fn id_of(path: &Path) -> Option<NameAndInode> {
    let inode = fs::metadata(path).ok()?.ino();
    // A manifest may be a link.
    Some((fs::canonicalize(path).ok()?.file_name()?.to_owned(), inode))
}

/// A file that was not written for this long counts as complete, although a process has it open.
const MAX_WRITING_PAUSE: Duration = Duration::from_secs(600);
/// More files than any node has pods.
const MAX_MANIFESTS: usize = 4096;
/// Further files that are skipped for their names are not logged.
const MAX_SKIPPED_FILES: usize = 64;

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn only_files_of_the_last_minutes_may_still_be_written() {
        assert_eq!([0, 599, 600, -599, -600].map(|age| is_near(1000 - age, 1000)), [true, true, false, true, false]);
    }

    #[test]
    fn sizes_beyond_4_gib_and_times_beyond_2038_are_exact() {
        let dir = std::env::temp_dir().join(format!("coracle-large-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("m.yaml");
        let file = File::create(&path).unwrap();
        file.set_len((5 << 30) + 1).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(4_070_908_800)).unwrap();
        let listing = list(&dir, false);
        let content = read(&path, &ManifestNode::named("n"));
        fs::remove_dir_all(&dir).unwrap();
        let listed = listing.unwrap().files.remove(OsStr::new("m.yaml")).unwrap().unwrap();
        let Content::Read(seen, Err(_)) = content else { panic!("{content:?}") };
        for stamp in [listed, seen] {
            assert_eq!((stamp.size, stamp.times[0]), ((5 << 30) + 1, 4_070_908_800));
        }
    }
}
