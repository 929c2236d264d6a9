//! The effect of each verb on the objects.

use serde_json::{Value, json};

use super::api_error::{ApiError, MODIFIED};
use super::authorizer;
use super::collections::ListOptions;
use super::deletion::{self, DeleteOptions, Deletion};
use super::events;
use super::identity::Identity;
use super::managed_fields::{self, Writer};
use super::node_restriction::{self, Operation};
use super::patch::PatchType;
use super::resources::{Resource, Target};
use super::reviews;
use super::service_accounts;
use super::store::Object;
use super::strategies;
use super::world::{World, text};
use super::{signer, tokens};

/// The acting client, and its field manager.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub identity: Identity,
    pub manager: String,
}

impl Caller {
    /// The test itself, which may do everything.
    pub(crate) fn test() -> Self {
        Self { identity: Identity::admin(), manager: "kubectl".to_owned() }
    }
}

/// The result of a write.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Written {
    pub object: Value,
    pub created: bool,
}

impl World {
    pub(crate) fn get_object(&self, target: &Target) -> Result<Value, ApiError> {
        let found = self.find(&target.key());
        let object = found.ok_or_else(|| ApiError::not_found(target.resource, &target.name))?;
        Ok(shown(target, object))
    }

    /// POST to a collection, or to a subresource that creates something.
    pub(crate) fn create(&mut self, caller: &Caller, target: &Target, mut body: Value) -> Result<Written, ApiError> {
        if target.resource.is_core("serviceaccounts") && target.subresource == "token" {
            return tokens::create(self, caller, target, body).map(|object| Written { object, created: true });
        }
        if target.resource.is_core("pods") && target.subresource == "eviction" {
            return self.evict(caller, target, &body);
        }
        if !target.name.is_empty() {
            return Err(ApiError::method_not_allowed());
        }
        check_kind(target, &body)?;
        body["apiVersion"] = json!(target.api_version());
        body["kind"] = json!(target.resource.kind);
        if let Some(object) = reviews::answer_review(self, target.resource, &body) {
            return Ok(Written { object, created: true });
        }
        let body = events::stored(target, body);
        self.check_namespace(target, &body)?;
        // The server generates names after admission.
        let given = ["/metadata/name", "/metadata/generateName"].map(|field| text(&body, field));
        let name = given.into_iter().find(|name| !name.is_empty()).unwrap_or("Unknown");
        self.admit(caller, &target.named(name), Operation::Create, Some(&body), None)?;
        let (target, body) = self.with_name(target, body)?;
        self.create_named(caller, &target, body)
    }

    fn create_named(&mut self, caller: &Caller, target: &Target, mut object: Value) -> Result<Written, ApiError> {
        let resource = target.resource;
        if !["", "0"].contains(&text(&object, "/metadata/resourceVersion")) {
            return Err(ApiError::plain("resourceVersion should not be set on objects to be created"));
        }
        let (uid, time) = (self.new_uid(), self.time());
        let metadata = &mut object["metadata"];
        metadata["uid"] = json!(uid);
        metadata["creationTimestamp"] = json!(time);
        metadata["name"] = json!(target.name);
        if resource.namespaced {
            metadata["namespace"] = json!(target.namespace);
        }
        for gone in ["deletionTimestamp", "deletionGracePeriodSeconds", "generation", "managedFields", "selfLink"] {
            remove(metadata, gone);
        }
        strategies::prepare_for_create(resource, &mut object);
        signer::prepare_for_create(resource, &mut object, &caller.identity);
        remove_nulls(&mut object);
        strategies::complete(resource, &mut object);
        signer::validate(resource, &object)?;
        if self.find(&target.key()).is_some() {
            return Err(ApiError::already_exists(resource, &target.name));
        }
        managed_fields::record(&mut object, None, writer(caller, target, &time));
        strategies::admit_create(resource, &mut object);
        service_accounts::admit(self, resource, &mut object)?;
        self.check_size(&mut object)?;
        let object = self.store.put(target.key(), object);
        let object = signer::after_write(self, target, object);
        if self.options.furnished && resource.is_core("namespaces") {
            service_accounts::furnish(self, &target.name);
        }
        Ok(Written { object: shown(target, &object), created: true })
    }

