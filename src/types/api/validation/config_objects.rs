//! Validates ConfigMaps and Secrets: keys, size, and the required keys of typed Secrets. Pure.

use serde_json::Value;

use super::faults::Faults;
use super::metadata;
use super::names::CONFIG_KEY;
use crate::types::api::decode::Path;
use crate::types::api::{Bytes, ConfigMap, Map, Secret};

/// Upper bound on the sum of an object's values, in bytes.
const MAX_CONFIG_OBJECT_BYTES: usize = 1 << 20;

pub(super) fn check_config_map(config_map: &ConfigMap, faults: &mut Faults) {
    let root = Path::Root;
    metadata::check(&config_map.metadata, &root.key("metadata"), faults);
    check_keys(&config_map.data, &root.key("data"), faults);
    check_keys(&config_map.binary_data, &root.key("binaryData"), faults);
    for (key, _) in config_map.data.iter() {
        if config_map.binary_data.contains_key(key) {
            faults.other(&root.key("data").key(key), "binaryData has this key too");
        }
    }
    let text = config_map.data.iter().map(|(_, value)| value.len());
    let bytes = config_map.binary_data.iter().map(|(_, value)| value.0.len());
    check_size(text.chain(bytes), faults);
}

/// Expects `stringData` to be merged into `data`.
pub(super) fn check_secret(secret: &Secret, faults: &mut Faults) {
    let root = Path::Root;
    metadata::check(&secret.metadata, &root.key("metadata"), faults);
    let path = root.key("data");
    check_keys(&secret.data, &path, faults);
    check_size(secret.data.iter().map(|(_, value)| value.0.len()), faults);
    match secret.secret_type.as_str() {
        "kubernetes.io/basic-auth" => check_login(secret, &path, faults),
        "kubernetes.io/dockercfg" => check_json(secret, ".dockercfg", &path, faults),
        "kubernetes.io/dockerconfigjson" => check_json(secret, ".dockerconfigjson", &path, faults),
        "kubernetes.io/ssh-auth" => check_there(secret, "ssh-privatekey", &path, faults),
        "kubernetes.io/tls" => {
            check_present(secret, "tls.crt", &path, faults);
            check_present(secret, "tls.key", &path, faults);
        }
        _ => {}
    }
}

fn check_keys<V>(data: &Map<V>, path: &Path<'_>, faults: &mut Faults) {
    for (key, _) in data.iter() {
        faults.name(path, key, &CONFIG_KEY);
    }
}

fn check_size(sizes: impl Iterator<Item = usize>, faults: &mut Faults) {
    let size = sizes.fold(0, usize::saturating_add);
    if size > MAX_CONFIG_OBJECT_BYTES {
        faults.other(
            &Path::Root.key("data"),
            format_args!("{size} bytes: must be at most {MAX_CONFIG_OBJECT_BYTES} in all"),
        );
    }
}

fn check_login(secret: &Secret, path: &Path<'_>, faults: &mut Faults) {
    if !secret.data.contains_key("username") && !secret.data.contains_key("password") {
        faults.required_as(path, "one of username and password");
    }
}

fn check_present(secret: &Secret, key: &str, path: &Path<'_>, faults: &mut Faults) {
    if !secret.data.contains_key(key) {
        faults.required(&path.key(key));
    }
}

fn check_there(secret: &Secret, key: &str, path: &Path<'_>, faults: &mut Faults) {
    if secret.data.get(key).is_none_or(|value| value.0.is_empty()) {
        faults.required(&path.key(key));
    }
}

fn check_json(secret: &Secret, key: &str, path: &Path<'_>, faults: &mut Faults) {
    match secret.data.get(key) {
        None => faults.required(&path.key(key)),
        // The parse error is left out: it would show a part of the secret.
        Some(Bytes(value)) if serde_json::from_slice::<Value>(value).is_err() => {
            faults.other(&path.key(key), "must be JSON");
        }
        Some(_) => {}
    }
}
