//! The output of `--help` and `--version`. Pure.

use super::texts;
use crate::types::api::KUBERNETES_VERSION;

/// If called as `kubelet`, in the format that kubeadm parses.
pub(super) fn version(is_kubelet: bool) -> String {
    if is_kubelet {
        format!("Kubernetes {KUBERNETES_VERSION}\n")
    } else {
        format!("coracle {} (Kubernetes {KUBERNETES_VERSION})\n", env!("CARGO_PKG_VERSION"))
    }
}

/// The output of `coracle version -o json`.
pub(super) fn version_json() -> String {
    format!("{{\"version\": {:?}, \"kubernetesVersion\": {KUBERNETES_VERSION:?}}}\n", env!("CARGO_PKG_VERSION"))
}

/// The help of the program.
pub(super) fn text() -> String {
    of_command("")
}

/// The help of a command, or of the program if there is no such command.
pub(super) fn of_command(name: &str) -> String {
    let all = texts::all();
    let mut texts = texts::split(&all).skip(texts::SCRIPT_COUNT);
    let program = texts.next().unwrap_or_default();
    let flags = texts.next().unwrap_or_default();
    if FLAGS_PAGE.contains(&name) {
        return flags.to_owned();
    }
    let head = format!("Usage: coracle {name} ");
    let of_command = |text: &&str| text.lines().next().is_some_and(|line| format!("{line} ").starts_with(&head));
    let text = if name.is_empty() { None } else { texts.find(of_command) };
    text.unwrap_or(program).to_owned()
}

/// Names of the page with the flags of the agent.
const FLAGS_PAGE: [&str; 3] = ["agent", "flags", "options"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_fits_on_a_terminal_and_names_only_existing_flags() {
        let all = texts::all();
        let help = texts::split(&all).skip(texts::SCRIPT_COUNT);
        let wide: Vec<&str> = help.flat_map(str::lines).filter(|line| line.chars().count() > 80).collect();
        assert!(wide.is_empty(), "{wide:#?}");
        assert!(text().contains("coracle help flags") && !text().contains("--max-pods"));
        let text = of_command("flags");
        assert!(text.contains("--max-pods"), "{text}");
        let flags = text.split(|c: char| c.is_whitespace() || c == ',').filter_map(|word| word.strip_prefix("--"));
        for flag in flags {
            let name = flag.split(['[', '=']).next().unwrap();
            // Two hyphens alone stand before a command in a container.
            assert!(name.is_empty() || name == "flag" || crate::platform::config::is_flag(name), "--{name}");
        }
    }

    #[test]
    fn version_of_kubelet_is_in_kubeadms_format() {
        assert_eq!(version(true), "Kubernetes v1.36.2\n");
        assert!(version(false).starts_with("coracle 0."));
        let json: serde_json::Value = serde_json::from_str(&version_json()).unwrap();
        assert_eq!(json["kubernetesVersion"], KUBERNETES_VERSION);
    }

    #[test]
    fn documented_server_versions_follow_from_the_reported_version() {
        let minor: u32 = KUBERNETES_VERSION.split('.').nth(1).unwrap().parse().unwrap();
        assert_eq!(crate::platform::net::KUBERNETES, format!("1.{minor}"));
        // A kubelet may be three minor versions older than its API server, and not newer.
        let range = format!("Kubernetes 1.{minor} to 1.{}", minor + 3);
        assert!(include_str!("../../docs/install.md").contains(&range), "{range}");
        assert!(include_str!("../../docs/joining-a-cluster.md").contains(KUBERNETES_VERSION));
    }
}
