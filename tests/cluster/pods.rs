//! Pods of the API server: started, reported, supplied with their objects, and removed.

use std::time::Duration;

use serde_json::{Value, json};

use super::joined::Joined;
use crate::fake_api::faults::WatchFault;
use crate::fake_api::world::{Network, WatchOrder};
use coracle::platform::cri::v1::{ContainerState, ExecSyncRequest, StopContainerRequest};

pub(crate) const PODS: &str = "/api/v1/pods";
pub(crate) const WEB: &str = "/api/v1/namespaces/default/pods/web";
pub(crate) const MIRROR: &str = "/api/v1/namespaces/default/pods/own-node-a";
const NODE: &str = "/api/v1/nodes/node-a";

pub(crate) fn pod(name: &str, spec: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeName": "node-a",
            "enableServiceLinks": false,
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "localhost/coracle/busybox:1", "imagePullPolicy": "IfNotPresent"}],
        },
    });
    for (key, value) in spec.as_object().unwrap() {
        object["spec"][key] = value.clone();
    }
    object
}

pub(crate) fn mounted(volume: &Value) -> Value {
    let mount = json!([{"name": "v", "mountPath": "/v"}]);
    let container = json!({
        "name": "main", "image": "localhost/coracle/busybox:1", "imagePullPolicy": "IfNotPresent", "volumeMounts": mount
    });
    json!({"containers": [container], "volumes": [volume]})
}

impl Joined {
    /// A ready node with a ready pod.
    pub(crate) fn with_web(spec: &Value) -> Self {
        let mut joined = Self::new();
        joined.start("", &[]);
        joined.api.create(&pod("web", spec));
        joined.wait_until_web_is_ready();
        joined
    }

    #[track_caller]
    pub(crate) fn wait_until_web_is_ready(&self) -> Value {
        self.api.wait(WEB, "the pod to be ready", is_ready)
    }

    /// The ids of the running containers.
    pub(crate) fn running(&self) -> Vec<String> {
        self.node.fake.look(|world| {
            let running = world.containers.iter().filter(|one| one.state == ContainerState::Running);
            running.map(|one| one.id.clone()).collect()
        })
    }

    pub(crate) fn volume_file(&self, plugin: &str, file: &str) -> Option<String> {
        let uid = self.api.get(WEB)?["metadata"]["uid"].as_str()?.to_owned();
        let path = self.node.folder().join(format!("pods/pods/{uid}/volumes/{plugin}/v/{file}"));
        std::fs::read_to_string(path).ok()
    }

    #[track_caller]
    pub(crate) fn wait_for_file(&self, plugin: &str, file: &str, content: &str) {
        let what = format!("{file} says {content:?}");
        self.node.wait_until(&what, |_| self.volume_file(plugin, file).as_deref() == Some(content));
    }
}

pub(crate) fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"))
}

#[test]
fn pod_runs_and_its_status_is_reported() {
    let joined = Joined::with_web(&json!({}));
    let pod = joined.wait_until_web_is_ready();
    assert_eq!(pod["status"]["phase"], "Running");
    assert_eq!(pod["status"]["containerStatuses"][0]["started"], true);
    for patch in joined.api.requests_of("patch", &format!("{WEB}/status")) {
        assert_eq!(patch.json()["metadata"]["uid"], pod["metadata"]["uid"]);
    }
}

#[test]
fn status_page_shows_the_server_and_its_traffic() {
    let joined = Joined::with_web(&json!({}));
    let server = || joined.node.status()["apiServer"].clone();
    let told = server();
    assert_eq!((&told["connected"], &told["connections"]), (&json!(true), &json!(1)), "{told}");
    assert!(told["sentBytes"].as_u64() > Some(1000) && told["receivedBytes"].as_u64() > Some(1000), "{told}");
    joined.api.set_network(Network::Refused);
    joined.node.wait_until("the server to be missed", |_| server()["connected"] == false);
    joined.node.wait_until("the reason", |_| server()["message"].as_str().is_some_and(|why| why.contains("refused")));
}

#[test]
fn deleted_pod_is_stopped_and_removed() {
    let joined = Joined::with_web(&json!({}));
    joined.api.delete(WEB);
    joined.api.wait_gone(WEB);
    let deletes = joined.api.requests_of("delete", WEB);
    assert_eq!(deletes.len(), 1);
    assert_eq!(deletes[0].json()["gracePeriodSeconds"], 0);
    joined.node.wait_until_nothing_is_left();
}

