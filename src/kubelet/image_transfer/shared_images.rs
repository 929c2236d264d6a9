//! The content of images that this node serves to other nodes: what it is fetching, and for a day what it has fetched.
//!
//! ```text
//!   coracle/fetch/IMAGE/blobs/sha256/HEX, HEX.part   an image that is being fetched
//!   coracle/share/HEX                                kept after the import
//! ```
//!
//! Manifests are not served: a node gets those from the registry, with the credentials of its pod, and they alone tell
//! the digests of an image's layers.
//!
//! Nodes that fetch at the same time agree on one of them that asks the registry for a blob: a node shows a claim with
//! a random number, and asks the registry when no other node has the blob or a claim. Of two claims the lower wins.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::kubelet::image_archives::manifest::{Digest, Document, MAX_IMAGE_MANIFEST_BYTES};
use crate::platform::host::file::{read_all, read_head};
use crate::platform::host::file_system::room;
use crate::platform::host::{clock, directories};
use crate::types::sorted::SortOnce;

/// Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct SharedImages(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// The fetcher's directory.
    fetched: PathBuf,
    share_directory: PathBuf,
    under_way: Mutex<Vec<FetchUnderWay>>,
    /// The client of each answer that is being sent.
    clients: Mutex<Vec<Weak<str>>>,
}

/// A blob that this node is getting, from the registry or from other nodes.
#[derive(Debug)]
struct FetchUnderWay {
    /// Of this process.
    id: u32,
    digest: Digest,
    /// [`FETCHES_CLAIM`], a number of its own, or [`COPIES_CLAIM`].
    claim: u32,
}

/// The claim of a node that asks the registry.
pub(super) const FETCHES_CLAIM: u32 = 0;
/// No claim.
const COPIES_CLAIM: u32 = u32::MAX;

/// Kept content is removed after this many seconds, or when it is more than this.
const KEPT_CONTENT_SECONDS: i64 = 24 * 3600;
/// What is kept for others is a favour, and must not push the node towards disk pressure.
const MAX_KEPT_CONTENT_BYTES: u64 = 1 << 30;
/// Nothing is kept on a disk with less space than this.
const MIN_SHARING_DISK_BYTES: u64 = 256 << 20;
/// Number of answers at the same time, and of those to one client.
const MAX_SHARING_ANSWERS: usize = 8;
const MAX_SHARING_ANSWERS_OF_CLIENT: usize = 2;

/// The answer to a request for a blob.
#[derive(Debug)]
pub(crate) enum SharedAnswer {
    Part(SharedPart),
    /// Nothing of the blob is here yet, and this node claims it.
    Claimed(u32),
    /// Too many answers are being sent.
    Busy,
    Absent,
}

/// A blob, or as much of it as is here.
#[derive(Debug)]
pub(crate) struct SharedPart {
    pub(crate) file: File,
    /// Number of bytes that are here.
    pub(crate) length: u64,
    /// Whether that is the whole blob.
    pub(crate) is_whole: bool,
    /// Counts the answer until it is dropped.
    pub(crate) client_share: Arc<str>,
}

impl SharedImages {
    /// `root` is the directory of the agent's own files.
    pub(crate) fn new(root: &Path) -> Self {
        let (fetched, kept) = (root.join("fetch"), root.join("share"));
        Self(Arc::new(Shared {
            fetched,
            share_directory: kept,
            under_way: Mutex::default(),
            clients: Mutex::default(),
        }))
    }

    /// The blob with this digest, if more than `from` bytes of it are here. Blocks.
    pub(crate) fn find(&self, digest: &str, from: u64, client: &str) -> SharedAnswer {
        let Some(digest) = Digest::parse(digest) else { return SharedAnswer::Absent };
        if let Some((file, length, is_whole)) = self.open(&digest, from) {
            let turn = self.take_turn(client);
            return turn.map_or(SharedAnswer::Busy, |turn| {
                SharedAnswer::Part(SharedPart { file, length, is_whole, client_share: turn })
            });
        }
        match self.claim(&digest) {
            Some(COPIES_CLAIM) | None => SharedAnswer::Absent,
            Some(claim) => SharedAnswer::Claimed(claim),
        }
    }

    /// A file with a byte at `from`, its length, and whether it is the whole blob.
    fn open(&self, digest: &Digest, from: u64) -> Option<(File, u64, bool)> {
        let layouts = fs::read_dir(&self.0.fetched).into_iter().flatten().flatten();
        let blobs = layouts.map(|layout| layout.path().join("blobs/sha256").join(digest.hex()));
        let wholes: Vec<PathBuf> = [self.0.share_directory.join(digest.hex())].into_iter().chain(blobs).collect();
        let open = |path: PathBuf| {
            let file = File::open(path).ok()?;
            let length = file.metadata().ok()?.len();
            (length > from).then_some((file, length))
        };
        let whole = || {
            let found = wholes.iter().find_map(|whole| open(whole.clone()).filter(|_| !is_manifest(whole)));
            found.map(|(file, length)| (file, length, true))
        };
        if let Some(found) = whole() {
            return Some(found);
        }
        // After a power cut, a part that no fetch has opened may have zeros at its end.
        self.claim(digest)?;
        let parts = wholes.iter().filter_map(|whole| open(whole.with_extension("part")));
        let longest = parts.max_by_key(|(_, length)| *length);
        // The part may have become the whole blob meanwhile.
        longest.map(|(file, length)| (file, length, false)).or_else(whole)
    }

