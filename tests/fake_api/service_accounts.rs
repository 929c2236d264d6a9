//! Default objects of a namespace, and the service account admission of pods.

use serde_json::{Value, json};

use super::api_error::ApiError;
use super::resources::{Resource, Target};
use super::verbs::Caller;
use super::world::{World, text};

const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Upstream's expiration: an hour, plus seven seconds that distinguish it from users' requests.
const EXPIRATION_SECONDS: u64 = 3607;

/// Creates the objects that controllers create in a new namespace.
pub(crate) fn furnish(world: &mut World, namespace: &str) {
    let caller = Caller { manager: "kube-controller-manager".to_owned(), ..Caller::test() };
    let authority = world.authority.pem();
    for (resource, name, data) in [
        ("serviceaccounts", "default", Value::Null),
        ("configmaps", "kube-root-ca.crt", json!({ "ca.crt": authority })),
    ] {
        let target = Target::parse(&format!("/api/v1/namespaces/{namespace}/{resource}")).expect("it is served");
        let object = json!({ "metadata": { "name": name }, "data": data });
        // It may already exist.
        let _ = world.create(&caller, &target, object);
    }
}

/// Creates the `kubernetes` service.
pub(crate) fn add_own_service(world: &mut World) {
    let target = Target::parse("/api/v1/namespaces/default/services").expect("it is served");
    let service = json!({
        "metadata": { "name": "kubernetes", "labels": { "component": "apiserver", "provider": "kubernetes" } },
        "spec": {
            "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "internalTrafficPolicy": "Cluster",
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            "ports": [{ "name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443 }],
        },
    });
    let caller = Caller { manager: "kube-apiserver".to_owned(), ..Caller::test() };
    world.create(&caller, &target, service).expect("a service of its own");
}

/// Sets a pod's service account, which must exist, and mounts its token at the usual path.
pub(crate) fn admit(world: &mut World, resource: &Resource, pod: &mut Value) -> Result<(), ApiError> {
    let is_mirror = !pod["metadata"]["annotations"]["kubernetes.io/config.mirror"].is_null();
    if !world.options.furnished || !resource.is_core("pods") || is_mirror {
        return Ok(());
    }
    let suffix = world.new_suffix();
    if text(pod, "/spec/serviceAccountName").is_empty() {
        pod["spec"]["serviceAccountName"] = json!("default");
    }
    let (namespace, name) = (text(pod, "/metadata/namespace"), text(pod, "/spec/serviceAccountName"));
    let Some(account) = world.get(&format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}")) else {
        let looked_for = format!("error looking up service account {namespace}/{name}");
        let why = format!("{looked_for}: serviceaccount {name:?} not found");
        return Err(ApiError::forbidden(resource, text(pod, "/metadata/name"), &why));
    };
    pod["spec"]["serviceAccount"] = json!(name);
    let of_account = &account["automountServiceAccountToken"];
    let of_pod = &pod["spec"]["automountServiceAccountToken"];
    if of_pod == false || of_pod.is_null() && *of_account == false {
        return Ok(());
    }
    let volume = format!("kube-api-access-{suffix}");
    let mount = json!({ "mountPath": MOUNT_PATH, "name": volume, "readOnly": true });
    let mut is_used = false;
    for list in ["initContainers", "containers"] {
        for container in pod["spec"].get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let mut mounts = container["volumeMounts"].as_array().cloned().unwrap_or_default();
            if !mounts.iter().any(|mount| mount["mountPath"] == MOUNT_PATH) {
                is_used = true;
                mounts.push(mount.clone());
                container["volumeMounts"] = Value::Array(mounts);
            }
        }
    }
    if is_used {
        let mut volumes = pod["spec"]["volumes"].as_array().cloned().unwrap_or_default();
        volumes.push(token_volume(&volume));
        pod["spec"]["volumes"] = Value::Array(volumes);
    }
    Ok(())
}

fn token_volume(name: &str) -> Value {
    let namespace = json!({ "apiVersion": "v1", "fieldPath": "metadata.namespace" });
    json!({
        "name": name,
        "projected": {
            "defaultMode": 420,
            "sources": [
                { "serviceAccountToken": { "expirationSeconds": EXPIRATION_SECONDS, "path": "token" } },
                { "configMap": { "name": "kube-root-ca.crt", "items": [{ "key": "ca.crt", "path": "ca.crt" }] } },
                { "downwardAPI": { "items": [{ "path": "namespace", "fieldRef": namespace }] } },
            ],
        },
    })
}
