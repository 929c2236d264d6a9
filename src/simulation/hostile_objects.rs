//! Objects of a pod as large as an API server stores them, and as many as a namespace has, on a whole node. The
//! assertions are those of [`super::hostile_pods`].

use serde_json::{Map, Value, json};

use super::api_server::NODE;
use super::csi_driver;
use super::hostile_pods::{Hostile, Shape, faults, with_image};
use super::peak_memory::has_own_process;
use crate::control::pod_workers::hostile_pods::is_full;
use crate::types::api::Bytes;

/// A shape with its name, and its entries in each check and as many as an API server takes.
type ObjectShape = (&'static str, usize, usize, fn(usize) -> Hostile);

/// All pods name their object so.
const NAME: &str = "large";

fn object(kind: &str, name: &str, fields: Value) -> Value {
    let mut object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "default"}});
    for (key, value) in fields.as_object().unwrap() {
        object[key] = value.clone();
    }
    object
}

fn config_map(data: Value) -> Value {
    object("ConfigMap", NAME, json!({"data": data}))
}

/// Keys in descending order, which is the slowest for sorted lists.
fn key(number: usize) -> String {
    format!("K{:07}", 9_999_999 - number)
}

fn keys(count: usize, value: &str) -> Value {
    (0..count).map(|number| (key(number), json!(value))).collect::<Map<_, _>>().into()
}

fn list(count: usize, entry: impl Fn(usize) -> Value) -> Value {
    (0..count).map(entry).collect()
}

fn pod(spec: Value) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "h", "namespace": "default", "uid": "u"},
        "spec": {"enableServiceLinks": false, "automountServiceAccountToken": false}});
    for (key, value) in spec.as_object().unwrap() {
        pod["spec"][key] = value.clone();
    }
    with_image(&pod)
}

/// A pod with a container that mounts these volumes.
fn with_volumes(volumes: Value) -> Value {
    let mounts: Value = (0..)
        .zip(volumes.as_array().unwrap())
        .map(|(number, volume)| json!({"name": volume["name"], "mountPath": format!("/m/{number}")}))
        .collect();
    pod(json!({"volumes": volumes, "containers": [{"name": "a", "image": "b", "volumeMounts": mounts}]}))
}

/// Many containers with these fields.
fn with_containers(count: usize, fields: &Value) -> Value {
    let container = |number: usize| {
        let mut container = json!({"name": format!("c{number}"), "image": "b"});
        container.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        container
    };
    pod(json!({"containers": list(count, container)}))
}

fn hostile(pod: Value, objects: Vec<Value>) -> Hostile {
    Hostile { objects, ..pod.into() }
}

fn mounted(data: Value) -> Hostile {
    let volume = json!([{"name": "v", "configMap": {"name": NAME}}]);
    hostile(with_volumes(volume), vec![config_map(data)])
}

/// A Secret as a volume.
fn mounted_secret(data: Value) -> Hostile {
    let volume = json!([{"name": "v", "secret": {"secretName": NAME}}]);
    hostile(with_volumes(volume), vec![object("Secret", NAME, json!({"data": data}))])
}

fn with_links(containers: usize) -> Value {
    let mut pod = with_containers(containers, &json!({}));
    pod["spec"]["enableServiceLinks"] = json!(true);
    pod
}

fn service(name: &str, ports: &Value) -> Value {
    object("Service", name, json!({"spec": {"clusterIP": "10.0.0.1", "ports": ports}}))
}

fn claiming(patches: Vec<(String, Value)>) -> Hostile {
    let claim = json!([{"name": "v", "persistentVolumeClaim": {"claimName": csi_driver::claim(0)}}]);
    Hostile { patches, ..with_volumes(claim).into() }
}

fn claim_path() -> String {
    format!("/api/v1/namespaces/default/persistentvolumeclaims/{}", csi_driver::claim(0))
}

const VOLUME: &str = "/api/v1/persistentvolumes/disk-0";

