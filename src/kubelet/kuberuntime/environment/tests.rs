use std::sync::Arc;

use serde_json::{Value, json};

use super::super::golden;
use super::*;
use crate::kubelet::volumes::EnvFileError;
use crate::state::objects::SourceObject;
use crate::types::api::{ConfigMap, Pod, Secret, Time, decode};

fn container(spec: Value) -> Container {
    decode(spec).unwrap().value
}

fn pod() -> Pod {
    let spec = json!({
        "metadata": {"name": "web", "namespace": "boats", "uid": "u1", "labels": {"app": "x"}, "annotations": {"a/b": "y"}},
        "spec": {"nodeName": "node1", "serviceAccountName": "sa", "containers": [{
            "name": "other", "resources": {"limits": {"memory": "1Gi"}, "requests": {"cpu": "1500m"}}
        }]}
    });
    decode(spec).unwrap().value
}

fn objects() -> Objects {
    let meta = |name: &str| json!({"namespace": "boats", "name": name});
    let config_map = json!({"metadata": meta("cm"), "data": {"a": "1", "b": "$(X)"}, "binaryData": {"c": "AAEC"}});
    let secret = json!({"metadata": meta("sec"), "data": {"b": "/w==", "d": "aHVzaA=="}});
    let config_map: ConfigMap = decode(config_map).unwrap().value;
    let secret: Secret = decode(secret).unwrap().value;
    let since = Time::from_timestamp(crate::types::timestamp::Timestamp::UNIX_EPOCH);
    let from = |object| SourceObject { object: Arc::new(object), origin: "".into(), since };
    let mut objects = Objects::default();
    objects.replace(&[from(config_map.into()), from(secret.into())]);
    objects
}

fn environment(spec: Value, from_files: &[FileValue]) -> Result<Environment, ConfigError> {
    let ips = ["10.0.0.2".parse().unwrap(), "fd00::2".parse().unwrap()];
    let (pod, node, objects) = (pod(), golden::node(), objects());
    let index = PodIndex::new(&pod);
    let given = EnvironmentInputs { index: &index, pod_ips: &ips, node: &node, objects: &objects, from_files };
    Environment::new(&container(spec), given)
}

fn variables(spec: Value) -> Result<Vec<(String, String)>, ConfigError> {
    let text = |(name, value): (String, Vec<u8>)| (name, value.escape_ascii().to_string());
    environment(spec, &[]).map(|environment| environment.into_variables().into_iter().map(text).collect())
}

#[track_caller]
fn check(spec: Value, expected: &[(&str, &str)]) {
    let expected: Vec<_> = expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    assert_eq!(variables(spec).unwrap(), expected);
}

#[track_caller]
fn check_one(from: Value, expected: &str) {
    let found = variables(json!({"name": "main", "env": [{"name": "X", "valueFrom": from}]})).unwrap();
    assert_eq!(found, [("X".to_owned(), expected.to_owned())]);
}

#[track_caller]
fn check_error(container: Value, expected: &str) {
    assert_eq!(variables(container).unwrap_err().to_string(), expected);
}

