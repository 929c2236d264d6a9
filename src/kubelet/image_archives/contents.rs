//! Reads the image names of an archive from its tar stream. Pure.
//!
//! A docker-archive has the names in `manifest.json`, an OCI layout in `index.json`; some archives have both. The
//! architecture of an image is in its configuration, a small JSON file whose name says nothing.

use std::fmt;

use serde_json::Value;

use super::image_name::repository;
use super::layout_documents::{LayoutDocuments, MAX_LAYOUT_DOCUMENT_BYTES};
use super::manifest::{Descriptor, descriptor, document, layout_index};
use super::tar_header::{TAR_BLOCK_BYTES, TAR_MAGIC_OFFSET, small_tar};
use crate::types::sorted::SortOnce;

/// Compression of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    Plain,
    /// Compressed; decompressed by this program.
    By(&'static str),
}

impl Packing {
    /// Detects the compression by the first bytes; `None` if it is not an archive.
    pub(super) fn of(head: &[u8]) -> Option<Self> {
        if head.starts_with(&[0x1f, 0x8b]) {
            Some(Self::By("gzip"))
        } else if head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
            Some(Self::By("zstd"))
        } else {
            head.get(TAR_MAGIC_OFFSET..).is_some_and(|rest| rest.starts_with(b"ustar")).then_some(Self::Plain)
        }
    }
}

/// Number of bytes needed for the detection.
pub(super) const ARCHIVE_HEAD_BYTES: usize = TAR_BLOCK_BYTES;

/// Size limit of an index file.
const MAX_ARCHIVE_INDEX_BYTES: u64 = 4 << 20;
const MAX_ARCHITECTURE_CHARS: usize = 20;

/// Incremental tar reader.
#[derive(Debug, Default)]
pub struct Contents {
    /// The beginning of an incomplete header block.
    header: Vec<u8>,
    /// Remaining bytes of the current file, including padding.
    bytes_left: u64,
    padding: u64,
    index: Option<Index>,
    /// Where the end marker is in the part that has it.
    end_marker: Option<usize>,
    docker: Option<Vec<u8>>,
    oci: Option<Vec<u8>>,
    /// A file that may be the configuration of an image, its manifest, or a signature.
    document: Vec<u8>,
    architectures: Vec<String>,
    layout: LayoutDocuments,
}

#[derive(Clone, Copy, Debug)]
enum Index {
    Docker,
    Oci,
    Document,
}

