//! The image service.

use std::time::Duration;

use super::Error;
use super::call::{call, id as require};
use super::v1::*;
use crate::platform::rpc;
use crate::protocol::protobuf::{Message, encode, put_message};

/// A handle on the image service, which may have an endpoint of its own. Clones share its connection.
#[derive(Clone, Debug)]
pub struct ImageService {
    client: rpc::Client,
    /// The timeout of calls other than pulls.
    timeout: Duration,
}

/// Expands to a method's path.
macro_rules! path {
    ($method:literal) => {
        concat!("/runtime.v1.ImageService/", $method)
    };
}

impl ImageService {
    /// `timeout` is the kubelet's `runtimeRequestTimeout`.
    pub fn new(client: rpc::Client, timeout: Duration) -> Self {
        Self { client, timeout }
    }

    /// A handle whose calls are made for pods that need the image. All others are the node's own: they have a share of
    /// the connection that no pod can take.
    pub fn for_pods(&self, image: &str) -> Self {
        Self { client: self.client.of(image), timeout: self.timeout }
    }

    /// All images, or those that `image` refers to.
    pub async fn list_images(&self, image: Option<&ImageSpec>) -> Result<Vec<Image>, Error> {
        let filter = image.map(|image| ImageFilter { image: Some(image.clone()) });
        let request = ListImagesRequest { filter };
        let response: ListImagesResponse = self.call(path!("ListImages"), "", &request).await?;
        Ok(response.images)
    }

    /// The image; `None` if the runtime does not have it.
    pub async fn image_status(&self, image: &ImageSpec) -> Result<Option<Image>, Error> {
        let path = path!("ImageStatus");
        let request = ImageStatusRequest { image: Some(image.clone()), verbose: false };
        let response: ImageStatusResponse = self.call(path, &image.image, &request).await?;
        match response.image {
            Some(image_entry) if image_entry.id.is_empty() => Err(Error::lacks(path, &image.image, "image id")),
            image_entry => Ok(image_entry),
        }
    }

    /// Pulls the image within `limit`. Returns its id or digest.
    pub async fn pull_image(
        &self,
        image: &ImageSpec,
        auth: Option<&AuthConfig>,
        sandbox_config: Option<&PodSandboxConfig>,
        limit: Duration,
    ) -> Result<String, Error> {
        let path = path!("PullImage");
        let mut request = Vec::new();
        put_message(1, image, &mut request);
        if let Some(auth) = auth {
            put_message(2, auth, &mut request);
        }
        if let Some(config) = sandbox_config {
            put_message(3, config, &mut request);
        }
        let response: PullImageResponse = call(&self.client, path, &image.image, request, limit).await?;
        require(response.image_ref, "image reference", path, &image.image)
    }

    /// Idempotent: a missing image is no error.
    pub async fn remove_image(&self, image: &ImageSpec) -> Result<(), Error> {
        let request = RemoveImageRequest { image: Some(image.clone()) };
        let RemoveImageResponse {} = self.call(path!("RemoveImage"), &image.image, &request).await?;
        Ok(())
    }

    /// The usage of the image and container file systems.
    pub async fn image_fs_info(&self) -> Result<ImageFsInfoResponse, Error> {
        self.call(path!("ImageFsInfo"), "", &ImageFsInfoRequest {}).await
    }

    async fn call<M: Message + Default>(
        &self,
        path: &'static str,
        subject: &str,
        request: &dyn Message,
    ) -> Result<M, Error> {
        call(&self.client, path, subject, encode(request), self.timeout).await
    }
}
