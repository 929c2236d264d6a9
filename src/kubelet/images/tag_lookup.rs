//! Looks up what a registry has under the tag of an image.

use std::time::Duration;

use super::ensure_image::PullInputs;
use super::service::Service;
use super::signatures::auths;
use super::{Images, WantedImage};
use crate::kubelet::image_archives::image_name::reference;
use crate::kubelet::image_credentials::PullSecrets;
use crate::kubelet::image_transfer::{FetchError, Hold, Passage};
use crate::platform::cri::v1::PodSandboxConfig;
use crate::platform::rt;
use crate::state::pods::{TagTarget, Waiting};
use crate::types::api::{Pod, Reason};

/// A lookup that windows or budgets hold is tried again at least this often, because the clock may be set.
const MAX_LOOKUP_HOLD: Duration = Duration::from_secs(3600);
/// A window that begins at this moment must not make the node spin.
const MIN_LOOKUP_HOLD: Duration = Duration::from_secs(1);

impl<S: Service> Images<S> {
    /// The target of the image's tag, with the credentials of the pod and the node, within the windows and budgets of
    /// pulls.
    pub(crate) async fn look_up_tag(&self, pod: &Pod, image: &str, secrets: PullSecrets) -> Result<TagTarget, Waiting> {
        let failed = |message: String| Waiting::new(Reason::ERR_IMAGE_PULL, format!("{image}: {message}"));
        let Some(manifests) = &self.manifests else { return Err(failed("no registry".to_owned())) };
        let sandbox = PodSandboxConfig::default();
        let wanted = WantedImage { image, policy: None, container: None };
        let inputs = PullInputs::new(pod, wanted, &sandbox, secrets).await?;
        if let Some(hold) = self.budget.hold().filter(|_| !inputs.is_urgent()) {
            return Err(held(image, &hold));
        }
        let name = reference(&inputs.spec.image).map_err(|error| failed(error.to_string()))?;
        let uid = pod.metadata.uid.as_str();
        let passage = Passage { budget: &self.budget, is_urgent: inputs.is_urgent(), pod: uid };
        let mut last = FetchError::NoResult;
        for auth in auths(&self.all_credentials(&inputs).await) {
            match manifests.target(&name, auth.as_ref(), passage).await {
                Ok(target) => return Ok(target),
                Err(error) => last = error,
            }
        }
        Err(match (last, self.budget.hold()) {
            (FetchError::Held, Some(hold)) => held(image, &hold),
            (error, _) => failed(error.to_string()),
        })
    }
}

fn held(image: &str, hold: &Hold) -> Waiting {
    let until = Some(rt::now() + hold.wait.clamp(MIN_LOOKUP_HOLD, MAX_LOOKUP_HOLD));
    let message = format!("Lookup of image {image:?} waits: {}", hold.why);
    Waiting { until, ..Waiting::new(Reason::IMAGE_PULL_WAITING, message) }
}
