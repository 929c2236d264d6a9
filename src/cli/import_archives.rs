//! `coracle images import`: copies archives to the agent's import directory.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::delete::DELETE_POLL_INTERVAL;
use super::local_api::get;
use crate::control::server::{ArchiveStatus, NodeStatus};
use crate::kubelet::image_archives::{Stamp, stamp};
use crate::types::error::ErrorChain;

/// One line per imported image, or one line about what failed.
pub(super) fn import_archives(socket: &Path, files: &[String]) -> Result<String, String> {
    let status = status(socket)?;
    let directory = PathBuf::from(&status.image_archives.directory);
    let mut placed = Vec::new();
    for file in files {
        placed.push(copy_into(Path::new(file), &directory).map_err(|error| format!("{file}: {error}"))?);
    }
    let mut imported = String::new();
    for (name, stamp) in placed {
        for image in wait(socket, &name, stamp)? {
            imported += &format!("{image}\n");
        }
    }
    Ok(imported)
}

fn status(socket: &Path) -> Result<NodeStatus, String> {
    get(socket, "/status").map_err(|error| ErrorChain(&error).to_string())
}

/// Waits until the agent has imported the archive; returns its images.
fn wait(socket: &Path, name: &str, stamp: Stamp) -> Result<Vec<String>, String> {
    let end = Instant::now() + IMPORT_NOTICE_TIMEOUT;
    loop {
        let status = status(socket)?;
        let is_it = |archive: &&ArchiveStatus| {
            archive.file == name && Stamp { size: archive.size_bytes, modified: archive.modified_nanos } == stamp
        };
        match status.image_archives.files.into_iter().find(|archive| is_it(&archive)) {
            Some(archive) if archive.state == "imported" => return Ok(archive.images),
            Some(archive) if !archive.message.is_empty() => return Err(format!("{name}: {}", archive.message)),
            None if Instant::now() >= end => {
                return Err(format!("{name} was copied, but the agent has not found it, see coracle status"));
            }
            Some(_) | None => thread::sleep(DELETE_POLL_INTERVAL),
        }
    }
}

/// Timeout for the agent to notice the file; the import itself may take longer.
const IMPORT_NOTICE_TIMEOUT: Duration = Duration::from_secs(30);

/// Copies the file durably into the directory; returns its name and stamp there. An identical file is left alone.
fn copy_into(file: &Path, directory: &Path) -> io::Result<(String, Stamp)> {
    let metadata = fs::metadata(file)?;
    let name = file.file_name().and_then(|name| name.to_str()).filter(|name| !name.starts_with('.'));
    let (true, Some(name)) = (metadata.is_file(), name) else {
        return Err(io::Error::other("expected a file with a UTF-8 name that does not begin with a dot"));
    };
    let target = directory.join(name);
    let is_there = fs::metadata(&target).is_ok_and(|there| stamp(&there) == stamp(&metadata));
    if !is_there {
        // An unfinished copy of another run is replaced.
        let unfinished = directory.join(format!(".{name}.part"));
        let _ = fs::remove_file(&unfinished);
        // Not a hard link: the next transfer of the file may write into the same inode, and cut the archive off.
        copy(file, &unfinished)?;
        fs::rename(&unfinished, &target)?;
        File::open(directory)?.sync_all()?;
    }
    Ok((name.to_owned(), stamp(&fs::metadata(&target)?)))
}

/// Shares the blocks where the file system can. Keeps the modification time, so that importing the same file again finds
/// the same archive.
fn copy(source: &Path, target: &Path) -> io::Result<()> {
    let (mut from, mut to) = (File::open(source)?, File::create(target)?);
    let copied = io::copy(&mut from, &mut to).and_then(|_| {
        to.set_modified(from.metadata()?.modified()?)?;
        to.sync_all()
    });
    if copied.is_err() {
        let _ = fs::remove_file(target);
    }
    copied
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_copied_once_and_whole() {
        let top = std::env::temp_dir().join(format!("coracle-place-{}", std::process::id()));
        let directory = top.join("images");
        fs::create_dir_all(&directory).unwrap();
        let (file, hidden) = (top.join("a.tar"), top.join(".a.tar"));
        fs::write(&file, "1").unwrap();
        fs::write(&hidden, "1").unwrap();
        let first = copy_into(&file, &directory).unwrap();
        let again = copy_into(&file, &directory).unwrap();
        // As scp does: into the same file.
        fs::write(&file, "").unwrap();
        let kept = fs::read_to_string(directory.join("a.tar")).unwrap();
        fs::write(&file, "22").unwrap();
        let changed = copy_into(&file, &directory).unwrap();
        let refused =
            [copy_into(&hidden, &directory), copy_into(&top, &directory), copy_into(&top.join("no"), &directory)];
        copy(&file, &directory.join("b.tar")).unwrap();
        let copied = stamp(&fs::metadata(directory.join("b.tar")).unwrap());
        let text = fs::read_to_string(directory.join("a.tar"));
        let left = fs::read_dir(&directory).unwrap().count();
        fs::remove_dir_all(&top).unwrap();
        assert_eq!((&*first.0, first.1.size, again), ("a.tar", 1, first.clone()));
        assert_eq!(kept, "1");
        assert_eq!((changed.1.size, text.unwrap().as_str(), left), (2, "22", 2));
        assert_eq!(copied, changed.1);
        assert!(refused.iter().all(Result::is_err));
    }
}
