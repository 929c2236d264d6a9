//! Fetches one image into its layout. Blocks.
//!
//! ```text
//!   servers of the registry -> tag -> index -> manifest -> config and layers, by range into part files
//! ```
//!
//! Every document and blob is checked against its digest before it is used. The registry is the judge of each: what
//! this node or another one has already is used only after the registry has said that the pod's credentials are good for
//! it. Otherwise a manifest at a registry of the tenant's own could name blobs of another tenant, by their digests.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ring::digest::{Context, SHA256};

use super::error::FetchError;
use super::layout::Layout;
use super::part_file::PartFile;
use super::pause::pause;
use super::peers::{Copying, Peers};
use super::progress::Progress;
use super::space::Space;
use crate::kubelet::image_archives::artifact::{ArtifactFile, artifact_files};
use crate::kubelet::image_archives::manifest::{
    ACCEPT, Descriptor, Digest, Document, MAX_IMAGE_MANIFEST_BYTES, document, select,
};
use crate::kubelet::image_transfer::transfer_meter::Meter;
use crate::platform::host::file::read_all;
use crate::platform::registry::{ContentRequest, Registry, RegistryError};
use crate::types::sorted::SortedSet;
use crate::types::time::Backoff;

/// Returns the files to fetch; the error is one line.
pub(crate) type ArtifactChoice = fn(&[ArtifactFile]) -> Result<Vec<Descriptor>, String>;

pub(super) struct Job {
    /// In the order in which they are tried.
    pub(super) servers: Vec<Registry>,
    /// A tag or a digest.
    pub(super) reference: String,
    pub(super) layout: Layout,
    pub(super) space: Space,
    /// Blobs that the runtime has.
    pub(super) present: SortedSet<String>,
    /// The architecture, in Rust's naming.
    pub(super) machine: &'static str,
    /// The id of this boot.
    pub(super) boot: String,
    pub(super) cancelled: Arc<AtomicBool>,
    pub(super) progress: Arc<Progress>,
    pub(super) meter: Arc<Meter>,
    /// Windows and budgets do not hold it.
    pub(super) is_urgent: bool,
    /// Asked for blobs first. What the reference names, and to whom, is the registry's answer.
    pub(super) peers: Option<Peers>,
    /// First and longest wait after a failure.
    pub(super) waits: (Duration, Duration),
}

/// Failures in a row without a new byte after which a fetch gives up. The next fetch continues with the bytes on the
/// disk.
const MAX_FETCH_FAILURES: u32 = 5;
/// Wrong digests of one blob after which a fetch gives up, however many bytes came in between. The first one may be due
/// to an earlier fetch, or to the bytes of several servers.
const MAX_DIGEST_FAILURES: usize = 3;
const FETCH_BUFFER_BYTES: u64 = 64 << 10;
/// Accepts blobs of every type.
const ACCEPT_ANY_BLOB: &str = "*/*";

impl Job {
    /// Fetches the missing blobs of an image. Returns the index or manifest that the reference names.
    pub(super) fn run(&mut self) -> Result<Descriptor, FetchError> {
        let (top, manifest, document) = self.manifest()?;
        let Document::Manifest { config, layers } = document else {
            return Err(FetchError::NestedIndex(manifest.digest));
        };
        let mut blobs: Vec<Descriptor> = Vec::new();
        for blob in std::iter::once(config).chain(layers) {
            if !blobs.contains(&blob) {
                blobs.push(blob);
            }
        }
        self.blobs(blobs)?;
        Ok(top)
    }

    /// Fetches those files of an artifact that `choose` returns.
    pub(super) fn run_artifact(&mut self, choose: ArtifactChoice) -> Result<Vec<Descriptor>, FetchError> {
        let (_, manifest, _) = self.manifest()?;
        let bytes = self.known_document(&manifest.digest).unwrap_or_default();
        let invalid = |problem| FetchError::InvalidManifest { digest: manifest.digest.clone(), problem };
        let files = artifact_files(&bytes).map_err(invalid)?;
        let chosen = choose(&files).map_err(FetchError::Artifact)?;
        self.blobs(chosen.clone())?;
        Ok(chosen)
    }

