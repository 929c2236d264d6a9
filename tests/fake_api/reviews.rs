//! TokenReview and SubjectAccessReview.

use serde_json::{Value, json};

use super::resources::Resource;
use super::world::{World, text};

/// The review with its status. It is not stored. `None` for other resources.
pub(crate) fn answer_review(world: &World, resource: &Resource, body: &Value) -> Option<Value> {
    let status = match resource.kind {
        "TokenReview" => token(world, text(body, "/spec/token")),
        "SubjectAccessReview" => access(world, &body["spec"]),
        _ => return None,
    };
    let mut object = body.clone();
    object["status"] = status;
    Some(object)
}

fn token(world: &World, token: &str) -> Value {
    match world.tokens.get(token) {
        Some(identity) => {
            let identity = identity.clone().authenticated();
            let user = json!({ "username": identity.user, "groups": identity.groups });
            json!({ "authenticated": true, "user": user, "audiences": ["https://kubernetes.default.svc.cluster.local"] })
        }
        None => json!({ "user": {}, "error": "[invalid bearer token, Token has been invalidated]" }),
    }
}

fn access(world: &World, spec: &Value) -> Value {
    let about = &spec["resourceAttributes"];
    let groups: Vec<&str> = spec["groups"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let (verb, part) = (text(about, "/verb"), text(about, "/subresource"));
    let fits = |[group, may, to]: &[String; 3]| groups.contains(&&**group) && may == verb && to == part;
    let is_node = about["resource"] == "nodes" && about["name"].is_string();
    let may = groups.contains(&"system:masters") || is_node && world.allowed.iter().any(fits);
    if may { json!({ "allowed": true, "reason": "RBAC: allowed" }) } else { json!({ "allowed": false }) }
}
