//! The few calls of the image service that bringing an image takes, and its errors in the words that are shown.

use std::time::Duration;

use crate::cri::v1::{Image, ImageSpec, PodSandboxConfig};
use crate::cri::{self, ImageService};
use crate::error::ErrorChain;
use crate::wire::grpc::Code;

/// A pull may take long: a board's line is slow, and the next try goes on from what is there. A transfer that stands
/// still is ended by the runtime, much sooner.
const PULL_LIMIT: Duration = Duration::from_secs(4 * 60 * 60);

/// Errors are texts, as they are shown of a container.
pub(crate) trait Service {
    /// `None` if the runtime does not have the image.
    async fn status(&self, image: &ImageSpec) -> Result<Option<Image>, String>;

    /// Gives an image id or digest.
    async fn pull(&self, image: &ImageSpec, sandbox: &PodSandboxConfig) -> Result<String, String>;
}

impl Service for ImageService {
    async fn status(&self, image: &ImageSpec) -> Result<Option<Image>, String> {
        self.image_status(image).await.map_err(|error| words(&error))
    }

    async fn pull(&self, image: &ImageSpec, sandbox: &PodSandboxConfig) -> Result<String, String> {
        self.pull_image(image, None, Some(sandbox), PULL_LIMIT).await.map_err(|error| words(&error))
    }
}

/// The runtime's own words as the upstream kubelet shows them: `Unknown` says nothing and is left out.
fn words(error: &cri::Error) -> String {
    match error.status() {
        Some(status) if status.code == Code::Unknown => status.message.clone(),
        Some(status) => format!("rpc error: code = {} desc = {}", status.code, status.message),
        None => ErrorChain(error).to_string(),
    }
}
