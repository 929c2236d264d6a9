//! Claims, attachments and ResourceClaims, which a node may get by name and not watch.

use std::fmt;

use serde_json::Value;

use crate::kubelet::offline::{used_part_of_volume, without_managed_fields};
use crate::platform::apiserver::{ApiError, Client, Request, Requester};
use crate::state::objects::{
    Attachment, ClaimOwner, ClaimRefusal, Content, NotAttached, ObjectEvent, PersistentVolume, ResourceClaim,
    ResourceClaimKey, Topic, bound_volume, is_bound_to, is_controlled_by,
};
use crate::types::api::ObjectText;

/// Why a claim or an attachment is not usable, in upstream's words where it has some.
#[derive(Debug)]
pub(super) enum LookupError {
    Api(ApiError),
    BoundElsewhere { volume: String, name: String },
    ClaimDeleted,
    ClaimRefused(ClaimRefusal),
    FetchClaim { name: String, source: ApiError },
    NotAttached(NotAttached),
    NotBound { name: String },
    NotOwner { namespace: String, name: String, pod_name: String },
}

impl fmt::Display for LookupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Api(error) => error.fmt(f),
            Self::BoundElsewhere { volume, name } => {
                write!(f, "PersistentVolume {volume:?} is not bound to the claim {name:?}")
            }
            Self::ClaimDeleted => f.write_str("PVC is being deleted"),
            Self::ClaimRefused(refusal) => refusal.fmt(f),
            Self::FetchClaim { name, source } => write!(f, "fetch ResourceClaim {name}: {source}"),
            Self::NotAttached(error) => error.fmt(f),
            Self::NotBound { name } => write!(f, "PersistentVolumeClaim is not bound: {name:?}"),
            Self::NotOwner { namespace, name, pod_name } => {
                write!(f, "PVC {namespace}/{name} was not created for pod {namespace}/{pod_name} (pod is not owner)")
            }
        }
    }
}

/// Fetches the volume of a claim, an attachment or a ResourceClaim, reduced to the parts to store.
pub(super) async fn look_up(client: &Client, topic: &Topic) -> Result<Value, LookupError> {
    let get = async |path: String| client.send(&Request::get(path).requested_by(Requester::Tenant)).await?.json();
    let (namespace, name, owner) = match topic {
        Topic::Claim { namespace, name, owner } => (namespace, name, owner),
        Topic::Attachment(name) => {
            let attachment = get(format!("/apis/storage.k8s.io/v1/volumeattachments/{name}")).await;
            let attachment = attachment.map_err(LookupError::Api)?;
            // A volume that is not attached yet is requested again.
            Attachment::read(&attachment).map_err(LookupError::NotAttached)?;
            return Ok(kept(&attachment));
        }
        Topic::ResourceClaim(key) => {
            let ResourceClaimKey { namespace, name, .. } = key;
            let claim = get(format!("/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}")).await;
            let claim = claim.map_err(|source| LookupError::FetchClaim { name: name.clone(), source })?;
            ResourceClaim::read(&claim, key).map_err(LookupError::ClaimRefused)?;
            return Ok(kept(&claim));
        }
        _ => return Ok(Value::Null),
    };
    let claim = get(format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}")).await;
    let claim = claim.map_err(LookupError::Api)?;
    // No pod starts with such a claim. One that has it uses its stored copy.
    if claim.pointer("/metadata/deletionTimestamp").is_some() {
        return Err(LookupError::ClaimDeleted);
    }
    if let Some(ClaimOwner { pod_name, .. }) = owner.as_ref().filter(|owner| !is_controlled_by(&claim, &owner.pod)) {
        // A claim of another pod of the same name may still be being deleted.
        let (namespace, name, pod_name) = (namespace.clone(), name.clone(), pod_name.clone());
        return Err(LookupError::NotOwner { namespace, name, pod_name });
    }
    let bound = bound_volume(&claim).ok_or_else(|| LookupError::NotBound { name: name.clone() })?;
    let volume = get(format!("/api/v1/persistentvolumes/{bound}")).await.map_err(LookupError::Api)?;
    if !is_bound_to(&volume, &claim) {
        return Err(LookupError::BoundElsewhere { volume: bound.to_owned(), name: name.clone() });
    }
    Ok(used_part_of_volume(&volume))
}

fn kept(object: &Value) -> Value {
    without_managed_fields(&ObjectText::of(object)).value().unwrap_or_default()
}

/// The event for what [`look_up`] has returned, now or before it was stored.
pub(super) fn lookup_event(topic: &Topic, object: &Value) -> ObjectEvent {
    let content = match topic {
        Topic::Attachment(_) => Attachment::read(object).map(Content::Attachment).map_err(|error| error.to_string()),
        Topic::ResourceClaim(key) => {
            ResourceClaim::read(object, key).map(Content::ResourceClaim).map_err(|error| error.to_string())
        }
        _ => {
            let volume = PersistentVolume::read(object).map_err(|error| format!("PersistentVolume: {error}"));
            volume.map(|volume| Content::Volume(Box::new(volume)))
        }
    };
    match content {
        Ok(content) => ObjectEvent::Received(topic.clone(), Some(content)),
        Err(why) => ObjectEvent::Failed(topic.clone(), why),
    }
}
