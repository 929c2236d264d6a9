//! Images: pull policy, credentials, pulls, back-off, garbage collection.
//!
//! [`Images::ensure`] brings the image of a container, or says why the container waits. Pulls take turns; who has
//! waited for a turn looks again, so that what another pod has brought meanwhile is not pulled twice. What is remembered
//! is only what cannot be seen: the failures of late.

pub mod archives;
mod credentials;
mod ensure_image;
mod image_gc_manager;
mod image_gc_policy;
mod image_name;
mod pull;
mod pull_backoff;
mod pull_error;
mod pull_policy;
mod pull_records;
mod pulls_under_way;
mod registry_outages;
mod service;
mod verification;

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::time::Instant;

use async_channel::Sender;

use crate::platform::config::{Config, CredentialsVerification, ImageGc};
use crate::platform::cri::ImageService;
use crate::platform::cri::v1::{Image, PodSandboxConfig};
use crate::platform::rt;
use crate::state::pods::{PodEvent, SyncEvent, Waiting};
use crate::types::api::{Container, EventKind, Pod, PodUid, PullPolicy, Reason};
use crate::types::time::TokenBucket;

pub(crate) use archives::{ArchiveView, ImageArchives, Importer, Stamp, stamp};
pub(crate) use credentials::PullSecrets;
pub(crate) use image_gc_manager::CollectError;
pub(crate) use image_gc_policy::InUse;
pub(crate) use pulls_under_way::{PullUnderWay, PullsUnderWay};

use credentials::NodeCredentials;
use ensure_image::Order;
use image_gc_policy::ImageBook;
use pull_backoff::PullBackoff;
use pull_records::PullRecords;
use registry_outages::Outages;
use service::Service;

/// The images of this node. One for the whole process.
#[derive(Debug)]
pub(crate) struct Images<S = ImageService> {
    service: S,
    /// `None`: as many pulls at once as there are.
    turns: Option<rt::Semaphore>,
    throttle: RefCell<Option<TokenBucket>>,
    backoff: RefCell<PullBackoff>,
    outages: RefCell<Outages>,
    credentials: NodeCredentials,
    verification: CredentialsVerification,
    records: PullRecords,
    /// `Always` fails while the registry cannot be reached, whatever is present.
    strict: bool,
    under_way: PullsUnderWay,
    archives: ImageArchives,
    gc: ImageGc,
    book: RefCell<ImageBook>,
    /// Images have come of late.
    pulled: Cell<bool>,
    /// All images were looked at once.
    looked: Cell<bool>,
    /// Where the runtime has its images and, if it tells, its writable layers.
    disks: RefCell<Option<(PathBuf, Option<PathBuf>)>>,
    /// The sync loop's, for what is to be told.
    inbox: Sender<SyncEvent>,
}

/// An image that the runtime has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PresentImage {
    /// What a container is created with: the runtime's id of the image.
    pub(crate) image_ref: String,
    pub(crate) user: ImageUser,
    /// In bytes.
    pub(crate) size: u64,
    /// Tags and digests.
    names: Vec<String>,
}

/// An image by its name, and when it is to be pulled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) image: &'a str,
    pub(crate) policy: Option<PullPolicy>,
    /// Who runs it, for what is told of it; none for an image that is mounted.
    pub(crate) container: Option<&'a str>,
}

impl<'a> Wanted<'a> {
    /// The image that a container runs.
    pub(crate) fn by(container: &'a Container) -> Self {
        let Container { image, image_pull_policy: policy, name, .. } = container;
        Self { image, policy: *policy, container: Some(name) }
    }
}

/// The user that the image itself names: by number, by name, or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ImageUser {
    pub(crate) uid: Option<i64>,
    pub(crate) name: String,
}

/// How many pulls may be under way, and how many may begin in a while.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PullLimits {
    /// `None`: no bound.
    pub(crate) parallel: Option<u32>,
    /// A second; 0: no limit.
    pub(crate) rate: u32,
    pub(crate) burst: u32,
}