#[test]
fn deletion_shortens_a_kill_that_a_probe_has_begun() {
    let mut joined = Joined::new();
    joined.start("", &[]);
    joined.node.fake.ignore_sigterm("main");
    let mut web = pod("web", &json!({"terminationGracePeriodSeconds": 600}));
    let container = &mut web["spec"]["containers"][0];
    container["livenessProbe"] = json!({"exec": {"command": ["ask"]}, "periodSeconds": 1, "failureThreshold": 1});
    container["lifecycle"] = json!({"preStop": {"exec": {"command": ["hook"]}}});
    joined.api.create(&web);
    joined.wait_until_web_is_ready();
    joined.node.fake.set_exec(1, "");
    joined.node.fake.wait_for_calls("StopContainer", 1);
    joined.api.delete_with_grace(WEB, 1);
    joined.api.wait_gone(WEB);
    let stops: Vec<StopContainerRequest> = joined.node.fake.requests("StopContainer");
    assert_eq!(stops.iter().map(|stop| stop.timeout).collect::<Vec<_>>(), [600, 2]);
    let commands: Vec<ExecSyncRequest> = joined.node.fake.requests("ExecSync");
    assert_eq!(commands.iter().filter(|command| command.cmd == ["hook"]).count(), 1, "the hook has run already");
}

#[test]
fn foreign_pod_conditions_are_kept() {
    let joined = Joined::with_web(&json!({}));
    let gate = json!({"type": "example.com/gate", "status": "True"});
    let mut conditions = joined.api.get(WEB).unwrap()["status"]["conditions"].as_array().unwrap().clone();
    conditions.push(gate);
    joined
        .api
        .patch(&format!("{WEB}/status"), &json!({"status": {"conditions": conditions, "containerStatuses": null}}));
    let told = joined
        .api
        .wait(WEB, "what was taken away to be back", |pod| pod["status"]["containerStatuses"][0]["ready"] == true);
    let all = told["status"]["conditions"].as_array().unwrap();
    assert!(all.iter().any(|one| one["type"] == "example.com/gate"), "{told}");
}

#[test]
fn node_labels_set_by_others_affect_pod_admission() {
    let mut joined = Joined::new();
    joined.api.create(&json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a", "labels": {"example.com/site": "harbour"}}
    }));
    joined
        .api
        .create(&pod("web", &json!({"nodeSelector": {"example.com/site": "harbour", "kubernetes.io/os": "linux"}})));
    joined.start("", &[]);
    joined.wait_until_web_is_ready();
}

#[test]
fn node_is_read_again_before_its_labels_reject_a_pod() {
    let mut joined = Joined::new();
    joined.start("", &[]);
    joined.wait_until_ready();
    // The label is known to the cluster, but not to the node.
    joined.api.order_watches("/api/v1/nodes", &WatchOrder::Silence);
    joined.api.patch(NODE, &json!({"metadata": {"labels": {"example.com/site": "harbour"}}}));
    joined.api.create(&pod("web", &json!({"nodeSelector": {"example.com/site": "harbour"}})));
    joined.wait_until_web_is_ready();
    joined.api.create(&pod("other", &json!({"nodeSelector": {"example.com/site": "lake"}})));
    let path = "/api/v1/namespaces/default/pods/other";
    let refused = joined.api.wait(path, "the pod to be refused", |pod| pod["status"]["phase"] == "Failed");
    assert_eq!(refused["status"]["reason"], "NodeAffinity");
    let reads = joined.api.count("get", NODE);
    // A read that fails leaves the pod to what is known.
    joined.api.on("get", NODE).answer(500);
    joined.api.create(&pod("third", &json!({"nodeSelector": {"example.com/site": "lake"}})));
    let path = "/api/v1/namespaces/default/pods/third";
    joined.api.wait(path, "the pod to be refused", |pod| pod["status"]["reason"] == "NodeAffinity");
    assert_eq!((reads, joined.api.count("get", NODE)), (2, 3));
}

#[test]
fn pod_that_does_not_tolerate_a_no_execute_taint_is_rejected() {
    let mut joined = Joined::new();
    joined.start("", &[]);
    joined.wait_until_ready();
    let taints = json!({"spec": {"taints": [{"key": "example.com/broken", "effect": "NoExecute"}]}});
    joined.api.patch(NODE, &taints);
    joined.api.create(&pod("web", &json!({"tolerations": [{"key": "example.com/broken", "operator": "Exists"}]})));
    joined.wait_until_web_is_ready();
    joined.api.create(&pod("other", &json!({})));
    let path = "/api/v1/namespaces/default/pods/other";
    let refused = joined.api.wait(path, "the pod to be refused", |pod| pod["status"]["phase"] == "Failed");
    assert_eq!(refused["status"]["reason"], "TaintToleration");
    let message = "Pod was rejected: Predicate TaintToleration failed: \
                   node(s) had taints that the pod didn't tolerate";
    assert_eq!(refused["status"]["message"], message);
}

