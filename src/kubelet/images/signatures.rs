//! The signature policy at the door of images: whatever way an image comes, a pod gets it only if the policy accepts it.
//!
//! ```text
//!   pull      -> manifests and signatures from the registry -> judge -> pull by digest -> the runtime's id is the signed one
//!   present   -> kept signatures of the runtime's id        -> judge
//!             -> else those of the archive that it came from  -> judge
//!             -> else those of the registry for its digest  -> judge
//! ```
//!
//! The runtime's id of an image is the digest of its configuration, which names the content of all layers. The signed
//! manifest names the configuration. So archives, deltas and copies of other nodes need no way of their own.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::ensure_image::PullInputs;
use super::kept_signatures::{KeptSignatures, hex_of};
use super::pull_error::{PullError, waiting};
use super::service::{ImageError, Service};
use super::{Images, PresentImage, pull_policy};
use crate::kubelet::image_archives::ImportTool;
use crate::kubelet::image_archives::image_name::{Reference, reference};
use crate::kubelet::image_credentials::Credential;
use crate::kubelet::image_signatures::{Evidence, Refusal, Requirement, SignedImage, judge, read_policy};
use crate::kubelet::image_transfer::{FetchError, ManifestFetch, Passage};
use crate::platform::cri::RuntimeService;
use crate::platform::cri::v1::{AuthConfig, ImageSpec};
use crate::platform::net::ProxySettings;
use crate::platform::rt;
use crate::protocol::grpc::{Code, Status};
use crate::state::pods::Waiting;
use crate::types::api::{EventKind, Reason};

/// Judges images by the policy, with signatures from their registries or of earlier pulls.
pub(crate) struct SignatureGate {
    policy: PathBuf,
    pub(super) kept: KeptSignatures,
    fetch: ManifestFetch,
    /// The runtime's endpoint for images.
    endpoint: PathBuf,
    runtime: RuntimeService,
}

/// Paths of the gate.
pub(crate) struct SignaturePlaces {
    pub(crate) policy: PathBuf,
    /// Coracle's own directory.
    pub(crate) directory: PathBuf,
    /// containerd's directory of `hosts.toml` files.
    pub(crate) hosts: PathBuf,
    pub(crate) endpoint: PathBuf,
    pub(crate) proxies: Arc<ProxySettings>,
}

/// What an image has to satisfy.
#[derive(Clone)]
pub(super) struct Demands {
    image: Reference,
    requirements: Vec<Requirement>,
}

/// An image that the policy accepts, before it is pulled.
pub(super) struct Verified {
    image: Reference,
    evidence: Evidence,
    signed: SignedImage,
}

impl SignaturePlaces {
    /// The directory of kept signatures.
    pub(crate) fn kept(&self) -> PathBuf {
        kept_directory(&self.directory)
    }
}

fn kept_directory(directory: &Path) -> PathBuf {
    directory.join("image-signatures")
}

impl SignatureGate {
    pub(crate) fn new(places: SignaturePlaces, runtime: RuntimeService) -> Self {
        let SignaturePlaces { policy, directory, hosts, endpoint, proxies } = places;
        let fetch = ManifestFetch::new(directory.join("signature-fetch"), hosts, proxies);
        let kept = KeptSignatures::new(kept_directory(&directory));
        Self { policy, kept, fetch, endpoint, runtime }
    }

    /// `None` if the policy accepts the image whatever it is.
    async fn demands(&self, image: &str) -> Result<Option<Demands>, Refusal> {
        let policy = read_policy(&self.policy).await.map_err(Refusal::because)?;
        let image = reference(image).map_err(|error| Refusal::because(error.to_string()))?.in_pod();
        let requirements = policy.requirements(&image).to_vec();
        if let Some(rejection) = requirements.iter().find_map(Requirement::rejection) {
            return Err(rejection);
        }
        Ok(requirements.iter().any(Requirement::is_judged).then_some(Demands { image, requirements }))
    }

    /// Fetches the manifests and signatures of `image`, which is the demanded one or the same by digest.
    async fn evidence(
        &self,
        demands: &Demands,
        image: &Reference,
        auth: Option<&AuthConfig>,
        passage: Passage<'_>,
    ) -> Result<Evidence, FetchError> {
        let checked_demands = demands.clone();
        let is_enough = move |evidence: &Evidence| checked_demands.judge(evidence).is_ok();
        self.fetch.evidence(image, auth, passage, Box::new(is_enough)).await
    }

    /// Judges a present image by what is kept about it, else by the archive that it came from. The error is `None` if
    /// nothing is known.
    async fn judge_kept(&self, demands: &Demands, id: &str, repository: &str) -> Result<(), Option<Refusal>> {
        let kept = self.kept.of(id, repository).await;
        let kept = kept.map(|evidence| demands.judge_present(&evidence, id));
        if let Some(Ok(())) = kept {
            return Ok(());
        }
        match self.kept.of_archive(id).await {
            None => Err(kept.and_then(Result::err)),
            Some(Err(problem)) => Err(Some(Refusal::because(format!("the signatures of its archive: {problem}")))),
            Some(Ok(evidence)) => {
                demands.judge_present(&evidence, id).map_err(Some)?;
                self.keep(id, repository, &evidence).await;
                Ok(())
            }
        }
    }

