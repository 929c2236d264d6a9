//! etcd, kube-apiserver and, if present, kube-controller-manager, in the namespaces of a node.

use std::fs;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use jiff::Timestamp;
use nix::sys::signal::Signal;

use super::certificates::{Authority, Certified, Validity};
use super::identity::Identity;
use super::node::{Node, Process, wait_for};

/// The node's address in its network namespace.
pub(crate) const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 88, 0, 1);
/// The ClusterIP of the API server, which the environment of pods has. Pods reach it after
/// [`ControlPlane::serve_cluster_ip`].
const SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
const CONTROL_PLANE_START_TIMEOUT: Duration = Duration::from_secs(120);

/// The directory of the programs.
#[derive(Clone, Debug)]
pub(crate) struct Assets(PathBuf);

impl Assets {
    /// `None` if programs are missing. Standard error then says so.
    pub(crate) fn find(test: &str, needed: &[&str]) -> Option<Self> {
        let named = std::env::var_os("KUBEBUILDER_ASSETS").filter(|folder| !folder.is_empty());
        let why = match named {
            None => "KUBEBUILDER_ASSETS names no directory with kube-apiserver, etcd and kubectl".to_owned(),
            Some(folder) => {
                let assets = Self(PathBuf::from(folder));
                let all = ["kube-apiserver", "etcd", "kubectl"].iter().chain(needed);
                match all.copied().find(|name| !assets.has(name)) {
                    None => return Some(assets),
                    Some(missing) => format!("there is no {missing} in {} (KUBEBUILDER_ASSETS)", assets.0.display()),
                }
            }
        };
        // Bypasses the test harness, which hides the output of passing tests.
        let _ = writeln!(std::io::stderr(), "not run: {test}: {why}");
        None
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.program(name).is_file()
    }

    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

/// Ends with the node's namespaces.
pub(crate) struct ControlPlane {
    assets: Assets,
    pub(crate) authority: Authority,
    folder: PathBuf,
    processes: Vec<Process>,
    /// Further arguments of the API server.
    arguments: Vec<String>,
    has_controllers: bool,
}

impl ControlPlane {
    pub(crate) fn start(assets: Assets, node: &Node) -> Self {
        Self::start_with(assets, node, &[])
    }

    /// Without kube-controller-manager, though it may be there.
    pub(crate) fn without_controllers(assets: Assets, node: &Node) -> Self {
        Self::start_all(assets, node, &[], false)
    }

    pub(crate) fn start_with(assets: Assets, node: &Node, arguments: &[String]) -> Self {
        let has_controllers = assets.has("kube-controller-manager");
        Self::start_all(assets, node, arguments, has_controllers)
    }

    fn start_all(assets: Assets, node: &Node, arguments: &[String], has_controllers: bool) -> Self {
        let folder = node.folder().join("control-plane");
        fs::create_dir(&folder).unwrap();
        let authority = Authority::new(Timestamp::now());
        let mut plane =
            Self { assets, authority, folder, processes: Vec::new(), arguments: arguments.to_vec(), has_controllers };
        plane.write_credentials();
        plane.start_programs(node);
        plane
    }

    fn start_programs(&mut self, node: &Node) {
        self.start_etcd(node);
        self.start_api_server(node);
        wait_for("the API server to be ready", CONTROL_PLANE_START_TIMEOUT, || {
            self.try_kubectl(node, &["get", "--raw", "/readyz"]).status.success().then_some(())
        });
        if self.has_controllers() {
            self.start_controllers(node);
        }
    }

    /// Backs up etcd.
    pub(crate) fn back_up(&mut self, node: &Node) {
        self.copy_store(node, "etcd", "backup");
    }

    /// Restores the backup, including resource versions.
    pub(crate) fn restore(&mut self, node: &Node) {
        self.copy_store(node, "backup", "etcd");
    }

    fn copy_store(&mut self, node: &Node, from: &str, to: &str) {
        // Stops the clients of etcd first.
        self.stop();
        let (from, to) = (self.path(from), self.path(to));
        node.enclosure().run(&["sh", "-ec", &format!("rm -rf {to}; cp -a {from} {to}")]);
        self.start_programs(node);
    }

