//! Authentication: certificates, tokens, and how a node obtains its certificate.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::{SignedDuration, Timestamp};
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::{Value, json};

use super::client::Client;
use super::{FakeApi, Options, PODS, pod, start};
use crate::fake_api::certificates::Validity;
use crate::fake_api::identity::Identity;
use crate::fake_api::kubeconfig::Credentials;
use crate::fake_api::network::ServerCertificate;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

#[test]
fn anonymous_client_may_do_nothing() {
    let api = start();
    let mut client = Client::anonymous(&api);
    let answer = client.get("/api/v1/nodes");
    assert_eq!(
        answer.message(),
        "nodes is forbidden: User \"system:anonymous\" cannot list resource \"nodes\" in API group \"\" at the cluster scope"
    );
    assert_eq!(client.get("/version").json()["gitVersion"], "v1.36.2");
    assert_eq!(client.get("/healthz").body, b"ok");
    assert_eq!(client.get("/metrics").message(), "forbidden: User \"system:anonymous\" cannot get path \"/metrics\"");
}

#[test]
fn expired_and_foreign_certificates_do_not_authenticate() {
    let api = start();
    let now = Timestamp::now();
    let identity = Identity::node("n1");
    let mut client = Client::connect(&api, Some((&identity, Validity::expired(now)))).unwrap();
    let answer = client.get("/api/v1/nodes/n1");
    assert_eq!((answer.status, answer.message().as_str()), (401, "Unauthorized"));
    // The server's own clock decides.
    api.set_clock_ahead(SignedDuration::from_hours(-2));
    assert_eq!(client.get("/api/v1/nodes/n1").status, 404);
}

#[test]
fn tokens_authenticate_until_removed() {
    let api = start();
    api.add_token("abcdef.0123456789abcdef", &Identity::bootstrap("abcdef"));
    let mut client = Client::anonymous(&api).with("Authorization", "Bearer abcdef.0123456789abcdef");
    assert_eq!(client.get(REQUESTS).status, 200);
    assert_eq!(client.get("/api/v1/nodes").status, 403);
    let user = api.requests()[0].identity.clone();
    assert_eq!(user.user, "system:bootstrap:abcdef");
    api.remove_token("abcdef.0123456789abcdef");
    assert_eq!(client.get(REQUESTS).status, 401);
}

/// A CSR with this subject, and its key.
fn request(name: &str, group: &str, names: Vec<String>) -> (Value, KeyPair) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, group);
    params.distinguished_name.push(DnType::CommonName, name);
    let der = params.serialize_request(&key).unwrap();
    let text = STANDARD.encode(der.der());
    let pem = format!("-----BEGIN CERTIFICATE REQUEST-----\n{text}\n-----END CERTIFICATE REQUEST-----\n");
    let object = json!({
        "metadata": { "generateName": "csr-" },
        "spec": {
            "request": STANDARD.encode(pem),
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "expirationSeconds": 3600,
            "usages": ["digital signature", "client auth"],
        },
    });
    (object, key)
}

#[test]
fn node_requests_a_certificate_and_authenticates_with_it() {
    let api = start();
    api.add_token("abcdef.0123456789abcdef", &Identity::bootstrap("abcdef"));
    let mut client = Client::anonymous(&api).with("Authorization", "Bearer abcdef.0123456789abcdef");
    let (object, _key) = request("system:node:n1", "system:nodes", Vec::new());
    let created = client.post(REQUESTS, &object).json();
    assert_eq!(created["spec"]["username"], "system:bootstrap:abcdef");
    assert_eq!(created["status"], json!({}));
    let name = created["metadata"]["name"].as_str().unwrap();
    api.approve(name);
    let path = format!("{REQUESTS}/{name}");
    let signed = api.wait(&path, "a certificate", |request| request["status"]["certificate"].is_string());
    let pem = STANDARD.decode(signed["status"]["certificate"].as_str().unwrap()).unwrap();
    assert!(pem.starts_with(b"-----BEGIN CERTIFICATE-----\n"));
    assert_eq!(client.get(&path).json()["status"]["conditions"][0]["type"], "Approved");
    let der = api.look(|_| {
        STANDARD
            .decode(String::from_utf8(pem).unwrap().lines().filter(|line| !line.starts_with('-')).collect::<String>())
            .unwrap()
    });
    let identity = Identity::of_certificate(&der.into()).unwrap();
    assert_eq!(identity, Identity::node("n1"));
}

