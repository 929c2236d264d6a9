//! PodCertificateRequests: their validation, what a node may request, and a signer.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::api_error::ApiError;
use super::certificates::Validity;
use super::der::{self, CertificateRequest};
use super::node_restriction::Operation;
use super::resources::{Resource, Target};
use super::signer::is_signed_by_its_key;
use super::world::{World, text};

fn is_request(resource: &Resource) -> bool {
    resource.kind == "PodCertificateRequest"
}

pub(crate) fn prepare_for_create(resource: &Resource, object: &mut Value) {
    if is_request(resource) {
        if object["spec"]["maxExpirationSeconds"].is_null() {
            object["spec"]["maxExpirationSeconds"] = json!(86400);
        }
        object["status"] = json!({});
    }
}

fn proof_of(object: &Value) -> Option<CertificateRequest> {
    der::certificate_request(&STANDARD.decode(text(object, "/spec/stubPKCS10Request")).ok()?)
}

/// Refuses an invalid request (`ValidatePodCertificateRequestCreate`).
pub(crate) fn validate(resource: &Resource, object: &Value) -> Result<(), ApiError> {
    if !is_request(resource) {
        return Ok(());
    }
    let name = text(object, "/metadata/name");
    let invalid = |field: &str, why: &str| Err(ApiError::invalid(resource, name, field, "FieldValueInvalid", why));
    for field in ["podName", "podUID", "serviceAccountName", "serviceAccountUID", "nodeName", "nodeUID"] {
        let given = text(object, &format!("/spec/{field}"));
        if given.is_empty() || given.len() > 253 {
            return invalid(&format!("spec.{field}"), "must not be empty");
        }
    }
    if !text(object, "/spec/signerName")
        .split_once('/')
        .is_some_and(|(domain, path)| domain.contains('.') && !path.is_empty())
    {
        return invalid("spec.signerName", "must be a fully qualified domain and path of the form");
    }
    let seconds = object["spec"]["maxExpirationSeconds"].as_i64().unwrap_or_default();
    let longest = if text(object, "/spec/signerName").starts_with("kubernetes.io/") { 86_400 } else { 7_862_400 };
    if !(3600..=longest).contains(&seconds) {
        return invalid("spec.maxExpirationSeconds", &format!("must be in the range [3600, {longest}]"));
    }
    let keys = object["spec"]["unverifiedUserAnnotations"].as_object().into_iter().flatten();
    if keys.map(|(key, _)| key).any(|key| !key.contains('/')) {
        return invalid("spec.unverifiedUserAnnotations", "must be a domain-prefixed key");
    }
    match proof_of(object) {
        Some(proof) if is_signed_by_its_key(&proof) => Ok(()),
        _ => invalid("spec.stubPKCS10Request", "must be a valid PKCS#10 CSR"),
    }
}

/// A request is for a running pod of the node, with all of its names and UIDs (NodeRestriction).
pub(crate) fn admit(
    world: &World,
    node: &str,
    target: &Target,
    operation: Operation,
    new: &Value,
) -> Result<(), ApiError> {
    let forbidden = |why: &str| Err(ApiError::forbidden(target.resource, &target.name, why));
    if operation != Operation::Create || !target.subresource.is_empty() {
        return forbidden("unexpected operation");
    }
    let named = |field: &str| text(new, &format!("/spec/{field}")).to_owned();
    if named("nodeName") != node {
        return forbidden("PodCertificateRequest.Spec.NodeName is not the requesting node");
    }
    let namespace = &target.namespace;
    let own = |path: String| world.get(&path).unwrap_or_default();
    let (pod, account) = (named("podName"), named("serviceAccountName"));
    let pod = own(format!("/api/v1/namespaces/{namespace}/pods/{pod}"));
    let account_object = own(format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}"));
    let same = [
        ("nodeUID", text(&own(format!("/api/v1/nodes/{node}")), "/metadata/uid").to_owned()),
        ("podUID", text(&pod, "/metadata/uid").to_owned()),
        ("nodeName", text(&pod, "/spec/nodeName").to_owned()),
        ("serviceAccountName", text(&pod, "/spec/serviceAccountName").to_owned()),
        ("serviceAccountUID", text(&account_object, "/metadata/uid").to_owned()),
    ];
    match same.iter().find(|(field, expected)| expected.is_empty() || named(field) != *expected) {
        Some((field, expected)) => forbidden(&format!("{field} differs from {expected:?}")),
        None => Ok(()),
    }
}

/// The status of a request that is signed now: for a day, to be refreshed at a moment of that day.
pub(crate) fn issued(world: &World, object: &Value, refresh_after: SignedDuration) -> Value {
    let (from, until) = (world.now(), world.now() + SignedDuration::from_hours(24));
    let proof = proof_of(object).expect("it was validated");
    let validity = Validity { not_before: from, not_after: until };
    let leaf = world.authority.sign(&proof, &["digital signature", "client auth"], validity).expect("a known key");
    let date = |moment: jiff::Timestamp| moment.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    json!({
        "conditions": [condition(world, "Issued", "Issued", "")],
        "certificateChain": format!("the leaf\n{leaf}and its issuer\n{}", world.authority.pem()),
        "notBefore": date(from), "beginRefreshAt": date(from + refresh_after), "notAfter": date(until),
    })
}

pub(crate) fn refused(world: &World, kind: &str, reason: &str, message: &str) -> Value {
    json!({"conditions": [condition(world, kind, reason, message)]})
}

fn condition(world: &World, kind: &str, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": world.time()})
}

/// A decided request does not change any more.
pub(crate) fn validate_update(target: &Target, new: &Value, old: &Value) -> Result<(), ApiError> {
    let is_decided = old["status"]["conditions"].as_array().is_some_and(|conditions| !conditions.is_empty());
    if is_request(target.resource) && is_decided && new["status"] != old["status"] {
        let why = "immutable after PodCertificateRequest is issued, denied, or failed";
        return Err(ApiError::invalid(target.resource, &target.name, "status", "FieldValueInvalid", why));
    }
    Ok(())
}