const SHAPES: &[ObjectShape] = &[
    ("volumes of one ConfigMap", 300, 2000, |count| {
        let volumes = list(count, |n| json!({"name": format!("v{n}"), "configMap": {"name": NAME}}));
        hostile(with_volumes(volumes), vec![config_map(keys(count, ""))])
    }),
    ("sources of one ConfigMap", 300, 5000, |count| {
        let sources = list(count, |_| json!({"configMap": {"name": NAME}}));
        let volumes = json!([{"name": "v", "projected": {"sources": sources}}]);
        hostile(with_volumes(volumes), vec![config_map(keys(count, ""))])
    }),
    ("environment of one ConfigMap many times", 600, 20_000, |count| {
        let sources = list(count, |_| json!({"configMapRef": {"name": NAME}}));
        let data: Map<_, _> = (0..26_u8).map(|letter| (char::from(b'a' + letter).to_string(), json!(""))).collect();
        hostile(with_containers(1, &json!({"envFrom": sources})), vec![config_map(data.into())])
    }),
    ("ports of Services", 400, 20_000, |count| {
        let ports = list(count, |n| json!({"name": format!("p{n}"), "port": n + 1, "protocol": "TCP"}));
        let services = (0..4).map(|n| service(&format!("service-{n}"), &ports)).collect();
        hostile(with_links(2), services)
    }),
    ("Services", 400, 5000, |count| {
        let ports = json!([{"port": 80, "protocol": "TCP"}]);
        hostile(with_links(4), (0..count).map(|n| service(&format!("service-{n}"), &ports)).collect())
    }),
    ("keys of a ConfigMap", 2000, 32_000, |count| mounted(keys(count, ""))),
    ("environment of containers", 2000, 32_000, |count| {
        let fields = json!({"envFrom": [{"configMapRef": {"name": NAME}}]});
        hostile(with_containers(12, &fields), vec![config_map(keys(count, ""))])
    }),
    ("registries of pull Secrets", 500, 76_000, |count| {
        let auths: Map<String, Value> = (0..count).map(|n| (format!("r{n}"), json!({}))).collect();
        let data = Bytes(json!({"auths": auths}).to_string().into_bytes()).to_base64();
        let secret = |n: usize| {
            let fields = json!({"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": data}});
            object("Secret", &format!("pull-{n}"), fields)
        };
        let mut pod = with_containers(1, &json!({"imagePullPolicy": "Always"}));
        pod["spec"]["containers"][0]["imagePullPolicy"] = json!("Always");
        pod["spec"]["imagePullSecrets"] = list(20, |n| json!({"name": format!("pull-{n}")}));
        hostile(pod, (0..20).map(secret).collect())
    }),
    ("KiB of a value of a ConfigMap", 256, 1000, |count| mounted(json!({"k": "x".repeat(count << 10)}))),
    ("keys of 253 bytes", 300, 4000, |count| {
        let long = |number| (format!("{}{}", "k".repeat(245), key(number)), json!(""));
        mounted((0..count).map(long).collect::<Map<_, _>>().into())
    }),
    ("KiB of binary data", 256, 1000, |count| {
        let mut hostile = mounted(json!({}));
        hostile.objects[0]["binaryData"] = json!({"k": "eHh4".repeat(count * 1024 / 3)});
        hostile
    }),
    ("keys of a Secret", 2000, 32_000, |count| mounted_secret(keys(count, ""))),
    ("KiB of a value of a Secret", 256, 1000, |count| mounted_secret(json!({"k": "eHh4".repeat(count * 1024 / 3)}))),
    ("items of a projected volume", 600, 20_000, |count| {
        let items = list(count, |n| json!({"key": key(n), "path": format!("p{n}")}));
        let volumes = json!([{"name": "v", "projected": {"sources": [{"configMap": {"name": NAME, "items": items}}]}}]);
        hostile(with_volumes(volumes), vec![config_map(keys(count, ""))])
    }),
    ("subpaths of a ConfigMap", 80, 800, |count| {
        let mounts = list(count, |n| json!({"name": "v", "mountPath": format!("/m/{n}"), "subPath": key(n)}));
        let pod = pod(json!({"volumes": [{"name": "v", "configMap": {"name": NAME}}],
            "containers": [{"name": "a", "image": "b", "volumeMounts": mounts}]}));
        hostile(pod, vec![config_map(keys(count, ""))])
    }),
    ("annotations of a claim", 600, 30_000, |count| {
        claiming(vec![(claim_path(), json!({"metadata": {"annotations": keys(count, "")}}))])
    }),
    ("annotations of a PersistentVolume", 600, 30_000, |count| {
        claiming(vec![(VOLUME.to_owned(), json!({"metadata": {"annotations": keys(count, "")}}))])
    }),
    ("node affinity of a PersistentVolume", 600, 12_000, |count| {
        let term = |n: usize| json!({"matchExpressions": [{"key": format!("k{n}"), "operator": "DoesNotExist"}]});
        let required = json!({"nodeSelectorTerms": list(count, term)});
        claiming(vec![(VOLUME.to_owned(), json!({"spec": {"nodeAffinity": {"required": required}}}))])
    }),
    ("labels of the node", 600, 50_000, |count| of_node(json!({"metadata": {"labels": keys(count, "")}}))),
    ("annotations of the node", 600, 30_000, |count| of_node(json!({"metadata": {"annotations": keys(count, "")}}))),
    ("taints of the node", 600, 20_000, |count| {
        of_node(json!({"spec": {"taints": list(count, |n| json!({"key": key(n), "effect": "PreferNoSchedule"}))}}))
    }),
];

fn of_node(patch: Value) -> Hostile {
    Hostile { patches: vec![(format!("/api/v1/nodes/{NODE}"), patch)], ..with_containers(1, &json!({})).into() }
}

/// Shapes in each check.
const FIRST_OBJECTS: usize = 8;

#[test]
fn hostile_objects_take_time_and_memory_in_proportion_and_no_other_pod_suffers() {
    if !has_own_process(
        "simulation::hostile_objects::hostile_objects_take_time_and_memory_in_proportion_and_no_other_pod_suffers",
    ) {
        return;
    }
    let only = std::env::var("CORACLE_HOSTILE_SHAPE").unwrap_or_default();
    let tried = if is_full() || !only.is_empty() { SHAPES } else { &SHAPES[..FIRST_OBJECTS] };
    let mut found = Vec::new();
    for (name, some, most, shape) in tried.iter().filter(|(name, ..)| name.contains(&only)) {
        let shape: Shape = Box::new(shape);
        found.extend(faults(name, &shape, if is_full() { *most } else { *some }));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
