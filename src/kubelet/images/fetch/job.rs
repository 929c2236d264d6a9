//! Fetches one image into its layout. Blocks.
//!
//! ```text
//!   servers of the registry -> tag -> index -> manifest -> config and layers, by range into part files
//! ```
//!
//! Every document and blob is checked against its digest before it is used.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::error::FetchError;
use super::layout::Layout;
use super::manifest::{ACCEPT, Descriptor, Digest, Document, MOST_BYTES, select};
use super::part_file::PartFile;
use super::peers::{Copying, Peers};
use crate::platform::host::file_system::room;
use crate::platform::registry::{ContentRequest, Registry, RegistryError};
use crate::types::sorted::SortedSet;
use crate::types::time::Backoff;

/// Bytes of an image that is being fetched.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Bytes of the blobs on the disk, from this fetch or an earlier one.
    pub(super) here: AtomicU64,
    /// Total bytes of the blobs to fetch; 0 until the manifest is known.
    pub(super) all: AtomicU64,
}

impl Progress {
    /// Bytes on the disk, and total bytes; `None` until the manifest is known.
    pub(crate) fn bytes(&self) -> Option<(u64, u64)> {
        let all = self.all.load(Ordering::Relaxed);
        (all > 0).then(|| (self.here.load(Ordering::Relaxed), all))
    }
}

pub(super) struct Job {
    /// In the order in which they are tried.
    pub(super) servers: Vec<Registry>,
    /// A tag or a digest.
    pub(super) reference: String,
    pub(super) layout: Layout,
    /// Blobs that the runtime has.
    pub(super) present: SortedSet<String>,
    /// The architecture, in Rust's naming.
    pub(super) machine: &'static str,
    /// The id of this boot.
    pub(super) boot: String,
    pub(super) cancelled: Arc<AtomicBool>,
    pub(super) progress: Arc<Progress>,
    /// Asked for content before the registry, which alone says what the image is and who may have it.
    pub(super) peers: Option<Peers>,
    /// First and longest wait after a failure.
    pub(super) waits: (Duration, Duration),
}

/// Failures in a row without a new byte after which a fetch gives up. The next fetch continues with the bytes on the
/// disk.
const MOST_FAILURES: u32 = 5;
/// Space that must stay free on the disk of the parts.
const SPARE: u64 = 32 << 20;
const BUFFER: usize = 64 << 10;

impl Job {
    /// Fetches the missing blobs. Returns the index or manifest that the reference names.
    pub(super) fn run(&mut self) -> Result<Descriptor, FetchError> {
        fs::create_dir_all(self.layout.blobs())?;
        let top = self.resolve()?;
        let mut manifest = top.clone();
        let mut document = self.document(&top)?;
        if let Document::Index(manifests) = &document {
            let chosen = select(manifests, self.machine);
            manifest = chosen.cloned().ok_or(FetchError::Platform(self.machine))?;
            document = self.document(&manifest)?;
        }
        let Document::Manifest { config, layers } = document else {
            return Err(FetchError::Invalid(format!("manifest {} is an index", manifest.digest)));
        };
        let mut missing: Vec<Descriptor> = Vec::new();
        for blob in std::iter::once(config).chain(layers) {
            let is_known = self.present.contains(&blob.digest.to_string()) || missing.contains(&blob);
            if !is_known {
                missing.push(blob);
            }
        }
        let here: u64 = missing.iter().map(|blob| self.here(blob)).sum();
        let all: u64 = missing.iter().fold(0, |sum, blob| sum.saturating_add(blob.size));
        self.progress.here.store(here, Ordering::Relaxed);
        self.progress.all.store(all.max(1), Ordering::Relaxed);
        let free = room(&self.layout.0)?.available;
        let wanted = all.saturating_sub(here).saturating_add(SPARE);
        if free < wanted {
            return Err(FetchError::Room { wanted, free });
        }
        for blob in &missing {
            self.blob(blob)?;
        }
        Ok(top)
    }

    fn here(&self, blob: &Descriptor) -> u64 {
        let whole = self.layout.blob(&blob.digest);
        let length = |path: PathBuf| fs::metadata(path).ok().map(|found| found.len());
        length(whole.clone()).or_else(|| length(whole.with_extension("part"))).unwrap_or(0).min(blob.size)
    }

