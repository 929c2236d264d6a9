//! The API server source: the pods bound to this node.

use std::rc::Rc;

use async_channel::{Receiver, Sender, bounded};

use super::api_pods::{ApiPods, StoreChange};
use super::received_pods::{PodChange, read_all};
use crate::kubelet::node::StatusInputs;
use crate::kubelet::offline::OfflineStore;
use crate::platform::apiserver::{Change, Client, Collection, Rank, Requester, reflect};
use crate::platform::host::clock;
use crate::platform::rt;
use crate::state::pods::SyncEvent;

/// The API server source and its dependencies.
pub(crate) struct ApiSource {
    pub(crate) client: Client,
    /// The node's name.
    pub(crate) node: String,
    pub(crate) status_inputs: Rc<StatusInputs>,
    pub(crate) store: OfflineStore,
    pub(crate) inbox: Sender<SyncEvent>,
}

/// Pending changes. When the queue is full, the reflector waits.
const MAX_PENDING_POD_CHANGES: usize = 64;

/// The source's problem while the API server is one of another cluster.
const OTHER: &str = "the server is of another cluster (by its authority and the node's uid) than the pods that are stored: \
                     they stay. `coracle leave` gives them up";

impl ApiSource {
    /// Sends the node's pods whenever they change, until the inbox is closed. An unreachable API server changes
    /// nothing: the last pods stay. The pods are requested only when the Node object is known, because a pod that is
    /// rejected for a missing label is rejected for good.
    pub(crate) async fn run(self) {
        let (sender, changes) = bounded(MAX_PENDING_POD_CHANGES);
        let collection = Collection {
            path: "/api/v1/pods".to_owned(),
            field_selector: format!("spec.nodeName={}", self.node),
            // The next exchange resumes at the last bookmark, even if no pod of the node has changed for long.
            bookmarks: true,
            rereads_after_loss: false,
            rank: Rank::Intent,
            requester: Requester::Node,
        };
        let (client, status_inputs) = (self.client.clone(), Rc::clone(&self.status_inputs));
        let _follower = rt::spawn(async move {
            status_inputs.admission_is_possible().await;
            // Begins with a list: a server that was restored never reports deletions to a watch from a stored version.
            reflect(client, collection, sender).await;
        });
        let mut pods = ApiPods::default();
        let mut first = self.first(&changes).await;
        let replaces_stored_pods = matches!(first, Some(Change::Replaced(_))) && self.server_is_of_stored_cluster();
        if !replaces_stored_pods && !self.restore(&mut pods).await {
            return;
        }
        loop {
            let change = match first.take() {
                Some(change) => change,
                None => match changes.recv().await {
                    Ok(change) => change,
                    Err(_) => return,
                },
            };
            self.apply(&mut pods, change).await;
            // Only the end of a burst matters.
            while let Ok(change) = changes.try_recv() {
                self.apply(&mut pods, change).await;
            }
            self.store(pods.take_kept());
            if let Some(update) = pods.update() {
                if self.inbox.send(SyncEvent::Sources(update)).await.is_err() {
                    return;
                }
            }
        }
    }

    fn server_is_of_stored_cluster(&self) -> bool {
        self.store.set_node_uid(&self.status_inputs.uid());
        self.store.is_same_cluster(&self.client.authorities())
    }

    /// Ignores changes from an API server of another cluster.
    async fn apply(&self, pods: &mut ApiPods, change: Change) {
        let now = clock::timestamp();
        if !matches!(change, Change::Away(_)) && !pods.has_none() && !self.server_is_of_stored_cluster() {
            pods.apply(PodChange::Away(OTHER.to_owned()), now);
            return;
        }
        if matches!(change, Change::Replaced(_)) {
            self.store.end_to_count();
            self.store.remember_cluster(self.client.authorities(), self.status_inputs.uid());
        }
        pods.apply(PodChange::read(change).await, now);
    }

    /// The first change from the API server; `None` if none arrives soon and pods are stored.
    async fn first(&self, changes: &Receiver<Change>) -> Option<Change> {
        if !self.store.has_pods() {
            return None;
        }
        let change = async { changes.recv().await.ok() };
        let enough = async {
            rt::either(self.status_inputs.away(), rt::sleep(self.store.patience())).await;
            None
        };
        rt::either(change, enough).await
    }

    /// Uses the stored pods until the API server is reachable. False if the inbox is closed.
    async fn restore(&self, pods: &mut ApiPods) -> bool {
        let stored = self.store.take_pods();
        if stored.is_empty() {
            return true;
        }
        log!(info, "API server unreachable, using stored pods", pods = stored.len());
        let terms = self.store.take_node().filter(|_| !self.status_inputs.node_is_known());
        let terms = terms.map(SyncEvent::NodeChanged);
        self.store.begin_to_count();
        pods.restore(read_all(stored).await, clock::timestamp());
        for event in terms.into_iter().chain(pods.update().map(SyncEvent::Sources)) {
            if self.inbox.send(event).await.is_err() {
                return false;
            }
        }
        true
    }

    fn store(&self, kept: Vec<StoreChange>) {
        for one in kept {
            match one {
                StoreChange::Put { pod, content, pace } => self.store.remember_pod(&pod, content, pace),
                StoreChange::Remove(pod) => self.store.forget_pod(&pod),
            }
        }
    }
}
