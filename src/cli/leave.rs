//! `coracle leave`: removes this machine from its cluster.

use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use serde_json::json;

use super::command_table::Leave;
use super::service::{self, Service};
use super::{failed, print};
use crate::kubelet::certificates::{ReenrolmentPaths, Store, node_of_kubeconfig};
use crate::kubelet::enrolment::Layout;
use crate::platform::apiserver::{Access, ExecCredentials, Request, SingleRequests};
use crate::platform::net::{Dialer, ProxySettings};
use crate::platform::rt;
use crate::types::error::ErrorChain;

pub(super) fn run(command: &Leave) -> ExitCode {
    let layout = Layout { kubernetes_dir: command.kubernetes_dir.clone(), root_dir: command.root_dir.clone() };
    let kubeconfig = layout.kubeconfig();
    // Read before its files are removed.
    let node = node_of_kubeconfig(&kubeconfig);
    let access = rt::block_on(ExecCredentials::default().access(&kubeconfig.as_path().into()));
    let access = access.map_err(|error| ErrorChain(&error).to_string());
    let mut report = Report::default();
    remove_files(&layout, &mut report);
    // An interrupted `leave` has removed the files, and not the store.
    if report.removed == 0 && report.failures.is_empty() && !layout.offline_store().exists() {
        return failed(&format!("leave: this machine is not a node of a cluster: no {}", kubeconfig.display()));
    }
    if !command.no_restart {
        // Before the lease is deleted: an agent still running as the node would renew it.
        restart(&mut report);
    }
    // The agent may have written the store again before it stopped.
    remove_store(&layout, &mut report);
    match (node, access) {
        (Some(node), Ok(access)) => rt::block_on(delete_from_cluster(&node, access, command.delete_node, &mut report)),
        (None, Ok(_)) => {
            report.failed("lease and node were not deleted from the cluster: the kubeconfig has no node name")
        }
        (_, Err(error)) => report.failed(&format!("lease and node were not deleted from the cluster: {error}")),
    }
    match report.failures.first() {
        None => ExitCode::SUCCESS,
        Some(line) => failed(&format!("leave: {line}")),
    }
}

/// Prints each step as it is done and collects failures.
#[derive(Debug, Default)]
struct Report {
    removed: usize,
    failures: Vec<String>,
}

impl Report {
    fn print_line(line: &str) {
        // If stdout is closed, the exit code still reports the result.
        let _ = print(&format!("{line}\n"));
    }

    fn failed(&mut self, line: &str) {
        if !self.failures.is_empty() {
            Self::print_line(line);
        }
        self.failures.push(line.to_owned());
    }

    fn remove(&mut self, path: &Path) {
        match fs::remove_file(path) {
            Ok(()) => {
                self.removed += 1;
                Self::print_line(&format!("removed: {}", path.display()));
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
    let reenrolment = ReenrolmentPaths::new(&layout.root_dir, None);
    report.remove(&reenrolment.kubeconfig());
    report.remove(&reenrolment.key());
    report.remove(&reenrolment.tpm_key());
    for name in ["kubelet.crt", "kubelet.key"] {
        report.remove(&layout.pki().join(name));
    }
    report.remove(&layout.config());
    // A control plane also needs it for other components.
    if !layout.authority_key().exists() {
        report.remove(&layout.authority());
    }
}

/// Removes the stored objects of the cluster; the key stays.
fn remove_store(layout: &Layout, report: &mut Report) {
    let folder = layout.offline_store();
    match fs::remove_dir_all(&folder) {
        Ok(()) => Report::print_line(&format!("removed: {}", folder.display())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => report.failed(&format!("remove {}: {error}", folder.display())),
    }
}

fn restart(report: &mut Report) {
    match service::restart() {
        Service::Restarted => Report::print_line("restarted: coracle.service; pods from manifests keep running"),
        Service::None => Report::print_line("no systemd service found: restart coracle without the cluster's flags"),
        Service::Failed(error) => report.failed(&error),
    }
}

/// Deletes the node's lease, and with `delete_node` the node.
async fn delete_from_cluster(node: &str, access: Access, delete_node: bool, report: &mut Report) {
    let client = SingleRequests::new(access, Dialer::of_server(ProxySettings::from_environment()));
    let lease = format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}");
    delete(&client, "lease", &lease, node, report).await;
    if delete_node {
        delete(&client, "node", &format!("/api/v1/nodes/{node}"), node, report).await;
    } else {
        Report::print_line(&format!("the cluster still has node {node}: kubectl delete node {node}"));
    }
}

async fn delete(client: &SingleRequests, kind: &str, path: &str, name: &str, report: &mut Report) {
    match client.send(&Request::delete(path, &json!({}))).await {
        Ok(_) => Report::print_line(&format!("deleted in the cluster: {kind} {name}")),
        Err(error) if error.is_not_found() => {}
        // With kubeadm's RBAC rules a node may delete its lease, but not itself.
        Err(error) if error.is_forbidden() => {
            Report::print_line(&format!("nodes may not delete this, run: kubectl delete {kind} {name}"));
        }
        Err(error) => report.failed(&format!("{kind} {name} was not deleted from the cluster: {}", ErrorChain(&error))),
    }
}
