//! Content from other nodes, before the registry is asked.
//!
//! Other nodes may be getting the same image. While one of them has more of a blob than this node, or asks the registry
//! for it, this node copies and waits. A wait without a byte ends; then this node asks the registry.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::error::FetchError;
use super::manifest::{Descriptor, Digest, MOST_BYTES};
use super::part_file::PartFile;
use crate::kubelet::images::shared_images::{FETCHES, SharedImages, UnderWay, claim_in};
use crate::platform::registry::{ContentRequest, ContentResponse, Registry, RegistryError};
use crate::platform::rt;

/// The other nodes, asked for the content of one image.
#[derive(Debug)]
pub(super) struct Peers {
    nodes: Vec<Peer>,
    shared: SharedImages,
    /// Asked first.
    first: usize,
    /// This node has asked the registry for the blob before.
    leads: bool,
    waits: PeerWaits,
}

#[derive(Debug)]
struct Peer {
    server: Registry,
    /// It is not asked again for this image.
    is_lost: bool,
}

/// How long a node waits for others.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerWaits {
    /// Between two rounds.
    pub(super) step: Duration,
    /// For a sign of content, per peer: the longest of a random time.
    pub(super) sign: Duration,
    /// For the next byte.
    pub(super) byte: Duration,
}

pub(super) const WAITS: PeerWaits =
    PeerWaits { step: Duration::from_millis(500), sign: Duration::from_millis(500), byte: Duration::from_secs(10) };
/// The longest wait for a sign.
const MOST_SIGN: Duration = Duration::from_secs(5);
/// A node that is slower than this is not worth the wait, and a failure that took long is not repeated.
const SLOWEST: u64 = 16 << 10;
const PATIENCE: Duration = Duration::from_secs(10);
const QUICK: Duration = Duration::from_secs(1);
const BUFFER: usize = 64 << 10;

/// What a fetch of one blob works on.
pub(super) struct Copying<'a> {
    pub(super) blob: &'a Descriptor,
    pub(super) part: &'a mut PartFile,
    pub(super) cancelled: &'a AtomicBool,
    /// Bytes of the image that are here.
    pub(super) here: &'a AtomicU64,
}

impl Peers {
    pub(super) fn new(servers: Vec<Registry>, shared: SharedImages, waits: PeerWaits) -> Self {
        let first = usize::try_from(rt::random()).unwrap_or_default();
        let nodes = servers.into_iter().map(|server| Peer { server, is_lost: false }).collect();
        Self { nodes, shared, first, leads: false, waits }
    }

    pub(super) fn begin(&self, digest: &Digest) -> UnderWay {
        self.shared.begin(digest)
    }

    /// A manifest from another node.
    pub(super) fn document(&mut self, digest: &Digest) -> Option<Vec<u8>> {
        let path = format!("manifests/{digest}");
        for peer in self.nodes.iter_mut().filter(|peer| !peer.is_lost) {
            let begun = rt::now();
            let ask = ContentRequest { path: &path, accept: "*/*", from: 0 };
            match peer.server.get(ask).and_then(|answer| answer.text(MOST_BYTES)) {
                Ok(bytes) if Digest::of(&bytes) == *digest => return Some(bytes),
                Ok(_) => peer.is_lost = true,
                Err(error) => peer.failed(&error, rt::elapsed(begun)),
            }
        }
        None
    }

    /// Copies what others have. If the blob is not whole afterwards, this node is to ask the registry for the rest.
    pub(super) fn copy(&mut self, copying: &mut Copying<'_>, under_way: &UnderWay) -> Result<(), FetchError> {
        let mut last = rt::now();
        let mut claim = None;
        let mut patience = if std::mem::take(&mut self.leads) { Duration::ZERO } else { self.wait_for_sign() };
        while self.nodes.iter().any(|peer| !peer.is_lost) {
            let before = copying.part.length();
            let other = self.round(copying)?;
            if copying.part.length() >= copying.blob.size {
                return Ok(());
            }
            if copying.part.length() > before {
                (last, patience, claim) = (rt::now(), self.waits.byte, None);
                under_way.copies();
                continue;
            }
            if other.is_some() {
                patience = patience.max(self.waits.byte);
            }
            let waited = rt::elapsed(last);
            match (claim, other) {
                // No other node will ask the registry, or one asks for long without a byte.
                (Some(_), None) => break,
                _ if waited >= self.waits.byte.saturating_mul(2) => break,
                (Some(own), Some(other)) if other < own => {
                    claim = None;
                    under_way.copies();
                }
                (None, _) if waited >= patience => {
                    let number = rt::random().clamp(FETCHES + 1, u32::MAX - 1);
                    claim = Some(number);
                    under_way.shows(number);
                    // The others' claims are to be seen after this one can be.
                    continue;
                }
                (None | Some(_), _) => {}
            }
            if copying.cancelled.load(Ordering::Relaxed) {
                return Err(FetchError::Cancelled);
            }
            std::thread::sleep(self.waits.step);
        }
        under_way.shows(FETCHES);
        self.leads = true;
        Ok(())
    }