    async fn keep(&self, id: &str, repository: &str, evidence: &Evidence) {
        if let Err(error) = self.kept.keep(id, repository, evidence).await {
            // It is verified again with the registry.
            log!(warn, "failed to keep image signatures", image = id, error = error);
        }
    }

    /// Gives an image that was pulled by its digest the name by which pods know it.
    async fn name(&self, verified: &Verified) {
        let Verified { image, signed, .. } = verified;
        if image.digest().is_some() {
            return;
        }
        let from = [image.repository(), "@".to_owned(), signed.digest.to_string()].concat();
        let to = [image.repository(), image.suffix().unwrap_or_default()].concat();
        let named = match self.runtime.version().await {
            Ok(version) => match ImportTool::of(&version.runtime_name, &self.endpoint) {
                Some(tool) => tool.name_image(&from, &to).await.map_err(|failure| failure.to_string()),
                None => Err(format!("no tool is known for the runtime {}", version.runtime_name)),
            },
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = named {
            // It runs, and its status shows the digest; without the name the next start pulls it again.
            log!(warn, "failed to name image pulled by digest", image = to, error = error);
        }
    }
}

impl Demands {
    fn judge(&self, evidence: &Evidence) -> Result<SignedImage, Refusal> {
        judge(&self.requirements, &self.image, evidence)
    }

    /// Whether the evidence is of the present image with this id, and the policy accepts it.
    fn judge_present(&self, evidence: &Evidence, id: &str) -> Result<(), Refusal> {
        let signed = self.judge(evidence)?;
        let other = || Refusal::because(format!("the present image is not the signed {}", signed.image_id));
        is_image(&signed, id).then_some(()).ok_or_else(other)
    }
}

impl Verified {
    /// By which the image is pulled. An image by digest stays the one that the pod names.
    pub(super) fn digest(&self) -> String {
        self.image.digest().map_or_else(|| self.signed.digest.to_string(), str::to_owned)
    }

    pub(super) fn name_by_digest(&self) -> String {
        [self.image.repository(), "@".to_owned(), self.digest()].concat()
    }
}

impl<S: Service> Images<S> {
    async fn demands(&self, inputs: &PullInputs<'_>) -> Result<Option<Demands>, Refusal> {
        match &self.signatures {
            Some(gate) => gate.demands(&inputs.spec.image).await,
            None => Ok(None),
        }
    }

    /// Whether the policy accepts a present image by what is kept about it.
    pub(super) async fn is_accepted(&self, inputs: &PullInputs<'_>, present: &PresentImage) -> bool {
        let Some(gate) = &self.signatures else { return true };
        let Ok(demands) = gate.demands(&inputs.spec.image).await else { return false };
        let Some(demands) = demands else { return true };
        gate.judge_kept(&demands, &present.image_ref, &inputs.repository).await.is_ok()
    }

    /// The image that the registry has under this name now, if the policy accepts it. `None`: it is not judged.
    pub(super) async fn verify(
        &self,
        inputs: &PullInputs<'_>,
        auth: Option<&AuthConfig>,
    ) -> Result<Option<Verified>, PullError> {
        let (Some(gate), Some(demands)) = (&self.signatures, self.demands(inputs).await.map_err(PullError::Refused)?)
        else {
            return Ok(None);
        };
        let pod = inputs.pod.metadata.uid.as_str();
        let passage = Passage { budget: &self.budget, is_urgent: inputs.is_urgent(), pod };
        let evidence = gate.evidence(&demands, &demands.image, auth, passage).await.map_err(failed)?;
        let signed = demands.judge(&evidence).map_err(PullError::Refused)?;
        Ok(Some(Verified { image: demands.image, evidence, signed }))
    }

    /// Compares the image that a pull has brought with the signed one, keeps its signatures, and names it.
    pub(super) async fn confirm(&self, verified: &Verified, image_ref: &str) -> Result<(), PullError> {
        let Some(gate) = &self.signatures else { return Ok(()) };
        let spec = ImageSpec { image: image_ref.to_owned(), ..ImageSpec::default() };
        let image_id = self.service.status(&spec).await?.map(|image| image.id).unwrap_or_default();
        if !is_image(&verified.signed, &image_id) {
            let why = format!("the runtime has pulled the image {image_id:?}, signed is {}", verified.signed.image_id);
            return Err(PullError::Refused(Refusal::because(why)));
        }
        gate.keep(&image_id, &verified.image.repository(), &verified.evidence).await;
        // A fetched image is imported with its names.
        if self.fetcher.is_none() {
            gate.name(verified).await;
        }
        Ok(())
    }

