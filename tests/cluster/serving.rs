//! The node's own server: its serving certificate, authentication and authorization.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::door::{Door, Place};
use super::joined::{Joined, STATUS};
use super::node::{Manifest, NODE_NAME};
use crate::fake_api::certificates::{Certified, Validity};
use crate::fake_api::identity::Identity;
use crate::fake_api::{FakeApi, Options};
use crate::wait::wait;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
pub(crate) const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
pub(crate) const ALLOWS_ALL: &str = "authorization: {mode: AlwaysAllow}\n";
const BY_CLUSTER: &str = "serverTLSBootstrap: true\n";

/// A node of a cluster and its server's address.
pub(crate) struct Served {
    pub(crate) joined: Joined,
    pub(crate) place: Place,
}

impl Served {
    pub(crate) fn new(options: Options) -> Self {
        let mut joined = Joined::new();
        joined.api = FakeApi::start(options);
        Self { joined, place: Place::new() }
    }

    /// Starts the agent. Clients authenticate with certificates signed by the cluster's CA.
    pub(crate) fn start(&mut self, configuration: &str, arguments: &[&str]) {
        let authority = self.path("clients.crt");
        if !authority.exists() {
            fs::write(&authority, self.joined.api.authority_pem()).unwrap();
        }
        let believed = format!("authentication: {{x509: {{clientCAFile: {}}}}}\n", authority.display());
        let configuration = [&self.place.configuration(), &believed, configuration].concat();
        self.joined.start(&configuration, arguments);
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.joined.node.folder().join(name)
    }

    pub(crate) fn client(&self, user: &str, groups: &[&str]) -> Certified {
        self.joined.api.client_certificate(&Identity::new(user, groups), Validity::a_day(Timestamp::now()))
    }

    pub(crate) fn admin(&self) -> Certified {
        self.client("kube-apiserver-kubelet-client", &["system:masters"])
    }

    fn requests(&self) -> Vec<Value> {
        let all = self.joined.api.list(REQUESTS);
        all.into_iter().filter(|request| request["spec"]["signerName"] == "kubernetes.io/kubelet-serving").collect()
    }

    fn shown(&self) -> Value {
        let status = self.joined.node.status();
        let all = status["certificates"].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|one| one["name"] == "serving").unwrap_or_default()
    }
}

fn approving() -> Options {
    Options { approve_serving: true, ..Options::default() }
}

const fn hours(hours: i64) -> SignedDuration {
    SignedDuration::from_hours(hours)
}

#[test]
fn serving_certificate_is_requested_for_the_node_addresses_and_served() {
    let mut served = Served::new(Options::default());
    served.start(&[ALLOWS_ALL, BY_CLUSTER].concat(), &["--node-ip=192.0.2.10"]);
    served.joined.api.wait_for("a request for a serving certificate", |world| !world.list(REQUESTS).is_empty());
    let request = &served.requests()[0];
    assert_eq!(request["spec"]["usages"], json!(["digital signature", "server auth"]));
    assert_eq!(request["spec"]["username"], "system:node:node-a");
    // Until the certificate is signed, connections fail and the agent logs it.
    wait(|| match served.place.connect(None) {
        Err(error) if error.contains("alert") => Ok(()),
        other => Err(format!("{:?}", other.map(|door| door.certificate))),
    });
    let said = || served.joined.node.log().contains("no serving certificate available for the node");
    wait(|| if said() { Ok(()) } else { Err("nothing is said".to_owned()) });
    served.joined.api.approve(request["metadata"]["name"].as_str().unwrap());
    let shown = served.place.shows(|_| true);
    assert_eq!(
        (&*shown.common_name, &shown.organizations[..]),
        ("system:node:node-a", &["system:nodes".to_owned()][..])
    );
    assert_eq!(
        (&shown.dns_names[..], &shown.ip_addresses[..]),
        (&["node-a".to_owned()][..], &["192.0.2.10".parse().unwrap()][..])
    );
    let link = fs::read_link(served.path("pods/pki/kubelet-server-current.pem")).unwrap();
    assert!(link.file_name().unwrap().to_str().unwrap().starts_with("kubelet-server-20"), "{link:?}");
    assert_eq!(served.place.get("/healthz", Some(&served.admin())), (200, "ok".to_owned()));
    assert_eq!(served.shown()["state"], "Good");
    // After a restart the certificate is served at once, without a new request.
    served.joined.node.kill_agent();
    served.start(&[ALLOWS_ALL, BY_CLUSTER].concat(), &["--node-ip=192.0.2.10"]);
    assert_eq!(served.place.shows(|_| true), shown);
    assert_eq!(served.requests().len(), 1);
    let log = served.joined.node.log();
    assert!(!log.contains("PRIVATE KEY"), "{log}");
}

