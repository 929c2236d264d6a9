//! Resumable pulls: Coracle fetches an image itself and hands it to the runtime's import tool.
//!
//! ```text
//!   Fetcher::pull -> thread: Job::run -> coracle/fetch/IMAGE/blobs/sha256/HEX.part -> HEX
//!                 -> the layout as a tar -> ctr, or as a directory -> skopeo
//! ```
//!
//! Dropping the future of a pull ends its thread; the next pull of the image continues with the parts.

mod artifact_fetch;
mod error;
mod file_fetch;
mod job;
mod job_thread;
mod layout;
mod link_budget;
mod manifest_fetch;
mod part_file;
mod pause;
mod peering;
mod peers;
mod progress;
mod pull_budget;
mod shared_images;
mod signature_fetch;
mod space;
mod transfer_meter;

use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ChildStdin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use async_channel::{Receiver, Sender};

pub(crate) use self::artifact_fetch::{ArtifactFetch, FetchedFile};
pub(crate) use self::error::FetchError;
pub(crate) use self::file_fetch::{FileFetch, fetch_small};
pub(crate) use self::job::ArtifactChoice;
use self::job::Job;
use self::job_thread::{JobInputs, fetch_on_thread};
use self::layout::Layout;
pub(crate) use self::link_budget::LinkBudget;
pub(crate) use self::manifest_fetch::ManifestFetch;
pub(crate) use self::peering::Peering;
pub(crate) use self::progress::Progress;
pub(crate) use self::pull_budget::Hold;
pub(crate) use self::shared_images::{SharedAnswer, SharedImages, SharedPart};
use self::space::{Claims, Space};
use crate::kubelet::image_archives::image_name::reference;
use crate::kubelet::image_archives::manifest::Descriptor;
use crate::kubelet::image_archives::{ImportTool, RuntimeVerifiers, import_layout};
use crate::platform::config::Amount;
use crate::platform::cri::v1::{AuthConfig, ImageSpec};
use crate::platform::cri::{ImageService, RuntimeService};
use crate::platform::host::{clock, program};
use crate::platform::net::ProxySettings;
use crate::platform::registry::Login;
use crate::platform::rt;
use crate::protocol::sha256::sha256;
use crate::types::error::ErrorChain;
use crate::types::sorted::{SortedMap, SortedSet};

/// Fetches images.
pub(crate) struct Fetcher {
    directory: PathBuf,
    /// containerd's directory with a `hosts.toml` for each registry.
    hosts: PathBuf,
    /// The runtime's endpoint for images.
    endpoint: PathBuf,
    verifiers: RuntimeVerifiers,
    images: ImageService,
    runtime: RuntimeService,
    proxies: Arc<ProxySettings>,
    peering: Option<Peering>,
    /// The node is under disk pressure with less free space than this.
    pressure: Option<Amount>,
    /// Pulls in progress by directory, so that two pods do not fetch the same image at the same time.
    busy: RefCell<SortedMap<String, Rc<Turn>>>,
    claims: Claims,
}

/// One fetch of an image at a time.
struct Turn {
    free: rt::Semaphore,
    /// Closed when the last thread has ended, which takes a moment after it was cancelled.
    thread: RefCell<Receiver<()>>,
}

impl Turn {
    fn new() -> Self {
        Self { free: rt::Semaphore::new(1), thread: RefCell::new(async_channel::bounded(1).1) }
    }

    /// Waits for the last thread. The next one holds the sender.
    async fn next_thread(&self) -> Result<Sender<()>, FetchError> {
        let (alive, ended) = async_channel::bounded(1);
        let last = self.thread.borrow().clone();
        let _: Result<(), _> =
            rt::deadline(THREAD_END_TIMEOUT, last.recv()).await.map_err(|rt::Elapsed| FetchError::ThreadBusy)?;
        self.thread.replace(ended);
        Ok(alive)
    }
}

/// Under which limits a fetch runs.
#[derive(Clone, Copy)]
pub(crate) struct Passage<'a> {
    pub(crate) budget: &'a LinkBudget,
    pub(crate) is_urgent: bool,
    /// The uid of the pod that wants the image.
    pub(crate) pod: &'a str,
}

