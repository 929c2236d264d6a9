//! When images are looked at: after some have come, and once in a while beside a relist.

use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::control::sync_loop::SyncLoop;
use crate::control::sync_loop::effect::Effect;
use crate::platform::rt;

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
        let all = self.pods.uids_where(|_| true);
        self.pods.apply([Effect::ReferencesChanged(all)], now);
    }

    pub(super) fn collect_images(&mut self, now: Instant) {
        let garbage = &mut self.image_garbage;
        if self.pods.runtime().has_pulled_images() {
            garbage.asked.get_or_insert(now);
        }
        let Some(asked) = garbage.asked else { return };
        let is_busy = garbage.task.as_ref().is_some_and(|task| !task.is_finished());
        // A source that has not told everything may have a pod for any image.
        if is_busy
            || !self.pods.is_idle(asked, now)
            || !self.pods.can_work()
            || !self.pods.node_state().sources.all_ready()
        {
            return;
        }
        if !self.pods.runtime().collects_images() {
            return;
        }
        let pods = self.pods.pods_with_images();
        let garbage = &mut self.image_garbage;
        garbage.asked = None;
        garbage.last = Some(now);
        let runtime = Rc::clone(self.pods.runtime());
        garbage.task = Some(rt::spawn(async move { runtime.collect_images(&pods).await }));
    }
}