    /// The lowest claim of the fetches of this blob.
    fn claim(&self, digest: &Digest) -> Option<u32> {
        self.under_way().iter().filter(|fetch| fetch.digest == *digest).map(|fetch| fetch.claim).min()
    }

    fn take_turn(&self, client: &str) -> Option<Arc<str>> {
        let mut clients = self.0.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.retain(|turn| turn.strong_count() > 0);
        let of_client = clients.iter().filter(|turn| turn.upgrade().is_some_and(|turn| *turn == *client)).count();
        if clients.len() >= MAX_SHARING_ANSWERS || of_client >= MAX_SHARING_ANSWERS_OF_CLIENT {
            return None;
        }
        let client_share: Arc<str> = Arc::from(client);
        clients.push(Arc::downgrade(&client_share));
        Some(client_share)
    }

    fn under_way(&self) -> MutexGuard<'_, Vec<FetchUnderWay>> {
        self.0.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This node gets the blob until the result is dropped, at first from other nodes.
    pub(super) fn begin(&self, digest: &Digest) -> UnderWay {
        let mut under_way = self.under_way();
        let id = under_way.iter().map(|fetch| fetch.id.saturating_add(1)).max().unwrap_or_default();
        under_way.push(FetchUnderWay { id, digest: digest.clone(), claim: COPIES_CLAIM });
        UnderWay { shared: self.clone(), id }
    }

    /// Keeps the whole blobs of a directory, which loses them. Blocks.
    pub(super) fn keep(&self, blobs: &Path) -> io::Result<()> {
        directories::make_own(&self.0.share_directory, 0o700)?;
        for entry in fs::read_dir(blobs)? {
            let path = entry?.path();
            if let (Some(name), None) = (path.file_name(), path.extension()) {
                fs::rename(&path, self.0.share_directory.join(name))?;
            }
        }
        self.prune(clock::timestamp().as_second())
    }

    /// Removes kept content that is too old at `now` or too much, the oldest first. Blocks.
    pub(super) fn prune(&self, now: i64) -> io::Result<()> {
        let mut files: Vec<(i64, u64, PathBuf)> = Vec::new();
        for entry in fs::read_dir(&self.0.share_directory).into_iter().flatten().flatten() {
            let metadata = entry.metadata()?;
            files.push((metadata.mtime(), metadata.len(), entry.path()));
        }
        files.sort_once();
        let mut kept: u64 = files.iter().map(|(_, length, _)| length).sum();
        for (modified, length, path) in files {
            let is_old = now.saturating_sub(modified) > KEPT_CONTENT_SECONDS;
            if is_old
                || kept > MAX_KEPT_CONTENT_BYTES
                || room(&self.0.share_directory)?.available < MIN_SHARING_DISK_BYTES
            {
                fs::remove_file(path)?;
                kept = kept.saturating_sub(length);
            }
        }
        Ok(())
    }
}

/// Whether the file is an index or a manifest.
fn is_manifest(path: &Path) -> bool {
    let is_small = fs::metadata(path).is_ok_and(|metadata| metadata.len() <= MAX_IMAGE_MANIFEST_BYTES);
    // Layers are packed, so most files are no JSON.
    is_small && read_head(path, 1).is_ok_and(|head| head == b"{") && {
        let text = read_all(path, MAX_IMAGE_MANIFEST_BYTES).unwrap_or_default();
        Document::parse(&text).is_ok()
    }
}

/// A fetch of this node that others see.
#[derive(Debug)]
pub(super) struct UnderWay {
    shared: SharedImages,
    id: u32,
}

impl UnderWay {
    /// This node copies the blob from others.
    pub(super) fn copies(&self) {
        self.claims(COPIES_CLAIM);
    }

    pub(super) fn claims(&self, claim: u32) {
        if let Some(fetch) = self.shared.under_way().iter_mut().find(|fetch| fetch.id == self.id) {
            fetch.claim = claim;
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.shared.under_way().retain(|fetch| fetch.id != self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf, SharedImages);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("coracle-share-{name}-{}", std::process::id()));
            fs::create_dir_all(path.join("fetch/image/blobs/sha256")).unwrap();
            let shared = SharedImages::new(&path);
            Self(path, shared)
        }

