//! Runs `coracle join` and `coracle leave` against a fake API server set up like kubeadm's.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::{digest, hmac};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::json;

use super::forward_proxy::{ForwardProxy, Speaks};
use super::joined::{LEASE, NODE};
use super::node::{Manifest, NODE_NAME, Node};
use crate::fake_api::certificates::Authority;
use crate::fake_api::identity::Identity;
use crate::fake_api::world::Network;
use crate::fake_api::{FakeApi, Options};
use crate::wait::wait_for;

pub(super) const TOKEN: &str = "abcdef.0123456789abcdef";
const INFO: &str = "/api/v1/namespaces/kube-public/configmaps/cluster-info";

/// A cluster that accepts joins, and a machine.
pub(super) struct Fleet {
    pub(super) api: FakeApi,
    pub(super) node: Node,
}

pub(super) struct Said {
    pub(super) code: i32,
    out: String,
    error: String,
}

impl Fleet {
    pub(super) fn new() -> Self {
        Self::named(|port| format!("https://127.0.0.1:{port}"))
    }

    /// A cluster that calls itself by the URL `name` of its port.
    fn named(name: impl Fn(u16) -> String) -> Self {
        let api = FakeApi::start(Options { approve: true, ..Options::default() });
        let node = Node::new();
        api.add_token(TOKEN, &Identity::bootstrap("abcdef"));
        let kubeconfig = format!(
            "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: {}\n    server: {}\n  name: \"\"\n\
             contexts: null\ncurrent-context: \"\"\nkind: Config\nusers: null\n",
            STANDARD.encode(api.authority_pem()),
            name(api.address().port())
        );
        api.create(&json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "cluster-info", "namespace": "kube-public" },
            "data": { "kubeconfig": kubeconfig, "jws-kubeconfig-abcdef": signature(&kubeconfig, TOKEN) },
        }));
        let fleet = Self { api, node };
        fleet.set_configuration(
            "failSwapOn: false\ncgroupsPerQOS: false\nenforceNodeAllocatable: [none]\nhealthzPort: 0\nrotateCertificates: true\n",
        );
        fleet
    }

    fn set_configuration(&self, fields: &str) {
        const PATH: &str = "/api/v1/namespaces/kube-system/configmaps/kubelet-config";
        let text = format!("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n{fields}");
        if self.api.get(PATH).is_some() {
            self.api.patch(PATH, &json!({ "data": { "kubelet": text } }));
            return;
        }
        self.api.create(&json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "kubelet-config", "namespace": "kube-system" },
            "data": { "kubelet": text },
        }));
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.node.folder().join(name)
    }

    pub(super) fn pin(&self) -> String {
        pin(&self.api.authority_pem())
    }

    fn join_with(&self, token: &str, pin: &str, more: &[&str]) -> Said {
        let server = self.api.address().to_string();
        let pin = ["--discovery-token-ca-cert-hash", pin];
        let name = ["--node-name", NODE_NAME];
        self.run(
            &[&["join", &server, "--token", token, "--no-start", "--timeout", "1s"], &pin[..], &name, more].concat(),
        )
    }

    pub(super) fn run(&self, line: &[&str]) -> Said {
        self.run_with(line, &[])
    }

    fn run_with(&self, line: &[&str], environment: &[(&str, &str)]) -> Said {
        let mut command = Command::new(env!("CARGO_BIN_EXE_coracle"));
        command.envs(environment.iter().copied());
        command.args(line).arg("--kubernetes-dir").arg(self.path("etc")).arg("--root-dir").arg(self.path("pods"));
        let output = command.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Said { code: output.status.code().unwrap(), out: text(output.stdout), error: text(output.stderr) }
    }

    /// Every file in the directories that joining writes to.
    pub(super) fn written(&self) -> Vec<String> {
        let mut found = Vec::new();
        for folder in ["etc", "etc/pki", "pods", "pods/pki"] {
            let Ok(entries) = fs::read_dir(self.path(folder)) else { continue };
            let files = entries.map(|entry| entry.unwrap().path()).filter(|path| !path.is_dir());
            // The agent's own record of its pods' resources, with a cluster or without.
            let is_record = |path: &PathBuf| {
                let name = path.file_name().unwrap().to_string_lossy();
                name.starts_with("allocated_pods_state") || name.starts_with("actuated_pods_state")
            };
            let files = files.filter(|path| !is_record(path));
            found.extend(files.map(|path| path.strip_prefix(self.node.folder()).unwrap().display().to_string()));
        }
        found.sort();
        found
    }

    /// Starts the agent as the service does.
    fn start(&mut self) {
        self.start_with(&[]);
    }

    fn start_with(&mut self, environment: &[(&str, &str)]) {
        let flags = fs::read_to_string(self.path("pods/coracle-flags.env")).unwrap();
        let flags =
            flags.lines().find_map(|line| line.strip_prefix("CORACLE_CLUSTER_ARGS=\"")?.strip_suffix('"')).unwrap();
        let (resolver, manifests) = (self.path("resolv.conf"), self.path("manifests"));
        self.node.start_agent_with(|command| {
            command.args(flags.split_whitespace()).arg("--resolv-conf").arg(resolver);
            command.arg("--pod-manifest-path").arg(manifests);
            command.envs(environment.iter().copied());
        });
    }
}