    /// The server drops the managed fields of an object that etcd refuses, and then gives up.
    fn check_size(&self, object: &mut Value) -> Result<(), ApiError> {
        let is_too_large = |object: &Value| object.to_string().len() > self.options.largest_object;
        if is_too_large(object) {
            managed_fields::strip(object);
            return if is_too_large(object) { Err(ApiError::too_large_for_etcd()) } else { Ok(()) };
        }
        Ok(())
    }

    pub(crate) fn update(&mut self, caller: &Caller, target: &Target, body: Value) -> Result<Written, ApiError> {
        check_kind(target, &body)?;
        let mut body = body;
        body["apiVersion"] = json!(target.api_version());
        body["kind"] = json!(target.resource.kind);
        let body = events::stored(target, body);
        let Some(old) = self.find(&target.key()).cloned() else {
            if !target.resource.create_on_update || !target.subresource.is_empty() {
                return Err(ApiError::not_found(target.resource, &target.name));
            }
            check_place(target, &body)?;
            self.check_namespace(target, &body)?;
            self.admit(caller, target, Operation::Create, Some(&body), None)?;
            return self.create_named(caller, target, body);
        };
        let uid = text(&body, "/metadata/uid");
        let old_uid = text(&old, "/metadata/uid");
        if !uid.is_empty() && uid != old_uid {
            let place = if target.namespace.is_empty() {
                target.name.clone()
            } else {
                format!("{}/{}", target.namespace, target.name)
            };
            let why = format!(
                "StorageError: invalid object, Code: 4, Key: /registry/{}/{place}, ResourceVersion: 0, \
                 AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {old_uid}",
                target.resource.name
            );
            return Err(ApiError::conflict(target.resource, &target.name, &why));
        }
        self.replace(caller, target, body, &old)
    }

    pub(crate) fn patch(
        &mut self,
        caller: &Caller,
        target: &Target,
        patch_type: PatchType,
        patch: &Value,
    ) -> Result<Written, ApiError> {
        let found = self.find(&target.key()).cloned();
        let old = found.ok_or_else(|| ApiError::not_found(target.resource, &target.name))?;
        let new = patch_type.apply(&shown(target, &old), patch)?;
        let new = events::stored(target, new);
        self.replace(caller, target, new, &old)
    }