    /// The index or manifest that the reference names, from the first server that has it.
    fn resolve(&mut self) -> Result<Descriptor, FetchError> {
        let digest = Digest::parse(&self.reference);
        if let Some(digest) = &digest {
            // A digest always names the same content.
            let known = fs::read(self.layout.blob(digest)).ok().filter(|bytes| Digest::of(bytes) == *digest);
            if let Some(bytes) = known {
                return Ok(described(digest.clone(), &bytes));
            }
        }
        let path = format!("manifests/{}", self.reference);
        let bytes = self.document_from_any(&path, digest.as_ref())?;
        let found = Digest::of(&bytes);
        fs::write(self.layout.blob(&found), &bytes)?;
        Ok(described(found, &bytes))
    }

    fn document(&mut self, of: &Descriptor) -> Result<Document, FetchError> {
        let file = self.layout.blob(&of.digest);
        let known = fs::read(&file).ok().filter(|bytes| Digest::of(bytes) == of.digest);
        let bytes = match known {
            Some(bytes) => bytes,
            None => {
                let of_peer = self.peers.as_mut().and_then(|peers| peers.document(&of.digest));
                let bytes = match of_peer {
                    Some(bytes) => bytes,
                    None => self.document_from_any(&format!("manifests/{}", of.digest), Some(&of.digest))?,
                };
                fs::write(&file, &bytes)?;
                bytes
            }
        };
        Document::parse(&bytes).map_err(|problem| FetchError::Invalid(format!("{}: {problem}", of.digest)))
    }

    /// A small document with this digest, if one is given.
    fn document_from_any(&mut self, path: &str, digest: Option<&Digest>) -> Result<Vec<u8>, FetchError> {
        let mut waits = Backoff::new(self.waits.0, self.waits.1);
        let mut failures = 0;
        loop {
            let mut last = None;
            for server in &mut self.servers {
                if digest.is_none() && !server.resolves() {
                    continue;
                }
                let ask = ContentRequest { path, accept: ACCEPT, from: 0 };
                match server.get(ask).and_then(|answer| answer.text(MOST_BYTES)) {
                    Ok(bytes) if digest.is_none_or(|digest| Digest::of(&bytes) == *digest) => return Ok(bytes),
                    Ok(_) => {
                        last = Some(FetchError::Digest { what: path.to_owned(), server: server.base().to_owned() })
                    }
                    Err(RegistryError::Cancelled) => return Err(FetchError::Cancelled),
                    Err(error) => last = Some(error.into()),
                }
            }
            failures += 1;
            self.wait_after(last.unwrap_or(FetchError::NoServer), failures, &mut waits)?;
        }
    }

    /// Waits before the next attempt, unless the failure is final or there were too many.
    fn wait_after(&self, failure: FetchError, failures: u32, waits: &mut Backoff) -> Result<(), FetchError> {
        if !failure.is_retryable() || failures >= MOST_FAILURES {
            return Err(failure);
        }
        let mut left = waits.next_wait().max(failure.retry_after().unwrap_or_default());
        log!(info, "image fetch interrupted", error = failure, wait_ms = left.as_millis());
        while !left.is_zero() {
            if self.cancelled.load(Ordering::Relaxed) {
                return Err(FetchError::Cancelled);
            }
            let step = left.min(STEP);
            std::thread::sleep(step);
            left -= step;
        }
        Ok(())
    }

