//! The collections that topics select, and what their objects mean.

use std::sync::Arc;

use serde_json::Value;

use crate::kubelet::offline::{OfflineStore, used_part};
use crate::platform::apiserver::{Collection, Rank, Requester};
use crate::state::objects::{
    ConfigObject, Content, CsiDriver, ObjectEvent, ObjectKey, ObjectKind, Service, Topic, TrustBundle,
};
use crate::types::api::{self, ConfigMap, DecodeError, ObjectText, Secret};
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
        | Topic::PodCertificate(_)
        | Topic::ResourceClaim(_)
        | Topic::Token(_)
        | Topic::TrustBundles(_) => return None,
    };
    Some(selected(path, selector))
}

pub(super) fn selected(path: String, field_selector: String) -> Collection {
    // A bookmark comes every minute to each watch: 80 MB a day for 220 objects.
    Collection {
        path,
        field_selector,
        bookmarks: false,
        rereads_after_loss: false,
        rank: Rank::Intent,
        requester: Requester::Tenant,
    }
}

/// An unreadable object does not replace the stored one.
pub(super) fn remember(
    store: &OfflineStore,
    topic: &Topic,
    event: &ObjectEvent,
    objects: &SortedMap<String, ObjectText>,
) {
    match event {
        // Also stores that the object does not exist.
        ObjectEvent::Received(..) => {
            let used: Vec<ObjectText> = objects.values().map(used_part).collect();
            store.remember(topic, ObjectText::list(used.iter()));
        }
        ObjectEvent::Failed(..) => {}
    }
}

/// Reads what [`remember`] stored.
pub(super) fn stored_by_name(stored: &Value) -> SortedMap<String, ObjectText> {
    by_name(stored.as_array().into_iter().flatten().map(ObjectText::of))
}

pub(super) fn by_name(objects: impl IntoIterator<Item = ObjectText>) -> SortedMap<String, ObjectText> {
    objects.into_iter().map(|object| (name_of(&object), object)).collect()
}

pub(super) fn object_event(topic: &Topic, objects: &SortedMap<String, ObjectText>) -> ObjectEvent {
    let values = || objects.values().filter_map(|object| object.value().ok());
    let named = |name: &String| objects.get(name).map(|object| object.value().unwrap_or_default());
    let content = match topic {
        Topic::Object(key) => objects.get(&key.name).map(|object| object_of(key.kind, object).map(Content::Object)),
        Topic::Services(_) | Topic::ApiServerService => {
            Some(Ok(Content::Services(values().filter_map(|service| Service::read(&service)).collect())))
        }
        Topic::RuntimeClass(name) => named(name).map(|class| Ok(Content::RuntimeHandler(handler_of(&class)))),
        Topic::CsiDriver(name) => named(name).map(|driver| Ok(Content::CsiDriver(CsiDriver::read(&driver)))),
        Topic::TrustBundles(_) => {
            Some(Ok(Content::TrustBundles(values().map(|bundle| TrustBundle::read(&bundle)).collect())))
        }
        Topic::Attachment(_)
        | Topic::Claim { .. }
        | Topic::PodCertificate(_)
        | Topic::ResourceClaim(_)
        | Topic::Token(_) => None,
    };
    match content.transpose() {
        Ok(content) => ObjectEvent::Received(topic.clone(), content),
        Err(error) => ObjectEvent::Failed(topic.clone(), error.to_string()),
    }
}

fn object_of(kind: ObjectKind, object: &ObjectText) -> Result<Arc<ConfigObject>, DecodeError> {
    let object: ConfigObject = match kind {
        ObjectKind::ConfigMap => object.decode::<ConfigMap>()?.value.into(),
        ObjectKind::Secret => object.decode::<Secret>()?.value.into(),
        ObjectKind::Service => object.decode::<api::Service>()?.value.into(),
        ObjectKind::VolumeClaim => object.decode::<api::VolumeClaim>()?.value.into(),
    };
    Ok(Arc::new(object))
}

fn handler_of(class: &Value) -> String {
    class.get("handler").and_then(Value::as_str).unwrap_or_default().to_owned()
}

pub(super) fn name_of(object: &ObjectText) -> String {
    let [name] = object.metadata(["name"]);
    name
}