    /// Replaces `old` with `new`, within the limits of the update.
    fn replace(&mut self, caller: &Caller, target: &Target, mut new: Value, old: &Object) -> Result<Written, ApiError> {
        let resource = target.resource;
        check_place(target, &new)?;
        let is_recorded = managed_fields::is_recorded(&target.subresource, &new, old);
        self.admit(caller, target, Operation::Update, Some(&new), Some(old))?;
        self.check_version(target, &new, old)?;
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
        // API versions are representations of one object.
        new["apiVersion"] = old["apiVersion"].clone();
        strategies::prepare_for_update(target, &mut new, old);
        signer::validate_update(target, &new, old)?;
        signer::prepare_for_update(target, &mut new, &self.time());
        strategies::keep_metadata(resource, &mut new, old)?;
        remove_nulls(&mut new);
        strategies::complete(resource, &mut new);
        if resource.is_core("pods") && target.subresource == "status" {
            strategies::validate_pod_status(resource, &new, old)?;
        }
        match is_recorded {
            true => new["metadata"]["managedFields"] = old["metadata"]["managedFields"].clone(),
            false => managed_fields::strip(&mut new),
        }
        if new == **old {
            // A write without a change creates no version.
            return Ok(Written { object: shown(target, old), created: false });
        }
        let time = self.time();
        if is_recorded {
            managed_fields::record(&mut new, Some(old), writer(caller, target, &time));
        }
        self.check_size(&mut new)?;
        let object = self.store.put(target.key(), new);
        let metadata = &object["metadata"];
        let is_free = metadata["finalizers"].as_array().is_none_or(Vec::is_empty);
        let had_finalizers = old["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty());
        let is_due = !metadata["deletionTimestamp"].is_null() && metadata["deletionGracePeriodSeconds"] == 0;
        if is_free && had_finalizers && is_due {
            self.store.remove(&target.key());
        }
        let object = signer::after_write(self, target, object);
        Ok(Written { object: shown(target, &object), created: false })
    }

    /// Returns the deleted or terminating object.
    pub(crate) fn delete(
        &mut self,
        caller: &Caller,
        target: &Target,
        options: &DeleteOptions,
    ) -> Result<Value, ApiError> {
        let found = self.find(&target.key()).cloned();
        let old = found.ok_or_else(|| ApiError::not_found(target.resource, &target.name))?;
        self.admit(caller, target, Operation::Delete, None, Some(&old))?;
        let deletion = deletion::decide(target.resource, &old, options, self.now())?;
        let key = target.key();
        let last = match deletion {
            Deletion::Pending => return Ok(shown(target, &old)),
            Deletion::Mark(object) => return Ok(shown(target, &self.store.put(key, object))),
            Deletion::MarkAndRemove(object) => {
                self.store.put(key.clone(), object);
                self.store.remove(&key)
            }
            Deletion::Remove => self.store.remove(&key),
        };
        let last = last.unwrap_or(old);
        Ok(if target.resource.returns_deleted { shown(target, &last) } else { deleted(target.resource, &last) })
    }

    /// Returns the list of the deleted objects.
    pub(crate) fn delete_collection(
        &mut self,
        caller: &Caller,
        target: &Target,
        options: &ListOptions,
    ) -> Result<Value, ApiError> {
        let list = self.list_objects(target, options)?;
        for item in list["items"].as_array().into_iter().flatten() {
            let one = target.named(text(item, "/metadata/name"));
            self.delete(caller, &one, &DeleteOptions::parse(b"", None)?)?;
        }
        Ok(list)
    }

    fn evict(&mut self, caller: &Caller, target: &Target, body: &Value) -> Result<Written, ApiError> {
        let options = serde_json::to_vec(&body["deleteOptions"]).unwrap_or_default();
        let options = DeleteOptions::parse(if body["deleteOptions"].is_null() { b"" } else { &options }, None)?;
        let pod = Target { subresource: String::new(), ..target.clone() };
        self.delete(caller, &pod, &options)?;
        let object = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201
        });
        Ok(Written { object, created: true })
    }

    fn admit(
        &self,
        caller: &Caller,
        target: &Target,
        operation: Operation,
        new: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        if !self.options.node_authorization {
            return Ok(());
        }
        let Some(node) = caller.identity.node_name() else { return Ok(()) };
        node_restriction::admit(self, node, target, operation, new, old)
    }

    /// Authorizes the request.
    pub(crate) fn authorize(&self, request: &authorizer::Attributes<'_>) -> Result<(), ApiError> {
        if self.options.node_authorization { authorizer::authorize(self, request) } else { Ok(()) }
    }

    fn check_namespace(&self, target: &Target, body: &Value) -> Result<(), ApiError> {
        let named = text(body, "/metadata/namespace");
        if !named.is_empty() && named != target.namespace {
            return Err(ApiError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        let namespaces = Resource::find("", "v1", "namespaces").expect("it is served");
        let namespace = Target {
            resource: namespaces,
            version: "v1",
            namespace: String::new(),
            name: target.namespace.clone(),
            subresource: String::new(),
        };
        if target.resource.namespaced && self.find(&namespace.key()).is_none() {
            return Err(ApiError::not_found(namespaces, &target.namespace));
        }
        Ok(())
    }

    fn with_name(&mut self, target: &Target, body: Value) -> Result<(Target, Value), ApiError> {
        let mut name = text(&body, "/metadata/name").to_owned();
        let prefix = text(&body, "/metadata/generateName");
        if name.is_empty() && !prefix.is_empty() {
            name = format!("{prefix}{}", self.new_suffix());
        }
        if name.is_empty() {
            let why = "Required value: name or generateName is required";
            return Err(ApiError::invalid(target.resource, "", "metadata.name", "FieldValueRequired", why));
        }
        // Upstream's own CSR names contain capitals and underscores.
        let is_any = target.resource.kind == "CertificateSigningRequest";
        let is_subdomain = name.len() <= 253
            && name.split('.').all(|label| {
                let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
                !label.is_empty() && label.chars().all(inner) && !label.starts_with('-') && !label.ends_with('-')
            });
        if !is_any && !is_subdomain {
            let why = format!(
                "Invalid value: {name:?}: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
                 characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', \
                 regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            );
            return Err(ApiError::invalid(target.resource, &name, "metadata.name", "FieldValueInvalid", &why));
        }
        Ok((target.named(&name), body))
    }

    fn check_version(&self, target: &Target, new: &Value, old: &Value) -> Result<(), ApiError> {
        match text(new, "/metadata/resourceVersion") {
            "" | "0" if target.resource.unconditional_update => Ok(()),
            "" | "0" => {
                let why = "Invalid value: 0: must be specified for an update";
                let field = "metadata.resourceVersion";
                let mut error = ApiError::invalid(target.resource, &target.name, field, "FieldValueInvalid", why);
                // Upstream uses the resource here, and the kind elsewhere.
                if let Some(details) = &mut error.details {
                    details["kind"] = json!(target.resource.name);
                }
                error.message =
                    error.message.replacen(&target.resource.qualified_kind(), &target.resource.qualified(), 1);
                Err(error)
            }
            version if version == text(old, "/metadata/resourceVersion") => Ok(()),
            _ => Err(ApiError::conflict(target.resource, &target.name, MODIFIED)),
        }
    }
}

/// The object in the requested API version.
pub(crate) fn shown(target: &Target, object: &Object) -> Value {
    let mut object = Value::clone(object);
    object["apiVersion"] = json!(target.api_version());
    events::shown(target, object)
}

/// The Status that reports a deletion where the object is not returned.
fn deleted(resource: &Resource, object: &Value) -> Value {
    let metadata = &object["metadata"];
    let mut details = json!({ "name": metadata["name"], "kind": resource.name, "uid": metadata["uid"] });
    if !resource.group.is_empty() {
        details["group"] = json!(resource.group);
    }
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details })
}

