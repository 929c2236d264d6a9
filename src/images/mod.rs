//! Images: pull policy, pulls, back-off.
//!
//! [`Images::ensure`] brings the image of a container, or says why the container waits. Pulls take turns; who has
//! waited for a turn looks again, so that what another pod has brought meanwhile is not pulled twice. What is remembered
//! is only what cannot be seen: the failures of late.

mod image_name;
mod pull_backoff;
mod pull_error;
mod pull_policy;
mod service;
mod token_bucket;

use std::cell::RefCell;
use std::time::Instant;

use async_channel::Sender;

use crate::api::{Container, EventKind, Pod, PodUid, PullPolicy, Reason};
use crate::config::{Config, go_duration};
use crate::cri::ImageService;
use crate::cri::v1::{Image, ImageSpec, PodSandboxConfig};
use crate::pods::{PodEvent, SyncEvent, Waiting};
use crate::rt;

use pull_backoff::PullBackoff;
use service::Service;
use token_bucket::TokenBucket;

/// The images of this node. One for the whole process.
#[derive(Debug)]
pub(crate) struct Images<S = ImageService> {
    service: S,
    /// `None`: as many pulls at once as there are.
    turns: Option<rt::Semaphore>,
    throttle: RefCell<Option<TokenBucket>>,
    backoff: RefCell<PullBackoff>,
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
            parallel: if config.serialize_image_pulls { Some(1) } else { config.max_parallel_image_pulls },
            rate: config.registry_pull_qps,
            burst: config.registry_burst,
        }
    }
}

impl<S: Service> Images<S> {
    pub(crate) fn new(service: S, limits: PullLimits, inbox: Sender<SyncEvent>) -> Self {
        let turns = limits.parallel.and_then(|parallel| usize::try_from(parallel).ok());
        Self {
            service,
            turns: turns.map(rt::Semaphore::new),
            throttle: RefCell::new(TokenBucket::new(limits.rate, limits.burst, Instant::now())),
            backoff: RefCell::default(),
            inbox,
        }
    }

    /// An image that `pod` runs or mounts, brought to this node if the pull policy wants it. `sandbox` is the
    /// configuration of the sandbox that it is for. Once `cancel` is ready, a pull under way is given up.
    pub(crate) async fn ensure(
        &self,
        pod: &Pod,
        wanted: Wanted<'_>,
        sandbox: &PodSandboxConfig,
        cancel: impl Future<Output = ()>,
    ) -> Result<PresentImage, Waiting> {
        let cancelled = async {
            cancel.await;
            Err(Waiting::new(Reason::CONTAINER_CREATING, ""))
        };
        rt::either(self.bring(pod, wanted, sandbox), cancelled).await
    }

    /// The moment before which a pull of `image` for this pod is not tried again, after one that failed.
    pub(crate) fn retry_at(&self, pod: &PodUid, image: &str) -> Option<Instant> {
        self.backoff.borrow().waits(pod, image, Instant::now()).map(|(_, until)| until)
    }

    async fn bring(&self, pod: &Pod, wanted: Wanted<'_>, sandbox: &PodSandboxConfig) -> Result<PresentImage, Waiting> {
        let image = wanted.image;
        let name = image_name::with_default_tag(image).map_err(|error| {
            let what =
                format!("Failed to apply default image tag {image:?}: couldn't parse image name {image:?}: {error}");
            self.tell(pod, wanted, EventKind::Warning, Reason::INSPECT_FAILED, what.clone());
            Waiting::new(Reason::INVALID_IMAGE_NAME, what)
        })?;
        let annotations = pod.metadata.annotations.iter().map(|(key, value)| (key.to_owned(), value.clone()));
        let spec = ImageSpec { image: name, annotations: annotations.collect(), ..ImageSpec::default() };
        // Defaulting has filled it in.
        let policy = wanted.policy.unwrap_or(PullPolicy::IfNotPresent);

        if pull_policy::looks_first(policy) {
            let present = self.look(image, &spec).await.inspect_err(|waiting| {
                self.tell(pod, wanted, EventKind::Warning, Reason::INSPECT_FAILED, waiting.message.clone());
            })?;
            match present {
                Some(present) if !pull_policy::should_pull(policy, true) => {
                    self.tell_present(pod, wanted);
                    return Ok(present);
                }
                None if !pull_policy::should_pull(policy, false) => {
                    let what = format!("Container image {image:?} is not present with pull policy of Never");
                    self.tell(pod, wanted, EventKind::Warning, Reason::ERR_IMAGE_NEVER_PULL, what.clone());
                    return Err(Waiting::new(Reason::ERR_IMAGE_NEVER_PULL, what));
                }
                Some(_) | None => {}
            }
        }
        if let Some((failure, _)) = self.backoff.borrow().waits(&pod.metadata.uid, image, Instant::now()) {
            let what = format!("Back-off pulling image {image:?}: {failure}");
            self.tell(pod, wanted, EventKind::Normal, Reason::BACK_OFF, format!("Back-off pulling image {image:?}"));
            return Err(Waiting::new(Reason::IMAGE_PULL_BACK_OFF, what));
        }
        let pulled = self.pull(pod, wanted, &spec, policy, sandbox).await;
        match pulled {
            Err(_) if pull_policy::present_will_do(policy) => match self.look(image, &spec).await? {
                Some(present) => {
                    self.tell_present(pod, wanted);
                    Ok(present)
                }
                None => pulled,
            },
            Ok(_) | Err(_) => pulled,
        }
    }

