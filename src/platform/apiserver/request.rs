//! What is asked of the API server. Pure.

use std::time::Duration;

use serde_json::Value;

use super::gate::Rank;
use crate::protocol::hpack::Field;
use crate::protocol::http1::push_escaped;

/// One request. Paths begin with `/api` or `/apis`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Request {
    method: &'static str,
    /// With its query.
    path: String,
    content: Option<(&'static str, Vec<u8>)>,
    accept: &'static str,
    accepts_gzip: bool,
    /// From here to the last byte of the answer, the tries of a server that asks for patience among it.
    pub(super) limit: Duration,
    pub(super) rank: Rank,
    /// Until it is admitted; else it fails at once.
    pub(super) waits: bool,
}

/// How a patch is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patch {
    /// RFC 7386.
    Merge,
    /// Lists of the Kubernetes types are merged by their keys.
    StrategicMerge,
}

/// As long as a request takes before it counts as lost (kubelet: the lease's own limit).
const LIMIT: Duration = Duration::from_secs(10);

impl Request {
    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new("GET", path.into(), None)
    }

    pub(crate) fn post(path: impl Into<String>, object: &Value) -> Self {
        Self::new("POST", path.into(), Some(("application/json", object.to_string().into_bytes())))
    }

    pub(crate) fn patch(path: impl Into<String>, kind: Patch, patch: &Value) -> Self {
        let kind = match kind {
            Patch::Merge => "application/merge-patch+json",
            Patch::StrategicMerge => "application/strategic-merge-patch+json",
        };
        Self::new("PATCH", path.into(), Some((kind, patch.to_string().into_bytes())))
    }

    /// `options` is a `DeleteOptions`.
    pub(crate) fn delete(path: impl Into<String>, options: &Value) -> Self {
        Self::new("DELETE", path.into(), Some(("application/json", options.to_string().into_bytes())))
    }

    fn new(method: &'static str, path: String, content: Option<(&'static str, Vec<u8>)>) -> Self {
        Self {
            method,
            path,
            content,
            accept: "application/json",
            accepts_gzip: false,
            limit: LIMIT,
            rank: Rank::Intent,
            waits: true,
        }
    }

    pub(super) fn method(&self) -> &'static str {
        self.method
    }

    /// Adds to the query; the value is escaped.
    pub(crate) fn with_query(mut self, name: &str, value: &str) -> Self {
        self.path.push(if self.path.contains('?') { '&' } else { '?' });
        self.path.extend([name, "="]);
        push_escaped(&mut self.path, value);
        self
    }

    /// Of the answer only the object's metadata is wanted: that saves the rest on the wire.
    pub(crate) fn for_metadata(mut self) -> Self {
        self.accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        self
    }

    /// Nobody reads the answer: it is to be as short as a server has it, which is the metadata in protobuf. An error is
    /// JSON all the same.
    pub(crate) fn unread(mut self) -> Self {
        self.accept = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,\
                       application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
        self
    }

    /// The answer may be long: the server compresses it from 128 KiB on.
    pub(crate) fn for_much(mut self) -> Self {
        self.accepts_gzip = true;
        self
    }

    pub(crate) fn within(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Where it stands among what is exchanged; without this, it is about what the node is to run.
    pub(crate) fn ranked(mut self, rank: Rank) -> Self {
        self.rank = rank;
        self
    }

    /// Somebody waits for the answer: it is of no use later.
    pub(crate) fn at_once(mut self) -> Self {
        self.waits = false;
        self
    }

    pub(super) fn content(&self) -> &[u8] {
        self.content.as_ref().map_or(&[], |(_, content)| content)
    }

    /// The header as HTTP/2 has it. What is the same in every request comes first: it is one byte each after the first.
    pub(super) fn head(&self, caller: &Caller) -> Vec<Field> {
        let mut head = vec![
            Field::fixed(":method", self.method),
            Field::fixed(":scheme", caller.scheme),
            Field::new(":authority", caller.authority.as_bytes()),
            Field::new(":path", [&*caller.prefix, &*self.path].concat()),
            Field::new("user-agent", caller.agent.as_bytes()),
            Field::fixed("accept", self.accept),
        ];
        if let Some(token) = &caller.token {
            head.push(Field::new("authorization", format!("Bearer {token}")));
        }
        if let Some((kind, _)) = &self.content {
            head.push(Field::fixed("content-type", kind));
        }
        if self.accepts_gzip {
            head.push(Field::fixed("accept-encoding", "gzip"));
        }
        head
    }

    /// Whether doing it twice is the same as doing it once.
    pub(super) fn is_idempotent(&self) -> bool {
        self.method != "POST"
    }
}

/// Who asks whom, as every request of a connection says it.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Caller {
    pub(super) scheme: &'static str,
    pub(super) authority: String,
    /// Stands before every path; empty but for a server that is one of several behind an address.
    pub(super) prefix: String,
    pub(super) agent: String,
    pub(super) token: Option<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_query_is_escaped_and_begins_once() {
        let request =
            Request::get("/api/v1/pods").with_query("fieldSelector", "spec.nodeName=a b").with_query("limit", "5");
        assert_eq!(request.path, "/api/v1/pods?fieldSelector=spec.nodeName%3Da%20b&limit=5");
    }

    #[test]
    fn a_token_is_told_and_a_patch_says_how_it_is_to_be_read() {
        let caller = Caller {
            scheme: "https",
            authority: "h:1".to_owned(),
            prefix: "/k8s".to_owned(),
            agent: "coracle".to_owned(),
            token: Some("t".to_owned()),
        };
        let request = Request::patch("/api/v1/nodes/n", Patch::Merge, &json!({"a": 1})).for_metadata();
        let head: Vec<String> = request.head(&caller).iter().map(|field| format!("{field:?}")).collect();
        let wanted = [
            ":method: PATCH",
            ":scheme: https",
            ":authority: h:1",
            ":path: /k8s/api/v1/nodes/n",
            "user-agent: coracle",
            "accept: application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
            "authorization: Bearer t",
            "content-type: application/merge-patch+json",
        ];
        assert_eq!(head, wanted);
        assert_eq!(request.content(), br#"{"a":1}"#);
    }
}
