//! Secrets whose values are sealed to one board: opened in memory only. Pure.

use crate::kubelet::sealed_secrets::{BoardKey, MIN_SEALED_BYTES, scope};
use crate::types::api::annotations::SEALED_FOR;
use crate::types::api::validation::FieldError;
use crate::types::api::{Bytes, Secret};

/// Replaces the sealed values by their contents, if the Secret says that it is sealed. Without `key` the values are only
/// checked for their form, and the type of the Secret is taken away, because it says what the contents have to be.
pub(super) fn open(secret: &mut Secret, key: Option<&Result<BoardKey, String>>) -> Vec<FieldError> {
    let Some(sealed_for) = secret.metadata.annotations.get(SEALED_FOR) else { return Vec::new() };
    let of_board = || format!("metadata.annotations[{SEALED_FOR}]");
    if !secret.string_data.is_empty() {
        let problem = "must be empty in a sealed Secret, whose values are in data".to_owned();
        return vec![FieldError { path: "stringData".to_owned(), problem }];
    }
    let Some(key) = key else {
        secret.secret_type.clear();
        return check_form(secret);
    };
    let key = match key {
        Ok(key) if key.public().to_string() == *sealed_for => key,
        Ok(key) => {
            let problem = format!("sealed for another board: the key of this one is {}", key.public());
            return vec![FieldError { path: of_board(), problem }];
        }
        Err(no_key) => {
            return vec![FieldError { path: of_board(), problem: format!("this node cannot open it: {no_key}") }];
        }
    };
    let (namespace, name) = (&secret.metadata.namespace, &secret.metadata.name);
    let mut faults = Vec::new();
    for (field, Bytes(value)) in secret.data.iter_mut() {
        match key.open(&scope(namespace, name, field), value) {
            Some(opened) => *value = opened,
            None => faults.push(FieldError { path: ["data.", field].concat(), problem: NOT_OPENED.to_owned() }),
        }
    }
    faults
}

const NOT_OPENED: &str =
    "cannot be opened: it was sealed for a Secret of another namespace, name or key, or is damaged";

fn check_form(secret: &Secret) -> Vec<FieldError> {
    let unsealed = secret.data.iter().filter(|(_, value)| value.0.len() < MIN_SEALED_BYTES);
    let fault = |(field, _): (&str, &Bytes)| FieldError {
        path: ["data.", field].concat(),
        problem: "is not sealed; see coracle seal".to_owned(),
    };
    unsealed.map(fault).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::types::api::decode;

    #[test]
    fn without_a_key_sealed_values_are_checked_for_their_form() {
        let check = |value: Vec<u8>| {
            let value = Bytes(value).to_base64();
            let metadata = json!({"name": "s", "annotations": {SEALED_FOR: "key"}});
            let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"a": value},
                "type": "kubernetes.io/dockerconfigjson"});
            let mut secret = decode::<Secret>(secret).unwrap().value;
            let faults: Vec<String> = open(&mut secret, None).iter().map(ToString::to_string).collect();
            (secret.secret_type, faults)
        };
        assert_eq!(check(vec![0; MIN_SEALED_BYTES]), (String::new(), Vec::new()));
        let unsealed = vec!["data.a: is not sealed; see coracle seal".to_owned()];
        assert_eq!(check(b"hidden".to_vec()), (String::new(), unsealed));
    }

    #[test]
    fn secret_that_is_not_sealed_is_left_alone() {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "b"}});
        let mut secret = decode::<Secret>(secret).unwrap().value;
        assert!(open(&mut secret, None).is_empty() && secret.string_data.get("a").is_some());
    }
}