#[test]
fn requests_can_be_denied_and_requests_for_others_are_refused() {
    let api = start();
    let mut client = Client::node(&api, "n1");
    let (object, _) = request("system:node:n1", "system:nodes", Vec::new());
    let created = client.post(REQUESTS, &object).json();
    let name = created["metadata"]["name"].as_str().unwrap();
    api.deny(name);
    let denied = client.get(&format!("{REQUESTS}/{name}")).json();
    assert_eq!(
        (&denied["status"]["conditions"][0]["type"], &denied["status"]["certificate"]),
        (&json!("Denied"), &json!(null))
    );

    let (object, _) = request("system:node:n2", "system:nodes", Vec::new());
    let answer = client.post(REQUESTS, &object);
    assert!(answer.message().ends_with("can only create a node CSR with CN=system:node:n1"), "{}", answer.message());

    // A client certificate with DNS names is approved by hand, and not signed.
    let (object, _) = request("system:node:n1", "system:nodes", vec!["n1".to_owned()]);
    let created = client.post(REQUESTS, &object).json();
    let name = created["metadata"]["name"].as_str().unwrap();
    api.approve(name);
    assert_eq!(api.get(&format!("{REQUESTS}/{name}")).unwrap()["status"]["conditions"][1]["type"], "Failed");

    let mut short = object.clone();
    short["spec"]["expirationSeconds"] = json!(60);
    assert_eq!(client.post(REQUESTS, &short).status, 422);
    let own = json!({ "status": { "conditions": [{ "type": "Approved", "status": "True" }] } });
    let (fresh, _) = request("system:node:n1", "system:nodes", Vec::new());
    let created = client.post(REQUESTS, &fresh).json();
    let path = format!("{REQUESTS}/{}/status", created["metadata"]["name"].as_str().unwrap());
    assert!(
        Client::admin(&api).patch("merge", &path, &own).message().ends_with(
            "is invalid: status.conditions: Forbidden: updates may not add a condition of type \"Approved\""
        )
    );

    let mut broken = object;
    broken["spec"]["request"] = json!(STANDARD.encode("nothing"));
    assert_eq!(client.post(REQUESTS, &broken).status, 403);
    assert_eq!(Client::admin(&api).post(REQUESTS, &broken).status, 422);
}

#[test]
fn automatic_approval_covers_client_certificates_only() {
    let api = FakeApi::start(Options { approve: true, ..Options::default() });
    let mut client = Client::node(&api, "n1");
    let (object, _) = request("system:node:n1", "system:nodes", Vec::new());
    let name = client.post(REQUESTS, &object).json()["metadata"]["name"].as_str().unwrap().to_owned();
    assert!(api.get(&format!("{REQUESTS}/{name}")).unwrap()["status"]["certificate"].is_string());

    let (mut object, _) = request("system:node:n1", "system:nodes", vec!["n1".to_owned(), "10.0.0.1".to_owned()]);
    object["spec"]["signerName"] = json!("kubernetes.io/kubelet-serving");
    object["spec"]["usages"] = json!(["digital signature", "server auth"]);
    let name = client.post(REQUESTS, &object).json()["metadata"]["name"].as_str().unwrap().to_owned();
    assert_eq!(api.get(&format!("{REQUESTS}/{name}")).unwrap()["status"], json!({}));
    api.approve(&name);
    assert!(api.get(&format!("{REQUESTS}/{name}")).unwrap()["status"]["certificate"].is_string());
}

