//! The examples of re-enrolment as an operator applies them: the controllers start the approver in a pod of a node.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::certificates::from_pem;
use super::cluster::{Cluster, condition};
use super::control_plane::{ADDRESS, Assets};
use super::der;
use super::node::{NODE_NAME, Process, coracle, images, settings};
use crate::fake_cri::FakeCri;

/// What the example has in place of an image, and the image of the test.
const PLACEHOLDER: &str = "registry.example.com/kubectl-openssl:1";
const IMAGE: &str = "localhost/coracle/approver:1";
const ACCOUNT: &str = "system:serviceaccount:kube-system:coracle-reenrolment";
/// The server takes almost any name, and kubectl takes this one for a flag that never ends.
const NAME_LIKE_A_FLAG: &str = "--watch";

/// An agent of the cluster with a runtime that runs nothing. It shares the network of the cluster's node.
struct Board {
    name: &'static str,
    folder: PathBuf,
    runtime: FakeCri,
    agent: Option<Process>,
}

impl Board {
    fn new(cluster: &Cluster, name: &'static str) -> Self {
        let folder = cluster.node.folder().join(name);
        for part in ["manifests", "pods", "logs"] {
            fs::create_dir_all(folder.join(part)).unwrap();
        }
        fs::write(folder.join("resolv.conf"), "nameserver 192.0.2.53\n").unwrap();
        // The node of the cluster has the ports.
        let more = "enableServer: false\nhealthzPort: 0\nnodeLeaseDurationSeconds: 4\nrotateCertificates: true\n\
                    imageGCHighThresholdPercent: 100\nevictionHard: {}\n";
        fs::write(folder.join("config.yaml"), settings::configuration(&folder, more)).unwrap();
        fs::write(folder.join("coracle.yaml"), "reenrolment:\n  secret: kube-system/coracle-reenrolment\n").unwrap();
        Self { name, folder, runtime: FakeCri::start(), agent: None }
    }

    fn start(&mut self, cluster: &Cluster) {
        let path = |name: &str| self.folder.join(name).display().to_string();
        let pairs = [
            ("--hostname-override", self.name.to_owned()),
            ("--node-ip", ADDRESS.to_string()),
            ("--kubeconfig", path("kubelet.conf")),
            ("--bootstrap-kubeconfig", cluster.node.folder().join("bootstrap.conf").display().to_string()),
            ("--coracle-config", path("coracle.yaml")),
        ];
        let mut arguments = settings::arguments(&self.folder, &self.runtime.endpoint());
        arguments.push("--make-iptables-util-chains=false".to_owned());
        arguments.extend(pairs.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.agent = Some(cluster.node.enclosure().start(coracle(), &arguments, &self.folder.join("log")));
    }

    fn kill(&mut self) {
        if let Some(agent) = self.agent.take() {
            agent.end(Signal::SIGKILL);
        }
    }

    /// The kubeconfig with the token that all boards share.
    fn kubeconfig(&self) -> PathBuf {
        self.folder.join("pods/coracle/reenrolment/kubeconfig")
    }

    /// Whether the board can come back without hands after its certificate has expired.
    fn is_prepared(&self, cluster: &Cluster) -> bool {
        let key = |node: &Value| !node["metadata"]["annotations"]["coracle.dev/reenrolment-key"].is_null();
        cluster.try_get(&["node", self.name]).is_some_and(|node| key(&node)) && self.kubeconfig().exists()
    }

    /// The request that the board has made with the token.
    fn request(&self, cluster: &Cluster) -> Option<Value> {
        let requests = cluster.get(&["certificatesigningrequests"]);
        let requests = requests["items"].as_array().unwrap().iter();
        let user = Some(format!("system:node:{}", self.name));
        let mut own = requests.filter(|request| {
            let text = STANDARD.decode(request["spec"]["request"].as_str().unwrap()).unwrap();
            let asked = der::certificate_request(&from_pem(std::str::from_utf8(&text).unwrap()).unwrap()).unwrap();
            request["spec"]["username"] == ACCOUNT && asked.subject.common_name == user
        });
        own.find(|request| request["metadata"]["name"] != NAME_LIKE_A_FLAG).cloned()
    }

    fn lease(&self, cluster: &Cluster) -> Value {
        cluster.get(&["--namespace=kube-node-lease", "lease", self.name])["spec"]["renewTime"].clone()
    }
}

/// What the documentation tells the operator to do in the cluster.
fn install(cluster: &Cluster, image: &Path) {
    cluster.node.ctr(&["images", "import", &image.display().to_string()]);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/reenrolment");
    let path = |name: &str| folder.join(name).display().to_string();
    cluster.kubectl(&["apply", "-f", &path("reenrolment.yaml")]);
    let script = format!("--from-file={}", path("approve.sh"));
    cluster.kubectl(&["-n", "kube-system", "create", "configmap", "coracle-approver", &script]);
    let approver = fs::read_to_string(path("approver.yaml")).unwrap();
    assert!(approver.contains(PLACEHOLDER));
    cluster.kubectl_with(&["apply", "-f", "-"], &approver.replace(PLACEHOLDER, IMAGE));
    cluster.kubectl(&["apply", "-f", &path("stolen-boards.yaml")]);
}

fn approver_image(kubectl: &Path) -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/images");
    let made = Command::new(script).arg(images()).env("KUBECTL", kubectl).status().unwrap();
    assert!(made.success(), "scripts/images could not make the image of the approver");
    images().join("approver.tar")
}

