//! The archive: text files with plain names in a gzipped tar, each and all of bounded size.

use std::io::{self, Write as _};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::kubelet::image_archives::tar_header::{TAR_BLOCK_BYTES, header, padding};

/// The folder in the archive.
const ARCHIVE_FOLDER: &str = "coracle-support";
/// Bytes of one file, and of all before compression.
pub(super) const MAX_SUPPORT_FILE_BYTES: usize = 512 << 10;
const MAX_SUPPORT_BYTES: usize = 8 << 20;

pub(super) struct Bundle {
    packed: GzEncoder<Vec<u8>>,
    size: usize,
    /// Files that were cut or left out.
    cut: Vec<String>,
}

impl Bundle {
    pub(super) fn new() -> Self {
        Self { packed: GzEncoder::new(Vec::new(), Compression::default()), size: 0, cut: Vec::new() }
    }

    /// Adds a file. Of a file that is too long, the end is kept; one that no longer fits is left out.
    pub(super) fn add(&mut self, name: &str, text: &str) -> io::Result<()> {
        let start = text.len().saturating_sub(MAX_SUPPORT_FILE_BYTES);
        let start = (start..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        let kept = text.get(start..).unwrap_or_default();
        if start > 0 {
            self.cut.push(format!("{name}: only the last {} of {} bytes", kept.len(), text.len()));
        }
        if self.size + kept.len() > MAX_SUPPORT_BYTES {
            self.cut.push(format!("{name}: left out, because the archive is full"));
            return Ok(());
        }
        self.append(name, kept)
    }

    fn append(&mut self, name: &str, text: &str) -> io::Result<()> {
        let length = u64::try_from(text.len()).unwrap_or(u64::MAX);
        let Some(head) = header(&format!("{ARCHIVE_FOLDER}/{name}"), length) else {
            self.cut.push(format!("{name}: left out, because its name is too long"));
            return Ok(());
        };
        self.size += text.len();
        self.packed.write_all(&head)?;
        self.packed.write_all(text.as_bytes())?;
        self.packed.write_all(padding(length))
    }

    /// The archive, with the list of what was cut.
    pub(super) fn finish(mut self) -> io::Result<Vec<u8>> {
        if !self.cut.is_empty() {
            let list = self.cut.join("\n") + "\n";
            self.append("cut.txt", &list)?;
        }
        // Two empty blocks end a tar.
        self.packed.write_all(&[0; 2 * TAR_BLOCK_BYTES])?;
        self.packed.finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::{Read as _, Write as _};
    use std::process::{Command, Stdio};

    use super::*;

    /// Unpacks with the system's tar.
    fn unpacked(archive: &[u8]) -> BTreeMap<String, String> {
        let folder = std::env::temp_dir().join(format!("coracle-bundle-{}-{}", std::process::id(), archive.len()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut tar = Command::new("tar").args(["-xz", "-C"]).arg(&folder).stdin(Stdio::piped()).spawn().unwrap();
        tar.stdin.take().unwrap().write_all(archive).unwrap();
        assert!(tar.wait().unwrap().success());
        let mut files = BTreeMap::new();
        for entry in std::fs::read_dir(folder.join(ARCHIVE_FOLDER)).unwrap() {
            let entry = entry.unwrap();
            let mut text = String::new();
            std::fs::File::open(entry.path()).unwrap().read_to_string(&mut text).unwrap();
            files.insert(entry.file_name().into_string().unwrap(), text);
        }
        std::fs::remove_dir_all(&folder).unwrap();
        files
    }

    #[test]
    fn tar_reads_every_file_back() {
        let mut bundle = Bundle::new();
        bundle.add("a.txt", "").unwrap();
        bundle.add("b.json", &"x".repeat(1000)).unwrap();
        let files = unpacked(&bundle.finish().unwrap());
        assert_eq!(files.keys().map(String::as_str).collect::<Vec<_>>(), ["a.txt", "b.json"]);
        assert_eq!(files["b.json"].len(), 1000);
    }

    #[test]
    fn long_files_keep_their_end_and_a_full_archive_says_so() {
        let mut bundle = Bundle::new();
        let long = format!("begin{}end\u{e9}", "\u{e9}".repeat(MAX_SUPPORT_FILE_BYTES));
        for number in 0..20 {
            bundle.add(&format!("{number}.txt"), &long).unwrap();
        }
        let archive = bundle.finish().unwrap();
        let files = unpacked(&archive);
        assert!(files["0.txt"].ends_with("end\u{e9}") && files["0.txt"].len() <= MAX_SUPPORT_FILE_BYTES);
        assert!(files["cut.txt"].contains("0.txt: only the last") && files["cut.txt"].contains("19.txt: left out"));
        assert!(files.values().map(String::len).sum::<usize>() <= MAX_SUPPORT_BYTES + 10_000);
    }
}
