//! Where the files of a node of a cluster are: kubeadm's places. Pure.

use std::path::{Path, PathBuf};

use crate::kubelet::offline::OFFLINE;

/// The two directories that everything is in.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) kubernetes_dir: PathBuf,
    pub(super) root_dir: PathBuf,
}

/// The usual places.
pub(super) const KUBERNETES_DIR: &str = "/etc/kubernetes";
pub(super) const ROOT_DIR: &str = "/var/lib/kubelet";

impl Layout {
    /// The kubeconfig of the node's own credentials.
    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.kubernetes_dir.join("kubelet.conf")
    }

    pub(super) fn bootstrap_kubeconfig(&self) -> PathBuf {
        self.kubernetes_dir.join("bootstrap-kubelet.conf")
    }

    /// Whom the cluster's certificates come from.
    pub(super) fn authority(&self) -> PathBuf {
        self.kubernetes_dir.join("pki/ca.crt")
    }

    /// Its key: there is one on a control plane only.
    pub(super) fn authority_key(&self) -> PathBuf {
        self.kubernetes_dir.join("pki/ca.key")
    }

    /// The cluster's configuration of its kubelets.
    pub(super) fn config(&self) -> PathBuf {
        self.root_dir.join("config.yaml")
    }

    /// What the service takes its further flags from.
    pub(super) fn flags(&self) -> PathBuf {
        self.root_dir.join("coracle-flags.env")
    }

    /// What the cluster last asked for.
    pub(super) fn offline_store(&self) -> PathBuf {
        self.root_dir.join(OFFLINE)
    }

    pub(super) fn pki(&self) -> PathBuf {
        self.root_dir.join("pki")
    }

    /// The flags with which the agent is a node of the cluster.
    pub(super) fn agent_flags(&self, node_name: Option<&str>) -> String {
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
        flags.extend(node_name.map(|name| format!("--hostname-override={name}")));
        flags.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_finds_what_was_written_for_it() {
        let layout = Layout { kubernetes_dir: KUBERNETES_DIR.into(), root_dir: ROOT_DIR.into() };
        let usual = "--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf \
                     --kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml";
        assert_eq!(layout.agent_flags(None), usual);
        assert_eq!(layout.agent_flags(Some("edge-7")), format!("{usual} --hostname-override=edge-7"));
        let other = Layout { root_dir: "/data".into(), ..layout };
        assert!(other.agent_flags(None).ends_with("--config=/data/config.yaml --root-dir=/data"));
    }
}
