//! Object metadata: name, labels, uid. Pure.

use std::fmt;
use std::sync::Arc;

use super::decode::{Decode, DecodeContext, DecodeError, Input, text};
use super::encode::{Encode, Json};
use super::map::Map;
use super::time::Time;

object! {
    pub struct ObjectMeta {
        name: String,
        generate_name: String,
        namespace: String,
        uid: PodUid,
        resource_version: String,
        generation: i64,
        creation_timestamp: Option<Time>,
        deletion_timestamp: Option<Time>,
        deletion_grace_period_seconds: Option<i64>,
        labels: Map<String>,
        annotations: Map<String>,
        owner_references: Vec<OwnerReference>,
        finalizers: Vec<String>,
        /// About half of an object's size as the API server sends it, and unused on a node.
        managed_fields: Dropped,
        self_link: Dropped,
    }
}

object! {
    pub struct OwnerReference {
        api_version: String,
        kind: String,
        name: String,
        uid: String,
        controller: Option<bool>,
        block_owner_deletion: Option<bool>,
    }
}

/// The uid of a pod, the key of every pod map, runtime label and pod directory. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodUid(Arc<str>);

impl PodUid {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether no source has given the pod a uid yet.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Default for PodUid {
    fn default() -> Self {
        Self(Arc::from(""))
    }
}

impl From<&str> for PodUid {
    fn from(uid: &str) -> Self {
        Self(Arc::from(uid))
    }
}

impl From<String> for PodUid {
    fn from(uid: String) -> Self {
        Self(Arc::from(uid))
    }
}

impl fmt::Display for PodUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::borrow::Borrow<str> for PodUid {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl Decode for PodUid {
    fn decode(input: Input<'_>, _context: DecodeContext<'_>) -> Result<Self, DecodeError> {
        text(input).map(Self::from)
    }
}

impl Encode for PodUid {
    fn write(&self, json: &mut Json) {
        json.string(&self.0);
    }

    fn omit(&self) -> bool {
        self.is_empty()
    }
}

/// A known field whose value is not kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped;

impl Decode for Dropped {
    fn decode(_input: Input<'_>, _context: DecodeContext<'_>) -> Result<Self, DecodeError> {
        Ok(Self)
    }
}

impl Encode for Dropped {
    fn write(&self, json: &mut Json) {
        json.raw("null");
    }

    fn omit(&self) -> bool {
        true
    }
}
