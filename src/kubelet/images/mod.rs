//! Images: pull policy, pulls, back-off, garbage collection.
//!
//! [`Images::ensure`] makes a container's image present or returns its waiting reason. Pulls are limited; after
//! waiting for a turn the image is looked up again, because another pod may have pulled it. Only recent failures are
//! remembered.

mod artifacts;
mod early_pulls;
mod ensure_image;
mod gc;
mod kept_signatures;
mod pull;
mod pull_backoff;
mod pull_error;
mod pull_policy;
mod pull_records;
mod pull_turns;
mod pulls_under_way;
mod registry_outages;
mod service;
mod signatures;
mod tag_lookup;
mod verification;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use async_channel::Sender;

use crate::kubelet::image_archives::ImageArchives;
use crate::kubelet::image_credentials::{NodeCredentials, PullSecrets};
use crate::kubelet::image_transfer::{Fetcher, LinkBudget, ManifestFetch};
use crate::platform::apiserver::Client;
use crate::platform::config::{Config, CredentialsVerification};
use crate::platform::cri::ImageService;
use crate::platform::cri::v1::{Image, PodSandboxConfig};
use crate::platform::rt;
use crate::state::pods::{PodEvent, SyncEvent, Waiting};
use crate::types::api::{Container, EventKind, Pod, PodUid, PullPolicy, Reason};
use crate::types::time::TokenBucket;

pub(crate) use artifacts::{ARTIFACT_SCHEME, Artifacts};
pub(crate) use gc::{CollectError, images_of};
pub(crate) use pulls_under_way::{PullUnderWay, PullsUnderWay};
pub(crate) use signatures::{SignatureGate, SignaturePlaces};

use early_pulls::EarlyPulls;
use ensure_image::PullInputs;
use gc::GcState;
use pull_backoff::PullBackoff;
use pull_records::PullRecords;
use pull_turns::PullTurns;
use registry_outages::Outages;
use service::Service;

/// Manages the images of this node.
#[derive(Debug)]
pub(crate) struct Images<S = ImageService> {
    service: S,
    /// `None`: no limit of parallel pulls.
    turns: Option<Rc<PullTurns>>,
    throttle: RefCell<Option<TokenBucket>>,
    backoff: RefCell<PullBackoff>,
    outages: RefCell<Outages>,
    credentials: NodeCredentials,
    verification: CredentialsVerification,
    records: PullRecords,
    /// With `Always`, fail while the registry is unreachable even if the image is present.
    strict: bool,
    under_way: PullsUnderWay,
    early: RefCell<EarlyPulls>,
    /// Windows and budgets.
    budget: Rc<LinkBudget>,
    /// Fetches images instead of the runtime, if configured.
    fetcher: Option<Fetcher>,
    archives: ImageArchives,
    /// `None`: signatures are not verified.
    signatures: Option<SignatureGate>,
    /// Looks up tags. `None`: no tag can be looked up.
    manifests: Option<ManifestFetch>,
    gc: GcState,
    /// The sync loop's inbox, for events.
    inbox: Sender<SyncEvent>,
}

/// An image present in the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PresentImage {
    /// The runtime's image id, used to create containers.
    pub(crate) image_ref: String,
    pub(crate) user: ImageUser,
    /// In bytes.
    pub(crate) size: u64,
    /// Tags and digests.
    names: Vec<String>,
}

/// An image name with its pull policy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WantedImage<'a> {
    pub(crate) image: &'a str,
    pub(crate) policy: Option<PullPolicy>,
    /// The container for events; `None` for an image volume.
    pub(crate) container: Option<&'a str>,
}

impl<'a> WantedImage<'a> {
    /// The image of a container.
    pub(crate) fn by(container: &'a Container) -> Self {
        let Container { image, image_pull_policy: policy, name, .. } = container;
        Self { image, policy: *policy, container: Some(name) }
    }
}

/// The user configured in the image: a number, a name, or none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ImageUser {
    pub(crate) uid: Option<i64>,
    pub(crate) name: String,
}

