//! What a container sees: host names, resolver, variables, mounts and files.

use std::collections::BTreeSet;

use super::recording::seen_inside;
use crate::containerd::node::Node;

/// The pods with a recording of their inside.
pub(super) const RECORDED: [&str; 4] = ["dns-hosts", "env", "running", "volumes"];

pub(super) fn differences(node: &Node, pod: &str) -> Vec<String> {
    let container = node.running_containers(pod).into_iter().find(|task| task.container == "main");
    let id = container.expect("a recorded pod runs").id;
    let mut found = Vec::new();
    for (what, command, comparable) in LOOKS {
        let ours = output_of(node, &id, what, command).replace("-node-a", "");
        let recorded = seen_inside(pod, what);
        let (ours, recorded) = (comparable(&ours), comparable(&recorded));
        for line in ours.difference(&recorded) {
            found.push(format!("{pod}, {what}: only here {line:?}"));
        }
        for line in recorded.difference(&ours) {
            found.push(format!("{pod}, {what}: only recorded {line:?}"));
        }
    }
    found
}

/// The last line of complete output.
const END: &str = "that is all\n";

/// What the command prints in the container. On a busy machine `ctr` may return before it has copied the output.
fn output_of(node: &Node, id: &str, what: &str, command: &str) -> String {
    let command = format!("{command}; printf '{END}'");
    let whole = (0..5).find_map(|turn| {
        let exec = format!("{what}-{turn}");
        let output = node.ctr(&["tasks", "exec", "--exec-id", &exec, id, "sh", "-c", &command]);
        output.strip_suffix(END).map(str::to_owned)
    });
    whole.unwrap_or_else(|| panic!("ctr never returned the whole output of {command:?}"))
}

type Comparable = fn(&str) -> BTreeSet<String>;

const LOOKS: [(&str, &str, Comparable); 6] = [
    ("env", "tr '\\0' '\\n' < /proc/1/environ", variables),
    ("hostname", "hostname; hostname -f", lines),
    ("hosts", "cat /etc/hosts", hosts),
    ("resolv.conf", "cat /etc/resolv.conf", lines),
    ("mounts", "cat /proc/1/mounts", mounts),
    ("ls", "[ ! -e /one ] || ls -laR /one /all /cm /down /sec", files),
];

fn lines(text: &str) -> BTreeSet<String> {
    text.lines().map(str::to_owned).collect()
}

/// The variables without those of the `kubernetes` Service, which does not exist here, and without PATH, which comes
/// from the image.
fn variables(text: &str) -> BTreeSet<String> {
    let own = text.lines().filter(|line| !line.starts_with("KUBERNETES_") && !line.starts_with("PATH="));
    own.map(|line| {
        let is_address = line.starts_with("IP=") || line.starts_with("HOST=");
        if is_address { line.split('=').next().unwrap_or_default().to_owned() } else { line.to_owned() }
    })
    .collect()
}

/// The hosts file without the pod's own address, which changes with each run, and without the names of other pods, which
/// upstream does not write.
fn hosts(text: &str) -> BTreeSet<String> {
    let text = text.split("\n\n# Pods and Services of this node.\n").next().unwrap_or(text);
    let own = |line: &str| {
        line.strip_prefix("10.88.").and_then(|rest| rest.split_once('\t')).map(|(_, names)| names.to_owned())
    };
    text.lines().map(|line| own(line).unwrap_or_else(|| line.to_owned())).collect()
}

/// Mount points and whether they are writable. The rest depends on the host: its disk, the runtime's directories,
/// cgroups, and the token volume, which only an API server adds.
fn mounts(text: &str) -> BTreeSet<String> {
    let words = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let ours = words.filter(|words| !words[1].starts_with("/sys/fs/cgroup") && !words[1].ends_with("/serviceaccount"));
    ours.map(|words| {
        let is_of_runtime = ["/etc/hostname", "/etc/resolv.conf"].contains(&words[1]);
        let is_known = ["tmpfs", "proc", "sysfs"].contains(&words[2]) && !is_of_runtime;
        let kind = if is_known { words[2] } else { "disk" };
        format!("{kind} {} {}", words[1], words[3].split(',').next().unwrap_or_default())
    })
    .collect()
}

/// Mode, owners and name of each file with its directory, without times and without sizes and link counts of
/// directories.
fn files(text: &str) -> BTreeSet<String> {
    let mut directory = String::new();
    let mut found = BTreeSet::new();
    for line in text.lines() {
        if let Some(name) = line.strip_suffix(':') {
            directory = dated(name);
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let [mode, _links, user, group, size, _month, _day, _time, name @ ..] = words.as_slice() else { continue };
        // Only an API server provides the token.
        if name.first() == Some(&"token") {
            continue;
        }
        // One file contains the pod's name, which ends with the node's name.
        let size = if mode.starts_with('-') && *name != ["name"] { size } else { "" };
        found.insert(format!("{directory} {mode} {user} {group} {size} {}", dated(&name.join(" "))));
    }
    found
}

/// Replaces the name of a data directory, which is a timestamp or, if the clock stands still, a number.
fn dated(path: &str) -> String {
    let parts = path.split('/').map(|part| match part.rsplit_once("..") {
        Some((before, rest)) if rest.starts_with(|c: char| c.is_ascii_digit()) => format!("{before}..DATE"),
        _ => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("/")
}
