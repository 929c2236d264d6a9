//! Bound persistent volume claims, runtime classes and trust: with the API server, and after a reboot without it.

use std::fs;

use coracle::platform::cri::v1::RuntimeHandler;
use coracle::protocol::grpc::Code;
use serde_json::{Value, json};

use super::joined::Joined;
use super::pods::{MIRROR, WEB, is_ready, pod};
use crate::fake_api::world::Network;
use crate::fake_cri::Sandbox;

const SHORT: &str = "nodeLeaseDurationSeconds: 4\ncrashLoopBackOff: {maxContainerRestartPeriod: 1s}\n";
const ANCHOR: &str = "-----BEGIN CERTIFICATE-----\nYQ==\n-----END CERTIFICATE-----\n";

/// Creates a claim that is bound to a directory of the node `host`.
fn create_claim(joined: &Joined, host: &str) {
    let data = joined.node.folder().join("data");
    fs::create_dir(&data).unwrap();
    let capacity = json!({"storage": "1Gi"});
    let claim = joined.api.create(&json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": capacity}, "volumeName": "disk"},
    }));
    let uid = claim["metadata"]["uid"].as_str().unwrap();
    let host = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [host]});
    joined.api.create(&json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "disk", "annotations": {"pv.beta.kubernetes.io/gid": "1234", "other": "x"}},
        "spec": {
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [host]}]}},
            "capacity": capacity, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": data},
            "claimRef": {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "data", "uid": uid},
        },
    }));
}

fn demanding() -> Value {
    let bundle = json!({"clusterTrustBundle": {"name": "anchors", "path": "anchors.pem"}});
    let mounts = json!([{"name": "data", "mountPath": "/data"}, {"name": "v", "mountPath": "/v"}]);
    let mut pod = pod("web", &json!({"runtimeClassName": "strict"}));
    pod["spec"]["volumes"] = json!([
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "v", "projected": {"sources": [bundle]}}
    ]);
    pod["spec"]["containers"][0]["volumeMounts"] = mounts;
    pod
}

#[test]
fn claims_runtime_class_and_trust_survive_an_offline_reboot() {
    let mut joined = Joined::new();
    joined.node.fake.set_handlers(vec![
        RuntimeHandler::default(),
        RuntimeHandler { name: "runsc".to_owned(), ..RuntimeHandler::default() },
    ]);
    create_claim(&joined, "node-a");
    joined.api.create(&json!({
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "strict"}, "handler": "runsc"
    }));
    joined.api.create(&json!({
        "apiVersion": "certificates.k8s.io/v1beta1", "kind": "ClusterTrustBundle", "metadata": {"name": "anchors"},
        "spec": {"trustBundle": ANCHOR},
    }));
    joined.start(SHORT, &[]);
    joined.api.create(&demanding());
    joined.api.wait_for("the claim to be asked for", |world| {
        world.requests.iter().any(|request| request.path.ends_with("/persistentvolumeclaims/data"))
    });
    assert_eq!(joined.running().len(), 0, "the claim is not bound yet");
    let bound = json!({"status": {"phase": "Bound"}});
    joined.api.patch("/api/v1/namespaces/default/persistentvolumeclaims/data/status", &bound);
    joined.api.wait(WEB, "the pod to be ready", is_ready);
    let names = ["pod/default/web/", "claim/default/data", "runtimeclass/strict"];
    joined.wait_until_stored(&names);
    let check = |joined: &Joined| {
        let ready =
            joined.node.fake.look(|world| world.sandboxes.iter().filter(|one| one.is_ready()).cloned().collect());
        let sandboxes: Vec<Sandbox> = ready;
        assert_eq!(sandboxes.iter().map(|one| &*one.runtime_handler).collect::<Vec<_>>(), ["runsc"]);
        let container = joined.node.fake.containers().pop().unwrap();
        let mount = container.config.mounts.iter().find(|mount| mount.container_path == "/data").unwrap();
        let context = container.config.linux.as_ref().unwrap().security_context.as_ref().unwrap();
        assert_eq!(context.supplemental_groups, [1234]);
        assert_eq!(mount.host_path, joined.node.folder().join("data").display().to_string());
        assert_eq!(joined.volume_file("kubernetes.io~projected", "anchors.pem").as_deref(), Some(ANCHOR));
    };
    check(&joined);
    joined.api.set_network(Network::Refused);
    joined.reboot();
    joined.start(SHORT, &[]);
    joined.wait_for_running(1);
    check(&joined);
}

#[test]
fn volume_of_another_node_is_not_mounted() {
    let mut joined = Joined::new();
    create_claim(&joined, "node-b");
    let bound = json!({"status": {"phase": "Bound"}});
    joined.api.patch("/api/v1/namespaces/default/persistentvolumeclaims/data/status", &bound);
    joined.start("", &[]);
    let mut pod = pod("web", &json!({}));
    pod["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    joined.api.create(&pod);
    joined.node.wait_until("the reason to be shown", |_| {
        let log = joined.node.log();
        log.contains("MountVolume.NodeAffinity check failed for volume")
            && log.contains("no matching NodeSelectorTerms")
    });
    assert_eq!(joined.running().len(), 0);
}

#[test]
fn static_pod_gets_the_handler_of_its_runtime_class() {
    let mut joined = Joined::new();
    let handler = RuntimeHandler { name: "runsc".to_owned(), ..RuntimeHandler::default() };
    joined.node.fake.set_handlers(vec![RuntimeHandler::default(), handler]);
    // Until the class is known, its name is taken for the handler's.
    joined.node.fake.on("RunPodSandbox").about("strict").fail(Code::Unknown, "no runtime for \"strict\" is configured");
    joined.api.create(&json!({
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "strict"}, "handler": "runsc"
    }));
    joined.start("", &[]);
    joined.node.write_manifest(
        "own",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: own}\nspec:\n  runtimeClassName: strict\n  \
         containers: [{name: main, image: 'localhost/coracle/busybox:1', imagePullPolicy: IfNotPresent}]\n",
    );
    joined.api.wait(MIRROR, "the mirror to be ready", is_ready);
    let handlers: Vec<String> =
        joined.node.fake.look(|world| world.sandboxes.iter().map(|one| one.runtime_handler.clone()).collect());
    assert_eq!(handlers, ["runsc"]);
}