#[test]
fn true_readiness_gate_makes_the_pod_ready() {
    let mut joined = Joined::new();
    joined.start("", &[]);
    joined.api.create(&pod("web", &json!({"readinessGates": [{"conditionType": "example.com/gate"}]})));
    let running = joined.api.wait(WEB, "the pod to run", |pod| pod["status"]["phase"] == "Running");
    assert!(!is_ready(&running));
    let mut conditions = running["status"]["conditions"].as_array().unwrap().clone();
    conditions.push(json!({"type": "example.com/gate", "status": "True"}));
    joined.api.patch(&format!("{WEB}/status"), &json!({"status": {"conditions": conditions}}));
    joined.wait_until_web_is_ready();
}

#[test]
fn expired_watch_restarts_nothing_and_lists_once() {
    let joined = Joined::with_web(&json!({}));
    let before = joined.running();
    let begun = joined.api.count("watch", PODS);
    joined.api.compact();
    joined.api.on("watch", PODS).answer(410).times(1);
    joined.api.restart();
    joined.api.wait_for_requests("watch", PODS, begun + 1);
    joined.api.create(&pod("other", &json!({})));
    let other = "/api/v1/namespaces/default/pods/other";
    joined.api.wait(other, "another pod to be ready", is_ready);
    assert!(before.iter().all(|id| joined.running().contains(id)));
}

#[test]
fn duplicate_and_reordered_events_are_harmless() {
    for fault in [WatchFault::Duplicate, WatchFault::Reorder] {
        let mut joined = Joined::new();
        joined.api.on("watch", PODS).watch(fault);
        joined.start("", &[]);
        joined.api.wait_for_watches(PODS, 1);
        for name in ["web", "other"] {
            joined.api.create(&pod(name, &json!({})));
        }
        joined.wait_until_web_is_ready();
        joined.api.delete(WEB);
        // The reordering fault holds the deletion until another event follows.
        let other = "/api/v1/namespaces/default/pods/other";
        joined.api.patch(other, &json!({"metadata": {"labels": {"a": "b"}}}));
        joined.api.wait_gone(WEB);
        assert_eq!(joined.lists(PODS), 1);
        assert_eq!(joined.node.fake.look(|world| world.calls_of("CreateContainer")), 2);
    }
}

#[test]
fn interrupted_watch_resumes() {
    let mut joined = Joined::new();
    joined.api.on("watch", PODS).watch(WatchFault::CutInEvent(3)).times(2);
    joined.start("", &[]);
    joined.api.create(&pod("web", &json!({})));
    joined.wait_until_web_is_ready();
    joined.api.create(&pod("other", &json!({})));
    joined.api.wait("/api/v1/namespaces/default/pods/other", "the other pod to be ready", is_ready);
    assert_eq!(joined.api.count("list", PODS), 0);
}

#[test]
fn config_map_volume_follows_its_object() {
    let map = |value: &str| {
        let metadata = json!({"name": "m", "namespace": "default"});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"k": value}})
    };
    let mut joined = Joined::new();
    joined.start("", &[]);
    joined.api.create(&pod("web", &mounted(&json!({"name": "v", "configMap": {"name": "m"}}))));
    joined.api.wait_for("the missing map to be told", |world| {
        world.list("/api/v1/events").iter().any(|event| event["reason"] == "FailedMount")
    });
    joined.api.create(&map("one"));
    joined.wait_until_web_is_ready();
    assert_eq!(joined.volume_file("kubernetes.io~configmap", "k").as_deref(), Some("one"));
    joined.api.update(&map("two"));
    joined.wait_for_file("kubernetes.io~configmap", "k", "two");
}

