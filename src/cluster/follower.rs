//! Follows the objects that pods need, for as long as one needs them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_channel::{Receiver, Sender, bounded};
use serde_json::{Value, json};

use crate::api::{ConfigMap, DecodeError, PodUid, Secret, decode};
use crate::apiserver::{ApiError, Change, Client, Collection, Request, reflect};
use crate::objects::{
    BundleKey, ConfigObject, Content, ObjectKey, ObjectKind, ObjectNews, PersistentVolume, Service, TokenKey, Topic,
    TrustBundle, bound_volume, is_bound_to,
};
use crate::pods::SyncEvent;
use crate::rt;
use crate::time::{Backoff, jitter};

/// Asks for what is wanted, and tells the sync loop what it hears.
pub(crate) struct Follower {
    client: Client,
    inbox: Sender<SyncEvent>,
    followed: BTreeMap<Topic, rt::Task<()>>,
}

/// Changes of one topic that wait to be told.
const CHANGES: usize = 4;
/// A token that could not be had is asked for again after so long, and then twice as long.
const TOKEN_FIRST: Duration = Duration::from_secs(1);
const TOKEN_LONGEST: Duration = Duration::from_secs(60);
/// A token is replaced when so much of its time is over, and a day at the latest (pkg/kubelet/token/token_manager.go).
const TOKEN_LIFE: f64 = 0.8;
const DAY: Duration = Duration::from_secs(24 * 3600);
/// A claim that is not bound yet is asked for again after so long, and then twice as long.
const CLAIM_FIRST: Duration = Duration::from_secs(2);
const CLAIM_LONGEST: Duration = Duration::from_secs(60);
/// A server that has no version of an API is asked again after so long, and then twice as long.
const VERSION_FIRST: Duration = Duration::from_secs(2);
const VERSION_LONGEST: Duration = Duration::from_secs(600);
/// A token of a server that does not say how long it is valid.
const HOUR: Duration = Duration::from_secs(3600);
const TOKEN_JITTER: Duration = Duration::from_secs(10);

impl Follower {
    pub(crate) fn new(client: Client, inbox: Sender<SyncEvent>) -> Self {
        Self { client, inbox, followed: BTreeMap::new() }
    }

    /// Follows these and no others. Those that are not followed any more are given.
    pub(crate) fn follow(&mut self, wanted: BTreeSet<Topic>) -> Vec<Topic> {
        let released: Vec<Topic> = self.followed.keys().filter(|topic| !wanted.contains(topic)).cloned().collect();
        for topic in &released {
            self.followed.remove(topic);
        }
        for topic in wanted {
            let (client, inbox) = (&self.client, &self.inbox);
            self.followed.entry(topic.clone()).or_insert_with(|| begin(client.clone(), inbox.clone(), topic));
        }
        released
    }
}

fn begin(client: Client, inbox: Sender<SyncEvent>, topic: Topic) -> rt::Task<()> {
    match topic.clone() {
        Topic::Token(key) => rt::spawn(keep_token(client, key, inbox)),
        Topic::Claim { namespace, name } => rt::spawn(find_volume(client, namespace, name, topic, inbox)),
        Topic::RuntimeClass(name) => {
            let path = "/apis/node.k8s.io/v1/runtimeclasses".to_owned();
            let class = Collection { path, field_selector: format!("metadata.name={name}"), bookmarks: false };
            rt::spawn(follow(client, class, topic, inbox))
        }
        Topic::TrustBundles(key) => rt::spawn(follow_bundles(client, key, topic, inbox)),
        Topic::Object(key) => rt::spawn(follow(client, one_object(&key), topic, inbox)),
        Topic::Services(namespace) => rt::spawn(follow(client, services(&namespace, String::new()), topic, inbox)),
        Topic::ApiServerService => {
            let only = "metadata.name=kubernetes".to_owned();
            rt::spawn(follow(client, services("default", only), topic, inbox))
        }
    }
}

fn one_object(key: &ObjectKey) -> Collection {
    let ObjectKey { kind, namespace, name } = key;
    Collection {
        path: format!("/api/v1/namespaces/{namespace}/{}s", kind.resource()),
        // A node may list and watch a single object by its name only.
        field_selector: format!("metadata.name={name}"),
        bookmarks: false,
    }
}

