//! One image pull: waiting for a turn, trying credentials, recording the result.

use std::time::{Duration, Instant};

use super::ensure_image::PullInputs;
use super::pull_error::{self, FailedPull, PullError};
use super::pull_turns::PullTurn;
use super::pulls_under_way::PullGuard;
use super::service::{ImageError, Service};
use super::signatures::Verified;
use super::{Images, PresentImage, pull_policy};
use crate::kubelet::image_credentials::{Credential, Owner};
use crate::kubelet::image_transfer::{FetchError, Hold, Passage};
use crate::platform::config::{CredentialsVerification, go_duration};
use crate::platform::cri::v1::{AuthConfig, Image, ImageSpec};
use crate::platform::rt;
use crate::protocol::grpc::{Code, Status};
use crate::state::pods::Waiting;
use crate::types::api::{EventKind, Reason};
use crate::types::metrics::{self, Timed};
use crate::types::time::Backoff;

/// The result of waiting for a turn.
enum Turn {
    Pull(PullTurn),
    /// The image became present while waiting.
    Present(PresentImage),
}

impl<S: Service> Images<S> {
    /// Waits for a turn and pulls. A failure is recorded for the back-off.
    pub(super) async fn pull(&self, inputs: &PullInputs<'_>) -> Result<PresentImage, FailedPull> {
        let image = inputs.image();
        let requested = rt::now();
        self.record_pull_event(inputs, EventKind::Normal, Reason::PULLING, format!("Pulling image {image:?}"));
        let under_way = self.under_way.add(image, &inputs.pod.full_name(), requested);
        let turn = match self.take_turn(inputs).await? {
            Turn::Pull(turn) => turn,
            Turn::Present(present) => return Ok(present),
        };
        // A window may have closed, or a budget ended, while the pull waited for its turn.
        self.may_pull(inputs)?;
        let begun = rt::now();
        under_way.begins(begun);
        let throttled = self.throttle.borrow_mut().as_mut().is_some_and(|throttle| !throttle.take(begun));
        let pulled = match throttled {
            true => Err(PullError::Throttled),
            false => turn.run(self.pull_with_credentials(inputs, &under_way)).await,
        };
        let now = rt::now();
        if pulled.is_err() {
            self.records.end(image, &under_way, false).await;
        }
        match pulled {
            Err(PullError::Came(present)) => {
                self.record_present_image(inputs);
                Ok(present)
            }
            Err(PullError::Held) => {
                // The budget may have room again by now.
                let hold =
                    self.budget.hold().unwrap_or_else(|| Hold { why: "a moment".to_owned(), wait: Duration::ZERO });
                Err(self.wait_of_hold(inputs, &hold).into())
            }
            Err(error) => Err(self.failed(inputs, &error, now)),
            Ok((image_ref, credential)) => {
                self.outages.borrow_mut().end_outage(inputs.registry());
                self.backoff.borrow_mut().forget_old(now);
                let (took, with_wait) = (go_duration(now - begun), go_duration(now - requested));
                log!(info, "image pulled", image = image, took = took, with_wait = with_wait);
                self.gc.on_pulled(&image_ref, now);
                let described = self.described(inputs, image_ref, &under_way, credential.as_ref()).await?;
                let size = described.size;
                metrics::took(Timed::ImagePulls, &[size_bucket(size)], now - begun);
                let message = format!(
                    "Successfully pulled image {image:?} in {took} ({with_wait} including waiting). Image size: {size} bytes."
                );
                self.record_pull_event(inputs, EventKind::Normal, Reason::PULLED, message);
                Ok(described)
            }
        }
    }

    /// Records who may use the image, and removes the intent record. Without the record the intent stays: the image
    /// would count as preloaded.
    async fn record_pull(
        &self,
        inputs: &PullInputs<'_>,
        under_way: &PullGuard,
        image_ref: &str,
        credential: Option<&Credential>,
    ) {
        if self.verification != CredentialsVerification::Never && self.record(inputs, image_ref, credential).await {
            self.records.end(inputs.image(), under_way, true).await;
        }
    }

