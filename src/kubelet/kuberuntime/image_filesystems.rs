//! Where the runtime keeps images and containers, and what can be given back of it.

use std::path::PathBuf;
use std::sync::Arc;

use crate::kubelet::images::CollectError;
use crate::kubelet::kuberuntime::PodRuntime;
use crate::types::api::Pod;

impl PodRuntime {
    /// Where the runtime has its images, and where it has writable layers if it tells that they are elsewhere.
    pub(crate) async fn disks(&self) -> Option<(PathBuf, Option<PathBuf>)> {
        self.images.disks().await.ok()
    }

    /// Removes every image that neither a container nor any of the `pods` needs, whether there is room or not. Gives how
    /// many bytes that were.
    pub(crate) async fn free_images(&self, pods: &[Arc<Pod>]) -> Result<u64, CollectError> {
        let in_use = self.images_in_use(pods).await?;
        self.images.free(u64::MAX, &in_use).await
    }
}
