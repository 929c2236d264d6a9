//! Watches the API objects that pods need, for as long as a pod needs them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_channel::{Receiver, Sender, bounded};
use serde_json::Value;

use crate::control::cluster::tokens::keep_token;
use crate::control::cluster::watch_context::WatchContext;
use crate::kubelet::offline::{OfflineStore, used_part, without_managed_fields};
use crate::platform::apiserver::{ApiError, Change, Client, Collection, Rank, Request, Requester, reflect};
use crate::platform::rt;
use crate::state::objects::{
    Attachment, BundleKey, ClaimOwner, ClaimRefusal, ConfigObject, Content, CsiDriver, NotAttached, ObjectEvent,
    ObjectKey, ObjectKind, PersistentVolume, ResourceClaim, ResourceClaimKey, Service, Topic, TrustBundle,
    bound_volume, is_bound_to, is_controlled_by,
};
use crate::state::pods::SyncEvent;
use crate::types::api::{ConfigMap, DecodeError, Secret, decode};
use crate::types::sorted::{SortedMap, SortedSet};
use crate::types::time::{Backoff, jitter};

/// Fetches and watches the wanted objects, and sends changes to the sync loop.
pub(crate) struct ObjectWatcher {
    context: WatchContext,
    followed: SortedMap<Topic, rt::Task<()>>,
}

/// Pending changes per topic.
const CHANGES: usize = 4;
/// Back-off of requests for an unbound claim.
const CLAIM_FIRST: Duration = Duration::from_secs(2);
const CLAIM_LONGEST: Duration = Duration::from_secs(60);
/// Back-off if the API server has no version of an API.
const VERSION_FIRST: Duration = Duration::from_secs(2);
const VERSION_LONGEST: Duration = Duration::from_secs(600);

impl ObjectWatcher {
    pub(crate) fn new(client: Client, store: OfflineStore, inbox: Sender<SyncEvent>) -> Self {
        Self { context: WatchContext { client, store, inbox }, followed: SortedMap::new() }
    }

    /// Follows exactly these topics. Returns the topics that are no longer followed.
    pub(crate) fn follow(&mut self, wanted: SortedSet<Topic>) -> Vec<Topic> {
        let released: Vec<Topic> = self.followed.keys().filter(|topic| !wanted.contains(topic)).cloned().collect();
        for topic in &released {
            self.followed.remove(topic);
            self.context.store.forget(topic);
        }
        for topic in wanted {
            let context = &self.context;
            self.followed.entry(topic.clone()).or_insert_with(|| watch_topic(context.clone(), topic));
        }
        released
    }
}

fn watch_topic(context: WatchContext, topic: Topic) -> rt::Task<()> {
    // Taken even if it is not used: records that stay in the store are removed as garbage.
    let stored = context.store.take(&topic);
    match topic.clone() {
        Topic::Token(key) => rt::spawn(keep_token(context, key, stored)),
        Topic::Claim { .. } | Topic::Attachment(_) | Topic::ResourceClaim(_) => rt::spawn(find(context, topic, stored)),
        Topic::RuntimeClass(name) => {
            rt::spawn(follow(context, named("/apis/node.k8s.io/v1/runtimeclasses", &name), topic, stored))
        }
        Topic::CsiDriver(name) => {
            rt::spawn(follow(context, named("/apis/storage.k8s.io/v1/csidrivers", &name), topic, stored))
        }
        Topic::TrustBundles(key) => rt::spawn(follow_bundles(context, key, topic, stored)),
        Topic::Object(key) => rt::spawn(follow(context, one_object(&key), topic, stored)),
        Topic::Services(namespace) => rt::spawn(follow(context, services(&namespace, String::new()), topic, stored)),
        Topic::ApiServerService => {
            let only = "metadata.name=kubernetes".to_owned();
            rt::spawn(follow(context, services("default", only), topic, stored))
        }
    }
}

fn one_object(key: &ObjectKey) -> Collection {
    let ObjectKey { kind, namespace, name } = key;
    // A node may list and watch a single object only by name.
    named(&format!("/api/v1/namespaces/{namespace}/{}s", kind.resource()), name)
}

