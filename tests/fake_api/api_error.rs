//! Errors as kube-apiserver words them: a Status with a reason and a code.

use serde_json::{Value, json};

use super::resources::Resource;

/// The error that a request is refused with.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ApiError {
    pub code: u16,
    pub reason: &'static str,
    pub message: String,
    pub details: Option<Value>,
    pub retry_after: Option<u32>,
    /// The continue token of an inconsistent list.
    pub next: Option<String>,
}

/// The message of a conflict: the object was modified.
pub(crate) const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

impl ApiError {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None, retry_after: None, next: None }
    }

    fn about(mut self, resource: &Resource, name: &str) -> Self {
        let mut details = json!({ "name": name, "kind": resource.name });
        if name.is_empty() {
            details = json!({ "kind": resource.name });
        }
        if !resource.group.is_empty() {
            details["group"] = json!(resource.group);
        }
        self.details = Some(details);
        self
    }

    pub(crate) fn not_found(resource: &Resource, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", resource.qualified());
        Self::new(404, "NotFound", message).about(resource, name)
    }

    pub(crate) fn no_such_resource() -> Self {
        let mut error = Self::new(404, "NotFound", "the server could not find the requested resource");
        error.details = Some(json!({}));
        error
    }

    pub(crate) fn already_exists(resource: &Resource, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", resource.qualified());
        Self::new(409, "AlreadyExists", message).about(resource, name)
    }

    pub(crate) fn conflict(resource: &Resource, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", resource.qualified());
        Self::new(409, "Conflict", message).about(resource, name)
    }

    pub(crate) fn forbidden(resource: &Resource, name: &str, why: &str) -> Self {
        let what = resource.qualified();
        let message = match name {
            "" => format!("{what} is forbidden: {why}"),
            name => format!("{what} \"{name}\" is forbidden: {why}"),
        };
        Self::new(403, "Forbidden", message).about(resource, name)
    }

    /// A refusal of a non-resource path.
    pub(crate) fn forbidden_path(why: &str) -> Self {
        let mut error = Self::new(403, "Forbidden", format!("forbidden: {why}"));
        error.details = Some(json!({}));
        error
    }

    /// `field` is the path. `why` begins with the kind of error, such as `Invalid value: 0: `.
    pub(crate) fn invalid(resource: &Resource, name: &str, field: &str, reason: &str, why: &str) -> Self {
        let kind = resource.qualified_kind();
        let mut error = Self::new(422, "Invalid", format!("{kind} \"{name}\" is invalid: {field}: {why}"));
        let cause = json!({ "reason": reason, "message": why, "field": field });
        let mut details = json!({ "name": name, "kind": resource.kind, "causes": [cause] });
        if name.is_empty() {
            details = json!({ "kind": resource.kind, "causes": [cause] });
        }
        if !resource.group.is_empty() {
            details["group"] = json!(resource.group);
        }
        error.details = Some(details);
        error
    }

    /// The same for a kind without a resource, such as `ListOptions` of `meta.k8s.io`.
    pub(crate) fn invalid_kind(group: &str, kind: &str, field: &str, reason: &str, why: &str) -> Self {
        let mut error = Self::new(422, "Invalid", format!("{kind}.{group} \"\" is invalid: {field}: {why}"));
        let cause = json!({ "reason": reason, "message": why, "field": field });
        error.details = Some(json!({ "group": group, "kind": kind, "causes": [cause] }));
        error
    }

    /// The requested version is older than the kept history.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// An error without an upstream reason.
    pub(crate) fn plain(why: &str) -> Self {
        Self::new(500, "", why)
    }

    pub(crate) fn internal(why: &str) -> Self {
        let mut error = Self::new(500, "InternalError", format!("Internal error occurred: {why}"));
        error.details = Some(json!({ "causes": [{ "message": why }] }));
        error
    }

    pub(crate) fn not_acceptable() -> Self {
        let known = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
        let message = format!("406: Not Acceptable\n\nAvailable representations: {known}");
        let mut error = Self::new(406, "NotAcceptable", message);
        error.details = Some(json!({}));
        error
    }

    pub(crate) fn unsupported_media_type() -> Self {
        let mut error = Self::new(415, "UnsupportedMediaType", "415: Unsupported Media Type");
        error.details = Some(json!({}));
        error
    }

    pub(crate) fn method_not_allowed() -> Self {
        let mut error =
            Self::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource");
        error.details = Some(json!({}));
        error
    }

    pub(crate) fn too_large() -> Self {
        let message = "Request entity too large: limit is 3145728";
        Self::new(413, "RequestEntityTooLarge", message)
    }

    /// etcd refuses an object of this size.
    pub(crate) fn too_large_for_etcd() -> Self {
        Self::plain("etcdserver: request is too large")
    }

    /// The client's resource version is newer than this server's.
    pub(crate) fn version_too_large(wanted: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {wanted}, current: {current}");
        let mut error = Self::new(504, "Timeout", message);
        let cause = json!({ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" });
        error.details = Some(json!({ "causes": [cause], "retryAfterSeconds": 1 }));
        error.retry_after = Some(1);
        error
    }

    pub(crate) fn unprocessable(message: impl Into<String>) -> Self {
        let mut error = Self::new(422, "Invalid", message);
        error.details = Some(json!({}));
        error
    }

    /// The server's error for a code that a test requests.
    pub(crate) fn of_code(code: u16) -> Self {
        match code {
            400 => Self::bad_request("the server rejected our request for an unknown reason"),
            401 => Self::unauthorized(),
            403 => Self::new(403, "Forbidden", "forbidden"),
            404 => Self::no_such_resource(),
            409 => Self::new(409, "Conflict", MODIFIED),
            410 => Self::expired("The resourceVersion for the provided list is too old."),
            // The filter that limits requests answers in plain text; see `Response`.
            429 => Self::new(429, "TooManyRequests", "Too many requests, please try again later."),
            503 => Self::new(503, "ServiceUnavailable", "apiserver is shutting down"),
            504 => Self::new(504, "Timeout", "Timeout: request did not complete within the allotted timeout"),
            code => Self { code, ..Self::internal("etcdserver: request timed out") },
        }
    }

    pub(crate) fn status(&self) -> Value {
        let mut metadata = json!({});
        if let Some(next) = &self.next {
            metadata["continue"] = json!(next);
        }
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata,
            "status": "Failure",
            "message": self.message,
            "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        status
    }
}
