//! CSRs: what the server and its controllers do with them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::SignedDuration;
use rustls::crypto::ring;
use serde_json::{Value, json};

use super::api_error::ApiError;
use super::certificates::{Validity, from_pem};
use super::der::{self, CertificateRequest};
use super::identity::Identity;
use super::pod_certificates;
use super::resources::{Resource, Target};
use super::store::Object;
use super::world::{World, text};

/// Client certificates of kubelets.
pub(crate) const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Serving certificates of kubelets.
pub(crate) const SERVING_SIGNER: &str = "kubernetes.io/kubelet-serving";

fn is_request(resource: &Resource) -> bool {
    resource.kind == "CertificateSigningRequest"
}

/// Sets the requester's identity.
pub(crate) fn prepare_for_create(resource: &Resource, object: &mut Value, identity: &Identity) {
    pod_certificates::prepare_for_create(resource, object);
    if is_request(resource) {
        object["spec"]["username"] = json!(identity.user);
        object["spec"]["groups"] = json!(identity.groups);
    }
}

/// Refuses an invalid CSR.
pub(crate) fn validate(resource: &Resource, object: &Value) -> Result<(), ApiError> {
    if !is_request(resource) {
        return pod_certificates::validate(resource, object);
    }
    let name = text(object, "/metadata/name");
    let invalid = |field: &str, reason, why: &str| Err(ApiError::invalid(resource, name, field, reason, why));
    if text(object, "/spec/signerName").is_empty() {
        return invalid("spec.signerName", "FieldValueRequired", "Required value");
    }
    if object["spec"]["usages"].as_array().is_none_or(Vec::is_empty) {
        return invalid("spec.usages", "FieldValueRequired", "Required value");
    }
    if let Some(seconds) = object["spec"]["expirationSeconds"].as_i64().filter(|seconds| *seconds < 600) {
        let why = format!("Invalid value: {seconds}: may not specify a duration less than 600 seconds (10 minutes)");
        return invalid("spec.expirationSeconds", "FieldValueInvalid", &why);
    }
    match request_of(object) {
        None => {
            let given = text(object, "/spec/request");
            let why = format!("Invalid value: {given:?}: PEM block type must be CERTIFICATE REQUEST");
            invalid("spec.request", "FieldValueInvalid", &why)
        }
        Some(request) if !is_signed_by_its_key(&request) => {
            invalid("spec.request", "FieldValueInvalid", "Invalid value: x509: ECDSA verification failure")
        }
        Some(_) => Ok(()),
    }
}

/// Only the approval subresource may approve or deny.
pub(crate) fn validate_update(target: &Target, new: &Value, old: &Value) -> Result<(), ApiError> {
    if !is_request(target.resource) || target.subresource == "approval" {
        return pod_certificates::validate_update(target, new, old);
    }
    let is_new = |kind: &&&str| condition(new, kind).is_some() && condition(old, kind).is_none();
    let Some(kind) = ["Approved", "Denied"].iter().find(is_new) else { return Ok(()) };
    let why = format!("Forbidden: updates may not add a condition of type {kind:?}");
    Err(ApiError::invalid(target.resource, &target.name, "status.conditions", "FieldValueForbidden", &why))
}

/// Sets the timestamps of conditions.
pub(crate) fn prepare_for_update(target: &Target, new: &mut Value, time: &str) {
    if !is_request(target.resource) {
        return;
    }
    for condition in new["status"]["conditions"].as_array_mut().into_iter().flatten() {
        for field in ["lastUpdateTime", "lastTransitionTime"] {
            if condition[field].is_null() {
                condition[field] = json!(time);
            }
        }
    }
}

/// Acts like the controllers after a write. The writer receives the object as written.
pub(crate) fn after_write(world: &mut World, target: &Target, object: Object) -> Object {
    if !is_request(target.resource) {
        return object;
    }
    let mut current = Value::clone(&object);
    let mut changed = false;
    let is_wanted = match text(&current, "/spec/signerName") {
        SERVING_SIGNER => world.options.approve_serving,
        _ => world.options.approve,
    };
    if is_wanted && condition(&current, "Approved").is_none() && is_of_its_node(&current) {
        approve(&mut current, &world.time());
        changed = true;
    }
    let is_decided = condition(&current, "Denied").is_some() || condition(&current, "Failed").is_some();
    let is_due = condition(&current, "Approved").is_some() && current["status"]["certificate"].is_null();
    if world.options.sign && is_due && !is_decided {
        sign(world, &mut current);
        changed = true;
    }
    if changed {
        world.store.put(target.key(), current);
    }
    object
}

