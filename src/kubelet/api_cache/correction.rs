//! An answer without the server, with what the node knows better. Pure.
//!
//! A corrected list, and each object about this node in it, have a version of their own, which no server has: informers
//! ignore an object whose version they know, and a client that has such a version must list again when the server is
//! back.

use super::encoding::Encoding;
use super::object_set::{Content, ObjectSet};
use super::own_node::{CorrectedObject, OwnKind, OwnNode};
use super::{json, protobuf};
use crate::protocol::sha256::sha256;

/// What to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerForm {
    /// The answer, corrected or not.
    Body,
    /// The events that bring any watch of the list to what the node knows. None if it does not know better.
    Events,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OwnAnswer {
    /// `None` if all of it is as the server says.
    pub(crate) version: Option<u64>,
    pub(crate) bytes: Vec<u8>,
}

/// Versions from this one on are of corrected lists. etcd counts changes of a cluster, which are fewer.
const FIRST_CORRECTED_VERSION: u64 = 1 << 62;

/// The version, if it is one of a corrected list.
pub(crate) fn corrected_version(text: &str) -> Option<u64> {
    text.parse().ok().filter(|version| *version >= FIRST_CORRECTED_VERSION)
}

impl Encoding {
    pub(super) fn own_answer(self, body: Vec<u8>, node: Option<&OwnNode>, form: AnswerForm) -> OwnAnswer {
        let corrected = node.and_then(|node| self.corrected(&body, node, form));
        corrected.unwrap_or_else(|| OwnAnswer {
            version: None,
            bytes: if form == AnswerForm::Body { body } else { Vec::new() },
        })
    }

    fn corrected(self, body: &[u8], node: &OwnNode, form: AnswerForm) -> Option<OwnAnswer> {
        let (mut set, is_list) = match self.read(body.to_vec())? {
            Content::List(set) => (set, true),
            Content::Object(_) => (self.single(body)?, false),
            Content::OtherForm | Content::Page => return None,
        };
        let kind = OwnKind::of(set.kind.strip_suffix("List").unwrap_or(&set.kind), &set.api_version)?;
        // All objects about this node: a watch may know an object with a correction that does not hold any longer.
        let (mut names, mut content, mut is_changed) = (Vec::new(), set.version.to_string().into_bytes(), false);
        for (name, object) in set.objects.iter() {
            if let Some(corrected) = self.correct(object, kind, node, 0) {
                is_changed |= corrected.is_changed;
                content.extend_from_slice(&corrected.object);
                names.push(name.clone());
            }
        }
        if !is_changed {
            return None;
        }
        set.version = version_of(&content);
        let mut bytes = Vec::new();
        for name in names {
            let object = self.correct(set.objects.get(&name)?, kind, node, set.version)?.object;
            match form {
                _ if !is_list => bytes = self.wrap(kind, object),
                AnswerForm::Events => bytes.extend(self.write_event("MODIFIED", self.wrap(kind, object))),
                AnswerForm::Body => drop(set.objects.insert(name, object)),
            }
        }
        if is_list && form == AnswerForm::Body {
            bytes = self.write(&set);
        }
        Some(OwnAnswer { version: Some(set.version), bytes })
    }

    /// One object as a set, with the version of the object.
    pub(super) fn single(self, body: &[u8]) -> Option<ObjectSet> {
        match self {
            Self::Json => json::single(body),
            Self::Protobuf => protobuf::single(body),
        }
    }

    fn correct(self, object: &[u8], kind: OwnKind, node: &OwnNode, version: u64) -> Option<CorrectedObject> {
        match self {
            Self::Json => json::correct(object, kind, node, version),
            Self::Protobuf => protobuf::correct(object, kind, node, version),
        }
    }

    /// As an answer has the object. JSON has kind and API version in it.
    fn wrap(self, kind: OwnKind, object: Vec<u8>) -> Vec<u8> {
        let [kind, api_version] = kind.names();
        match self {
            Self::Json => object,
            Self::Protobuf => protobuf::envelope(kind, api_version, object),
        }
    }

    fn write_event(self, change: &str, object: Vec<u8>) -> Vec<u8> {
        match self {
            Self::Json => json::write_event(change, &object),
            Self::Protobuf => protobuf::write_event(change, object),
        }
    }
}

/// Depends on the content, so that a watch knows whether it has it.
fn version_of(content: &[u8]) -> u64 {
    let digest = sha256(content).get(..15).and_then(|digits| u64::from_str_radix(digits, 16).ok());
    FIRST_CORRECTED_VERSION + digest.unwrap_or_default()
}

#[cfg(test)]
mod tests;