/// Paths of the fetcher.
#[derive(Clone, Debug)]
pub(crate) struct FetchPlaces {
    pub(crate) directory: PathBuf,
    pub(crate) hosts: PathBuf,
    pub(crate) endpoint: PathBuf,
    pub(crate) verifiers: RuntimeVerifiers,
    pub(crate) proxies: ProxySettings,
    /// `None`: images are neither copied from other nodes nor served to them.
    pub(crate) peering: Option<Peering>,
    /// The node is under disk pressure with less free space than this.
    pub(crate) pressure: Option<Amount>,
}

/// What stays of the content that is kept for other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    Recent,
    Nothing,
}

/// Parts that no pull has used for this long, in seconds, are removed.
const MAX_UNUSED_SECONDS: i64 = 7 * 24 * 3600;
/// Number and interval of checks until the runtime lists an imported image. containerd's CRI plugin learns of an import
/// by an event, a moment later.
const FETCHED_IMAGE_CHECKS: (usize, Duration) = (40, Duration::from_millis(250));
/// How long a cancelled thread may take to end.
const THREAD_END_TIMEOUT: Duration = Duration::from_secs(60);
const FETCHED_IMAGE_LIST_TIMEOUT: Duration = Duration::from_secs(60);

impl std::fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Fetcher({})", self.directory.display())
    }
}

impl Fetcher {
    pub(crate) fn new(paths: FetchPlaces, images: ImageService, runtime: RuntimeService) -> Self {
        let FetchPlaces { directory, hosts, endpoint, verifiers, proxies, peering, pressure } = paths;
        let (proxies, busy, claims) = (Arc::new(proxies), RefCell::default(), Claims::default());
        Self { directory, hosts, endpoint, verifiers, images, runtime, proxies, peering, pressure, busy, claims }
    }

    /// Makes the image present in the runtime; returns its id. `digest`: what the image's name has to stand for.
    pub(crate) async fn pull(
        &self,
        image: &str,
        digest: Option<&str>,
        auth: Option<&AuthConfig>,
        progress: Arc<Progress>,
        passage: Passage<'_>,
    ) -> Result<String, FetchError> {
        let name = reference(image).map_err(|error| FetchError::InvalidName(error.to_string()))?;
        let runtime = self.runtime.version().await.map_err(FetchError::Runtime)?.runtime_name;
        let tool = ImportTool::of(&runtime, &self.endpoint).ok_or(FetchError::NoTool(runtime))?;
        let key = key_of(image);
        let turn = Rc::clone(self.busy.borrow_mut().entry(key.clone()).or_insert_with(|| Rc::new(Turn::new())));
        let turn_held = turn.free.acquire().await;
        let alive = turn.next_thread().await?;
        self.sweep().await;
        let layout = Layout(self.directory.join(&key));
        let present = self.present(&tool).await;
        let (directory, pod, pressure) = (self.directory.clone(), passage.pod.to_owned(), self.pressure);
        let inputs = JobInputs {
            name: digest.map_or_else(|| name.clone(), |digest| name.at_digest(digest)),
            hosts: self.hosts.clone(),
            proxies: Arc::clone(&self.proxies),
            login: login(auth),
            layout: layout.clone(),
            space: Space { directory, key, pod, busy: self.busy(), pressure, claimed: self.claims.claimed(&progress) },
            present,
            progress,
            peering: self.peering.clone(),
            alive,
        };
        let fetched = fetch_on_thread(inputs, passage, Box::new(|job: &mut Job| Ok(vec![job.run()?]))).await?;
        let top = fetched.into_iter().next().ok_or(FetchError::NoResult)?;
        let names = name.all_names(&top.digest.to_string());
        // containerd asks its verifiers for its own pulls, not for imports.
        if matches!(tool, ImportTool::Ctr(_)) {
            self.verifiers.judge(image, &top).await.map_err(FetchError::Import)?;
        }
        self.import(&tool, &layout, top, names.clone()).await?;
        let id = self.shown(image).await?;
        let (done, peering) = (layout.clone(), self.peering.clone());
        let finish = move || {
            let kept = peering.map_or(Ok(()), |peering| peering.keep(&done.blobs()));
            fs::remove_dir_all(done.0).and(kept)
        };
        if let Err(error) = rt::blocking(finish).await {
            log!(warn, "failed to remove fetched image", directory = layout.0.display(), error = error);
        }
        drop(turn_held);
        Ok(id)
    }