#[test]
fn rotating_the_serving_certificate_keeps_open_connections() {
    let mut served = Served::new(Options::default());
    let now = Timestamp::now();
    let old = Validity { not_before: now - hours(95), not_after: now + hours(5) };
    let old = served.joined.api.client_certificate(&Identity::node(NODE_NAME), old);
    let file = served.path("pods/pki/kubelet-server-2026-01-02-03-04-05.pem");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, old.certificate_pem() + &old.key_pem()).unwrap();
    symlink(&file, served.path("pods/pki/kubelet-server-current.pem")).unwrap();
    served.start(&[ALLOWS_ALL, BY_CLUSTER].concat(), &["--node-ip=192.0.2.10"]);
    let mut door = served.place.reach(Some(&served.admin()));
    assert_eq!(door.get("/healthz/ping", "").0, 200);
    served.joined.api.wait_for("a request for a serving certificate", |world| !world.list(REQUESTS).is_empty());
    assert_eq!(served.shown()["state"], "Due");
    served.joined.api.approve(served.requests()[0]["metadata"]["name"].as_str().unwrap());
    let new = served.place.shows(|certificate| certificate.public_key != door.certificate.public_key);
    assert!(new.not_after > door.certificate.not_after);
    assert_eq!(door.get("/healthz/ping", ""), (200, "ok".to_owned()));
    assert_ne!(fs::read_link(served.path("pods/pki/kubelet-server-current.pem")).unwrap(), file);
    wait(|| match served.shown() {
        shown if shown["state"] == "Good" => Ok(()),
        shown => Err(shown.to_string()),
    });
    let metrics = served.joined.metrics();
    let count = "kubelet_certificate_manager_server_rotation_seconds_count 1";
    assert!(metrics.lines().any(|line| line == count), "{metrics}");
}

#[test]
fn changed_node_address_requests_another_certificate() {
    let mut served = Served::new(approving());
    let provided = |ip: &str| json!({ "status": { "addresses": [{ "type": "InternalIP", "address": ip }] } });
    served.start(&[ALLOWS_ALL, BY_CLUSTER].concat(), &["--cloud-provider=external"]);
    served.joined.api.wait("/api/v1/nodes/node-a", "the node", |_| true);
    assert!(served.requests().is_empty());
    served.joined.api.patch(STATUS, &provided("192.0.2.20"));
    served.place.shows(|shown| shown.ip_addresses == ["192.0.2.20".parse::<std::net::IpAddr>().unwrap()]);
    served.joined.api.patch(STATUS, &provided("192.0.2.21"));
    served.place.shows(|shown| shown.ip_addresses == ["192.0.2.21".parse::<std::net::IpAddr>().unwrap()]);
    assert_eq!(served.requests().len(), 2);
}

