//! TokenReview and SubjectAccessReview requests and responses. Pure.

use serde_json::{Map, Value, json};

use super::error::ReviewError;
use super::user::User;

pub(super) const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
pub(super) const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

pub(super) fn token_review(token: &str) -> Value {
    json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "metadata": {}, "spec": {"token": token}})
}

/// The user of the token; `Ok(None)`: the token is invalid. Fails if the API server reports an error.
pub(super) fn user_of(review: &Value) -> Result<Option<User>, ReviewError> {
    let status = review.get("status").ok_or(ReviewError::NoStatus)?;
    if status.get("authenticated").and_then(Value::as_bool) != Some(true) {
        return match text(status, "error").as_str() {
            "" => Ok(None),
            why => Err(ReviewError::Failed { why: why.to_owned() }),
        };
    }
    let user = status.get("user").unwrap_or(&Value::Null);
    let extra = user.get("extra").and_then(Value::as_object).into_iter().flatten();
    let user = User {
        name: text(user, "username"),
        uid: text(user, "uid"),
        groups: user.get("groups").map(texts).unwrap_or_default(),
        extra: extra.map(|(key, values)| (key.clone(), texts(values))).collect(),
    };
    Ok(Some(user.authenticated()))
}

/// The access review for this user, verb and subresource of the node.
pub(super) fn access_review(user: &User, verb: &str, node: &str, part: &str) -> Value {
    let about = json!({"name": node, "resource": "nodes", "subresource": part, "verb": verb, "version": "v1"});
    let mut spec = Map::from_iter([("resourceAttributes".to_owned(), about)]);
    let mut put = |name: &str, value: Value, is_empty: bool| {
        if !is_empty {
            spec.insert(name.to_owned(), value);
        }
    };
    put("user", json!(user.name), user.name.is_empty());
    put("uid", json!(user.uid), user.uid.is_empty());
    put("groups", json!(user.groups), user.groups.is_empty());
    let extra: Map<_, _> = user.extra.iter().map(|(key, values)| (key.to_lowercase(), json!(values))).collect();
    put("extra", Value::Object(extra), user.extra.is_empty());
    json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "metadata": {}, "spec": spec})
}

/// Whether the user is allowed. Without an explicit permission, access is denied.
pub(super) fn is_allowed(review: &Value) -> Result<bool, ReviewError> {
    let status = review.get("status").ok_or(ReviewError::NoStatus)?;
    let says = |field: &str| status.get(field).and_then(Value::as_bool) == Some(true);
    Ok(says("allowed") && !says("denied"))
}

fn text(value: &Value, field: &str) -> String {
    value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::sorted::SortedMap;

    #[test]
    fn token_review_names_the_user() {
        let user = json!({"username": "a", "uid": "1", "groups": ["g"], "extra": {"k": ["v"]}});
        let read = user_of(&json!({"status": {"authenticated": true, "user": user}})).unwrap().unwrap();
        assert_eq!(
            (&*read.name, &*read.uid, read.groups),
            ("a", "1", vec!["g".to_owned(), "system:authenticated".to_owned()])
        );
        assert_eq!(read.extra["k"], ["v"]);
        for nobody in [json!({}), json!({"authenticated": false, "user": user}), json!({"authenticated": "true"})] {
            assert_eq!(user_of(&json!({"status": nobody})).unwrap(), None);
        }
        let refused = user_of(&json!({"status": {"error": "no"}}));
        assert!(matches!(refused, Err(ReviewError::Failed { why }) if why == "no"));
        assert!(matches!(user_of(&json!({})), Err(ReviewError::NoStatus)));
    }

    #[test]
    fn access_review_names_the_user_and_the_subresource() {
        let user = User {
            name: "a".to_owned(),
            groups: vec!["g".to_owned()],
            extra: SortedMap::from([("Key".to_owned(), vec!["v".to_owned()])]),
            ..User::default()
        };
        let expected = json!({
            "user": "a", "groups": ["g"], "extra": {"key": ["v"]},
            "resourceAttributes": {
                "verb": "get", "version": "v1", "resource": "nodes", "subresource": "pods", "name": "n",
            },
        });
        assert_eq!(access_review(&user, "get", "n", "pods")["spec"], expected);
    }

    #[test]
    fn only_allowed_and_not_denied_users_have_access() {
        let allowed = |status: Value| is_allowed(&json!({"status": status})).unwrap();
        assert!(allowed(json!({"allowed": true})));
        assert!(!allowed(json!({"allowed": true, "denied": true})));
        assert!(!allowed(json!({"allowed": false, "reason": "x"})));
        assert!(is_allowed(&json!({})).is_err());
    }
}