#[test]
fn tokens_and_secrets_are_mounted_and_never_logged() {
    let mut joined = Joined::new();
    joined.start("", &["-v", "4"]);
    let account = json!({"name": "default", "namespace": "default"});
    joined.api.create(&json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account}));
    let metadata = json!({"name": "s", "namespace": "default"});
    joined.api.create(&json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"p": "aGlkZGVuLXZhbHVl"}
    }));
    let sources = json!([{"serviceAccountToken": {"path": "token"}}, {"secret": {"name": "s"}}]);
    let mut spec = mounted(&json!({"name": "v", "projected": {"sources": sources}}));
    spec["serviceAccountName"] = json!("default");
    joined.api.create(&pod("web", &spec));
    joined.wait_until_web_is_ready();
    let token = joined.volume_file("kubernetes.io~projected", "token").unwrap();
    assert!(token.len() > 20);
    assert_eq!(joined.volume_file("kubernetes.io~projected", "p").as_deref(), Some("hidden-value"));
    let log = joined.node.log();
    assert!(!log.contains(&token) && !log.contains("hidden-value") && !log.contains("aGlkZGVu"));
    joined.api.delete(WEB);
    joined.api.wait_gone(WEB);
    joined.node.wait_until_nothing_is_left();
}

#[test]
fn token_is_refreshed_before_it_expires_and_the_pod_keeps_running() {
    let mut joined = Joined::new();
    joined.api.set_token_lifetime(Some(Duration::from_secs(4)));
    joined.start("", &[]);
    let account = json!({"name": "default", "namespace": "default"});
    joined.api.create(&json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account}));
    let sources = json!([{"serviceAccountToken": {"path": "token"}}]);
    let mut spec = mounted(&json!({"name": "v", "projected": {"sources": sources}}));
    spec["serviceAccountName"] = json!("default");
    joined.api.create(&pod("web", &spec));
    joined.wait_until_web_is_ready();
    let token = || joined.volume_file("kubernetes.io~projected", "token");
    let (before, first) = (joined.running(), token().unwrap());
    joined.node.wait_until("another token is there", |_| token().is_some_and(|token| token != first));
    // One request in three seconds, not as many as the server can answer.
    let asked = joined.api.count("create", "*/serviceaccounts/default/token");
    assert!(asked <= 3, "{asked} tokens");
    assert_eq!(joined.running(), before);
    joined.api.delete(WEB);
    joined.api.wait_gone(WEB);
    joined.node.wait_until_nothing_is_left();
}

#[test]
fn response_larger_than_a_tls_buffer_is_read_completely() {
    let mut joined = Joined::new();
    for number in 0..40 {
        let mut many = pod(&format!("p{number}"), &json!({}));
        many["metadata"]["annotations"] = json!({"filling": "x".repeat(4000)});
        many["status"] = json!({"phase": "Succeeded"});
        joined.api.create(&many);
    }
    joined.start("", &[]);
    joined.api.create(&pod("web", &json!({})));
    joined.wait_until_web_is_ready();
    assert_eq!(joined.api.connections_so_far(), 1);
}

#[test]
fn terminated_pod_never_starts_again() {
    let mut joined = Joined::new();
    joined.api.create(&pod("web", &json!({"restartPolicy": "Never"})));
    joined.api.patch(&format!("{WEB}/status"), &json!({"status": {"phase": "Succeeded"}}));
    joined.start("", &[]);
    joined.api.create(&pod("other", &json!({})));
    joined.api.wait("/api/v1/namespaces/default/pods/other", "the other pod to be ready", is_ready);
    assert_eq!(joined.running().len(), 1);
    assert_eq!(joined.api.get(WEB).unwrap()["status"]["phase"], "Succeeded");
}

#[test]
fn static_pod_with_a_config_map_has_a_mirror_without_it() {
    let mut joined = Joined::new();
    joined.start("", &[]);
    joined.node.write_manifest(
        "own",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {greeting: hello}\n---\n\
         apiVersion: v1\nkind: Pod\nmetadata: {name: own}\nspec:\n  volumes: [{name: v, configMap: {name: settings}}]\n  \
         containers: [{name: main, image: 'localhost/coracle/busybox:1', imagePullPolicy: IfNotPresent, \
         envFrom: [{configMapRef: {name: settings}}], volumeMounts: [{name: v, mountPath: /v}]}]\n",
    );
    let mirror = joined.api.wait(MIRROR, "the mirror to be ready", is_ready);
    assert_eq!(mirror["metadata"]["annotations"]["coracle.dev/mirror-leaves-out"], "configmap/settings");
    assert_eq!(mirror["spec"]["volumes"], json!([{"name": "v", "emptyDir": {}}]));
}

