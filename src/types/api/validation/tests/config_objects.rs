//! ConfigMaps and Secrets.

use super::*;

fn config_map(fields: Value) -> Vec<String> {
    let mut object = json!({"metadata": {"name": "c", "namespace": "n"}});
    merge(&mut object, fields);
    messages(&validate_config_map(&decode::<ConfigMap>(object).unwrap().value))
}

fn secret(fields: Value) -> Vec<String> {
    let mut object = json!({"metadata": {"name": "s", "namespace": "n"}});
    merge(&mut object, fields);
    let mut secret = decode::<Secret>(object).unwrap().value;
    secret.merge_string_data();
    messages(&validate_secret(&secret))
}

const NONE: [&str; 0] = [];

#[test]
fn names_and_keys_are_validated() {
    assert_eq!(config_map(json!({"data": {"a-b_c.D": "x", ".hidden": ""}, "binaryData": {"b": "AA=="}})), NONE);
    assert_eq!(config_map(json!({"metadata": {"name": ""}})), ["metadata.name: required"]);
    assert_eq!(config_map(json!({"metadata": {"name": "A"}})), [format!("metadata.name: \"A\": {DNS_SUBDOMAIN}")]);
    let key = "must be a key of at most 253 letters, digits, '-', '_' or '.', and must not begin with '..'";
    for wrong in ["a/b", "..", "..a", "", "ü"] {
        let expected = [format!("data: {wrong:?}: {key}")];
        assert_eq!(config_map(json!({"data": {wrong: "x"}})), expected);
        assert_eq!(secret(json!({"stringData": {wrong: "x"}})), expected);
    }
    assert_eq!(
        config_map(json!({"data": {"k": "x"}, "binaryData": {"k": "AA=="}})),
        ["data.k: binaryData has this key too"]
    );
}

#[test]
fn all_values_together_are_at_most_1_mib() {
    let half = "x".repeat(512 * 1024);
    let too_long = "data: 1048577 bytes: must be at most 1048576 in all";
    assert_eq!(config_map(json!({"data": {"a": half, "b": half}})), NONE);
    assert_eq!(config_map(json!({"data": {"a": half, "b": half}, "binaryData": {"c": "AA=="}})), [too_long]);
    assert_eq!(secret(json!({"stringData": {"a": half, "b": half}})), NONE);
    assert_eq!(secret(json!({"stringData": {"a": half, "b": half, "c": "x"}})), [too_long]);
}

#[test]
fn typed_secrets_have_their_required_keys() {
    let typed = |name: &str, data: Value| secret(json!({"type": format!("kubernetes.io/{name}"), "stringData": data}));
    let one = json!({"username": "u"});
    assert_eq!(typed("basic-auth", one), NONE);
    assert_eq!(typed("basic-auth", json!({})), ["data: required: one of username and password"]);
    assert_eq!(typed("tls", json!({"tls.crt": "", "tls.key": ""})), NONE);
    assert_eq!(typed("tls", json!({})), ["data[\"tls.crt\"]: required", "data[\"tls.key\"]: required"]);
    assert_eq!(typed("ssh-auth", json!({"ssh-privatekey": ""})), ["data.ssh-privatekey: required"]);
    for (name, key) in [("dockercfg", ".dockercfg"), ("dockerconfigjson", ".dockerconfigjson")] {
        assert_eq!(typed(name, json!({key: "{\"auths\": {}}"})), NONE);
        assert_eq!(typed(name, json!({key: "hush"})), [format!("data[\"{key}\"]: must be JSON")]);
        assert_eq!(typed(name, json!({})), [format!("data[\"{key}\"]: required")]);
    }
    assert_eq!(secret(json!({"type": "example.com/own"})), NONE);
}
