//! A node that loses its power repeatedly while its API server is unreachable.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::node::{BUSYBOX, NODE_NAME, Node, PATIENCE, Pod, Pods, STAY, wait_for};
use crate::fake_api::kubeconfig::Credentials;
use crate::fake_api::world::Network;
use crate::fake_api::{FakeApi, Options};

/// The promised number of power cuts or kills if CORACLE_ENDURANCE is set, otherwise a few.
pub(crate) fn rounds() -> u64 {
    if std::env::var_os("CORACLE_ENDURANCE").is_some() { 100 } else { 2 }
}

const PODS: [&str; 3] = ["plain", "rich", "goes"];

pub(crate) fn path(pod: &str) -> String {
    format!("/api/v1/namespaces/default/pods/{pod}-{NODE_NAME}")
}

/// A pod whose name ends with the node's, as the names of static pods do.
pub(crate) fn pod(name: &str, command: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": format!("{name}-{NODE_NAME}"), "namespace": "default"},
        "spec": {
            "nodeName": NODE_NAME,
            "enableServiceLinks": false,
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "main", "image": BUSYBOX, "imagePullPolicy": "IfNotPresent", "command": ["sh", "-c", command]
            }],
        },
    })
}

/// A pod that runs only if it sees its volumes and variables.
fn rich() -> Value {
    let seen =
        "[ $(cat /v/k) = one ] && [ $(cat /v/p) = hidden-value ] && [ -s /v/token ] && [ $FROM = one ] || exit 1";
    let mut pod = pod("rich", &format!("{seen}; {STAY}"));
    let sources = json!([
        {"configMap": {"name": "m"}}, {"secret": {"name": "s"}}, {"serviceAccountToken": {"path": "token"}}
    ]);
    pod["spec"]["serviceAccountName"] = json!("default");
    pod["spec"]["volumes"] = json!([{"name": "v", "projected": {"sources": sources}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    let from = json!({"configMapKeyRef": {"name": "m", "key": "k"}});
    pod["spec"]["containers"][0]["env"] = json!([{"name": "FROM", "valueFrom": from}]);
    pod
}

fn prepare(api: &FakeApi) {
    let metadata = |name: &str| json!({"name": name, "namespace": "default"});
    let data = json!({"p": STANDARD.encode("hidden-value")});
    api.create(&json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata("default")}));
    api.create(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata("m"), "data": {"k": "one"}}));
    api.create(
        &json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata("s"), "type": "Opaque", "data": data}),
    );
}

/// A node with an encryption key for Secrets, joined to a fake API server.
pub(crate) fn joined() -> (Node, FakeApi) {
    let mut node = Node::with_runtime();
    let api = node.enclosure().on_network(|| FakeApi::start(Options::default()));
    let folder = node.folder().join("pods/coracle");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("store-key"), [7; 32]).unwrap();
    fs::set_permissions(folder.join("store-key"), fs::Permissions::from_mode(0o600)).unwrap();
    let kubeconfig = api.kubeconfig(node.folder(), &Credentials::of_node(NODE_NAME));
    node.add_arguments(&["--kubeconfig", &kubeconfig.display().to_string(), "--make-iptables-util-chains=false"]);
    node.configure_agent("imageGCHighThresholdPercent: 100\nevictionHard: {}\n");
    prepare(&api);
    node.start_agent();
    (node, api)
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"))
}

/// A pod's uid and the restart count of its container.
fn standing(pods: &Pods, name: &str) -> (String, u64) {
    let pod = pods.get(name).unwrap();
    (pod.uid().to_owned(), pod.container("main").restarts())
}

fn are_ready(pods: &Pods, names: &[&str]) -> bool {
    names.iter().all(|name| pods.has(name, |pod| pod.is_ready()))
}

#[test]
fn node_runs_the_pods_of_its_cluster_after_each_power_cut() {
    let (mut node, api) = joined();
    for pod in [pod("plain", STAY), rich(), pod("goes", STAY)] {
        api.create(&pod);
    }
    for name in PODS {
        api.wait(&path(name), "the pod to be ready", is_ready);
    }
    wait_for("everything to be stored", PATIENCE, || {
        let journal = fs::read(node.folder().join("pods/coracle/offline/journal")).unwrap_or_default();
        let journal = String::from_utf8_lossy(&journal).into_owned();
        let token = ["token/default/", "secret/default/s", "configmap/default/m", "\"name\":\"node\""];
        let pods = PODS.map(|name| format!("pod/default/{name}-{NODE_NAME}/"));
        (token.iter().all(|name| journal.contains(name)) && pods.iter().all(|name| journal.contains(name)))
            .then_some(())
    });
    let first = PODS.map(|name| standing(&node.pods(), name).0);
    node.enclosure().on_network(|| api.set_network(Network::Refused));

    for round in 1..=rounds() {
        node.cut_power();
        node.start_containerd();
        node.start_agent();
        // Until the first relist, the agent shows the status last reported to the API server.
        let expected = first.clone().map(|uid| (uid, round));
        let pods = node.wait_until(&format!("all pods run again after cut {round}"), |pods| {
            are_ready(pods, &PODS) && PODS.map(|name| standing(pods, name)) == expected
        });
        // No container runs twice and no old container is left.
        let running = node.tasks().into_iter().filter(|task| task.is_running() && !task.container.is_empty()).count();
        assert_eq!((running, pods.0.len()), (PODS.len(), PODS.len()));
    }

    // After the API server is back, exactly the changes made meanwhile take effect.
    let kept = standing(&node.pods(), "plain");
    let kept_id = node.running_containers("plain");
    api.delete_with_grace(&path("goes"), 0);
    let mut changed = api.get(&path("rich")).unwrap();
    changed["metadata"]["annotations"] = json!({"example.com/changed": "yes"});
    api.update(&changed);
    api.create(&pod("new", STAY));
    node.enclosure().on_network(|| api.set_network(Network::Open));
    api.wait(&path("new"), "the new pod to be ready", is_ready);
    let pods = node.wait_until("the deleted one is gone", |pods| {
        pods.get("goes").is_none() && are_ready(pods, &["plain", "rich", "new"])
    });
    assert_eq!(standing(&pods, "plain"), kept);
    assert_eq!(node.running_containers("plain"), kept_id);
    node.wait_until("the change is known", |pods| {
        let annotation = |pod: &Pod| pod.json()["metadata"]["annotations"]["example.com/changed"] == "yes";
        pods.has("rich", annotation)
    });
}