        /// Writes a blob's file and returns the digest.
        fn write(&self, content: &[u8], extension: &str) -> Digest {
            let digest = Digest::of(content);
            let path = self.blobs().join(digest.hex()).with_extension(extension);
            fs::write(path, content).unwrap();
            digest
        }

        fn blobs(&self) -> PathBuf {
            self.0.join("fetch/image/blobs/sha256")
        }

        fn find(&self, digest: &Digest, from: u64) -> Option<(u64, bool)> {
            match self.1.find(&digest.to_string(), from, "node") {
                SharedAnswer::Part(part) => Some((part.length, part.is_whole)),
                SharedAnswer::Absent | SharedAnswer::Busy | SharedAnswer::Claimed(_) => None,
            }
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn parts_are_served_only_while_they_are_fetched() {
        let folder = Folder::new("parts");
        let (whole, part) = (folder.write(b"whole", ""), folder.write(b"part", "part"));
        assert_eq!(folder.find(&whole, 0), Some((5, true)));
        assert_eq!(folder.find(&whole, 5), None);
        assert_eq!(folder.find(&part, 0), None);
        let under_way = folder.1.begin(&part);
        assert_eq!(folder.find(&part, 3), Some((4, false)));
        assert_eq!(folder.find(&part, 4), None);
        drop(under_way);
        assert_eq!(folder.find(&part, 0), None);
        for text in ["", "sha256:../../x", "latest", whole.hex()] {
            assert!(matches!(folder.1.find(text, 0, "node"), SharedAnswer::Absent), "{text}");
        }
    }

    #[test]
    fn manifests_are_not_served() {
        let folder = Folder::new("manifests");
        let digest = Digest::of(b"x");
        let manifest = format!("{{\"config\": {{\"digest\": \"{digest}\", \"size\": 1}}, \"layers\": []}}");
        for (text, is_served) in [(manifest.as_str(), false), ("{\"manifests\": []}", false), ("{}", true), ("{", true)]
        {
            let digest = folder.write(text.as_bytes(), "");
            assert_eq!(folder.find(&digest, 0).is_some(), is_served, "{text}");
        }
    }

    #[test]
    fn lowest_claim_of_two_fetches_is_shown() {
        let folder = Folder::new("claims");
        let digest = Digest::of(b"blob");
        let claim = || match folder.1.find(&digest.to_string(), 0, "node") {
            SharedAnswer::Claimed(claim) => Some(claim),
            SharedAnswer::Absent | SharedAnswer::Busy | SharedAnswer::Part(_) => None,
        };
        let (first, second) = (folder.1.begin(&digest), folder.1.begin(&digest));
        assert_eq!(claim(), None);
        first.claims(7);
        second.claims(9);
        assert_eq!(claim(), Some(7));
        first.copies();
        assert_eq!(claim(), Some(9));
        second.claims(FETCHES_CLAIM);
        drop(first);
        assert_eq!(claim(), Some(FETCHES_CLAIM));
        drop(second);
        assert_eq!(claim(), None);
    }

    #[test]
    fn answers_are_limited_for_all_and_for_each_client() {
        let folder = Folder::new("turns");
        let digest = folder.write(b"blob", "").to_string();
        let ask = |client: &str| folder.1.find(&digest, 0, client);
        let is_busy = |client: &str| matches!(ask(client), SharedAnswer::Busy);
        let first = [ask("a"), ask("a")];
        assert!(is_busy("a"));
        let others: Vec<_> = ["b", "b", "c", "c", "d", "d"].iter().map(|client| ask(client)).collect();
        assert!(others.iter().all(|response| matches!(response, SharedAnswer::Part(_))));
        assert!(is_busy("e"));
        drop(first);
        assert!(!is_busy("e") && !is_busy("a"));
    }

    #[test]
    fn whole_blobs_are_kept_for_a_day() {
        let folder = Folder::new("kept");
        let (whole, part) = (folder.write(b"whole", ""), folder.write(b"part", "part"));
        folder.1.keep(&folder.blobs()).unwrap();
        assert!(!folder.blobs().join(whole.hex()).exists());
        assert!(folder.blobs().join(part.hex()).with_extension("part").exists());
        assert_eq!(folder.find(&whole, 0), Some((5, true)));
        let now = clock::timestamp().as_second();
        folder.1.prune(now + KEPT_CONTENT_SECONDS - 60).unwrap();
        assert_eq!(folder.find(&whole, 0), Some((5, true)));
        folder.1.prune(now + KEPT_CONTENT_SECONDS + 60).unwrap();
        assert_eq!(folder.find(&whole, 0), None);
        folder.write(b"whole", "");
        folder.1.keep(&folder.blobs()).unwrap();
        folder.1.prune(i64::MAX).unwrap();
        assert_eq!(folder.find(&whole, 0), None);
    }
}
