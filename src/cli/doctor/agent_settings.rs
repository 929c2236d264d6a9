//! The flags of the agent: those of the running one, or of the service that would start it.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

use crate::cli::cluster_flags::variable;

/// The running agent's pid and flags.
pub(in crate::cli) fn running(local_socket: &Path) -> Option<(u32, Vec<String>)> {
    let peer = getsockopt(&UnixStream::connect(local_socket).ok()?, PeerCredentials).ok()?.pid();
    let line = fs::read(format!("/proc/{peer}/cmdline")).ok()?;
    let words = line.split(|byte| *byte == 0).skip(1).map(|word| String::from_utf8_lossy(word).into_owned());
    let mut words: Vec<String> = words.collect();
    // The last one is empty, because each ends with a zero byte.
    words.pop();
    Some((u32::try_from(peer).ok()?, words))
}

/// The flags of the service's files below `root`, as the unit composes them.
pub(in crate::cli) fn of_service(root: &Path) -> Vec<String> {
    let mut flags = Vec::new();
    if root.join("etc/coracle/config.yaml").is_file() {
        flags.extend(["--config".to_owned(), root.join("etc/coracle/config.yaml").display().to_string()]);
    }
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let (of_cluster, own_file) = (read("var/lib/kubelet/coracle-flags.env"), read("etc/default/coracle"));
    for (text, name) in [(&of_cluster, "CORACLE_CLUSTER_ARGS"), (&own_file, "CORACLE_ARGS")] {
        flags.extend(variable(text, name).split_whitespace().map(str::to_owned));
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_the_service_are_composed_as_its_unit_does() {
        let root = std::env::temp_dir().join(format!("coracle-agent-settings-{}", std::process::id()));
        for folder in ["etc/coracle", "etc/default", "var/lib/kubelet"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        assert_eq!(of_service(&root), [""; 0]);
        fs::write(root.join("etc/coracle/config.yaml"), "").unwrap();
        fs::write(root.join("var/lib/kubelet/coracle-flags.env"), "CORACLE_CLUSTER_ARGS=\"--kubeconfig=/k\"\n")
            .unwrap();
        let text = "#CORACLE_ARGS=\"--v=9\"\nCORACLE_ARGS='--page-port 4194 -v=4'\n";
        fs::write(root.join("etc/default/coracle"), text).unwrap();
        let flags = of_service(&root);
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(flags.first().map(String::as_str), Some("--config"));
        assert_eq!(flags[2..], ["--kubeconfig=/k", "--page-port", "4194", "-v=4"]);
    }
}