    /// Kills all programs.
    pub(crate) fn stop(&mut self) {
        for process in self.processes.drain(..).rev() {
            process.end(Signal::SIGKILL);
        }
    }

    /// Starts the programs after [`Self::stop`].
    pub(crate) fn start_again(&mut self, node: &Node) {
        self.start_programs(node);
    }

    /// Whether controllers sign certificates and create pods, so that the test need not.
    pub(crate) const fn has_controllers(&self) -> bool {
        self.has_controllers
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.folder.join(name), text).unwrap();
    }

    fn write_pair(&self, name: &str, pair: &Certified) {
        self.write(&format!("{name}.crt"), &pair.certificate_pem());
        self.write(&format!("{name}.key"), &pair.key_pem());
    }

    fn write_credentials(&self) {
        let validity = Validity::a_day(Timestamp::now());
        let names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc.cluster.local"];
        let client = |user: &str, group: &str| self.authority.issue_client(&Identity::new(user, &[group]), validity);
        self.write_pair("ca", &self.authority.pair());
        let addresses = [ADDRESS, SERVICE].map(IpAddr::V4);
        self.write_pair("apiserver", &self.authority.issue_server(&addresses, &names, validity));
        self.write_pair("kubelet-client", &client("kube-apiserver-kubelet-client", "system:masters"));
        // Only its key is used.
        self.write_pair("accounts", &client("accounts", "none"));
        let admin = client("kubernetes-admin", "system:masters");
        self.write("admin.conf", &self.kubeconfig(&User::Certificate(&admin)));
    }

