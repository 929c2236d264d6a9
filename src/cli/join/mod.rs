//! `coracle join`: joins this machine to a cluster with a bootstrap token, like kubeadm.

mod discover;
mod staged;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use discover::{Cluster, DiscoveryQuery, discover};
use staged::Staged;

use super::command_table::Join;
use super::layout::Layout;
use super::service::{self, Service};
use super::{failed, misused, print};
use crate::kubelet::certificates::kubeconfig_of_token;
use crate::platform::config::{self, KEPT_IDENTITY, KeptIdentity, NameTemplate};
use crate::platform::host::board_identity;
use crate::platform::host::file_watch::FileWatch;
use crate::platform::rt;
use crate::types::error::ErrorChain;

/// kubeadm's timeout for the node's own credentials.
const CREDENTIALS: Duration = Duration::from_secs(300);

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
        server: server(&command.server),
        token: command.token.parse().map_err(|fault| format!("--token: {fault}"))?,
        pins: if skips { Vec::new() } else { command.discovery_token_ca_cert_hash.clone() },
        node_name: name,
        patience: command.timeout.duration(),
    })
}

/// The name that the agent will have; a template's name is kept from now on.
fn name_of_board(template: Option<&NameTemplate>, root_dir: &Path) -> Result<String, String> {
    let named = config::default_node_name(template, root_dir);
    let (name, template) = named.map_err(|error| ErrorChain(&error).to_string())?;
    if template.is_some() {
        let kept = KeptIdentity::read(root_dir).with(&name, template.as_ref(), board_identity::serial(Path::new("/")));
        kept.keep(root_dir).map_err(|error| format!("write {}: {error}", root_dir.join(KEPT_IDENTITY).display()))?;
    }
    Ok(name)
}

/// Accepts `host`, `host:port` or a URL; the default port is kubeadm's 6443.
fn server(given: &str) -> String {
    let host = given.trim_start_matches("https://").trim_end_matches('/');
    let after_brackets = host.rsplit(']').next().unwrap_or(host);
    let has_port = after_brackets.contains(':') && (host.starts_with('[') || host.matches(':').count() == 1);
    match (has_port, host.contains(':') && !host.starts_with('[')) {
        (true, _) => format!("https://{host}"),
        (false, true) => format!("https://[{host}]:6443"),
        (false, false) => format!("https://{host}:6443"),
    }
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
    let name = Some(question.node_name.as_str()).filter(|_| is_named);
    for path in write(&cluster, question, layout, name)? {
        print_line(&format!("written: {}", path.display()));
    }
    let begin = format!("coracle {}", layout.agent_flags(name));
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
    rt::block_on(wait_for_credentials(layout))?;
    // The token is no longer needed.
    let _ = fs::remove_file(layout.bootstrap_kubeconfig());
    print_line(&format!("joined: node {}", question.node_name));
    Ok(())
}

/// Writes all files or none.
fn write(
    cluster: &Cluster,
    question: &DiscoveryQuery,
    layout: &Layout,
    node_name: Option<&str>,
) -> Result<Vec<PathBuf>, String> {
    let authority = String::from_utf8_lossy(&cluster.authority);
    let mut staged = Staged::default();
    match fs::read_to_string(layout.authority()) {
        Ok(there) if there.trim() == authority.trim() => {}
        Ok(_) => {
            return Err(format!("{} belongs to another cluster (coracle leave)", layout.authority().display()));
        }
        Err(_) => staged.add(&layout.authority(), 0o644, &authority)?,
    }
    let text = with_resolver(&cluster.kubelet_config, Path::new("/"));
    staged.add(&layout.config(), 0o644, &text)?;
    check_config(&layout.config())?;
    let flags = format!("# Written by coracle join.\nCORACLE_CLUSTER_ARGS=\"{}\"\n", layout.agent_flags(node_name));
    staged.add(&layout.flags(), 0o644, &flags)?;
    let bootstrap = kubeconfig_of_token(&cluster.kubeconfig, &question.token.reveal());
    staged.add(&layout.bootstrap_kubeconfig(), 0o600, &bootstrap)?;
    staged.put()
}

/// Checks the configuration before anything is installed.
fn check_config(config_path: &Path) -> Result<(), String> {
    let staged = Staged::path(config_path).display().to_string();
    match config::load(&[format!("--config={staged}"), "--hostname-override=node".to_owned()]) {
        Ok(_) => Ok(()),
        Err(error) => {
            let why = ErrorChain(&error).to_string().replace(&format!("{staged}: "), "");
            Err(format!("the cluster's kubelet configuration cannot be used here: {why}"))
        }
    }
}

/// If the host uses the systemd-resolved stub, pods get the name servers behind it, like with kubeadm.
fn with_resolver(config: &str, root: &Path) -> String {
    let behind = "run/systemd/resolve/resolv.conf";
    let is_set = config.lines().any(|line| line.starts_with("resolvConf:"));
    let resolver = fs::canonicalize(root.join("etc/resolv.conf")).unwrap_or_default();
    let is_resolved = resolver.ends_with("run/systemd/resolve/stub-resolv.conf") && root.join(behind).exists();
    if is_set || !is_resolved {
        return config.to_owned();
    }
    format!("{}\nresolvConf: /{behind}\n", config.trim_end())
}

async fn wait_for_credentials(layout: &Layout) -> Result<(), String> {
    let path = layout.kubeconfig();
    let wait = async {
        loop {
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
    let minutes = CREDENTIALS.as_secs() / 60;
    rt::deadline(CREDENTIALS, wait).await.map_err(|rt::Elapsed| {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_may_be_host_or_address_with_or_without_port() {
        for (given, url) in [
            ("10.0.0.1:6443", "https://10.0.0.1:6443"),
            ("10.0.0.1", "https://10.0.0.1:6443"),
            ("https://api.example.com/", "https://api.example.com:6443"),
            ("api.example.com:443", "https://api.example.com:443"),
            ("[fd00::1]:443", "https://[fd00::1]:443"),
            ("[fd00::1]", "https://[fd00::1]:6443"),
            ("fd00::1", "https://[fd00::1]:6443"),
        ] {
            assert_eq!(server(given), url, "{given}");
        }
    }

    #[test]
    fn pods_get_the_name_servers_behind_the_systemd_stub() {
        let root = std::env::temp_dir().join(format!("coracle-resolver-{}", std::process::id()));
        let resolve = root.join("run/systemd/resolve");
        fs::create_dir_all(&resolve).unwrap();
        fs::create_dir_all(root.join("etc")).unwrap();
        let config = "kind: KubeletConfiguration\n";
        let plain = with_resolver(config, &root);
        for name in ["resolv.conf", "stub-resolv.conf"] {
            fs::write(resolve.join(name), "").unwrap();
        }
        std::os::unix::fs::symlink("../run/systemd/resolve/stub-resolv.conf", root.join("etc/resolv.conf")).unwrap();
        let behind = with_resolver(config, &root);
        let own = with_resolver("resolvConf: /other\n", &root);
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(plain, config);
        assert_eq!(behind, "kind: KubeletConfiguration\nresolvConf: /run/systemd/resolve/resolv.conf\n");
        assert_eq!(own, "resolvConf: /other\n");
    }
}