#[test]
fn static_pods_mirror_is_recreated_and_deleted_with_it() {
    let mut joined = Joined::new();
    joined.start("", &[]);
    joined.node.write_manifest(
        "own",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: own}\nspec:\n  containers: [{name: main, image: 'localhost/coracle/busybox:1', \
         imagePullPolicy: IfNotPresent}]\n",
    );
    let mirror = joined.api.wait(MIRROR, "the mirror to be ready", is_ready);
    let owner = &mirror["metadata"]["ownerReferences"][0];
    let uid_of_node = || joined.api.get(NODE).unwrap()["metadata"]["uid"].clone();
    assert_eq!((&owner["kind"], &owner["name"]), (&json!("Node"), &json!("node-a")));
    assert_eq!(owner["uid"], uid_of_node());
    let before = joined.running();
    // The Node object is recreated, and the cluster removes what belonged to the old one.
    joined.api.delete(NODE);
    joined.api.create(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}}));
    joined.node.wait_until("the new object to be the node's", |_| joined.api.get(NODE).unwrap()["status"].is_object());
    joined.api.delete_with_grace(MIRROR, 0);
    let again = joined
        .api
        .wait(MIRROR, "another mirror", |pod| pod["metadata"]["uid"] != mirror["metadata"]["uid"] && is_ready(pod));
    assert_eq!(again["metadata"]["ownerReferences"][0]["uid"], uid_of_node());
    assert_eq!(joined.running(), before);
    joined.node.remove_manifest("own");
    joined.api.wait_gone(MIRROR);
}

#[test]
fn pods_keep_running_during_an_outage_and_are_reported_later() {
    let joined = Joined::with_web(&json!({}));
    let before = joined.running();
    joined.api.set_network(Network::Refused);
    joined.node.fake.exit("main", 1);
    joined.node.wait_until("the container was started again", |_| {
        let running = joined.running();
        running.len() == 1 && running != before
    });
    joined.api.set_network(Network::Open);
    joined.api.wait(WEB, "the restart to be told", |pod| pod["status"]["containerStatuses"][0]["restartCount"] == 1);
}

/// A server without streaming lists: lists come in pages of 250.
#[test]
fn service_variables_cover_every_page_of_a_list() {
    const SERVICES: &str = "/api/v1/namespaces/default/services";
    let mut joined = Joined::new();
    for number in 0..300 {
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": format!("s{number:03}"), "namespace": "default"},
            "spec": {"clusterIP": "10.0.0.7", "ports": [{"port": 80}]},
        });
        joined.api.create(&service);
    }
    // Also the list for the "kubernetes" service.
    joined.api.on("watch", SERVICES).answer(422).times(2);
    joined.start("", &[]);
    joined.api.create(&pod("web", &json!({"enableServiceLinks": true})));
    joined.api.wait(WEB, "the pod to be ready", is_ready);
    let container = joined.node.fake.containers().pop().unwrap();
    let has = |name: &str| container.config.envs.iter().any(|variable| variable.key == name);
    assert_eq!((has("S000_SERVICE_HOST"), has("S299_SERVICE_HOST")), (true, true));
}

#[test]
fn service_of_a_manifest_is_refused_in_a_cluster() {
    let mut joined = Joined::new();
    joined.start("", &[]);
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {selector: {app: web}}\n";
    joined.node.write_manifest("web", service);
    joined.node.wait_until("the Service to be refused", |_| {
        let status = joined.node.status().to_string();
        status.contains("kind Service: names of a node in a cluster come from the cluster: create it there")
    });
}

#[test]
fn workloads_and_claims_of_manifests_are_refused_in_a_cluster() {
    let mut joined = Joined::new();
    joined.start("", &[]);
    let template = "{metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}";
    let deployment = format!(
        "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: web}}, \
         spec: {{selector: {{matchLabels: {{a: b}}}}, template: {template}}}}}"
    );
    let claim = "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data}, \
                 spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}}";
    let user = "{apiVersion: v1, kind: Pod, metadata: {name: user}, spec: {containers: [{name: c, image: i}], \
                volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]}}";
    joined.node.write_manifest("all", &[&deployment, claim, user].join("\n---\n"));
    joined.node.wait_until("all to be refused", |_| {
        let status = joined.node.status().to_string();
        [
            "Deployment default/web: a cluster has its own controllers: create it there",
            "kind PersistentVolumeClaim: a cluster has its own volumes: create it there",
            "pod default/user-node-a: static pods may not reference persistentvolumeclaims of a cluster",
        ]
        .iter()
        .all(|line| status.contains(line))
    });
}