impl PullLimits {
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            parallel: if config.images.serialize_pulls { Some(1) } else { config.images.max_parallel_pulls },
            rate: config.images.registry_pull_qps,
            burst: config.images.registry_burst,
        }
    }
}

impl<S: Service> Images<S> {
    pub(crate) fn new(service: S, config: &Config, inbox: Sender<SyncEvent>) -> Self {
        let limits = PullLimits::of(config);
        let turns = limits.parallel.and_then(|parallel| usize::try_from(parallel).ok());
        Self {
            service,
            turns: turns.map(rt::Semaphore::new),
            throttle: RefCell::new(TokenBucket::new(limits.rate, limits.burst, rt::now())),
            backoff: RefCell::default(),
            outages: RefCell::default(),
            credentials: NodeCredentials::of(config),
            verification: config.images.credentials_verification.clone(),
            records: PullRecords::new(&config.root_dir),
            strict: config.images.strict_pull_policy,
            under_way: PullsUnderWay::default(),
            archives: ImageArchives::nothing().0,
            gc: config.images.gc,
            book: RefCell::new(ImageBook::new(rt::now())),
            pulled: Cell::new(false),
            looked: Cell::new(false),
            disks: RefCell::default(),
            inbox,
        }
    }

    /// With archives, whose images stay.
    pub(crate) fn with_archives(self, archives: ImageArchives) -> Self {
        Self { archives, ..self }
    }

    pub(crate) fn archives(&self) -> &ImageArchives {
        &self.archives
    }

    /// An image that `pod` runs or mounts, brought to this node if the pull policy wants it, with what its `secrets` or
    /// the node itself have for the registry. `sandbox` is the configuration of the sandbox that it is for. Once
    /// `cancel` is ready, a pull under way is given up.
    pub(crate) async fn ensure(
        &self,
        pod: &Pod,
        wanted: Wanted<'_>,
        sandbox: &PodSandboxConfig,
        secrets: &PullSecrets,
        cancel: impl Future<Output = ()>,
    ) -> Result<PresentImage, Waiting> {
        let cancelled = async {
            cancel.await;
            Err(Waiting::new(Reason::CONTAINER_CREATING, ""))
        };
        let bring = async {
            let order = Order::new(pod, wanted, sandbox, secrets);
            let order = order.inspect_err(|waiting| {
                self.tell(pod, wanted, EventKind::Warning, Reason::INSPECT_FAILED, waiting.message.clone());
            })?;
            self.bring(&order).await
        };
        rt::either(bring, cancelled).await
    }

    /// The moment before which a pull of `image` for this pod is not tried again, after one that failed.
    pub(crate) fn retry_at(&self, pod: &PodUid, image: &str) -> Option<Instant> {
        self.backoff.borrow().last(pod, image, rt::now()).map(|failure| failure.until())
    }

    pub(crate) fn under_way(&self) -> PullsUnderWay {
        self.under_way.clone()
    }

    fn tell(&self, pod: &Pod, wanted: Wanted<'_>, kind: EventKind, reason: Reason, message: String) {
        let uid = &pod.metadata.uid;
        let event = match wanted.container {
            Some(container) => PodEvent::of_container(uid, container, kind, reason, message),
            None => PodEvent::of_pod(uid, kind, reason, message),
        };
        // Nothing depends on it: when the inbox is full it is dropped.
        let _ = self.inbox.try_send(SyncEvent::Happened(event));
    }
}

impl From<Image> for PresentImage {
    fn from(image: Image) -> Self {
        let user = ImageUser { uid: image.uid, name: image.username };
        let names = image.repo_tags.into_iter().chain(image.repo_digests).collect();
        Self { image_ref: image.id, user, size: image.size, names }
    }
}

#[cfg(test)]
mod tests;