fn signature(content: &str, token: &str) -> String {
    let (id, secret) = token.split_once('.').unwrap();
    let header = URL_SAFE_NO_PAD.encode(json!({ "alg": "HS256", "kid": id }).to_string());
    let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(content));
    let mac = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), signed.as_bytes());
    format!("{header}..{}", URL_SAFE_NO_PAD.encode(mac))
}

/// The public key pin of a CA certificate.
fn pin(pem: &str) -> String {
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let key = coracle::protocol::x509::Certificate::read(&der).unwrap().public_key;
    let digits: Vec<String> =
        digest::digest(&digest::SHA256, &key).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{}", digits.concat())
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn machine_joins_runs_static_pods_and_leaves() {
    let mut fleet = Fleet::new();
    let said = fleet.join_with(TOKEN, &fleet.pin(), &[]);
    assert_eq!((said.code, said.error.as_str()), (0, ""), "{}", said.out);
    assert!(!said.out.contains("0123456789abcdef"), "{}", said.out);
    let joined = ["etc/bootstrap-kubelet.conf", "etc/pki/ca.crt", "pods/config.yaml", "pods/coracle-flags.env"];
    assert_eq!(fleet.written(), joined);
    assert_eq!(mode(&fleet.path("etc/bootstrap-kubelet.conf")), 0o600);
    assert_eq!(fs::read_to_string(fleet.path("etc/pki/ca.crt")).unwrap(), fleet.api.authority_pem());

    fleet.node.apply(&Manifest::new("own").container("main", "sleep 100000"));
    fleet.start();
    fleet.node.wait_until_ready("own");
    fleet.api.wait(LEASE, "the lease", |lease| lease["spec"]["holderIdentity"] == NODE_NAME);
    assert!(fleet.api.get(NODE).is_some());
    wait_for("the token to be removed", || !fleet.path("etc/bootstrap-kubelet.conf").exists());
    let again = fleet.join_with(TOKEN, &fleet.pin(), &[]);
    assert_eq!(again.code, 1);
    assert!(again.error.contains("kubelet.conf already exists: this node has joined a cluster"), "{}", again.error);

    fleet.node.kill_agent();
    let left = fleet.run(&["leave", "--no-restart"]);
    assert_eq!((left.code, left.error.as_str()), (0, ""), "{}", left.out);
    assert!(left.out.contains("deleted in the cluster: lease node-a"), "{}", left.out);
    assert!(left.out.contains("kubectl delete node node-a"), "{}", left.out);
    assert_eq!(fleet.api.get(LEASE), None);
    assert_eq!(fleet.written(), Vec::<String>::new());
    fleet.node.start_agent();
    fleet.node.wait_until_ready("own");
    assert!(fleet.node.seen("own").is_exactly(&[("main", 0)]));
    let nothing = fleet.run(&["leave", "--no-restart"]);
    assert_eq!(nothing.code, 1);
    assert!(nothing.error.contains("this machine is not a node of a cluster"), "{}", nothing.error);

    // As after a `leave` that was interrupted before its last step.
    let store = fleet.path("pods/coracle/offline");
    fs::create_dir_all(store.join("pods")).unwrap();
    let rest = fleet.run(&["leave", "--no-restart"]);
    assert!(rest.out.contains("removed: ") && !store.exists(), "{} {}", rest.out, rest.error);
}

#[test]
fn machine_behind_a_proxy_joins_and_leaves() {
    let api = |port| format!("kubernetes.default:{port}");
    let mut fleet = Fleet::named(|port| format!("https://{}", api(port)));
    let port = fleet.api.address().port();
    let proxy = ForwardProxy::start(Speaks::Http, Some(("board", "s3cret")), fleet.api.address());
    let variable = format!("http://board:s3cret@{}", proxy.address);
    let environment = [("HTTPS_PROXY", variable.as_str())];
    let pin = fleet.pin();
    let line = ["join", &api(port), "--token", TOKEN, "--no-start", "--discovery-token-ca-cert-hash", &pin];
    let said = fleet.run_with(&[&line[..], &["--node-name", NODE_NAME]].concat(), &environment);
    assert_eq!((said.code, said.error.as_str()), (0, ""), "{}", said.out);
    let hint = format!("reached through http://{}: set the proxy for the service too", proxy.address);
    assert!(said.out.contains(&hint) && !said.out.contains("s3cret"), "{}", said.out);

    // The certificate request takes the proxy as well.
    fleet.start_with(&environment);
    fleet.api.wait(LEASE, "the lease", |lease| lease["spec"]["holderIdentity"] == NODE_NAME);
    fleet.node.kill_agent();
    let left = fleet.run_with(&["leave", "--no-restart"], &environment);
    assert_eq!((left.code, left.error.as_str()), (0, ""), "{}", left.out);
    assert!(left.out.contains("deleted in the cluster: lease node-a"), "{}", left.out);
    assert!(proxy.asked().iter().all(|asked| *asked == api(port)), "{:?}", proxy.asked());
    assert!(!fleet.node.log().contains("s3cret"));
}

#[test]
fn joining_an_unexpected_cluster_is_refused_and_writes_nothing() {
    let fleet = Fleet::new();
    let other = pin(&Authority::new(jiff::Timestamp::now()).pem());
    for (token, pin, line) in [
        (TOKEN, &other, format!("the cluster's CA does not match: expected {other}, found {}", fleet.pin())),
        (
            "abcdef.0123456789abcdee",
            &fleet.pin(),
            "the signature for token \"abcdef\" does not match: wrong token secret, or another cluster"
                .to_owned(),
        ),
        (
            "aaaaaa.0123456789abcdef",
            &fleet.pin(),
            "the cluster does not know token \"aaaaaa\", or it has expired (kubeadm token create, on the control plane, \
             makes a new one)"
                .to_owned(),
        ),
    ] {
        let said = fleet.join_with(token, pin, &[]);
        assert_eq!((said.code, said.error), (1, format!("coracle: join: {line}\n")));
        assert_eq!(fleet.written(), Vec::<String>::new());
    }
}

#[test]
fn command_line_errors_are_reported_before_any_request() {
    let fleet = Fleet::new();
    for (token, pin, line) in [
        ("abcdef", &*fleet.pin(), "--token: expected six lower-case letters or digits, a dot and sixteen more of them"),
        (TOKEN, "sha256:12", "expected sha256: and 64 hexadecimal digits"),
    ] {
        let said = fleet.join_with(token, pin, &[]);
        assert_eq!(said.code, 2);
        assert!(said.error.trim_end().ends_with(line), "{}", said.error);
    }
    let said = fleet.run(&["join", "10.0.0.1", "--token", TOKEN]);
    assert_eq!(said.code, 2);
    assert!(said.error.contains("found neither"), "{}", said.error);
    assert_eq!(fleet.api.connections_so_far(), 0);
}

#[test]
fn man_in_the_middle_is_detected() {
    let fleet = Fleet::new();
    // The impostor forwards the signed cluster-info and presents a certificate of its own.
    fleet.api.on("get", INFO).skip(1).times(1).answer(200).body(&json!({ "data": { "kubeconfig": "other" } }));
    let said = fleet.join_with(TOKEN, &fleet.pin(), &[]);
    assert_eq!(
        (said.code, said.error.as_str()),
        (1, "coracle: join: the server returned two different cluster-infos, try again\n")
    );
    assert_eq!(fleet.written(), Vec::<String>::new());
}

#[test]
fn unreachable_server_is_reported_in_one_line() {
    let fleet = Fleet::new();
    fleet.api.set_network(Network::Refused);
    let said = fleet.join_with(TOKEN, &fleet.pin(), &[]);
    assert_eq!(said.code, 1);
    let address = fleet.api.address();
    assert!(said.error.contains(&format!("connect to the API server {address}")), "{}", said.error);
    assert_eq!(said.error.lines().count(), 1);
    assert_eq!(fleet.written(), Vec::<String>::new());
}

#[test]
fn invalid_token_or_configuration_is_reported_and_writes_nothing() {
    let fleet = Fleet::new();
    fleet.set_configuration("maxPods: many\n");
    let said = fleet.join_with(TOKEN, &fleet.pin(), &[]);
    let line = "coracle: join: the cluster's kubelet configuration cannot be used here: maxPods: ";
    assert!(said.code == 1 && said.error.starts_with(line), "{}", said.error);
    assert_eq!(fleet.written(), Vec::<String>::new());
    fleet.api.remove_token(TOKEN);
    let said = fleet.join_with(TOKEN, &fleet.pin(), &[]);
    let line = "coracle: join: the API server does not accept token \"abcdef\" for authentication, or it has expired\n";
    assert_eq!((said.code, said.error.as_str()), (1, line));
    assert_eq!(fleet.written(), Vec::<String>::new());
}

#[test]
fn name_from_a_template_is_kept_for_the_next_join() {
    let fleet = Fleet::new();
    let (server, pin) = (fleet.api.address().to_string(), fleet.pin());
    let join = |template: &str| {
        let line = ["join", &server, "--token", TOKEN, "--discovery-token-ca-cert-hash", &pin];
        fleet.run(&[&line[..], &["--no-start", "--timeout", "1s", "--name-template", template]].concat())
    };
    let said = join("edge-{mac:none0}");
    let line = "coracle: join: name template \"edge-{mac:none0}\": {mac:none0}: no such network interface";
    assert!(said.code == 2 && said.error.starts_with(line), "{}", said.error);
    assert_eq!(fleet.written(), Vec::<String>::new());

    let named = |said: &Said| {
        assert_eq!((said.code, said.error.as_str()), (0, ""), "{}", said.out);
        let flags = fs::read_to_string(fleet.path("pods/coracle-flags.env")).unwrap();
        flags.split("--hostname-override=").nth(1).unwrap().trim_end_matches(['"', '\n']).to_owned()
    };
    let name = named(&join("first-{hostname}"));
    assert!(name.starts_with("first-"), "{name}");
    fleet.run(&["leave", "--no-restart"]);
    assert_eq!(named(&join("second-{hostname}")), name);
}

#[test]
fn join_without_time_limit_waits_for_the_line() {
    let fleet = Fleet::new();
    fleet.api.set_network(Network::Refused);
    let said = fleet.path("said");
    let (server, pin) = (fleet.api.address().to_string(), fleet.pin());
    let mut join = Command::new(env!("CARGO_BIN_EXE_coracle"))
        .args(["join", &server, "--token", TOKEN, "--discovery-token-ca-cert-hash", &pin])
        .args(["--no-start", "--timeout", "0", "--node-name", NODE_NAME])
        .arg("--kubernetes-dir")
        .arg(fleet.path("etc"))
        .arg("--root-dir")
        .arg(fleet.path("pods"))
        .stdout(fs::File::create(&said).unwrap())
        .spawn()
        .unwrap();
    wait_for("the reason", || fs::read_to_string(&said).unwrap().contains("waiting: connect to the API server"));
    fleet.api.set_network(Network::Open);
    assert!(join.wait().unwrap().success());
    assert_eq!(fleet.written().len(), 4);
}

#[test]
fn new_board_takes_the_role_of_one_that_is_gone() {
    let mut fleet = Fleet::new();
    assert_eq!(fleet.join_with(TOKEN, &fleet.pin(), &[]).code, 0);
    fleet.start();
    fleet.api.wait(LEASE, "the lease", |lease| lease["spec"]["holderIdentity"] == NODE_NAME);
    let socket = fleet.path("coracle.sock").display().to_string();
    let card = fleet.path("card");
    let source = card.display().to_string();
    let replace = |fleet: &Fleet, more: &[&str]| {
        fleet.run(&[&["replace", "--no-start", "--local-socket", &socket][..], more].concat())
    };
    let from = ["--from", &source];
    fleet.node.kill_agent();
    fs::create_dir_all(fleet.path("pods/coracle/pods")).unwrap();
    fs::write(fleet.path("pods/coracle/pods/marker"), "kept").unwrap();

    // The card of the old board is in a reader, and the new board has nothing.
    for part in ["etc", "pods"] {
        let on_card = card.join(fleet.path(part).strip_prefix("/").unwrap());
        fs::create_dir_all(on_card.parent().unwrap()).unwrap();
        fs::rename(fleet.path(part), on_card).unwrap();
    }
    let nothing_is_written = |fleet: &Fleet| {
        let written: Vec<String> = fleet.written();
        assert!(written.iter().all(|file| !file.contains("kubelet")), "{written:?}");
    };
    for (name, line) in [
        ("node-b", "expected the state of node-b, found that of node-a"),
        (NODE_NAME, "node node-a is alive: it renewed its lease at "),
    ] {
        let said = replace(&fleet, &[&[name][..], &from].concat());
        assert!(said.code == 1 && said.error.contains(line), "{}", said.error);
        nothing_is_written(&fleet);
    }
    let said = replace(&fleet, &["node-a", "--from", "/nowhere"]);
    assert!(said.code == 1 && said.error.contains("expected the root directory of a board"), "{}", said.error);

    // Its settings name another directory of claims.
    let claims = fleet.path("claims");
    let claims_on_card = card.join(claims.strip_prefix("/").unwrap());
    fs::create_dir_all(claims_on_card.join("pvc-u_default_data")).unwrap();
    fs::write(claims_on_card.join("pvc-u_default_data/marker"), "kept").unwrap();
    fs::create_dir_all(card.join("var/lib/kubelet")).unwrap();
    let flags = format!("CORACLE_CLUSTER_ARGS=\"--local-path-dir={}\"\n", claims.display());
    fs::write(card.join("var/lib/kubelet/coracle-flags.env"), flags).unwrap();

    fleet.api.patch(LEASE, &json!({ "spec": { "renewTime": "2026-01-01T00:00:00.000000Z" } }));
    let said = replace(&fleet, &[&[NODE_NAME][..], &from].concat());
    assert_eq!((said.code, said.error.as_str()), (0, ""), "{}", said.out);
    assert_eq!(fs::read_to_string(fleet.path("pods/coracle/pods/marker")).unwrap(), "kept");
    assert_eq!(fs::read_to_string(claims.join("pvc-u_default_data/marker")).unwrap(), "kept");
    assert_eq!(mode(&fs::canonicalize(fleet.path("pods/pki/kubelet-client-current.pem")).unwrap()), 0o600);
    // A copy that was interrupted before its last file is made again.
    fs::remove_file(fleet.path("etc/kubelet.conf")).unwrap();
    let said = replace(&fleet, &[&[NODE_NAME][..], &from].concat());
    assert_eq!((said.code, said.error.as_str()), (0, ""), "{}", said.out);
    let again = replace(&fleet, &[&[NODE_NAME][..], &from].concat());
    assert!(again.code == 1 && again.error.contains("this machine is a node of a cluster"), "{}", again.error);
    fleet.start();
    fleet.api.wait(LEASE, "the lease", |lease| {
        !lease["spec"]["renewTime"].as_str().unwrap_or_default().starts_with("2026-01-01")
    });
    let running = replace(&fleet, &[NODE_NAME]);
    assert!(running.code == 1 && running.error.contains("the agent runs on this machine"), "{}", running.error);

    // A card that was moved to another board has everything but that board's serial number.
    fleet.node.kill_agent();
    assert_eq!(replace(&fleet, &[NODE_NAME]).out, "this board is node-a\n");
    assert!(replace(&fleet, &["node-b"]).error.contains("expected the state of node-b, found that of node-a"));
}

#[test]
fn name_of_a_live_node_is_refused() {
    let fleet = Fleet::new();
    let ready = json!([{ "type": "Ready", "status": "True" }]);
    fleet.api.create(&json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": NODE_NAME } }));
    fleet.api.patch(&format!("{NODE}/status"), &json!({ "status": { "conditions": ready } }));
    let said = fleet.join_with(TOKEN, &fleet.pin(), &[]);
    assert!(said.code == 1 && said.error.contains("the cluster has a node node-a that is ready"), "{}", said.error);
    assert_eq!(fleet.written(), Vec::<String>::new());
}

#[test]
fn without_a_pin_the_server_is_trusted_only_on_request() {
    let fleet = Fleet::new();
    let server = fleet.api.address().to_string();
    let skip = "--discovery-token-unsafe-skip-ca-verification";
    let said = fleet.run(&["join", &server, "--token", TOKEN, skip, "--no-start", "--node-name", NODE_NAME]);
    assert_eq!((said.code, said.error.as_str()), (0, ""));
    assert_eq!(fleet.written().len(), 4);
}

#[test]
fn ca_of_another_cluster_is_not_overwritten() {
    let fleet = Fleet::new();
    fs::create_dir_all(fleet.path("etc/pki")).unwrap();
    fs::write(fleet.path("etc/pki/ca.crt"), "other").unwrap();
    let said = fleet.join_with(TOKEN, &fleet.pin(), &[]);
    assert!(said.code == 1 && said.error.contains("ca.crt belongs to another cluster"), "{}", said.error);
    assert_eq!(fleet.written(), ["etc/pki/ca.crt"]);
}

#[test]
fn leaving_an_unreachable_cluster_reports_what_remains_there() {
    let mut fleet = Fleet::new();
    assert_eq!(fleet.join_with(TOKEN, &fleet.pin(), &[]).code, 0);
    fleet.start();
    fleet.api.wait(LEASE, "the lease", |lease| lease["spec"]["holderIdentity"] == NODE_NAME);
    fleet.node.kill_agent();
    fleet.api.set_network(Network::Refused);
    let said = fleet.run(&["leave", "--no-restart", "--delete-node"]);
    assert_eq!(said.code, 1);
    assert!(said.error.contains("lease node-a was not deleted from the cluster: "), "{}", said.error);
    assert!(said.out.contains("node node-a was not deleted from the cluster: "), "{}", said.out);
    assert_eq!(fleet.written(), Vec::<String>::new());
}