/// Limits of parallel pulls and of their rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PullLimits {
    /// `None`: no limit.
    pub(crate) parallel: Option<u32>,
    /// Per second; 0: no limit.
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
            turns: turns.map(PullTurns::new),
            throttle: RefCell::new(TokenBucket::new(limits.rate, limits.burst, rt::now())),
            backoff: RefCell::default(),
            outages: RefCell::default(),
            credentials: NodeCredentials::of(config),
            verification: config.images.credentials_verification.clone(),
            records: PullRecords::new(&config.root_dir),
            strict: config.images.strict_pull_policy,
            under_way: PullsUnderWay::default(),
            early: RefCell::default(),
            budget: Rc::new(LinkBudget::open(config, None)),
            fetcher: None,
            archives: ImageArchives::nothing().0,
            signatures: None,
            manifests: None,
            gc: GcState::new(config.images.gc, rt::now()),
            inbox,
        }
    }

    /// Gives credential providers the tokens of service accounts.
    pub(crate) fn in_cluster(&self, client: &Client) {
        self.credentials.set_client(client);
    }

    /// Adds image archives, whose images are kept.
    pub(crate) fn with_archives(self, archives: ImageArchives) -> Self {
        Self { archives, ..self }
    }

    /// Fetches images with this fetcher; `None`: the runtime pulls them.
    pub(crate) fn with_fetcher(self, fetcher: Option<Fetcher>) -> Self {
        Self { fetcher, ..self }
    }

    /// Takes only images that the gate lets pass.
    pub(crate) fn with_signatures(self, signatures: Option<SignatureGate>) -> Self {
        Self { signatures, ..self }
    }

    /// Looks up tags with this fetcher.
    pub(crate) fn with_manifests(self, manifests: ManifestFetch) -> Self {
        Self { manifests: Some(manifests), ..self }
    }

    /// Pulls within these windows and budgets.
    pub(crate) fn with_budget(self, budget: LinkBudget) -> Self {
        Self { budget: Rc::new(budget), ..self }
    }

    pub(crate) fn budget(&self) -> Rc<LinkBudget> {
        Rc::clone(&self.budget)
    }

    pub(crate) fn archives(&self) -> &ImageArchives {
        &self.archives
    }

    /// Makes an image that `pod` runs or mounts present, pulling it if the policy requires, with credentials from
    /// `secrets` and the node. `sandbox` is the configuration of the pod's sandbox. When `cancel` is ready, a pull in
    /// progress is aborted.
    pub(crate) async fn ensure(
        &self,
        pod: &Pod,
        wanted: WantedImage<'_>,
        sandbox: &PodSandboxConfig,
        secrets: PullSecrets,
        cancel: impl Future<Output = ()>,
    ) -> Result<PresentImage, Waiting> {
        let cancelled = async {
            cancel.await;
            Err(Waiting::new(Reason::CONTAINER_CREATING, ""))
        };
        let ensured = async {
            let order = PullInputs::new(pod, wanted, sandbox, secrets).await;
            let order = order.inspect_err(|waiting| {
                self.record_event(pod, wanted, EventKind::Warning, Reason::INSPECT_FAILED, waiting.message.clone());
            })?;
            self.ensure_present(&order).await
        };
        rt::either(ensured, cancelled).await
    }

    /// Earliest time of the next pull of `image` for this pod after a failure.
    pub(crate) fn retry_at(&self, pod: &PodUid, image: &str) -> Option<Instant> {
        self.backoff.borrow().last(pod, image, rt::now()).map(|failure| failure.until())
    }

    /// The pod's next pulls wait for no back-off.
    pub(crate) fn forget_failures(&self, pod: &PodUid) {
        self.backoff.borrow_mut().forget(pod);
    }

    /// Records that the image was pulled for a container of a pod that starts later.
    pub(crate) fn record_early_pull(&self, pod: &PodUid, wanted: WantedImage<'_>) {
        self.early.borrow_mut().add(pod, wanted, rt::now());
    }

    pub(crate) fn under_way(&self) -> PullsUnderWay {
        self.under_way.clone()
    }

    fn record_event(&self, pod: &Pod, wanted: WantedImage<'_>, kind: EventKind, reason: Reason, message: String) {
        let uid = &pod.metadata.uid;
        let event = match wanted.container {
            Some(container) => PodEvent::of_container(uid, container, kind, reason, message),
            None => PodEvent::of_pod(uid, kind, reason, message),
        };
        // Events may be dropped when the inbox is full.
        let _ = self.inbox.try_send(SyncEvent::PodEvent(event));
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
