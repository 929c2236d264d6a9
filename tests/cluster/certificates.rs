//! The node's client certificate: request, storage, rotation, and operation without a valid one.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use serde_json::{Value, json};

use super::joined::{Joined, LEASE, NODE};
use super::node::{Manifest, NODE_NAME, Node};
use crate::fake_api::certificates::Validity;
use crate::fake_api::identity::Identity;
use crate::fake_api::kubeconfig::Credentials;
use crate::fake_api::{FakeApi, Options};
use crate::swtpm::Swtpm;
use crate::wait::{wait, wait_for};

pub(crate) const TOKEN: &str = "abcdef.0123456789abcdef";
const REENROLMENT_TOKEN: &str = "token-of-the-account";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const ROTATES: &str = "runtimeRequestTimeout: 1s\nimageGCHighThresholdPercent: 100\nevictionHard: {}\nrotateCertificates: true\n\
                       nodeLeaseDurationSeconds: 4\n";

/// A node with empty credential directories.
pub(crate) struct Newcomer(pub(crate) Joined);

impl Newcomer {
    fn new(options: Options) -> Self {
        let api = FakeApi::start(options);
        api.add_token(TOKEN, &Identity::bootstrap("abcdef"));
        let node = Node::new();
        node.configure(ROTATES);
        Self(Joined { node, api })
    }

    /// A node of a cluster that approves its CSRs.
    pub(crate) fn approved() -> Self {
        Self::new(Options { approve: true, ..Options::default() })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.node.folder().join(name)
    }

    fn pki(&self, name: &str) -> PathBuf {
        self.path("pods/pki").join(name)
    }

    pub(crate) fn give_bootstrap_credentials(&self) {
        fs::create_dir_all(self.path("bootstrap")).unwrap();
        self.0.api.kubeconfig(&self.path("bootstrap"), &Credentials::Token(TOKEN.to_owned()));
    }

    /// Writes a client certificate and its kubeconfig, as an earlier agent leaves them.
    fn give_certificate(&self, validity: Validity) {
        let certified = self.0.api.client_certificate(&Identity::node(NODE_NAME), validity);
        let (file, link) = (self.pki("kubelet-client-2026-01-02-03-04-05.pem"), self.pki("kubelet-client-current.pem"));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, certified.certificate_pem() + &certified.key_pem()).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let user = format!("client-certificate: {0}\n    client-key: {0}\n", link.display());
        let text = fs::read_to_string(self.0.api.kubeconfig(self.0.node.folder(), &Credentials::Token("x".to_owned())));
        fs::write(self.path("kubelet.conf"), text.unwrap().replace("token: x\n", &user)).unwrap();
    }

    fn start(&mut self) {
        self.start_with(&[]);
    }

    pub(crate) fn start_with(&mut self, arguments: &[&str]) {
        let (kubeconfig, bootstrap) = (self.path("kubelet.conf"), self.path("bootstrap/kubeconfig"));
        self.0.node.start_agent_with(|command| {
            command
                .arg("--make-iptables-util-chains=false")
                .arg("--kubeconfig")
                .arg(kubeconfig)
                .arg("--bootstrap-kubeconfig")
                .arg(bootstrap)
                .args(arguments);
        });
    }

    /// The CSRs, by name.
    fn requests(&self) -> Vec<Value> {
        self.0.api.list(REQUESTS)
    }

    #[track_caller]
    fn wait_for_a_request(&self) -> String {
        self.0.api.wait_for("a request for a certificate", |world| {
            world.requests_of("create", REQUESTS).any(|request| request.status.is_some())
        });
        name_of(&self.requests()[0])
    }

    #[track_caller]
    fn wait_until_renewed(&self) {
        self.0.api.wait_for("the lease to be renewed by the node itself", |world| {
            world.requests_of("patch", LEASE).any(|request| request.identity.user == "system:node:node-a")
        });
    }

    /// The certificate in the output of `coracle status`.
    fn shown(&self) -> Value {
        self.0.node.status()["certificates"][0].clone()
    }

    #[track_caller]
    fn wait_until_shown(&self, what: &str, claim: impl Fn(&Value) -> bool) -> Value {
        wait(|| {
            let shown = self.shown();
            if claim(&shown) { Ok(shown) } else { Err(format!("{what}: {shown:#}\n{}", self.0.node.log())) }
        })
    }

    /// Asserts that the agent's log contains no secret.
    #[track_caller]
    pub(crate) fn assert_that_nothing_secret_was_said(&self) {
        let log = self.0.node.log();
        let (_, secret) = TOKEN.split_once('.').unwrap();
        assert!(!log.contains(secret), "{log}");
        let key = fs::read_to_string(self.pki("kubelet-client-current.pem")).unwrap_or_default();
        for line in key.lines().filter(|line| !line.starts_with("-----")) {
            assert!(!log.contains(line), "{log}");
        }
        assert!(!log.contains("PRIVATE KEY"), "{log}");
    }
}