fn named(path: &str, name: &str) -> Collection {
    Collection {
        path: path.to_owned(),
        field_selector: format!("metadata.name={name}"),
        bookmarks: false,
        rank: Rank::Intent,
        requester: Requester::Tenant,
    }
}

fn services(namespace: &str, field_selector: String) -> Collection {
    Collection {
        path: format!("/api/v1/namespaces/{namespace}/services"),
        field_selector,
        bookmarks: false,
        rank: Rank::Intent,
        requester: Requester::Tenant,
    }
}

async fn follow(context: WatchContext, collection: Collection, topic: Topic, stored: Option<Value>) {
    let (sender, changes) = bounded(CHANGES);
    let follower = rt::spawn(reflect(context.client.clone(), collection, sender));
    send_changes(&context, &topic, &changes, stored).await;
    drop(follower);
    // Nothing more to fetch. The task stays to mark the topic as followed.
    std::future::pending::<()>().await;
}

/// Follows the cluster trust bundles in the newest API version that the server has.
async fn follow_bundles(context: WatchContext, key: BundleKey, topic: Topic, mut stored: Option<Value>) {
    let mut backoff = Backoff::new(VERSION_FIRST, VERSION_LONGEST);
    let path = loop {
        let why = match bundles_path(&context.client).await {
            Ok(Some(path)) => break path,
            Ok(None) => "the server has no ClusterTrustBundles".to_owned(),
            Err(error) => error.to_string(),
        };
        let event = match stored.take() {
            Some(stored) => object_event(&topic, &by_name(stored)),
            None => ObjectEvent::Failed(topic.clone(), why),
        };
        if context.inbox.send(SyncEvent::Object(event)).await.is_err() {
            return;
        }
        rt::sleep(jitter(backoff.next_wait(), 0.5, rt::random())).await;
    };
    let field_selector = match key {
        BundleKey::Named(name) => format!("metadata.name={name}"),
        BundleKey::Signed(signer) => format!("spec.signerName={signer}"),
    };
    follow(
        context,
        Collection { path, field_selector, bookmarks: false, rank: Rank::Intent, requester: Requester::Tenant },
        topic,
        stored,
    )
    .await;
}