    /// What the reference names, and the manifest for this machine.
    pub(super) fn manifest(&mut self) -> Result<(Descriptor, Descriptor, Document), FetchError> {
        self.space.begin()?;
        fs::create_dir_all(self.layout.blobs())?;
        let top = self.resolve()?;
        let document = self.document(&top)?;
        let Document::Index(manifests) = &document else { return Ok((top.clone(), top, document)) };
        let chosen = select(manifests, self.machine);
        let manifest = chosen.cloned().ok_or(FetchError::Platform(self.machine))?;
        let document = self.named(&manifest)?;
        Ok((top, manifest, document))
    }

    fn blobs(&mut self, blobs: Vec<Descriptor>) -> Result<(), FetchError> {
        let (present, missing): (Vec<_>, Vec<_>) =
            blobs.into_iter().partition(|blob| self.present.contains(&blob.digest.to_string()));
        for blob in &present {
            self.check(&format!("blobs/{}", blob.digest), ACCEPT_ANY_BLOB)?;
        }
        let here: u64 = missing.iter().map(|blob| self.present_bytes(blob)).sum();
        let total_bytes: u64 = missing.iter().fold(0, |sum, blob| sum.saturating_add(blob.size));
        self.space.claim(total_bytes, here)?;
        for blob in &missing {
            self.blob(blob)?;
        }
        Ok(())
    }

    fn present_bytes(&self, blob: &Descriptor) -> u64 {
        let blob_path = self.layout.blob(&blob.digest);
        let length = |path: PathBuf| fs::metadata(path).ok().map(|metadata| metadata.len());
        length(blob_path.clone()).or_else(|| length(blob_path.with_extension("part"))).unwrap_or(0).min(blob.size)
    }

    /// The index or manifest that the reference names, from the first server that has it.
    fn resolve(&mut self) -> Result<Descriptor, FetchError> {
        let digest = Digest::parse(&self.reference);
        if let Some(digest) = &digest {
            // A digest always names the same content, but not everybody may have it.
            if let Some(bytes) = self.known_document(digest) {
                self.check(&format!("manifests/{digest}"), ACCEPT)?;
                return Ok(described(digest.clone(), &bytes));
            }
        }
        let path = format!("manifests/{}", self.reference);
        let bytes = self.document_from_any(&path, digest.as_ref(), MAX_IMAGE_MANIFEST_BYTES)?;
        let manifest_digest = Digest::of(&bytes);
        // Not synced: its reader compares the digest.
        fs::write(self.layout.blob(&manifest_digest), &bytes)?;
        Ok(described(manifest_digest, &bytes))
    }

    /// A document that is here. A layer of any size may have been fetched under its digest before.
    pub(super) fn known_document(&self, digest: &Digest) -> Option<Vec<u8>> {
        let document = read_all(&self.layout.blob(digest), MAX_IMAGE_MANIFEST_BYTES).ok();
        document.filter(|bytes| Digest::of(bytes) == *digest)
    }

    /// The manifest that an index names. It comes from the registry, never from another node: whoever has it knows the
    /// digests of its layers.
    fn named(&mut self, of: &Descriptor) -> Result<Document, FetchError> {
        let path = format!("manifests/{}", of.digest);
        if self.known_document(&of.digest).is_some() {
            self.check(&path, ACCEPT)?;
        } else {
            let bytes = self.document_from_any(&path, Some(&of.digest), MAX_IMAGE_MANIFEST_BYTES)?;
            fs::write(self.layout.blob(&of.digest), &bytes)?;
        }
        self.document(of)
    }

    /// A document that is here by now.
    fn document(&self, of: &Descriptor) -> Result<Document, FetchError> {
        let lost = || FetchError::Digest { what: of.digest.to_string(), server: "the disk".to_owned() };
        let bytes = self.known_document(&of.digest).ok_or_else(lost)?;
        Document::parse(&bytes).map_err(|problem| FetchError::InvalidManifest { digest: of.digest.clone(), problem })
    }

