//! Images without a registry: archives in a directory are imported into the runtime, and their images are kept while
//! the archives exist.
//!
//! ```text
//!   inotify -> list (blocking) -> ArchiveList::look -> import -> the record (durable) -> SyncEvent::ImagesImported
//! ```

mod archive_list;
pub(crate) mod artifact;
pub mod contents;
pub mod delta;
pub(crate) mod image_name;
mod import;
mod import_delta;
mod layout_documents;
pub(crate) mod manifest;
mod runtime_verifiers;
pub(crate) mod tar_header;

use std::cell::RefCell;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use async_channel::{Receiver, Sender};

pub(crate) use self::archive_list::Failure as ImportFailure;
pub(crate) use self::archive_list::Stamp;
use self::archive_list::{ArchiveList, ArchiveNames, Failure, State, is_archive};
pub(crate) use self::delta::{DeltaSummary, FileDelta, make_delta, make_file_delta};
use self::image_name::with_default_tag;
use self::import::{Tool, import};
pub(crate) use self::import::{Tool as ImportTool, import_layout};
use self::import_delta::import_delta;
pub(crate) use self::layout_documents::{MAX_LAYOUT_RECORD_BYTES, layout_record_name};
pub use self::manifest::check_manifest;
pub(crate) use self::runtime_verifiers::RuntimeVerifiers;
use crate::platform::cri::v1::ImageSpec;
use crate::platform::cri::{ImageService, RuntimeService};
use crate::platform::host::directories;
use crate::platform::host::durable::{self, StoredFile};
use crate::platform::host::file_watch::FileWatch;
use crate::platform::rt;
use crate::state::pods::SyncEvent;
use crate::types::error::ErrorChain;
use crate::types::sorted::SortedMap;
use crate::types::time::Backoff;

/// The known archives, shared with status pages and image garbage collection.
#[derive(Clone, Debug)]
pub(crate) struct ImageArchives {
    archive_list: Rc<RefCell<ArchiveList>>,
    /// Closed when no import is in progress.
    busy: Rc<RefCell<Option<Receiver<()>>>>,
    wake: Sender<()>,
}

/// The state of an archive, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ArchiveView {
    pub(crate) file: String,
    pub(crate) stamp: Stamp,
    pub(crate) state: &'static str,
    pub(crate) images: Vec<String>,
    /// Why it is invalid or its import failed.
    pub(crate) message: String,
}

/// The import task.
pub(crate) struct Importer {
    pub(crate) directory: PathBuf,
    /// File that records what was imported.
    pub(crate) record: PathBuf,
    /// Directory of what the signature policy needs; `None` without a policy.
    pub(crate) layouts: Option<PathBuf>,
    /// The runtime's endpoint for images.
    pub(crate) endpoint: PathBuf,
    pub(crate) verifiers: RuntimeVerifiers,
    pub(crate) images: ImageService,
    pub(crate) runtime: RuntimeService,
    pub(crate) archives: ImageArchives,
    pub(crate) woken: Receiver<()>,
    pub(crate) inbox: Sender<SyncEvent>,
}

/// Deadline of a directory listing.
const ARCHIVE_LISTING_TIMEOUT: Duration = Duration::from_secs(10);
/// Limit of the number of files in the directory.
const MAX_ARCHIVES: usize = 256;
/// Room for the names of images, of which each archive may have 4 MiB.
const MAX_ARCHIVE_RECORD_BYTES: u64 = 16 << 20;
/// Number and interval of checks until the runtime lists an imported image.
const IMPORTED_IMAGE_CHECKS: (usize, Duration) = (40, Duration::from_millis(250));
/// First and longest delay after the runtime did not answer or the directory could not be listed.
const ARCHIVE_RETRY_DELAYS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

impl ImageArchives {
    /// Loads the record of an earlier process. Other archives are known once [`Importer::run`] has listed the
    /// directory. `keeps_layouts`: an archive that was imported without keeping what the signature policy needs is
    /// imported again.
    pub(crate) async fn open(record: &Path, keeps_layouts: bool) -> (Self, Receiver<()>) {
        let (archives, woken) = Self::nothing();
        archives.archive_list.borrow_mut().keeps_layouts = keeps_layouts;
        let path = record.to_owned();
        match rt::blocking(move || durable::read(&path, MAX_ARCHIVE_RECORD_BYTES)).await {
            Ok(StoredFile::Whole(record)) => archives.archive_list.borrow_mut().load(&record),
            Ok(StoredFile::Nothing) => {}
            // Everything can be imported again.
            Ok(StoredFile::Damaged) => log!(warn, "failed to read record of image archives", file = record.display()),
            Err(error) => log!(warn, "failed to read record of image archives", file = record.display(), error = error),
        }
        (archives, woken)
    }

