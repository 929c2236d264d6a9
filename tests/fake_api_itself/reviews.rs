//! TokenReviews, SubjectAccessReviews and the approval of serving certificates.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::{Value, json};

use super::client::Client;
use super::{FakeApi, Options, start};
use crate::fake_api::identity::Identity;

const TOKENS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCESSES: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

fn token_review(token: &str) -> Value {
    json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "metadata": {}, "spec": { "token": token } })
}

#[test]
fn node_may_create_token_reviews() {
    let api = start();
    api.add_token("known", &Identity::new("a", &["g"]));
    let mut node = Client::node(&api, "n1");
    let answer = node.post(TOKENS, &token_review("known"));
    assert_eq!(answer.status, 201);
    let status = &answer.json()["status"];
    let user = json!({ "username": "a", "groups": ["g", "system:authenticated"] });
    assert_eq!((&status["authenticated"], &status["user"]), (&json!(true), &user));
    let unknown = node.post(TOKENS, &token_review("unknown")).json();
    assert!(unknown["status"]["authenticated"].is_null() && unknown["status"]["error"].is_string());
    // Reviews are not stored, and other users may not create them.
    assert!(api.list(TOKENS).is_empty());
    let mut other = Client::of(&api, &Identity::new("b", &[]));
    assert_eq!(other.post(TOKENS, &token_review("known")).status, 403);
}

#[test]
fn node_may_create_access_reviews_about_itself() {
    let api = start();
    api.allow("readers", "get", "pods");
    let mut node = Client::node(&api, "n1");
    let mut allowed = |group: &str, verb: &str, part: &str| {
        let about = json!({ "verb": verb, "resource": "nodes", "name": "n1", "subresource": part });
        let spec = json!({ "user": "a", "groups": [group], "resourceAttributes": about });
        let kind = "SubjectAccessReview";
        let review = json!({ "apiVersion": "authorization.k8s.io/v1", "kind": kind, "metadata": {}, "spec": spec });
        node.post(ACCESSES, &review).json()["status"]["allowed"].clone()
    };
    assert_eq!(allowed("readers", "get", "pods"), true);
    assert_eq!(allowed("readers", "create", "pods"), false);
    assert_eq!(allowed("readers", "get", "proxy"), false);
    assert_eq!(allowed("others", "get", "pods"), false);
    assert_eq!(allowed("system:masters", "create", "proxy"), true);
}

#[test]
fn serving_certificate_is_approved_only_with_the_option() {
    for approve_serving in [false, true] {
        let api = FakeApi::start(Options { approve: true, approve_serving, ..Options::default() });
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["n1".to_owned(), "192.0.2.1".to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        params.distinguished_name.push(DnType::CommonName, "system:node:n1");
        let text = STANDARD.encode(params.serialize_request(&key).unwrap().der());
        let pem = format!("-----BEGIN CERTIFICATE REQUEST-----\n{text}\n-----END CERTIFICATE REQUEST-----\n");
        let object = json!({
            "metadata": { "name": "serving" },
            "spec": {
                "request": STANDARD.encode(pem),
                "signerName": "kubernetes.io/kubelet-serving",
                "usages": ["digital signature", "server auth"],
            },
        });
        assert_eq!(Client::node(&api, "n1").post(REQUESTS, &object).status, 201);
        let request = api.get(&format!("{REQUESTS}/serving")).unwrap();
        assert_eq!(request["status"]["certificate"].is_string(), approve_serving, "{request:#}");
    }
}
