//! The flags that joining a cluster has written for the service, where nothing passes them to the agent.

use std::fs;
use std::path::PathBuf;

use crate::kubelet::enrolment::{KUBERNETES_DIR, Layout, ROOT_DIR};

/// The arguments, with the flags of the cluster in the state directory. So an agent that has joined by itself is a node
/// of the cluster after its restart, whatever starts it.
pub(super) fn with_cluster_flags(arguments: &[String]) -> Vec<String> {
    let layout = Layout { kubernetes_dir: KUBERNETES_DIR.into(), root_dir: root_dir(arguments) };
    inserted(arguments, &fs::read_to_string(layout.flags()).unwrap_or_default())
}

pub(super) fn root_dir(arguments: &[String]) -> PathBuf {
    last_value(arguments, "--root-dir").unwrap_or(ROOT_DIR).into()
}

/// The value of the last flag of this name, whatever the other flags are.
pub(super) fn last_value<'a>(arguments: &'a [String], flag: &str) -> Option<&'a str> {
    let mut last = None;
    let mut rest = arguments.iter().map(String::as_str);
    while let Some(argument) = rest.next() {
        let (name, value) = argument.split_once('=').map_or((argument, None), |(name, value)| (name, Some(value)));
        if name.replace('_', "-") == flag {
            last = value.or_else(|| rest.next()).or(last);
        }
    }
    last
}

/// `text`: of the file that joining has written. As in the service's files, its flags come after the packaged
/// configuration and before the flags of this machine, which override them.
fn inserted(arguments: &[String], text: &str) -> Vec<String> {
    let is_kubeconfig = |argument: &String| argument.split('=').next() == Some("--kubeconfig");
    let value = variable(text, "CORACLE_CLUSTER_ARGS");
    let flags = value.split_whitespace().map(str::to_owned);
    if arguments.iter().any(is_kubeconfig) {
        return arguments.to_vec();
    }
    let packaged = match arguments.first().map(String::as_str) {
        Some("--config") => 2,
        Some(first) if first.starts_with("--config=") => 1,
        _ => 0,
    };
    let (packaged, user_arguments) = arguments.split_at_checked(packaged).unwrap_or((arguments, &[]));
    packaged.iter().cloned().chain(flags).chain(user_arguments.iter().cloned()).collect()
}

/// The value of a variable in shell syntax, without quotes; empty if it is not set.
pub(super) fn variable(text: &str, name: &str) -> String {
    let mut values = text.lines().filter_map(|line| line.trim().strip_prefix(name)?.strip_prefix('='));
    values.next_back().unwrap_or_default().replace(['"', '\''], "")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn root_dir_is_found_among_flags_of_another_version() {
        for (line, expected) in [
            ("", ROOT_DIR),
            ("--new-flag x --root-dir /a --v=2", "/a"),
            ("--root-dir=/a --root_dir /b", "/b"),
            ("--root-dir", ROOT_DIR),
        ] {
            assert_eq!(root_dir(&words(line)), Path::new(expected), "{line}");
        }
    }

    #[test]
    fn flags_of_the_cluster_are_between_the_packaged_and_the_own_ones() {
        let text = "# Written by coracle join.\nCORACLE_CLUSTER_ARGS=\"--kubeconfig=/k --config=/c\"\n";
        for (line, expected) in [
            ("--config /etc/c -v=4", "--config /etc/c --kubeconfig=/k --config=/c -v=4"),
            ("--config=/etc/c -v=4", "--config=/etc/c --kubeconfig=/k --config=/c -v=4"),
            ("-v=4", "--kubeconfig=/k --config=/c -v=4"),
            ("--config=/c --kubeconfig=/other", "--config=/c --kubeconfig=/other"),
            ("--kubeconfig /other", "--kubeconfig /other"),
        ] {
            assert_eq!(inserted(&words(line), text), words(expected), "{line}");
        }
        assert_eq!(inserted(&words("-v=4"), ""), words("-v=4"));
    }
}
