//! Cluster trust bundles in pods.

use serde_json::{Value, json};

use super::joined::{Joined, condition, wait_for_event};

const WEB: &str = "/api/v1/namespaces/default/pods/web";
const BUNDLES: &str = "/apis/certificates.k8s.io/v1beta1/clustertrustbundles";

fn pem(letters: &str) -> String {
    let one = |letter: char| match letter {
        'a' => "YQ==",
        'b' => "Yg==",
        _ => "Yw==",
    };
    let section = |letter| format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", one(letter));
    letters.chars().map(section).collect()
}

fn bundle(name: &str, signer: &str, stage: &str, letters: &str) -> Value {
    let (kind, version) = ("ClusterTrustBundle", "certificates.k8s.io/v1beta1");
    let spec = json!({"signerName": signer, "trustBundle": format!("by hand\n{}", pem(letters))});
    json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "labels": {"stage": stage}}, "spec": spec})
}

/// A pod with these bundles in a projected volume.
fn web(bundles: &[Value]) -> Value {
    let sources: Vec<Value> = bundles.iter().map(|bundle| json!({"clusterTrustBundle": bundle})).collect();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "nodeName": "node-a",
            "enableServiceLinks": false,
            "terminationGracePeriodSeconds": 1,
            "volumes": [{"name": "v", "projected": {"sources": sources}}],
            "containers": [{
                "name": "main",
                "image": "localhost/coracle/busybox:1",
                "imagePullPolicy": "IfNotPresent",
                "volumeMounts": [{"name": "v", "mountPath": "/v"}],
            }],
        },
    })
}

#[track_caller]
fn wait_until_ready(joined: &Joined) {
    joined.api.wait(WEB, "the pod to be ready", |pod| condition(pod, "Ready")["status"] == "True");
}

#[track_caller]
fn wait_for_file(joined: &Joined, file: &str, content: &str) {
    let uid = joined.api.get(WEB).unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
    let path = joined.node.folder().join(format!("pods/pods/{uid}/volumes/kubernetes.io~projected/v/{file}"));
    let what = format!("{file} says {content:?}");
    joined.node.wait_until(&what, |_| std::fs::read_to_string(&path).is_ok_and(|found| found == content));
}

#[test]
fn bundles_are_mounted_by_name_and_signer_and_updated() {
    let mut joined = Joined::new();
    joined.start("", &[]);
    joined.api.create(&bundle("own", "", "test", "bab"));
    joined.api.create(&bundle("s-1", "example.com/s", "live", "b"));
    joined.api.create(&bundle("s-2", "example.com/s", "test", "c"));
    joined.api.create(&bundle("t-1", "example.com/t", "live", "c"));
    let live = json!({"matchLabels": {"stage": "live"}});
    joined.api.create(&web(&[
        json!({"name": "own", "path": "own.pem"}),
        json!({"name": "none", "optional": true, "path": "none.pem"}),
        json!({"signerName": "example.com/s", "labelSelector": live, "path": "live.pem"}),
        json!({"signerName": "example.com/s", "labelSelector": {}, "path": "all.pem"}),
        json!({"signerName": "example.com/s", "optional": true, "path": "nothing.pem"}),
    ]));
    wait_until_ready(&joined);
    for (file, letters) in [("own", "ab"), ("none", ""), ("live", "b"), ("all", "bc"), ("nothing", "")] {
        wait_for_file(&joined, &format!("{file}.pem"), &pem(letters));
    }
    joined.api.patch(&format!("{BUNDLES}/own"), &json!({"spec": {"trustBundle": pem("c")}}));
    joined.api.create(&bundle("none", "", "test", "a"));
    joined.api.create(&bundle("s-3", "example.com/s", "live", "ac"));
    joined.api.delete(&format!("{BUNDLES}/s-2"));
    for (file, letters) in [("own", "c"), ("none", "a"), ("live", "abc"), ("all", "abc")] {
        wait_for_file(&joined, &format!("{file}.pem"), &pem(letters));
    }
}

#[test]
fn pod_waits_for_a_missing_bundle_and_names_it() {
    let mut joined = Joined::new();
    joined.start("", &[]);
    joined.api.create(&web(&[json!({"name": "own", "path": "own.pem"})]));
    let why = "while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io \"own\" not found";
    joined.api.wait_for("it to be told", |world| {
        let events = world.list("/api/v1/events");
        events.iter().any(|event| event["reason"] == "FailedMount" && event["message"].as_str().unwrap().contains(why))
    });
    joined.api.create(&bundle("own", "", "test", "a"));
    wait_until_ready(&joined);
    wait_for_file(&joined, "own.pem", &pem("a"));
}

#[test]
fn without_the_gate_bundles_are_not_asked_for() {
    let mut joined = Joined::new();
    joined.start("featureGates: {ClusterTrustBundleProjection: false}\n", &[]);
    joined.api.create(&bundle("own", "", "test", "a"));
    joined.api.create(&web(&[json!({"name": "own", "path": "own.pem"})]));
    wait_for_event(&joined, "FailedMount", "the feature gate ClusterTrustBundleProjection is off");
    assert_eq!(joined.api.get(WEB).unwrap()["status"]["phase"], "Pending");
}