impl Contents {
    /// Processes the next bytes; an error means that the archive is invalid.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<(), BadArchive> {
        let length = bytes.len();
        while !bytes.is_empty() && !self.has_ended() {
            if self.bytes_left > 0 {
                let (file, rest) = take(bytes, &mut self.bytes_left);
                match self.index {
                    Some(Index::Docker) => self.docker.get_or_insert_default().extend_from_slice(file),
                    Some(Index::Oci) => self.oci.get_or_insert_default().extend_from_slice(file),
                    Some(Index::Document) => self.document.extend_from_slice(file),
                    None => {}
                }
                if self.bytes_left == 0 {
                    self.end_document();
                }
                bytes = rest;
            } else if self.padding > 0 {
                bytes = take(bytes, &mut self.padding).1;
            } else {
                let mut wanted = u64::try_from(TAR_BLOCK_BYTES.saturating_sub(self.header.len())).unwrap_or_default();
                let (header, rest) = take(bytes, &mut wanted);
                self.header.extend_from_slice(header);
                bytes = rest;
                if wanted == 0 {
                    let header = std::mem::take(&mut self.header);
                    if header.iter().all(|byte| *byte == 0) {
                        self.end_marker = Some(length.saturating_sub(bytes.len() + TAR_BLOCK_BYTES));
                    } else {
                        self.begin(&header)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn begin(&mut self, header: &[u8]) -> Result<(), BadArchive> {
        let part = |from: usize, length: usize| header.get(from..from.saturating_add(length)).unwrap_or_default();
        if !part(TAR_MAGIC_OFFSET, 5).starts_with(b"ustar") {
            return Err(BadArchive::NoHeader);
        }
        let size = number(part(124, 12)).ok_or(BadArchive::NoSize)?;
        let is_file = matches!(part(156, 1), b"0" | b"\0");
        let name = part(0, 100).split(|byte| *byte == 0).next().unwrap_or_default();
        self.index = match name.strip_prefix(b"./").unwrap_or(name) {
            b"manifest.json" if is_file => Some(Index::Docker),
            b"index.json" if is_file => Some(Index::Oci),
            _ if is_file && size <= MAX_LAYOUT_DOCUMENT_BYTES => Some(Index::Document),
            _ => None,
        };
        // Of several files with the same name the last one counts.
        match self.index {
            Some(Index::Docker | Index::Oci) if size > MAX_ARCHIVE_INDEX_BYTES => return Err(BadArchive::LargeIndex),
            Some(Index::Docker) => self.docker = None,
            Some(Index::Oci) => self.oci = None,
            Some(Index::Document) | None => self.document.clear(),
        }
        self.bytes_left = size;
        let block = u64::try_from(TAR_BLOCK_BYTES).unwrap_or(u64::MAX);
        self.padding = size.wrapping_neg() % block;
        Ok(())
    }

    /// The end marker was read.
    pub fn has_ended(&self) -> bool {
        self.end_marker.is_some()
    }

    /// Notes the architecture of an image configuration, which has `rootfs` too, and what the signature policy needs.
    fn end_document(&mut self) {
        let bytes = std::mem::take(&mut self.document);
        if !bytes.starts_with(b"{") || self.architectures.len() >= MAX_ARCHIVE_IMAGES {
            return;
        }
        let Ok(document) = document(&bytes) else { return };
        let architecture = document.get("architecture").and_then(Value::as_str).filter(|name| !name.is_empty());
        if let Some(architecture) = architecture.filter(|_| document.get("rootfs").is_some()) {
            self.architectures.push(architecture.chars().take(MAX_ARCHITECTURE_CHARS).collect());
        } else {
            self.layout.take(bytes, &document);
        }
    }

    /// If there are signatures, which are no images for the runtime, ends the last part with an index of the images
    /// alone, and returns true. Of several files with the same name the last one counts.
    pub(super) fn end_signed(&self, last_part: &mut Vec<u8>) -> Result<bool, BadArchive> {
        if !self.layout.has_signatures() || self.oci.is_none() {
            return Ok(false);
        }
        let images = self.layout_images()?;
        let named = images.iter().filter_map(|(name, top)| Some((name.as_str(), top.as_ref()?)));
        last_part.truncate(self.end_marker.unwrap_or(usize::MAX));
        last_part.extend(small_tar(&[("index.json", &layout_index(named))]).unwrap_or_default());
        Ok(true)
    }

    /// The images of the layout, each with its names. A bare tag is no name, and attached signatures are no images.
    fn layout_images(&self) -> Result<Vec<(String, Option<Descriptor>)>, BadArchive> {
        let mut images = Vec::new();
        let index = list(self.oci.as_deref(), "index.json")?.unwrap_or_default();
        for entry in index.get("manifests").and_then(Value::as_array).into_iter().flatten() {
            let top = descriptor(entry).ok();
            let names = match (oci_name(entry), &top) {
                (Some(name), _) if name.contains(":sha256-") && name.ends_with(".sig") => Vec::new(),
                (Some(name), _) => vec![name.to_owned()],
                (None, Some(top)) => self.layout.signed_names(top),
                (None, None) => Vec::new(),
            };
            images.extend(names.into_iter().map(|name| (name, top.clone())));
            images.truncate(MAX_ARCHIVE_IMAGES + 1);
        }
        Ok(images)
    }

    /// Ends the stream; returns the image names.
    pub fn end(mut self) -> Result<ArchiveImages, BadArchive> {
        if self.bytes_left > 0 || !self.header.is_empty() {
            return Err(BadArchive::CutShort);
        }
        let mut images = Vec::new();
        let mut by_digest = Vec::new();
        let layout_images = self.layout_images()?;
        for manifest in list(self.docker.as_deref(), "manifest.json")?.iter().flat_map(Value::as_array).flatten() {
            let tags = manifest.get("RepoTags").and_then(Value::as_array).into_iter().flatten();
            images.extend(tags.filter_map(Value::as_str).map(str::to_owned));
        }
        let mut layout = std::mem::take(&mut self.layout);
        for (name, top) in &layout_images {
            layout.tops.extend(top.as_ref().map(|top| top.digest.clone()));
            by_digest.extend(top.clone().and_then(|top| digest_name(name, top)));
            images.push(name.clone());
        }
        layout.tops.dedup();
        images.sort_once();
        images.dedup();
        if images.is_empty() || images.len() > MAX_ARCHIVE_IMAGES {
            return Err(BadArchive::Nameless);
        }
        // Tools import the layout of an archive that has both lists.
        let has_digests = !layout_images.is_empty()
            && layout_images.iter().all(|(_, top)| top.is_some())
            && images.iter().all(|image| layout_images.iter().any(|(name, _)| name == image));
        by_digest.sort_once_by(|(one, _), (other, _)| one.cmp(other));
        by_digest.dedup_by(|(one, _), (other, _)| one == other);
        by_digest.truncate(MAX_ARCHIVE_IMAGES);
        let mut architectures = self.architectures;
        architectures.sort_once();
        architectures.dedup();
        Ok(ArchiveImages { images, by_digest, has_digests, architectures, is_docker: self.docker.is_some(), layout })
    }
}

/// Contents of a complete archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveImages {
    pub images: Vec<String>,
    /// Further names of the images of an OCI layout: repository and digest, as a registry's pull gives.
    pub(super) by_digest: Vec<(String, Descriptor)>,
    /// Each image has a digest in a registry.
    pub(super) has_digests: bool,
    /// In Go's naming; empty if the archive does not say.
    pub architectures: Vec<String>,
    /// It has a `manifest.json`.
    pub is_docker: bool,
    pub(crate) layout: LayoutDocuments,
}

const MAX_ARCHIVE_IMAGES: usize = 1000;

/// Why an archive is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadArchive {
    CutShort,
    Index {
        name: &'static str,
        /// The position in the file, and the problem.
        problem: String,
    },
    LargeIndex,
    Nameless,
    /// A file has no header.
    NoHeader,
    /// A file has no size.
    NoSize,
}

impl fmt::Display for BadArchive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CutShort => f.write_str("it is cut short"),
            Self::Index { name, problem } => write!(f, "its {name}: {problem}"),
            Self::LargeIndex => write!(f, "its index has more than {MAX_ARCHIVE_INDEX_BYTES} bytes"),
            Self::Nameless => f.write_str(
                "it names no image: expected RepoTags in its manifest.json, or in its index.json \
                 io.containerd.image.name or a whole name as org.opencontainers.image.ref.name",
            ),
            Self::NoHeader => f.write_str("it is damaged: a file in it has no header"),
            Self::NoSize => f.write_str("it is damaged: a file in it has no size"),
        }
    }
}