    /// Blobs that the runtime has, if its tool can list them.
    async fn present(&self, tool: &ImportTool) -> SortedSet<String> {
        let Some(command) = tool.list_blobs() else { return SortedSet::new() };
        match program::run(command, Vec::new(), FETCHED_IMAGE_LIST_TIMEOUT).await {
            Ok(listed) => String::from_utf8_lossy(&listed.stdout).lines().map(|line| line.trim().to_owned()).collect(),
            Err(error) => {
                log!(info, "failed to list the runtime's blobs, fetching all", error = ErrorChain(&error));
                SortedSet::new()
            }
        }
    }

    async fn import(
        &self,
        tool: &ImportTool,
        layout: &Layout,
        top: Descriptor,
        names: Vec<String>,
    ) -> Result<(), FetchError> {
        let (here, shown) = (layout.clone(), names.clone());
        let digest = top.digest.clone();
        rt::blocking(move || here.write_index(&top, &shown)).await?;
        let source = layout.clone();
        let tar = move |mut stdin: ChildStdin| {
            // The tool reports a truncated archive itself.
            let _ = source.write_tar(&mut stdin);
        };
        import_layout(tool, &layout.0, &digest, &names, tar).await.map_err(FetchError::Import)
    }

    /// Waits until the runtime lists the image.
    async fn shown(&self, image: &str) -> Result<String, FetchError> {
        let spec = ImageSpec { image: image.to_owned(), ..ImageSpec::default() };
        for _ in 0..FETCHED_IMAGE_CHECKS.0 {
            let present_image = self.images.image_status(&spec).await.map_err(FetchError::Runtime)?;
            if let Some(present_image) = present_image {
                return Ok(present_image.id);
            }
            rt::sleep(FETCHED_IMAGE_CHECKS.1).await;
        }
        Err(FetchError::NotListed)
    }

    /// The names of the directories of images that are being fetched.
    fn busy(&self) -> Vec<String> {
        let is_busy = |turn: &Rc<Turn>| Rc::strong_count(turn) > 1 || !turn.thread.borrow().is_closed();
        let mut busy = self.busy.borrow_mut();
        busy.retain(|_, turn| is_busy(turn));
        busy.keys().cloned().collect()
    }

    /// Removes parts that no pull has used for [`MAX_UNUSED_SECONDS`] seconds.
    pub(crate) async fn sweep(&self) {
        let (directory, busy, now) = (self.directory.clone(), self.busy(), clock::timestamp().as_second());
        let sweep =
            move || space::make_private(&directory).and(space::sweep(&directory, &busy, now, MAX_UNUSED_SECONDS));
        if let Err(error) = rt::remove(sweep).await {
            log!(info, "failed to remove unused image parts", directory = self.directory.display(), error = error);
        }
    }

    /// Removes parts of images that are not being fetched, oldest first, until `bytes` are freed; returns the number of
    /// bytes freed. Those of `kept` images stay.
    pub(crate) async fn free(&self, images_in_use: impl Iterator<Item = &str>, bytes: u64) -> u64 {
        let kept: Vec<String> = images_in_use.map(key_of).collect();
        let (directory, busy) = (self.directory.clone(), self.busy());
        rt::remove(move || space::free(&directory, &busy, &kept, bytes)).await.unwrap_or_else(|error| {
            log!(warn, "failed to remove image parts", directory = self.directory.display(), error = error);
            0
        })
    }

    /// Whether the parts are on the file system of `path`.
    pub(crate) fn is_on(&self, path: &Path) -> bool {
        let device = |path: &Path| fs::metadata(path).map(|found| found.dev()).ok();
        device(&self.directory).is_some_and(|own_device| device(path) == Some(own_device))
    }

    /// Removes the content that is kept for other nodes, but for `images_in_use`.
    pub(crate) async fn prune(&self, images_in_use: Kept) {
        let Some(peering) = self.peering.clone() else { return };
        let now = match images_in_use {
            Kept::Recent => clock::timestamp().as_second(),
            Kept::Nothing => i64::MAX,
        };
        if let Err(error) = rt::blocking(move || peering.shared.prune(now)).await {
            log!(info, "failed to remove images kept for other nodes", error = error);
        }
    }
}

fn login(auth: Option<&AuthConfig>) -> Option<Login> {
    let login = auth.map(|auth| Login { username: auth.username.clone(), password: auth.password.0.clone() });
    login.filter(|login| !login.username.is_empty())
}

/// The name of an image's directory.
pub(crate) fn key_of(image: &str) -> String {
    sha256(image.as_bytes()).chars().take(32).collect()
}
