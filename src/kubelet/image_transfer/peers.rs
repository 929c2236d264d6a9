//! Blobs from other nodes, before the registry is asked. Blocks.
//!
//! Other nodes may be getting the same image. While one of them has more of a blob than this node, or asks the registry
//! for it, this node copies and waits. A wait that brings too few bytes ends; then this node asks the registry.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::error::FetchError;
use super::part_file::PartFile;
use super::pause::pause;
use crate::kubelet::image_archives::manifest::{Descriptor, Digest};
use crate::kubelet::image_transfer::shared_images::{FETCHES_CLAIM, SharedImages, UnderWay};
use crate::platform::net::Deadline;
use crate::platform::registry::{ContentRequest, ContentResponse, Registry, RegistryError};
use crate::platform::rt;
use crate::types::sorted::SortedMap;

/// The other nodes, for one image.
#[derive(Debug)]
pub(super) struct Peers {
    nodes: Vec<Peer>,
    shared: SharedImages,
    /// The peer that is asked first.
    first: usize,
    /// This node has asked the registry for the last blob.
    leads: bool,
    /// Time that was lost with failed requests and waits.
    lost: Duration,
    avoided: AvoidedPeers,
    waits: PeerWaits,
}

#[derive(Debug)]
pub(super) struct Peer {
    pub(super) server: Registry,
    /// Of the request to `server` that is under way.
    pub(super) deadline: Arc<Deadline>,
    /// It has sent bytes of this blob.
    has_sent: bool,
    /// By its last answer it asks the registry, or is busy with others that have asked first.
    has_claimed: bool,
}

/// Peers that are not asked for a while, by URL. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct AvoidedPeers(Arc<Mutex<SortedMap<String, Instant>>>);

/// Time limits of peers.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerWaits {
    /// Of a request, from the connection to the head of the response.
    pub(super) response: Duration,
    /// Between two rounds of requests.
    pub(super) round: Duration,
    /// For a claim of another node, at random up to this.
    pub(super) claim: Duration,
    /// For the next [`MIN_PEER_BYTES`]; at random up to twice this, so that not all nodes ask the registry at once.
    pub(super) bytes: Duration,
    /// When more time than this is lost for one image, the registry is asked for the rest of it.
    pub(super) lost: Duration,
}

/// The blob that is being fetched.
pub(super) struct Copying<'a> {
    pub(super) blob: &'a Descriptor,
    pub(super) part: &'a mut PartFile,
    pub(super) cancelled: &'a AtomicBool,
    /// Bytes of the image that are here.
    pub(super) present_bytes: &'a AtomicU64,
}

/// What a request has brought.
enum Outcome {
    /// No bytes, or as many as the peer has.
    Fine,
    Claim(u32),
    Failed(RegistryError),
    Wrong,
}

/// A peer is on the same network: one that takes longer is overloaded or gone, and the registry is faster.
const PEER_RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);
const MAX_LOST_TIME: Duration = Duration::from_secs(15);
/// A failure that takes less time costs nothing: a node that has just started refuses connections for a moment.
const QUICK_FAILURE_TIME: Duration = Duration::from_secs(1);
/// How long a peer that fails, and one that has sent wrong bytes, is avoided.
const PEER_AVOIDANCE: Duration = Duration::from_secs(60);
/// Wrong bytes mean a damaged disk or a hostile node; each try costs the whole blob.
const PEER_DISTRUST: Duration = Duration::from_secs(3600);
/// Bytes a second of a response after the first seconds.
const MIN_PEER_BYTES_PER_SECOND: u64 = 64 << 10;
const PEER_SPEED_GRACE: Duration = Duration::from_secs(5);
/// Bytes that other nodes bring within [`PeerWaits::bytes`].
const MIN_PEER_BYTES: u64 = 160 << 10;
/// Bytes of one request. A round with fewer bytes has caught up with the peers.
const MAX_PEER_PART_BYTES: u64 = 16 << 20;
const PEER_BUFFER_BYTES: usize = 64 << 10;

impl PeerWaits {
    /// Of many peers, each is asked less often.
    pub(super) fn of(peers: usize) -> Self {
        let peers = u32::try_from(peers).unwrap_or(u32::MAX);
        let for_each = |wait: u64| Duration::from_millis(wait).saturating_mul(peers);
        let [round, claim] =
            [50, 100].map(|wait| for_each(wait).clamp(Duration::from_millis(200), PEER_RESPONSE_TIMEOUT));
        Self { response: PEER_RESPONSE_TIMEOUT, round, claim, bytes: Duration::from_secs(20), lost: MAX_LOST_TIME }
    }
}

