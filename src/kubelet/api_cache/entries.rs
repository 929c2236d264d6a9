//! The remembered answers, and their limits. Pure.

use std::sync::Arc;

use serde_json::{Value, json};

use super::encoding::Encoding;
use super::fold::{Base, Fold, Folded, MAX_BODY_BYTES};
use super::object_set::{Change, WatchedEvent};
use super::read_request::{JSON_NAME, PROTOBUF_NAME, representation};
use crate::protocol::gzip::inflate;
use crate::types::api::Bytes;

/// A remembered answer.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) account: String,
    /// The name of its record: account, key, representation.
    pub(super) name: String,
    pub(super) content_type: String,
    /// In gzip.
    pub(super) body: Arc<[u8]>,
    /// The version after the last event. `None` if it is not a list.
    pub(super) version: Option<u64>,
    /// The version in the body.
    pub(super) body_version: Option<u64>,
    /// Events that are not in the body yet.
    pub(super) pending: Vec<WatchedEvent>,
    /// Changes when the list is replaced: watches of the former one do not continue this one.
    pub(super) generation: u64,
    /// The body has changes that are not stored.
    pub(super) is_unwritten: bool,
    last_use: u64,
}

/// A remembered answer at one moment.
pub(super) struct Snapshot {
    encoding: Encoding,
    content_type: String,
    body: Arc<[u8]>,
    fold: Option<Fold>,
}

#[derive(Debug, Default)]
pub(super) struct Entries {
    pub(super) all: Vec<Entry>,
    clock: u64,
}

/// Bytes in memory of the answers to one account, in gzip. The store keeps as many of each account on disk.
const MAX_ACCOUNT_BYTES: usize = 2 << 20;
const MAX_ACCOUNT_ENTRIES: usize = 256;
/// Events of a list are folded into its body when they have more bytes.
pub(super) const MAX_PENDING_BYTES: usize = 64 << 10;

impl Entry {
    pub(super) fn encoding(&self) -> Encoding {
        encoding(&self.content_type).unwrap_or(Encoding::Json)
    }

    fn bytes(&self) -> usize {
        self.body.len() + self.pending_bytes()
    }

    pub(super) fn pending_bytes(&self) -> usize {
        self.pending.iter().map(|event| event.object.len()).sum()
    }

    /// Adds an event of a watch. Returns whether there was anything new in it.
    pub(super) fn push(&mut self, event: WatchedEvent) -> bool {
        if self.version.is_none_or(|version| event.version <= version) {
            return false;
        }
        self.version = Some(event.version);
        let is_news = matches!(event.change, Change::Removed | Change::Set);
        if is_news {
            self.pending.push(event);
        }
        is_news
    }

    /// What makes the current body of a list; `None` if the body is that already.
    pub(super) fn fold(&self) -> Option<Fold> {
        (self.version != self.body_version).then(|| Fold {
            encoding: self.encoding(),
            is_of_objects: true,
            old: Some(Arc::clone(&self.body)),
            base: Base::Old,
            events: self.pending.clone(),
            version: self.version,
        })
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let (content_type, body) = (self.content_type.clone(), Arc::clone(&self.body));
        Snapshot { encoding: self.encoding(), content_type, body, fold: self.fold() }
    }

    pub(super) fn write(&self) -> Value {
        // Events that are not in the body are not in its version either.
        let body = Bytes(self.body.to_vec()).to_base64();
        json!({"type": self.content_type, "list": self.version.is_some(), "body": body})
    }
}

impl Snapshot {
    /// Encoding, content type, and the body with all events so far. `None` if it is damaged. Blocks for a while.
    pub(super) fn read(self) -> Option<(Encoding, String, Vec<u8>)> {
        let body = self.fold.map_or(Ok(self.body), |fold| fold.run().map(|folded| folded.body)).ok()?;
        Some((self.encoding, self.content_type, inflate(&body, MAX_BODY_BYTES).ok()?))
    }
}

/// `None` if the objects of such an answer cannot be read.
pub(super) fn encoding(content_type: &str) -> Option<Encoding> {
    let name = representation(content_type)?;
    match name.split('-').next()? {
        JSON_NAME => Some(Encoding::Json),
        PROTOBUF_NAME => Some(Encoding::Protobuf),
        _ => None,
    }
}

impl Entries {
    pub(super) fn get(&mut self, name: &str) -> Option<&mut Entry> {
        self.clock += 1;
        let entry = self.all.iter_mut().find(|entry| entry.name == name)?;
        entry.last_use = self.clock;
        Some(entry)
    }

