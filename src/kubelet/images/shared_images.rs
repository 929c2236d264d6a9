//! The content of images that this node gives to other nodes: what it fetches now, and for a day what it has fetched.
//!
//! ```text
//!   coracle/fetch/IMAGE/blobs/sha256/HEX, HEX.part   an image that is being fetched
//!   coracle/share/HEX                                kept after the import
//! ```
//!
//! Nodes that start at once agree on one of them that asks the registry for a blob: a node claims it, and goes ahead
//! when no other node claims it or fetches it. Of two claims the lower number stays.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::manifest::{Digest, MOST_BYTES};
use crate::platform::host::{clock, directories};
use crate::types::sorted::SortedMap;

/// Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct SharedImages(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// The fetcher's directory.
    fetched: PathBuf,
    kept: PathBuf,
    under_way: Mutex<SortedMap<String, u32>>,
    /// Each answer under way has a clone.
    answers: Arc<()>,
}

/// The number of a node that asks the registry, and of one that only copies from others.
pub(super) const FETCHES: u32 = 0;
const COPIES: u32 = u32::MAX;

/// Kept content goes after this many seconds, or when it is more than this.
const KEPT_FOR: i64 = 24 * 3600;
const MOST_KEPT: u64 = 1 << 30;
/// Most answers at the same time, and most bytes of one to a node, which asks again for the rest.
const MOST_ANSWERS: usize = 8;
const MOST_ANSWERED: u64 = 16 << 20;

/// What a request gets.
#[derive(Debug)]
pub(crate) enum SharedAnswer {
    Content {
        status: &'static str,
        /// Header lines, each with its end.
        headers: String,
        file: File,
        /// The first byte, and how many.
        from: u64,
        count: u64,
        /// Counts the answer while it lives.
        held: Arc<()>,
    },
    /// Status and body.
    Short(u16, String),
}

/// A request for content.
#[derive(Clone, Debug)]
pub(crate) struct SharedRequest {
    /// Below the server's root, such as `/v2/library/nginx/blobs/sha256:...`.
    pub(crate) path: String,
    /// The value of the `Range` header.
    pub(crate) range: Option<String>,
    /// The client takes a part of the content at any time.
    pub(crate) is_node: bool,
}

impl SharedImages {
    /// `root` is the directory of the agent's own files.
    pub(crate) fn new(root: &Path) -> Self {
        let (fetched, kept) = (root.join("fetch"), root.join("share"));
        Self(Arc::new(Shared { fetched, kept, under_way: Mutex::default(), answers: Arc::new(()) }))
    }

    /// Answers as the OCI distribution API has it; tags have no content here. Blocks.
    pub(crate) fn answer(&self, request: &SharedRequest) -> SharedAnswer {
        let rest = request.path.strip_prefix("/v2").unwrap_or_default();
        if matches!(rest, "" | "/") {
            return SharedAnswer::Short(200, "{}".to_owned());
        }
        let mut parts = rest.rsplitn(3, '/');
        let digest = parts.next().and_then(Digest::parse);
        let (Some(digest), Some(kind @ ("blobs" | "manifests"))) = (digest, parts.next()) else {
            return error(404, "MANIFEST_UNKNOWN", "only content by its SHA-256 digest is here");
        };
        let held = Arc::clone(&self.0.answers);
        if Arc::strong_count(&held) > MOST_ANSWERS + 1 {
            return error(429, "TOOMANYREQUESTS", "other nodes are served");
        }
        let from = request.range.as_deref().map_or(Some(0), first_byte);
        let Some(from) = from else {
            return error(400, "SIZE_INVALID", "expected a range such as bytes=5-");
        };
        match self.find(&digest, from) {
            Some((file, here, total)) => {
                let is_part = request.range.is_some() || request.is_node;
                let most = if is_part { MOST_ANSWERED } else { u64::MAX };
                let count = (here - from).min(most);
                let (status, range) = match (is_part, total) {
                    (false, Some(_)) => ("200 OK", String::new()),
                    _ => {
                        let total = total.map_or_else(|| "*".to_owned(), |total| total.to_string());
                        let last = from + count - 1;
                        ("206 Partial Content", format!("Content-Range: bytes {from}-{last}/{total}\r\n"))
                    }
                };
                let media_type = if kind == "manifests" { media_type(&file) } else { None };
                let media_type = media_type.unwrap_or_else(|| "application/octet-stream".to_owned());
                let headers = format!(
                    "Content-Type: {media_type}\r\nDocker-Content-Digest: {digest}\r\nAccept-Ranges: bytes\r\n{range}"
                );
                SharedAnswer::Content { status, headers, file, from, count, held }
            }
            None => match self.under_way().get(digest.hex()) {
                Some(number) if *number != COPIES => error(503, "UNAVAILABLE", &format!("{FETCHING}{number}")),
                _ => error(404, "BLOB_UNKNOWN", "this node does not have it"),
            },
        }
    }