impl std::error::Error for BadArchive {}

/// Splits off at most `count` bytes, and reduces `count` by their number.
fn take<'a>(bytes: &'a [u8], count: &mut u64) -> (&'a [u8], &'a [u8]) {
    let taken = usize::try_from(*count).unwrap_or(usize::MAX).min(bytes.len());
    *count -= u64::try_from(taken).unwrap_or_default();
    bytes.split_at_checked(taken).unwrap_or((bytes, &[]))
}

/// A number in octal digits, or in GNU tar's binary format for large values.
pub(super) fn number(field: &[u8]) -> Option<u64> {
    if let [0x80, digits @ ..] = field {
        return digits.iter().try_fold(0, |sum: u64, digit| sum.checked_mul(256)?.checked_add(u64::from(*digit)));
    }
    let text = std::str::from_utf8(field).ok()?.trim_matches([' ', '\0']);
    if text.is_empty() { Some(0) } else { u64::from_str_radix(text, 8).ok() }
}

fn list(bytes: Option<&[u8]>, name: &'static str) -> Result<Option<Value>, BadArchive> {
    let bad = |error: serde_json::Error| BadArchive::Index { name, problem: error.to_string() };
    bytes.map(|bytes| serde_json::from_slice(bytes).map_err(bad)).transpose()
}

/// The full name of an image; a bare tag is not enough.
fn oci_name(manifest: &Value) -> Option<&str> {
    let annotations = manifest.get("annotations")?;
    let of = |key| annotations.get(key).and_then(Value::as_str);
    let whole = of("org.opencontainers.image.ref.name").filter(|name| name.contains(['/', ':', '@']));
    of("io.containerd.image.name").or(whole)
}

