//! The runtime's image file systems, and removal of unused images.

use std::path::PathBuf;
use std::sync::Arc;

use crate::kubelet::images::CollectError;
use crate::kubelet::kuberuntime::PodRuntime;
use crate::types::api::Pod;

impl PodRuntime {
    /// Directory of the runtime's images, and of writable layers if they are elsewhere.
    pub(crate) async fn disks(&self) -> Option<(PathBuf, Option<PathBuf>)> {
        self.images.disks().await.ok()
    }

    /// Removes every image that no container and none of the `pods` uses, whatever the disk usage. Returns the bytes
    /// freed.
    pub(crate) async fn free_images(&self, pods: &[Arc<Pod>]) -> Result<u64, CollectError> {
        let in_use = self.images_in_use(pods).await?;
        self.images.free(u64::MAX, &in_use).await
    }

    /// Removes parts of images that are not being fetched. Returns the bytes freed.
    pub(crate) async fn free_image_parts(&self) -> u64 {
        self.images.free_all_parts().await
    }
}
