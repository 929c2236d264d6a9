//! Pod certificates: requested from a signer, mounted, refreshed and refused.

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::joined::{Joined, condition, wait_for_event};
use crate::fake_api::certificates::from_pem;
use crate::fake_api::pod_certificates::{issued, refused};

const WEB: &str = "/api/v1/namespaces/default/pods/web";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/namespaces/default/podcertificaterequests";

/// A pod with these projections.
fn web(projections: &[Value]) -> Value {
    let sources: Vec<Value> = projections.iter().map(|one| json!({"podCertificate": one})).collect();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "nodeName": "node-a",
            "serviceAccountName": "default",
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

fn projection(key_type: &str, file: &str) -> Value {
    json!({"signerName": "example.com/s", "keyType": key_type, "credentialBundlePath": file})
}

fn started(configuration: &str) -> Joined {
    let mut joined = Joined::new();
    joined.api.create(&json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "default"},
    }));
    joined.start(configuration, &[]);
    joined
}

/// The requests that no signer has decided.
fn undecided(joined: &Joined) -> Vec<Value> {
    let mut all = joined.api.list(REQUESTS);
    all.retain(|request| request["status"]["conditions"].is_null());
    all
}

#[track_caller]
fn wait_for_requests(joined: &Joined, count: usize) -> Vec<Value> {
    joined.api.wait_for(&format!("{count} undecided requests"), |world| {
        world.list(REQUESTS).iter().filter(|request| request["status"]["conditions"].is_null()).count() == count
    });
    undecided(joined)
}

fn decide(joined: &Joined, request: &Value, status: &Value) {
    let name = request["metadata"]["name"].as_str().unwrap();
    joined.api.patch(&format!("{REQUESTS}/{name}/status"), &json!({"status": status}));
}

fn sign(joined: &Joined, request: &Value, refresh: SignedDuration) {
    let status = joined.api.look(|world| issued(world, request, refresh));
    decide(joined, request, &status);
}

fn file(joined: &Joined, name: &str) -> Option<String> {
    let uid = joined.api.get(WEB)?["metadata"]["uid"].as_str()?.to_owned();
    let path = joined.node.folder().join(format!("pods/pods/{uid}/volumes/kubernetes.io~projected/v/{name}"));
    std::fs::read_to_string(path).ok()
}

#[track_caller]
fn wait_until_ready(joined: &Joined) {
    joined.api.wait(WEB, "the pod to be ready", |pod| condition(pod, "Ready")["status"] == "True");
}

/// Whether the bundle's key made the proof of the request: the certificate is for that key.
#[track_caller]
fn check_bundle(bundle: &str) {
    let (key, chain) = bundle.split_once("-----END PRIVATE KEY-----\n").unwrap();
    assert!(key.starts_with("-----BEGIN PRIVATE KEY-----\n"), "{bundle}");
    assert_eq!(chain.matches("-----BEGIN CERTIFICATE-----").count(), 2, "leaf and issuer, without other text");
    assert!(!chain.contains("leaf") && !chain.contains("issuer"), "{chain}");
    let key = rustls::pki_types::PrivateKeyDer::try_from(from_pem(bundle).unwrap()).unwrap();
    let leaf = rustls::pki_types::CertificateDer::from(from_pem(chain).unwrap());
    let signing = rustls::crypto::ring::sign::any_supported_type(&key).unwrap();
    rustls::sign::CertifiedKey::new(vec![leaf], signing).keys_match().unwrap();
}

