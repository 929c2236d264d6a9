//! The few calls of the image service that images take, and its errors in the words that are shown.

use std::time::Duration;

use crate::platform::cri::v1::{AuthConfig, Image, ImageFsInfoResponse, ImageSpec, PodSandboxConfig};
use crate::platform::cri::{self, ImageService};
use crate::protocol::grpc::Code;
use crate::types::error::ErrorChain;

/// A pull may take long: a board's line is slow, and the next try goes on from what is there. A transfer that stands
/// still is ended by the runtime, much sooner.
const PULL_LIMIT: Duration = Duration::from_secs(4 * 60 * 60);

/// Errors are texts, as they are shown of a container.
pub(crate) trait Service {
    /// `None` if the runtime does not have the image.
    async fn status(&self, image: &ImageSpec) -> Result<Option<Image>, String>;

    /// Gives an image id or digest.
    async fn pull(
        &self,
        image: &ImageSpec,
        auth: Option<&AuthConfig>,
        sandbox: &PodSandboxConfig,
    ) -> Result<String, String>;

    async fn list(&self) -> Result<Vec<Image>, String>;

    async fn remove(&self, image: &ImageSpec) -> Result<(), String>;

    async fn image_fs_info(&self) -> Result<ImageFsInfoResponse, String>;
}

impl Service for ImageService {
    async fn status(&self, image: &ImageSpec) -> Result<Option<Image>, String> {
        self.image_status(image).await.map_err(|error| words(&error))
    }

    async fn pull(
        &self,
        image: &ImageSpec,
        auth: Option<&AuthConfig>,
        sandbox: &PodSandboxConfig,
    ) -> Result<String, String> {
        self.pull_image(image, auth, Some(sandbox), PULL_LIMIT).await.map_err(|error| words(&error))
    }

    async fn list(&self) -> Result<Vec<Image>, String> {
        self.list_images(None).await.map_err(|error| words(&error))
    }

    async fn remove(&self, image: &ImageSpec) -> Result<(), String> {
        self.remove_image(image).await.map_err(|error| words(&error))
    }

    async fn image_fs_info(&self) -> Result<ImageFsInfoResponse, String> {
        ImageService::image_fs_info(self).await.map_err(|error| words(&error))
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
