//! Reads files up to a limit and replaces files atomically.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

use super::regular_file;

/// Bytes that this thread has read so far, from files of any kind.
#[cfg(test)]
pub(crate) fn bytes_read_by_thread() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/io").unwrap_or_default();
    let read = text.lines().find_map(|line| line.strip_prefix("rchar: "));
    read.and_then(|count| count.parse().ok()).expect("the kernel counts the bytes")
}

/// The last `limit` bytes of a regular file, and whether more precede them. A container may control the file: links are
/// not followed, and nothing but a regular file is opened.
pub(crate) fn read_tail(path: &Path, limit: u64) -> io::Result<(Vec<u8>, bool)> {
    let mut file = open_regular(path)?;
    let before = file.metadata()?.len().saturating_sub(limit);
    file.seek(SeekFrom::Start(before))?;
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    Ok((bytes, before > 0))
}

/// The first `limit` bytes of a regular file, opened as [`read_tail`] does.
pub(crate) fn read_head(path: &Path, limit: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(u64::try_from(limit).unwrap_or(u64::MAX)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn open_regular(path: &Path) -> io::Result<File> {
    regular_file::open(path, OFlags::RDONLY)?.ok_or_else(regular_file::not_regular)
}

/// The content of a file that only the administrator can write; an error if it has more than `limit` bytes.
pub(crate) fn read_all(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    #[cfg(test)]
    crate::platform::rt::disk_access()?;
    let mut bytes = Vec::new();
    File::open(path)?.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > limit) {
        return Err(io::Error::other(format!("larger than {limit} bytes")));
    }
    Ok(bytes)
}

/// Replaces `path` by `bytes` atomically, even across a power cut. Only this user may read the file.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    // Always the same name: the next write replaces what a power cut has left.
    let unfinished = path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
    file.write_all(bytes)?;
    #[cfg(test)]
    crate::platform::rt::disk_access()?;
    file.sync_all()?;
    #[cfg(test)]
    crate::platform::rt::synced_file(&unfinished);
    fs::rename(&unfinished, path)?;
    sync_folder(folder)
}

/// As [`replace`], but refuses what [`read_all`] with this limit could not read again.
pub(crate) fn replace_within(path: &Path, bytes: &[u8], limit: u64) -> io::Result<()> {
    match u64::try_from(bytes.len()).is_ok_and(|length| length <= limit) {
        true => replace(path, bytes),
        false => Err(io::Error::other(format!("not written, larger than {limit} bytes"))),
    }
}

/// Makes the names in `folder` durable.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    #[cfg(test)]
    crate::platform::rt::disk_access()?;
    File::open(folder)?.sync_all()?;
    #[cfg(test)]
    crate::platform::rt::synced_folder(folder);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_replaced_and_its_folder_created() {
        let dir = std::env::temp_dir().join(format!("coracle-replace-{}", std::process::id()));
        let path = dir.join("inner/state.json");
        let results =
            [replace(&path, b"a longer text"), replace(&path, b"short"), replace(Path::new("/proc/x/y"), b"")];
        let text = fs::read_to_string(&path);
        let left = fs::read_dir(dir.join("inner")).map(Iterator::count);
        fs::remove_dir_all(&dir).expect("our own directory");
        assert!(matches!(results, [Ok(()), Ok(()), Err(_)]), "{results:?}");
        assert_eq!((text.expect("it is there"), left.expect("it is there")), ("short".to_owned(), 1));
    }

    #[test]
    fn what_could_not_be_read_again_is_not_written() {
        let dir = std::env::temp_dir().join(format!("coracle-replace-within-{}", std::process::id()));
        let path = dir.join("state.json");
        replace_within(&path, b"four", 4).expect("it is small enough");
        let refused = replace_within(&path, b"fives", 4);
        let read = read_all(&path, 4);
        fs::remove_dir_all(&dir).expect("our own directory");
        let refused = refused.expect_err("it is too large").to_string();
        assert_eq!(refused, "not written, larger than 4 bytes");
        assert_eq!(read.expect("the first content stays"), b"four");
    }

    #[test]
    fn what_is_no_regular_file_is_never_opened() {
        let dir = std::env::temp_dir().join(format!("coracle-read-socket-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory of our own");
        let socket = dir.join("message");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket of our own");
        let results = [read_tail(&socket, 4).map(|_| ()), read_head(&socket, 4).map(|_| ())];
        fs::remove_dir_all(&dir).expect("our own directory");
        // Opening a socket fails with ENXIO, so that is what an attempt would return.
        for result in results {
            assert_eq!(result.expect_err("a socket was read").kind(), io::ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn only_the_head_or_tail_of_a_regular_file_is_read() {
        let dir = std::env::temp_dir().join(format!("coracle-read-tail-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory of our own");
        let file = dir.join("message");
        fs::write(&file, "0123456789").expect("a file of our own");
        let link = dir.join("link");
        std::os::unix::fs::symlink(&file, &link).expect("a link of our own");
        let results = (read_tail(&file, 4), read_tail(&file, 10), read_tail(&link, 4), read_tail(&dir, 4));
        let head = read_head(&file, 4);
        fs::remove_dir_all(&dir).expect("our own directory");
        assert_eq!(results.0.expect("it is there"), (b"6789".to_vec(), true));
        assert_eq!(results.1.expect("it is there"), (b"0123456789".to_vec(), false));
        assert_eq!(head.expect("it is there"), b"0123");
        assert!(results.2.is_err(), "a link was followed");
        assert!(results.3.is_err(), "a directory was read");
    }
}
