//! kubeadm takes the node into a cluster, upgrades it, and takes it out again.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use serde_json::json;

use super::cluster::{Cluster, condition};
use super::control_plane::{ADDRESS, Assets};
use super::node::{BUSYBOX, NODE_NAME, coracle};

const SYSTEMCTL: &str = include_str!("systemctl.sh");
const KUBELET_FOLDER: &str = "/var/lib/kubelet";

/// A machine with kubeadm and the service `kubelet`, which is not in the cluster yet.
struct Machine {
    cluster: Cluster,
    kubeadm: PathBuf,
}

impl Machine {
    fn new(assets: Assets) -> Self {
        let kubeadm = assets.program("kubeadm");
        let machine = Self { cluster: Cluster::with_defaults(assets), kubeadm };
        machine.cover(&["/etc/kubernetes", KUBELET_FOLDER]);
        machine.install_service();
        machine
    }

    fn folder(&self) -> &Path {
        self.cluster.node.folder()
    }

    fn run(&self, line: &[&str]) -> String {
        self.cluster.node.enclosure().run(line)
    }

    /// Mounts a tmpfs over folders that kubeadm writes. Mounts of another kubelet of the machine are not seen below them:
    /// `kubeadm reset` would fail on these.
    fn cover(&self, folders: &[&str]) {
        for folder in folders {
            fs::create_dir_all(folder).unwrap();
            let below = format!("awk '$2 ~ \"^{folder}/\" {{ print $2 }}' /proc/self/mounts | tac");
            self.run(&["sh", "-ec", &format!("for mount in $({below}); do umount -l $mount; done")]);
            self.run(&["mount", "-t", "tmpfs", "tmpfs", folder]);
        }
    }

    fn install_service(&self) {
        let programs = self.cluster.node.enclosure().programs();
        fs::create_dir_all(&programs).unwrap();
        symlink(coracle(), programs.join("kubelet")).unwrap();
        // `cross/package` puts these into the package coracle-kubelet.
        let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd");
        let (unit, drop_in) = (files.join("kubelet.service"), files.join("kubelet.service.d/10-kubeadm.conf"));
        let socket = self.folder().join("coracle.sock");
        let extra = format!(
            "--node-ip={ADDRESS} --local-socket={} --leave-kernel-parameters --make-iptables-util-chains=false",
            socket.display()
        );
        let text = SYSTEMCTL
            .replace("@FOLDER@", &self.folder().display().to_string())
            .replace("@UNIT@", &unit.display().to_string())
            .replace("@DROP_IN@", &drop_in.display().to_string())
            .replace("@EXTRA_ARGS@", &extra);
        fs::write(programs.join("systemctl"), text).unwrap();
        fs::set_permissions(programs.join("systemctl"), fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn kubeadm(&self, arguments: &str) -> String {
        let line = format!("exec {} {arguments}", self.kubeadm.display());
        self.run(&["sh", "-ec", &line])
    }

    fn admin(&self) -> String {
        format!("--kubeconfig {}", self.folder().join("control-plane/admin.conf").display())
    }

    /// Creates what `kubeadm init` creates in a cluster, and returns the command line for joining.
    fn prepare_joins(&self) -> String {
        let folder = self.folder().display();
        let version = self.kubeadm("version -o short");
        let settings = format!(
            "apiVersion: kubeadm.k8s.io/v1beta4\n\
             kind: InitConfiguration\n\
             localAPIEndpoint: {{advertiseAddress: {ADDRESS}}}\n\
             nodeRegistration: {{name: {NODE_NAME}, criSocket: '{}'}}\n\
             ---\n\
             apiVersion: kubeadm.k8s.io/v1beta4\n\
             kind: ClusterConfiguration\n\
             kubernetesVersion: {}\n\
             controlPlaneEndpoint: {ADDRESS}:6443\n\
             ---\n\
             apiVersion: kubelet.config.k8s.io/v1beta1\n\
             kind: KubeletConfiguration\n\
             cgroupDriver: cgroupfs\n\
             cgroupsPerQOS: false\n\
             enforceNodeAllocatable: []\n\
             failCgroupV1: false\n\
             failSwapOn: false\n\
             podLogsDir: {folder}/logs\n\
             resolvConf: {folder}/resolv.conf\n",
            self.runtime_endpoint(),
            version.trim(),
        );
        let file = self.folder().join("init.yaml");
        fs::write(&file, settings).unwrap();
        let settings = format!("--config {} {}", file.display(), self.admin());
        self.kubeadm(&format!("init phase upload-config all {settings}"));
        self.kubeadm(&format!("init phase bootstrap-token {settings}"));
        let line = self.kubeadm(&format!("token create --print-join-command {}", self.admin()));
        line.trim().strip_prefix("kubeadm ").unwrap().to_owned()
    }

    fn runtime_endpoint(&self) -> String {
        format!("unix://{}", self.cluster.node.runtime_socket().display())
    }

    fn join(&self, line: &str) {
        let endpoint = self.runtime_endpoint();
        // The machine of the test may have swap, or the old cgroups.
        let checks = "--ignore-preflight-errors=all";
        self.kubeadm(&format!("{line} --node-name {NODE_NAME} --cri-socket {endpoint} {checks}"));
    }

    fn entries_of(&self, folder: &str) -> String {
        self.run(&["ls", "-A", folder])
    }

    #[track_caller]
    fn container_of(&self, pod: &str) -> String {
        let pod = self.cluster.wait_until_pod_is_ready(pod);
        pod["status"]["containerStatuses"][0]["containerID"].as_str().unwrap().to_owned()
    }
}

#[test]
fn kubeadm_joins_upgrades_and_resets_the_node() {
    let Some(assets) =
        Assets::find("kubeadm_joins_upgrades_and_resets_the_node", &["kubeadm", "kube-controller-manager"])
    else {
        return;
    };
    let machine = Machine::new(assets);
    let join = machine.prepare_joins();
    machine.join(&join);
    machine.cluster.wait_until_ready();
    machine.cluster.apply(&json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {"nodeName": NODE_NAME, "terminationGracePeriodSeconds": 0, "containers": [
            {"name": "main", "image": BUSYBOX, "command": ["sleep", "1000000"]}
        ]},
    }));
    let container = machine.container_of("web");

    machine.kubeadm("upgrade node --kubeconfig /etc/kubernetes/kubelet.conf --ignore-preflight-errors=all");
    let before = machine.cluster.get(&["--namespace=kube-node-lease", "lease", NODE_NAME])["spec"]["renewTime"].clone();
    machine.run(&["systemctl", "restart", "kubelet"]);
    machine.cluster.wait("the restarted kubelet to renew its lease", || {
        let lease = machine.cluster.try_get(&["--namespace=kube-node-lease", "lease", NODE_NAME])?;
        (lease["spec"]["renewTime"] != before).then_some(())
    });
    assert_eq!(machine.container_of("web"), container);

    machine.kubeadm(&format!("reset --force --cri-socket {}", machine.runtime_endpoint()));
    assert_eq!(machine.entries_of(KUBELET_FOLDER), "");
    assert!(!machine.entries_of("/etc/kubernetes").contains("kubelet.conf"));
    assert_eq!(machine.cluster.node.ctr(&["tasks", "list", "--quiet"]), "");

    machine.cluster.kubectl(&["delete", "node", NODE_NAME]);
    machine.cluster.kubectl(&["delete", "pod", "web", "--force", "--ignore-not-found"]);
    machine.join(&join);
    let node = machine.cluster.wait_until_ready();
    assert_eq!(condition(&node, "Ready")["status"], "True");
    machine.run(&["systemctl", "stop", "kubelet"]);
}
