//! Follows the API objects that pods need, for as long as a pod needs them: by a watch, or by requests.

use std::sync::Arc;
use std::time::Duration;

use async_channel::{Receiver, Sender, bounded};
use serde_json::Value;

use crate::control::cluster::service_list::ServiceList;
use crate::control::cluster::topic_content::{by_name, collection, name_of, object_event, remember, stored_by_name};
use crate::control::cluster::topic_requests::TopicRequests;
use crate::control::cluster::trust_bundles::bundles;
use crate::control::cluster::watch_budget::WatchBudget;
use crate::control::cluster::watch_context::WatchContext;
use crate::kubelet::offline::OfflineStore;
use crate::platform::apiserver::{Change, Client, Collection, reflect};
use crate::platform::config::FeatureGates;
use crate::platform::rt;
use crate::state::objects::{BundleKey, Content, ObjectEvent, Topic};
use crate::state::pods::SyncEvent;
use crate::types::api::{ObjectText, PodUid};
use crate::types::sorted::SortedMap;
use crate::types::time::{Backoff, jitter};

/// Fetches and watches the wanted objects, and sends changes to the sync loop.
pub(crate) struct ObjectWatcher {
    context: WatchContext,
    /// `None` once the topic cannot change any more.
    watches: SortedMap<Arc<Topic>, Option<rt::Task<()>>>,
    requests: TopicRequests,
}

/// Pending changes per topic.
const MAX_PENDING_TOPIC_CHANGES: usize = 4;
/// Back-off if the API server has no version of an API.
const MIN_VERSION_BACKOFF: Duration = Duration::from_secs(2);
/// A version appears only with an upgrade of the cluster.
const MAX_VERSION_BACKOFF: Duration = Duration::from_secs(600);

impl ObjectWatcher {
    pub(crate) fn new(client: Client, store: OfflineStore, inbox: Sender<SyncEvent>, gates: FeatureGates) -> Self {
        let context = WatchContext { client, store, inbox, gates };
        Self { requests: TopicRequests::new(context.clone()), context, watches: SortedMap::new() }
    }

    /// Follows exactly these topics, each on behalf of a pod; the empty uid is the node's own. Returns the topics that
    /// are no longer followed.
    pub(crate) fn follow(&mut self, wanted: SortedMap<Arc<Topic>, PodUid>) -> Vec<Arc<Topic>> {
        let followed_topics = self.watches.keys().cloned().chain(self.requests.topics());
        let released: Vec<Arc<Topic>> = followed_topics.filter(|topic| !wanted.contains_key(topic)).collect();
        for topic in &released {
            self.release(topic);
        }
        let of_node = wanted.iter().filter(|(topic, pod)| **pod == PodUid::default() && can_be_watched(topic)).count();
        let mut budget = WatchBudget::new(self.context.client.max_watches(), of_node);
        // The server may accept fewer requests than was assumed before it was connected, and a topic may count for
        // another pod now.
        self.watches.retain(|topic, task| {
            let Some(pod) = wanted.get(topic) else { return false };
            task.take_if(|task| task.is_finished());
            task.is_none() || budget.take(pod)
        });
        let mut begun = Vec::new();
        for (topic, pod) in wanted {
            if self.watches.contains_key(&topic) {
                continue;
            }
            // A stored copy that was not used yet stays with its request.
            let may_move = !self.requests.has_stored_copy(&topic);
            if can_be_watched(&topic) && may_move && budget.take(&pod) {
                begun.push((Arc::clone(&topic), Some(self.watch(topic))));
            } else if !self.requests.attribute(&topic, &pod) {
                // Taken even if it is not used: records that stay in the store are removed as garbage.
                let stored = self.context.store.take(&topic);
                self.requests.follow(topic, pod, stored);
            }
        }
        self.watches.extend(begun);
        released
    }

    /// Requests the topic no more, and again only when a pod needs it.
    pub(crate) fn release(&mut self, topic: &Arc<Topic>) {
        self.requests.release(topic);
        self.context.store.forget(topic);
    }

    fn watch(&mut self, topic: Arc<Topic>) -> rt::Task<()> {
        // A topic that was requested so far is not read from the store again.
        self.requests.release(&topic);
        let stored = self.context.store.take(&topic);
        rt::spawn(watch_topic(self.context.clone(), topic, stored))
    }
}