fn name_of(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// A validity from `before` before now to `after` after now.
fn around_now(before: SignedDuration, after: SignedDuration) -> Validity {
    let now = Timestamp::now();
    Validity { not_before: now - before, not_after: now + after }
}

const fn hours(hours: i64) -> SignedDuration {
    SignedDuration::from_hours(hours)
}

const YEARS: i64 = 10 * 365 * 24;

#[test]
fn bootstrap_credentials_yield_the_first_client_certificate() {
    let mut newcomer = Newcomer::approved();
    newcomer.give_bootstrap_credentials();
    newcomer.start();
    newcomer.wait_until_renewed();
    let requests = newcomer.requests();
    assert_eq!(requests.len(), 1);
    assert!(name_of(&requests[0]).starts_with("node-csr-"));
    assert_eq!(requests[0]["spec"]["username"], "system:bootstrap:abcdef");
    let (kubeconfig, link) = (newcomer.path("kubelet.conf"), newcomer.pki("kubelet-client-current.pem"));
    assert_eq!((mode(&kubeconfig), mode(&link)), (0o600, 0o600));
    let target = fs::read_link(&link).unwrap();
    assert!(target.file_name().unwrap().to_str().unwrap().starts_with("kubelet-client-20"), "{target:?}");
    let text = fs::read_to_string(&kubeconfig).unwrap();
    assert!(text.contains(&format!("client-certificate: {}", link.display())) && !text.contains("token"), "{text}");
    assert!(!newcomer.pki("kubelet-client.key.tmp").exists());
    newcomer.0.api.wait(NODE, "the end of the certificate", |node| {
        let end = node["metadata"]["annotations"]["coracle.dev/client-certificate-expires"].as_str();
        end.is_some_and(|end| end.parse::<Timestamp>().unwrap() > Timestamp::now())
    });
    assert_eq!(newcomer.shown()["state"], "Good");
    newcomer.assert_that_nothing_secret_was_said();
}

#[test]
fn restart_before_signing_reuses_the_pending_request() {
    let mut newcomer = Newcomer::new(Options::default());
    newcomer.give_bootstrap_credentials();
    newcomer.start();
    let name = newcomer.wait_for_a_request();
    let key = newcomer.pki("kubelet-client.key.tmp");
    assert_eq!(mode(&key), 0o600);
    let cached = fs::read(&key).unwrap();
    newcomer.0.node.kill_agent();
    newcomer.start();
    newcomer.0.api.wait_for_requests("create", REQUESTS, 2);
    assert_eq!(fs::read(&key).unwrap(), cached);
    newcomer.0.api.approve(&name);
    newcomer.wait_until_renewed();
    assert_eq!(newcomer.requests().len(), 1);
    assert!(!key.exists());
    newcomer.assert_that_nothing_secret_was_said();
}

#[test]
fn denied_request_is_logged_and_replaced_with_a_new_key() {
    let mut newcomer = Newcomer::new(Options::default());
    newcomer.give_bootstrap_credentials();
    newcomer.start();
    let denied = newcomer.wait_for_a_request();
    newcomer.0.api.deny(&denied);
    newcomer.wait_until_shown("the denial", |shown| {
        shown["message"].as_str().is_some_and(|text| text.contains("is denied"))
    });
    newcomer.0.api.wait_for("another request", |world| world.list(REQUESTS).len() >= 2);
    let other = newcomer.requests().iter().map(name_of).find(|name| *name != denied).unwrap();
    newcomer.0.api.approve(&other);
    newcomer.wait_until_renewed();
    let events = newcomer.0.node.ask(&["events"]).unwrap();
    assert!(events.contains("CertificateRequestFailed") && events.contains("CertificateIssued"), "{events}");
}

#[test]
fn due_certificate_is_rotated_and_the_previous_file_stays() {
    let mut newcomer = Newcomer::approved();
    newcomer.give_certificate(around_now(hours(95), hours(5)));
    let kubeconfig = fs::read(newcomer.path("kubelet.conf")).unwrap();
    let link = newcomer.pki("kubelet-client-current.pem");
    let before = fs::read_link(&link).unwrap();
    newcomer.start();
    newcomer.wait_until_shown("the new certificate", |shown| shown["state"] == "Good");
    let requests = newcomer.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0]["spec"]["username"], "system:node:node-a");
    assert_ne!(fs::read_link(&link).unwrap(), before);
    assert!(before.exists());
    // The kubeconfig itself does not change.
    assert_eq!(fs::read(newcomer.path("kubelet.conf")).unwrap(), kubeconfig);
    newcomer.wait_until_renewed();
}

