//! Values by the paths that errors show: `spec.containers[0].image`, `metadata.labels["a.b"]`. Pure.

use serde_json::Value;

use super::decode::{Decode, DecodeError, Decoded, decode};

/// As [`decode`], but with every error: each wrong value is left out, so that the next one is found. `None` if an error
/// cannot be left out.
pub fn decode_leniently<T: Decode>(value: &Value) -> (Option<Decoded<T>>, Vec<DecodeError>) {
    let mut value = value.clone();
    let mut errors: Vec<DecodeError> = Vec::new();
    loop {
        match decode(value.clone()) {
            Ok(decoded) => return (Some(decoded), errors),
            Err(error) => {
                let is_known = errors.iter().any(|earlier| earlier.path() == error.path());
                let is_left_out = !is_known && leave_out(&mut value, error.path());
                if !is_known {
                    errors.push(error);
                }
                if !is_left_out || errors.len() >= MAX_DECODE_ERRORS {
                    return (None, errors);
                }
            }
        }
    }
}

const MAX_DECODE_ERRORS: usize = 20;

/// Removes the value at the path; an element of a list becomes null. False if there is none.
pub fn leave_out(value: &mut Value, path: &str) -> bool {
    let Some((step, rest)) = first_step(path) else { return false };
    match (step, value) {
        (Step::Key(key), Value::Object(object)) if rest.is_empty() => object.remove(&key).is_some(),
        (Step::Key(key), Value::Object(object)) => object.get_mut(&key).is_some_and(|inner| leave_out(inner, rest)),
        (Step::Index(index), Value::Array(list)) => match list.get_mut(index) {
            Some(inner) if rest.is_empty() => !std::mem::replace(inner, Value::Null).is_null(),
            Some(inner) => leave_out(inner, rest),
            None => false,
        },
        (Step::Key(_) | Step::Index(_), _) => false,
    }
}

enum Step {
    Key(String),
    Index(usize),
}

/// The first step of a path and the rest of it.
fn first_step(path: &str) -> Option<(Step, &str)> {
    let path = path.strip_prefix('.').unwrap_or(path);
    if let Some(quoted) = path.strip_prefix('[').filter(|inner| inner.starts_with('"')) {
        let (key, rest) = quoted.split_once("\"]")?;
        let key = serde_json::from_str(&format!("{key}\"")).ok()?;
        return Some((Step::Key(key), rest));
    }
    if let Some(inner) = path.strip_prefix('[') {
        let (index, rest) = inner.split_once(']')?;
        return Some((Step::Index(index.parse().ok()?), rest));
    }
    let end = path.find(['.', '[']).unwrap_or(path.len());
    let (key, rest) = path.split_at_checked(end)?;
    (!key.is_empty()).then(|| (Step::Key(key.to_owned()), rest))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::types::api::Pod;

    #[test]
    fn all_errors_and_unknown_fields_are_found_at_once() {
        let pod = json!({
            "metadata": { "name": "a", "labels": { "x.y/z": 1 } },
            "spec": {
                "hostNetwrok": true,
                "containers": [{ "name": "c", "image": 7, "ports": [{ "containerPort": "x" }, 3], "tty": "no" }],
                "restartPolicy": "Sometimes",
            },
        });
        let (decoded, errors) = decode_leniently::<Pod>(&pod);
        let paths: Vec<&str> = errors.iter().map(DecodeError::path).collect();
        for path in ["metadata.labels[\"x.y/z\"]", "spec.containers[0].image", "spec.containers[0].tty"] {
            assert!(paths.contains(&path), "{paths:?}");
        }
        assert!(paths.len() >= 5, "{paths:?}");
        assert_eq!(decoded.unwrap().unknown, ["spec.hostNetwrok"]);
    }

    #[test]
    fn path_of_nothing_is_not_left_out() {
        let mut value = json!({ "a": [{ "b": 1 }] });
        for path in ["", "x", "a[1]", "a[0].c", "a.b", "[0]", "a[x]", "a[\"b"] {
            assert!(!leave_out(&mut value, path), "{path}");
        }
        assert!(leave_out(&mut value, "a[0].b") && leave_out(&mut value, "a[0]") && leave_out(&mut value, "a"));
        assert_eq!(value, json!({}));
    }
}