    /// Waits for a turn and pulls. A failure is kept: it makes the next try wait.
    async fn pull(
        &self,
        pod: &Pod,
        wanted: Wanted<'_>,
        spec: &ImageSpec,
        policy: PullPolicy,
        sandbox: &PodSandboxConfig,
    ) -> Result<PresentImage, Waiting> {
        let image = wanted.image;
        let asked = Instant::now();
        let turn = match &self.turns {
            Some(turns) => match turns.try_acquire() {
                Some(turn) => Some(turn),
                None => {
                    let turn = turns.acquire().await;
                    // The pull that was waited for may have been of this image.
                    if pull_policy::looks_first(policy) {
                        if let Some(present) = self.look(image, spec).await? {
                            self.tell_present(pod, wanted);
                            return Ok(present);
                        }
                    }
                    Some(turn)
                }
            },
            None => None,
        };
        let begun = Instant::now();
        let throttled = self.throttle.borrow_mut().as_mut().is_some_and(|throttle| !throttle.take(begun));
        let pulled = if throttled {
            Err("pull QPS exceeded".to_owned())
        } else {
            self.tell(pod, wanted, EventKind::Normal, Reason::PULLING, format!("Pulling image {image:?}"));
            log!(info, "pulling an image", image = image, pod = pod.full_name());
            self.service.pull(spec, sandbox).await
        };
        drop(turn);
        let now = Instant::now();
        match pulled {
            Err(error) => {
                let failed = format!("Failed to pull image {image:?}: {error}");
                self.tell(pod, wanted, EventKind::Warning, Reason::FAILED, failed);
                let waiting = pull_error::waiting(image, &error);
                let text = format!("{}: {}", waiting.reason, waiting.message);
                self.backoff.borrow_mut().failed(&pod.metadata.uid, image, text, now);
                Err(waiting)
            }
            Ok(image_ref) => {
                self.backoff.borrow_mut().forget_old(now);
                let (waited, took) = (begun.duration_since(asked), now.duration_since(begun));
                log!(info, "pulled an image", image = image, ms = took.as_millis(), waited_ms = waited.as_millis());
                let described = self.described(image, image_ref).await?;
                let (took, with_wait) = (go_duration(took), go_duration(took + waited));
                let what = format!(
                    "Successfully pulled image {image:?} in {took} ({with_wait} including waiting). Image size: {} bytes.",
                    described.size
                );
                self.tell(pod, wanted, EventKind::Normal, Reason::PULLED, what);
                Ok(described)
            }
        }
    }

    fn tell_present(&self, pod: &Pod, wanted: Wanted<'_>) {
        let image = wanted.image;
        let what = format!("Container image {image:?} already present on machine and can be accessed by the pod");
        self.tell(pod, wanted, EventKind::Normal, Reason::PULLED, what);
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

    /// What the runtime says of an image that it has just pulled.
    async fn described(&self, image: &str, image_ref: String) -> Result<PresentImage, Waiting> {
        let spec = ImageSpec { image: image_ref, ..ImageSpec::default() };
        match self.look(image, &spec).await? {
            Some(present) => Ok(PresentImage { image_ref: spec.image, ..present }),
            None => Err(inspect_error(image, "the runtime does not have what it has just pulled")),
        }
    }

    async fn look(&self, image: &str, spec: &ImageSpec) -> Result<Option<PresentImage>, Waiting> {
        let found = self.service.status(spec).await.map_err(|error| inspect_error(image, &error))?;
        Ok(found.map(PresentImage::from))
    }
}

impl From<Image> for PresentImage {
    fn from(image: Image) -> Self {
        let user = ImageUser { uid: image.uid, name: image.username };
        Self { image_ref: image.id, user, size: image.size }
    }
}

fn inspect_error(image: &str, error: &str) -> Waiting {
    Waiting::new(Reason::IMAGE_INSPECT_ERROR, format!("Failed to inspect image {image:?}: {error}"))
}

#[cfg(test)]
mod tests;
