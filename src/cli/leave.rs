//! `coracle leave`: takes this machine out of its cluster.

use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use serde_json::json;

use super::commands::Leave;
use super::layout::Layout;
use super::service::{self, Service};
use super::{failed, print};
use crate::kubelet::certificates::{Store, node_of_kubeconfig};
use crate::platform::apiserver::{Access, Client, Request, Source};
use crate::platform::net::Dialer;
use crate::platform::rt;
use crate::types::error::ErrorChain;

pub(super) fn run(command: &Leave) -> ExitCode {
    let layout = Layout { kubernetes_dir: command.kubernetes_dir.clone(), root_dir: command.root_dir.clone() };
    let kubeconfig = layout.kubeconfig();
    // In memory before its files go.
    let node = node_of_kubeconfig(&kubeconfig);
    let access = Access::load(&kubeconfig).map_err(|error| ErrorChain(&error).to_string());
    let mut report = Report::default();
    remove_files(&layout, &mut report);
    if report.removed == 0 && report.failures.is_empty() {
        return failed(&format!("leave: this machine is no node of a cluster: no {}", kubeconfig.display()));
    }
    if !command.no_restart {
        // Before the cluster is told: an agent that still runs as its node would renew the lease.
        restart(&mut report);
    }
    // An agent that was still there may have written it once more.
    remove_store(&layout, &mut report);
    match (node, access) {
        (Some(node), Ok(access)) => rt::block_on(tell_cluster(&node, access, command.delete_node, &mut report)),
        (None, Ok(_)) => report.failed("lease and node are left in the cluster: the kubeconfig names no node"),
        (_, Err(error)) => report.failed(&format!("lease and node are left in the cluster: {error}")),
    }
    match report.failures.first() {
        None => ExitCode::SUCCESS,
        Some(line) => failed(&format!("leave: {line}")),
    }
}

/// What was done, told as it is done, and what was not.
#[derive(Debug, Default)]
struct Report {
    removed: usize,
    failures: Vec<String>,
}

impl Report {
    fn say(line: &str) {
        // Who does not read on is told by the exit code.
        let _ = print(&format!("{line}\n"));
    }

    fn failed(&mut self, line: &str) {
        if !self.failures.is_empty() {
            Self::say(line);
        }
        self.failures.push(line.to_owned());
    }

    fn remove(&mut self, path: &Path) {
        match fs::remove_file(path) {
            Ok(()) => {
                self.removed += 1;
                Self::say(&format!("removed: {}", path.display()));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => self.failed(&format!("remove {}: {error}", path.display())),
        }
    }
}

fn remove_files(layout: &Layout, report: &mut Report) {
    report.remove(&layout.flags());
    report.remove(&layout.kubeconfig());
    report.remove(&layout.bootstrap_kubeconfig());
    for prefix in ["kubelet-client", "kubelet-server"] {
        match Store::new(layout.pki(), prefix).files() {
            Ok(files) => files.iter().for_each(|file| report.remove(file)),
            Err(error) => report.failed(&ErrorChain(&error).to_string()),
        }
    }
    for name in ["kubelet.crt", "kubelet.key"] {
        report.remove(&layout.pki().join(name));
    }
    report.remove(&layout.config());
    // A control plane has it for others, too.
    if !layout.authority_key().exists() {
        report.remove(&layout.authority());
    }
}

/// What was stored of the cluster's pods is for nobody any more; the key stays.
fn remove_store(layout: &Layout, report: &mut Report) {
    let folder = layout.offline_store();
    match fs::remove_dir_all(&folder) {
        Ok(()) => Report::say(&format!("removed: {}", folder.display())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => report.failed(&format!("remove {}: {error}", folder.display())),
    }
}

fn restart(report: &mut Report) {
    match service::restart() {
        Service::Restarted => Report::say("restarted: coracle.service; pods from manifests go on"),
        Service::None => Report::say("there is no service of systemd here: start coracle anew without its cluster"),
        Service::Failed(error) => report.failed(&error),
    }
}

/// Takes back what the node has in the cluster.
async fn tell_cluster(node: &str, access: Access, delete_node: bool, report: &mut Report) {
    let client = Client::new(Source::Given(Box::new(access)), Dialer::new());
    let lease = format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}");
    delete(&client, "lease", &lease, node, report).await;
    if delete_node {
        delete(&client, "node", &format!("/api/v1/nodes/{node}"), node, report).await;
    } else {
        Report::say(&format!("the cluster still has node {node}: kubectl delete node {node}"));
    }
}

async fn delete(client: &Client, kind: &str, path: &str, name: &str, report: &mut Report) {
    match client.send(&Request::delete(path, &json!({}))).await {
        Ok(_) => Report::say(&format!("deleted in the cluster: {kind} {name}")),
        Err(error) if error.is_not_found() => {}
        // As kubeadm sets up a cluster, a node may take back its lease, and not itself.
        Err(error) if error.is_forbidden() => {
            Report::say(&format!("the cluster does not let a node delete this: kubectl delete {kind} {name}"));
        }
        Err(error) => report.failed(&format!("{kind} {name} is left in the cluster: {}", ErrorChain(&error))),
    }
}