impl Peers {
    pub(super) fn new(nodes: Vec<Peer>, shared: SharedImages, avoided: AvoidedPeers, waits: PeerWaits) -> Self {
        let first = usize::try_from(rt::random()).unwrap_or_default();
        let mut peers = Self { nodes, shared, first, leads: false, lost: Duration::ZERO, avoided, waits };
        peers.leave_avoided();
        peers
    }

    /// Shows other nodes that this one is getting the blob.
    pub(super) fn begin(&mut self, digest: &Digest) -> UnderWay {
        for peer in &mut self.nodes {
            peer.has_sent = false;
        }
        self.shared.begin(digest)
    }

    /// Copies what others have. If the blob is not whole afterwards, this node has to ask the registry for the rest.
    pub(super) fn copy(&mut self, copying: &mut Copying<'_>, under_way: &UnderWay) -> Result<(), FetchError> {
        let mut claim = None;
        let mut patience = if std::mem::take(&mut self.leads) { Duration::ZERO } else { up_to(self.waits.claim) };
        let longest = self.waits.bytes + up_to(self.waits.bytes);
        let (mut last_byte, mut since, mut length) = (rt::now(), rt::now(), copying.part.length());
        while !self.nodes.is_empty() {
            let before = copying.part.length();
            let other_claim = self.round(copying, claim)?;
            let came = copying.part.length() - before;
            if copying.part.length() >= copying.blob.size {
                return Ok(());
            }
            if copying.part.length() - length >= MIN_PEER_BYTES {
                (since, length) = (rt::now(), copying.part.length());
            } else if rt::elapsed(since) >= longest {
                self.give_up(rt::elapsed(since));
                break;
            }
            match (claim, other_claim) {
                _ if came > 0 => {
                    (last_byte, patience, claim) = (rt::now(), up_to(self.waits.claim), None);
                    under_way.copies();
                    if came >= MAX_PEER_PART_BYTES {
                        continue;
                    }
                }
                // No other node has a claim, since before this node's could be seen.
                (Some(_), None) => break,
                // Of two claims the lower one wins, so that one node asks the registry.
                (Some(own_claim), Some(other_claim)) if other_claim < own_claim => {
                    claim = None;
                    under_way.copies();
                }
                (None, None) if rt::elapsed(last_byte) >= patience => {
                    let own_claim = rt::random().clamp(FETCHES_CLAIM + 1, u32::MAX - 1);
                    claim = Some(own_claim);
                    under_way.claims(own_claim);
                    continue;
                }
                (None | Some(_), _) => {}
            }
            pause(copying.cancelled, self.waits.round)?;
        }
        under_way.claims(FETCHES_CLAIM);
        self.leads = true;
        Ok(())
    }

    /// Avoids the peers that have sent bytes of this blob, which does not match its digest. False if none has.
    pub(super) fn blame(&self, blob: &Descriptor) -> bool {
        let mut is_theirs = false;
        for peer in self.nodes.iter().filter(|peer| peer.has_sent) {
            self.avoided.add(&peer.server, PEER_DISTRUST, &format_args!("wrong bytes of {}", blob.digest));
            is_theirs = true;
        }
        is_theirs
    }

    /// Asks each peer once. Returns the lowest claim other than `own_claim`.
    fn round(&mut self, copying: &mut Copying<'_>, own_claim: Option<u32>) -> Result<Option<u32>, FetchError> {
        let mut lowest: Option<u32> = None;
        for at in self.in_order() {
            let Some(peer) = self.nodes.get_mut(at).filter(|_| self.lost < self.waits.lost) else { break };
            let begun = rt::now();
            peer.deadline.set(begun + self.waits.response);
            let outcome = peer.ask(copying)?;
            peer.has_claimed = false;
            if let Outcome::Claim(claim) = outcome {
                // A node may be its own peer.
                if Some(claim) != own_claim {
                    peer.has_claimed = true;
                    lowest = Some(lowest.map_or(claim, |lowest| lowest.min(claim)));
                }
            }
            self.judge(at, outcome, begun);
            if copying.part.length() >= copying.blob.size {
                break;
            }
        }
        self.leave_avoided();
        Ok(lowest)
    }

    fn judge(&mut self, at: usize, outcome: Outcome, begun: Instant) {
        let Some(peer) = self.nodes.get(at) else { return };
        let took = rt::elapsed(begun);
        match outcome {
            Outcome::Fine | Outcome::Claim(_) | Outcome::Failed(RegistryError::Cancelled) => {}
            // A peer without the blob, or with too many clients, is in order.
            Outcome::Failed(RegistryError::Status { status: 404 | 429 | 503, .. }) => {}
            Outcome::Failed(RegistryError::Connection { .. }) if took < QUICK_FAILURE_TIME && !peer.has_sent => {}
            Outcome::Failed(error) => {
                self.lost += took.min(PEER_RESPONSE_TIMEOUT + PEER_SPEED_GRACE);
                self.avoided.add(&peer.server, PEER_AVOIDANCE, &error);
            }
            Outcome::Wrong => self.avoided.add(&peer.server, PEER_DISTRUST, &"it has sent something else"),
        }
    }

