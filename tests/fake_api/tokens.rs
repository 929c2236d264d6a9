//! Service account tokens in their real form, with a dummy signature.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::api_error::ApiError;
use super::managed_fields::{self, Writer};
use super::node_restriction;
use super::resources::{Resource, Target};
use super::verbs::Caller;
use super::world::{World, text};

const GROUP: &str = "authentication.k8s.io";
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

pub(crate) fn create(world: &mut World, caller: &Caller, target: &Target, mut body: Value) -> Result<Value, ApiError> {
    let account = Target { subresource: String::new(), ..target.clone() };
    let account = world.get_object(&account)?;
    let seconds = body["spec"]["expirationSeconds"].as_i64().unwrap_or(3600);
    if seconds < 600 {
        let why = format!("Invalid value: {seconds}: may not specify a duration less than 10 minutes");
        let field = "spec.expirationSeconds";
        return Err(ApiError::invalid_kind(GROUP, "TokenRequest", field, "FieldValueInvalid", &why));
    }
    if let Some(node) = caller.identity.node_name().filter(|_| world.options.node_authorization) {
        node_restriction::admit_token(world, node, target, &body)?;
    }
    let bound = bound_pod(world, target, &body)?;
    let seconds = world.token_lifetime.unwrap_or(seconds);
    let now = Timestamp::from_second(world.now().as_second()).unwrap_or_default();
    let expires = now + SignedDuration::from_secs(seconds);
    let asked = body["spec"].clone();
    if body["spec"]["audiences"].as_array().is_none_or(Vec::is_empty) {
        body["spec"]["audiences"] = json!([ISSUER]);
    }
    let account = json!({ "name": target.name, "uid": account["metadata"]["uid"] });
    let mut of_kubernetes = json!({ "namespace": target.namespace, "serviceaccount": account });
    if let Some(pod) = bound {
        of_kubernetes["pod"] = json!({ "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"] });
        of_kubernetes["node"] = json!({ "name": pod["spec"]["nodeName"] });
    }
    let claims = json!({
        "aud": body["spec"]["audiences"],
        "exp": expires.as_second(),
        "iat": now.as_second(),
        "iss": ISSUER,
        "jti": world.new_uid(),
        "kubernetes.io": of_kubernetes,
        "nbf": now.as_second(),
        "sub": format!("system:serviceaccount:{}:{}", target.namespace, target.name),
    });
    let header = json!({ "alg": "RS256", "kid": "PGLnFvtnUIc4gsJpSS3yjrTqSSBSkrsOUrDhbyTdA2Q" });
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signature = URL_SAFE_NO_PAD.encode([0x5a; 256]);
    body["spec"]["expirationSeconds"] = json!(seconds);
    let mut answer = json!({
        "kind": "TokenRequest",
        "apiVersion": format!("{GROUP}/v1"),
        "metadata": {
            "name": target.name, "namespace": target.namespace, "uid": account["uid"],
            "creationTimestamp": now.to_string()
        },
        "spec": body["spec"],
        "status": {
            "token": format!("{}.{}.{signature}", part(&header), part(&claims)),
            "expirationTimestamp": expires.to_string()
        },
    });
    let mut owned = json!({ "apiVersion": answer["apiVersion"], "metadata": {}, "spec": asked });
    let (manager, time) = (&caller.manager, &now.to_string());
    managed_fields::record(&mut owned, None, Writer { manager, subresource: "token", time });
    answer["metadata"]["managedFields"] = owned["metadata"]["managedFields"].clone();
    Ok(answer)
}

/// The pod that a token is to be bound to.
fn bound_pod(world: &World, target: &Target, body: &Value) -> Result<Option<Value>, ApiError> {
    let reference = &body["spec"]["boundObjectRef"];
    if reference["kind"] != "Pod" {
        return Ok(None);
    }
    let pods = Resource::find("", "v1", "pods").expect("it is served");
    let name = text(reference, "/name");
    let pod = Target { resource: pods, version: "v1", subresource: String::new(), ..target.named(name) };
    let pod = world.get_object(&pod)?;
    let account = match text(&pod, "/spec/serviceAccountName") {
        "" => "default",
        account => account,
    };
    if account != target.name {
        return Err(ApiError::bad_request(format!(
            "cannot bind token for serviceaccount {:?} to pod running with different serviceaccount name.",
            target.name
        )));
    }
    let (wanted, found) = (text(reference, "/uid"), text(&pod, "/metadata/uid"));
    if !wanted.is_empty() && wanted != found {
        let why = format!(
            "the UID in the bound object reference ({wanted}) does not match the UID in record. The object might have \
             been deleted and then recreated"
        );
        let mut error = ApiError::conflict(pods, name, &why);
        error.message = error.message.replacen("pods", "Pod", 1);
        return Err(error);
    }
    Ok(Some(pod))
}