    async fn take_turn(&self, inputs: &PullInputs<'_>) -> Result<Turn, Waiting> {
        // An urgent pull goes beside the one that has its turn.
        let Some(turns) = self.turns.as_ref().filter(|_| !inputs.is_urgent()) else {
            return Ok(Turn::Pull(PullTurn::beside()));
        };
        let namespace = &inputs.pod.metadata.namespace;
        if let Some(turn) = turns.try_take(namespace) {
            return Ok(Turn::Pull(turn));
        }
        let turn = turns.take(namespace, inputs.pod.is_critical()).await;
        // The previous pull may have been of this image, or may have found the registry unreachable.
        let present = if pull_policy::checks_presence_first(inputs.policy) {
            let present = self.present(inputs).await?;
            if present.is_some() {
                self.record_present_image(inputs);
            }
            present
        } else {
            self.present_during_outage(inputs).await?
        };
        Ok(present.map_or_else(|| Turn::Pull(turn), Turn::Present))
    }

    /// Tries all credentials for the registry, or none if there are none. Returns the image reference and the
    /// credential that succeeded.
    async fn pull_with_credentials(
        &self,
        inputs: &PullInputs<'_>,
        under_way: &PullGuard,
    ) -> Result<(String, Option<Credential>), PullError> {
        self.record_missing_secrets(inputs);
        let credentials = self.all_credentials(inputs).await;
        log!(info, "pulling image", image = inputs.image(), pod = inputs.pod.full_name(), logins = credentials.len());
        if credentials.is_empty() {
            let image_ref = self.pull_once(inputs, None).await?;
            return Ok((image_ref, None));
        }
        if credentials.iter().any(|credential| credential.owner != Owner::Node) {
            self.intend(inputs, under_way).await;
        }
        let mut errors: Vec<ImageError> = Vec::new();
        for credential in credentials {
            match self.pull_once(inputs, Some(&credential)).await {
                Ok(image_ref) => return Ok((image_ref, Some(credential))),
                Err(PullError::Failed(failed)) => errors.extend(failed),
                Err(held) => return Err(held),
            }
        }
        Err(PullError::Failed(errors))
    }

    /// A failed write does not prevent the pod from starting.
    async fn intend(&self, inputs: &PullInputs<'_>, under_way: &PullGuard) {
        if self.verification == CredentialsVerification::Never {
            return;
        }
        // Without an answer every image counts as one that the pull brings.
        let present = self.service.status(&inputs.spec).await.ok().flatten().map(|image| image.id);
        if let Err(error) = self.records.intend(inputs.image(), &inputs.repository, present, under_way).await {
            log!(warn, "failed to record image pull", image = inputs.image(), error = error);
        }
    }

    /// Logs periodically that the pull continues, because runtimes report no progress, and looks whether the image has
    /// come without an answer: the runtime may have lost it, or another pull or an archive may have brought the image.
    async fn pull_once(&self, inputs: &PullInputs<'_>, credential: Option<&Credential>) -> Result<String, PullError> {
        let begun = rt::now();
        let auth = credential.map(|credential| credential.login.auth_config());
        let pull = async {
            let verified = self.verify(inputs, auth.as_ref()).await?;
            let image_ref = self.pull_verified(inputs, auth.as_ref(), verified.as_ref()).await?;
            if let Some(verified) = &verified {
                self.confirm(verified, &image_ref).await?;
            }
            Ok(image_ref)
        };
        let reminders = async {
            let mut waits = Backoff::new(FIRST_REMINDER, LAST_REMINDER);
            loop {
                rt::sleep(waits.next_wait()).await;
                log!(info, "still pulling image", image = inputs.image(), s = rt::elapsed(begun).as_secs());
                if !pull_policy::checks_presence_first(inputs.policy) {
                    continue;
                }
                if let Ok(Some(present)) = self.present(inputs).await {
                    return Err(PullError::Came(present));
                }
            }
        };
        rt::either(pull, reminders).await
    }

    /// Fetches the image, or has the runtime pull it; a verified one by its digest.
    async fn pull_verified(
        &self,
        inputs: &PullInputs<'_>,
        auth: Option<&AuthConfig>,
        verified: Option<&Verified>,
    ) -> Result<String, PullError> {
        let Some(fetcher) = &self.fetcher else {
            let image = verified.map_or_else(|| inputs.spec.image.clone(), Verified::name_by_digest);
            let spec = ImageSpec { image, ..inputs.spec.clone() };
            return Ok(self.pull_by_runtime(inputs, &spec, auth).await?);
        };
        let digest = verified.map(Verified::digest);
        let progress = self.under_way.progress(inputs.image());
        let pod = inputs.pod.metadata.uid.as_str();
        let passage = Passage { budget: &self.budget, is_urgent: inputs.is_urgent(), pod };
        let fetched = fetcher.pull(&inputs.spec.image, digest.as_deref(), auth, progress, passage).await;
        fetched.map_err(|error| match error {
            FetchError::Held => PullError::Held,
            // In the same form as errors of the runtime's own pull.
            error => ImageError::Runtime(Status::new(Code::Unknown, error.to_string())).into(),
        })
    }