/// The output of the approver's pods that exist. None of them is on a board.
#[track_caller]
fn output_of_approvers(cluster: &Cluster) -> String {
    let pods = cluster.get(&["--namespace=kube-system", "pods"]);
    let output = pods["items"].as_array().unwrap().iter().map(|pod| {
        let node = pod["spec"]["nodeName"].as_str();
        assert!(node.is_none_or(|node| node == NODE_NAME), "on {node:?}");
        let name = pod["metadata"]["name"].as_str().unwrap();
        let done = cluster.plane.try_kubectl(&cluster.node, &["--namespace=kube-system", "logs", name]);
        String::from_utf8_lossy(&done.stdout).into_owned()
    });
    output.collect()
}

/// Runs the approver once more, and returns its output.
#[track_caller]
fn run_approver(cluster: &Cluster, name: &str) -> String {
    let of_kube_system = |arguments: &[&str]| cluster.kubectl(&[&["--namespace=kube-system"], arguments].concat());
    of_kube_system(&["create", "job", "--from=cronjob/coracle-approver", name]);
    let job = format!("job/{name}");
    of_kube_system(&["wait", "--for=condition=complete", &job, "--timeout=60s"]);
    of_kube_system(&["logs", &job])
}

#[test]
fn cron_job_brings_expired_board_back_and_not_stolen_one() {
    let test = "cron_job_brings_expired_board_back_and_not_stolen_one";
    let Some(assets) = Assets::find(test, &["kube-controller-manager", "kube-scheduler"]) else { return };
    let image = approver_image(&assets.program("kubectl"));
    let mut cluster = Cluster::new(assets);
    cluster.plane.serve_cluster_ip(&cluster.node);
    install(&cluster, &image);
    cluster.node.start_agent();
    cluster.wait_until_ready();
    // As kubeadm does.
    cluster.kubectl(&["label", "node", NODE_NAME, "node-role.kubernetes.io/control-plane="]);
    cluster.start_scheduler();
    let [mut board, mut stolen] = ["edge-1", "edge-7"].map(|name| Board::new(&cluster, name));
    for one in [&mut board, &mut stolen] {
        one.start(&cluster);
    }
    for one in [&mut board, &mut stolen] {
        cluster.wait("the board to have key and token", || one.is_prepared(&cluster).then_some(()));
        one.kill();
        cluster.expire_certificate(one.name, &one.folder.join("pods"));
    }

    // The token of the join has ended, and one of the boards is known as stolen. The other one comes back.
    cluster.kubectl(&["--namespace=kube-system", "delete", "secret", "bootstrap-token-abcdef"]);
    let listed = json!({"data": {stolen.name: "stolen"}}).to_string();
    let list = ["-n", "kube-system", "patch", "configmap", "coracle-stolen-boards", "--type", "merge", "-p", &listed];
    cluster.kubectl(&list);
    stolen.start(&cluster);
    let thief = cluster.wait("the request of the stolen board", || stolen.request(&cluster));
    let mut obstacle = thief.clone();
    obstacle["metadata"] = json!({"name": NAME_LIKE_A_FLAG});
    obstacle.as_object_mut().unwrap().remove("status");
    let kubeconfig = stolen.kubeconfig();
    let create = ["--kubeconfig", kubeconfig.to_str().unwrap(), "create", "-f", "-"];
    cluster.kubectl_with(&create, &obstacle.to_string());
    let before = board.lease(&cluster);
    board.start(&cluster);
    cluster.wait("the lease to be renewed", || (board.lease(&cluster) != before).then_some(()));
    let request = board.request(&cluster).unwrap();
    let approved = format!("approved {} for node {}\n", request["metadata"]["name"].as_str().unwrap(), board.name);
    cluster.wait("the output of the approver", || output_of_approvers(&cluster).contains(&approved).then_some(()));
    cluster.wait("the board to be ready", || {
        let node = cluster.get(&["node", board.name]);
        (condition(&node, "Ready")["status"] == "True").then_some(())
    });

    // The stolen one does not, neither after the first half of the documented command nor after the second.
    assert_eq!(run_approver(&cluster, "listed"), "");
    cluster.kubectl(&["delete", "node", stolen.name]);
    assert_eq!(run_approver(&cluster, "deleted"), "");
    assert_eq!(stolen.request(&cluster).unwrap()["status"], json!({}));
    assert!(cluster.try_get(&["node", stolen.name]).is_none());
    cluster.assert_that_nothing_was_forbidden();
}
