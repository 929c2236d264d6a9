//! The flags of the agent: those of the running one, or of the service that would start it.

use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

use crate::cli::cluster_flags::variable;
use crate::platform::host::file;

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

/// The flags of the service's files below `root`, as its systemd unit or its OpenRC script composes them, and the first
/// file that cannot be read.
pub(in crate::cli) fn of_service(root: &Path) -> (Vec<String>, Result<(), String>) {
    let mut flags = Vec::new();
    if root.join("etc/coracle/config.yaml").is_file() {
        flags.extend(["--config".to_owned(), root.join("etc/coracle/config.yaml").display().to_string()]);
    }
    let own_file = match root.join("etc/default/coracle").exists() {
        true => "etc/default/coracle",
        false => "etc/conf.d/coracle",
    };
    let mut readable = Ok(());
    for (path, name) in [("var/lib/kubelet/coracle-flags.env", "CORACLE_CLUSTER_ARGS"), (own_file, "CORACLE_ARGS")] {
        let path = root.join(path);
        match file::read_all(&path, MAX_FLAGS_FILE_BYTES) {
            Ok(bytes) => {
                let value = variable(&String::from_utf8_lossy(&bytes), name);
                flags.extend(value.split_whitespace().map(str::to_owned));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => readable = readable.and(Err(format!("read {}: {error}", path.display()))),
        }
    }
    (flags, readable)
}

const MAX_FLAGS_FILE_BYTES: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_the_service_are_composed_as_its_unit_does() {
        let root = std::env::temp_dir().join(format!("coracle-agent-settings-{}", std::process::id()));
        for folder in ["etc/coracle", "etc/default", "var/lib/kubelet"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        assert_eq!(of_service(&root), (Vec::new(), Ok(())));
        fs::write(root.join("etc/coracle/config.yaml"), "").unwrap();
        fs::write(root.join("var/lib/kubelet/coracle-flags.env"), "CORACLE_CLUSTER_ARGS=\"--kubeconfig=/k\"\n")
            .unwrap();
        let text = "#CORACLE_ARGS=\"--v=9\"\nCORACLE_ARGS='--page-port 4194 -v=4'\n";
        fs::write(root.join("etc/default/coracle"), text).unwrap();
        let (flags, readable) = of_service(&root);
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(readable, Ok(()));
        assert_eq!(flags.first().map(String::as_str), Some("--config"));
        assert_eq!(flags[2..], ["--kubeconfig=/k", "--page-port", "4194", "-v=4"]);
    }

    #[test]
    fn openrc_has_its_own_file_of_flags() {
        let root = std::env::temp_dir().join(format!("coracle-openrc-settings-{}", std::process::id()));
        fs::create_dir_all(root.join("etc/conf.d")).unwrap();
        fs::write(root.join("etc/conf.d/coracle"), "CORACLE_ARGS=-v=4\n").unwrap();
        let (flags, _) = of_service(&root);
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(flags, ["-v=4"]);
    }

    #[test]
    fn unreadable_file_of_flags_is_named() {
        let root = std::env::temp_dir().join(format!("coracle-unreadable-settings-{}", std::process::id()));
        fs::create_dir_all(root.join("etc/default/coracle")).unwrap();
        let (_, readable) = of_service(&root);
        fs::remove_dir_all(&root).unwrap();
        let error = readable.unwrap_err();
        assert!(error.starts_with("read ") && error.contains("etc/default/coracle: Is a directory"), "{error}");
    }
}
