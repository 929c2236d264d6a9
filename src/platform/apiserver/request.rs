//! Requests to the API server. Pure.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use serde_json::Value;

use super::gate::Rank;
use crate::protocol::hpack::Field;
use crate::protocol::http1::push_escaped;

/// A request. Paths begin with `/api` or `/apis`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Request {
    method: &'static str,
    /// Including the query.
    path: String,
    content: Option<(&'static str, Vec<u8>)>,
    accept: &'static str,
    accepts_gzip: bool,
    /// Limit of the whole request up to the last byte of the response, including retries.
    pub(super) limit: Duration,
    pub(super) rank: Rank,
    pub(super) requester: Requester,
    /// Whether to wait at the gate; otherwise the request fails if it is not admitted.
    pub(super) waits: bool,
}

/// Who causes a request. The node's own requests have streams that no other requester can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requester {
    /// Lease, Node object, pods, statuses, events.
    Node,
    /// The objects that pods refer to, and the reviews of the kubelet API's clients: a tenant decides how many there are.
    Tenant,
}

/// A token that a new credential replaces. Clones share it.
pub(super) type SharedToken = Rc<RefCell<Option<String>>>;

/// The type of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patch {
    /// RFC 7386.
    Merge,
    /// Lists of the Kubernetes types are merged by their keys.
    StrategicMerge,
}

/// The default limit (kubelet: that of lease requests).
const DEFAULT_REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

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
            limit: DEFAULT_REQUEST_TIMEOUT,
            rank: Rank::Intent,
            requester: Requester::Node,
            waits: true,
        }
    }

    pub(super) fn method(&self) -> &'static str {
        self.method
    }

    /// Appends a query parameter and escapes its value.
    pub(crate) fn with_query(mut self, name: &str, value: &str) -> Self {
        self.path.push(if self.path.contains('?') { '&' } else { '?' });
        self.path.extend([name, "="]);
        push_escaped(&mut self.path, value);
        self
    }

    /// Requests only the object's metadata, which saves most of the response.
    pub(crate) fn for_metadata(mut self) -> Self {
        self.accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        self
    }

    /// Requests the shortest response, for a caller that ignores it: metadata in protobuf. Errors are JSON all the same.
    pub(crate) fn unread(mut self) -> Self {
        self.accept = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,\
                       application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
        self
    }

    /// Accepts compression, which servers apply from 128 KiB on.
    pub(crate) fn accepting_gzip(mut self) -> Self {
        self.accepts_gzip = true;
        self
    }

    pub(crate) fn within(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Sets the rank; the default is `Intent`.
    pub(crate) fn ranked(mut self, rank: Rank) -> Self {
        self.rank = rank;
        self
    }

    /// Sets the requester; the default is `Node`.
    pub(crate) fn requested_by(mut self, requester: Requester) -> Self {
        self.requester = requester;
        self
    }

    /// Fails instead of waiting at the gate, for requests that are useless later.
    pub(crate) fn at_once(mut self) -> Self {
        self.waits = false;
        self
    }

    pub(super) fn content(&self) -> &[u8] {
        self.content.as_ref().map_or(&[], |(_, content)| content)
    }

    /// The HTTP/2 fields. Constant ones come first: after the first request each takes one byte.
    pub(super) fn head(&self, caller: &Caller) -> Vec<Field> {
        let mut head = vec![
            Field::fixed(":method", self.method),
            Field::fixed(":scheme", caller.scheme),
            Field::new(":authority", caller.authority.as_bytes()),
            Field::new(":path", [&*caller.prefix, &*self.path].concat()),
            Field::new("user-agent", caller.agent.as_bytes()),
            Field::fixed("accept", self.accept),
        ];
        if let Some(token) = &*caller.token.borrow() {
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

    /// Whether sending the request twice has the same effect as once. HTTP does not promise this of PATCH (RFC 5789),
    /// but both kinds of patches set values.
    pub(super) fn is_idempotent(&self) -> bool {
        self.method != "POST"
    }
}

/// The fields about client and server in every request of a connection.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Caller {
    pub(super) scheme: &'static str,
    pub(super) authority: String,
    /// Precedes every path; empty unless several servers share an address.
    pub(super) prefix: String,
    pub(super) agent: String,
    pub(super) token: SharedToken,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn query_parameters_are_escaped_and_joined() {
        let request =
            Request::get("/api/v1/pods").with_query("fieldSelector", "spec.nodeName=a b").with_query("limit", "5");
        assert_eq!(request.path, "/api/v1/pods?fieldSelector=spec.nodeName%3Da%20b&limit=5");
    }

    #[test]
    fn requests_have_token_and_patch_type() {
        let caller = Caller {
            scheme: "https",
            authority: "h:1".to_owned(),
            prefix: "/k8s".to_owned(),
            agent: "coracle".to_owned(),
            token: SharedToken::new(Some("t".to_owned()).into()),
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