#[test]
fn young_certificate_is_not_rotated() {
    let mut newcomer = Newcomer::approved();
    newcomer.give_bootstrap_credentials();
    newcomer.give_certificate(around_now(hours(60), hours(40)));
    newcomer.start();
    newcomer.wait_until_renewed();
    assert_eq!(newcomer.0.api.count("create", REQUESTS), 0);
    assert_eq!(newcomer.shown()["state"], "Good");
}

#[test]
fn pods_survive_an_expired_certificate_and_new_credentials_are_picked_up() {
    let mut newcomer = Newcomer::approved();
    newcomer.give_certificate(around_now(hours(400), hours(-1)));
    newcomer.0.node.apply(&Manifest::new("own").container("main", "sleep 100000"));
    newcomer.start();
    newcomer.0.node.wait_until_ready("own");
    let shown = newcomer.wait_until_shown("why there is no other", |shown| shown["message"] != "");
    assert_eq!(shown["state"], "Expired");
    let events = newcomer.0.node.ask(&["events"]).unwrap();
    assert!(events.contains("CertificateExpired") && events.contains("CertificateRequestFailed"), "{events}");
    // The agent notices new credentials within a second.
    newcomer.give_bootstrap_credentials();
    newcomer.wait_until_renewed();
    assert_eq!(newcomer.requests()[0]["spec"]["username"], "system:bootstrap:abcdef");
    assert!(newcomer.0.node.seen("own").is_exactly(&[("main", 0)]));
}

/// A node with a certificate of `validity`, in a cluster that is prepared for its re-enrolment.
fn prepared(validity: Validity) -> Newcomer {
    let newcomer = Newcomer::approved();
    newcomer.give_certificate(validity);
    let account = "system:serviceaccount:kube-system:coracle-reenrolment";
    newcomer.0.api.add_token(REENROLMENT_TOKEN, &Identity::new(account, &["system:serviceaccounts"]));
    newcomer.0.api.create(&json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": { "name": "coracle-reenrolment", "namespace": "kube-system" },
        "data": { "token": STANDARD.encode(REENROLMENT_TOKEN) },
    }));
    let tpm = newcomer.path("tpm");
    let settings = format!("reenrolment: {{secret: kube-system/coracle-reenrolment, tpm: {}}}\n", tpm.display());
    fs::write(newcomer.path("coracle.yaml"), settings).unwrap();
    newcomer
}

impl Newcomer {
    fn start_prepared(&mut self) {
        let settings = self.path("coracle.yaml").display().to_string();
        self.start_with(&["--coracle-config", &settings]);
    }

    fn announced_key(&self) -> Option<String> {
        let node = self.0.api.get(NODE).unwrap_or_default();
        node["metadata"]["annotations"]["coracle.dev/reenrolment-key"].as_str().map(str::to_owned)
    }

    /// Starts with a certificate that expired while the board was away. Returns the request for another one, which the
    /// announced key has signed.
    fn come_back_after_a_year(&mut self) -> Value {
        fs::remove_dir_all(self.path("pods/pki")).unwrap();
        self.give_certificate(around_now(hours(9000), hours(-1)));
        self.start_prepared();
        // The first request is refused: it is made with the expired certificate.
        let request = wait(|| self.requests().pop().ok_or_else(|| "no request for a certificate".to_owned()));
        let bytes = |text: &Value| STANDARD.decode(text.as_str().unwrap()).unwrap();
        let signed = bytes(&request["metadata"]["annotations"]["coracle.dev/reenrolment-signature"]);
        let public = STANDARD.decode(self.announced_key().unwrap()).unwrap();
        // The last 65 bytes of a P-256 SubjectPublicKeyInfo are the point.
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &public[public.len() - 65..]);
        assert!(public.verify(&bytes(&request["spec"]["request"]), &signed).is_ok());
        request
    }
}