#[test]
fn service_account_tokens_are_bound_and_expire() {
    let api = start();
    let mut object = pod("web", Some("n1"));
    object["spec"]["serviceAccountName"] = json!("robot");
    let source = json!({ "serviceAccountToken": { "path": "token" } });
    object["spec"]["volumes"] = json!([{ "name": "t", "projected": { "sources": [source] } }]);
    let object = api.create(&object);
    api.create(&json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "robot" } }));
    let bound = json!({ "apiVersion": "v1", "kind": "Pod", "name": "web", "uid": object["metadata"]["uid"] });
    let wanted = json!({ "spec": { "expirationSeconds": 3607, "boundObjectRef": bound } });
    let path = "/api/v1/namespaces/default/serviceaccounts/robot/token";
    let mut client = Client::node(&api, "n1");
    let answer = client.post(path, &wanted);
    assert_eq!(answer.status, 201, "{}", answer.message());
    let status = answer.json()["status"].clone();
    let token = status["token"].as_str().unwrap();
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    assert_eq!(claims["sub"], "system:serviceaccount:default:robot");
    assert_eq!(claims["kubernetes.io"]["pod"]["name"], "web");
    assert_eq!(claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(), 3607);
    let expires: Timestamp = status["expirationTimestamp"].as_str().unwrap().parse().unwrap();
    assert_eq!(expires.as_second(), claims["exp"].as_i64().unwrap());

    api.set_token_lifetime(Some(Duration::from_secs(30)));
    assert_eq!(client.post(path, &wanted).json()["spec"]["expirationSeconds"], 30);
    let unbound = client.post(path, &json!({ "spec": {} }));
    assert!(unbound.message().ends_with("is forbidden: node requested token not bound to a pod"));
    let mut other = wanted;
    other["spec"]["audiences"] = json!(["vault"]);
    assert_eq!(client.post(path, &other).status, 403);
    assert_eq!(Client::node(&api, "n2").post(path, &other).status, 403);
}

#[test]
fn kubeconfig_suffices_for_a_client() {
    let api = start();
    let dir = std::env::temp_dir().join(format!("fake-api-kubeconfig-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let text = |credentials: &Credentials| std::fs::read_to_string(api.kubeconfig(&dir, credentials)).unwrap();
    let config = text(&Credentials::of_node("n1"));
    assert!(config.contains(&format!("server: {}\n", api.url())) && config.contains("client-key-data: "));
    assert!(config.contains(&format!("certificate-authority-data: {}\n", STANDARD.encode(api.authority_pem()))));
    assert!(text(&Credentials::Token("a.b".to_owned())).contains("\n    token: a.b\n"));
    assert!(text(&Credentials::Nothing).contains("\n  user: {}\n"));
    assert!(text(&Credentials::CertificateInFile(Identity::node("n1"))).contains("client.pem\n"));
    assert_ne!(text(&Credentials::ExpiredCertificate(Identity::node("n1"))), config);
    let pem = std::fs::read_to_string(dir.join("client.pem")).unwrap();
    assert!(pem.contains("BEGIN CERTIFICATE") && pem.contains("BEGIN PRIVATE KEY"));
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn server_presents_the_chosen_certificate() {
    let api = start();
    use ServerCertificate::{Expired, OfOtherAuthority, OfOtherName, Renewed, Right};
    for (which, error) in [
        (Right, None),
        (Expired, Some("certificate expired")),
        (OfOtherAuthority, Some("BadSignature")),
        (OfOtherName, Some("not valid for name")),
        (Renewed, None),
    ] {
        api.show_certificate(which);
        match (Client::admin(&api).ask("GET", PODS, &[], b""), error) {
            (Ok(answer), None) => assert_eq!(answer.status, 200, "{which:?}"),
            (Err(error), Some(expected)) => assert!(error.to_string().contains(expected), "{which:?}: {error}"),
            (answer, _) => panic!("{which:?}: {:?}", answer.map(|answer| answer.status)),
        }
    }
}