fn digest_name(name: &str, top: Descriptor) -> Option<(String, Descriptor)> {
    Some((format!("{}@{}", repository(name).ok()?, top.digest), top))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, content: &[u8]) -> Vec<u8> {
        let mut block = vec![0; TAR_BLOCK_BYTES];
        block[..name.len()].copy_from_slice(name.as_bytes());
        block[124..136].copy_from_slice(format!("{:011o}\0", content.len()).as_bytes());
        block[156] = b'0';
        block[TAR_MAGIC_OFFSET..TAR_MAGIC_OFFSET + 5].copy_from_slice(b"ustar");
        block.extend_from_slice(content);
        block.resize(block.len().next_multiple_of(TAR_BLOCK_BYTES), 0);
        block
    }

    fn tar(entries: &[(&str, &[u8])]) -> Vec<u8> {
        let mut bytes: Vec<u8> = entries.iter().flat_map(|(name, content)| entry(name, content)).collect();
        bytes.resize(bytes.len() + 2 * TAR_BLOCK_BYTES, 0);
        bytes
    }

    /// The result, which must be the same however the bytes are split.
    fn read(bytes: &[u8]) -> Result<ArchiveImages, BadArchive> {
        let of = |size: usize| {
            let mut contents = Contents::default();
            bytes.chunks(size).try_for_each(|part| contents.push(part))?;
            contents.end()
        };
        let whole = of(usize::MAX);
        for size in [1, 7, 511, 512, 513] {
            assert_eq!(of(size), whole, "in parts of {size} bytes");
        }
        whole
    }

    const DOCKER: &[u8] =
        br#"[{"Config":"c.json","RepoTags":["b:1","a:1"],"Layers":[]},{"RepoTags":null},{"RepoTags":["a:1"]}]"#;
    const OCI: &[u8] = br#"{"manifests":[
        {"annotations":{"io.containerd.image.name":"r.io/x:1","org.opencontainers.image.ref.name":"1"}},
        {"annotations":{"org.opencontainers.image.ref.name":"r.io/y:2"}},
        {"annotations":{"org.opencontainers.image.ref.name":"latest"}}, {}]}"#;

    #[test]
    fn architecture_is_that_of_the_configurations() {
        let config = |architecture: &str| format!(r#"{{"architecture":"{architecture}","os":"linux","rootfs":{{}}}}"#);
        let (one, other) = (config("arm64"), config("amd64"));
        let entries = [("one.json", one.as_bytes()), ("a.json", br#"{"architecture":"x"}"#), ("manifest.json", DOCKER)];
        assert_eq!(read(&tar(&entries)).unwrap().architectures, ["arm64"]);
        let entries = [("manifest.json", DOCKER), ("blobs/sha256/ab", one.as_bytes()), ("b", other.as_bytes())];
        assert_eq!(read(&tar(&entries)).unwrap().architectures, ["amd64", "arm64"]);
    }

    #[test]
    fn both_formats_give_image_names_in_any_order() {
        let layer = vec![7; 1300];
        let docker = tar(&[("layer.tar", &layer), ("manifest.json", DOCKER)]);
        assert_eq!(
            read(&docker),
            Ok(ArchiveImages {
                images: vec!["a:1".to_owned(), "b:1".to_owned()],
                by_digest: Vec::new(),
                has_digests: false,
                architectures: Vec::new(),
                is_docker: true,
                layout: LayoutDocuments::default(),
            })
        );
        let oci = tar(&[("oci-layout", b"{}"), ("./index.json", OCI), ("blobs/sha256/1", &layer), ("empty", b"")]);
        assert_eq!(
            read(&oci),
            Ok(ArchiveImages {
                images: vec!["r.io/x:1".to_owned(), "r.io/y:2".to_owned()],
                by_digest: Vec::new(),
                has_digests: false,
                architectures: Vec::new(),
                is_docker: false,
                layout: LayoutDocuments::default(),
            })
        );
        assert_eq!(read(&tar(&[("index.json", OCI), ("manifest.json", DOCKER)])).unwrap().images.len(), 4);
    }

    #[test]
    fn images_of_a_layout_have_names_with_digests() {
        let digest = |c: &str| format!("sha256:{}", c.repeat(64));
        let entry = |name: &str, digest: &str| {
            format!(
                r#"{{"digest":"{digest}","size":7,"mediaType":"m","annotations":{{"io.containerd.image.name":"{name}"}}}}"#
            )
        };
        let (a, b) = (digest("a"), digest("b"));
        let entries = [
            entry("localhost:1/plc:7", &a),
            entry("localhost:1/plc:8", &a),
            entry("nginx:1", &b),
            entry(&format!("r.io/x@{b}"), &b),
            entry("r.io/y:1", "sha512:00"),
        ];
        let index = format!(r#"{{"manifests":[{}]}}"#, entries.join(","));
        let archive = read(&tar(&[("index.json", index.as_bytes())])).unwrap();
        let names: Vec<&str> = archive.by_digest.iter().map(|(name, _)| name.as_str()).collect();
        let named = [format!("docker.io/library/nginx@{b}"), format!("localhost:1/plc@{a}"), format!("r.io/x@{b}")];
        assert_eq!(names, named);
        assert_eq!((archive.by_digest[1].1.digest.to_string(), archive.by_digest[1].1.size), (a, 7));
        assert_eq!((archive.images.len(), archive.has_digests), (5, false), "r.io/y:1 has none");
        for (names, tags, expected) in [
            (&["r.io/x:1", "r.io/x:2"][..], r#"["r.io/x:2"]"#, true),
            (&["r.io/x@sha256:0"], "[]", true),
            (&["r.io/x:1"], r#"["r.io/z:1"]"#, false),
            (&[], r#"["r.io/z:1"]"#, false),
        ] {
            let entries: Vec<String> = names.iter().map(|name| entry(name, &b)).collect();
            let index = format!(r#"{{"manifests":[{}]}}"#, entries.join(","));
            let list = format!(r#"[{{"RepoTags":{tags}}}]"#);
            let files = [("index.json", index.as_bytes()), ("manifest.json", list.as_bytes())];
            assert_eq!(read(&tar(&files)).unwrap().has_digests, expected, "{names:?} {tags}");
        }
    }

    #[test]
    fn truncated_archive_gives_no_unseen_names() {
        let whole = tar(&[("layer.tar", &[7; 600]), ("manifest.json", DOCKER)]);
        let end = whole.len() - 2 * TAR_BLOCK_BYTES;
        for cut in 0..end {
            assert!(read_at_once(&whole[..cut]).is_err() || cut + TAR_BLOCK_BYTES > end, "cut at {cut}");
        }
        assert_eq!(read_at_once(&whole[..TAR_BLOCK_BYTES + 10]), Err(BadArchive::CutShort));
    }

    fn read_at_once(bytes: &[u8]) -> Result<ArchiveImages, BadArchive> {
        let mut contents = Contents::default();
        contents.push(bytes)?;
        contents.end()
    }

    #[test]
    fn invalid_archive_is_described() {
        for (bytes, what) in [
            (tar(&[("a", b"b")]), "it names no image: "),
            (tar(&[("manifest.json", b"[")]), "its manifest.json: EOF"),
            (tar(&[("index.json", b"{\"manifests\": 7}")]), "it names no image: "),
            (vec![b'x'; 600], "it is damaged: a file in it has no header"),
        ] {
            let told = read(&bytes).unwrap_err().to_string();
            assert!(told.starts_with(what), "{told}");
        }
        let mut endless = entry("a", b"");
        endless[124..136].copy_from_slice(b"not a number");
        assert_eq!(read(&endless), Err(BadArchive::NoSize));
        endless[124..136].copy_from_slice(&[0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(read(&endless), Err(BadArchive::CutShort));
        endless[..14].copy_from_slice(b"manifest.json\0");
        assert_eq!(read(&endless), Err(BadArchive::LargeIndex));
    }

    #[test]
    fn compression_is_detected_from_the_first_bytes() {
        assert_eq!(Packing::of(&tar(&[("a", b"")])), Some(Packing::Plain));
        assert_eq!(Packing::of(&[0x1f, 0x8b, 8]), Some(Packing::By("gzip")));
        assert_eq!(Packing::of(&[0x28, 0xb5, 0x2f, 0xfd, 0]), Some(Packing::By("zstd")));
        assert_eq!([&b""[..], b"hello", &[0; 600]].map(Packing::of), [None; 3]);
    }
}
