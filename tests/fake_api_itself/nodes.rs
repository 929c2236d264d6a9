//! Permissions of nodes.

use serde_json::{Value, json};

use super::client::Client;
use super::{FakeApi, Options, PODS, config_map, node, pod, start};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

fn secret(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name }, "data": {} })
}

/// Asserts a refusal with this message.
#[track_caller]
fn forbidden(answer: &super::client::Answer, message: &str) {
    assert_eq!((answer.status, answer.message().as_str()), (403, message));
    assert_eq!(answer.header("x-content-type-options"), "nosniff");
}

#[test]
fn node_reads_only_its_own_object() {
    let api = start();
    api.create(&node("n1"));
    api.create(&node("n2"));
    let mut client = Client::node(&api, "n1");
    assert_eq!(client.get("/api/v1/nodes/n1").status, 200);
    assert_eq!(client.get("/api/v1/nodes?fieldSelector=metadata.name%3Dn1").status, 200);
    forbidden(
        &client.get("/api/v1/nodes/n2"),
        "nodes \"n2\" is forbidden: User \"system:node:n1\" cannot get resource \"nodes\" in API group \"\" at the cluster \
         scope: node 'n1' cannot read 'n2', only its own Node object",
    );
    forbidden(
        &client.get("/api/v1/nodes"),
        "nodes is forbidden: User \"system:node:n1\" cannot list resource \"nodes\" in API group \"\" at the cluster scope: \
         node 'n1' cannot read all nodes, only its own Node object",
    );
    forbidden(
        &client.patch("merge", "/api/v1/nodes/n2/status", &json!({ "status": { "phase": "x" } })),
        "nodes \"n2\" is forbidden: node \"n1\" is not allowed to modify node \"n2\"",
    );
}

#[test]
fn node_sets_only_permitted_labels() {
    let api = start();
    let mut client = Client::node(&api, "n1");
    let mut object = node("n1");
    object["metadata"]["labels"] =
        json!({ "node-restriction.kubernetes.io/a": "", "kubernetes.io/role": "x", "b": "c" });
    forbidden(
        &client.post("/api/v1/nodes", &object),
        "nodes \"n1\" is forbidden: node \"n1\" is not allowed to set the following labels: kubernetes.io/role, \
         node-restriction.kubernetes.io/a",
    );
    object["metadata"]["labels"] = json!({ "kubernetes.io/os": "linux", "node.kubernetes.io/x": "y", "b": "c" });
    object["spec"] = json!({ "taints": [{ "key": "a", "effect": "NoSchedule" }] });
    assert_eq!(client.post("/api/v1/nodes", &object).status, 201);
    let taints = json!({ "spec": { "taints": null } });
    forbidden(
        &client.patch("merge", "/api/v1/nodes/n1", &taints),
        "nodes \"n1\" is forbidden: node \"n1\" is not allowed to modify taints",
    );
    let labels = json!({ "metadata": { "labels": { "foo.k8s.io/x": "y" } } });
    forbidden(
        &client.patch("merge", "/api/v1/nodes/n1", &labels),
        "nodes \"n1\" is forbidden: is not allowed to modify labels: foo.k8s.io/x",
    );
    assert_eq!(client.delete("/api/v1/nodes/n1", &json!({})).status, 403);
}

#[test]
fn node_has_one_lease() {
    let api = start();
    let mut client = Client::node(&api, "n1");
    let lease = |name: &str| json!({ "metadata": { "name": name }, "spec": { "holderIdentity": name } });
    assert_eq!(client.post(LEASES, &lease("n1")).status, 201);
    forbidden(
        &client.post(LEASES, &lease("n2")),
        "leases.coordination.k8s.io \"n2\" is forbidden: can only access node lease with the same name as the requesting node",
    );
    assert_eq!(client.get(&format!("{LEASES}/n1")).status, 200);
    assert_eq!(client.get(&format!("{LEASES}/n2")).status, 403);
    assert_eq!(client.get(LEASES).status, 403);
}

#[test]
fn node_sees_the_pods_bound_to_it() {
    let api = start();
    api.create(&pod("mine", Some("n1")));
    api.create(&pod("other", Some("n2")));
    let mut client = Client::node(&api, "n1");
    assert_eq!(client.get("/api/v1/pods?fieldSelector=spec.nodeName%3Dn1").status, 200);
    forbidden(
        &client.get("/api/v1/pods"),
        "pods is forbidden: User \"system:node:n1\" cannot list resource \"pods\" in API group \"\" at the cluster scope: \
         can only list/watch pods with spec.nodeName field selector",
    );
    assert_eq!(client.get(&format!("{PODS}/mine")).status, 200);
    forbidden(
        &client.get(&format!("{PODS}/other")),
        "pods \"other\" is forbidden: User \"system:node:n1\" cannot get resource \"pods\" in API group \"\" in the \
         namespace \"default\": no relationship found between node 'n1' and this object",
    );
    forbidden(
        &client.patch("merge", &format!("{PODS}/other/status"), &json!({ "status": { "reason": "x" } })),
        "pods \"other\" is forbidden: node \"n1\" can only update pod status for pods with spec.nodeName set to itself",
    );
    forbidden(
        &client.delete(&format!("{PODS}/other"), &json!({})),
        "pods \"other\" is forbidden: node \"n1\" can only delete pods with spec.nodeName set to itself",
    );
    assert_eq!(
        client.patch("merge", &format!("{PODS}/mine"), &json!({ "metadata": { "labels": { "a": "b" } } })).status,
        403
    );
}