#[test]
fn certificate_for_names_alone_is_requested_behind_its_gate() {
    for gate in [false, true] {
        let mut served = Served::new(approving());
        let gates = format!("featureGates: {{AllowDNSOnlyNodeCSR: {gate}}}\n");
        served.start(&[ALLOWS_ALL, BY_CLUSTER, &gates].concat(), &["--cloud-provider=external"]);
        served.joined.api.wait("/api/v1/nodes/node-a", "the node", |_| true);
        let provide = |kind: &str, address: &str| {
            let addresses = json!([{ "type": kind, "address": address }]);
            served.joined.api.patch(STATUS, &json!({ "status": { "addresses": addresses } }));
        };
        provide("InternalDNS", "board.example");
        if gate {
            served.place.shows(|shown| shown.dns_names == ["board.example"] && shown.ip_addresses.is_empty());
        } else {
            served.joined.node.wait_until_at_rest();
        }
        provide("InternalIP", "192.0.2.20");
        served.place.shows(|shown| shown.ip_addresses == ["192.0.2.20".parse::<std::net::IpAddr>().unwrap()]);
        // The node's name may have been the first of several.
        assert_eq!(served.requests().len() > 1, gate);
    }
}

#[test]
fn denied_serving_certificate_is_logged_and_harmless() {
    let mut served = Served::new(Options::default());
    served.joined.node.apply(&Manifest::new("own").container("main", "sleep 100000"));
    served.start(&[ALLOWS_ALL, BY_CLUSTER].concat(), &["--node-ip=192.0.2.10"]);
    served.joined.api.wait_for("a request for a serving certificate", |world| !world.list(REQUESTS).is_empty());
    served.joined.api.deny(served.requests()[0]["metadata"]["name"].as_str().unwrap());
    wait(|| match served.shown() {
        shown if shown["message"].as_str().is_some_and(|text| text.contains("is denied")) => Ok(()),
        shown => Err(shown.to_string()),
    });
    served.joined.node.wait_until_ready("own");
    served.joined.wait_until_ready();
}

#[test]
fn without_server_tls_bootstrap_the_node_signs_its_own_certificate_once() {
    let mut served = Served::new(Options::default());
    served.start(ALLOWS_ALL, &[]);
    let first = served.place.shows(|_| true);
    assert_eq!(first.dns_names, ["node-a"]);
    let [certificate, key] = ["pods/pki/kubelet.crt", "pods/pki/kubelet.key"].map(|name| served.path(name));
    served.joined.node.kill_agent();
    served.start(ALLOWS_ALL, &[]);
    assert_eq!(served.place.shows(|_| true), first);
    // A corrupt file is replaced, even while it is in use.
    fs::write(&certificate, "nonsense").unwrap();
    let second = served.place.shows(|shown| *shown != first);
    fs::remove_file(&key).unwrap();
    served.place.shows(|shown| ![&first, &second].contains(&shown));
    assert_eq!(served.shown()["state"], "Good");
}

#[test]
fn replaced_certificate_files_apply_to_new_connections() {
    let mut served = Served::new(Options::default());
    let [certificate, key] = ["tls.crt", "tls.key"].map(|name| served.path(name));
    let put = |pair: &Certified| {
        fs::write(&certificate, pair.certificate_pem()).unwrap();
        fs::write(&key, pair.key_pem()).unwrap();
    };
    put(&served.client("first", &[]));
    let files = format!("tlsCertFile: {}\ntlsPrivateKeyFile: {}\n", certificate.display(), key.display());
    served.start(&[ALLOWS_ALL, &files].concat(), &[]);
    served.place.shows(|shown| shown.common_name == "first");
    put(&served.client("second", &[]));
    served.place.shows(|shown| shown.common_name == "second");
    // A mismatched pair is logged and changes nothing.
    fs::write(&key, "nonsense").unwrap();
    wait(|| match served.shown() {
        shown if shown["message"].as_str().is_some_and(|text| text.contains("tls.key")) => Ok(()),
        shown => Err(shown.to_string()),
    });
    assert_eq!(served.place.shows(|_| true).common_name, "second");
    // An expired certificate is still served, and its expiry is logged.
    let now = Timestamp::now();
    put(&served.joined.api.client_certificate(&Identity::new("third", &[]), Validity::expired(now)));
    served.place.shows(|shown| shown.common_name == "third");
    assert_eq!(served.shown()["state"], "Expired");
    assert_eq!(served.place.get("/healthz", Some(&served.admin())).0, 200);
}

