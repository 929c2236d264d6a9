//! Compares, field by field, the node, lease, pods and mirror pod that this agent writes with those recorded from the
//! upstream kubelet 1.36 on an equivalent API server.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use coracle::protocol::grpc::Code;
use serde_json::{Value, json};

use super::joined::{Joined, LEASE, NODE};
use crate::fake_api::Options;

/// Recorded pods that a runtime without real processes can bring to the recorded state.
const PODS: [&str; 17] = [
    "completed",
    "config-missing",
    "dns-hosts",
    "env",
    "guaranteed",
    "hostnetwork",
    "hostport",
    "image-missing",
    "init-sidecar",
    "mount-missing",
    "never-pull",
    "nonroot",
    "readiness-gate",
    "running",
    "security",
    "share-pid",
    "volumes",
];
const IMAGE: &str = "registry.k8s.io/e2e-test-images/busybox:1.37.0-1";
/// An image of a registry that does not exist.
const MISSING: &str = "registry.invalid/none/such:1";
const GOLDEN_TIMEOUT: Duration = Duration::from_secs(30);

/// How a field may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Differs {
    /// The values differ, but the type is the same.
    Value,
    OnlyHere,
    OnlyRecorded,
    /// Presence depends on the machine.
    AnyWay,
}

/// A JSON pointer, in which `*` matches any name, the kind of difference, and its reason.
type Exception = (&'static str, Differs, &'static str);

const OF_SERVER: &[Exception] = &[
    ("/metadata/creationTimestamp", Differs::Value, "the server's moment"),
    ("/metadata/managedFields", Differs::OnlyHere, "kubectl, with which was recorded, leaves it out"),
    ("/metadata/resourceVersion", Differs::Value, "the server's"),
    ("/metadata/uid", Differs::Value, "the server's"),
];

const OF_NODE: &[Exception] = &[
    (
        "/metadata/annotations/coracle.dev~1client-certificate-expires",
        Differs::AnyWay,
        "this kubelet's own report, once it has read its certificate",
    ),
    ("/metadata/annotations/node.alpha.kubernetes.io~1ttl", Differs::OnlyRecorded, "a controller's"),
    ("/spec/taints", Differs::OnlyHere, "a controller takes it away from a node that is ready"),
    ("/status/allocatable/*", Differs::AnyWay, "the machine's"),
    ("/status/capacity/*", Differs::AnyWay, "the machine's"),
    ("/status/conditions/*/lastHeartbeatTime", Differs::Value, "a moment"),
    ("/status/conditions/*/lastTransitionTime", Differs::Value, "a moment"),
    ("/status/images", Differs::OnlyRecorded, "none are shown unless nodeStatusMaxImages asks for them"),
    ("/status/nodeInfo/*", Differs::AnyWay, "the machine's, the runtime's, and which kubelet it is"),
    ("/status/daemonEndpoints/kubeletEndpoint/Port", Differs::AnyWay, "a test has no port that others have too"),
];

const OF_LEASE: &[Exception] = &[
    ("/metadata/ownerReferences/0/uid", Differs::Value, "the node's"),
    ("/spec/renewTime", Differs::Value, "a moment"),
];

const OF_POD: &[Exception] = &[
    ("/status/conditions/*/lastTransitionTime", Differs::Value, "a moment"),
    ("/status/*/*/containerID", Differs::Value, "the runtime's"),
    ("/status/*/*/image", Differs::Value, "the runtime shows an image by one of its names"),
    ("/status/*/*/imageID", Differs::Value, "the runtime's"),
    ("/status/*/*/state/running/startedAt", Differs::Value, "a moment"),
    ("/status/*/*/state/terminated/containerID", Differs::Value, "the runtime's"),
    ("/status/*/*/state/terminated/finishedAt", Differs::Value, "a moment"),
    ("/status/*/*/state/terminated/startedAt", Differs::Value, "a moment"),
    ("/status/podIP", Differs::Value, "the runtime's"),
    ("/status/podIPs/0/ip", Differs::Value, "the runtime's"),
    ("/status/startTime", Differs::Value, "a moment"),
];

const OF_MIRROR: &[Exception] = &[
    ("/metadata/annotations/kubernetes.io~1config.hash", Differs::Value, "of the manifest as this kubelet reads it"),
    ("/metadata/annotations/kubernetes.io~1config.mirror", Differs::Value, "the same"),
    ("/metadata/annotations/kubernetes.io~1config.seen", Differs::Value, "a moment"),
    ("/metadata/ownerReferences/0/uid", Differs::Value, "the node's"),
];