async fn bundles_path(client: &Client) -> Result<Option<String>, ApiError> {
    for version in ["v1", "v1beta1", "v1alpha1"] {
        let path = format!("/apis/certificates.k8s.io/{version}/clustertrustbundles");
        match client.send(&Request::get(path.as_str()).with_query("limit", "1").requested_by(Requester::Tenant)).await {
            Ok(_) => return Ok(Some(path)),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Sends changes until no further change is possible.
async fn send_changes(context: &WatchContext, topic: &Topic, changes: &Receiver<Change>, mut stored: Option<Value>) {
    let mut there: SortedMap<String, Value> = SortedMap::new();
    loop {
        let change = async { changes.recv().await };
        let change = match stored {
            // With a stored copy, stop waiting after a while and use it.
            Some(_) => rt::either(change, quiet(context)).await,
            None => change.await,
        };
        let change = change.map(|change| believed(context, change));
        let is_of_now = !matches!(change, Ok(Change::Away(_)));
        let event = match change {
            Err(_) => return,
            Ok(Change::Away(why)) => match stored.take() {
                Some(stored) => {
                    there = by_name(stored);
                    object_event(topic, &there)
                }
                None => ObjectEvent::Failed(topic.clone(), why),
            },
            Ok(change) => {
                stored = None;
                match change {
                    Change::Replaced(all) => there = all.into_iter().map(|object| (name_of(&object), object)).collect(),
                    Change::Applied(object) => drop(there.insert(name_of(&object), object)),
                    Change::Deleted(object) => drop(there.remove(&name_of(&object))),
                    Change::Away(_) => {}
                }
                let event = object_event(topic, &there);
                remember(&context.store, topic, &event, &there);
                event
            }
        };
        let is_immutable =
            matches!(&event, ObjectEvent::Received(_, Some(Content::Object(object))) if object.immutable);
        // The sync loop keeps the object: no second copy is needed.
        if matches!(topic, Topic::Object(_)) {
            there.clear();
        }
        if context.inbox.send(SyncEvent::Object(event)).await.is_err() || is_immutable && is_of_now {
            return;
        }
    }
}

/// Treats changes from another cluster's API server as an outage: objects that it lacks may exist in this cluster.
fn believed(context: &WatchContext, change: Change) -> Change {
    match context.store.believes(&context.client.authorities()) {
        true => change,
        false => Change::Away("the server is of another cluster".to_owned()),
    }
}

/// Waits until the store's patience ends, then reports that nothing was received.
async fn quiet<E>(context: &WatchContext) -> Result<Change, E> {
    rt::sleep(context.store.patience()).await;
    Ok(Change::Away(String::new()))
}

/// An unreadable object does not replace the stored one.
fn remember(store: &OfflineStore, topic: &Topic, event: &ObjectEvent, there: &SortedMap<String, Value>) {
    match event {
        // Also stores that the object does not exist.
        ObjectEvent::Received(..) => store.remember(topic, &there.values().map(used_part).collect()),
        ObjectEvent::Failed(..) => {}
    }
}

/// Reads what [`remember`] stored.
fn by_name(stored: Value) -> SortedMap<String, Value> {
    let Value::Array(objects) = stored else { return SortedMap::new() };
    objects.into_iter().map(|object| (name_of(&object), object)).collect()
}

fn object_event(topic: &Topic, there: &SortedMap<String, Value>) -> ObjectEvent {
    let content = match topic {
        Topic::Object(key) => {
            there.get(&key.name).map(|object| object_of(key.kind, object.clone()).map(Content::Object))
        }
        Topic::Services(_) | Topic::ApiServerService => {
            Some(Ok(Content::Services(there.values().filter_map(Service::read).collect())))
        }
        Topic::RuntimeClass(name) => there.get(name).map(|class| Ok(Content::RuntimeHandler(handler_of(class)))),
        Topic::CsiDriver(name) => there.get(name).map(|driver| Ok(Content::CsiDriver(CsiDriver::read(driver)))),
        Topic::TrustBundles(_) => Some(Ok(Content::TrustBundles(there.values().map(TrustBundle::read).collect()))),
        Topic::Attachment(_) | Topic::Claim { .. } | Topic::ResourceClaim(_) | Topic::Token(_) => None,
    };
    match content.transpose() {
        Ok(content) => ObjectEvent::Received(topic.clone(), content),
        Err(error) => ObjectEvent::Failed(topic.clone(), error.to_string()),
    }
}

fn object_of(kind: ObjectKind, object: Value) -> Result<Arc<ConfigObject>, DecodeError> {
    let object: ConfigObject = match kind {
        ObjectKind::ConfigMap => decode::<ConfigMap>(object)?.value.into(),
        ObjectKind::Secret => decode::<Secret>(object)?.value.into(),
    };
    Ok(Arc::new(object))
}

fn handler_of(class: &Value) -> String {
    class.get("handler").and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Requests the volume of a claim, a volume attachment or a ResourceClaim until it is usable. A node may get these by
/// name, and watch none of them.
async fn find(context: WatchContext, topic: Topic, mut stored: Option<Value>) {
    let mut backoff = Backoff::new(CLAIM_FIRST, CLAIM_LONGEST);
    loop {
        let request = answer_about(&context.client, &topic);
        let answer = match stored {
            Some(_) => rt::deadline(context.store.patience(), request).await.unwrap_or(Err(AnswerError::None)),
            None => request.await,
        };
        let read = |object: &Value| match &topic {
            Topic::Attachment(_) => {
                Attachment::read(object).map(Content::Attachment).map_err(|error| error.to_string())
            }
            Topic::ResourceClaim(key) => {
                ResourceClaim::read(object, key).map(Content::ResourceClaim).map_err(|error| error.to_string())
            }
            _ => {
                let volume = PersistentVolume::read(object).map_err(|error| format!("PersistentVolume: {error}"));
                volume.map(|volume| Content::Volume(Box::new(volume)))
            }
        };
        let (content, is_found) = match (answer, stored.take()) {
            (Ok(object), _) => {
                context.store.remember(&topic, &object);
                (read(&object), true)
            }
            (Err(_), Some(stored)) => (read(&stored), false),
            (Err(error), None) => (Err(error.to_string()), false),
        };
        let event = match content {
            Ok(content) => ObjectEvent::Received(topic.clone(), Some(content)),
            Err(why) => ObjectEvent::Failed(topic.clone(), why),
        };
        if context.inbox.send(SyncEvent::Object(event)).await.is_err() {
            return;
        }
        if is_found {
            // A bound claim stays bound, and an allocated claim stays reserved while the pod exists.
            return std::future::pending().await;
        }
        rt::sleep(jitter(backoff.next_wait(), 0.5, rt::random())).await;
    }
}

/// Why a claim or an attachment is not usable, in upstream's words where it has some.
#[derive(Debug)]
enum AnswerError {
    Api(ApiError),
    BoundElsewhere {
        volume: String,
        name: String,
    },
    /// No request was made, or there was no response in time.
    None,
    ClaimRefused(ClaimRefusal),
    FetchClaim {
        name: String,
        source: ApiError,
    },
    NotAttached(NotAttached),
    NotBound {
        name: String,
    },
    NotOwner {
        namespace: String,
        name: String,
        pod_name: String,
    },
}

impl fmt::Display for AnswerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Api(error) => error.fmt(f),
            Self::BoundElsewhere { volume, name } => {
                write!(f, "PersistentVolume {volume:?} is not bound to the claim {name:?}")
            }
            Self::ClaimRefused(refusal) => refusal.fmt(f),
            Self::FetchClaim { name, source } => write!(f, "fetch ResourceClaim {name}: {source}"),
            Self::None => Ok(()),
            Self::NotAttached(error) => error.fmt(f),
            Self::NotBound { name } => write!(f, "PersistentVolumeClaim is not bound: {name:?}"),
            Self::NotOwner { namespace, name, pod_name } => {
                write!(f, "PVC {namespace}/{name} was not created for pod {namespace}/{pod_name} (pod is not owner)")
            }
        }
    }
}

/// Fetches the volume of a claim, an attachment or a ResourceClaim, reduced to the parts to store.
async fn answer_about(client: &Client, topic: &Topic) -> Result<Value, AnswerError> {
    let get = async |path: String| client.send(&Request::get(path).requested_by(Requester::Tenant)).await?.json();
    let (namespace, name, owner) = match topic {
        Topic::Claim { namespace, name, owner } => (namespace, name, owner),
        Topic::Attachment(name) => {
            let attachment = get(format!("/apis/storage.k8s.io/v1/volumeattachments/{name}")).await;
            let attachment = attachment.map_err(AnswerError::Api)?;
            // A volume that is not attached yet is requested again.
            Attachment::read(&attachment).map_err(AnswerError::NotAttached)?;
            return Ok(without_managed_fields(attachment));
        }
        Topic::ResourceClaim(key) => {
            let ResourceClaimKey { namespace, name, .. } = key;
            let claim = get(format!("/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}")).await;
            let claim = claim.map_err(|source| AnswerError::FetchClaim { name: name.clone(), source })?;
            ResourceClaim::read(&claim, key).map_err(AnswerError::ClaimRefused)?;
            return Ok(without_managed_fields(claim));
        }
        _ => return Err(AnswerError::None),
    };
    let claim = get(format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}")).await;
    let claim = claim.map_err(AnswerError::Api)?;
    if let Some(ClaimOwner { pod_name, .. }) = owner.as_ref().filter(|owner| !is_controlled_by(&claim, &owner.pod)) {
        // A claim of another pod of the same name may still be being deleted.
        let (namespace, name, pod_name) = (namespace.clone(), name.clone(), pod_name.clone());
        return Err(AnswerError::NotOwner { namespace, name, pod_name });
    }
    let bound = bound_volume(&claim).ok_or_else(|| AnswerError::NotBound { name: name.clone() })?;
    let volume = get(format!("/api/v1/persistentvolumes/{bound}")).await.map_err(AnswerError::Api)?;
    if !is_bound_to(&volume, &claim) {
        return Err(AnswerError::BoundElsewhere { volume: bound.to_owned(), name: name.clone() });
    }
    Ok(used_part(&volume))
}

fn name_of(object: &Value) -> String {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned()
}
