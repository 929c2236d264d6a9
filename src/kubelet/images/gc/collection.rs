//! One collection: the images in use, and the events of failures.

use std::sync::Arc;

use super::manager::CollectError;
use super::policy::InUse;
use crate::kubelet::images::Images;
use crate::kubelet::images::service::Service;
use crate::platform::cri::{self, RuntimeService};
use crate::state::pods::{NodeEvent, SyncEvent};
use crate::types::api::{EventKind, Pod, Reason, VolumeSource};
use crate::types::error::ErrorChain;
use crate::types::sorted::SortedSet;

impl<S: Service> Images<S> {
    /// Removes unused images if the disk is too full. The images of all `pods` stay, whether they run or not.
    pub(crate) async fn collect_garbage(&self, runtime: &RuntimeService, pods: &[Arc<Pod>]) {
        let collected = async {
            if self.needs_collecting().await? {
                let in_use = self.in_use(runtime, pods).await?;
                self.collect(&in_use).await?;
            }
            Ok(())
        };
        let failed = match collected.await {
            Ok(()) => false,
            Err(error) => {
                self.record_collect_error(&error);
                true
            }
        };
        self.gc.has_failed.set(failed);
    }

    fn record_collect_error(&self, error: &CollectError) {
        let (reasons, message) = event_of(error, self.gc.has_failed.get());
        if reasons.is_empty() {
            log!(info, "failed to collect images", error = message);
        }
        for reason in reasons {
            let event = NodeEvent::new(EventKind::Warning, reason, message);
            // Events may be dropped when the inbox is full.
            let _ = self.inbox.try_send(SyncEvent::NodeEvent(event));
        }
    }

    /// Images used by containers, by known pods, by sandboxes and by archives. If any of these is unknown, it fails
    /// and no image counts as unused.
    pub(crate) async fn in_use(&self, runtime: &RuntimeService, pods: &[Arc<Pod>]) -> Result<InUse, CollectError> {
        let failed = |error: &cri::Error| CollectError::Failed(ErrorChain(error).to_string());
        let mut in_use = InUse::default();
        for container in runtime.list_containers(None).await.map_err(|error| failed(&error))? {
            in_use.add(container.image_ref);
            in_use.add(container.image_id);
            in_use.add(container.image.unwrap_or_default().image);
        }
        let sandbox_image = runtime.status(true).await.map_err(|error| failed(&error))?.sandbox_image();
        let pinned = self.archives().pinned();
        let pinned = pinned.iter().map(|(image, _)| image.as_str());
        let names: SortedSet<&str> =
            pods.iter().flat_map(|pod| images_of(pod)).chain(sandbox_image.as_deref()).chain(pinned).collect();
        for name in names {
            in_use.want(name);
            if let Some(id) = self.id_of(name).await? {
                in_use.add(id);
            }
        }
        Ok(in_use)
    }
}

/// The reasons and the message of the events. `again`: the previous collection failed too; a single failure may just
/// be a restart of the runtime.
fn event_of(error: &CollectError, again: bool) -> (Vec<Reason>, &str) {
    let (reason, message) = match error {
        CollectError::InvalidCapacity => {
            (Some(Reason::INVALID_DISK_CAPACITY), "invalid capacity 0 on image filesystem")
        }
        CollectError::NotEnough(message) => (Some(Reason::FREE_DISK_SPACE_FAILED), message.as_str()),
        CollectError::Failed(message) => (None, message.as_str()),
    };
    (reason.into_iter().chain(again.then_some(Reason::IMAGE_GC_FAILED)).collect(), message)
}

/// The images of the containers and image volumes of a pod.
pub(crate) fn images_of(pod: &Pod) -> impl Iterator<Item = &str> {
    let mounted = pod.spec.volumes.iter().filter_map(|volume| match &volume.source {
        VolumeSource::Image(source) => Some(source.reference.as_str()),
        _ => None,
    });
    pod.spec.all_containers().map(|container| container.image.as_str()).chain(mounted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lack_of_space_is_reported_at_once_and_failures_when_repeated() {
        let (few, failed) = (CollectError::NotEnough("too few".to_owned()), CollectError::Failed("broken".to_owned()));
        for (error, again, reasons, message) in [
            (&failed, false, &[][..], "broken"),
            (&failed, true, &["ImageGCFailed"], "broken"),
            (&few, false, &["FreeDiskSpaceFailed"], "too few"),
            (&few, true, &["FreeDiskSpaceFailed", "ImageGCFailed"], "too few"),
            (&CollectError::InvalidCapacity, false, &["InvalidDiskCapacity"], "invalid capacity 0 on image filesystem"),
        ] {
            let (found, text) = event_of(error, again);
            assert_eq!((found.iter().map(Reason::as_str).collect::<Vec<_>>().as_slice(), text), (reasons, message));
        }
    }
}
