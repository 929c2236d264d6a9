//! The disk space of images that are being fetched: what a fetch may take, and what is removed when the disk fills up.
//!
//! ```text
//!   coracle/fetch/IMAGE/pod      the uid of the pod that has fetched the image last
//!   coracle/fetch/IMAGE/blobs    whole blobs and parts
//! ```
//!
//! Parts of an image that no pull uses at present are idle: they shorten the next pull, and the node can do without.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::error::FetchError;
use super::layout::Layout;
use super::progress::Progress;
use crate::kubelet::image_archives::manifest::MAX_IMAGE_MANIFEST_BYTES;
use crate::platform::config::Amount;
use crate::platform::host::directories;
use crate::platform::host::file::read_head;
use crate::platform::host::file_system::{DiskSpace, room};
use crate::platform::host::remove_tree::remove_tree;
use crate::types::error::ErrorChain;
use crate::types::sorted::SortOnce;

/// What an image's fetch may take of the disk.
#[derive(Debug)]
pub(super) struct Space {
    /// The fetcher's directory.
    pub(super) directory: PathBuf,
    /// The name of the image's directory.
    pub(super) key: String,
    /// The uid of the pod that wants the image.
    pub(super) pod: String,
    /// The names of the directories of images that are being fetched.
    pub(super) busy: Vec<String>,
    /// The node is under disk pressure with less free space than this.
    pub(super) pressure: Option<Amount>,
    /// What it has claimed beside other fetches of the directory.
    pub(super) claimed: Claimed,
}

/// The fetches that may still write. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Claims(Arc<Mutex<Vec<Arc<Progress>>>>);

/// One fetch among the claims, until it is dropped.
#[derive(Debug)]
pub(super) struct Claimed {
    claims: Claims,
    progress: Arc<Progress>,
}

impl Claims {
    pub(super) fn claimed(&self, progress: &Arc<Progress>) -> Claimed {
        Claimed { claims: self.clone(), progress: Arc::clone(progress) }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Progress>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Claimed {
    fn is_other(&self, progress: &Arc<Progress>) -> bool {
        !Arc::ptr_eq(progress, &self.progress)
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        self.claims.lock().retain(|other| !Arc::ptr_eq(other, &self.progress));
    }
}

/// The directory of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FetchedImage {
    path: PathBuf,
    key: String,
    pod: String,
    bytes: u64,
    /// When its newest bytes came, in seconds since 1970.
    used: i64,
}

/// Space that must stay free on the disk of the parts in any case.
const FETCH_SPARE_BYTES: u64 = 32 << 20;
/// The images that one pod has begun to fetch may take one part in so many of the file system.
const POD_SHARE_DIVISOR: u64 = 2;
/// What an image may have on the disk before its size is known: an index and a manifest.
const MAX_DOCUMENTS_BYTES: u64 = 2 * MAX_IMAGE_MANIFEST_BYTES;
const POD_FILE: &str = "pod";
const MAX_UID_BYTES: usize = 256;

impl Space {
    /// Makes the image's directory, for the pod. Refuses an image if the disk has no room for its manifests.
    pub(super) fn begin(&self) -> Result<(), FetchError> {
        fs::create_dir_all(self.directory.join(&self.key))?;
        fs::write(self.directory.join(&self.key).join(POD_FILE), &self.pod)?;
        self.reserve(MAX_DOCUMENTS_BYTES, || {})
    }

    /// Refuses an image of `total` bytes, of which `present` are on the disk, if the disk has no room for it, or if it
    /// is too large for one pod. Idle parts of other images of the pod make room for it, the oldest first.
    pub(super) fn claim(&self, total: u64, present: u64) -> Result<(), FetchError> {
        let most = room(&self.directory)?.capacity / POD_SHARE_DIVISOR;
        let others: Vec<FetchedImage> =
            list(&self.directory)?.into_iter().filter(|other| other.pod == self.pod && other.key != self.key).collect();
        let removed = surplus(&others, &self.busy, most.saturating_sub(total));
        for other in removed.as_deref().unwrap_or_default() {
            log!(info, "removing parts of an image, the pod has too many", directory = other.path.display());
            remove(&other.path);
        }
        self.reserve(total.saturating_sub(present), || self.claimed.progress.begin(total, present))?;
        if total > most || removed.is_none() {
            return Err(FetchError::TooLarge { bytes: total, most });
        }
        Ok(())
    }

