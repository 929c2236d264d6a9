//! What a container sees of itself: names, resolver, variables, mounts, files.

use std::collections::BTreeSet;

use super::recording::seen_inside;
use crate::node::Node;

/// The pods that were looked into.
pub(super) const RECORDED: [&str; 4] = ["dns-hosts", "env", "running", "volumes"];

pub(super) fn differences(node: &Node, pod: &str) -> Vec<String> {
    let container = node.running_containers(pod).into_iter().find(|task| task.container == "main");
    let id = container.expect("a recorded pod runs").id;
    let mut found = Vec::new();
    for (what, command, comparable) in LOOKS {
        let ours = node.ctr(&["tasks", "exec", "--exec-id", what, &id, "sh", "-c", command]);
        let ours = ours.replace("-node-a", "");
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

/// Of the services that an API server knows there is always one; here is none. The search path is the image's.
fn variables(text: &str) -> BTreeSet<String> {
    let own = text.lines().filter(|line| !line.starts_with("KUBERNETES_") && !line.starts_with("PATH="));
    own.map(|line| {
        let is_address = line.starts_with("IP=") || line.starts_with("HOST=");
        if is_address { line.split('=').next().unwrap_or_default().to_owned() } else { line.to_owned() }
    })
    .collect()
}

/// The pod's own address is another one each time.
fn hosts(text: &str) -> BTreeSet<String> {
    let own = |line: &str| {
        line.strip_prefix("10.88.").and_then(|rest| rest.split_once('\t')).map(|(_, names)| names.to_owned())
    };
    text.lines().map(|line| own(line).unwrap_or_else(|| line.to_owned())).collect()
}

/// Where something is mounted, and whether it can be written. The rest is the host's: its disk, where its runtime keeps
/// its own files, its control groups, and the token's volume, which only an API server gives.
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

/// Mode, owners and name of each file, in its directory. Moments, and sizes and links of directories, are left out.
fn files(text: &str) -> BTreeSet<String> {
    let mut directory = String::new();
    let mut found = BTreeSet::new();
    for line in text.lines() {
        if let Some(name) = line.strip_suffix(':') {
            directory = dated(name);
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let [mode, _links, user, group, size, _month, _day, _time, name @ ..] = words.as_slice() else { continue };
        // The token, which only an API server gives.
        if name.first() == Some(&"token") {
            continue;
        }
        // In one file stands the pod's name, which has another end on another node.
        let size = if mode.starts_with('-') && *name != ["name"] { size } else { "" };
        found.insert(format!("{directory} {mode} {user} {group} {size} {}", dated(&name.join(" "))));
    }
    found
}

/// The directory of the data is called after the moment at which it was made, or numbered: a clock may stand still.
fn dated(path: &str) -> String {
    let parts = path.split('/').map(|part| match part.rsplit_once("..") {
        Some((before, rest)) if rest.starts_with(|c: char| c.is_ascii_digit()) => format!("{before}..DATE"),
        _ => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("/")
}
