//! The API server as a source: the pods that are bound to this node.

use std::rc::Rc;

use async_channel::{Sender, bounded};

use super::api_pods::ApiPods;
use crate::apiserver::{Client, Collection, reflect};
use crate::host::clock;
use crate::node::NodeNews;
use crate::pods::SyncEvent;
use crate::rt;

/// Changes that wait to be taken in; the server is asked for no more until they are.
const CHANGES: usize = 64;

/// Tells the pods of `node` whenever they change, until the inbox is closed. What cannot be asked changes nothing: the
/// pods that were told last stay. They are asked for once it is known what the cluster has of the node itself: a pod that
/// is refused for a label is refused for good.
pub(crate) async fn run(client: Client, node: String, news: Rc<NodeNews>, inbox: Sender<SyncEvent>) {
    news.heard().await;
    let (sender, changes) = bounded(CHANGES);
    let collection = Collection {
        path: "/api/v1/pods".to_owned(),
        field_selector: format!("spec.nodeName={node}"),
        bookmarks: true,
    };
    let follower = rt::spawn(reflect(client, collection, sender));
    let mut pods = ApiPods::default();
    while let Ok(change) = changes.recv().await {
        let now = clock::timestamp();
        pods.take_in(change, now);
        // Of a burst only the end is of interest.
        while let Ok(change) = changes.try_recv() {
            pods.take_in(change, now);
        }
        if let Some(update) = pods.update() {
            if inbox.send(SyncEvent::Sources(update)).await.is_err() {
                break;
            }
        }
    }
    drop(follower);
}