    /// Fetches one blob, continuing an earlier part. After a failure without a new byte, tries the next server.
    fn blob(&mut self, blob: &Descriptor) -> Result<(), FetchError> {
        let whole = self.layout.blob(&blob.digest);
        if fs::metadata(&whole).is_ok_and(|found| found.len() == blob.size) {
            return Ok(());
        }
        let mut part = PartFile::open(&whole, &self.boot)?;
        let under_way = self.peers.as_ref().map(|peers| peers.begin(&blob.digest));
        if let (Some(peers), Some(under_way)) = (&mut self.peers, &under_way) {
            let (cancelled, here) = (&self.cancelled, &self.progress.here);
            peers.copy(&mut Copying { blob, part: &mut part, cancelled, here }, under_way)?;
            if part.is_whole(blob) {
                return Ok(part.finish()?);
            }
            if part.length() >= blob.size {
                log!(info, "nodes have sent other content", blob = blob.digest);
                self.forget(part.length());
                part.restart()?;
                self.peers = None;
            }
        }
        let mut waits = Backoff::new(self.waits.0, self.waits.1);
        let (mut failures, mut server) = (0, 0);
        loop {
            let before = part.length();
            let failure = match self.continue_blob(server, blob, &mut part) {
                Ok(()) if part.is_whole(blob) => return Ok(part.finish()?),
                Ok(()) => {
                    // Wrong bytes, from this server or from an earlier attempt.
                    self.forget(part.length());
                    part.restart()?;
                    let server = self.servers.get(server).map(|server| server.base().to_owned()).unwrap_or_default();
                    FetchError::Digest { what: blob.digest.to_string(), server }
                }
                Err(error) => error,
            };
            if matches!(failure, FetchError::Cancelled | FetchError::Disk(_)) {
                return Err(failure);
            }
            if part.length() > before {
                failures = 0;
                waits.reset();
            }
            failures += 1;
            server = (server + 1) % self.servers.len().max(1);
            // Another server may have the blob.
            let has_others = usize::try_from(failures).unwrap_or(usize::MAX) < self.servers.len();
            if failure.is_retryable() || !has_others {
                self.wait_after(failure, failures, &mut waits)?;
            }
        }
    }

    fn continue_blob(&mut self, server: usize, blob: &Descriptor, part: &mut PartFile) -> Result<(), FetchError> {
        if part.length() >= blob.size {
            return Ok(());
        }
        let server = self.servers.get_mut(server).ok_or(FetchError::NoServer)?;
        let path = format!("blobs/{}", blob.digest);
        let mut answer = server.get(ContentRequest { path: &path, accept: "*/*", from: part.length() })?;
        // `total` is the size of the blob, whether the answer has all of it or a range.
        if let Some(told) = answer.total.filter(|told| *told != blob.size) {
            return Err(FetchError::Length { what: path, expected: blob.size, told });
        }
        if answer.from != part.length() {
            self.forget(part.length());
            part.restart()?;
        }
        let mut buffer = vec![0; BUFFER];
        while part.length() < blob.size {
            if self.cancelled.load(Ordering::Relaxed) {
                return Err(FetchError::Cancelled);
            }
            let count = answer.read(&mut buffer)?;
            if count == 0 {
                return Err(FetchError::Registry(RegistryError::io(&path, &io::ErrorKind::UnexpectedEof.into())));
            }
            let left = usize::try_from(blob.size - part.length()).unwrap_or(usize::MAX);
            let bytes = buffer.get(..count.min(left)).unwrap_or_default();
            part.append(bytes)?;
            self.progress.here.fetch_add(u64::try_from(bytes.len()).unwrap_or_default(), Ordering::Relaxed);
        }
        if answer.total.is_some() {
            // Reading to the end keeps the connection usable for the next blob. Further bytes are ignored.
            let _ = answer.read(&mut buffer);
        }
        Ok(())
    }

    fn forget(&self, bytes: u64) {
        let _ = self
            .progress
            .here
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |here| Some(here.saturating_sub(bytes)));
    }
}

const STEP: Duration = Duration::from_millis(200);

/// The descriptor of a document at the top of an image.
fn described(digest: Digest, bytes: &[u8]) -> Descriptor {
    let document: serde_json::Value = serde_json::from_slice(bytes).unwrap_or_default();
    let is_index = document.get("manifests").is_some();
    let default = match is_index {
        true => "application/vnd.oci.image.index.v1+json",
        false => "application/vnd.oci.image.manifest.v1+json",
    };
    let media_type = document.get("mediaType").and_then(serde_json::Value::as_str).unwrap_or(default).to_owned();
    Descriptor { digest, size: u64::try_from(bytes.len()).unwrap_or(u64::MAX), media_type }
}

#[cfg(test)]
mod tests;
