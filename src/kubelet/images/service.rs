//! The few calls of the image service that images take, and its errors.

use std::fmt;
use std::time::Duration;

use crate::platform::cri::v1::{AuthConfig, Image, ImageFsInfoResponse, ImageSpec, PodSandboxConfig};
use crate::platform::cri::{self, ImageService};
use crate::protocol::grpc::{Code, Status};

/// A pull may take long: a board's line is slow, and the next try goes on from what is there. A transfer that stands
/// still is ended by the runtime, much sooner.
const PULL_LIMIT: Duration = Duration::from_secs(4 * 60 * 60);

pub(crate) trait Service {
    /// `None` if the runtime does not have the image.
    async fn status(&self, image: &ImageSpec) -> Result<Option<Image>, ImageError>;

    /// Gives an image id or digest.
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
        Ok(self.image_status(image).await?)
    }

    async fn pull(
        &self,
        image: &ImageSpec,
        auth: Option<&AuthConfig>,
        sandbox: &PodSandboxConfig,
    ) -> Result<String, ImageError> {
        Ok(self.pull_image(image, auth, Some(sandbox), PULL_LIMIT).await?)
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

/// A call to the image service that failed.
#[derive(Clone, Debug)]
pub(crate) enum ImageError {
    /// The runtime did not answer, or with what cannot be read.
    Call(cri::Error),
    /// The runtime's own word.
    Runtime(Status),
}

impl From<cri::Error> for ImageError {
    fn from(error: cri::Error) -> Self {
        error.status().cloned().map_or(Self::Call(error), Self::Runtime)
    }
}

impl fmt::Display for ImageError {
    /// The runtime's words as the upstream kubelet shows them: `Unknown` says nothing and is left out.
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
