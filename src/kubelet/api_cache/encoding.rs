//! The encodings of answers, and what an event of a watch changes in a list. Pure.

use super::object_set::{Change, Content, ObjectSet, WatchedEvent};
use super::{json, protobuf};

/// How objects are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Json,
    Protobuf,
}

impl Encoding {
    /// `None` if it is malformed.
    pub(super) fn read(self, body: Vec<u8>) -> Option<Content> {
        match self {
            Self::Json => json::read(body),
            Self::Protobuf => protobuf::read(&body),
        }
    }

    pub(super) fn write(self, set: &ObjectSet) -> Vec<u8> {
        match self {
            Self::Json => json::write(set),
            Self::Protobuf => protobuf::write(set),
        }
    }

    /// `None` if it is malformed, or the end of the watch.
    pub(super) fn read_event(self, frame: Vec<u8>) -> Option<WatchedEvent> {
        match self {
            Self::Json => json::read_event(frame),
            Self::Protobuf => protobuf::read_event(&frame),
        }
    }

    /// The object without what changes although nothing else does: its version, and the heartbeats of nodes.
    fn lasting(self, object: &[u8], is_node: bool) -> Vec<u8> {
        match self {
            Self::Json => json::lasting(object, is_node),
            Self::Protobuf => protobuf::lasting(object, is_node),
        }
    }
}

impl ObjectSet {
    /// Applies an event. Returns whether that is worth a write to flash.
    pub(super) fn apply(&mut self, event: WatchedEvent, encoding: Encoding) -> bool {
        if self.kind.is_empty() {
            self.kind = [&*event.kind, "List"].concat();
            self.api_version = event.api_version;
        }
        self.version = event.version;
        match event.change {
            Change::Set => {
                let is_node = self.is_of_nodes();
                let lasting = |object: &[u8]| encoding.lasting(object, is_node);
                let is_same = self.objects.get(&event.name).is_some_and(|old| lasting(old) == lasting(&event.object));
                self.objects.insert(event.name, event.object);
                !is_same
            }
            Change::Removed => self.objects.remove(&event.name).is_some(),
            Change::Bookmark | Change::EndOfInitialEvents => false,
        }
    }

    /// Whether the sets have the same objects, apart from what changes all the time.
    pub(super) fn is_like(&self, other: &Self, encoding: Encoding) -> bool {
        let is_node = self.is_of_nodes();
        let lasting = |object: &[u8]| encoding.lasting(object, is_node);
        self.kind == other.kind
            && self.objects.keys().eq(other.objects.keys())
            && self
                .objects
                .values()
                .zip(other.objects.values())
                .all(|(one, other)| one == other || lasting(one) == lasting(other))
    }

    fn is_of_nodes(&self) -> bool {
        self.kind == "NodeList"
    }
}