    /// Waiting for those with a claim has brought too few bytes.
    fn give_up(&mut self, waited: Duration) {
        self.lost += waited;
        for peer in self.nodes.iter().filter(|peer| peer.has_claimed) {
            self.avoided.add(&peer.server, PEER_AVOIDANCE, &"it has claimed a blob of which it gets nothing");
        }
        self.leave_avoided();
    }

    fn leave_avoided(&mut self) {
        if self.lost >= self.waits.lost {
            self.nodes.clear();
        }
        let avoided = &self.avoided;
        self.nodes.retain(|peer| !avoided.has(&peer.server));
    }

    /// The peers, from a random one.
    fn in_order(&self) -> impl Iterator<Item = usize> + use<> {
        let (first, count) = (self.first, self.nodes.len());
        (0..count).map(move |at| first.wrapping_add(at) % count)
    }
}

impl Peer {
    pub(super) fn new(server: Registry, deadline: Arc<Deadline>) -> Self {
        Self { server, deadline, has_sent: false, has_claimed: false }
    }

    /// Asks for the next bytes of the blob. Only a full disk and a cancellation are errors.
    fn ask(&mut self, copying: &mut Copying<'_>) -> Result<Outcome, FetchError> {
        let path = format!("blobs/{}", copying.blob.digest);
        let ask = ContentRequest {
            path: &path,
            accept: ACCEPT_ANY_PEER_BLOB,
            from: copying.part.length(),
            most: Some(MAX_PEER_PART_BYTES),
        };
        let answered = self.server.get_once(ask);
        match answered.map_err(FetchError::from).and_then(|response| self.read(response, copying)) {
            Err(FetchError::Registry(RegistryError::Status { status: 429, .. })) => Ok(Outcome::Claim(FETCHES_CLAIM)),
            Err(FetchError::Registry(RegistryError::Status { status: 503, message, .. })) => {
                let claim = message.strip_prefix("fetching ").and_then(|claim| claim.parse().ok());
                Ok(claim.map_or(Outcome::Fine, Outcome::Claim))
            }
            Err(FetchError::Registry(error)) => Ok(Outcome::Failed(error)),
            outcome => outcome,
        }
    }

    fn read(&mut self, mut response: ContentResponse, copying: &mut Copying<'_>) -> Result<Outcome, FetchError> {
        let size = copying.blob.size;
        if response.total.is_some_and(|total| total != size) || response.from != copying.part.length() {
            return Ok(Outcome::Wrong);
        }
        let begun = rt::now();
        let mut buffer = vec![0; PEER_BUFFER_BYTES];
        while copying.part.length() < size {
            if copying.cancelled.load(Ordering::Relaxed) {
                return Err(FetchError::Cancelled);
            }
            let came = copying.part.length() - response.from;
            self.deadline.set(begun + PEER_SPEED_GRACE + Duration::from_secs(came / MIN_PEER_BYTES_PER_SECOND));
            let count = response.read(&mut buffer)?;
            if count == 0 {
                break;
            }
            self.has_sent = true;
            let bytes_missing = usize::try_from(size - copying.part.length()).unwrap_or(usize::MAX);
            let bytes = buffer.get(..count.min(bytes_missing)).unwrap_or_default();
            copying.part.append(bytes)?;
            copying.present_bytes.fetch_add(u64::try_from(bytes.len()).unwrap_or_default(), Ordering::Relaxed);
        }
        Ok(Outcome::Fine)
    }
}

impl AvoidedPeers {
    fn add(&self, peer: &Registry, time: Duration, error: &dyn fmt::Display) {
        log!(
            info,
            "node is not asked for images for a while",
            node = peer.base(),
            seconds = time.as_secs(),
            error = error
        );
        self.lock().insert(peer.base().to_owned(), rt::now() + time);
    }

    fn has(&self, peer: &Registry) -> bool {
        self.lock().get(peer.base()).is_some_and(|end| rt::now() < *end)
    }

    fn lock(&self) -> MutexGuard<'_, SortedMap<String, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn up_to(longest: Duration) -> Duration {
    longest.saturating_mul(rt::random() % 256) / 256
}

const ACCEPT_ANY_PEER_BLOB: &str = "*/*";