/// A node may get the others by name, and watch none of them.
fn can_be_watched(topic: &Topic) -> bool {
    match topic {
        Topic::ApiServerService
        | Topic::CsiDriver(_)
        | Topic::Object(_)
        | Topic::RuntimeClass(_)
        | Topic::Services(_)
        | Topic::TrustBundles(_) => true,
        Topic::Attachment(_)
        | Topic::Claim { .. }
        | Topic::PodCertificate(_)
        | Topic::ResourceClaim(_)
        | Topic::Token(_) => false,
    }
}

async fn watch_topic(context: WatchContext, topic: Arc<Topic>, stored: Option<Value>) {
    match (&*topic, collection(&topic)) {
        (Topic::TrustBundles(key), _) => watch_bundles(&context, key, &topic, stored).await,
        (_, Some(collection)) => watch_collection(&context, collection, &topic, stored).await,
        (_, None) => {}
    }
}

async fn watch_collection(context: &WatchContext, collection: Collection, topic: &Topic, stored: Option<Value>) {
    let (sender, changes) = bounded(MAX_PENDING_TOPIC_CHANGES);
    let _reflector = rt::spawn(reflect(context.client.clone(), collection, sender));
    send_changes(context, topic, &changes, stored).await;
}

/// Follows the cluster trust bundles in the newest API version that the server has.
async fn watch_bundles(context: &WatchContext, key: &BundleKey, topic: &Topic, mut stored: Option<Value>) {
    let mut backoff = Backoff::new(MIN_VERSION_BACKOFF, MAX_VERSION_BACKOFF);
    let collection = loop {
        let why = match bundles(&context.client, &context.gates, key).await {
            Ok(collection) => break collection,
            Err(why) => why,
        };
        let event = match stored.take() {
            Some(stored) => object_event(topic, &stored_by_name(&stored)),
            None => ObjectEvent::Failed(topic.clone(), why),
        };
        if context.inbox.send(SyncEvent::Object(event)).await.is_err() {
            return;
        }
        rt::sleep(jitter(backoff.next_wait(), 0.5, rt::random())).await;
    };
    watch_collection(context, collection, topic, stored).await;
}

/// Sends changes until no further change is possible.
async fn send_changes(context: &WatchContext, topic: &Topic, changes: &Receiver<Change>, mut stored: Option<Value>) {
    let mut objects_by_name: SortedMap<String, ObjectText> = SortedMap::new();
    let mut services = ServiceList::default();
    loop {
        let change = async { changes.recv().await };
        let change = match stored {
            // With a stored copy, stop waiting after a while and use it.
            Some(_) => rt::either(change, quiet(context)).await,
            None => change.await,
        };
        let change = change.map(|change| checked_change(context, change));
        let is_of_now = !matches!(change, Ok(Change::Away(_)));
        let event = match change {
            Err(_) => return,
            Ok(Change::Away(why)) => match stored.take() {
                Some(stored) => {
                    objects_by_name = stored_by_name(&stored);
                    object_event(topic, &objects_by_name)
                }
                None => ObjectEvent::Failed(topic.clone(), why),
            },
            Ok(change) if matches!(topic, Topic::Services(_)) => {
                stored = None;
                services.on_change(change).await;
                services.event(topic, &context.store)
            }
            Ok(change) => {
                stored = None;
                match change {
                    Change::Replaced(objects) => objects_by_name = by_name(objects),
                    Change::Applied(object) => drop(objects_by_name.insert(name_of(&object), object)),
                    Change::Deleted(object) => drop(objects_by_name.remove(&name_of(&object))),
                    Change::Away(_) => {}
                }
                let event = object_event(topic, &objects_by_name);
                remember(&context.store, topic, &event, &objects_by_name);
                event
            }
        };
        let is_immutable =
            matches!(&event, ObjectEvent::Received(_, Some(Content::Object(object))) if object.immutable);
        // The sync loop keeps the object: no second copy is needed.
        if matches!(topic, Topic::Object(_)) {
            objects_by_name.clear();
        }
        if context.inbox.send(SyncEvent::Object(event)).await.is_err() || is_immutable && is_of_now {
            return;
        }
    }
}

/// Treats changes from another cluster's API server as an outage: objects that it lacks may exist in this cluster.
fn checked_change(context: &WatchContext, change: Change) -> Change {
    match context.store.is_same_cluster(&context.client.authorities()) {
        true => change,
        false => Change::Away("the server is of another cluster".to_owned()),
    }
}

/// Waits until the store's patience ends, then reports that nothing was received.
async fn quiet<E>(context: &WatchContext) -> Result<Change, E> {
    rt::sleep(context.store.patience()).await;
    Ok(Change::Away(String::new()))
}
