//! flanneld, with the endpoint in place of the API server.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{Cluster, Process, cluster_for, create_account, kubeconfig, reboot_without_the_server, run_pod};
use crate::containerd::node::NODE_NAME;
use crate::real_apiserver::control_plane::Assets;
use crate::wait::wait;

/// Until flanneld has written its file. It waits 30 s for a write that the server refuses, and exits.
const FLANNEL_START_TIMEOUT: Duration = Duration::from_secs(20);

/// What kube-flannel.yml has.
fn rules() -> Value {
    json!([
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]},
    ])
}

struct Flannel {
    program: PathBuf,
    token: String,
    /// The backend in `net-conf.json`.
    backend: &'static str,
}

impl Flannel {
    /// As kube-flannel.yml starts it.
    fn start(&self, cluster: &Cluster) -> Process {
        let folder = cluster.node.folder();
        let config = folder.join("net-conf.json");
        let network = json!({"Network": "10.244.0.0/16", "EnableNFTables": false, "Backend": {"Type": self.backend}});
        fs::write(&config, network.to_string()).unwrap();
        let arguments = [
            "--kube-subnet-mgr",
            "--ip-masq",
            "--iface=cni0",
            &format!("--kubeconfig-file={}", kubeconfig(cluster, &self.token).display()),
            &format!("--net-config-path={}", config.display()),
            &format!("--subnet-file={}", subnet_file(folder).display()),
        ];
        let environment = ["POD_NAME=flannel", "POD_NAMESPACE=default"].map(str::to_owned);
        let log = folder.join("flanneld.log");
        cluster.node.enclosure().start_with(&environment, &self.program, &arguments, &log)
    }

    /// Waits until the CNI plugin may start, and returns how long that took.
    #[track_caller]
    fn wait_until_ready(&self, cluster: &Cluster, process: &mut Process) -> Duration {
        let (begin, file) = (Instant::now(), subnet_file(cluster.node.folder()));
        wait(|| {
            assert_eq!(process.ended(), None, "flanneld has ended: {}", log(cluster));
            match fs::read_to_string(&file) {
                Ok(text) if text.contains("FLANNEL_SUBNET=10.244.1.1/24\n") => Ok(()),
                other => Err(format!("{other:?} in subnet.env; {}", log(cluster))),
            }
        });
        begin.elapsed()
    }

    /// Adds a node with this number in its addresses.
    fn add_node(&self, cluster: &Cluster, number: u8) {
        let data = match self.backend {
            "vxlan" => format!("{{\"VNI\":1,\"VtepMAC\":\"0a:00:00:00:00:{number:02x}\"}}"),
            _ => "null".to_owned(),
        };
        cluster.apply(&json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("node-{number}"), "annotations": {
                "flannel.alpha.coreos.com/backend-data": data,
                "flannel.alpha.coreos.com/backend-type": self.backend,
                "flannel.alpha.coreos.com/kube-subnet-manager": "true",
                "flannel.alpha.coreos.com/public-ip": format!("10.88.255.{number}"),
            }},
            "spec": {"podCIDR": format!("10.244.{number}.0/24"), "podCIDRs": [format!("10.244.{number}.0/24")]},
        }));
    }

    #[track_caller]
    fn wait_for_route(&self, cluster: &Cluster, number: u8) {
        let way = match self.backend {
            "vxlan" => format!("10.244.{number}.0/24 via 10.244.{number}.0 dev flannel.1 onlink"),
            _ => format!("10.244.{number}.0/24 via 10.88.255.{number} dev cni0"),
        };
        wait(|| {
            let routes = cluster.node.enclosure().run(&["ip", "route"]);
            if routes.contains(&way) { Ok(()) } else { Err(format!("{routes} instead of {way}; {}", log(cluster))) }
        });
    }

    /// What a reboot loses.
    fn forget_network(&self, cluster: &Cluster) {
        fs::remove_file(subnet_file(cluster.node.folder())).unwrap();
        match self.backend {
            "vxlan" => cluster.node.enclosure().run(&["ip", "link", "delete", "flannel.1"]),
            _ => cluster.node.enclosure().run(&["ip", "route", "delete", "10.244.2.0/24"]),
        };
    }
}

fn subnet_file(folder: &Path) -> PathBuf {
    folder.join("subnet.env")
}

fn log(cluster: &Cluster) -> String {
    let log = fs::read_to_string(cluster.node.folder().join("flanneld.log")).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}

fn annotations(cluster: &Cluster) -> Value {
    cluster.get(&["node", NODE_NAME])["metadata"]["annotations"].clone()
}

#[track_caller]
fn check(test: &str, backend: &'static str) {
    let Some(assets) = Assets::find(test, &["flanneld"]) else { return };
    let program = assets.program("flanneld");
    let mut cluster = cluster_for(assets, "kube-flannel/flannel");
    let token = create_account(&cluster, "kube-flannel", "flannel", &rules());
    let flannel = Flannel { program, token, backend };
    // Its pod, which names the node.
    run_pod(&cluster, "flannel");
    let subnet = json!({"spec": {"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24"]}}).to_string();
    cluster.kubectl(&["patch", "node", NODE_NAME, "--patch", &subnet]);
    flannel.add_node(&cluster, 2);
    let mut process = flannel.start(&cluster);
    flannel.wait_until_ready(&cluster, &mut process);
    flannel.wait_for_route(&cluster, 2);
    let first = cluster.wait("the annotations of flannel", || {
        Some(annotations(&cluster)).filter(|all| all["flannel.alpha.coreos.com/backend-type"] == backend)
    });

    cluster.node.stop_agent(Signal::SIGTERM);
    reboot_without_the_server(&mut cluster, process);
    flannel.forget_network(&cluster);
    let mut process = flannel.start(&cluster);
    let time = flannel.wait_until_ready(&cluster, &mut process);
    eprintln!("{backend}: flanneld has written subnet.env after {:.1} s", time.as_secs_f32());
    assert!(time < FLANNEL_START_TIMEOUT, "{time:?}");
    flannel.wait_for_route(&cluster, 2);

    // The server is back with another node. The other nodes know this one as before.
    cluster.plane.start_again(&cluster.node);
    flannel.add_node(&cluster, 3);
    flannel.wait_for_route(&cluster, 3);
    assert_eq!((process.ended(), annotations(&cluster)), (None, first));
}

#[test]
fn flannel_starts_with_vxlan_after_a_reboot_without_the_server() {
    check("flannel_starts_with_vxlan_after_a_reboot_without_the_server", "vxlan");
}

#[test]
fn flannel_starts_with_host_gw_after_a_reboot_without_the_server() {
    check("flannel_starts_with_host_gw_after_a_reboot_without_the_server", "host-gw");
}