#[test]
fn client_without_a_trusted_certificate_is_unauthorized() {
    let mut served = Served::new(Options::default());
    served.start(ALLOWS_ALL, &[]);
    let unauthorized = (401, "Unauthorized".to_owned());
    let admin = Identity::new("admin", &["system:masters"]);
    let other = FakeApi::start(Options::default());
    let now = Timestamp::now();
    let later = Validity { not_before: now + hours(1), not_after: now + hours(2) };
    assert_eq!(served.place.get("/pods", None), unauthorized);
    for wrong in [
        other.client_certificate(&admin, Validity::a_day(now)),
        served.joined.api.client_certificate(&admin, Validity::expired(now)),
        served.joined.api.client_certificate(&admin, later),
        served.joined.api.client_certificate(&Identity::new("", &["system:masters"]), Validity::a_day(now)),
    ] {
        assert_eq!(served.place.get("/pods", Some(&wrong)), unauthorized);
    }
    assert_eq!(served.place.get("/pods", Some(&served.admin())).0, 200);
    // The new CA in the file is trusted from now on and the old one is not, on open connections too.
    let mut door = served.place.reach(Some(&served.admin()));
    assert_eq!(door.get("/healthz", "").0, 200);
    fs::write(served.path("clients.crt"), other.authority_pem()).unwrap();
    let newcomer = other.client_certificate(&admin, Validity::a_day(now));
    wait(|| match served.place.get("/healthz", Some(&newcomer)) {
        (200, _) => Ok(()),
        other => Err(format!("{other:?}")),
    });
    assert_eq!(door.get("/healthz", ""), unauthorized);
}

