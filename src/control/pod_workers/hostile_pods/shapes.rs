//! Pods that make one list, map or text of the API as large as asked for, or two that some code multiplies. For tests.

use serde_json::{Map, Value, json};

use crate::types::api::fields::{Field, Kind, Step};

fn base() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "ns", "uid": "u"},
        "spec": {"nodeName": "n", "containers": [{"name": "a", "image": "b"}]}
    })
}

fn with_field(field: &Field, value: Value) -> Value {
    field.put(base(), value, &json!({"name": "x"}))
}

/// The value of a field in entry `number` of a list, distinct for each.
fn distinct(kind: Kind, key: &str, number: usize) -> Option<Value> {
    let text = match key {
        "mountPath" | "devicePath" => format!("/m/{number}"),
        "ip" => format!("10.{}.{}.{}", number >> 16 & 255, number >> 8 & 255, number & 255),
        "image" => "b".to_owned(),
        // In descending order, which is the slowest for sorted lists.
        _ => format!("x{:07}", 9_999_999 - number),
    };
    match kind {
        Kind::Text => Some(Value::from(text)),
        Kind::Int32 if key == "containerPort" || key == "hostPort" => Some(json!(number % 65_535 + 1)),
        Kind::Int32 | Kind::Int64 => Some(json!(number)),
        Kind::IntOrText => Some(json!(number)),
        Kind::Quantity => Some(json!("1")),
        Kind::Words(words) => words.first().map(|word| json!(word)),
        Kind::Any | Kind::Bool | Kind::List | Kind::Map | Kind::Object | Kind::Time => None,
    }
}

/// An element of the lists whose elements are one of several objects.
fn one_of(list: &str, number: usize) -> Option<Value> {
    let object = json!({"name": format!("x{number}"), "optional": true});
    match (list, number % 3) {
        ("envFrom", 0) => Some(json!({"configMapRef": object})),
        ("envFrom", _) => Some(json!({"prefix": format!("P{number}"), "secretRef": object})),
        ("sources", 0) => Some(json!({"configMap": object})),
        ("sources", 1) => Some(json!({"secret": object})),
        ("sources", _) => {
            Some(json!({"serviceAccountToken": {"path": format!("p{number}"), "audience": format!("a{number}")}}))
        }
        _ => None,
    }
}

const IDENTITY: [&str; 14] = [
    "name",
    "key",
    "path",
    "mountPath",
    "devicePath",
    "image",
    "ip",
    "conditionType",
    "type",
    "topologyKey",
    "containerPort",
    "hostPort",
    "operator",
    "value",
];

/// A pod in which the list, map or text `field` has `count` entries; `None` for other fields.
pub(crate) fn large(field: &Field, all: &[Field], count: usize) -> Option<Value> {
    let depth = field.path.len();
    let inside = |child: &&Field| child.path.len() > depth && child.path.starts_with(&field.path);
    match field.kind {
        Kind::Map => {
            let value = all.iter().find(|child| inside(child) && child.path.len() == depth + 1);
            let value = |number| value.and_then(|child| distinct(child.kind, "", number)).unwrap_or(json!({}));
            let entries: Map<String, Value> =
                (0..count).map(|number| (format!("k{:07}", 9_999_999 - number), value(number))).collect();
            Some(with_field(field, entries.into()))
        }
        Kind::List => {
            let element = all.iter().find(|child| inside(child) && child.path.len() == depth + 1)?;
            let children: Vec<&Field> =
                all.iter().filter(inside).filter(|child| child.path.len() == depth + 2).collect();
            let entry = |number: usize| match element.kind {
                Kind::Object => {
                    let named = children.iter().filter_map(|child| {
                        let Some(Step::Key(key)) = child.path.last() else { return None };
                        let value = IDENTITY.contains(&key.as_str()).then(|| distinct(child.kind, key, number))??;
                        Some((key.clone(), value))
                    });
                    let last = field.path.last();
                    let one = last.and_then(|step| if let Step::Key(key) = step { one_of(key, number) } else { None });
                    one.unwrap_or_else(|| Value::Object(named.collect()))
                }
                Kind::Any => json!({"name": format!("x{:07}", 9_999_999 - number), "resourceClaimName": "c"}),
                kind => distinct(kind, "", number).unwrap_or(json!({})),
            };
            Some(with_field(field, (0..count).map(entry).collect()))
        }
        // Slashes, references and dots are what code splits texts at.
        Kind::Text => Some(with_field(field, ["x", "/$(.,"].map(|part| part.repeat(count * 4)).concat().into())),
        Kind::Any
        | Kind::Bool
        | Kind::Int32
        | Kind::Int64
        | Kind::IntOrText
        | Kind::Object
        | Kind::Quantity
        | Kind::Time
        | Kind::Words(_) => None,
    }
}

