//! When images are looked at: after some have come, and once in a while beside a relist.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::control::sync_loop::SyncLoop;
use crate::platform::rt;
use crate::types::api::Pod;

/// As upstream has it. There is no timer for it: the relists are frequent enough.
const PERIOD: Duration = Duration::from_secs(5 * 60);

/// The removal of images that nothing needs.
#[derive(Debug, Default)]
pub(super) struct ImageGarbage {
    task: Option<rt::Task<()>>,
    last: Option<Instant>,
    /// Since when it is to be begun as soon as that can be done.
    asked: Option<Instant>,
}

impl ImageGarbage {
    /// This is one of the rare moments when everything is looked at.
    pub(super) fn relisted(&mut self, now: Instant) {
        if self.last.is_none_or(|last| now.saturating_duration_since(last) >= PERIOD) {
            self.asked.get_or_insert(now);
        }
    }
}

impl SyncLoop {
    /// Whoever waits for an image looks again, and there may be less room than before.
    pub(super) fn on_images_came(&mut self, now: Instant) {
        self.image_garbage.asked.get_or_insert(now);
        self.workers.objects_changed(|_| true);
    }

    /// Every pod whose images are needed: those that there are, and the versions that may run again.
    pub(super) fn pods_with_images(&self) -> Vec<Arc<Pod>> {
        let books = self.books.borrow();
        let pods = self.workers.iter().filter_map(|worker| worker.pod.as_ref());
        pods.chain(books.versions.kept()).map(Arc::clone).collect()
    }

    pub(super) fn collect_images(&mut self, now: Instant) {
        let garbage = &mut self.image_garbage;
        if self.runtime.has_pulled_images() {
            garbage.asked.get_or_insert(now);
        }
        let Some(asked) = garbage.asked else { return };
        let is_busy = garbage.task.as_ref().is_some_and(|task| !task.is_finished());
        // A source that has not told everything may have a pod for any image.
        if is_busy || !self.pods_rest(asked, now) || !self.can_work() || !self.books.borrow().sources.all_ready() {
            return;
        }
        if !self.runtime.collects_images() {
            return;
        }
        let pods = self.pods_with_images();
        let garbage = &mut self.image_garbage;
        garbage.asked = None;
        garbage.last = Some(now);
        let runtime = Rc::clone(&self.runtime);
        garbage.task = Some(rt::spawn(async move { runtime.collect_images(&pods).await }));
    }
}