#[test]
fn certificate_that_expired_while_away_is_renewed_with_the_reenrolment_key() {
    let mut newcomer = prepared(around_now(hours(1), hours(99)));
    newcomer.0.node.apply(&Manifest::new("own").container("main", "sleep 100000"));
    newcomer.start_prepared();
    let folder = newcomer.path("pods/coracle/reenrolment");
    wait_for("the token and the key", || folder.join("kubeconfig").exists() && newcomer.announced_key().is_some());
    for file in ["kubeconfig", "key.pem"] {
        assert_eq!(fs::metadata(folder.join(file)).unwrap().permissions().mode() & 0o777, 0o600, "{file}");
    }
    newcomer.0.node.kill_agent();

    let request = newcomer.come_back_after_a_year();
    let name = name_of(&request);
    assert_eq!(request["spec"]["username"], "system:serviceaccount:kube-system:coracle-reenrolment");
    let shown =
        newcomer.wait_until_shown("what is awaited", |shown| shown["message"].as_str().unwrap().contains(&name));
    assert_eq!(shown["state"], "Expired");
    newcomer.0.node.wait_until_ready("own");

    newcomer.0.api.approve(&name);
    newcomer.wait_until_shown("a valid certificate", |shown| shown["state"] == "Good" && shown["message"] == "");
    newcomer.0.node.wait_until_ready("own");
    assert!(newcomer.0.node.seen("own").is_exactly(&[("main", 0)]));
    let log = newcomer.0.node.log();
    assert!(!log.contains(REENROLMENT_TOKEN) && !log.contains("PRIVATE KEY"));
}

#[test]
fn reenrolment_key_of_a_tpm_replaces_that_of_a_file_and_signs() {
    let mut newcomer = prepared(around_now(hours(1), hours(99)));
    let folder = newcomer.path("pods/coracle/reenrolment");
    newcomer.start_prepared();
    wait_for("a key in a file", || folder.join("kubeconfig").exists() && newcomer.announced_key().is_some());
    let of_file = newcomer.announced_key();
    newcomer.0.node.kill_agent();

    let tpm = Swtpm::start(newcomer.0.node.folder());
    assert_eq!(tpm.socket, newcomer.path("tpm"), "as the settings say");
    newcomer.start_prepared();
    wait_for("the key of the TPM", || folder.join("tpm-key.der").exists() && !folder.join("key.pem").exists());
    assert_ne!(newcomer.announced_key(), of_file);
    let of_tpm = fs::read(folder.join("tpm-key.der")).unwrap();
    assert_eq!(newcomer.announced_key().unwrap(), STANDARD.encode(of_tpm));
    newcomer.0.node.kill_agent();

    let request = newcomer.come_back_after_a_year();
    newcomer.0.api.approve(&name_of(&request));
    newcomer.wait_until_shown("a valid certificate", |shown| shown["state"] == "Good" && shown["message"] == "");
}

#[test]
fn cluster_without_reenrolment_changes_nothing() {
    let mut newcomer = Newcomer::approved();
    newcomer.give_certificate(around_now(hours(1), hours(99)));
    fs::write(newcomer.path("coracle.yaml"), "reenrolment: {secret: kube-system/coracle-reenrolment}\n").unwrap();
    newcomer.start_prepared();
    newcomer.wait_until_renewed();
    wait_for("the reason in the log", || newcomer.0.node.log().contains("re-enrolment not prepared"));
    assert!(!newcomer.path("pods/coracle/reenrolment/kubeconfig").exists());
    assert_eq!((newcomer.shown()["state"].as_str(), newcomer.shown()["message"].as_str()), (Some("Good"), Some("")));
}

