//! An operator's commands for a fleet of five hundred boards.

use std::io::Write as _;
use std::process::{Child, Output, Stdio};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::control_plane::{Assets, ControlPlane};
use super::node::{Node, wait_for};

const BOARDS: usize = 500;
/// Their leases ended two hours ago.
const ASLEEP: usize = 10;
const URL: &str = "https://fleet.example/v2/coracle";
const FLEET_TIMEOUT: Duration = Duration::from_secs(300);

struct Fleet {
    plane: ControlPlane,
    /// Declared last: dropping the node ends everything else.
    node: Node,
}

impl Fleet {
    /// Nodes that no controller takes for gone, as nobody renews their leases.
    fn start(assets: Assets) -> Self {
        let node = Node::with_runtime();
        let plane = ControlPlane::without_controllers(assets, &node);
        let fleet = Self { plane, node };
        fleet.send(&["create", "-f", "-"], (0..BOARDS).map(board).collect());
        fleet.send(&["replace", "--subresource=status", "-f", "-"], (0..BOARDS).map(board).collect());
        fleet.send(&["create", "-f", "-"], (0..BOARDS).map(lease).collect());
        fleet.kubectl(&["create", "namespace", "coracle"]);
        fleet
    }

    #[track_caller]
    fn kubectl(&self, arguments: &[&str]) -> String {
        stdout(&self.plane.try_kubectl(&self.node, arguments))
    }

    /// Passes objects on to kubectl.
    #[track_caller]
    fn send(&self, arguments: &[&str], items: Vec<Value>) {
        let mut kubectl = self.plane.admin_kubectl(&self.node, arguments);
        let mut kubectl = kubectl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": items });
        kubectl.stdin.take().unwrap().write_all(list.to_string().as_bytes()).unwrap();
        stdout(&kubectl.wait_with_output().unwrap());
    }

    fn coracle(&self, arguments: &[&str]) -> Child {
        let mut coracle = self.plane.command(&self.node, env!("CARGO_BIN_EXE_coracle"));
        coracle.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// The boards that were asked for the update take it.
    fn update_asked_boards(&self) {
        let nodes: Value = serde_json::from_str(&self.kubectl(&["get", "nodes", "-o", "json"])).unwrap();
        let annotation = |node: &Value, name: &str| node["metadata"]["annotations"][name] == URL;
        let asked =
            nodes["items"].as_array().unwrap().iter().filter(|node| {
                annotation(node, "coracle.dev/upgrade") && !annotation(node, "coracle.dev/upgrade-tried")
            });
        let updated: Vec<Value> = asked.cloned().map(accepted).collect();
        if updated.is_empty() {
            return;
        }
        self.send(&["replace", "--subresource=status", "-f", "-"], updated);
    }
}

#[track_caller]
fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn name(number: usize) -> String {
    format!("board-{number:03}")
}

fn board(number: usize) -> Value {
    // What makes Node objects large.
    let image = |at: usize| {
        let image = format!("registry.example/team/image-{at}");
        json!({ "names": [format!("{image}@sha256:{at:064}"), format!("{image}:1.2.3")], "sizeBytes": 1 << 20 })
    };
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": name(number) },
        "status": { "images": (0..50).map(image).collect::<Vec<_>>(), "conditions": [ready()],
            "nodeInfo": { "kubeletVersion": "v1.36.2+coracle-0.2.0", "kubeProxyVersion": "", "architecture": "arm64",
                "operatingSystem": "linux", "osImage": "Debian", "kernelVersion": "6.12.0",
                "containerRuntimeVersion": "containerd://2.1.9", "bootID": "b", "machineID": "m", "systemUUID": "s" } },
    })
}

fn ready() -> Value {
    json!({ "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready",
        "lastHeartbeatTime": ago(5), "lastTransitionTime": ago(3600) })
}

fn accepted(mut node: Value) -> Value {
    // The status brings the metadata along, so one request reports both.
    let annotations = json!({ "coracle.dev/upgrade": URL, "coracle.dev/upgrade-tried": URL });
    node["metadata"] = json!({ "name": node["metadata"]["name"], "annotations": annotations });
    node["status"]["conditions"] = json!([ready(), { "type": "AgentUpgraded", "status": "True",
        "reason": "Accepted", "message": "version 0.3.0 (3f2a91c04b7d) accepted", "lastTransitionTime": ago(0) }]);
    node
}

fn lease(number: usize) -> Value {
    let (seconds, renewed) = if number < ASLEEP { (40, 7200) } else { (3600, 0) };
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": name(number), "namespace": "kube-node-lease" },
        "spec": { "holderIdentity": name(number), "leaseDurationSeconds": seconds,
            "renewTime": format!("{:.6}", Timestamp::now() - SignedDuration::from_secs(renewed)) },
    })
}

fn ago(seconds: i64) -> String {
    Timestamp::from_second(Timestamp::now().as_second() - seconds).unwrap().to_string()
}

#[test]
fn fleet_of_five_hundred_boards_is_shown_and_updated_in_steps() {
    let Some(assets) = Assets::find("fleet_of_five_hundred_boards_is_shown_and_updated_in_steps", &[]) else { return };
    let fleet = Fleet::start(assets);
    let shown = fleet.coracle(&["fleet", "--traffic"]).wait_with_output().unwrap();
    let table = stdout(&shown);
    let count = |status: &str| table.lines().filter(|line| line.split_whitespace().nth(1) == Some(status)).count();
    assert_eq!((count("Ready"), count("Asleep")), (BOARDS - ASLEEP, ASLEEP), "{table}");
    let cost = String::from_utf8_lossy(&shown.stderr).into_owned();
    assert!(cost.starts_with("4 requests, "), "{cost}");
    println!("{BOARDS} boards, fleet: {}", cost.trim_end());

    let line = ["rollout", "start", "agent-3", "--agent", URL, "--first", "5", "--interval", "2s", "--traffic"];
    let mut rollout = fleet.coracle(&line);
    wait_for("the rollout to end", FLEET_TIMEOUT, || {
        fleet.update_asked_boards();
        rollout.try_wait().unwrap().map(drop)
    });
    let ended = rollout.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    // What is left sleeps.
    assert_eq!(ended.status.code(), Some(3), "{said}");
    println!("{BOARDS} boards, rollout: {}", said.lines().last().unwrap_or_default());
    let status = stdout(&fleet.coracle(&["rollout", "status", "agent-3"]).wait_with_output().unwrap());
    assert!(status.contains("490 done, 0 changing, 0 failed, 10 asleep"), "{status}");
    let nodes =
        fleet.kubectl(&["get", "nodes", "-o", "jsonpath={.items[*].metadata.annotations.coracle\\.dev/upgrade}"]);
    assert_eq!(nodes.split_whitespace().filter(|url| *url == URL).count(), BOARDS - ASLEEP, "each board once");
}
