//! A cluster of one node: preparation for joining, and kubectl.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::certificates::{Validity, from_pem};
use super::control_plane::{ADDRESS, Assets, ControlPlane, User};
use super::der;
use super::identity::Identity;
use super::node::{NODE_NAME, Node};

pub(crate) const TOKEN: &str = "abcdef.0123456789abcdef";
/// Long enough for a busy machine.
pub(crate) const CLUSTER_TIMEOUT: Duration = Duration::from_secs(90);

pub(crate) struct Cluster {
    pub(crate) plane: ControlPlane,
    /// Declared last: dropping the node ends everything else.
    pub(crate) node: Node,
}

impl Cluster {
    /// A control plane that accepts joins, and a machine with a token. No agent runs yet. The lease is short, and the
    /// log has details.
    pub(crate) fn new(assets: Assets) -> Self {
        let mut cluster = Self::with(assets, "nodeLeaseDurationSeconds: 4\n");
        cluster.node.add_arguments(&["-v", "4"]);
        cluster
    }

    /// The same with the default lease and log.
    pub(crate) fn with_defaults(assets: Assets) -> Self {
        Self::with(assets, "")
    }

    fn with(assets: Assets, more: &str) -> Self {
        let mut node = Node::with_runtime();
        let plane = ControlPlane::start(assets, &node);
        let bootstrap = node.folder().join("bootstrap.conf");
        fs::write(&bootstrap, plane.kubeconfig(&User::Token(TOKEN))).unwrap();
        let clients = node.folder().join("clients.crt");
        fs::write(&clients, plane.authority.pem()).unwrap();
        node.configure_agent(&format!(
            "{more}rotateCertificates: true\nclusterDNS: [10.96.0.10]\nclusterDomain: cluster.local\n\
             port: 10250\nauthentication: {{x509: {{clientCAFile: {}}}, webhook: {{enabled: true}}}}\n\
             authorization: {{mode: Webhook}}\n",
            clients.display()
        ));
        let (kubeconfig, bootstrap) =
            (Self::kubeconfig_of(&node).display().to_string(), bootstrap.display().to_string());
        let address = ADDRESS.to_string();
        node.add_arguments(&["--kubeconfig", &kubeconfig, "--bootstrap-kubeconfig", &bootstrap]);
        node.add_arguments(&["--node-ip", &address, "--make-iptables-util-chains=false"]);
        let cluster = Self { plane, node };
        cluster.take_nodes_in();
        cluster
    }

    /// A cluster with a ready node.
    pub(crate) fn joined(assets: Assets) -> Self {
        let mut cluster = Self::new(assets);
        cluster.node.start_agent();
        cluster.wait_until_ready();
        cluster
    }

    /// Until then, pods have to name their node.
    pub(crate) fn start_scheduler(&mut self) {
        self.plane.start_scheduler(&self.node);
    }

    fn kubeconfig_of(node: &Node) -> PathBuf {
        node.folder().join("kubelet.conf")
    }

    /// Creates the objects that kubeadm creates for joining nodes.
    fn take_nodes_in(&self) {
        let (id, secret) = TOKEN.split_once('.').unwrap();
        let literal = |key: &str, value: &str| format!("--from-literal={key}={value}");
        self.kubectl(&[
            "--namespace=kube-system",
            "create",
            "secret",
            "generic",
            &format!("bootstrap-token-{id}"),
            "--type=bootstrap.kubernetes.io/token",
            &literal("token-id", id),
            &literal("token-secret", secret),
            &literal("usage-bootstrap-authentication", "true"),
        ]);
        let signer = "system:certificates.k8s.io:certificatesigningrequests";
        for (name, role, group) in [
            ("bootstrap", "system:node-bootstrapper".to_owned(), "system:bootstrappers"),
            ("approve-bootstrap", format!("{signer}:nodeclient"), "system:bootstrappers"),
            ("approve-rotation", format!("{signer}:selfnodeclient"), "system:nodes"),
        ] {
            let (role, group) = (format!("--clusterrole={role}"), format!("--group={group}"));
            self.kubectl(&["create", "clusterrolebinding", name, &role, &group]);
        }
        let authority = format!("--from-literal=ca.crt={}", self.plane.authority.pem());
        if !self.plane.has_controllers() {
            // A controller would create it.
            self.kubectl(&["create", "serviceaccount", "default"]);
            self.kubectl(&["create", "configmap", "kube-root-ca.crt", &authority]);
        }
        // OpenShift's builds project this config map into every pod, and their controller may already have created it.
        let authority = authority.replace("ca.crt=", "service-ca.crt=");
        self.plane.try_kubectl(&self.node, &["create", "configmap", "openshift-service-ca.crt", &authority]);
    }