    /// The file that has the byte at `from`, how many bytes it has, and how many the whole content has, if it is whole.
    fn find(&self, digest: &Digest, from: u64) -> Option<(File, u64, Option<u64>)> {
        let layouts = fs::read_dir(&self.0.fetched).into_iter().flatten().flatten();
        let blobs = layouts.map(|layout| layout.path().join("blobs/sha256").join(digest.hex()));
        let wholes: Vec<PathBuf> = [self.0.kept.join(digest.hex())].into_iter().chain(blobs).collect();
        let open = |path: PathBuf| {
            let file = File::open(path).ok()?;
            let length = file.metadata().ok()?.len();
            (length > from).then_some((file, length))
        };
        if let Some((file, length)) = wholes.iter().cloned().find_map(open) {
            return Some((file, length, Some(length)));
        }
        // Others may have zeros from a power cut.
        let is_under_way = self.under_way().contains_key(digest.hex());
        let parts = wholes.iter().filter(|_| is_under_way).map(|whole| whole.with_extension("part"));
        let part = parts.filter_map(open).max_by_key(|(_, length)| *length);
        // A part may just have got the name of the whole.
        let renamed = || wholes.iter().cloned().find_map(open).map(|(file, length)| (file, length, Some(length)));
        part.map(|(file, length)| (file, length, None)).or_else(renamed)
    }

    fn under_way(&self) -> MutexGuard<'_, SortedMap<String, u32>> {
        self.0.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This node copies the content from others, until the result is dropped.
    pub(super) fn begin(&self, digest: &Digest) -> UnderWay {
        let under_way = UnderWay { shared: self.clone(), hex: digest.hex().to_owned() };
        under_way.copies();
        under_way
    }

    /// Moves the whole blobs of a directory to those that are kept. Blocks.
    pub(super) fn keep(&self, blobs: &Path) -> io::Result<()> {
        directories::make_own(&self.0.kept, 0o700)?;
        for entry in fs::read_dir(blobs)? {
            let path = entry?.path();
            if let (Some(name), None) = (path.file_name(), path.extension()) {
                fs::rename(&path, self.0.kept.join(name))?;
            }
        }
        self.prune(clock::timestamp().as_second())
    }

    /// Removes what is too old or too much, the oldest first. Blocks.
    pub(super) fn prune(&self, now: i64) -> io::Result<()> {
        let mut files: Vec<(i64, u64, PathBuf)> = Vec::new();
        for entry in fs::read_dir(&self.0.kept).into_iter().flatten().flatten() {
            let found = entry.metadata()?;
            files.push((found.mtime(), found.len(), entry.path()));
        }
        files.sort();
        let mut all: u64 = files.iter().map(|(_, length, _)| length).sum();
        for (modified, length, path) in files {
            if all > MOST_KEPT || now.saturating_sub(modified) > KEPT_FOR {
                fs::remove_file(path)?;
                all -= length;
            }
        }
        Ok(())
    }
}

/// Content that this node is getting.
#[derive(Debug)]
pub(super) struct UnderWay {
    shared: SharedImages,
    hex: String,
}

impl UnderWay {
    pub(super) fn copies(&self) {
        self.shows(COPIES);
    }

    /// Shows other nodes this number.
    pub(super) fn shows(&self, number: u32) {
        self.shared.under_way().insert(self.hex.clone(), number);
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.shared.under_way().remove(&self.hex);
    }
}

/// The message of a node that has claimed content of which it has nothing more.
const FETCHING: &str = "fetching ";

/// The number in the message of another node.
pub(super) fn claim_in(message: &str) -> Option<u32> {
    message.strip_prefix(FETCHING)?.parse().ok()
}

fn error(status: u16, code: &str, message: &str) -> SharedAnswer {
    SharedAnswer::Short(status, format!(r#"{{"errors":[{{"code":"{code}","message":"{message}"}}]}}"#))
}

/// The first byte of a range that has no end.
fn first_byte(range: &str) -> Option<u64> {
    range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
}

fn media_type(file: &File) -> Option<String> {
    use std::os::unix::fs::FileExt as _;

    let length = file.metadata().ok()?.len();
    let mut bytes = vec![0; usize::try_from(length.min(MOST_BYTES)).ok()?];
    file.read_exact_at(&mut bytes, 0).ok()?;
    let document: serde_json::Value = serde_json::from_slice(&bytes).ok()?;
    let media_type = document.get("mediaType")?.as_str()?;
    media_type.bytes().all(|byte| byte.is_ascii_graphic()).then(|| media_type.to_owned())
}