fn services(namespace: &str, field_selector: String) -> Collection {
    Collection { path: format!("/api/v1/namespaces/{namespace}/services"), field_selector, bookmarks: false }
}

async fn follow(client: Client, collection: Collection, topic: Topic, inbox: Sender<SyncEvent>) {
    let (sender, changes) = bounded(CHANGES);
    let follower = rt::spawn(reflect(client, collection, sender));
    tell(&topic, &changes, &inbox).await;
    drop(follower);
    // Nothing more is asked for; the task stands for what is known, until nobody needs it.
    std::future::pending::<()>().await;
}

/// Bundles of the newest version of their API that the server has.
async fn follow_bundles(client: Client, key: BundleKey, topic: Topic, inbox: Sender<SyncEvent>) {
    let mut backoff = Backoff::new(VERSION_FIRST, VERSION_LONGEST);
    let path = loop {
        let why = match bundles_path(&client).await {
            Ok(Some(path)) => break path,
            Ok(None) => "the server has no ClusterTrustBundles".to_owned(),
            Err(error) => error.to_string(),
        };
        if inbox.send(SyncEvent::Object(ObjectNews::Failed(topic.clone(), why))).await.is_err() {
            return;
        }
        rt::sleep(jitter(backoff.next_wait(), 0.5, rt::random())).await;
    };
    let field_selector = match key {
        BundleKey::Named(name) => format!("metadata.name={name}"),
        BundleKey::Signed(signer) => format!("spec.signerName={signer}"),
    };
    follow(client, Collection { path, field_selector, bookmarks: false }, topic, inbox).await;
}