#[test]
fn unknown_client_certificate_triggers_a_new_bootstrap() {
    let mut newcomer = Newcomer::approved();
    newcomer.give_certificate(around_now(hours(1), hours(99)));
    newcomer.give_bootstrap_credentials();
    newcomer.start();
    newcomer.wait_until_renewed();
    newcomer.0.api.on("*", "*").of_user("system:node:node-a").answer(401);
    newcomer.0.api.wait_for_requests("create", REQUESTS, 1);
    newcomer.0.api.wait_for("a request with the token", |world| {
        world.requests_of("create", REQUESTS).any(|request| request.identity.user == "system:bootstrap:abcdef")
    });
    newcomer.0.api.clear_faults();
    let renewals = newcomer.0.api.count("patch", LEASE);
    newcomer.0.api.wait_for_requests("patch", LEASE, renewals + 2);
    assert_eq!(newcomer.shown()["state"], "Good");
}

#[test]
fn clock_years_behind_neither_blocks_the_node_nor_rotates_certificates() {
    let mut newcomer = Newcomer::new(Options { approve: true, clock_ahead: hours(YEARS), ..Options::default() });
    newcomer.give_bootstrap_credentials();
    newcomer.start();
    newcomer.wait_until_renewed();
    assert_eq!(newcomer.shown()["state"], "Good");
    newcomer.0.node.kill_agent();
    newcomer.start();
    let renewals = newcomer.0.api.count("patch", LEASE);
    newcomer.0.api.wait_for_requests("patch", LEASE, renewals + 2);
    assert_eq!((newcomer.shown()["state"].as_str(), newcomer.requests().len()), (Some("Good"), 1));
}

/// Each start requests one certificate, because the stored one looks expired. The process knows that the certificate
/// issued to it is new.
#[test]
fn clock_years_ahead_does_not_rotate_certificates_repeatedly() {
    let mut newcomer = Newcomer::approved();
    newcomer.0.api.set_clock_ahead(-hours(YEARS));
    newcomer.give_bootstrap_credentials();
    for starts in 1..=2 {
        newcomer.start();
        newcomer.wait_until_shown("a certificate", |shown| shown["state"] == "Good");
        let renewals = newcomer.0.api.count("patch", LEASE);
        newcomer.0.api.wait_for_requests("patch", LEASE, renewals + 3);
        assert_eq!(newcomer.requests().len(), starts);
        newcomer.0.node.kill_agent();
    }
}

#[test]
fn truncated_kubeconfig_is_rebuilt_from_existing_files() {
    for broken in [Some("apiVersion: v1\nkind: Con"), Some(""), None] {
        let mut newcomer = Newcomer::approved();
        newcomer.give_certificate(around_now(hours(1), hours(99)));
        newcomer.give_bootstrap_credentials();
        match broken {
            Some(text) => fs::write(newcomer.path("kubelet.conf"), text).unwrap(),
            None => fs::remove_file(newcomer.path("kubelet.conf")).unwrap(),
        }
        newcomer.start();
        newcomer.wait_until_renewed();
        assert_eq!(newcomer.0.api.count("create", REQUESTS), 0);
        assert_eq!(newcomer.path("kubelet.conf.corrupt").exists(), broken.is_some());
    }
}

#[test]
fn credentials_inside_the_kubeconfig_are_rotated_into_files() {
    let mut newcomer = Newcomer::approved();
    let made = newcomer.0.api.kubeconfig(newcomer.0.node.folder(), &Credentials::of_node(NODE_NAME));
    fs::rename(made, newcomer.path("kubelet.conf")).unwrap();
    newcomer.start();
    newcomer.0.api.wait_for_requests("create", REQUESTS, 1);
    newcomer.wait_until_renewed();
    let has_key = || fs::read_to_string(newcomer.path("kubelet.conf")).unwrap().contains("client-key-data");
    wait(|| if has_key() { Err(newcomer.0.node.log()) } else { Ok(()) });
    assert_eq!(newcomer.requests().len(), 1);
    newcomer.assert_that_nothing_secret_was_said();
}

#[test]
fn static_pods_run_without_credentials_and_later_credentials_are_used() {
    let mut newcomer = Newcomer::approved();
    newcomer.0.node.apply(&Manifest::new("own").container("main", "sleep 100000"));
    newcomer.start();
    newcomer.0.node.wait_until_ready("own");
    assert_eq!(newcomer.shown()["state"], "Missing");
    newcomer.give_bootstrap_credentials();
    newcomer.wait_until_renewed();
}