    /// Asks the registry whether the pod may have what is here or at another node.
    fn check(&mut self, path: &str, accept: &str) -> Result<(), FetchError> {
        let mut waits = Backoff::new(self.waits.0, self.waits.1);
        let mut failures = 0;
        loop {
            let mut last = None;
            for server in &mut self.servers {
                match server.check(path, accept) {
                    Ok(()) => return Ok(()),
                    Err(RegistryError::Cancelled) => return Err(FetchError::Cancelled),
                    Err(error) => last = Some(error.into()),
                }
            }
            failures += 1;
            self.wait_after(last.unwrap_or(FetchError::NoServer), failures, &mut waits)?;
        }
    }

    /// A small document with this digest, if one is given, of at most `limit` bytes.
    pub(super) fn document_from_any(
        &mut self,
        path: &str,
        digest: Option<&Digest>,
        limit: u64,
    ) -> Result<Vec<u8>, FetchError> {
        let accept = if path.starts_with("blobs/") { ACCEPT_ANY_BLOB } else { ACCEPT };
        let mut waits = Backoff::new(self.waits.0, self.waits.1);
        let mut failures = 0;
        loop {
            let mut last = None;
            for server in &mut self.servers {
                if digest.is_none() && !server.resolves() {
                    continue;
                }
                let ask = ContentRequest { path, accept, from: 0, most: None };
                let answered = server.get(ask).and_then(|response| response.text(limit));
                if let Ok(bytes) = &answered {
                    // Its length was not known before.
                    self.meter.take(u64::try_from(bytes.len()).unwrap_or(u64::MAX), true)?;
                }
                match answered {
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
        if !failure.is_retryable() || failures >= MAX_FETCH_FAILURES {
            return Err(failure);
        }
        let wait = waits.next_wait().max(failure.retry_after().unwrap_or_default());
        log!(info, "image fetch interrupted", error = failure, wait_ms = wait.as_millis());
        pause(&self.cancelled, wait)
    }

    /// Fetches one blob, continuing an earlier part, from other nodes and then from the registry. After a failure, tries
    /// the next server. After a wrong digest, all bytes come from one server, so that a bad one cannot spoil those of a
    /// good one.
    fn blob(&mut self, blob: &Descriptor) -> Result<(), FetchError> {
        let blob_path = self.layout.blob(&blob.digest);
        let counted = self.present_bytes(blob);
        if blob_path.exists() {
            // An unreadable sector of the disk is damage, too.
            if is_blob(&blob_path, blob).unwrap_or(false) {
                return self.check(&format!("blobs/{}", blob.digest), ACCEPT_ANY_BLOB);
            }
            log!(warn, "stored image blob is damaged, fetching it again", path = blob_path.display());
            fs::remove_file(&blob_path)?;
        }
        let mut part = PartFile::open(&blob_path, &self.boot)?;
        // It may have lost its end in a power cut.
        self.progress.correct(counted, part.length());
        // The rest of a part is requested from the registry.
        if self.peers.is_some() || part.length() >= blob.size {
            self.check(&format!("blobs/{}", blob.digest), ACCEPT_ANY_BLOB)?;
        }
        let under_way = self.peers.as_mut().map(|peers| peers.begin(&blob.digest));
        if let (Some(peers), Some(under_way)) = (&mut self.peers, &under_way) {
            let (cancelled, here) = (&self.cancelled, &self.progress.present_bytes);
            peers.copy(&mut Copying { blob, part: &mut part, cancelled, present_bytes: here }, under_way)?;
        }
        let mut waits = Backoff::new(self.waits.0, self.waits.1);
        let (mut failures, mut digest_failures, mut server) = (0, 0, 0);
        let most_digest_failures = MAX_DIGEST_FAILURES.min(self.servers.len() + 1);
        loop {
            let before = part.length();
            let failure = match self.continue_blob(server, blob, &mut part) {
                Ok(()) if part.is_whole(blob) => return Ok(part.finish()?),
                Ok(()) => {
                    // Wrong bytes, from this server, another node, or an earlier attempt.
                    self.forget(part.length());
                    part.restart()?;
                    if self.peers.as_ref().is_some_and(|peers| peers.blame(blob)) {
                        self.peers = None;
                        continue;
                    }
                    digest_failures += 1;
                    let server = self.servers.get(server).map(|server| server.base().to_owned()).unwrap_or_default();
                    FetchError::Digest { what: blob.digest.to_string(), server }
                }
                Err(error) => error,
            };
            let is_final = matches!(failure, FetchError::Cancelled | FetchError::Disk(_) | FetchError::Held);
            if is_final || digest_failures >= most_digest_failures {
                return Err(failure);
            }
            if part.length() > before {
                failures = 0;
                waits.reset();
            }
            failures += 1;
            if digest_failures == 0 || part.length() == 0 {
                server = (server + 1) % self.servers.len().max(1);
            }
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
        // The server must not send what may not be taken.
        let room = self.meter.room(self.is_urgent);
        if room == 0 {
            return Err(FetchError::Held);
        }
        let most = Some(room).filter(|room| *room < blob.size - part.length());
        let mut response =
            server.get(ContentRequest { path: &path, accept: ACCEPT_ANY_BLOB, from: part.length(), most })?;
        // `total` is the size of the blob, whether the answer has all of it or a range.
        if let Some(actual) = response.total.filter(|actual| *actual != blob.size) {
            return Err(FetchError::Length { what: path, expected: blob.size, actual });
        }
        if response.from != part.length() {
            self.forget(part.length());
            part.restart()?;
        }
        let mut buffer = vec![0; usize::try_from(FETCH_BUFFER_BYTES).unwrap_or_default()];
        while part.length() < blob.size {
            if self.cancelled.load(Ordering::Relaxed) {
                return Err(FetchError::Cancelled);
            }
            let wanted = (blob.size - part.length()).min(FETCH_BUFFER_BYTES);
            let taken = self.meter.take(wanted, self.is_urgent)?;
            let Some(free) = usize::try_from(taken).ok().and_then(|taken| buffer.get_mut(..taken)) else { break };
            if free.is_empty() {
                return Err(FetchError::Held);
            }
            let read = response.read(free);
            let count = *read.as_ref().unwrap_or(&0);
            let bytes = free.get(..count).unwrap_or_default();
            let came = u64::try_from(count).unwrap_or_default();
            self.meter.refund(taken.saturating_sub(came), self.is_urgent);
            read?;
            if count == 0 {
                return Err(FetchError::Registry(RegistryError::io(&path, &io::ErrorKind::UnexpectedEof.into())));
            }
            part.append(bytes)?;
            self.progress.present_bytes.fetch_add(came, Ordering::Relaxed);
            if !self.is_urgent {
                self.meter.pace(came, &self.cancelled);
            }
        }
        if response.total.is_some() {
            // Reading to the end keeps the connection usable for the next blob. Further bytes are ignored.
            let _ = response.read(&mut buffer);
        }
        Ok(())
    }

    fn forget(&self, bytes: u64) {
        let _ = self
            .progress
            .present_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |here| Some(here.saturating_sub(bytes)));
    }
}

/// Whether a finished file still is the blob: a disk may have lost or changed bytes since.
fn is_blob(path: &Path, blob: &Descriptor) -> io::Result<bool> {
    if fs::metadata(path)?.len() != blob.size {
        return Ok(false);
    }
    let mut hash = Context::new(&SHA256);
    let mut file = File::open(path)?;
    let mut buffer = vec![0; usize::try_from(FETCH_BUFFER_BYTES).unwrap_or_default()];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(blob.digest.is_of(hash)),
            count => hash.update(buffer.get(..count).unwrap_or_default()),
        }
    }
}

/// The descriptor of a document at the top of an image.
fn described(digest: Digest, bytes: &[u8]) -> Descriptor {
    let document = document(bytes).unwrap_or_default();
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
