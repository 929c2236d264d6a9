//! The agents, each with its own folder, runtime, certificate and pod.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use jiff::Timestamp;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::certificates::Validity;
use crate::control_plane::{ControlPlane, User};
use crate::fake_cri::FakeCri;
use crate::identity::Identity;
use crate::node::{BUSYBOX, Node, Process, wait_for};

pub(crate) struct Fleet {
    // Dropped first: the agents exit before their runtimes.
    agents: Vec<Process>,
    _runtimes: Vec<FakeCri>,
}

/// The start of the fleet is not measured and may take long.
const PATIENCE: Duration = Duration::from_secs(600);
const PAUSE: Duration = Duration::from_millis(40);

impl Fleet {
    /// Starts the agents and waits until every node and its pod are ready.
    pub(crate) fn start(count: usize, plane: &ControlPlane, machine: &Node) -> Self {
        allow_many_files();
        if !plane.has_controllers() {
            kubectl(plane, machine, &["create", "serviceaccount", "default"], "");
            let authority = format!("--from-literal=ca.crt={}", plane.authority.pem());
            kubectl(plane, machine, &["create", "configmap", "kube-root-ca.crt", &authority], "");
        }
        let mut fleet = Self { agents: Vec::new(), _runtimes: Vec::new() };
        for number in 0..count {
            let runtime = FakeCri::start();
            runtime.add_image(BUSYBOX);
            fleet.agents.push(start_agent(number, &runtime, plane, machine));
            fleet._runtimes.push(runtime);
            std::thread::sleep(PAUSE);
        }
        wait_for("all nodes to be ready", PATIENCE, || {
            let nodes = kubectl(plane, machine, &["get", "nodes", "--no-headers"], "");
            (nodes.matches(" Ready ").count() == count).then_some(())
        });
        kubectl(plane, machine, &["create", "--filename", "-"], &pods(count));
        wait_for("all pods to run", PATIENCE, || {
            std::thread::sleep(Duration::from_secs(2));
            let pods = kubectl(plane, machine, &["get", "pods", "--no-headers"], "");
            (pods.matches(" 1/1 ").count() == count).then_some(())
        });
        fleet
    }

    /// Mean resident memory of an agent, in megabytes.
    pub(crate) fn memory(&self) -> f64 {
        let kilobytes = |agent: &Process| {
            let status = fs::read_to_string(format!("/proc/{}/status", agent.pid())).unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
            line.trim().trim_end_matches(" kB").parse::<f64>().unwrap_or_default()
        };
        self.agents.iter().map(kilobytes).sum::<f64>() * 1.024 / 1000.0 / self.agents.len() as f64
    }

    /// Checks that every agent still runs.
    pub(crate) fn check(mut self) {
        for agent in &mut self.agents {
            assert_eq!(agent.ended(), None, "an agent ended");
        }
    }
}

fn name(number: usize) -> String {
    format!("edge-{number}")
}

fn start_agent(number: usize, runtime: &FakeCri, plane: &ControlPlane, machine: &Node) -> Process {
    let name = name(number);
    let folder = machine.folder().join(&name);
    for part in ["manifests", "logs"] {
        fs::create_dir_all(folder.join(part)).unwrap();
    }
    let pair = plane.authority.issue_client(&Identity::node(&name), Validity::a_day(Timestamp::now()));
    fs::write(folder.join("kubeconfig"), plane.kubeconfig(&User::Certificate(&pair))).unwrap();
    fs::write(folder.join("resolv.conf"), "nameserver 192.0.2.53\n").unwrap();
    let path = |part: &str| folder.join(part).display().to_string();
    let config = format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nstaticPodPath: {}\npodLogsDir: {}\n\
         resolvConf: {}\nfailSwapOn: false\ncgroupsPerQOS: false\nenableServer: false\nhealthzPort: 0\n\
         imageGCHighThresholdPercent: 100\nevictionHard: {{}}\n",
        path("manifests"),
        path("logs"),
        path("resolv.conf")
    );
    fs::write(folder.join("config.yaml"), config).unwrap();
    let pairs = [
        ("--config", path("config.yaml")),
        ("--kubeconfig", path("kubeconfig")),
        ("--root-dir", path("pods")),
        ("--local-socket", path("coracle.sock")),
        ("--hostname-override", name),
        ("--container-runtime-endpoint", runtime.endpoint()),
    ];
    let mut arguments = vec!["--leave-kernel-parameters", "--make-iptables-util-chains=false"];
    arguments.extend(pairs.iter().flat_map(|(flag, value)| [*flag, value.as_str()]));
    machine.enclosure().start(Path::new(env!("CARGO_BIN_EXE_coracle")), &arguments, &folder.join("log"))
}

/// One pod for each node.
fn pods(count: usize) -> String {
    let mut list = String::new();
    for number in 0..count {
        let node = name(number);
        write!(
            list,
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: web-{node}}}\nspec:\n  nodeName: {node}\n  containers:\n  \
             - {{name: main, image: \"{BUSYBOX}\", imagePullPolicy: IfNotPresent}}\n"
        )
        .unwrap();
    }
    list
}

#[track_caller]
fn kubectl(plane: &ControlPlane, machine: &Node, arguments: &[&str], input: &str) -> String {
    let mut command = plane.kubectl_command(machine, &machine.folder().join("control-plane/admin.conf"), arguments);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let done = child.wait_with_output().unwrap();
    assert!(done.status.success(), "kubectl {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// Thousands of sockets are open at once.
fn allow_many_files() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).unwrap();
}
