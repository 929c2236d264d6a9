//! Resizes the pod's sandbox and cgroup around the resize of its containers.
//!
//! As `doPodResizeAction` in pkg/kubelet/kuberuntime: the runtime gets the new values before the cgroup changes, and
//! may refuse them.

use crate::control::pod_workers::error::SyncError;
use crate::kubelet::container_manager::{ContainerManager, ResizeSteps};
use crate::kubelet::kuberuntime::PodRuntime;
use crate::platform::cgroups::Values;
use crate::state::pods::ObservedPod;
use crate::types::api::Pod;

#[derive(Clone, Copy)]
pub(super) struct PodResize<'a> {
    pub(super) runtime: &'a PodRuntime,
    pub(super) groups: &'a ContainerManager,
    pub(super) pod: &'a Pod,
    pub(super) observed: &'a ObservedPod,
}

impl PodResize<'_> {
    /// Makes room in the pod's cgroup for containers that grow. Returns the steps of the cgroup, if it has one.
    pub(super) async fn begin(&self) -> Result<Option<ResizeSteps>, SyncError> {
        let Some(steps) = self.groups.resize_steps(self.pod).await else {
            self.update_sandbox(None).await?;
            return Ok(None);
        };
        if let Some(values) = steps.before() {
            self.update_sandbox(Some(values)).await?;
        }
        if let Err(error) = self.groups.widen_pod(self.pod).await {
            // The cgroup stays as it is.
            let _ = self.update_sandbox(Some(steps.present())).await;
            return Err(SyncError::Cgroup(error));
        }
        Ok(Some(steps))
    }

    /// Gives the pod's cgroup its new values, after containers that shrink.
    pub(super) async fn end(&self, steps: Option<&ResizeSteps>) -> Result<(), SyncError> {
        if let Some(values) = steps.and_then(ResizeSteps::after) {
            self.update_sandbox(Some(values)).await?;
        }
        self.groups.ensure_pod(self.pod).await.map_err(SyncError::Cgroup)?;
        self.runtime.resources.record_pod(self.pod);
        Ok(())
    }

    async fn update_sandbox(&self, values: Option<&Values>) -> Result<(), SyncError> {
        let Some(sandbox) = self.observed.ready_sandbox() else { return Ok(()) };
        self.runtime.resources.update_sandbox(self.pod, &sandbox.id, values).await.map_err(SyncError::ResizeRefused)
    }
}
