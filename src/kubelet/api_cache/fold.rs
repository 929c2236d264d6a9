//! Makes the next remembered body of an answer from the former one and what the server sent since. Pure: takes long for
//! a large list.

use std::sync::Arc;

use super::encoding::Encoding;
use super::object_set::{Content, ObjectSet, WatchedEvent};
use crate::protocol::gzip::{gzip, inflate};

pub(super) struct Fold {
    pub(super) encoding: Encoding,
    /// Whether a list is one of objects; else the body is kept as it is.
    pub(super) is_of_objects: bool,
    /// The remembered body, in gzip.
    pub(super) old: Option<Arc<[u8]>>,
    pub(super) base: Base,
    pub(super) events: Vec<WatchedEvent>,
    /// What the watch has come to, also by bookmarks.
    pub(super) version: Option<u64>,
}

/// What the events change.
pub(super) enum Base {
    /// The remembered list.
    Old,
    /// A list whose objects are all among the events.
    Empty,
    Body {
        bytes: Vec<u8>,
        is_gzip: bool,
    },
}

#[derive(Debug, PartialEq)]
pub(super) struct Folded {
    /// In gzip.
    pub(super) body: Arc<[u8]>,
    /// Of the list; `None` if it is not one.
    pub(super) version: Option<u64>,
    /// Whether more has changed than versions and heartbeats.
    pub(super) is_changed: bool,
}

/// Larger answers are not remembered.
pub(super) const MAX_BODY_BYTES: usize = 4 << 20;

impl Fold {
    /// The error says why the answer is not remembered. Blocks for a while.
    pub(super) fn run(self) -> Result<Folded, &'static str> {
        let old = self.old.as_deref().and_then(|old| inflate(old, MAX_BODY_BYTES).ok());
        let (set, is_changed) = match self.base {
            Base::Old => {
                let mut set = self.encoding.list(old.ok_or(DAMAGED_IN_MEMORY)?).ok_or(DAMAGED_IN_MEMORY)?;
                let changed = self.events.into_iter().filter_map(|event| set.apply(event, self.encoding).then_some(()));
                let is_changed = changed.count() > 0;
                set.version = self.version.unwrap_or(set.version);
                (set, is_changed)
            }
            Base::Empty => {
                let mut set = ObjectSet::default();
                for event in self.events {
                    set.apply(event, self.encoding);
                }
                let is_changed = self.encoding.differs(&set, old);
                (set, is_changed)
            }
            Base::Body { bytes, is_gzip } => {
                let bytes =
                    if is_gzip { inflate(&bytes, MAX_BODY_BYTES).map_err(|_| TOO_LARGE_ANSWER)? } else { bytes };
                if !self.is_of_objects {
                    let is_changed = old.is_none_or(|old| old != bytes);
                    return Ok(Folded { body: gzip(&bytes).into(), version: None, is_changed });
                }
                match self.encoding.read(bytes.clone()).ok_or("malformed")? {
                    Content::List(set) => {
                        let is_changed = self.encoding.differs(&set, old);
                        (set, is_changed)
                    }
                    Content::Object(lasting) => {
                        let old = old.and_then(|old| self.encoding.read(old));
                        let is_changed = old != Some(Content::Object(lasting));
                        return Ok(Folded { body: gzip(&bytes).into(), version: None, is_changed });
                    }
                    Content::OtherForm => return Err("tables and metadata are passed on only"),
                    Content::Page => return Err("a list in pages is passed on only"),
                }
            }
        };
        let body = self.encoding.write(&set);
        if body.len() > MAX_BODY_BYTES {
            return Err(TOO_LARGE_ANSWER);
        }
        Ok(Folded { body: gzip(&body).into(), version: Some(set.version), is_changed })
    }
}

pub(super) const TOO_LARGE_ANSWER: &str = "larger than 4 MiB";
const DAMAGED_IN_MEMORY: &str = "damaged in memory";

impl Encoding {
    pub(super) fn list(self, body: Vec<u8>) -> Option<ObjectSet> {
        match self.read(body)? {
            Content::List(set) => Some(set),
            Content::Object(_) | Content::OtherForm | Content::Page => None,
        }
    }

    fn differs(self, set: &ObjectSet, old: Option<Vec<u8>>) -> bool {
        old.and_then(|old| self.list(old)).is_none_or(|old| !old.is_like(set, self))
    }
}

#[cfg(test)]
mod tests;