/// Maps the addresses and UIDs of `node1` at 10.77.0.1 in the recordings.
fn comparable(object: &Value, address: &str, uid: &str) -> Value {
    let text = object.to_string().replace("node-a", "node1").replace(&format!("\"{address}\""), "\"10.77.0.1\"");
    let text = if uid.is_empty() { text } else { text.replace(uid, "UID") };
    let mut object: Value = serde_json::from_str(&text).unwrap();
    // The recorded machine had no IPv6 address.
    for (list, field) in [("addresses", "address"), ("hostIPs", "ip"), ("podIPs", "ip")] {
        let all = object.get_mut("status").and_then(|status| status.get_mut(list)).and_then(Value::as_array_mut);
        if let Some(all) = all {
            all.retain(|one| !one[field].as_str().is_some_and(|address| address.contains(':')));
        }
    }
    object
}

fn recorded(path: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(path);
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// The differences between two objects.
fn differences(place: &str, here: Option<&Value>, there: Option<&Value>, found: &mut Vec<(String, Differs)>) {
    match (here, there) {
        (Some(Value::Object(here)), Some(Value::Object(there))) => {
            for name in here.keys().chain(there.keys().filter(|name| !here.contains_key(*name))) {
                let place = format!("{place}/{}", name.replace('~', "~0").replace('/', "~1"));
                differences(&place, here.get(name), there.get(name), found);
            }
        }
        (Some(Value::Array(here)), Some(Value::Array(there))) if here.len() == there.len() => {
            for (index, (here, there)) in here.iter().zip(there).enumerate() {
                differences(&format!("{place}/{index}"), Some(here), Some(there), found);
            }
        }
        (Some(here), Some(there)) if here == there => {}
        (Some(here), Some(there)) if std::mem::discriminant(here) == std::mem::discriminant(there) => {
            found.push((place.to_owned(), Differs::Value));
        }
        (Some(_), Some(_)) => found.push((place.to_owned(), Differs::AnyWay)),
        (Some(_), None) => found.push((place.to_owned(), Differs::OnlyHere)),
        (None, Some(_)) => found.push((place.to_owned(), Differs::OnlyRecorded)),
        (None, None) => {}
    }
}

fn fits(exception: &Exception, place: &str, differs: Differs) -> bool {
    let (pattern, kind, _) = exception;
    let (mut pattern, mut place) = (pattern.split('/'), place.split('/'));
    let same = loop {
        match (pattern.next(), place.next()) {
            (None, None) => break true,
            (Some("*"), Some(_)) => {}
            (Some(one), Some(other)) if one == other => {}
            _ => break false,
        }
    };
    same && (*kind == differs || *kind == Differs::AnyWay)
}

/// The exceptions that applied in a test.
#[derive(Default)]
struct Judge {
    used: Vec<&'static str>,
}

impl Judge {
    /// The differences that no exception covers.
    fn unexplained(&mut self, here: &Value, there: &Value, exceptions: &[&[Exception]]) -> Vec<String> {
        let mut found = Vec::new();
        differences("", Some(here), Some(there), &mut found);
        let mut left = Vec::new();
        for (place, differs) in found {
            let mut all = exceptions.iter().copied().flatten();
            match all.find(|exception| fits(exception, &place, differs)) {
                Some((pattern, ..)) => self.used.push(pattern),
                None => {
                    let (one, other) = (here.pointer(&place), there.pointer(&place));
                    let text = |value: Option<&Value>| value.map_or_else(|| "nothing".to_owned(), Value::to_string);
                    left.push(format!("{place}: here {}, recorded {}", text(one), text(other)));
                }
            }
        }
        left
    }

    /// Asserts that every exception applied.
    #[track_caller]
    fn assert_that_all_were_needed(&self, exceptions: &[&[Exception]]) {
        let all = exceptions.iter().copied().flatten().filter(|(_, kind, _)| *kind != Differs::AnyWay);
        let idle: Vec<&str> = all.map(|(pattern, ..)| *pattern).filter(|one| !self.used.contains(one)).collect();
        assert!(idle.is_empty(), "no exceptions: {idle:?}");
    }
}

/// The object as its author created it, without the fields that the API server or a kubelet adds.
fn as_created(recorded: &Value) -> Value {
    let metadata = &recorded["metadata"];
    let mut spec = recorded["spec"].clone();
    spec["nodeName"] = json!("node-a");
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "labels": metadata["labels"],
            "annotations": metadata["annotations"],
        },
        "spec": spec,
    })
}