fn with_spec(fields: Value) -> Value {
    let mut pod = base();
    let Value::Object(fields) = fields else { panic!() };
    for (key, value) in fields {
        match pod["spec"].get_mut(&key) {
            // The first container gets the fields of the first one given.
            Some(Value::Array(known)) if key == "containers" => {
                let mut given = value.as_array().unwrap().iter().cloned();
                let first = given.next().unwrap_or(json!({}));
                known[0].as_object_mut().unwrap().extend(first.as_object().unwrap().clone());
                known.extend(given);
            }
            _ => pod["spec"][key] = value,
        }
    }
    pod
}

fn list(count: usize, entry: impl Fn(usize) -> Value) -> Value {
    (0..count).map(entry).collect()
}

pub(crate) type Shape = (&'static str, fn(usize) -> Value);

/// Two fields that some code multiplies.
pub(crate) const PAIRS: &[Shape] = &[
    ("volumes and mounts", |count| {
        with_spec(json!({
            "volumes": list(count, |n| json!({"name": format!("v{n}"), "configMap": {"name": "m", "optional": true}})),
            "containers": [{"volumeMounts": list(count, |n| json!({"name": format!("v{n}"), "mountPath": format!("/m/{n}")}))}],
        }))
    }),
    ("mounts inside each other", |count| {
        with_spec(json!({
            "volumes": [{"name": "v", "emptyDir": {}}, {"name": "c", "configMap": {"name": "m", "optional": true}}],
            "containers": [{"volumeMounts": list(count, |n| {
                json!({"name": if n == 0 { "c" } else { "v" }, "mountPath": if n == 0 { "/m".to_owned() } else { format!("/m/{n}") }})
            })}],
        }))
    }),
    ("volumes and containers", |count| {
        with_spec(json!({
            "volumes": list(count, |n| json!({"name": format!("v{n}"), "secret": {"secretName": "m", "optional": true}})),
            "containers": list(count, |n| {
                json!({"name": format!("c{n}"), "image": "b", "volumeMounts": [{"name": format!("v{n}"), "mountPath": "/m"}]})
            }),
        }))
    }),
    ("variables that refer to each other", |count| {
        with_spec(json!({"containers": [{
            "env": list(count, |n| json!({"name": format!("E{:07}", 9_999_999 - n), "value": format!("$(E{:07})", 9_999_999)})),
        }]}))
    }),
    ("variables and references in arguments", |count| {
        with_spec(json!({"containers": [{
            "env": list(count, |n| json!({"name": format!("E{n}"), "value": ""})),
            "args": [(0..count).map(|n| format!("$(E{n})")).collect::<String>()],
            "command": ["$(".repeat(count * 4)],
        }]}))
    }),
    ("variables and probe commands", |count| {
        let exec = json!({"exec": {"command": vec!["$(E0)"; count]}});
        with_spec(json!({"containers": [{
            "env": list(count, |n| json!({"name": format!("E{n}"), "value": "x".repeat(if n == 0 { count * 10 } else { 0 })})),
            "livenessProbe": exec, "readinessProbe": exec,
        }]}))
    }),
    ("variables and subpaths of mounts", |count| {
        let mount = |n: usize| json!({"name": "v", "mountPath": format!("/m/{n}"), "subPathExpr": "$(E)"});
        with_spec(json!({
            "volumes": [{"name": "v", "emptyDir": {}}],
            "containers": [{
                "env": [{"name": "E", "value": "x".repeat(count * 20)}],
                "volumeMounts": list(count, mount),
            }],
        }))
    }),
    ("variables from a file", |count| {
        let key = |n: usize| json!({"volumeName": "v", "path": "env", "key": format!("K{n}")});
        with_spec(json!({
            "volumes": [{"name": "v", "emptyDir": {}}],
            "containers": [{"env": list(count, |n| json!({"name": format!("E{n}"), "valueFrom": {"fileKeyRef": key(n)}}))}],
        }))
    }),
    ("fields of other containers in variables", |count| {
        let field = |n: usize| json!({"containerName": format!("c{n}"), "resource": "limits.memory"});
        with_spec(json!({
            "initContainers": list(count, |n| json!({"name": format!("c{n}"), "image": "b"})),
            "containers": [{"env": list(count, |n| json!({"name": format!("E{n}"), "valueFrom": {"resourceFieldRef": field(n)}}))}],
        }))
    }),
    ("fields of containers in files", |count| {
        let field = |n: usize| json!({"containerName": format!("c{n}"), "resource": "limits.memory"});
        with_spec(json!({
            "containers": list(count, |n| json!({"name": if n == 0 { "a".to_owned() } else { format!("c{n}") }, "image": "b",
                "volumeMounts": [{"name": "d", "mountPath": "/d"}]})),
            "volumes": [{"name": "d", "downwardAPI": {"items": list(count, |n| {
                json!({"path": format!("p{:07}", 9_999_999 - n), "resourceFieldRef": field(n.max(1))})
            })}}],
        }))
    }),
    ("annotations in files", |count| {
        let mut pod = with_spec(json!({
            "containers": [{"volumeMounts": [{"name": "d", "mountPath": "/d"}]}],
            "volumes": [{"name": "d", "downwardAPI": {"items": list(count, |n| {
                json!({"path": format!("p{:07}", 9_999_999 - n), "fieldRef": {"fieldPath": "metadata.annotations"}})
            })}}],
        }));
        pod["metadata"]["annotations"] = json!({"a": "x".repeat(count * 20)});
        pod
    }),
    ("tokens and containers", |count| {
        with_spec(json!({
            "containers": list(count, |n| json!({"name": if n == 0 { "a".to_owned() } else { format!("c{n}") }, "image": "b",
                "securityContext": {"runAsUser": 1}, "volumeMounts": [{"name": "t", "mountPath": "/d"}]})),
            "volumes": [{"name": "t", "projected": {"sources": list(count, |n| {
                json!({"serviceAccountToken": {"path": format!("p{n}"), "audience": format!("a{n}")}})
            })}}],
        }))
    }),
    ("containers and their statuses", |count| {
        let status =
            |n: usize| json!({"name": format!("c{n}"), "image": "b", "imageID": "", "ready": false, "restartCount": 0});
        let mut pod = with_spec(json!({"containers": list(count, |n| {
            json!({"name": if n == 0 { "a".to_owned() } else { format!("c{n}") }, "image": "b"})
        })}));
        pod["status"] = json!({"containerStatuses": list(count, status)});
        pod
    }),
    ("readiness gates and conditions", |count| {
        let mut pod =
            with_spec(json!({"readinessGates": list(count, |n| json!({"conditionType": format!("x/c{n}")}))}));
        pod["status"] =
            json!({"conditions": list(count, |n| json!({"type": format!("x/c{}", count - n - 1), "status": "True"}))});
        pod
    }),
    ("resource claims and their statuses", |count| {
        let mut pod = with_spec(json!({"resourceClaims": list(count, |n| {
            json!({"name": format!("r{n}"), "resourceClaimTemplateName": "t"})
        })}));
        pod["status"] = json!({"resourceClaimStatuses": list(count, |n| {
            json!({"name": format!("r{}", count - n - 1), "resourceClaimName": format!("c{n}")})
        })});
        pod
    }),
    ("host ports", |count| {
        with_spec(json!({"containers": [{"ports": list(count, |n| {
            json!({"containerPort": 1, "hostPort": n % 65_535 + 1, "hostIP": format!("10.0.0.{}", n >> 16)})
        })}]}))
    }),
    ("sidecars and containers with memory of the pod", |count| {
        let memory = |n: usize| json!({"requests": {"memory": format!("{}", n + 1)}});
        let mut pod = with_spec(json!({
            "initContainers": list(count, |n| {
                json!({"name": format!("s{n}"), "image": "b", "restartPolicy": "Always", "resources": memory(n)})
            }),
            "containers": list(count, |n| {
                json!({"name": if n == 0 { "a".to_owned() } else { format!("c{n}") }, "image": "b", "resources": memory(n),
                    "env": [{"name": "E", "valueFrom": {"resourceFieldRef": {"containerName": format!("s{n}"), "resource": "limits.memory"}}}]})
            }),
            "resources": {"requests": {"memory": "1Ti"}},
        }));
        pod["status"] = Value::Null;
        pod
    }),
    ("extended resources and containers", |count| {
        let named = |n: usize| if n == 0 { "a".to_owned() } else { format!("c{n}") };
        with_spec(json!({"containers": list(count, |n| {
            json!({"name": named(n), "image": "b", "resources": {"limits": {format!("x.io/r{n}"): "1"}}})
        })}))
    }),
    ("tolerations of one taint", |count| {
        with_spec(
            json!({"tolerations": list(count, |n| json!({"key": format!("k{n}"), "operator": "Exists", "effect": "NoExecute"}))}),
        )
    }),
    ("node affinity", |count| {
        let term =
            |n: usize| json!({"matchExpressions": [{"key": format!("k{n}"), "operator": "In", "values": ["v"]}]});
        let terms = json!({"nodeSelectorTerms": list(count, term)});
        with_spec(json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}))
    }),
    ("huge pages volumes and containers", |count| {
        with_spec(json!({
            "volumes": list(count, |n| json!({"name": format!("v{n}"), "emptyDir": {"medium": "HugePages"}})),
            "containers": list(count, |n| json!({"name": if n == 0 { "a".to_owned() } else { format!("c{n}") }, "image": "b",
                "resources": {"limits": {"hugepages-2Mi": "2Mi", "memory": "1"}, "requests": {"hugepages-2Mi": "2Mi"}},
                "volumeMounts": [{"name": format!("v{n}"), "mountPath": "/v"}]})),
        }))
    }),
    ("containers and the sources of their volume", |count| {
        let source = |n: usize| json!({"configMap": {"name": format!("m{}", n % 8), "optional": true}});
        with_spec(json!({
            "volumes": [{"name": "v", "projected": {"sources": list(count, source)}}],
            "containers": list(count, |n| json!({"name": if n == 0 { "a".to_owned() } else { format!("c{n}") }, "image": "b",
                "envFrom": [{"configMapRef": {"name": format!("m{}", n % 8), "optional": true}}],
                "volumeMounts": [{"name": "v", "mountPath": "/v"}]})),
        }))
    }),
    ("restart rules and exit codes", |count| {
        with_spec(json!({"containers": [{"restartPolicy": "Never", "restartPolicyRules": list(count, |n| {
            json!({"action": "Restart", "exitCodes": {"operator": "In", "values": [n]}})
        })}]}))
    }),
    ("image volumes and mounts", |count| {
        let image = json!({"reference": "busybox", "pullPolicy": "IfNotPresent"});
        with_spec(json!({
            "volumes": list(count, |n| json!({"name": format!("v{n}"), "image": image})),
            "containers": [{"volumeMounts": list(count, |n| json!({"name": format!("v{n}"), "mountPath": format!("/m/{n}")}))}],
        }))
    }),
];
