//! Ensures that an image is present, following the pull policy.

use std::rc::Rc;
use std::time::Duration;

use super::pull_error::FailedPull;
use super::service::Service;
use super::verification::{CredentialCheck, PullOrigin, has_accounts, verdict};
use super::{Images, PresentImage, WantedImage, pull_policy};
use crate::kubelet::image_archives::image_name;
use crate::kubelet::image_credentials::{Credential, PullSecrets, RepositorySecrets};
use crate::kubelet::image_transfer::Hold;
use crate::platform::config::CredentialsVerification;
use crate::platform::cri::v1::{ImageSpec, PodSandboxConfig};
use crate::platform::rt;
use crate::state::pods::Waiting;
use crate::types::api::annotations::{URGENT, yes_or_no};
use crate::types::api::{EventKind, Pod, PullPolicy, Reason};
use crate::types::error::ErrorChain;
use crate::types::metrics::{self, Count};

/// A requested image with everything needed to pull it.
pub(super) struct PullInputs<'a> {
    pub(super) pod: &'a Pod,
    pub(super) wanted: WantedImage<'a>,
    pub(super) policy: PullPolicy,
    pub(super) spec: ImageSpec,
    /// Including the registry, without tag and digest.
    pub(super) repository: String,
    pub(super) sandbox: &'a PodSandboxConfig,
    pub(super) secrets: Rc<RepositorySecrets>,
}

/// Secrets up to this size are parsed at once, larger ones on another thread.
const SMALL_SECRETS_BYTES: usize = 64 << 10;

/// A held pull is checked again after the next window or day has begun, and at least this often.
const MAX_PULL_HOLD: Duration = Duration::from_secs(5 * 60);
/// A window that begins at this moment must not make the worker spin.
const MIN_PULL_HOLD: Duration = Duration::from_secs(1);

impl<'a> PullInputs<'a> {
    pub(super) async fn new(
        pod: &'a Pod,
        wanted: WantedImage<'a>,
        sandbox: &'a PodSandboxConfig,
        secrets: PullSecrets,
    ) -> Result<Self, Waiting> {
        let image = wanted.image;
        let (name, repository) = image_name::with_default_tag(image)
            .and_then(|name| Ok((name, image_name::repository(image)?)))
            .map_err(|error| {
                let message = format!(
                    "Failed to apply default image tag {image:?}: couldn't parse image name {image:?}: {error}"
                );
                Waiting::new(Reason::INVALID_IMAGE_NAME, message)
            })?;
        let annotations = pod.metadata.annotations.iter().map(|(key, value)| (key.to_owned(), value.clone()));
        let spec = ImageSpec { image: name, annotations: annotations.collect(), ..ImageSpec::default() };
        // Set by defaulting.
        let policy = wanted.policy.unwrap_or(PullPolicy::IfNotPresent);
        let secrets = match secrets.parsed(&repository) {
            Some(parsed) => parsed,
            None => {
                let unparsed = secrets.unparsed.clone();
                let parsed = if unparsed.bytes() <= SMALL_SECRETS_BYTES {
                    unparsed.for_repository(&repository)
                } else {
                    let repository = repository.clone();
                    let uid = pod.metadata.uid.as_str();
                    rt::blocking_for(uid, move || unparsed.for_repository(&repository)).await
                };
                secrets.keep(&repository, parsed)
            }
        };
        Ok(Self { pod, wanted, policy, spec, repository, sandbox, secrets })
    }

    pub(super) fn image(&self) -> &'a str {
        self.wanted.image
    }

    /// Whether windows and budgets do not hold its pulls.
    pub(super) fn is_urgent(&self) -> bool {
        self.pod.annotation(URGENT).and_then(yes_or_no) == Some(true)
    }

    /// Including the port.
    pub(super) fn registry(&self) -> &str {
        self.repository.split('/').next().unwrap_or_default()
    }
}

