//! The runtime's image file systems, and removal of unused images.

use std::path::PathBuf;
use std::sync::Arc;

use crate::kubelet::images::CollectError;
use crate::kubelet::kuberuntime::known_images::NodeImages;
use crate::types::api::Pod;

impl NodeImages {
    /// Directory of the runtime's images, and of writable layers if they are elsewhere.
    pub(crate) async fn disks(&self) -> Option<(PathBuf, Option<PathBuf>)> {
        self.pulls.disks().await.ok()
    }

    /// Whether image garbage collection is enabled.
    pub(crate) fn collects(&self) -> bool {
        self.pulls.collects()
    }

    /// Whether images were pulled since the last call.
    pub(crate) fn has_pulled(&self) -> bool {
        self.pulls.has_pulled()
    }

    /// Removes unused images if the disk is too full. The images of all `pods` stay, whether they run or not.
    pub(crate) async fn collect_garbage(&self, pods: &[Arc<Pod>]) {
        self.pulls.collect_garbage(&self.cri, pods).await;
    }

    /// Removes every image that no container and none of the `pods` uses, whatever the disk usage. Returns the bytes
    /// freed.
    pub(crate) async fn free_unused(&self, pods: &[Arc<Pod>]) -> Result<u64, CollectError> {
        let in_use = self.pulls.in_use(&self.cri, pods).await?;
        self.pulls.free(u64::MAX, &in_use).await
    }

    /// Removes parts of images that are not being fetched. Returns the bytes freed.
    pub(crate) async fn free_parts(&self) -> u64 {
        self.pulls.free_all_parts().await
    }
}