    /// Waits for the node to be ready. Signs its serving certificate if no controller does.
    #[track_caller]
    pub(crate) fn wait_until_ready(&self) -> Value {
        self.wait("the node to be ready", || {
            if !self.plane.has_controllers() {
                self.sign_requests();
            }
            // Pods require the service account.
            self.try_get(&["serviceaccount", "default"])?;
            let node = self.try_get(&["node", NODE_NAME])?;
            (condition(&node, "Ready")["status"] == "True").then_some(node)
        })
    }

    /// Signs approved requests, as a controller does, with certificates of this validity. Approves none.
    pub(crate) fn sign_approved(&self, validity: Validity) {
        let requests = self.get(&["certificatesigningrequests"]);
        for request in requests["items"].as_array().unwrap().clone() {
            let conditions = request["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
            if request["status"]["certificate"].is_null() && conditions.iter().any(|one| one["type"] == "Approved") {
                self.sign(request, validity);
            }
        }
    }

    fn sign(&self, mut request: Value, validity: Validity) {
        let name = request["metadata"]["name"].as_str().unwrap().to_owned();
        let text = STANDARD.decode(request["spec"]["request"].as_str().unwrap()).unwrap();
        let asked = der::certificate_request(&from_pem(std::str::from_utf8(&text).unwrap()).unwrap()).unwrap();
        let usages: Vec<&str> =
            request["spec"]["usages"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        let certificate = self.plane.authority.sign(&asked, &usages, validity).unwrap();
        request["status"]["certificate"] = json!(STANDARD.encode(certificate));
        let path = format!("/apis/certificates.k8s.io/v1/certificatesigningrequests/{name}/status");
        self.kubectl_with(&["replace", "--raw", &path, "--filename", "-"], &request.to_string());
    }

    /// Replaces the client certificate of a node that does not run by one that has expired. `root` is its state directory.
    pub(crate) fn expire_certificate(&self, name: &str, root: &Path) {
        let identity = Identity::new(&format!("system:node:{name}"), &["system:nodes"]);
        let expired = self.plane.authority.issue_client(&identity, Validity::expired(Timestamp::now()));
        let pair = fs::canonicalize(root.join("pki/kubelet-client-current.pem")).unwrap();
        fs::write(pair, expired.certificate_pem() + &expired.key_pem()).unwrap();
    }

    fn sign_requests(&self) {
        let requests = self.get(&["certificatesigningrequests"]);
        for mut request in requests["items"].as_array().unwrap().clone() {
            if !request["status"]["certificate"].is_null() {
                continue;
            }
            let name = request["metadata"]["name"].as_str().unwrap().to_owned();
            self.kubectl(&["certificate", "approve", &name]);
            request = self.get(&["certificatesigningrequest", &name]);
            self.sign(request, Validity::a_day(Timestamp::now()));
        }
    }
}

// kubectl.
impl Cluster {
    /// The output of kubectl, which must succeed.
    #[track_caller]
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> String {
        succeeded(arguments, &self.plane.try_kubectl(&self.node, arguments))
    }

    /// kubectl as administrator.
    pub(crate) fn kubectl_process(&self, arguments: &[&str]) -> Command {
        let admin = self.node.folder().join("control-plane/admin.conf");
        self.plane.kubectl_command(&self.node, &admin, arguments)
    }

    /// Runs kubectl with this standard input.
    #[track_caller]
    pub(crate) fn kubectl_with(&self, arguments: &[&str], input: &str) -> String {
        let file = self.node.folder().join("control-plane/input");
        fs::write(&file, input).unwrap();
        let mut command = self.kubectl_process(arguments);
        command.stdin(Stdio::from(fs::File::open(&file).unwrap()));
        succeeded(arguments, &command.output().unwrap())
    }

    #[track_caller]
    pub(crate) fn apply(&self, object: &Value) {
        // The schemas may not be served yet.
        self.kubectl_with(&["apply", "--validate=false", "--filename", "-"], &object.to_string());
    }

    /// Runs kubectl with the node's credentials.
    pub(crate) fn kubectl_of_node(&self, arguments: &[&str]) -> Output {
        self.plane.kubectl_command(&self.node, &Self::kubeconfig_of(&self.node), arguments).output().unwrap()
    }

    /// The server's identity for a token.
    #[track_caller]
    pub(crate) fn whoami(&self, token: &str) -> String {
        let kubeconfig = self.node.folder().join("control-plane/token.conf");
        fs::write(&kubeconfig, self.plane.kubeconfig(&User::Token(token))).unwrap();
        let arguments = ["auth", "whoami"];
        succeeded(&arguments, &self.plane.kubectl_command(&self.node, &kubeconfig, &arguments).output().unwrap())
    }

    #[track_caller]
    pub(crate) fn get(&self, arguments: &[&str]) -> Value {
        let text = self.kubectl(&[&["get", "--output=json"], arguments].concat());
        serde_json::from_str(&text).unwrap()
    }

    /// The object; `None` if it does not exist.
    pub(crate) fn try_get(&self, arguments: &[&str]) -> Option<Value> {
        let done = self.plane.try_kubectl(&self.node, &[&["get", "--output=json"], arguments].concat());
        done.status.success().then(|| serde_json::from_slice(&done.stdout).unwrap())
    }

    #[track_caller]
    pub(crate) fn wait<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let until = Instant::now() + CLUSTER_TIMEOUT;
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(Instant::now() < until, "waited {CLUSTER_TIMEOUT:?} in vain for {what}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    #[track_caller]
    pub(crate) fn wait_until_pod_is_ready(&self, name: &str) -> Value {
        self.wait(&format!("pod {name} to be ready"), || {
            self.try_get(&["pod", name]).filter(|pod| condition(pod, "Ready")["status"] == "True")
        })
    }

    /// A file in a pod's volume, as seen by a process on the node.
    pub(crate) fn volume_file(&self, pod: &Value, plugin: &str, file: &str) -> Option<String> {
        let volumes = self.node.pod_folder(pod["metadata"]["uid"].as_str().unwrap()).join("volumes").join(plugin);
        let volumes = self.node.enclosure().path(&volumes);
        let names = fs::read_dir(volumes).into_iter().flatten().flatten();
        names.filter_map(|volume| fs::read_to_string(volume.path().join(file)).ok()).next()
    }

    /// Checks the agent's log for refusals by the server. A new pod's objects are exempt, because the server's node
    /// authorizer learns about the pod a moment later.
    #[track_caller]
    pub(crate) fn assert_that_nothing_was_forbidden(&self) {
        let log = self.node.agent_log();
        let is_early = |line: &str| line.contains("no relationship found");
        let line = log.lines().find(|line| line.contains("forbidden") && !is_early(line));
        assert_eq!(line, None);
    }
}

#[track_caller]
fn succeeded(arguments: &[&str], done: &Output) -> String {
    let error = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "kubectl {}: {}", arguments.join(" "), error.trim());
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// A condition of an object; null if the object has none of this type.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    conditions.iter().find(|condition| condition["type"] == kind).unwrap_or(&Value::Null)
}

pub(crate) fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}