    /// A kubeconfig for a user of this cluster.
    pub(crate) fn kubeconfig(&self, user: &User<'_>) -> String {
        let user = match user {
            User::Token(token) => format!("token: {token}"),
            User::Certificate(pair) => {
                format!(
                    "client-certificate-data: {}\n    client-key-data: {}",
                    base64(&pair.certificate_pem()),
                    base64(&pair.key_pem())
                )
            }
        };
        format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: c\n  cluster:\n    server: https://{ADDRESS}:6443\n    \
             certificate-authority-data: {}\nusers:\n- name: u\n  user:\n    {user}\ncontexts:\n- name: x\n  context: \
             {{cluster: c, user: u}}\ncurrent-context: x\n",
            base64(&self.authority.pem())
        )
    }

    fn start_program(&mut self, node: &Node, name: &str, arguments: &[String]) {
        let log = self.folder.join(format!("{name}.log"));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.processes.push(node.enclosure().start(&self.assets.program(name), &arguments, &log));
    }

    fn start_etcd(&mut self, node: &Node) {
        let arguments = [
            format!("--data-dir={}", self.path("etcd")),
            "--listen-client-urls=http://127.0.0.1:2379".to_owned(),
            "--advertise-client-urls=http://127.0.0.1:2379".to_owned(),
            "--listen-peer-urls=http://127.0.0.1:2380".to_owned(),
            "--unsafe-no-fsync".to_owned(),
        ];
        self.start_program(node, "etcd", &arguments);
    }

    fn start_api_server(&mut self, node: &Node) {
        let file = |flag: &str, name: &str| format!("--{flag}={}", self.path(name));
        let arguments = [
            "--etcd-servers=http://127.0.0.1:2379".to_owned(),
            "--bind-address=0.0.0.0".to_owned(),
            format!("--advertise-address={ADDRESS}"),
            "--secure-port=6443".to_owned(),
            "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
            "--allow-privileged=true".to_owned(),
            "--authorization-mode=Node,RBAC".to_owned(),
            "--enable-bootstrap-token-auth".to_owned(),
            "--enable-admission-plugins=NodeRestriction".to_owned(),
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local".to_owned(),
            file("cert-dir", "run"),
            file("client-ca-file", "ca.crt"),
            file("tls-cert-file", "apiserver.crt"),
            file("tls-private-key-file", "apiserver.key"),
            file("kubelet-client-certificate", "kubelet-client.crt"),
            file("kubelet-client-key", "kubelet-client.key"),
            file("service-account-key-file", "accounts.crt"),
            file("service-account-signing-key-file", "accounts.key"),
        ];
        self.start_program(node, "kube-apiserver", &[&arguments, &*self.arguments].concat());
    }

    fn start_controllers(&mut self, node: &Node) {
        let file = |flag: &str, name: &str| format!("--{flag}={}", self.path(name));
        let arguments = [
            file("kubeconfig", "admin.conf"),
            file("authentication-kubeconfig", "admin.conf"),
            file("authorization-kubeconfig", "admin.conf"),
            file("root-ca-file", "ca.crt"),
            file("service-account-private-key-file", "accounts.key"),
            file("cluster-signing-cert-file", "ca.crt"),
            file("cluster-signing-key-file", "ca.key"),
            file("cert-dir", "run"),
            "--bind-address=127.0.0.1".to_owned(),
            "--leader-elect=false".to_owned(),
            // As kubeadm sets it.
            "--controllers=*,bootstrapsigner,tokencleaner".to_owned(),
        ];
        self.start_program(node, "kube-controller-manager", &arguments);
    }

    pub(crate) fn start_scheduler(&mut self, node: &Node) {
        let file = |flag: &str, name: &str| format!("--{flag}={}", self.path(name));
        let arguments = [
            file("kubeconfig", "admin.conf"),
            file("authentication-kubeconfig", "admin.conf"),
            file("authorization-kubeconfig", "admin.conf"),
            file("cert-dir", "run"),
            "--bind-address=127.0.0.1".to_owned(),
            "--leader-elect=false".to_owned(),
        ];
        self.start_program(node, "kube-scheduler", &arguments);
    }

    /// Leads connections of pods to the API server, as kube-proxy does.
    pub(crate) fn serve_cluster_ip(&self, node: &Node) {
        let (service, target) = (SERVICE.to_string(), format!("{ADDRESS}:6443"));
        let rule = ["-d", &service, "-p", "tcp", "--dport", "443", "-j", "DNAT", "--to-destination", &target];
        node.enclosure().run(&[&["iptables", "-t", "nat", "-A", "PREROUTING"][..], &rule].concat());
    }

    pub(crate) fn kubectl_command(&self, node: &Node, kubeconfig: &Path, arguments: &[&str]) -> Command {
        let mut command = node.enclosure().command(self.assets.program("kubectl"));
        command.env("HOME", &self.folder).env("KUBECONFIG", kubeconfig).args(arguments);
        command
    }

    /// Another program that uses kubectl as administrator.
    pub(crate) fn command(&self, node: &Node, program: &str) -> Command {
        let mut command = node.enclosure().command(program);
        command.env("HOME", &self.folder).env("KUBECONFIG", self.folder.join("admin.conf"));
        command
    }

    pub(crate) fn admin_kubectl(&self, node: &Node, arguments: &[&str]) -> Command {
        self.kubectl_command(node, &self.folder.join("admin.conf"), arguments)
    }

    /// Runs kubectl as administrator and returns its output, even after a failure.
    pub(crate) fn try_kubectl(&self, node: &Node, arguments: &[&str]) -> Output {
        self.admin_kubectl(node, arguments).output().unwrap()
    }

    /// The last log lines of the programs.
    fn logs(&self) -> String {
        let names = ["kube-apiserver", "kube-controller-manager", "kube-scheduler"];
        let ends = names.iter().map(|name| {
            let text = fs::read_to_string(self.folder.join(format!("{name}.log"))).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            format!("--- {name} ends:\n{}\n", lines[lines.len().saturating_sub(15)..].join("\n"))
        });
        ends.collect()
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.logs());
        }
    }
}

/// The user of a kubeconfig.
pub(crate) enum User<'a> {
    Token(&'a str),
    Certificate(&'a Certified),
}

pub(crate) fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}
