//! A blob that is being fetched: a `.part` file that survives restarts and power cuts.
//!
//! A killed process loses nothing: the kernel has all written bytes. A power cut loses bytes that were not synced, and
//! on some file systems leaves zeros in their place. So the length at the last sync is kept in a `.mark` file with the
//! boot id; after a reboot the part is truncated to that length. The digest of the whole blob is checked at the end.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ring::digest::{Context, SHA256};

use crate::kubelet::image_archives::manifest::Descriptor;
use crate::platform::rt;

#[derive(Debug)]
pub(super) struct PartFile {
    file: File,
    /// The file of the whole blob.
    blob_path: PathBuf,
    boot: String,
    length: u64,
    synced: u64,
    last_sync: Instant,
    hash: Hash,
}

/// `Context` has no `Debug`.
struct Hash(Context);

impl std::fmt::Debug for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hash")
    }
}

/// The part is synced after this many bytes, or after [`SYNC_BYTES`] and a while. A power cut costs a fast link at most
/// four megabytes, and a slow one 64 KiB or ten seconds; flash is not worn by a sync for each packet.
const MAX_UNSYNCED_BYTES: u64 = 4 << 20;
const SYNC_BYTES: u64 = 64 << 10;
const SYNC_TIME: Duration = Duration::from_secs(10);

impl PartFile {
    /// Opens or creates the part of the blob at `blob_path`. `boot` is the id of this boot.
    pub(super) fn open(blob_path: &Path, boot: &str) -> io::Result<Self> {
        let mut file =
            OpenOptions::new().read(true).append(true).create(true).open(blob_path.with_extension("part"))?;
        let mut length = file.metadata()?.len();
        let (marked_boot, marked) = read_mark(blob_path);
        if length > 0 && marked_boot != boot {
            length = length.min(marked);
            file.set_len(length)?;
        }
        let mut hash = Context::new(&SHA256);
        file.rewind()?;
        let mut buffer = vec![0; 64 << 10];
        loop {
            match file.read(&mut buffer)? {
                0 => break,
                count => hash.update(buffer.get(..count).unwrap_or_default()),
            }
        }
        let boot = boot.to_owned();
        let part = Self {
            file,
            blob_path: blob_path.to_owned(),
            boot,
            length,
            synced: length,
            last_sync: rt::now(),
            hash: Hash(hash),
        };
        part.mark()?;
        Ok(part)
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }

    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = self.file.write_all(bytes) {
            // Some of the bytes may have been written.
            self.file.set_len(self.length)?;
            return Err(error);
        }
        self.hash.0.update(bytes);
        self.length += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let unsynced = self.length - self.synced;
        if unsynced >= MAX_UNSYNCED_BYTES || unsynced >= SYNC_BYTES && rt::elapsed(self.last_sync) >= SYNC_TIME {
            self.file.sync_data()?;
            self.synced = self.length;
            self.last_sync = rt::now();
            self.mark()?;
        }
        Ok(())
    }

    /// Drops all bytes.
    pub(super) fn restart(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        (self.length, self.synced, self.hash) = (0, 0, Hash(Context::new(&SHA256)));
        self.mark()
    }

    /// Whether the bytes match the blob's digest.
    pub(super) fn is_whole(&self, blob: &Descriptor) -> bool {
        self.length == blob.size && blob.digest.is_of(self.hash.0.clone())
    }

    /// Gives the file its final name, durably.
    pub(super) fn finish(self) -> io::Result<()> {
        self.file.sync_data()?;
        fs::rename(self.blob_path.with_extension("part"), &self.blob_path)?;
        remove(&self.blob_path.with_extension("mark"))?;
        self.blob_path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
    }

    /// Not synced: an older mark, or none, only costs bytes that are fetched again.
    fn mark(&self) -> io::Result<()> {
        fs::write(self.blob_path.with_extension("mark"), format!("{} {}\n", self.boot, self.synced))
    }
}

/// The boot and the length at the last sync.
fn read_mark(blob_path: &Path) -> (String, u64) {
    let text = fs::read_to_string(blob_path.with_extension("mark")).unwrap_or_default();
    let (boot, length) = text.trim_end().split_once(' ').unwrap_or_default();
    // A line without a line end may lack digits.
    let length = if text.ends_with('\n') { length.parse().unwrap_or(0) } else { 0 };
    (boot.to_owned(), length)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::image_archives::manifest::Digest;
    use crate::platform::rt::TestFolder;

    fn blob(bytes: &[u8]) -> Descriptor {
        Descriptor { digest: Digest::of(bytes), size: bytes.len() as u64, media_type: String::new() }
    }

    #[test]
    fn kill_loses_nothing_and_power_cut_loses_unsynced_bytes() {
        let folder = TestFolder::new("part-cut");
        let whole = folder.0.join("blob");
        let bytes: Vec<u8> = (0..MAX_UNSYNCED_BYTES + 1000).map(|number| u8::try_from(number % 256).unwrap()).collect();
        let (first, rest) = bytes.split_at(usize::try_from(MAX_UNSYNCED_BYTES).unwrap());
        let mut part = PartFile::open(&whole, "boot-1").unwrap();
        part.append(first).unwrap();
        part.append(&rest[..500]).unwrap();
        drop(part);
        let part = PartFile::open(&whole, "boot-1").unwrap();
        assert_eq!(part.length(), MAX_UNSYNCED_BYTES + 500);
        drop(part);
        // After a power cut, bytes written after the last sync may have any value.
        fs::write(whole.with_extension("mark"), format!("boot-1 {MAX_UNSYNCED_BYTES}\n")).unwrap();
        let mut file = OpenOptions::new().append(true).open(whole.with_extension("part")).unwrap();
        file.write_all(&[0; 100]).unwrap();
        let mut part = PartFile::open(&whole, "boot-2").unwrap();
        assert_eq!(part.length(), MAX_UNSYNCED_BYTES);
        assert!(!part.is_whole(&blob(&bytes)));
        part.append(rest).unwrap();
        assert!(part.is_whole(&blob(&bytes)));
        part.finish().unwrap();
        assert_eq!(fs::read(&whole).unwrap(), bytes);
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1, "neither part nor mark is left");
    }

    #[test]
    fn damaged_mark_restarts_the_part_after_another_boot() {
        let folder = TestFolder::new("part-mark");
        let whole = folder.0.join("blob");
        for mark in ["", "boot-1", "boot-1 3", "boot-1 x\n", "\n"] {
            fs::write(whole.with_extension("part"), b"abcdef").unwrap();
            fs::write(whole.with_extension("mark"), mark).unwrap();
            assert_eq!(PartFile::open(&whole, "boot-2").unwrap().length(), 0, "{mark:?}");
        }
    }
}
