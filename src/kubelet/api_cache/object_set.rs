//! The objects of a list, as the API server sent them, and the events of a watch. Pure.

use crate::types::sorted::SortedMap;

/// A list.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ObjectSet {
    /// Ends in `List`.
    pub(super) kind: String,
    pub(super) api_version: String,
    pub(super) version: u64,
    /// By `NAMESPACE/NAME`: the text of a JSON object, or the protobuf message without its envelope.
    pub(super) objects: SortedMap<String, Vec<u8>>,
}

/// An answer with what matters of it.
#[derive(Debug, PartialEq)]
pub(super) enum Content {
    List(ObjectSet),
    /// A page of a list.
    Page,
    /// Metadata or a table instead of the objects.
    OtherForm,
    /// An object, as it is compared with another one.
    Object(Vec<u8>),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct WatchedEvent {
    pub(super) change: Change,
    /// Of the object.
    pub(super) kind: String,
    pub(super) api_version: String,
    pub(super) name: String,
    pub(super) version: u64,
    pub(super) object: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Set,
    Removed,
    /// Only the progress of the watch.
    Bookmark,
    /// All initial events were sent.
    EndOfInitialEvents,
}

/// Whether answers of this kind have another form of the objects.
pub(super) fn is_other_form(kind: &str) -> bool {
    matches!(kind, "Table" | "PartialObjectMetadata" | "PartialObjectMetadataList")
}

pub(crate) fn key_of(namespace: &str, name: &str) -> String {
    [namespace, "/", name].concat()
}
