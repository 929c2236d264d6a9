//! `coracle fleet` at a server with many nodes.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::joined::{Joined, NODE};
use super::node::Manifest;
use crate::fake_api::identity::Identity;
use crate::fake_api::kubeconfig::Credentials;
use crate::fake_api::{FakeApi, Options};

/// An operator's machine.
pub(super) struct Operator {
    pub(super) api: FakeApi,
    folder: PathBuf,
}

impl Operator {
    pub(super) fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("coracle-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let api = FakeApi::start(Options::default());
        api.kubeconfig(&folder, &Credentials::Certificate(Identity::admin()));
        Self { api, folder }
    }

    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// A node that renewed its lease so many seconds ago.
    pub(super) fn board(&self, name: &str, silent: i64) {
        let conditions = [json!({ "type": "Ready", "status": "True", "lastTransitionTime": ago(3600),
            "lastHeartbeatTime": ago(silent) })];
        self.api.create(&json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": name, "labels": { "site": name.split('-').next() } },
            "status": { "conditions": conditions, "nodeInfo": { "kubeletVersion": "v1.36.2+coracle-0.2.0" },
                // What makes Node objects large.
                "images": (0..50).map(|at| json!({ "names": [format!("registry.example/team/image-{at}@sha256:{at:064}"),
                    format!("registry.example/team/image-{at}:1.2.3")], "sizeBytes": 1 << 20 })).collect::<Vec<_>>() },
        }));
        self.api.create(&json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": name, "namespace": "kube-node-lease" },
            "spec": { "holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": micro(silent) },
        }));
    }

    /// Its lease as of so many seconds ago.
    pub(super) fn renew(&self, name: &str, silent: i64) {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}");
        self.api.patch(&path, &json!({ "spec": { "renewTime": micro(silent) } }));
    }

    pub(super) fn command(&self, line: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_coracle"));
        command.args(line).arg("--kubeconfig").arg(self.kubeconfig());
        command
    }

    pub(super) fn run(&self, line: &[&str]) -> Output {
        self.command(line).output().unwrap()
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

pub(super) fn ago(seconds: i64) -> String {
    Timestamp::from_second((Timestamp::now() - SignedDuration::from_secs(seconds)).as_second()).unwrap().to_string()
}

fn micro(seconds: i64) -> String {
    format!("{:.6}", Timestamp::now() - SignedDuration::from_secs(seconds))
}

pub(super) fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

#[test]
fn held_pods_are_an_annotation_of_the_node_until_they_are_confirmed() {
    let mut joined = Joined::new();
    joined.start("", &[]);
    joined.wait_until_ready();
    joined.node.apply(&Manifest::new("web").container("main", ""));
    crate::wait::wait_for("the pod to be held", || joined.node.ask(&["hold", "web"]).is_some());
    let annotation = |node: &Value, name: &str| node["metadata"]["annotations"][name].clone();
    let node = joined.api.wait(NODE, "the report", |node| !annotation(node, "coracle.dev/held").is_null());
    let held = annotation(&node, "coracle.dev/held");
    assert!(held.as_str().unwrap().starts_with("default/web-") && held.as_str().unwrap().ends_with(" held"), "{held}");
    joined.node.ask(&["confirm", "web"]);
    joined.api.wait(NODE, "nothing held", |node| annotation(node, "coracle.dev/held").is_null());
}

#[test]
fn fleet_of_five_hundred_nodes_is_listed_in_pages() {
    let operator = Operator::new("fleet-500");
    for at in 0..500 {
        operator.board(&format!("b-{at:03}"), if at == 7 { 7200 } else { 5 });
    }
    operator.api.patch(
        "/api/v1/nodes/b-003",
        &json!({ "metadata": { "annotations": {
        "coracle.dev/client-certificate-expires": ago(7200), "coracle.dev/held": "default/web",
    } } }),
    );
    let output = operator.run(&["fleet", "--traffic"]);
    let table = text(&output);
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 501, "{output:?}");
    assert_eq!(words(lines[1])[..3], ["b-000", "Ready", "0.2.0"]);
    assert_eq!(words(lines[8])[..4], ["b-007", "Asleep", "0.2.0", "120m"]);
    assert!(lines[4].contains("default/web") && lines[4].ends_with("client expired 120m ago"), "{}", lines[4]);
    assert_eq!(operator.api.count("list", "/api/v1/nodes"), 2, "two pages");
    let cost = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(cost.starts_with("4 requests, "), "{cost}");
    println!("500 nodes: {cost}");
    let json: Value = serde_json::from_slice(&operator.run(&["fleet", "-o", "json"]).stdout).unwrap();
    assert_eq!((json["boards"].as_array().unwrap().len(), &json["boards"][7]["asleep"]), (500, &json!(true)));
    assert_eq!(text(&operator.run(&["fleet", "-o", "name", "-l", "site=elsewhere"])), "");
}

#[test]
fn kubeconfig_files_of_the_environment_are_merged_and_the_context_is_chosen() {
    let operator = Operator::new("fleet-context");
    operator.board("harbour-1", 5);
    let other = operator.folder.join("other");
    let text_of_other = "apiVersion: v1\nkind: Config\ncurrent-context: elsewhere\n\
                         contexts: [{name: elsewhere, context: {cluster: elsewhere}}]\n\
                         clusters: [{name: elsewhere, cluster: {server: 'http://127.0.0.1:1'}}]\n";
    std::fs::write(&other, text_of_other).unwrap();
    let list = |context: &[&str], paths: &[&Path]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_coracle"));
        command.args(["fleet", "-o", "name"]).args(context).env("KUBECONFIG", std::env::join_paths(paths).unwrap());
        command.output().unwrap()
    };
    let (missing, own) = (Path::new("/nowhere/config"), operator.kubeconfig());
    assert_eq!(text(&list(&[], &[missing, &own])), "node/harbour-1\n");
    assert_eq!(text(&list(&["--context", "default-context"], &[&other, &own])), "node/harbour-1\n");
    let refused = list(&["--context", "x"], &[&own]);
    let line = format!("coracle: fleet: {}: context \"x\" not found\n", own.display());
    assert_eq!((refused.status.code(), String::from_utf8_lossy(&refused.stderr).as_ref()), (Some(1), line.as_str()));
}