    /// The runtime tells no bytes, so an image counts with its size once it has come.
    async fn pull_by_runtime(
        &self,
        inputs: &PullInputs<'_>,
        spec: &ImageSpec,
        auth: Option<&AuthConfig>,
    ) -> Result<String, ImageError> {
        if !self.budget.is_limited() {
            return self.service.pull(spec, auth, inputs.sandbox).await;
        }
        let before = self.service.status(spec).await?;
        let image_ref = self.service.pull(spec, auth, inputs.sandbox).await?;
        let pulled = self.service.status(spec).await?;
        let is_new = |image: &Image| before.as_ref().is_none_or(|before| before.id != image.id);
        if let Some(image) = pulled.filter(is_new) {
            self.budget.count(image.size).await;
        }
        Ok(image_ref)
    }

    fn record_missing_secrets(&self, inputs: &PullInputs<'_>) {
        let failed = &inputs.secrets.failed;
        if failed.is_empty() {
            return;
        }
        for (name, problem) in failed.iter().filter_map(|(name, problem)| Some((name, problem.as_ref()?))) {
            log!(
                warn,
                "failed to use image pull secret",
                pod = inputs.pod.full_name(),
                secret = name,
                problem = problem
            );
        }
        let mut names: Vec<&str> = failed.iter().map(|(name, _)| name.as_str()).collect();
        names.dedup();
        let message = format!(
            "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
            names.join(", ")
        );
        let of_pod = super::WantedImage { container: None, ..inputs.wanted };
        let reason = Reason::FAILED_TO_RETRIEVE_IMAGE_PULL_SECRET;
        self.record_event(inputs.pod, of_pod, EventKind::Warning, reason, message);
    }

    fn failed(&self, inputs: &PullInputs<'_>, error: &PullError, now: Instant) -> FailedPull {
        let (image, why) = (inputs.image(), error.to_string());
        self.record_pull_event(
            inputs,
            EventKind::Warning,
            Reason::FAILED,
            format!("Failed to pull image {image:?}: {why}"),
        );
        let is_unreachable = error.is_unreachable();
        if is_unreachable {
            self.outages.borrow_mut().failed(inputs.registry(), now);
        }
        let waiting = pull_error::waiting(image, &why);
        let text = format!("{}: {}", waiting.reason, waiting.message);
        let secrets = inputs.secrets.mark();
        self.backoff.borrow_mut().failed(&inputs.pod.metadata.uid, image, text, secrets, now);
        let is_unreachable = is_unreachable || waiting.reason == Reason::REGISTRY_UNAVAILABLE;
        FailedPull { waiting, is_unreachable }
    }

    /// Looks up the image that was just pulled, and records the pull by its id: the runtime may have returned a digest.
    async fn described(
        &self,
        inputs: &PullInputs<'_>,
        image_ref: String,
        under_way: &PullGuard,
        credential: Option<&Credential>,
    ) -> Result<PresentImage, Waiting> {
        let spec = ImageSpec { image: image_ref, ..ImageSpec::default() };
        let Some(present) = self.image_status(inputs, &spec).await? else {
            return Err(self.inspect_error(inputs, "the runtime does not have what it has just pulled"));
        };
        self.record_pull(inputs, under_way, &present.image_ref, credential).await;
        Ok(PresentImage { image_ref: spec.image, ..present })
    }
}

/// Upstream's image size buckets (`GetImageSizeBucket`).
fn size_bucket(bytes: u64) -> &'static str {
    const MB: u64 = 1024 * 1024;
    const GB: u64 = 1024 * MB;
    let classes = [
        (10 * MB, "0-10MB"),
        (100 * MB, "10MB-100MB"),
        (500 * MB, "100MB-500MB"),
        (GB, "500MB-1GB"),
        (5 * GB, "1GB-5GB"),
        (10 * GB, "5GB-10GB"),
        (20 * GB, "10GB-20GB"),
        (30 * GB, "20GB-30GB"),
        (40 * GB, "30GB-40GB"),
        (60 * GB, "40GB-60GB"),
        (100 * GB, "60GB-100GB"),
    ];
    classes.iter().find(|(most, _)| bytes < *most).map_or("GT100GB", |(_, class)| class)
}

/// A pull over a slow link may take hours. The log shows that it is alive, and less often as it takes longer.
const FIRST_REMINDER: Duration = Duration::from_secs(30);
const LAST_REMINDER: Duration = Duration::from_secs(600);