async fn bundles_path(client: &Client) -> Result<Option<String>, ApiError> {
    for version in ["v1", "v1beta1", "v1alpha1"] {
        let path = format!("/apis/certificates.k8s.io/{version}/clustertrustbundles");
        match client.send(&Request::get(path.as_str()).with_query("limit", "1")).await {
            Ok(_) => return Ok(Some(path)),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Until nothing more can be news.
async fn tell(topic: &Topic, changes: &Receiver<Change>, inbox: &Sender<SyncEvent>) {
    let mut there: BTreeMap<String, Value> = BTreeMap::new();
    while let Ok(change) = changes.recv().await {
        let news = match change {
            Change::Away(why) => ObjectNews::Failed(topic.clone(), why),
            Change::Replaced(all) => {
                there = all.into_iter().map(|object| (name_of(&object), object)).collect();
                news(topic, &there)
            }
            Change::Applied(object) => {
                there.insert(name_of(&object), object);
                news(topic, &there)
            }
            Change::Deleted(object) => {
                there.remove(&name_of(&object));
                news(topic, &there)
            }
        };
        let immutable = matches!(&news, ObjectNews::Heard(_, Some(Content::Object(object))) if object.immutable);
        // What was heard is kept by who needs it: once is enough.
        if matches!(topic, Topic::Object(_)) {
            there.clear();
        }
        if inbox.send(SyncEvent::Object(news)).await.is_err() || immutable {
            return;
        }
    }
}

fn news(topic: &Topic, there: &BTreeMap<String, Value>) -> ObjectNews {
    let content = match topic {
        Topic::Object(key) => {
            there.get(&key.name).map(|object| object_of(key.kind, object.clone()).map(Content::Object))
        }
        Topic::Services(_) | Topic::ApiServerService => {
            Some(Ok(Content::Services(there.values().filter_map(Service::read).collect())))
        }
        Topic::RuntimeClass(name) => there.get(name).map(|class| Ok(Content::RuntimeHandler(handler_of(class)))),
        Topic::TrustBundles(_) => Some(Ok(Content::TrustBundles(there.values().map(TrustBundle::read).collect()))),
        Topic::Claim { .. } | Topic::Token(_) => None,
    };
    match content.transpose() {
        Ok(content) => ObjectNews::Heard(topic.clone(), content),
        Err(error) => ObjectNews::Failed(topic.clone(), error.to_string()),
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

/// Asks for the volume of a claim until there is one: a node may read both by their names, and watch neither.
async fn find_volume(client: Client, namespace: String, name: String, topic: Topic, inbox: Sender<SyncEvent>) {
    let mut backoff = Backoff::new(CLAIM_FIRST, CLAIM_LONGEST);
    loop {
        let news = match volume_of(&client, &namespace, &name).await {
            Ok(volume) => ObjectNews::Heard(topic.clone(), Some(Content::Volume(volume))),
            Err(why) => ObjectNews::Failed(topic.clone(), why),
        };
        let found = matches!(news, ObjectNews::Heard(..));
        if inbox.send(SyncEvent::Object(news)).await.is_err() {
            return;
        }
        if found {
            // What is bound stays bound.
            return std::future::pending().await;
        }
        rt::sleep(jitter(backoff.next_wait(), 0.5, rt::random())).await;
    }
}

async fn volume_of(client: &Client, namespace: &str, name: &str) -> Result<PersistentVolume, String> {
    let get = async |path: String| client.send(&Request::get(path)).await?.json();
    let claim = get(format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}")).await;
    let claim = claim.map_err(|error| error.to_string())?;
    let bound = bound_volume(&claim).ok_or_else(|| format!("PersistentVolumeClaim is not bound: {name:?}"))?;
    let volume = get(format!("/api/v1/persistentvolumes/{bound}")).await.map_err(|error| error.to_string())?;
    if !is_bound_to(&volume, &claim) {
        return Err(format!("PersistentVolume {bound:?} is not bound to the claim {name:?}"));
    }
    PersistentVolume::read(&volume).map_err(|error| format!("PersistentVolume {bound:?}: {error}"))
}

fn name_of(object: &Value) -> String {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Asks for a token, and for another before its time is over. One that could not be replaced is used on.
async fn keep_token(client: Client, key: TokenKey, inbox: Sender<SyncEvent>) {
    let mut backoff = Backoff::new(TOKEN_FIRST, TOKEN_LONGEST);
    loop {
        let (news, wait) = match request_token(&client, &key).await {
            Ok((token, life)) => {
                backoff.reset();
                let before = TOKEN_JITTER.min(life / 10).mul_f64(f64::from(rt::random()) / f64::from(u32::MAX));
                // Whatever a server calls a life, it is not asked without a pause.
                let wait = life.mul_f64(TOKEN_LIFE).min(DAY).saturating_sub(before).max(TOKEN_FIRST);
                (ObjectNews::Heard(Topic::Token(key.clone()), Some(Content::Token(token))), wait)
            }
            Err(error) => {
                let wait = jitter(backoff.next_wait(), 0.5, rt::random());
                (ObjectNews::Failed(Topic::Token(key.clone()), error.to_string()), wait)
            }
        };
        if inbox.send(SyncEvent::Object(news)).await.is_err() {
            return;
        }
        rt::sleep(wait).await;
    }
}

/// A token, and how long it is valid from now on.
async fn request_token(client: &Client, key: &TokenKey) -> Result<(String, Duration), ApiError> {
    let TokenKey { namespace, service_account, .. } = key;
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{service_account}/token");
    let answer = client.send(&Request::post(path, &token_request(key))).await?.json()?;
    let token = answer.pointer("/status/token").and_then(Value::as_str).filter(|token| !token.is_empty());
    let token = token.ok_or_else(|| ApiError::Malformed("a TokenRequest without a token".into()))?;
    // Counted from here: the clocks of node and server need not agree.
    let life = answer.pointer("/spec/expirationSeconds").and_then(Value::as_u64);
    Ok((token.to_owned(), life.map_or(HOUR, Duration::from_secs)))
}

fn token_request(key: &TokenKey) -> Value {
    let TokenKey { pod, pod_name, audience, seconds, .. } = key;
    let audiences: Vec<&str> = if audience.is_empty() { Vec::new() } else { vec![audience.as_str()] };
    let bound = json!({"kind": "Pod", "apiVersion": "v1", "name": pod_name, "uid": PodUid::as_str(pod)});
    json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": bound},
    })
}