    /// Replaces an answer. Returns its generation and the names of those that had to go, which may include it.
    pub(super) fn replace(
        &mut self,
        account: &str,
        name: &str,
        content_type: &str,
        folded: Folded,
    ) -> (u64, Vec<String>) {
        self.clock += 1;
        let former = self.all.iter().position(|entry| entry.name == name).map(|index| self.all.swap_remove(index));
        self.all.push(Entry {
            account: account.to_owned(),
            name: name.to_owned(),
            content_type: content_type.to_owned(),
            body: folded.body,
            version: folded.version,
            body_version: folded.version,
            pending: Vec::new(),
            generation: self.clock,
            is_unwritten: folded.is_changed || former.is_some_and(|former| former.is_unwritten),
            last_use: self.clock,
        });
        (self.clock, self.shrink(account))
    }

    /// Removes what was not used for the longest time while an account has too much.
    pub(super) fn shrink(&mut self, account: &str) -> Vec<String> {
        let mut removed = Vec::new();
        loop {
            let own = || self.all.iter().enumerate().filter(|(_, entry)| entry.account == account);
            let bytes: usize = own().map(|(_, entry)| entry.bytes()).sum();
            if bytes <= MAX_ACCOUNT_BYTES && own().count() <= MAX_ACCOUNT_ENTRIES {
                return removed;
            }
            let Some((index, _)) = own().min_by_key(|(_, entry)| entry.last_use) else { return removed };
            removed.push(self.all.swap_remove(index).name);
        }
    }

    /// Removes the answers whose names begin so. Returns their names.
    pub(super) fn remove(&mut self, prefix: &str) -> Vec<String> {
        let (gone, kept) = std::mem::take(&mut self.all).into_iter().partition(|entry| entry.name.starts_with(prefix));
        self.all = kept;
        gone.into_iter().map(|entry: Entry| entry.name).collect()
    }

    pub(super) fn clear(&mut self) -> Vec<String> {
        self.all.drain(..).map(|entry| entry.name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(bytes: usize, version: Option<u64>) -> Folded {
        Folded { body: vec![0; bytes].into(), version, is_changed: true }
    }

    fn event(version: u64, change: Change) -> WatchedEvent {
        let text = String::new;
        WatchedEvent { change, kind: text(), api_version: text(), name: text(), version, object: vec![0; 10] }
    }

    #[test]
    fn account_with_too_much_loses_what_it_used_last() {
        let mut entries = Entries::default();
        assert_eq!(entries.replace("ns/other", "z", "application/json", folded(MAX_ACCOUNT_BYTES, None)).1, [""; 0]);
        for name in ["a", "b"] {
            let half = folded(MAX_ACCOUNT_BYTES / 2, None);
            assert_eq!(entries.replace("ns/a", name, "application/json", half).1, [""; 0]);
        }
        assert!(entries.get("a").is_some());
        assert_eq!(entries.replace("ns/a", "c", "application/json", folded(1, None)).1, ["b"]);
        let (_, removed) = entries.replace("ns/a", "d", "application/json", folded(MAX_ACCOUNT_BYTES + 1, None));
        assert_eq!(removed, ["a", "c", "d"]);
        assert!(entries.get("z").is_some());
    }

    #[test]
    fn only_newer_events_are_pending() {
        let mut entries = Entries::default();
        entries.replace("ns/a", "a", "application/json", folded(1, Some(7)));
        let entry = entries.get("a").unwrap();
        assert!(!entry.push(event(7, Change::Set)) && entry.push(event(8, Change::Set)));
        assert!(!entry.push(event(9, Change::Bookmark)) && !entry.push(event(12, Change::Bookmark)));
        assert!(entry.push(event(13, Change::Removed)));
        assert_eq!((entry.version, entry.pending.len(), entry.pending_bytes()), (Some(13), 2, 20));
    }

    #[test]
    fn answers_are_removed_in_all_representations() {
        let mut entries = Entries::default();
        for name in ["read/a/1.json", "read/a/1.protobuf", "read/a/2.json"] {
            entries.replace("ns/a", name, "application/json", folded(1, None));
        }
        let mut removed = entries.remove("read/a/1.");
        removed.sort();
        assert_eq!((&*removed.concat(), entries.all.len()), ("read/a/1.jsonread/a/1.protobuf", 1));
    }
}