    /// No archives and no importer.
    pub(crate) fn nothing() -> (Self, Receiver<()>) {
        let (wake, woken) = async_channel::bounded(1);
        (Self { archive_list: Rc::default(), busy: Rc::default(), wake }, woken)
    }

    /// Each image from an archive, and the archive.
    pub(crate) fn pinned(&self) -> Vec<(String, String)> {
        let archive_list = self.archive_list.borrow();
        let pinned = archive_list
            .iter()
            .flat_map(|(file, archive)| archive.names.all().map(move |image| (image.clone(), file.clone())));
        pinned.collect()
    }

    pub(crate) fn views(&self) -> Vec<ArchiveView> {
        let archive_list = self.archive_list.borrow();
        let view = |(file, archive): (&String, &archive_list::Archive)| {
            let (state, message) = match &archive.state {
                State::Settling(_) | State::Ready => ("waiting", String::new()),
                State::Importing => ("importing", String::new()),
                State::Imported => ("imported", String::new()),
                State::Refused(why) => ("refused", why.clone()),
                State::Failed(why, _) => ("failed", why.clone()),
            };
            ArchiveView {
                file: file.clone(),
                stamp: archive.stamp,
                state,
                images: archive.names.images.clone(),
                message,
            }
        };
        archive_list.iter().map(view).collect()
    }

    /// Why the directory cannot be read; empty if it can.
    pub(crate) fn problem(&self) -> String {
        self.archive_list.borrow().problem().to_owned()
    }

    /// Called when an image is missing. Waits for an import in progress and returns true if the image may exist
    /// afterwards. Otherwise triggers a check for imported images that were lost.
    pub(super) async fn may_import_missing(&self) -> bool {
        let busy = self.busy.borrow().clone();
        match busy {
            // Nothing is ever sent; the channel only closes.
            Some(busy) => drop(rt::deadline(IMPORT_WAIT_TIMEOUT, busy.recv()).await),
            None => {
                // A full channel already has a wake-up.
                let _ = self.wake.try_send(());
                return false;
            }
        }
        true
    }

    fn begin(&self) -> Sender<()> {
        let (done, busy) = async_channel::bounded(1);
        *self.busy.borrow_mut() = Some(busy);
        done
    }
}

/// How long a pull waits for an import.
const IMPORT_WAIT_TIMEOUT: Duration = Duration::from_secs(10 * 60);

impl Importer {
    /// Imports the archives in the directory, present and future; never returns.
    pub(crate) async fn run(self) {
        let directory = self.directory.clone();
        if let Err(error) = rt::blocking(move || directories::make_own(&directory, 0o700)).await {
            log!(
                warn,
                "failed to create directory for image archives",
                directory = self.directory.display(),
                error = error
            );
        }
        // Images imported by an earlier process may have been removed since.
        let mut is_sure = false;
        let mut away = Backoff::new(ARCHIVE_RETRY_DELAYS.0, ARCHIVE_RETRY_DELAYS.1);
        let mut watch_failed = false;
        let mut listings = Listings::default();
        loop {
            let done = self.archives.begin();
            // Watch before listing, so that no change is missed.
            let watch = FileWatch::of_directory(&self.directory);
            if let (Err(error), false) = (&watch, watch_failed) {
                log!(warn, "failed to watch image archives", error = ErrorChain(error));
                watch_failed = true;
            }
            let retry = self.list_directory(&mut listings).await;
            let mut again = None;
            match self.pass(is_sure).await {
                Ok(()) => {
                    is_sure = true;
                    away.reset();
                }
                Err(_) => again = Some(rt::now() + away.next_wait()),
            }
            // Failed archives are retried.
            let due = match retry {
                // Without a listing, a due archive would stay due.
                Some(wait) => Some(rt::now() + wait),
                None => self.archives.archive_list.borrow().next_due(),
            };
            let unwatched = watch.is_err().then(|| rt::now() + ARCHIVE_RETRY_DELAYS.1);
            let again = again.into_iter().chain(due).chain(unwatched).min();
            drop(done);
            self.archives.busy.borrow_mut().take();
            let changed = async {
                match &watch {
                    Ok(watch) if watch.changed().await.is_ok() => {}
                    Ok(_) | Err(_) => std::future::pending().await,
                }
                true
            };
            let woken = async { self.woken.recv().await.is_err() };
            let due = async {
                match again {
                    Some(time) => rt::sleep_until(time).await,
                    None => std::future::pending().await,
                }
                true
            };
            is_sure &= rt::either(rt::either(changed, woken), due).await;
        }
    }

