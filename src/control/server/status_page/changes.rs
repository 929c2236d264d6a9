//! Server-sent events for watchers: of a list only its changes. Pure.

use crate::types::sorted::SortedMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Server-sent events that belong together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Block(Vec<u8>);

impl Block {
    /// Adds one event with the data `json`.
    pub(super) fn push(&mut self, kind: &str, json: &[u8]) {
        self.0.extend_from_slice(b"event: ");
        self.0.extend_from_slice(kind.as_bytes());
        for line in json.split(|byte| *byte == b'\n') {
            self.0.extend_from_slice(b"\ndata: ");
            self.0.extend_from_slice(line);
        }
        self.0.extend_from_slice(b"\n\n");
    }

    /// The events, to which the next block belongs.
    pub(super) fn unfinished(self) -> Vec<u8> {
        self.0
    }

    /// Ends the block with an event that has the node's time (RFC 3339), because the browser's clock may differ.
    pub(super) fn end(mut self, time: &str) -> Vec<u8> {
        self.push("look", format!("{{\"time\":\"{time}\"}}").as_bytes());
        self.0
    }
}

/// The state of one list as sent to all current watchers.
#[derive(Debug)]
pub(super) struct Changes {
    kind: &'static str,
    /// The event for removed items; its data is the key.
    gone: &'static str,
    /// By key: the digest of the item last sent, and the round in which it was last seen.
    sent: SortedMap<String, (u64, u32)>,
    round: u32,
}

impl Changes {
    pub(super) fn new(kind: &'static str, gone: &'static str) -> Self {
        Self { kind, gone, sent: SortedMap::new(), round: 0 }
    }

    /// Adds an item of this round. Sends it if it changed.
    pub(super) fn item(&mut self, key: &str, json: &[u8], block: &mut Block) {
        let mut hasher = DefaultHasher::new();
        json.hash(&mut hasher);
        let seen = (hasher.finish(), self.round);
        match self.sent.get_mut(key) {
            Some(sent_state) => {
                if std::mem::replace(sent_state, seen).0 == seen.0 {
                    return;
                }
            }
            None => drop(self.sent.insert(key.to_owned(), seen)),
        }
        block.push(self.kind, json);
    }

    /// Ends the round: items not seen in it are removed.
    pub(super) fn end_round(&mut self, block: &mut Block) {
        let (round, gone) = (self.round, self.gone);
        self.sent.retain(|key, (_, seen)| {
            if *seen != round {
                block.push(gone, serde_json::Value::from(key.as_str()).to_string().as_bytes());
            }
            *seen == round
        });
        self.round = round.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(changes: &mut Changes, items: &[(&str, &str)], told: &str) {
        let mut block = Block::default();
        items.iter().for_each(|(key, json)| changes.item(key, json.as_bytes(), &mut block));
        changes.end_round(&mut block);
        assert_eq!(String::from_utf8(block.0).unwrap(), told);
    }

    #[test]
    fn only_new_changed_and_removed_items_are_sent() {
        let mut changes = Changes::new("pod", "pod-gone");
        check(&mut changes, &[], "");
        check(&mut changes, &[("a", "1"), ("b", "2")], "event: pod\ndata: 1\n\nevent: pod\ndata: 2\n\n");
        check(&mut changes, &[("a", "1"), ("b", "2")], "");
        check(&mut changes, &[("b", "3"), ("a", "1")], "event: pod\ndata: 3\n\n");
        check(
            &mut changes,
            &[("a\"\n", "1")],
            "event: pod\ndata: 1\n\nevent: pod-gone\ndata: \"a\"\n\n\
             event: pod-gone\ndata: \"b\"\n\n",
        );
        check(&mut changes, &[], "event: pod-gone\ndata: \"a\\\"\\n\"\n\n");
        check(&mut changes, &[], "");
    }

    #[test]
    fn block_ends_with_the_nodes_time_and_keeps_all_lines() {
        let mut block = Block::default();
        block.push("figures", b"{\n}");
        let text = "event: figures\ndata: {\ndata: }\n\nevent: look\ndata: {\"time\":\"t\"}\n\n";
        assert_eq!(String::from_utf8(block.end("t")).unwrap(), text);
    }
}