pub(crate) fn approve(object: &mut Value, time: &str) {
    set_condition(object, "Approved", "AutoApproved", "Auto approving kubelet client certificate.", time);
}

/// Adds a condition.
pub(crate) fn set_condition(object: &mut Value, kind: &str, reason: &str, message: &str, time: &str) {
    let condition = json!({
        "type": kind, "status": "True", "reason": reason, "message": message,
        "lastUpdateTime": time, "lastTransitionTime": time
    });
    match &mut object["status"]["conditions"] {
        Value::Array(conditions) => conditions.push(condition),
        none => *none = json!([condition]),
    }
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

fn sign(world: &World, object: &mut Value) {
    let requested = object["spec"]["expirationSeconds"].as_i64().map(SignedDuration::from_secs);
    let longest = world.options.certificate_lifetime;
    let lifetime = requested.map_or(longest, |requested| requested.min(longest));
    // Backdates like upstream.
    let not_before = world.now() - SignedDuration::from_mins(5);
    let validity = Validity { not_before, not_after: world.now() + lifetime };
    let usages: Vec<&str> =
        object["spec"]["usages"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let signed = request_of(object).and_then(|request| {
        check_subject(text(object, "/spec/signerName"), &request).ok()?;
        world.authority.sign(&request, &usages, validity)
    });
    match signed {
        Some(pem) => object["status"]["certificate"] = json!(STANDARD.encode(pem)),
        None => {
            let why = "subject or usages are not allowed by the signer";
            set_condition(object, "Failed", "SignerValidationFailure", why, &world.time());
        }
    }
}

/// Checks the subject against the rules of the kubelet signers.
fn check_subject(signer: &str, request: &CertificateRequest) -> Result<(), ()> {
    let subject = &request.subject;
    let is_node = subject.organizations == ["system:nodes"]
        && subject.common_name.as_ref().is_some_and(|name| name.starts_with("system:node:"));
    let names = request.dns_names.len() + request.addresses.len();
    match signer {
        CLIENT_SIGNER if is_node && names == 0 => Ok(()),
        SERVING_SIGNER if is_node && names > 0 => Ok(()),
        CLIENT_SIGNER | SERVING_SIGNER => Err(()),
        _ => Ok(()),
    }
}

/// Whether the approver accepts it: a node's certificate requested by that node, or a client certificate requested by a
/// bootstrap user.
fn is_of_its_node(object: &Value) -> bool {
    let Some(name) = request_of(object).and_then(|request| request.subject.common_name) else { return false };
    let groups = object["spec"]["groups"].as_array().cloned().unwrap_or_default();
    let is_bootstrapper = groups.iter().any(|group| group == "system:bootstrappers");
    match text(object, "/spec/signerName") {
        CLIENT_SIGNER => is_bootstrapper || text(object, "/spec/username") == name,
        SERVING_SIGNER => text(object, "/spec/username") == name,
        _ => false,
    }
}

pub(crate) fn request_of(object: &Value) -> Option<CertificateRequest> {
    let pem = STANDARD.decode(text(object, "/spec/request")).ok()?;
    der::certificate_request(&from_pem(std::str::from_utf8(&pem).ok()?)?)
}

pub(crate) fn is_signed_by_its_key(request: &CertificateRequest) -> bool {
    let algorithms = ring::default_provider().signature_verification_algorithms;
    algorithms.all.iter().any(|algorithm| {
        algorithm.public_key_alg_id().as_ref() == request.key_algorithm
            && algorithm.signature_alg_id().as_ref() == request.signature_algorithm
            && algorithm.verify_signature(&request.key, &request.signed, &request.signature).is_ok()
    })
}