    fn wait_for_sign(&self) -> Duration {
        let nodes = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        let most = self.waits.sign.saturating_mul(nodes).min(MOST_SIGN);
        most.mul_f64(f64::from(rt::random()) / f64::from(u32::MAX))
    }

    /// Asks each node once. Returns the lowest number of a node that asks the registry, or is about to.
    fn round(&mut self, copying: &mut Copying<'_>) -> Result<Option<u32>, FetchError> {
        let mut lowest: Option<u32> = None;
        let path = format!("blobs/{}", copying.blob.digest);
        let count = self.nodes.len();
        for at in 0..count {
            let Some(peer) = self.nodes.get_mut(self.first.wrapping_add(at) % count).filter(|peer| !peer.is_lost)
            else {
                continue;
            };
            let begun = rt::now();
            let from = copying.part.length();
            match peer.server.get(ContentRequest { path: &path, accept: "*/*", from }) {
                Ok(answer) => peer.read(answer, copying)?,
                Err(RegistryError::Cancelled) => return Err(FetchError::Cancelled),
                Err(RegistryError::Status { message, .. }) => {
                    let number = claim_in(&message);
                    lowest = lowest.into_iter().chain(number).min();
                }
                Err(error) => peer.failed(&error, rt::elapsed(begun)),
            }
            if copying.part.length() >= copying.blob.size {
                break;
            }
        }
        Ok(lowest)
    }
}

impl Peer {
    fn failed(&mut self, error: &RegistryError, took: Duration) {
        // A node that has just started refuses connections for a moment.
        let is_lost = match error {
            RegistryError::Status { status, .. } => matches!(status, 401 | 403),
            RegistryError::Connection { .. } | RegistryError::Protocol { .. } => took >= QUICK,
            RegistryError::Cancelled => false,
        };
        if is_lost {
            log!(info, "node does not share images", node = self.server.base(), error = error);
            self.is_lost = true;
        }
    }

    /// Takes the bytes of an answer. Only a full disk and a cancellation are errors.
    fn read(&mut self, mut answer: ContentResponse, copying: &mut Copying<'_>) -> Result<(), FetchError> {
        let size = copying.blob.size;
        if answer.total.is_some_and(|told| told != size) || answer.from != copying.part.length() {
            self.is_lost = true;
            return Ok(());
        }
        let (begun, first) = (rt::now(), copying.part.length());
        let mut buffer = vec![0; BUFFER];
        while copying.part.length() < size {
            if copying.cancelled.load(Ordering::Relaxed) {
                return Err(FetchError::Cancelled);
            }
            let count = match answer.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => count,
                Err(RegistryError::Cancelled) => return Err(FetchError::Cancelled),
                Err(error) => {
                    self.failed(&error, rt::elapsed(begun));
                    return Ok(());
                }
            };
            let left = usize::try_from(size - copying.part.length()).unwrap_or(usize::MAX);
            let bytes = buffer.get(..count.min(left)).unwrap_or_default();
            copying.part.append(bytes)?;
            copying.here.fetch_add(u64::try_from(bytes.len()).unwrap_or_default(), Ordering::Relaxed);
            let (took, came) = (rt::elapsed(begun), copying.part.length() - first);
            if took >= PATIENCE && came / took.as_secs().max(1) < SLOWEST {
                log!(info, "node is too slow to copy from", node = self.server.base());
                self.is_lost = true;
                return Ok(());
            }
        }
        Ok(())
    }
}