impl<S: Service> Images<S> {
    pub(super) async fn ensure_present(&self, inputs: &PullInputs<'_>) -> Result<PresentImage, Waiting> {
        let image = inputs.image();
        if pull_policy::checks_presence_first(inputs.policy) {
            let mut present = self.present(inputs).await?;
            if present.is_none() && self.archives.may_import_missing().await {
                present = self.present(inputs).await?;
            }
            if present.is_none() {
                present = self.present_if_signed(inputs).await?;
            }
            if let Some(present) = present {
                self.record_present_image(inputs);
                return Ok(present);
            }
            if !pull_policy::pulls(inputs.policy) {
                let message = format!("Container image {image:?} is not present with pull policy of Never");
                self.record_pull_event(inputs, EventKind::Warning, Reason::ERR_IMAGE_NEVER_PULL, message.clone());
                return Err(Waiting::new(Reason::ERR_IMAGE_NEVER_PULL, message));
            }
        }
        // An early pull counts as the pull of `Always`: the registry is not asked again while the pod is down.
        if self.early.borrow_mut().take(&inputs.pod.metadata.uid, inputs.wanted, rt::now()) {
            if let Some(present) = self.present(inputs).await? {
                self.record_present_image(inputs);
                return Ok(present);
            }
        }
        if let Some(present) = self.present_during_outage(inputs).await? {
            return Ok(present);
        }
        if let Some(failure) = self.last_failure(inputs) {
            return Err(self.back_off(inputs, &failure));
        }
        self.may_pull(inputs)?;
        match self.pull(inputs).await {
            Err(failed) => self.present_instead(inputs, failed).await,
            Ok(pulled) => Ok(pulled),
        }
    }

    pub(super) fn back_off(&self, inputs: &PullInputs<'_>, failure: &str) -> Waiting {
        let message = format!("Back-off pulling image {:?}", inputs.image());
        self.record_pull_event(inputs, EventKind::Normal, Reason::BACK_OFF, message.clone());
        Waiting::new(Reason::IMAGE_PULL_BACK_OFF, format!("{message}: {failure}"))
    }

    /// The failure that the image's back-off is for.
    pub(super) fn last_failure(&self, inputs: &PullInputs<'_>) -> Option<String> {
        let backoff = self.backoff.borrow();
        let failure = backoff.last(&inputs.pod.metadata.uid, inputs.image(), rt::now());
        failure.filter(|failure| failure.secrets == inputs.secrets.mark()).map(|failure| failure.text.clone())
    }

    /// The waiting reason while windows and budgets allow no pull.
    pub(super) fn may_pull(&self, inputs: &PullInputs<'_>) -> Result<(), Waiting> {
        let hold = if inputs.is_urgent() { None } else { self.budget.hold() };
        hold.map_or(Ok(()), |hold| Err(self.wait_of_hold(inputs, &hold)))
    }

    /// The pull goes on when there is room again. The clock may be set until then, so the wait is bounded.
    pub(super) fn wait_of_hold(&self, inputs: &PullInputs<'_>, hold: &Hold) -> Waiting {
        let message = format!("Pull of image {:?} waits: {}", inputs.image(), hold.why);
        self.record_pull_event(inputs, EventKind::Normal, Reason::IMAGE_PULL_WAITING, message.clone());
        let until = Some(rt::now() + hold.wait.clamp(MIN_PULL_HOLD, MAX_PULL_HOLD));
        Waiting { until, ..Waiting::new(Reason::IMAGE_PULL_WAITING, message) }
    }

    /// The present image, while its registry is known to be unreachable, so that no pod waits for a timeout again.
    pub(super) async fn present_during_outage(&self, inputs: &PullInputs<'_>) -> Result<Option<PresentImage>, Waiting> {
        if self.strict
            || !pull_policy::may_use_present(inputs.policy)
            || !self.outages.borrow().lasts(inputs.registry(), rt::now())
        {
            return Ok(None);
        }
        let present = self.present(inputs).await?;
        if present.is_some() {
            self.record_outage_fallback(inputs);
        }
        Ok(present)
    }

    /// The present image, after a pull that failed to reach the registry.
    async fn present_instead(&self, inputs: &PullInputs<'_>, failed: FailedPull) -> Result<PresentImage, Waiting> {
        let FailedPull { waiting, is_unreachable } = failed;
        let will_do = !self.strict && pull_policy::may_use_present(inputs.policy);
        if !will_do || !is_unreachable {
            return Err(waiting);
        }
        match self.present(inputs).await? {
            Some(present) => {
                self.record_outage_fallback(inputs);
                Ok(present)
            }
            None => Err(waiting),
        }
    }

