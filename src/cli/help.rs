//! What `--help` and `--version` print. Pure.

use std::io::Read as _;

use flate2::read::GzDecoder;

use crate::types::api::KUBERNETES_VERSION;

/// As kubeadm reads it where this is the node's `kubelet`.
pub(super) fn version(is_kubelet: bool) -> String {
    if is_kubelet {
        format!("Kubernetes {KUBERNETES_VERSION}\n")
    } else {
        format!("coracle {} (Kubernetes {KUBERNETES_VERSION})\n", env!("CARGO_PKG_VERSION"))
    }
}

/// What `coracle version -o json` says.
pub(super) fn version_json() -> String {
    format!("{{\"version\": {:?}, \"kubernetesVersion\": {KUBERNETES_VERSION:?}}}\n", env!("CARGO_PKG_VERSION"))
}

/// The help of the program.
pub(super) fn text() -> String {
    of_command("")
}

/// The help of a command, or of the program if there is no such command.
pub(super) fn of_command(name: &str) -> String {
    let all = unpacked(ALL);
    let mut texts = all.split('\u{c}');
    let program = texts.next().unwrap_or_default();
    let head = format!("Usage: coracle {name} ");
    let of_command = |text: &&str| text.lines().next().is_some_and(|line| format!("{line} ").starts_with(&head));
    let text = if name.is_empty() { None } else { texts.find(of_command) };
    text.unwrap_or(program).to_owned()
}

/// A text that the build has packed.
pub(super) fn unpacked(packed: &[u8]) -> String {
    let mut text = String::new();
    // The build packs it, and tests unpack it.
    let _ = GzDecoder::new(packed).read_to_string(&mut text);
    text
}

/// That of the program and those of all commands, as build/help.rs makes them from the table.
const ALL: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/help.gz"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_fits_on_a_terminal_and_names_flags_that_there_are() {
        let text = text();
        assert!(text.lines().all(|line| line.chars().count() <= 110));
        let flags = text.split(|c: char| c.is_whitespace() || c == ',').filter_map(|word| word.strip_prefix("--"));
        for flag in flags {
            let name = flag.split(['[', '=']).next().unwrap();
            // Two hyphens alone stand before a command in a container.
            assert!(name.is_empty() || name == "flag" || crate::platform::config::is_flag(name), "--{name}");
        }
    }

    #[test]
    fn called_as_kubelet_the_version_is_what_kubeadm_reads() {
        assert_eq!(version(true), "Kubernetes v1.36.2\n");
        assert!(version(false).starts_with("coracle 0."));
        let json: serde_json::Value = serde_json::from_str(&version_json()).unwrap();
        assert_eq!(json["kubernetesVersion"], KUBERNETES_VERSION);
    }
}
