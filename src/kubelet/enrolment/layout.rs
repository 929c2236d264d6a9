//! Paths of a cluster node's files, like kubeadm's. Pure.

use std::path::{Path, PathBuf};

use crate::kubelet::offline::OFFLINE;

/// The two base directories.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) kubernetes_dir: PathBuf,
    pub(crate) root_dir: PathBuf,
}

pub(crate) const KUBERNETES_DIR: &str = "/etc/kubernetes";
pub(crate) const ROOT_DIR: &str = "/var/lib/kubelet";

impl Layout {
    /// Kubeconfig with the node's own credentials.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.kubernetes_dir.join("kubelet.conf")
    }

    pub(crate) fn bootstrap_kubeconfig(&self) -> PathBuf {
        self.kubernetes_dir.join("bootstrap-kubelet.conf")
    }

    /// The cluster's CA certificate.
    pub(crate) fn authority(&self) -> PathBuf {
        self.kubernetes_dir.join("pki/ca.crt")
    }

    /// The CA key, which exists only on control plane nodes.
    pub(crate) fn authority_key(&self) -> PathBuf {
        self.kubernetes_dir.join("pki/ca.key")
    }

    /// The cluster's kubelet configuration.
    pub(crate) fn config(&self) -> PathBuf {
        self.root_dir.join("config.yaml")
    }

    /// Further flags of the systemd service.
    pub(crate) fn flags(&self) -> PathBuf {
        self.root_dir.join("coracle-flags.env")
    }

    /// The stored objects of the cluster.
    pub(crate) fn offline_store(&self) -> PathBuf {
        self.root_dir.join(OFFLINE)
    }

    pub(crate) fn pki(&self) -> PathBuf {
        self.root_dir.join("pki")
    }

    /// The agent's flags for running as a node of the cluster, as words of one line.
    /// `of_node`: flags of this node only. Fails if a flag is not one word for systemd and the shell.
    pub(crate) fn agent_flags(&self, of_node: &[String]) -> Result<String, String> {
        let mut flags: Vec<String> = [
            ("bootstrap-kubeconfig", self.bootstrap_kubeconfig()),
            ("kubeconfig", self.kubeconfig()),
            ("config", self.config()),
        ]
        .map(|(flag, path)| format!("--{flag}={}", path.display()))
        .to_vec();
        if self.root_dir != Path::new(ROOT_DIR) {
            flags.push(format!("--root-dir={}", self.root_dir.display()));
        }
        flags.extend_from_slice(of_node);
        let is_split =
            |flag: &&String| flag.contains(|letter: char| letter.is_whitespace() || "\"'\\$`".contains(letter));
        match flags.iter().find(is_split) {
            Some(flag) => {
                Err(format!("{flag:?}: expected neither white space nor quotes, backslashes or dollar signs"))
            }
            None => Ok(flags.join(" ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_name_the_written_files() {
        let layout = Layout { kubernetes_dir: KUBERNETES_DIR.into(), root_dir: ROOT_DIR.into() };
        let usual = "--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf \
                     --kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml";
        assert_eq!(layout.agent_flags(&[]).as_deref(), Ok(usual));
        assert_eq!(
            layout.agent_flags(&["--hostname-override=edge-7".to_owned()]),
            Ok(format!("{usual} --hostname-override=edge-7"))
        );
        let other = Layout { root_dir: "/data".into(), ..layout.clone() };
        assert!(other.agent_flags(&[]).unwrap().ends_with("--config=/data/config.yaml --root-dir=/data"));
        let spaced = Layout { kubernetes_dir: "/my cluster".into(), ..layout };
        assert!(spaced.agent_flags(&[]).unwrap_err().starts_with("\"--bootstrap-kubeconfig=/my cluster/"));
    }
}
