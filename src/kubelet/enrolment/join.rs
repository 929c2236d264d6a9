//! The files of a node: certificate authority, configuration, flags and the token, all or none.

use std::fs;
use std::path::{Path, PathBuf};

use super::discover::{Cluster, DiscoveryQuery};
use super::layout::Layout;
use super::staged::Staged;
use crate::kubelet::certificates::{BOOTSTRAP_ONCE, kubeconfig_of_token};
use crate::platform::config::{self, KEPT_IDENTITY, KeptIdentity, NameTemplate};
use crate::platform::host::board_identity;
use crate::types::error::ErrorChain;

/// The name that the agent will have; a template's name is kept from now on.
pub(crate) fn name_of_board(template: Option<&NameTemplate>, root_dir: &Path) -> Result<String, String> {
    let named = config::default_node_name(template, root_dir);
    let (name, template) = named.map_err(|error| ErrorChain(&error).to_string())?;
    if template.is_some() {
        let kept = KeptIdentity::read(root_dir).with(&name, template.as_ref(), board_identity::serial(Path::new("/")));
        kept.keep(root_dir).map_err(|error| format!("write {}: {error}", root_dir.join(KEPT_IDENTITY).display()))?;
    }
    Ok(name)
}

/// The URL of a server that is given as `host`, `host:port` or a URL; the default port is kubeadm's 6443.
pub(crate) fn server_url(address: &str) -> String {
    let host = address.trim_start_matches("https://").trim_end_matches('/');
    let after_brackets = host.rsplit(']').next().unwrap_or(host);
    let has_port = after_brackets.contains(':') && (host.starts_with('[') || host.matches(':').count() == 1);
    match (has_port, host.contains(':') && !host.starts_with('[')) {
        (true, _) => format!("https://{host}"),
        (false, true) => format!("https://[{host}]:6443"),
        (false, false) => format!("https://{host}:6443"),
    }
}

/// Writes all files or none. `of_node`: flags of this node only. Blocks.
pub(crate) fn write_node_files(
    cluster: &Cluster,
    question: &DiscoveryQuery,
    layout: &Layout,
    of_node: &[String],
) -> Result<Vec<PathBuf>, String> {
    let flags = layout.agent_flags(of_node)?;
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
    check_config(&layout.config(), of_node)?;
    let flags = format!("# Written by coracle join.\nCORACLE_CLUSTER_ARGS=\"{flags}\"\n");
    staged.add(&layout.flags(), 0o644, &flags)?;
    let bootstrap = kubeconfig_of_token(&cluster.kubeconfig, &question.token.reveal());
    staged.add(&layout.bootstrap_kubeconfig(), 0o600, &[BOOTSTRAP_ONCE, &bootstrap].concat())?;
    staged.put()
}

/// Checks the configuration before anything is installed.
fn check_config(config_path: &Path, of_node: &[String]) -> Result<(), String> {
    config::load(&[&["--hostname-override=node".to_owned()], of_node].concat())
        .map_err(|error| ErrorChain(&error).to_string())?;
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
            assert_eq!(server_url(given), url, "{given}");
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