#[test]
fn health_pods_stats_and_metrics_are_served() {
    let mut served = Served::new(Options::default());
    served.joined.node.apply(&Manifest::new("own").container("main", "sleep 100000"));
    served.start(ALLOWS_ALL, &[]);
    served.joined.node.wait_until_ready("own");
    let mut door = served.place.reach(Some(&served.admin()));
    assert_eq!(door.get("/healthz?verbose", "").1, "[+]ping ok\n[+]log ok\n[+]syncloop ok\nhealthz check passed\n");
    let json = |(status, body): (u16, String)| {
        assert_eq!(status, 200, "{body}");
        serde_json::from_str::<Value>(&body).unwrap()
    };
    let pods = json(door.get("/pods", ""));
    assert_eq!((&pods["kind"], &pods["apiVersion"]), (&json!("PodList"), &json!("v1")));
    let pod = &pods["items"][0];
    assert_eq!((&pod["metadata"]["name"], &pod["status"]["phase"]), (&json!("own-node-a"), &json!("Running")));
    let running = json(door.get("/runningpods/", ""));
    let seen = &running["items"][0];
    assert_eq!(
        seen["metadata"],
        json!({
            "name": "own-node-a", "namespace": "default", "uid": pod["metadata"]["uid"],
        })
    );
    assert_eq!(seen["spec"]["containers"][0]["name"], "main");
    assert_eq!(door.get("/nothing", ""), (404, "404 page not found\n".to_owned()));
    let node = served.joined.wait_until_ready();
    assert_eq!(node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"], 10250);
}

#[test]
fn container_logs_are_served_and_followed_to_their_end() {
    let mut served = Served::new(approving());
    served.start(ALLOWS_ALL, &[]);
    let web = Manifest::new("web").container("main", "sleep 100000");
    served.joined.node.apply(&web);
    served.joined.node.wait_until_ready("web");
    let folder = wait(|| {
        let pods = fs::read_dir(served.path("logs")).unwrap().flatten().map(|pod| pod.path().join("main"));
        { pods }.find(|folder| folder.is_dir()).ok_or_else(|| "no folder for logs".to_owned())
    });
    let log = folder.join("0.log");
    fs::write(&log, "2026-11-22T10:00:00.5Z stdout F one\n2026-11-22T10:00:01.5Z stderr F two\n").unwrap();
    let client = served.admin();
    let path = format!("/containerLogs/default/web-{NODE_NAME}/main");
    let get = |query: &str| served.place.get(&format!("{path}{query}"), Some(&client));
    assert_eq!(get(""), (200, "one\ntwo\n".to_owned()));
    assert_eq!(get("?tailLines=1&timestamps=true"), (200, "2026-11-22T10:00:01.500000000Z two\n".to_owned()));
    assert_eq!(get("?follow=maybe").0, 400);
    assert_eq!(served.place.get("/containerLogs/default/none/main", Some(&client)).0, 404);
    let mut following = served.place.reach(Some(&client));
    assert!(following.begin(format!("GET {path}?follow=true HTTP/1.1\r\nHost: node\r\n\r\n").as_bytes()));
    let begun = following.read_to("two\n");
    assert!(begun.starts_with("HTTP/1.1 200 ") && begun.contains("one\n"), "{begun}");
    let mut more = fs::OpenOptions::new().append(true).open(&log).unwrap();
    writeln!(more, "2026-11-22T10:00:02.5Z stdout F three").unwrap();
    following.read_to("three\n");
    served.joined.node.remove_manifest("web");
    assert_eq!(following.read_to("0\r\n\r\n"), "\r\n0\r\n\r\n", "nothing follows the last line");
    assert_eq!(served.place.get(&path, None).0, 401);
}

#[test]
fn disabled_debugging_handlers_close_logs_and_exec() {
    let mut served = Served::new(Options::default());
    served.joined.node.apply(&Manifest::new("own").container("main", "sleep 100000"));
    served.start(&[ALLOWS_ALL, "enableDebuggingHandlers: false\n"].concat(), &[]);
    served.joined.node.wait_until_ready("own");
    let closed = (405, "Debug endpoints are disabled.\n".to_owned());
    let mut door = served.place.reach(Some(&served.admin()));
    for path in
        ["/containerLogs/default/own-node-a/main", "/exec/default/own-node-a/main?command=id&output=1", "/runningpods/"]
    {
        assert_eq!(door.get(path, ""), closed, "{path}");
    }
    assert_eq!(door.get("/pods", "").0, 200);
    assert_eq!(served.place.get("/runningpods/", None).0, 401);
}

#[test]
fn verbosity_of_the_log_is_set_by_a_put() {
    const MALFORMED: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\n\
                             Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.YQ\r\n";
    let mut served = Served::new(Options::default());
    served.start(ALLOWS_ALL, &[]);
    let mut door = served.place.reach(Some(&served.admin()));
    let put = |text: &str| {
        let length = text.len();
        format!("PUT /debug/flags/v HTTP/1.1\r\nHost: node\r\nContent-Length: {length}\r\n\r\n{text}")
    };
    let lines = || served.joined.node.log().matches("client token malformed").count();
    for verbosity in [0, 4] {
        let set = format!("successfully set klog.logging.verbosity to {verbosity}");
        assert_eq!(door.say(&put(&verbosity.to_string())), Some((200, set)));
        assert_eq!(served.place.reach(None).get("/pods", MALFORMED).0, 401);
    }
    served.joined.node.wait_until("a line of the debug level", |_| lines() > 0);
    assert_eq!(lines(), 1);
    assert_eq!(door.say(&put("high")).map(|(status, _)| status), Some(400));
    assert_eq!(door.get("/debug/flags/v", "").0, 406);
    assert_eq!(served.place.reach(None).say(&put("9")).map(|(status, _)| status), Some(401));
}

#[test]
fn ambiguous_requests_close_the_connection() {
    let mut served = Served::new(Options::default());
    served.start(ALLOWS_ALL, &[]);
    let admin = served.admin();
    for (headers, status) in [
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", 400),
        ("Content-Length: 5\r\nContent-Length: 6\r\n", 400),
        ("Transfer-Encoding: chunked\r\n", 501),
        ("Content-Length: 9999999\r\n", 413),
        ("Host: other\r\n", 400),
    ] {
        let mut door: Door = served.place.reach(Some(&admin));
        let request = format!("POST /healthz HTTP/1.1\r\nHost: node\r\n{headers}\r\n0\r\n\r\n");
        assert_eq!(door.say(&request).map(|(status, _)| status), Some(status), "{headers}");
        assert_eq!(door.say("GET /healthz HTTP/1.1\r\nHost: node\r\n\r\n"), None, "{headers}");
    }
    let long = format!("GET /healthz HTTP/1.1\r\nHost: node\r\nA: {}\r\n\r\n", "x".repeat(20_000));
    assert_eq!(served.place.reach(Some(&admin)).say(&long).map(|(status, _)| status), Some(431));
    // Many silent connections do not block others.
    let silent: Vec<_> = (0..100).map(|_| served.place.connect(None)).collect();
    assert_eq!(served.place.get("/healthz", Some(&admin)).0, 200);
    drop(silent);
}

#[test]
fn token_reviews_and_access_reviews_are_cached() {
    let mut served = Served::new(Options::default());
    served.joined.api.add_token("secret-of-metrics", &Identity::new("metrics-server", &["watchers"]));
    served.joined.api.allow("watchers", "get", "healthz");
    served.start("", &[]);
    let mut door = served.place.reach(None);
    let with = "Authorization: Bearer secret-of-metrics\r\n";
    for _ in 0..3 {
        assert_eq!(door.get("/healthz", with), (200, "ok".to_owned()));
    }
    assert_eq!(served.joined.api.count("create", TOKEN_REVIEWS), 1);
    assert_eq!(served.joined.api.count("create", ACCESS_REVIEWS), 1);
    let asked = served.joined.api.requests_of("create", ACCESS_REVIEWS)[0].json();
    let expected = json!({
        "user": "metrics-server",
        "groups": ["watchers", "system:authenticated"],
        "resourceAttributes": {
            "verb": "get", "version": "v1", "resource": "nodes", "subresource": "healthz", "name": "node-a",
        },
    });
    assert_eq!(asked["spec"], expected);
    let text = "Forbidden (user=metrics-server, verb=get, resource=nodes, subresource(s)=[pods proxy])";
    for _ in 0..2 {
        assert_eq!(door.get("/pods", with), (403, text.to_owned()));
    }
    assert_eq!(served.joined.api.count("create", ACCESS_REVIEWS), 3);
    let unknown = "Authorization: Bearer somebody-elses\r\n";
    for _ in 0..2 {
        assert_eq!(served.place.reach(None).get("/healthz", unknown), (401, "Unauthorized".to_owned()));
    }
    assert_eq!(served.joined.api.count("create", TOKEN_REVIEWS), 2);
    let log = served.joined.node.log();
    assert!(!log.contains("secret-of-metrics") && !log.contains("somebody-elses"), "{log}");
}

#[test]
fn only_authorized_client_certificates_may_put_pods() {
    let mut served = Served::new(Options::default());
    let operator = Identity::new("operator", &["operators"]);
    for verb in ["get", "update", "delete"] {
        served.joined.api.allow("operators", verb, "proxy");
        served.joined.api.allow("lookers", verb, "pods");
    }
    served.joined.api.add_token("secret-of-operator", &operator);
    served.start("", &[]);
    let text = Manifest::new("own").container("main", "sleep 100000").text();
    let put = |text: &str, headers: &str| {
        let length = text.len();
        format!("PUT /pods/default/own HTTP/1.1\r\nHost: node\r\n{headers}Content-Length: {length}\r\n\r\n{text}")
    };
    let refused = "Forbidden: pods of the node itself are for who shows a client certificate\n";
    let with_token = put(&text, "Authorization: Bearer secret-of-operator\r\n");
    assert_eq!(served.place.reach(None).say(&with_token), Some((403, refused.to_owned())));
    assert_eq!(served.place.reach(None).say(&put(&text, "")), Some((401, "Unauthorized".to_owned())));
    let looker = served.client("looker", &["lookers"]);
    let forbidden = "Forbidden (user=looker, verb=update, resource=nodes, subresource(s)=[proxy])";
    assert_eq!(served.place.reach(Some(&looker)).say(&put(&text, "")), Some((403, forbidden.to_owned())));

    let mut door = served.place.reach(Some(&served.client("operator", &["operators"])));
    assert_eq!(door.get("/pods/default/own", "").0, 404);
    let created = r#"{"result":"created","warnings":[]}"#;
    assert_eq!(door.say(&put(&text, "")), Some((201, created.to_owned())));
    served.joined.node.wait_until_ready("own");
    assert_eq!(door.get("/pods/default/own", ""), (200, text.clone()));
    let (status, why) = door.say(&put(&text.replace("name: own", "name: other"), "")).unwrap();
    assert_eq!((status, why.as_str()), (422, "metadata.name: expected own as in the path, found other\n"));
    assert_eq!(door.get("/pods/default/own", ""), (200, text));
    let delete = "DELETE /pods/default/own HTTP/1.1\r\nHost: node\r\n\r\n";
    assert_eq!(door.say(delete), Some((200, r#"{"result":"deleted"}"#.to_owned())));
    assert_eq!(door.say(delete).map(|(status, _)| status), Some(404));
    let restart = "POST /pods/default/own/restart HTTP/1.1\r\nHost: node\r\n\r\n";
    assert_eq!(served.place.reach(Some(&served.admin())).say(restart).map(|(status, _)| status), Some(404));
}

#[test]
fn during_an_outage_cached_reviews_apply_until_they_expire() {
    let mut served = Served::new(Options::default());
    served.joined.api.allow("readers", "get", "proxy");
    let ttl = "authorization: {webhook: {cacheAuthorizedTTL: 4s}}\n";
    served.start(ttl, &[]);
    let reader = served.client("reader", &["readers"]);
    let mut door = served.place.reach(Some(&reader));
    assert_eq!(door.get("/pods", "").0, 200);
    served.joined.api.on("create", "*reviews").answer(503);
    assert_eq!(door.get("/pods", "").0, 200);
    let refused = wait(|| match door.get("/pods", "") {
        (200, _) => Err("it is allowed".to_owned()),
        refused => Ok(refused),
    });
    // The missing finer permission was logged before, and the answer is cached.
    let text = "Authorization error (user=reader, verb=get, resource=nodes, subresource=proxy)";
    assert_eq!(refused, (500, text.to_owned()));
    let with = "Authorization: Bearer a-token\r\n";
    assert_eq!(served.place.reach(None).get("/pods", with), (401, "Unauthorized".to_owned()));
    served.joined.api.clear_faults();
    assert_eq!(door.get("/pods", "").0, 200);
}

#[test]
fn anonymous_access_applies_only_without_credentials() {
    let mut served = Served::new(Options::default());
    served.joined.api.allow("system:unauthenticated", "get", "healthz");
    served.start("", &["--anonymous-auth=true"]);
    let mut door = served.place.reach(None);
    assert_eq!(door.get("/healthz", ""), (200, "ok".to_owned()));
    let text = "Forbidden (user=system:anonymous, verb=get, resource=nodes, subresource(s)=[pods proxy])";
    assert_eq!(door.get("/pods", ""), (403, text.to_owned()));
    // A client with bad credentials is not anonymous.
    assert_eq!(door.get("/healthz", "Authorization: Bearer wrong\r\n"), (401, "Unauthorized".to_owned()));
}