    /// Counts this fetch among the others, if the disk has room for `bytes` beside what they may still write.
    fn reserve(&self, bytes: u64, begin: impl FnOnce()) -> Result<(), FetchError> {
        let mut under_way = self.claimed.claims.lock();
        under_way.retain(|progress| self.claimed.is_other(progress));
        // Before the free space is read: what is written meanwhile counts twice, not never.
        let others = under_way.iter().fold(0_u64, |sum, other| {
            sum.saturating_add(other.bytes().map_or(MAX_DOCUMENTS_BYTES, |(here, total)| total.saturating_sub(here)))
        });
        let DiskSpace { capacity, available } = room(&self.directory)?;
        let pressure = self.pressure.map_or(0, |amount| u64::try_from(amount.of(capacity).value()).unwrap_or(0));
        let wanted = bytes.saturating_add(others).saturating_add(pressure.max(FETCH_SPARE_BYTES));
        if available < wanted {
            return Err(FetchError::Room { wanted, free: available });
        }
        begin();
        under_way.push(Arc::clone(&self.claimed.progress));
        Ok(())
    }
}

/// The idle images to remove, oldest first, so that all have at most `limit` bytes; `None` if that is not enough.
fn surplus<'a>(images: &'a [FetchedImage], busy: &[String], limit: u64) -> Option<Vec<&'a FetchedImage>> {
    let mut bytes = images.iter().fold(0_u64, |sum, image| sum.saturating_add(image.bytes));
    let mut removed = Vec::new();
    for image in images.iter().filter(|image| !busy.contains(&image.key)) {
        if bytes <= limit {
            break;
        }
        bytes = bytes.saturating_sub(image.bytes);
        removed.push(image);
    }
    (bytes <= limit).then_some(removed)
}

/// Makes the fetcher's directory, for root only: private images are in it.
pub(super) fn make_private(directory: &Path) -> io::Result<()> {
    directories::make_own(directory, 0o700)?;
    fs::set_permissions(directory, fs::Permissions::from_mode(0o700))
}

/// Removes images that no pull has used for `seconds`.
pub(super) fn sweep(directory: &Path, busy: &[String], now: i64, seconds: i64) -> io::Result<()> {
    for image in list(directory)? {
        if now.saturating_sub(image.used) > seconds && !busy.contains(&image.key) {
            remove(&image.path);
        }
    }
    Ok(())
}

/// Whether the image's directory is gone.
fn remove(path: &Path) -> bool {
    let removed = remove_tree(path);
    if let Err(error) = &removed {
        log!(warn, "failed to remove parts of an image", directory = path.display(), error = ErrorChain(error));
    }
    removed.is_ok()
}

/// Removes idle images, oldest first, until `bytes` are freed; returns the number of bytes freed. Those in `in_use`
/// stay.
pub(super) fn free(directory: &Path, busy: &[String], in_use: &[String], bytes: u64) -> io::Result<u64> {
    let mut freed = 0_u64;
    let is_idle = |image: &FetchedImage| !busy.contains(&image.key) && !in_use.contains(&image.key);
    for image in list(directory)?.into_iter().filter(is_idle) {
        if freed >= bytes {
            break;
        }
        log!(info, "removing parts of an image to free disk space", directory = image.path.display());
        if remove(&image.path) {
            freed = freed.saturating_add(image.bytes);
        }
    }
    Ok(freed)
}

