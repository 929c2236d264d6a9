//! The image service calls used by images, with errors as displayed.

use std::time::Duration;

use crate::platform::cri::v1::{AuthConfig, Image, ImageFsInfoResponse, ImageSpec, PodSandboxConfig};
use crate::platform::cri::{self, ImageService};
use crate::protocol::grpc::Code;
use crate::types::error::ErrorChain;

/// Generous, because a slow connection takes hours and the next pull resumes. The runtime itself aborts stalled
/// transfers much sooner.
const PULL_LIMIT: Duration = Duration::from_secs(4 * 60 * 60);

/// Errors are texts, as shown in a container's status.
pub(crate) trait Service {
    /// `None` if the runtime does not have the image.
    async fn status(&self, image: &ImageSpec) -> Result<Option<Image>, String>;

    /// Returns an image id or digest.
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

/// The runtime's message in upstream's format: the code `Unknown` is left out.
fn words(error: &cri::Error) -> String {
    match error.status() {
        Some(status) if status.code == Code::Unknown => status.message.clone(),
        Some(status) => format!("rpc error: code = {} desc = {}", status.code, status.message),
        None => ErrorChain(error).to_string(),
    }
}