#[test]
fn node_creates_only_mirror_pods() {
    let api = start();
    let own = api.create(&node("n1"));
    let mut client = Client::node(&api, "n1");
    let mut mirror = pod("etcd-n1", Some("n1"));
    let mut try_it = |mirror: &Value| client.post(PODS, mirror);
    forbidden(
        &try_it(&mirror),
        "pods \"etcd-n1\" is forbidden: pod does not have \"kubernetes.io/config.mirror\" annotation, node \"n1\" can only \
         create mirror pods",
    );
    mirror["metadata"]["annotations"] = json!({ "kubernetes.io/config.mirror": "hash" });
    forbidden(
        &try_it(&mirror),
        "pods \"etcd-n1\" is forbidden: node \"n1\" can only create pods with an owner reference set to itself",
    );
    let mut owner = json!({ "apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "former", "controller": true });
    mirror["metadata"]["ownerReferences"] = json!([owner]);
    let uid = own["metadata"]["uid"].as_str().unwrap();
    forbidden(
        &try_it(&mirror),
        &format!("pods \"etcd-n1\" is forbidden: node n1 UID mismatch: expected former got {uid}"),
    );
    owner["uid"] = json!(uid);
    mirror["metadata"]["ownerReferences"] = json!([owner]);
    mirror["spec"]["volumes"] = json!([{ "name": "s", "secret": { "secretName": "s" } }]);
    forbidden(
        &try_it(&mirror),
        "pods \"etcd-n1\" is forbidden: node \"n1\" can not create pods that reference secrets",
    );
    mirror["spec"]["volumes"] = json!([]);
    assert_eq!(try_it(&mirror).status, 201);
}

#[test]
fn node_reads_the_objects_its_pods_refer_to() {
    let api = start();
    let mut object = pod("web", Some("n1"));
    object["spec"]["imagePullSecrets"] = json!([{ "name": "pull" }]);
    object["spec"]["serviceAccountName"] = json!("robot");
    let from_key = json!({ "configMapKeyRef": { "name": "settings", "key": "a" } });
    object["spec"]["containers"][0]["env"] = json!([{ "name": "A", "valueFrom": from_key }]);
    object["spec"]["volumes"] = json!([
        { "name": "a", "projected": { "sources": [{ "secret": { "name": "key" } }] } },
        { "name": "b", "persistentVolumeClaim": { "claimName": "disk" } }
    ]);
    api.create(&object);
    for name in ["pull", "key", "strange"] {
        api.create(&secret(name));
    }
    api.create(&config_map("settings", "1"));
    let claim =
        json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "disk" }, "spec": {} });
    api.create(&claim);
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "pv1" },
        "spec": { "claimRef": { "namespace": "default", "name": "disk" } }
    });
    api.create(&volume);
    api.create(&json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "robot" } }));

    let mut client = Client::node(&api, "n1");
    let mut status = |path: &str| client.get(path).status;
    let in_default = |rest: &str| format!("/api/v1/namespaces/default/{rest}");
    for allowed in
        ["secrets/pull", "secrets/key", "configmaps/settings", "serviceaccounts/robot", "persistentvolumeclaims/disk"]
    {
        assert_eq!(status(&in_default(allowed)), 200, "{allowed}");
    }
    assert_eq!(status("/api/v1/persistentvolumes/pv1"), 200);
    assert_eq!(status(&in_default("secrets?fieldSelector=metadata.name%3Dkey")), 200);
    for refused in ["secrets/strange", "secrets", "secrets?fieldSelector=metadata.name%3Dstrange", "serviceaccounts"] {
        assert_eq!(status(&in_default(refused)), 403, "{refused}");
    }
    assert_eq!(status("/api/v1/services"), 200);
    assert_eq!(status("/apis/node.k8s.io/v1/runtimeclasses"), 200);
    assert_eq!(status("/api/v1/events"), 403);
    forbidden(
        &client.get(&in_default("secrets/strange")),
        "secrets \"strange\" is forbidden: User \"system:node:n1\" cannot get resource \"secrets\" in API group \"\" in the \
         namespace \"default\": no relationship found between node 'n1' and this object",
    );
    let mut other = Client::node(&api, "n2");
    assert_eq!(other.get(&in_default("secrets/pull")).status, 403);
}

#[test]
fn authorization_can_be_disabled() {
    let api = FakeApi::start(Options { node_authorization: false, tls: false, ..Options::default() });
    let mut client = Client::anonymous(&api);
    assert_eq!(client.get("/api/v1/secrets").status, 200);
    assert_eq!(client.post(PODS, &pod("web", Some("n1"))).status, 201);
}