/// The images in the fetcher's directory, least recently used first.
fn list(directory: &Path) -> io::Result<Vec<FetchedImage>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut images = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let key = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // The blobs' directory changes with each blob; a part's own time with each byte.
        let files = fs::read_dir(Layout(path.clone()).blobs()).into_iter().flatten().flatten().map(|file| file.path());
        let (mut bytes, mut used) = (0_u64, i64::MIN);
        for metadata in files.chain([path.clone()]).filter_map(|path| fs::metadata(path).ok()) {
            bytes = bytes.saturating_add(if metadata.is_file() { metadata.len() } else { 0 });
            used = used.max(metadata.mtime());
        }
        let pod = read_head(&path.join(POD_FILE), MAX_UID_BYTES).unwrap_or_default();
        images.push(FetchedImage { path, key, pod: String::from_utf8_lossy(&pod).into_owned(), bytes, used });
    }
    images.sort_once_by(|a, b| (a.used, &a.key).cmp(&(b.used, &b.key)));
    Ok(images)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::time::{Duration, SystemTime};

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("coracle-fetch-space-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        /// An image of a pod, with as many bytes, which came so many seconds ago.
        fn add(&self, key: &str, pod: &str, bytes: usize, age: u64) {
            let blobs = Layout(self.0.join(key)).blobs();
            fs::create_dir_all(&blobs).unwrap();
            fs::write(self.0.join(key).join(POD_FILE), pod).unwrap();
            fs::write(blobs.join("x.part"), vec![7; bytes]).unwrap();
            let time = SystemTime::now() - Duration::from_secs(age);
            for path in [blobs.join("x.part"), self.0.join(key)] {
                fs::File::open(path).unwrap().set_modified(time).unwrap();
            }
        }

        fn keys(&self) -> Vec<String> {
            let mut keys: Vec<String> = list(&self.0).unwrap().into_iter().map(|image| image.key).collect();
            keys.sort();
            keys
        }

        fn space(&self, pod: &str) -> Space {
            Space {
                directory: self.0.clone(),
                key: "own".to_owned(),
                pod: pod.to_owned(),
                busy: Vec::new(),
                pressure: None,
                claimed: Claims::default().claimed(&Arc::default()),
            }
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn named(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn idle_images_are_freed_oldest_first_as_far_as_needed() {
        let folder = Folder::new("free");
        for (key, age) in [("new", 10), ("old", 300), ("middle", 100), ("busy", 900), ("kept", 800)] {
            folder.add(key, "u", 1000, age);
        }
        let (busy, kept) = (named(&["busy"]), named(&["kept"]));
        assert_eq!(free(&folder.0, &busy, &kept, 1001).unwrap(), 2000);
        assert_eq!(folder.keys(), ["busy", "kept", "new"]);
        assert_eq!(free(&folder.0, &busy, &[], u64::MAX).unwrap(), 2000);
        assert_eq!(folder.keys(), ["busy"]);
        assert_eq!(free(Path::new("/nowhere/at/all"), &[], &[], 1).unwrap(), 0);
    }

    #[test]
    fn unused_images_are_swept() {
        let folder = Folder::new("sweep");
        for (key, age) in [("new", 10), ("old", 300), ("busy", 900)] {
            folder.add(key, "u", 10, age);
        }
        let now = i64::try_from(SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs()).unwrap();
        sweep(&folder.0, &named(&["busy"]), now, 200).unwrap();
        assert_eq!(folder.keys(), ["busy", "new"]);
    }

    #[test]
    fn images_of_one_pod_are_bounded_and_those_of_others_stay() {
        let image = |key: &str, bytes| FetchedImage {
            path: PathBuf::new(),
            key: key.to_owned(),
            pod: String::new(),
            bytes,
            used: 0,
        };
        let images = [image("a", 10), image("busy", 20), image("b", 30)];
        let found = |most| {
            let removed = surplus(&images, &named(&["busy"]), most)?;
            Some(removed.iter().map(|image| image.key.as_str()).collect::<Vec<_>>())
        };
        assert_eq!(found(60), Some(vec![]));
        assert_eq!(found(59), Some(vec!["a"]));
        assert_eq!(found(49), Some(vec!["a", "b"]));
        assert_eq!(found(19), None);

        let folder = Folder::new("claim");
        folder.add("mine", "u", 1000, 100);
        folder.add("others", "v", 1000, 100);
        let DiskSpace { capacity, .. } = room(&folder.0).unwrap();
        let most = capacity / POD_SHARE_DIVISOR;
        folder.space("u").begin().unwrap();
        assert_eq!(fs::read_to_string(folder.0.join("own/pod")).unwrap(), "u");
        folder.space("u").claim(1000, 0).unwrap();
        assert_eq!(folder.keys(), ["mine", "others", "own"]);
        // Most of it is on the disk already, so there is room.
        folder.space("u").claim(most - 10, most - 20).unwrap();
        assert_eq!(folder.keys(), ["others", "own"]);
        let error = folder.space("u").claim(most + 1, most).unwrap_err();
        assert!(matches!(error, FetchError::TooLarge { .. }), "{error}");
    }

    #[test]
    fn fetch_leaves_the_space_without_which_the_node_is_under_pressure() {
        let folder = Folder::new("pressure");
        let DiskSpace { capacity, available } = room(&folder.0).unwrap();
        let all = (available / 2).min(capacity / 4);
        let claim = |pressure| Space { pressure, ..folder.space("u") }.claim(all, 0);
        claim(None).unwrap();
        claim(Some(Amount::Share(0.001))).unwrap();
        let error = claim(Some(Amount::Share(0.999))).unwrap_err();
        assert!(matches!(error, FetchError::Room { .. }), "{error}");
    }

    #[test]
    fn concurrent_fetches_share_the_free_space() {
        let folder = Folder::new("concurrent");
        let DiskSpace { capacity, available } = room(&folder.0).unwrap();
        let (most, claims) = ((available * 6 / 10).min(capacity / POD_SHARE_DIVISOR), Claims::default());
        let fetch = || {
            let progress = Arc::default();
            let space = Space { claimed: claims.claimed(&progress), ..folder.space("u") };
            space.begin().unwrap();
            (space, progress)
        };
        let ((first, progress), (second, _), (third, _)) = (fetch(), fetch(), fetch());
        first.claim(most, 0).unwrap();
        let error = second.claim(most, 0).unwrap_err();
        assert!(matches!(error, FetchError::Room { .. }), "{error}");
        // The first has written its bytes, which are not free then.
        progress.present_bytes.store(most, Ordering::Relaxed);
        second.claim(most, 0).unwrap();
        assert!(third.claim(most, 0).is_err());
        drop(second);
        third.claim(most, 0).unwrap();
    }

    #[test]
    fn directory_is_for_root_only() {
        let folder = Folder::new("mode");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o755)).unwrap();
        for path in [folder.0.clone(), folder.0.join("new")] {
            make_private(&path).unwrap();
            assert_eq!(mode(&path), 0o700);
        }
    }
}
