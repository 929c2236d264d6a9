//! `coracle join`: joins this machine to a cluster with a bootstrap token, like kubeadm.

use std::fs;
use std::process::ExitCode;
use std::time::Duration;

use super::command_table::Join;
use super::service::{self, Service};
use super::{failed, misused, print};
use crate::kubelet::enrolment::{DiscoveryQuery, Layout, discover, name_of_board, server_url, write_node_files};
use crate::platform::config;
use crate::platform::host::file_watch::FileWatch;
use crate::platform::rt;

/// kubeadm's timeout for the node's own credentials.
const CREDENTIALS_TIMEOUT: Duration = Duration::from_secs(300);

pub(super) fn run(command: &Join) -> ExitCode {
    let question = match question(command) {
        Ok(question) => question,
        Err(line) => return misused(&format!("join: {line}")),
    };
    let layout = Layout { kubernetes_dir: command.kubernetes_dir.clone(), root_dir: command.root_dir.clone() };
    match join(command, &question, &layout) {
        Ok(()) => ExitCode::SUCCESS,
        Err(line) => failed(&format!("join: {line}")),
    }
}

fn question(command: &Join) -> Result<DiscoveryQuery, String> {
    let skips = command.discovery_token_unsafe_skip_ca_verification;
    if command.discovery_token_ca_cert_hash.is_empty() && !skips {
        return Err("expected --discovery-token-ca-cert-hash sha256:DIGEST, or \
                    --discovery-token-unsafe-skip-ca-verification, found neither"
            .to_owned());
    }
    let name = match (&command.node_name, &command.name_template) {
        (Some(_), Some(_)) => return Err("expected --node-name or --name-template, found both".to_owned()),
        (Some(name), None) => config::given_node_name(name).ok_or_else(|| {
            format!("--node-name: expected a DNS name of letters, digits, '-' and '.', found {name:?}")
        })?,
        (None, template) => name_of_board(template.as_ref(), &command.root_dir)?,
    };
    Ok(DiscoveryQuery {
        server: server_url(&command.server),
        token: command.token.parse().map_err(|fault| format!("--token: {fault}"))?,
        pins: if skips { Vec::new() } else { command.discovery_token_ca_cert_hash.clone() },
        node_name: name,
        patience: command.timeout.0,
    })
}

fn join(command: &Join, question: &DiscoveryQuery, layout: &Layout) -> Result<(), String> {
    for path in [layout.kubeconfig(), layout.bootstrap_kubeconfig()] {
        if path.exists() {
            return Err(format!("{} already exists: this node has joined a cluster (coracle leave)", path.display()));
        }
    }
    let cluster = rt::block_on(discover(question, &print_line))?;
    print_line(&format!("cluster verified: {}", cluster.kubeconfig.server));
    if let Some(proxy) = &cluster.proxy {
        print_line(&format!("reached through {proxy}: set the proxy for the service too (docs/joining-a-cluster.md)"));
    }
    let is_named = command.node_name.is_some() || command.name_template.is_some();
    let name = is_named.then(|| format!("--hostname-override={}", question.node_name));
    let of_node: Vec<String> = name.into_iter().collect();
    for path in write_node_files(&cluster, question, layout, &of_node)? {
        print_line(&format!("written: {}", path.display()));
    }
    let begin = format!("coracle {}", layout.agent_flags(&of_node)?);
    if command.no_start {
        print_line(&format!("not started, start it with: {begin}"));
        return Ok(());
    }
    match service::restart() {
        Service::Restarted => print_line("started: coracle.service"),
        Service::None => {
            print_line(&format!("no systemd service found, start it with: {begin}"));
            return Ok(());
        }
        Service::Failed(error) => {
            return Err(format!("all files are written, but the service failed to start: {error}"));
        }
    }
    rt::block_on(wait_for_credentials(layout, command.timeout.0.is_some()))?;
    // The token is no longer needed.
    let _ = fs::remove_file(layout.bootstrap_kubeconfig());
    print_line(&format!("joined: node {}", question.node_name));
    Ok(())
}

async fn wait_for_credentials(layout: &Layout, is_limited: bool) -> Result<(), String> {
    let path = layout.kubeconfig();
    let wait = async {
        loop {
            // Before the look: a kubeconfig that is written between the two is an event.
            let watch = FileWatch::new(std::slice::from_ref(&path));
            if path.exists() {
                return;
            }
            match watch {
                Ok(watch) if watch.changed().await.is_ok() => {}
                _ => rt::sleep(Duration::from_secs(1)).await,
            }
        }
    };
    if !is_limited {
        wait.await;
        return Ok(());
    }
    let minutes = CREDENTIALS_TIMEOUT.as_secs() / 60;
    rt::deadline(CREDENTIALS_TIMEOUT, wait).await.map_err(|rt::Elapsed| {
        format!(
            "no certificate for this node within {minutes} minutes; coracle keeps requesting it (coracle status; on \
             the control plane: kubectl get csr)"
        )
    })
}

fn print_line(line: &str) {
    // If stdout is closed, the exit code still reports the result.
    let _ = print(&format!("{line}\n"));
}
