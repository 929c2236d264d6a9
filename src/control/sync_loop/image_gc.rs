//! Schedules image garbage collection: after image loads, and every five minutes after a relist.

use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::control::pod_table::{Effect, PodTable};
use crate::control::versions::PodVersions;
use crate::platform::rt;

/// Upstream's period. Relists are frequent enough to check it without a timer.
const IMAGE_GC_INTERVAL: Duration = Duration::from_secs(5 * 60);

/// The state of image garbage collection.
#[derive(Debug, Default)]
pub(super) struct ImageGarbage {
    task: Option<rt::Task<()>>,
    last: Option<Instant>,
    /// When the pending collection was requested.
    requested: Option<Instant>,
}

impl ImageGarbage {
    /// A collection follows a relist, when the node is awake and busy anyway.
    pub(super) fn on_relisted(&mut self, now: Instant) {
        if self.last.is_none_or(|last| now.saturating_duration_since(last) >= IMAGE_GC_INTERVAL) {
            self.requested.get_or_insert(now);
        }
    }

    /// Image archives were loaded: pods may be waiting for the images, and disk usage has grown.
    pub(super) fn on_images_imported(&mut self, pods: &PodTable, now: Instant) -> Vec<Effect> {
        self.requested.get_or_insert(now);
        vec![Effect::ReferencesChanged(pods.uids_where(|_| true))]
    }

    /// Starts a requested collection if no pod needs the runtime.
    pub(super) fn round(&mut self, pods: &PodTable, versions: &PodVersions, now: Instant) {
        let runtime = pods.runtime();
        if runtime.images.has_pulled() {
            self.requested.get_or_insert(now);
        }
        let Some(requested) = self.requested else { return };
        let is_busy = self.task.as_ref().is_some_and(|task| !task.is_finished());
        // A source that is not ready may have a pod for any image.
        if is_busy || !pods.is_idle(requested, now) || !pods.can_work() || !pods.all_sources_ready() {
            return;
        }
        if !runtime.images.collects() {
            return;
        }
        self.requested = None;
        self.last = Some(now);
        let (runtime, pods) = (Rc::clone(runtime), versions.pods_with_images(pods));
        self.task = Some(rt::spawn(async move { runtime.images.collect_garbage(&pods).await }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::pod_table::testing::{pod, with_node};

    #[test]
    fn relists_request_one_collection_per_period() {
        let now = rt::now();
        let mut garbage = ImageGarbage { last: Some(now), ..ImageGarbage::default() };
        garbage.on_relisted(now + IMAGE_GC_INTERVAL / 2);
        assert_eq!(garbage.requested, None);
        garbage.on_relisted(now + IMAGE_GC_INTERVAL);
        garbage.on_relisted(now + IMAGE_GC_INTERVAL * 2);
        assert_eq!(garbage.requested, Some(now + IMAGE_GC_INTERVAL));
    }

    #[test]
    fn loaded_image_archives_wake_every_pod() {
        with_node(|mut node| {
            let now = rt::now();
            node.pods.apply(["a", "b"].map(|uid| Effect::Update(pod(uid))), now);
            let effects = ImageGarbage::default().on_images_imported(&node.pods, now);
            assert_eq!(effects, [Effect::ReferencesChanged(vec!["a".into(), "b".into()])]);
        });
    }
}
