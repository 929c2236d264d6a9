//! The image service calls used by images, and their errors.

use std::fmt;
use std::time::Duration;

use crate::platform::cri::v1::{AuthConfig, Image, ImageFsInfoResponse, ImageSpec, PodSandboxConfig};
use crate::platform::cri::{self, ImageService};
use crate::protocol::grpc::{Code, Status};

/// Generous, because a slow connection takes hours and the next pull resumes. The runtime itself aborts stalled
/// transfers much sooner.
const PULL_LIMIT: Duration = Duration::from_secs(4 * 60 * 60);

pub(crate) trait Service {
    /// `None` if the runtime does not have the image.
    async fn status(&self, image: &ImageSpec) -> Result<Option<Image>, ImageError>;

    /// Returns an image id or digest.
    async fn pull(
        &self,
        image: &ImageSpec,
        auth: Option<&AuthConfig>,
        sandbox: &PodSandboxConfig,
    ) -> Result<String, ImageError>;

    async fn list(&self) -> Result<Vec<Image>, ImageError>;

    async fn remove(&self, image: &ImageSpec) -> Result<(), ImageError>;

    async fn image_fs_info(&self) -> Result<ImageFsInfoResponse, ImageError>;
}

impl Service for ImageService {
    async fn status(&self, image: &ImageSpec) -> Result<Option<Image>, ImageError> {
        Ok(self.for_pods(&image.image).image_status(image).await?)
    }

    async fn pull(
        &self,
        image: &ImageSpec,
        auth: Option<&AuthConfig>,
        sandbox: &PodSandboxConfig,
    ) -> Result<String, ImageError> {
        Ok(self.for_pods(&image.image).pull_image(image, auth, Some(sandbox), PULL_LIMIT).await?)
    }

    async fn list(&self) -> Result<Vec<Image>, ImageError> {
        Ok(self.list_images(None).await?)
    }

    async fn remove(&self, image: &ImageSpec) -> Result<(), ImageError> {
        Ok(self.remove_image(image).await?)
    }

    async fn image_fs_info(&self) -> Result<ImageFsInfoResponse, ImageError> {
        Ok(ImageService::image_fs_info(self).await?)
    }
}

/// A failed call to the image service.
#[derive(Clone, Debug)]
pub(crate) enum ImageError {
    /// The runtime did not answer, or its answer is malformed.
    Call(cri::Error),
    /// An error status from the runtime.
    Runtime(Status),
}

impl From<cri::Error> for ImageError {
    fn from(error: cri::Error) -> Self {
        error.status().cloned().map_or(Self::Call(error), Self::Runtime)
    }
}

impl fmt::Display for ImageError {
    /// The runtime's message in upstream's format: the code `Unknown` is left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(error) => error.fmt(f),
            Self::Runtime(Status { code: Code::Unknown, message }) => f.write_str(message),
            Self::Runtime(Status { code, message }) => write!(f, "rpc error: code = {code} desc = {message}"),
        }
    }
}

impl std::error::Error for ImageError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Call(error) => error.source(),
            Self::Runtime(_) => None,
        }
    }
}
