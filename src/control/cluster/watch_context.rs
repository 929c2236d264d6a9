//! Context shared by the tasks of the object watcher.

use async_channel::Sender;

use crate::kubelet::offline::OfflineStore;
use crate::platform::apiserver::Client;
use crate::platform::config::FeatureGates;
use crate::state::pods::SyncEvent;

/// Clones share the client, the store and the inbox.
#[derive(Clone)]
pub(super) struct WatchContext {
    pub(super) client: Client,
    /// Objects stored by earlier runs, for when the API server is unreachable.
    pub(super) store: OfflineStore,
    /// The sync loop's inbox.
    pub(super) inbox: Sender<SyncEvent>,
    pub(super) gates: FeatureGates,
}