    /// The present image, if the registry has signatures of its digest that the policy accepts.
    pub(super) async fn present_if_signed(&self, inputs: &PullInputs<'_>) -> Result<Option<PresentImage>, Waiting> {
        let Some(gate) = &self.signatures else { return Ok(None) };
        let Some(present) = self.image_status(inputs, &inputs.spec).await? else { return Ok(None) };
        let demands = match gate.demands(&inputs.spec.image).await {
            Ok(Some(demands)) => demands,
            Ok(None) => return Ok(None),
            Err(refusal) => return self.refuse_present(inputs, refusal),
        };
        if !self.may_use(inputs, &present).await {
            return Ok(None);
        }
        if let Some(failure) = self.last_failure(inputs) {
            return if pull_policy::pulls(inputs.policy) { Ok(None) } else { Err(self.back_off(inputs, &failure)) };
        }
        match self.verify_present(gate, &demands, inputs, &present).await {
            Ok(()) => Ok(Some(present)),
            Err(refusal) => self.refuse_present(inputs, refusal),
        }
    }

    /// An image that may be pulled gets another chance with what the registry has.
    fn refuse_present(&self, inputs: &PullInputs<'_>, refusal: Refusal) -> Result<Option<PresentImage>, Waiting> {
        if pull_policy::pulls(inputs.policy) {
            log!(info, "present image is not used", image = inputs.image(), reason = refusal);
            return Ok(None);
        }
        let image = inputs.image();
        let waiting = waiting(image, &PullError::Refused(refusal).to_string());
        self.record_pull_event(inputs, EventKind::Warning, Reason::FAILED, waiting.message.clone());
        let text = format!("{}: {}", waiting.reason, waiting.message);
        let (uid, secrets) = (&inputs.pod.metadata.uid, inputs.secrets.mark());
        self.backoff.borrow_mut().failed(uid, image, text, secrets, rt::now());
        Err(waiting)
    }

    async fn verify_present(
        &self,
        gate: &SignatureGate,
        demands: &Demands,
        inputs: &PullInputs<'_>,
        present: &PresentImage,
    ) -> Result<(), Refusal> {
        let known = match gate.judge_kept(demands, &present.image_ref, &inputs.repository).await {
            Ok(()) => return Ok(()),
            Err(known) => known
                .map_or_else(|| "the present image has no kept signature".to_owned(), |refusal| refusal.to_string()),
        };
        let by_digest = demands.image.digest().map(|_| demands.image.clone());
        let named = present.names.iter().filter_map(|name| reference(name).ok());
        let mut named = named.filter(|name| name.digest().is_some() && name.repository() == inputs.repository);
        let by_digest = by_digest
            .or_else(|| named.next())
            .ok_or_else(|| Refusal::because(format!("{known}; it has no digest by which a registry could be asked")))?;
        let pod = inputs.pod.metadata.uid.as_str();
        // An image that is here needs no window.
        let passage = Passage { budget: &self.budget, is_urgent: true, pod };
        let credentials = self.all_credentials(inputs).await;
        let mut refusal = Refusal::because("no credentials");
        for auth in auths(&credentials) {
            let evidence = match gate.evidence(demands, &by_digest, auth.as_ref(), passage).await {
                Ok(evidence) => evidence,
                Err(error) => {
                    refusal = Refusal::because(format!("{known}; its registry: {error}"));
                    continue;
                }
            };
            demands.judge_present(&evidence, &present.image_ref)?;
            gate.keep(&present.image_ref, &inputs.repository, &evidence).await;
            return Ok(());
        }
        Err(refusal)
    }

    /// The credentials of the pod and the node for the image.
    pub(super) async fn all_credentials(&self, inputs: &PullInputs<'_>) -> Vec<Credential> {
        let mut credentials: Vec<Credential> = inputs.secrets.find(&inputs.repository).into_iter().cloned().collect();
        credentials.extend(self.credentials.find(&inputs.repository, inputs.pod).await);
        credentials
    }
}

/// Each login is tried until one is accepted; none if there are none.
pub(super) fn auths(credentials: &[Credential]) -> Vec<Option<AuthConfig>> {
    let auths = credentials.iter().map(|credential| Some(credential.login.auth_config()));
    if credentials.is_empty() { vec![None] } else { auths.collect() }
}

fn is_image(signed: &SignedImage, id: &str) -> bool {
    hex_of(id) == Some(signed.image_id.hex())
}

/// In the form of errors of the runtime's own pull.
fn failed(error: FetchError) -> PullError {
    match error {
        FetchError::Held => PullError::Held,
        FetchError::Signatures(problem) => PullError::Refused(Refusal::because(problem)),
        error => ImageError::Runtime(Status::new(Code::Unknown, format!("fetch signatures: {error}"))).into(),
    }
}

impl fmt::Debug for SignatureGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SignatureGate({})", self.policy.display())
    }
}

#[cfg(test)]
mod tests;
