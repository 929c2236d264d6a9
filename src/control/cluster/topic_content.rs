//! The collections that topics select, and what their objects mean.

use std::sync::Arc;

use serde_json::Value;

use crate::kubelet::offline::{OfflineStore, used_part};
use crate::platform::apiserver::{Collection, Rank, Requester};
use crate::state::objects::{
    ConfigObject, Content, CsiDriver, ObjectEvent, ObjectKey, ObjectKind, Service, Topic, TrustBundle,
};
use crate::types::api::{ConfigMap, DecodeError, Secret, decode};
use crate::types::sorted::SortedMap;

/// The collection of a topic that can be watched; `None` for trust bundles, whose API version the server decides, and
/// for topics that cannot.
pub(super) fn collection(topic: &Topic) -> Option<Collection> {
    let by_name = |name: &str| format!("metadata.name={name}");
    let (path, selector) = match topic {
        // A node may list and watch a single object only by name.
        Topic::Object(ObjectKey { kind, namespace, name }) => {
            (format!("/api/v1/namespaces/{namespace}/{}s", kind.resource()), by_name(name))
        }
        Topic::RuntimeClass(name) => ("/apis/node.k8s.io/v1/runtimeclasses".to_owned(), by_name(name)),
        Topic::CsiDriver(name) => ("/apis/storage.k8s.io/v1/csidrivers".to_owned(), by_name(name)),
        Topic::Services(namespace) => (format!("/api/v1/namespaces/{namespace}/services"), String::new()),
        Topic::ApiServerService => ("/api/v1/namespaces/default/services".to_owned(), by_name("kubernetes")),
        Topic::Attachment(_)
        | Topic::Claim { .. }
        | Topic::ResourceClaim(_)
        | Topic::Token(_)
        | Topic::TrustBundles(_) => return None,
    };
    Some(selected(path, selector))
}

pub(super) fn selected(path: String, field_selector: String) -> Collection {
    Collection { path, field_selector, bookmarks: false, rank: Rank::Intent, requester: Requester::Tenant }
}

/// An unreadable object does not replace the stored one.
pub(super) fn remember(store: &OfflineStore, topic: &Topic, event: &ObjectEvent, there: &SortedMap<String, Value>) {
    match event {
        // Also stores that the object does not exist.
        ObjectEvent::Received(..) => store.remember(topic, &there.values().map(used_part).collect()),
        ObjectEvent::Failed(..) => {}
    }
}

/// Reads what [`remember`] stored.
pub(super) fn by_name(stored: Value) -> SortedMap<String, Value> {
    let Value::Array(objects) = stored else { return SortedMap::new() };
    objects.into_iter().map(|object| (name_of(&object), object)).collect()
}

pub(super) fn object_event(topic: &Topic, there: &SortedMap<String, Value>) -> ObjectEvent {
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

pub(super) fn name_of(object: &Value) -> String {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned()
}
