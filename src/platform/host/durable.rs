//! Files that survive a power cut and carry a checksum.
//!
//! ```text
//! # coracle sha256:9f86d081884c7d65...    of every byte after this line
//! ...
//! ```
//!
//! YAML and shell files stay valid: the first line is a comment in both.

use std::fs;
use std::io;
use std::path::Path;

use ring::digest::{SHA256, digest};

use crate::platform::host::file;

/// What a file contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoredFile {
    Nothing,
    /// The checksum does not match.
    Damaged,
    /// The checksum matches.
    Whole(Vec<u8>),
}

/// Replaces `path` by `bytes` atomically. Only this user may read the file. Returns once it is on the disk.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut sealed = head(bytes).into_bytes();
    sealed.extend_from_slice(bytes);
    file::replace(path, &sealed)
}

/// As [`write_changed`], but refuses what [`read`] with this limit could not read again.
pub(crate) fn write_changed_within(path: &Path, bytes: &[u8], limit: u64) -> io::Result<bool> {
    match u64::try_from(bytes.len()).is_ok_and(|length| length <= limit) {
        true => write_changed(path, bytes),
        false => Err(io::Error::other(format!("not written, larger than {limit} bytes"))),
    }
}

/// As [`write()`], unless the file has these bytes already. Returns whether it wrote.
pub(crate) fn write_changed(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    let limit = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    // A file that is larger or cannot be read differs.
    if matches!(read(path, limit), Ok(StoredFile::Whole(stored)) if stored == bytes) {
        return Ok(false);
    }
    write(path, bytes).map(|()| true)
}

/// Reads a file of at most `limit` bytes. An error says nothing about the file's content.
pub(crate) fn read(path: &Path, limit: u64) -> io::Result<StoredFile> {
    let mut bytes = match file::read_all(path, limit.saturating_add(DURABLE_HEADER_BYTES)) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(StoredFile::Nothing),
        Err(error) => return Err(error),
    };
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return Ok(StoredFile::Damaged) };
    let rest = bytes.split_off(end + 1);
    Ok(if bytes == head(&rest).as_bytes() { StoredFile::Whole(rest) } else { StoredFile::Damaged })
}

/// Removes the file durably. A missing file is no error.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        removed => removed?,
    }
    file::sync_folder(path.parent().ok_or(io::ErrorKind::InvalidInput)?)
}

fn head(bytes: &[u8]) -> String {
    let digits: String = digest(&SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{MARK}{digits}\n")
}

const MARK: &str = "# coracle sha256:";
/// The length of the first line.
const DURABLE_HEADER_BYTES: u64 = 17 + 64 + 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::rt::TestFolder;

    #[test]
    fn files_round_trip_and_removal_is_idempotent() {
        let folder = TestFolder::new("durable-whole");
        let path = folder.0.join("inner/a.yaml");
        assert_eq!(read(&path, 9).unwrap(), StoredFile::Nothing);
        for text in [&b""[..], b"a: 1\n", b"\n\n", b"\xff\0"] {
            write(&path, text).unwrap();
            assert_eq!(read(&path, 9).unwrap(), StoredFile::Whole(text.to_vec()));
        }
        remove(&path).unwrap();
        remove(&path).unwrap();
        assert_eq!(read(&path, 9).unwrap(), StoredFile::Nothing);
    }

    #[test]
    fn truncated_or_changed_files_are_damaged() {
        let folder = TestFolder::new("durable-damaged");
        let path = folder.0.join("a");
        write(&path, b"kind: Pod\n").unwrap();
        let whole = fs::read(&path).unwrap();
        assert_eq!(whole.len(), usize::try_from(DURABLE_HEADER_BYTES).unwrap() + 10);
        for cut in 0..whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            assert_eq!(read(&path, 99).unwrap(), StoredFile::Damaged, "cut at {cut}");
            let mut other = whole.clone();
            other[cut] ^= 1;
            fs::write(&path, &other).unwrap();
            assert_eq!(read(&path, 99).unwrap(), StoredFile::Damaged, "changed at {cut}");
        }
    }

    #[test]
    fn unchanged_content_is_not_written() {
        use std::os::unix::fs::MetadataExt;

        let folder = TestFolder::new("durable-same");
        let path = folder.0.join("a");
        let inode = || fs::metadata(&path).unwrap().ino();
        assert!(write_changed(&path, b"one").unwrap());
        let first = inode();
        assert!(!write_changed(&path, b"one").unwrap());
        assert_eq!(inode(), first);
        assert!(write_changed(&path, b"on").unwrap() && write_changed(&path, b"two").unwrap());
        assert_eq!(read(&path, 3).unwrap(), StoredFile::Whole(b"two".to_vec()));
    }

    #[test]
    fn crash_before_the_rename_leaves_the_old_content() {
        let folder = TestFolder::new("durable-crash");
        let path = folder.0.join("a.yaml");
        write(&path, b"old").unwrap();
        // A process that stopped between write and rename leaves this.
        fs::write(folder.0.join("a.new"), b"# coracle sha256:half").unwrap();
        assert_eq!(read(&path, 9).unwrap(), StoredFile::Whole(b"old".to_vec()));
        write(&path, b"new").unwrap();
        assert_eq!(read(&path, 9).unwrap(), StoredFile::Whole(b"new".to_vec()));
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1);
    }

    #[test]
    fn file_over_the_limit_is_an_error() {
        let folder = TestFolder::new("durable-limit");
        let path = folder.0.join("a");
        write(&path, b"four").unwrap();
        assert!(read(&path, 3).is_err());
        assert_eq!(read(&path, 4).unwrap(), StoredFile::Whole(b"four".to_vec()));
    }
}