#[test]
fn certificates_are_requested_and_mounted_with_their_keys() {
    let joined = started("");
    let mut split = projection("ECDSAP384", "");
    split["keyPath"] = json!("own.key");
    split["certificateChainPath"] = json!("own.crt");
    split["userAnnotations"] = json!({"example.com/team": "a"});
    split["maxExpirationSeconds"] = json!(7200);
    joined.api.create(&web(&[projection("ED25519", "one.pem"), split]));
    let requests = wait_for_requests(&joined, 2);
    wait_for_event(&joined, "FailedMount", "credential bundle is not issued yet");
    let pod = joined.api.get(WEB).unwrap();
    for request in &requests {
        let owner = &request["metadata"]["ownerReferences"][0];
        assert_eq!((&owner["kind"], &owner["uid"]), (&json!("Pod"), &pod["metadata"]["uid"]));
        assert!(request["metadata"]["name"].as_str().unwrap().starts_with("req-"));
        assert_eq!(request["spec"]["signerName"], "example.com/s");
    }
    let mut spans: Vec<i64> =
        requests.iter().map(|request| request["spec"]["maxExpirationSeconds"].as_i64().unwrap()).collect();
    spans.sort_unstable();
    assert_eq!(spans, [7200, 86_400]);
    let annotated = requests.iter().find(|request| request["spec"]["maxExpirationSeconds"] == 7200).unwrap();
    assert_eq!(annotated["spec"]["unverifiedUserAnnotations"], json!({"example.com/team": "a"}));
    requests.iter().for_each(|request| sign(&joined, request, SignedDuration::from_hours(16)));
    wait_until_ready(&joined);
    check_bundle(&file(&joined, "one.pem").unwrap());
    check_bundle(&[file(&joined, "own.key").unwrap(), file(&joined, "own.crt").unwrap()].concat());
}

#[test]
fn older_server_is_asked_in_its_version() {
    let joined = started("");
    let not_found = "/apis/certificates.k8s.io/v1/namespaces/default/podcertificaterequests";
    joined.api.on("POST", not_found).answer(404);
    joined.api.create(&web(&[projection("ECDSAP256", "one.pem")]));
    let requests = wait_for_requests(&joined, 1);
    let posts = "/apis/certificates.k8s.io/v1beta1/namespaces/default/podcertificaterequests";
    assert_eq!(joined.api.count("POST", posts), 1);
    sign(&joined, &requests[0], SignedDuration::from_hours(16));
    wait_until_ready(&joined);
    check_bundle(&file(&joined, "one.pem").unwrap());
}

#[test]
fn denied_request_and_unsupported_key_are_reported() {
    let joined = started("");
    joined.api.create(&web(&[projection("ED25519", "one.pem"), projection("RSA3072", "two.pem")]));
    let requests = wait_for_requests(&joined, 1);
    wait_for_event(&joined, "FailedMount", "Coracle makes no keys of the type \"RSA3072\"");
    let status = joined.api.look(|world| refused(world, "Denied", "UnsupportedKeyType", "use ECDSAP256"));
    decide(&joined, &requests[0], &status);
    wait_for_event(&joined, "Denied", "was denied, reason=\"UnsupportedKeyType\", message=\"use ECDSAP256\"");
    wait_for_event(&joined, "FailedMount", "PodCertificateRequest was permanently denied");
}

#[test]
fn restarted_agent_keeps_the_files_and_requests_again() {
    let mut joined = started("");
    joined.api.create(&web(&[projection("ECDSAP256", "one.pem")]));
    sign(&joined, &wait_for_requests(&joined, 1)[0], SignedDuration::from_hours(16));
    wait_until_ready(&joined);
    let before = file(&joined, "one.pem").unwrap();
    joined.node.kill_agent();
    joined.start("", &[]);
    let again = wait_for_requests(&joined, 1);
    assert_eq!(file(&joined, "one.pem").as_ref(), Some(&before));
    sign(&joined, &again[0], SignedDuration::from_hours(16));
    let is_new = |found: String| found != before;
    joined.node.wait_until("the new certificate to be mounted", |_| file(&joined, "one.pem").is_some_and(is_new));
    check_bundle(&file(&joined, "one.pem").unwrap());
}

#[test]
fn without_the_gate_nothing_is_requested() {
    let joined = started("featureGates: {PodCertificateRequest: false}\n");
    joined.api.create(&web(&[projection("ECDSAP256", "one.pem")]));
    wait_for_event(&joined, "FailedMount", "the feature gate PodCertificateRequest is off");
    assert_eq!(joined.api.list(REQUESTS).len(), 0);
}
