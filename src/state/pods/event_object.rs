//! The object that an event is about. Pure.

use crate::types::api::{ObjectKind, PodUid};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EventObject {
    pub(crate) kind: ObjectKind,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: PodUid,
}