#[test]
fn variable_may_refer_to_earlier_ones_and_the_last_value_wins() {
    let found = variables(json!({"name": "main", "env": [
        {"name": "A", "value": "1"}, {"name": "B", "value": "$(A)$(C)"}, {"name": "C", "value": "3"},
        {"name": "A", "value": "$(A)$(C)"}, {"name": "E"}
    ]}));
    let expected = [("A", "13"), ("B", "1$(C)"), ("C", "3"), ("E", "")];
    assert_eq!(found.unwrap(), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
}

#[test]
fn pod_fields_are_found_by_path() {
    for (path, expected) in [
        ("metadata.name", "web"),
        ("metadata.namespace", "boats"),
        ("metadata.uid", "u1"),
        ("metadata.labels['app']", "x"),
        ("metadata.labels['none']", ""),
        ("metadata.annotations['a/b']", "y"),
        ("spec.nodeName", "node1"),
        ("spec.serviceAccountName", "sa"),
        ("status.hostIP", "10.77.0.1"),
        ("status.hostIPs", "10.77.0.1"),
        ("status.podIP", "10.0.0.2"),
        ("status.podIPs", "10.0.0.2,fd00::2"),
    ] {
        check_one(json!({"fieldRef": {"fieldPath": path}}), expected);
    }
    let wrong =
        json!({"name": "main", "env": [{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": "spec.x['y']"}}}]});
    check_error(wrong, "field label not supported: spec.x['y']");
}

#[test]
fn resources_are_divided_and_rounded_up() {
    let of = |resource: &str, divisor: &str| json!({"resourceFieldRef": {"containerName": "other", "resource": resource, "divisor": divisor}});
    check_one(of("requests.cpu", "0"), "2");
    check_one(of("requests.cpu", "1m"), "1500");
    check_one(of("limits.memory", "0"), "1073741824");
    check_one(of("limits.memory", "1Mi"), "1024");
    check_one(of("limits.memory", "1000M"), "2");
    check_one(of("requests.memory", "1"), "0");
    check_one(of("limits.hugepages-2Mi", "1"), "0");
}

#[test]
fn missing_limit_is_the_nodes_allocatable() {
    check_one(json!({"resourceFieldRef": {"resource": "limits.cpu"}}), "2");
    check_one(json!({"resourceFieldRef": {"containerName": "other", "resource": "limits.cpu"}}), "2");
}

#[test]
fn unknown_resources_are_named_in_the_error() {
    let of = |field: Value| json!({"name": "main", "env": [{"name": "X", "valueFrom": {"resourceFieldRef": field}}]});
    check_error(of(json!({"containerName": "none", "resource": "limits.cpu"})), "container none not found");
    check_error(of(json!({"resource": "limits.gpu"})), "unsupported container resource : limits.gpu");
    check_error(of(json!({"resource": "cpu"})), "unsupported container resource : cpu");
}

#[test]
fn every_key_is_a_variable_with_prefix_and_the_last_wins() {
    let from = json!([{"configMapRef": {"name": "cm"}}, {"secretRef": {"name": "sec"}},
        {"configMapRef": {"name": "cm"}, "prefix": "P_"}]);
    let all = [("a", "1"), ("b", "\\xff"), ("d", "hush"), ("P_a", "1"), ("P_b", "$(X)")];
    check(json!({"name": "main", "envFrom": from}), &all);
    let own = json!({"name": "main", "envFrom": [{"configMapRef": {"name": "cm"}}],
        "env": [{"name": "a", "value": "2"}, {"name": "e", "value": "$(a)$(b)"}]});
    check(own, &[("a", "2"), ("b", "$(X)"), ("e", "2$(X)")]);
}

#[test]
fn single_key_is_a_variable() {
    let key =
        |source: &str, name: &str, key: &str| json!({"name": key, "valueFrom": {source: {"name": name, "key": key}}});
    let env = json!([key("configMapKeyRef", "cm", "b"), key("secretKeyRef", "sec", "d"),
        {"name": "after", "value": "$(b)$(d)"}]);
    check(json!({"name": "main", "env": env}), &[("b", "$(X)"), ("d", "hush"), ("after", "$(X)hush")]);
}

#[test]
fn missing_object_or_key_is_an_error_unless_optional() {
    let one = |source: &str, name: &str, key: &str, optional: bool| {
        let source = json!({source: {"name": name, "key": key, "optional": optional}});
        json!({"name": "main", "env": [{"name": "X", "valueFrom": source}]})
    };
    let all = |source: &str, optional: bool| json!({"name": "main", "envFrom": [{source: {"name": "none", "optional": optional}}]});
    for (source, name, key, expected) in [
        ("configMapKeyRef", "none", "a", "configmap \"none\" not found"),
        ("configMapKeyRef", "cm", "none", "couldn't find key none in ConfigMap boats/cm"),
        // Binary data is only for files.
        ("configMapKeyRef", "cm", "c", "couldn't find key c in ConfigMap boats/cm"),
        ("secretKeyRef", "none", "a", "secret \"none\" not found"),
        ("secretKeyRef", "sec", "a", "couldn't find key a in Secret boats/sec"),
    ] {
        check_error(one(source, name, key, false), expected);
        check(one(source, name, key, true), &[]);
    }
    check_error(all("configMapRef", false), "configmap \"none\" not found");
    check_error(all("secretRef", false), "secret \"none\" not found");
    check(all("configMapRef", true), &[]);
}

#[test]
fn variable_from_a_file_has_the_files_value() {
    let env = |optional: bool| {
        let file = |name: &str| {
            let key = json!({"volumeName": "v", "path": "env", "key": name, "optional": optional});
            json!({"name": name, "valueFrom": {"fileKeyRef": key}})
        };
        json!({"name": "main", "env": [file("A"), {"name": "B", "value": "$(A)"}, file("C")]})
    };
    let in_file = |value| FileValue { file: "/v/env".to_owned(), value };
    let first = || in_file(Ok(Some("1".to_owned())));
    let both = [first(), in_file(Ok(Some("2".to_owned())))];
    let expected = [("A", b"1"), ("B", b"1"), ("C", b"2")].map(|(name, value)| (name.to_owned(), value.to_vec()));
    assert_eq!(environment(env(false), &both).unwrap().into_variables(), expected);
    for missing in [Ok(None), Ok(Some(String::new()))] {
        let one = [first(), in_file(missing)];
        assert_eq!(environment(env(true), &one).unwrap().into_variables(), expected[..2]);
        let error = environment(env(false), &one).unwrap_err().to_string();
        assert_eq!(error, "environment variable key \"C\" not found in file \"/v/env\"");
    }
    let wrong = [first(), in_file(Err(EnvFileError::Line(1, "no '='")))];
    let error = environment(env(true), &wrong).unwrap_err().to_string();
    assert_eq!(error, "couldn't parse env file: line 1: no '='");
}

#[test]
fn strict_expansion_names_every_variable_without_value() {
    let env = json!({"name": "main", "env": [{"name": "A", "value": "1"}, {"name": "EMPTY"}]});
    let environment = environment(env, &[]).unwrap();
    assert_eq!(environment.expand_path("x/$(A)/$$(A)"), Ok("x/1/$(A)".to_owned()));
    let missing = environment.expand_path("$(NONE)/$(EMPTY)/$(A)").unwrap_err();
    assert_eq!(missing.to_string(), "missing value for EMPTY, NONE");
}

#[test]
fn subpath_is_expanded_to_the_kernels_limit_at_most() {
    let value = "x".repeat(100);
    let env = json!({"name": "main", "env": [{"name": "A", "value": value}]});
    let environment = environment(env, &[]).unwrap();
    let expanded = |text: &str| environment.expand_path(text);
    assert_eq!(expanded(&["$(A)".repeat(40), "y".repeat(95)].concat()).unwrap().len(), 4095);
    for text in ["$(A)".repeat(41), ["$(A)".repeat(40), "y".repeat(96)].concat(), "$(A)".repeat(300_000)] {
        assert_eq!(expanded(&text), Err(MountProblem::PathTooLong));
    }
    // Names without values are as many as their references fit in the path.
    let missing: String = (0..100_000).rev().map(|number| format!("$({number})")).collect();
    let Err(MountProblem::MissingValues { names }) = expanded(&missing) else { panic!() };
    assert!(names.len() < 1000);
}

#[test]
fn service_variables_may_be_referred_to_and_overridden() {
    let mut objects = objects();
    let services = vec![crate::state::objects::Service {
        namespace: "default".to_owned(),
        name: "kubernetes".to_owned(),
        cluster_ip: "10.96.0.1".parse().ok(),
        ports: vec![crate::state::objects::ServicePort {
            name: String::new(),
            port: 443,
            protocol: crate::types::api::Protocol::Tcp,
        }],
    }];
    let content = Some(crate::state::objects::Content::Services(services));
    objects.on_event(crate::state::objects::ObjectEvent::Received(
        crate::state::objects::Topic::ApiServerService,
        content,
    ));
    let (pod, node) = (pod(), golden::node());
    let index = PodIndex::new(&pod);
    let given = EnvironmentInputs { index: &index, pod_ips: &[], node: &node, objects: &objects, from_files: &[] };
    let env =
        json!([{"name": "API", "value": "$(KUBERNETES_SERVICE_HOST)"}, {"name": "KUBERNETES_PORT", "value": "x"}]);
    let found = Environment::new(&container(json!({"name": "main", "env": env})), given).unwrap();
    let value = |name: &str| found.get(name).map(|value| String::from_utf8_lossy(value).into_owned());
    assert_eq!(value("API").as_deref(), Some("10.96.0.1"));
    assert_eq!(value("KUBERNETES_PORT").as_deref(), Some("x"));
    assert_eq!(value("KUBERNETES_SERVICE_PORT").as_deref(), Some("443"));
    let expanded = found.expand_all(&Texts::from_iter(["$(KUBERNETES_SERVICE_HOST)"]), &mut 0).unwrap();
    assert_eq!(expanded, ["10.96.0.1"]);
}

#[test]
fn exponentially_growing_variables_are_refused() {
    let double = |index: usize| json!({"name": format!("V{index}"), "value": format!("$(V{0})$(V{0})", index - 1)});
    let first = json!({"name": "V0", "value": "x".repeat(100)});
    let env = |count: usize| std::iter::once(first.clone()).chain((1..count).map(double)).collect::<Vec<_>>();
    let error = environment(json!({"name": "main", "env": env(60)}), &[]).unwrap_err().to_string();
    assert!(error.starts_with("environment variable \"V11\" exceeds the kernel's size limit"), "{error}");
    let found = environment(json!({"name": "main", "env": env(11)}), &[]).unwrap();
    let mut bytes = found.bytes();
    let most = vec!["$(V10)".to_owned(); 100];
    let error = found.expand_all(&most.iter().collect(), &mut bytes).unwrap_err().to_string();
    assert_eq!(error, "command and args exceed the kernel's size limit");
    let error = found.expand_all(&Texts::from_iter(["$(V10)$(V10)"]), &mut 0).unwrap_err().to_string();
    assert_eq!(error, "command and args exceed the kernel's size limit");
}

#[test]
fn sources_that_repeat_variables_are_counted_each_time() {
    // Each has two keys.
    let sources =
        |count: usize| json!({"name": "main", "envFrom": vec![json!({"configMapRef": {"name": "cm"}}); count]});
    assert_eq!(variables(sources(MAX_VARIABLES / 2)).unwrap().len(), 2);
    check_error(
        sources(MAX_VARIABLES / 2 + 1),
        "the objects of the container's environment have more than 32768 variables",
    );
}

#[test]
fn self_referring_variables_stay_unexpanded() {
    let env = json!([
        {"name": "SELF", "value": "$(SELF)"},
        {"name": "A", "value": "$(B)"},
        {"name": "B", "value": "$(A)"},
    ]);
    let found = environment(json!({"name": "main", "env": env}), &[]).unwrap();
    let values: Vec<_> = found.into_variables().into_iter().map(|(_, value)| value).collect();
    assert_eq!(values, [&b"$(SELF)"[..], b"$(B)", b"$(B)"]);
}
