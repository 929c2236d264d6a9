//! Default objects of a cluster.

use serde_json::{Value, json};

use super::client::Client;
use super::{FakeApi, Options, PODS, WEB, node, pod, start};

const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

fn furnished() -> FakeApi {
    FakeApi::start(Options { furnished: true, ..Options::default() })
}

fn is_mounted(container: &Value) -> bool {
    let mounts = container["volumeMounts"].as_array().map(Vec::as_slice).unwrap_or_default();
    mounts.iter().any(|mount| mount["mountPath"] == MOUNT_PATH)
}

#[test]
fn namespace_has_a_service_account_and_the_ca_certificate() {
    let api = furnished();
    api.create(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "shop" } }));
    for namespace in ["default", "kube-system", "shop"] {
        let object = |rest: &str| api.get(&format!("/api/v1/namespaces/{namespace}/{rest}")).unwrap();
        assert_eq!(object("configmaps/kube-root-ca.crt")["data"]["ca.crt"], api.authority_pem());
        assert_eq!(object("serviceaccounts/default")["kind"], "ServiceAccount");
    }
    assert_eq!(api.get("/api/v1/namespaces/default/services/kubernetes").unwrap()["spec"]["clusterIP"], "10.96.0.1");
    assert_eq!(start().list("/api/v1/serviceaccounts"), Vec::<Value>::new());
}

#[test]
fn pod_gets_a_token_that_its_node_may_request() {
    let api = furnished();
    let created = api.create(&pod("web", Some("n1")));
    assert_eq!(created["spec"]["serviceAccountName"], "default");
    assert!(is_mounted(&created["spec"]["containers"][0]));
    let volume = &created["spec"]["volumes"][0];
    assert!(volume["name"].as_str().unwrap().starts_with("kube-api-access-"));
    assert_eq!(volume["projected"]["sources"][0]["serviceAccountToken"]["expirationSeconds"], 3607);
    let mut client = Client::node(&api, "n1");
    let bound = json!({ "apiVersion": "v1", "kind": "Pod", "name": "web", "uid": created["metadata"]["uid"] });
    let request = json!({ "spec": { "expirationSeconds": 3607, "boundObjectRef": bound } });
    assert_eq!(client.post("/api/v1/namespaces/default/serviceaccounts/default/token", &request).status, 201);
    assert_eq!(client.get("/api/v1/namespaces/default/configmaps/kube-root-ca.crt").status, 200);
}

#[test]
fn mirror_pods_and_pods_that_opt_out_get_no_token() {
    let api = furnished();
    let mut without = pod("web", Some("n1"));
    without["spec"]["automountServiceAccountToken"] = json!(false);
    assert!(!is_mounted(&api.create(&without)["spec"]["containers"][0]));
    let account = "/api/v1/namespaces/default/serviceaccounts/default";
    api.patch(account, &json!({ "automountServiceAccountToken": false }));
    api.delete_with_grace(WEB, 0);
    assert_eq!(api.create(&pod("web", Some("n1")))["spec"]["volumes"], json!(null));

    api.patch(account, &json!({ "automountServiceAccountToken": null }));
    let own = api.create(&node("n1"));
    let mut mirror = pod("etcd-n1", Some("n1"));
    mirror["metadata"]["annotations"] = json!({ "kubernetes.io/config.mirror": "hash" });
    let uid = &own["metadata"]["uid"];
    mirror["metadata"]["ownerReferences"] =
        json!([{ "apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid, "controller": true }]);
    let created = Client::node(&api, "n1").post(PODS, &mirror);
    assert_eq!((created.status, &created.json()["spec"]["serviceAccountName"]), (201, &json!(null)));
}