fn writer<'a>(caller: &'a Caller, target: &'a Target, time: &'a str) -> Writer<'a> {
    Writer { manager: &caller.manager, subresource: &target.subresource, time }
}

fn check_kind(target: &Target, body: &Value) -> Result<(), ApiError> {
    if !body.is_object() {
        let kind = target.resource.kind;
        return Err(ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse error"
        )));
    }
    let (version, kind) = (text(body, "/apiVersion"), text(body, "/kind"));
    let expected = target.api_version();
    let wanted = target.resource.kind;
    let unknown = |found: &str, why: String| {
        ApiError::bad_request(format!(
            "{found} in version {:?} cannot be handled as a {wanted}: {why}",
            version.rsplit('/').next().unwrap_or_default()
        ))
    };
    if !version.is_empty() && version != expected {
        let scheme = "in scheme \"pkg/api/legacyscheme/scheme.go:30\"";
        return Err(unknown(wanted, format!("no kind {wanted:?} is registered for version {version:?} {scheme}")));
    }
    if !kind.is_empty() && kind != wanted {
        let hub = if target.resource.group.is_empty() { "core" } else { "internal" };
        return Err(unknown(kind, format!("converting ({expected}.{kind}) to ({hub}.{wanted}): unknown conversion")));
    }
    Ok(())
}

/// The object must match the path that it is written to.
fn check_place(target: &Target, object: &Value) -> Result<(), ApiError> {
    for (what, wanted, found) in [
        ("name", &target.name, text(object, "/metadata/name")),
        ("namespace", &target.namespace, text(object, "/metadata/namespace")),
    ] {
        let may_be_left_out = what == "namespace";
        if found != wanted && !(found.is_empty() && may_be_left_out) {
            let on = if what == "name" { "the name on the URL" } else { "the namespace on the request" };
            return Err(ApiError::bad_request(format!(
                "the {what} of the object ({found}) does not match {on} ({wanted})"
            )));
        }
    }
    Ok(())
}

fn remove(object: &mut Value, field: &str) {
    if let Value::Object(fields) = object {
        fields.remove(field);
    }
}

/// Removes null fields.
fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(remove_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}