/// The recorded runtime's error for the image it could not pull.
fn pull_failure() -> String {
    let pod = recorded("upstream-1.36/pods/image-missing.json");
    let message = pod["status"]["containerStatuses"][0]["state"]["waiting"]["message"].as_str().unwrap();
    message.split_once("ErrImagePull: ").unwrap().1.to_owned()
}

/// The objects that the recorded pods refer to.
fn objects() -> [Value; 3] {
    let object = |kind: &str, name: &str, data: Value| {
        let metadata = json!({"name": name, "namespace": "golden"});
        json!({"apiVersion": "v1", "kind": kind, "metadata": metadata, "data": data})
    };
    let mut map = object("ConfigMap", "cm", json!({"k1": "v1", "k2": "v2"}));
    map["binaryData"] = json!({"bin": "AAEC"});
    let secret = object("Secret", "sec", json!({"s1": "aHVzaA==", "s2": "aHVzaDI="}));
    [map, secret, object("ConfigMap", "openshift-service-ca.crt", json!({"service-ca.crt": "x"}))]
}

#[test]
fn node_lease_pods_and_mirror_match_upstream_recordings() {
    let mut joined = Joined::beside(Options { furnished: true, ..Options::default() });
    joined.node.fake.add_image(IMAGE);
    joined.node.fake.on("PullImage").about(MISSING).fail(Code::Unknown, &pull_failure());
    for object in objects() {
        joined.api.create(&object);
    }
    joined.start("clusterDNS: [10.96.0.10]\nclusterDomain: cluster.local\n", &[]);
    let node = joined.wait_until_ready();
    let address = node["status"]["addresses"][0]["address"].as_str().unwrap().to_owned();
    let recordings = PODS.map(|name| (name, recorded(&format!("upstream-1.36/pods/{name}.json"))));
    for (_, pod) in &recordings {
        joined.api.create(&as_created(pod));
    }
    let manifest = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/manifests/static-one.yaml"));
    joined.node.write_manifest("static-one", &manifest.unwrap());
    for container in ["completed/main", "init-sidecar/first", "init-sidecar/last"] {
        joined.node.fake.wait_for("what ends to begin", |world| world.running(container).is_some());
        joined.node.fake.exit(container, 0);
    }

    let mut judge = Judge::default();
    let pod_exceptions = [OF_SERVER, OF_POD];
    let mirror = ("static-one-node1", recorded("upstream-1.36/pods/static-one-node1.json"));
    for (name, recorded) in recordings.iter().chain([&mirror]) {
        let is_mirror = *name == mirror.0;
        let path = format!("/api/v1/namespaces/golden/pods/{}", name.replace("node1", "node-a"));
        let until = Instant::now() + GOLDEN_TIMEOUT;
        loop {
            let here = joined.api.get(&path).unwrap_or_default();
            let uid = |object: &Value| object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
            let there = comparable(recorded, "", "");
            let (mut here, mut there) =
                (comparable(&here, &address, &uid(&here)), comparable(&there, "", &uid(&there)));
            for object in [&mut here, &mut there] {
                object["metadata"]["uid"] = json!("");
            }
            let exceptions: &[&[Exception]] = if is_mirror { &[OF_SERVER, OF_POD, OF_MIRROR] } else { &pod_exceptions };
            let left = judge.unexplained(&here, &there, exceptions);
            if left.is_empty() {
                break;
            }
            assert!(Instant::now() < until, "{name} is not as recorded:\n  {}", left.join("\n  "));
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    let node = comparable(&joined.wait_until_ready(), &address, "");
    let left = judge.unexplained(&node, &recorded("upstream-1.36/node.json"), &[OF_SERVER, OF_NODE]);
    assert!(left.is_empty(), "the node is not as recorded:\n  {}", left.join("\n  "));
    let lease = comparable(&joined.api.get(LEASE).unwrap(), &address, "");
    let left = judge.unexplained(&lease, &recorded("upstream-1.36/lease.json"), &[OF_SERVER, OF_LEASE]);
    assert!(left.is_empty(), "the lease is not as recorded:\n  {}", left.join("\n  "));
    judge.assert_that_all_were_needed(&[OF_SERVER, OF_NODE, OF_LEASE, OF_POD, OF_MIRROR]);
    assert!(joined.api.get(NODE).is_some());
}
