//! Stops the agent's tasks and writes unsaved state to disk. Pods keep running.

use std::rc::Rc;

use crate::control::server::Watchdog;
use crate::control::sync_loop::{LoopEnd, Part};
use crate::kubelet::api_cache::ApiCache;
use crate::kubelet::event_file::EventFile;
use crate::kubelet::offline::OfflineStore;
use crate::platform::rt;

/// The tasks other than the sync loop.
pub(super) struct Background {
    pub(super) tasks: Vec<rt::Task<()>>,
    pub(super) watchdog: Watchdog,
    pub(super) event_file: Rc<EventFile>,
    /// `None` without a cluster.
    pub(super) store: Option<OfflineStore>,
    /// `None` without the API endpoint.
    pub(super) api_cache: Option<ApiCache>,
    /// Write the stores. They must run until the stores are flushed.
    pub(super) writers: Vec<rt::Task<()>>,
}

impl Background {
    /// `end`: why the sync loop ended; `None` if the process was asked to end.
    pub(super) async fn drain(self, end: Option<LoopEnd>) {
        match end {
            Some(LoopEnd::Spins { rounds, part }) => {
                let part = part.map_or("events", Part::name);
                self.watchdog.note_spin(rounds, part);
                log!(error, "sync loop spins, restart needed", rounds = rounds, part = part);
            }
            Some(LoopEnd::NoSenders) => log!(error, "sync loop has no senders left, restart needed"),
            None => {}
        }
        // Before the writes: without rounds of the sync loop, a slow disk would look like a stall.
        self.watchdog.end();
        log!(info, "stopping, pods keep running");
        drop(self.tasks);
        self.event_file.write_all().await;
        if let Some(store) = self.store {
            store.flush().await;
        }
        if let Some(cache) = self.api_cache {
            cache.flush().await;
        }
        drop(self.writers);
    }
}