    /// Lists the directory; returns the back-off if that fails.
    async fn list_directory(&self, listings: &mut Listings) -> Option<Duration> {
        let listed = rt::deadline(ARCHIVE_LISTING_TIMEOUT, listings.next(&self.directory)).await;
        let mut archive_list = self.archives.archive_list.borrow_mut();
        let problem = match listed {
            Ok(Ok(listing)) => {
                listings.retry.reset();
                archive_list.on_listing(&listing, rt::now());
                return None;
            }
            Ok(Err(error)) => error.to_string(),
            Err(elapsed) => elapsed.to_string(),
        };
        if archive_list.problem() != problem {
            log!(warn, "failed to list image archives", directory = self.directory.display(), error = problem);
        }
        archive_list.unlisted(problem);
        Some(listings.retry.next_wait())
    }

    /// Imports the archives that are ready. Fails if the runtime does not answer.
    async fn pass(&self, is_sure: bool) -> Result<(), ()> {
        let imported = self.archives.archive_list.borrow().imported();
        let has_work = self.archives.archive_list.borrow().has_ready() || (!is_sure && !imported.is_empty());
        if has_work {
            let runtime = self.runtime.version().await.map_err(drop)?.runtime_name;
            if !is_sure {
                self.find_lost(imported).await?;
            }
            let mut came = false;
            loop {
                let next = self.archives.archive_list.borrow_mut().begin();
                let Some(file) = next else { break };
                came |= self.import(&runtime, &file).await;
            }
            if came {
                // Fails only at shutdown.
                let _ = self.inbox.send(SyncEvent::ImagesImported).await;
            }
        }
        self.keep_record().await;
        Ok(())
    }

    /// Marks archives whose images the runtime has lost, so that they are imported again.
    async fn find_lost(&self, imported: Vec<(String, Vec<String>)>) -> Result<(), ()> {
        for (file, images) in imported {
            for image in images {
                if !self.has(&image).await.map_err(drop)? {
                    log!(info, "image of archive is gone, importing again", image = image, file = file);
                    self.archives.archive_list.borrow_mut().lost(&file);
                    break;
                }
            }
        }
        Ok(())
    }

    async fn has(&self, image: &str) -> Result<bool, Box<dyn std::error::Error>> {
        let image = with_default_tag(image).map_err(|error| error.to_string())?;
        let found = self.images.image_status(&ImageSpec { image, ..ImageSpec::default() }).await;
        Ok(found?.is_some())
    }

    /// True if images were imported.
    async fn import(&self, runtime: &str, file: &str) -> bool {
        let began = rt::now();
        let outcome = match Tool::of(runtime, &self.endpoint) {
            Some(tool) => {
                let path = self.directory.join(file);
                match self.verifiers.judge_archive(&tool, path.clone()).await {
                    Err(refused) => Err(refused),
                    Ok(()) => match import_delta(&tool, path.clone()).await {
                        Some(imported) => imported,
                        None => import(&tool, path, self.layouts.clone()).await,
                    },
                }
            }
            None => Err(Failure::Failed(format!("no tool is known that imports for the runtime {runtime}"))),
        };
        let outcome = match outcome {
            Ok(names) => self.shown(names).await,
            failed => failed,
        };
        match &outcome {
            Ok(names) => {
                let seconds = rt::elapsed(began).as_secs();
                log!(info, "imported images", file = file, images = names.images.join(" "), seconds = seconds);
            }
            Err(Failure::Refused(why) | Failure::Failed(why) | Failure::Lacks(why)) => {
                log!(warn, "failed to import image archive", file = file, problem = why);
            }
        }
        let came = outcome.is_ok();
        self.archives.archive_list.borrow_mut().ended(file, outcome, rt::now());
        came
    }

    /// Waits until the runtime lists each of the images.
    async fn shown(&self, names: ArchiveNames) -> Result<ArchiveNames, Failure> {
        for image in names.all() {
            let mut tries = IMPORTED_IMAGE_CHECKS.0;
            let failed = |error: Box<dyn std::error::Error>| Failure::Failed(ErrorChain(&*error).to_string());
            while !self.has(image).await.map_err(failed)? {
                tries -= 1;
                if tries == 0 {
                    let why = format!(
                        "it is imported, but the runtime has no image {image}: expected a whole name, as docker.io/library/nginx:1"
                    );
                    return Err(Failure::Refused(why));
                }
                rt::sleep(IMPORTED_IMAGE_CHECKS.1).await;
            }
        }
        Ok(names)
    }