    /// The present image, if the pod may use it without asking the registry.
    pub(super) async fn present(&self, inputs: &PullInputs<'_>) -> Result<Option<PresentImage>, Waiting> {
        let Some(present) = self.image_status(inputs, &inputs.spec).await? else { return Ok(None) };
        let is_usable = self.may_use(inputs, &present).await && self.is_accepted(inputs, &present).await;
        Ok(is_usable.then_some(present))
    }

    pub(super) async fn may_use(&self, inputs: &PullInputs<'_>, present: &PresentImage) -> bool {
        if self.verification == CredentialsVerification::Never {
            return true;
        }
        let image_ref = &present.image_ref;
        let pull_records = self.records.of_image(image_ref, inputs.image()).await;
        let pulled = match &pull_records.record {
            Some(record) => PullOrigin::Recorded(record),
            None if pull_records.intended => PullOrigin::Intended,
            None => PullOrigin::Preloaded,
        };
        let secrets = inputs.secrets.find(&inputs.repository);
        let is_ours = |name: &String| image_name::repository(name).is_ok_and(|name| name == inputs.repository);
        // A pull that was interrupted may have given it the name.
        let is_named = !pull_records.intended && present.names.iter().any(is_ours);
        let account = match &pull_records.record {
            Some(record) if has_accounts(record, &inputs.repository) => {
                self.credentials.service_account(&inputs.repository, inputs.pod).await
            }
            _ => None,
        };
        let check = verdict(&self.verification, &inputs.repository, is_named, pulled, &secrets, account.as_ref());
        metrics::count(Count::MustPullChecks, &[check.result()]);
        match check {
            CredentialCheck::Allowed | CredentialCheck::Recorded => true,
            CredentialCheck::RecordedFor(credential) => {
                self.record(inputs, image_ref, Some(credential)).await;
                true
            }
            CredentialCheck::Ask => false,
        }
    }

    /// Records the credentials that pulled the image. Returns whether they are recorded.
    pub(super) async fn record(
        &self,
        inputs: &PullInputs<'_>,
        image_ref: &str,
        credential: Option<&Credential>,
    ) -> bool {
        let recorded = self.records.record(image_ref, &inputs.repository, credential).await;
        if let Err(error) = &recorded {
            log!(warn, "failed to record image pull", image = inputs.image(), error = error);
        }
        recorded.is_ok()
    }

    /// The runtime's image with this name or id.
    pub(super) async fn image_status(
        &self,
        inputs: &PullInputs<'_>,
        spec: &ImageSpec,
    ) -> Result<Option<PresentImage>, Waiting> {
        match self.service.status(spec).await {
            Ok(image) => Ok(image.map(PresentImage::from)),
            Err(error) => Err(self.inspect_error(inputs, &ErrorChain(&error).to_string())),
        }
    }

    pub(super) fn inspect_error(&self, inputs: &PullInputs<'_>, error: &str) -> Waiting {
        let message = format!("Failed to inspect image {:?}: {error}", inputs.image());
        self.record_pull_event(inputs, EventKind::Warning, Reason::INSPECT_FAILED, message.clone());
        Waiting::new(Reason::IMAGE_INSPECT_ERROR, message)
    }

    pub(super) fn record_present_image(&self, inputs: &PullInputs<'_>) {
        let image = inputs.image();
        let message = format!("Container image {image:?} already present on machine and can be accessed by the pod");
        self.record_pull_event(inputs, EventKind::Normal, Reason::PULLED, message);
    }

    fn record_outage_fallback(&self, inputs: &PullInputs<'_>) {
        let (image, registry) = (inputs.image(), inputs.registry());
        let message = format!(
            "Registry {registry} cannot be reached: container image {image:?} is used as it is present on machine"
        );
        self.record_pull_event(inputs, EventKind::Warning, Reason::PULLED, message);
    }

    pub(super) fn record_pull_event(&self, inputs: &PullInputs<'_>, kind: EventKind, reason: Reason, message: String) {
        self.record_event(inputs.pod, inputs.wanted, kind, reason, message);
    }
}