    /// Writes the record if it has changed.
    async fn keep_record(&self) {
        let (text, path) = (self.archives.archive_list.borrow().record(), self.record.clone());
        let write = move || match path.exists() || text.len() > EMPTY_LEDGER_BYTES {
            true => durable::write_changed_within(&path, &text, MAX_ARCHIVE_RECORD_BYTES).map(drop),
            // Nothing was ever imported.
            false => Ok(()),
        };
        if let Err(error) = rt::blocking(write).await {
            log!(warn, "failed to write record of image archives", file = self.record.display(), error = error);
        }
    }
}

/// Length of `{}` with a line break.
const EMPTY_LEDGER_BYTES: usize = 3;

type Listing = io::Result<SortedMap<String, Stamp>>;

/// Lists the directory; at most one listing runs at a time.
struct Listings {
    /// An unfinished listing. A second one would hang as well and block another thread.
    pending: Option<Pin<Box<dyn Future<Output = Listing>>>>,
    retry: Backoff,
}

impl Default for Listings {
    fn default() -> Self {
        Self { pending: None, retry: Backoff::new(ARCHIVE_RETRY_DELAYS.0, ARCHIVE_RETRY_DELAYS.1) }
    }
}

impl Listings {
    async fn next(&mut self, directory: &Path) -> Listing {
        if let Some(earlier) = &mut self.pending {
            // It started before the watch and may have missed newer files.
            let _ = earlier.await;
            self.pending = None;
        }
        let directory = directory.to_owned();
        let pending = self.pending.insert(Box::pin(rt::slow(move || list(&directory))));
        let listing = pending.await;
        self.pending = None;
        listing
    }
}

/// Lists the archives in a directory. Blocks.
fn list(directory: &Path) -> Listing {
    let mut files = SortedMap::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !is_archive(&name) {
            continue;
        }
        if files.len() >= MAX_ARCHIVES {
            return Err(io::Error::other("there are too many files in it"));
        }
        // Follows symlinks; a dangling one may get a target later.
        match fs::metadata(entry.path()) {
            Ok(found) if found.is_file() => drop(files.insert(name, stamp(&found))),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(files)
}

/// The stamp of a file.
pub(crate) fn stamp(found: &fs::Metadata) -> Stamp {
    let modified = found.mtime().saturating_mul(1_000_000_000).saturating_add(found.mtime_nsec());
    Stamp { size: found.size(), modified }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::rpc::Client;

    #[test]
    fn unlistable_directory_is_retried_with_backoff() {
        let ended = rt::simulate(1, |world| async move {
            let (archives, woken) = ImageArchives::nothing();
            {
                let mut archive_list = archives.archive_list.borrow_mut();
                archive_list.on_listing(&SortedMap::from_iter([("a".to_owned(), Stamp::default())]), rt::now());
                archive_list.begin();
                archive_list.ended("a", Err(Failure::Failed("no".to_owned())), rt::now());
            }
            let client = Client::new("/nowhere");
            let importer = Importer {
                directory: "/dev/null/archives".into(),
                record: "/nowhere/record".into(),
                layouts: None,
                endpoint: "/nowhere".into(),
                verifiers: RuntimeVerifiers(PathBuf::new()),
                images: ImageService::new(client.clone(), Duration::from_secs(1)),
                runtime: RuntimeService::new(client, Duration::from_secs(1)),
                archives: archives.clone(),
                woken,
                inbox: async_channel::bounded(1).0,
            };
            let _task = rt::spawn(importer.run());
            rt::sleep(Duration::from_secs(40)).await;
            (archives.views().len(), archives.problem().is_empty(), world.slow_jobs_begun())
        });
        // At 0, 1, 3, 7, 15 and 31 s.
        assert_eq!(ended, Ok((1, false, 6)));
    }

    #[test]
    fn hanging_listing_is_the_only_one() {
        let jobs = rt::simulate(1, |world| async move {
            world.disk.set(Duration::from_secs(100_000));
            let mut listings = Listings::default();
            for _ in 0..5 {
                let listed = rt::deadline(ARCHIVE_LISTING_TIMEOUT, listings.next(Path::new("/dev/null"))).await;
                assert!(listed.is_err());
            }
            world.slow_jobs()
        });
        assert_eq!(jobs, Ok(1));
    }
}
