//! Collects what goes into the archive: from the agent if it answers, else from files.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use super::redact_text::redact_text;
use super::redact_value::redact_value;
use crate::cli::local_api::{RequestFailure, fetch, get};
use crate::platform::config::Config;
use crate::platform::host::file::read_tail;
use crate::platform::host::program;
use crate::platform::rt;
use crate::types::api::to_yaml;
use crate::types::api::yaml;
use crate::types::error::ErrorChain;
use crate::types::sorted::SortOnce;

/// A file of the archive; the error is one line.
pub(super) type Part = (String, Result<String, String>);

/// Bytes of one container's log, of another log file, and of any other file.
const CONTAINER_LOG_BYTES: u64 = 16 << 10;
const OTHER_LOG_BYTES: u64 = 256 << 10;
const MAX_COLLECTED_FILE_BYTES: u64 = 256 << 10;
/// Logs of containers, the newest first, and files of one directory.
const MAX_CONTAINER_LOGS: usize = 60;
const MAX_FILES_OF_DIRECTORY: usize = 60;
const JOURNAL_TIMEOUT: Duration = Duration::from_secs(15);

/// Answers of the agent.
pub(super) fn of_agent(socket: &Path) -> Vec<Part> {
    let pages = ["status", "pods", "events", "images", "devices", "stats/summary", "configz"];
    let part = |page: &str| {
        let response: Result<Value, _> = get(socket, &format!("/{page}"));
        let text = response.map_err(|error| ErrorChain(&error).to_string()).map(|mut value| {
            redact_value(&mut value);
            format!("{value:#}\n")
        });
        (format!("{}.json", page.replace('/', "-")), text)
    };
    let metrics = fetch(socket, "/metrics").map_err(RequestFailure::line);
    let metrics = metrics.map(|text| redact_text(&String::from_utf8_lossy(&text)));
    pages.into_iter().map(part).chain([("metrics.txt".to_owned(), metrics)]).collect()
}

/// The journals of the agent and the runtime, or what is in their place.
pub(super) fn logs() -> Vec<Part> {
    let journal = |name: &str, arguments: &[&str]| {
        let mut command = Command::new("journalctl");
        command.args(["--no-pager", "-q", "-n", "2000", "-o", "short-iso"]).args(arguments);
        (format!("logs/{name}.txt"), output(command))
    };
    let mut parts = vec![
        journal("agent", &["-u", "coracle", "-u", "kubelet"]),
        journal("runtime", &["-u", "containerd", "-u", "crio", "-u", "docker"]),
    ];
    let mut dmesg = Command::new("dmesg");
    dmesg.arg("-T");
    parts.push(("logs/kernel.txt".to_owned(), output(dmesg)));
    // Boards without a journal.
    for name in ["messages", "syslog"] {
        let path = Path::new("/var/log").join(name);
        if path.is_file() {
            parts.push((format!("logs/{name}.txt"), tail(&path, OTHER_LOG_BYTES)));
        }
    }
    parts
}

/// The ends of the logs of containers, newest first: `pods_dir/NAMESPACE_POD_UID/CONTAINER/N.log`.
pub(super) fn container_logs(pods_dir: &Path) -> Vec<Part> {
    let mut logs: Vec<(SystemTime, PathBuf)> = Vec::new();
    for container in entries(pods_dir).iter().flat_map(|pod| entries(pod)) {
        for log in entries(&container).into_iter().filter(|path| path.extension() == Some(OsStr::new("log"))) {
            let changed = fs::symlink_metadata(&log).and_then(|metadata| metadata.modified());
            logs.push((changed.unwrap_or(SystemTime::UNIX_EPOCH), log));
        }
    }
    logs.sort_once_by(|one, other| other.cmp(one));
    let part = |(_, path): &(SystemTime, PathBuf)| {
        let name = path.strip_prefix(pods_dir).unwrap_or(path).to_string_lossy();
        // A container does not write the file, but links are not followed all the same.
        let read = read_tail(path, CONTAINER_LOG_BYTES).map_err(|error| format!("{}: {error}", path.display()));
        (short_name("logs/pods", &name.replace('/', "_"), ".txt"), read.map(redacted_end))
    };
    logs.iter().take(MAX_CONTAINER_LOGS).map(part).collect()
}

/// Configuration, manifests and the agent's flags, without secrets.
pub(super) fn configuration(config: &Config, flags: &[String]) -> Vec<Part> {
    let mut parts = vec![("config/flags.txt".to_owned(), Ok(redact_text(&(flags.join("\n") + "\n"))))];
    let named = |name: &str| {
        let mut words = flags.iter().map(String::as_str);
        let prefix = format!("--{name}=");
        let flag_value = flags.iter().find_map(|flag| flag.strip_prefix(&prefix));
        flag_value.or_else(|| words.find(|word| *word == format!("--{name}")).and(words.next())).map(PathBuf::from)
    };
    let yaml_files = [
        ("config/config.yaml", named("config")),
        ("config/coracle.yaml", named("coracle-config")),
        ("config/kubeconfig.yaml", config.cluster.kubeconfig.clone()),
        ("config/credential-providers.yaml", named("image-credential-provider-config")),
    ];
    for (name, path) in yaml_files {
        parts.extend(path.filter(|path| path.exists()).map(|path| (name.to_owned(), yaml_file(&path))));
    }
    let texts = ["/etc/default/coracle", "/etc/containerd/config.toml", "/etc/crio/crio.conf", "/etc/fstab"];
    for path in texts.map(Path::new).into_iter().filter(|path| path.is_file()) {
        let name = path.display().to_string().trim_start_matches('/').replace('/', "-");
        parts.push((format!("config/{name}.txt"), tail(path, MAX_COLLECTED_FILE_BYTES)));
    }
    parts.extend(directory("config/cni", Path::new("/etc/cni/net.d")));
    if let Some(manifests) = config.static_pods.path.as_deref() {
        let parts_of = if manifests.is_dir() { directory("manifests", manifests) } else { vec![] };
        parts.extend(parts_of);
    }
    parts
}

/// Checkpoints and stored state that hold no secrets, and a list of all files of the agent's state.
pub(super) fn state(root_dir: &Path) -> Vec<Part> {
    let mut parts = Vec::new();
    let files = [
        "cpu_manager_state",
        "memory_manager_state",
        "dra_manager_state",
        "allocated_pods_state",
        "actuated_pods_state",
        "device-plugins/kubelet_internal_checkpoint",
        "coracle/last-stall.json",
        "coracle/last-panic.json",
        "coracle/latest-time",
    ];
    for file in files.map(|file| root_dir.join(file)).into_iter().filter(|file| file.is_file()) {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        parts.push((format!("state/{name}.txt"), tail(&file, MAX_COLLECTED_FILE_BYTES)));
    }
    let mut list = String::new();
    for directory in [root_dir.to_owned(), root_dir.join("coracle"), root_dir.join("pki"), root_dir.join("pods")] {
        for path in entries(&directory) {
            let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
            list.push_str(&format!("{:>12} {}\n", metadata.len(), path.display()));
        }
    }
    parts.push(("state/files.txt".to_owned(), Ok(list)));
    parts
}

/// Facts of the kernel and the distribution.
pub(super) fn kernel() -> Vec<Part> {
    let files = [
        "proc/version",
        "proc/cmdline",
        "proc/cpuinfo",
        "proc/meminfo",
        "proc/mounts",
        "proc/modules",
        "proc/swaps",
        "proc/uptime",
        "proc/loadavg",
        "proc/filesystems",
        "proc/diskstats",
        "proc/net/dev",
        "proc/net/route",
        "proc/net/tcp",
        "proc/pressure/cpu",
        "proc/pressure/io",
        "proc/pressure/memory",
        "proc/sys/kernel/osrelease",
        "sys/fs/cgroup/cgroup.controllers",
        "sys/fs/cgroup/cgroup.subtree_control",
        "etc/os-release",
        "proc/device-tree/model",
        "etc/resolv.conf",
        "etc/hostname",
    ];
    let read = |file: &&str| {
        let bytes = fs::read(Path::new("/").join(file)).ok()?;
        let text = String::from_utf8_lossy(&bytes).replace('\0', "\n");
        Some((format!("kernel/{}.txt", file.replace('/', "-")), Ok(redact_text(&text))))
    };
    files.iter().filter_map(read).collect()
}

/// The files of a directory: objects without secrets. A file that is no YAML or JSON may hold anything.
fn directory(folder: &str, directory: &Path) -> Vec<Part> {
    let files = entries(directory).into_iter().filter(|path| path.is_file()).take(MAX_FILES_OF_DIRECTORY);
    let part = |path: PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        (short_name(folder, &name, ".yaml"), yaml_file(&path))
    };
    files.map(part).collect()
}

/// A file of objects, without secrets.
fn yaml_file(path: &Path) -> Result<String, String> {
    let (bytes, is_cut) = read_any(path, MAX_COLLECTED_FILE_BYTES)?;
    if is_cut {
        return Err(format!("{}: larger than {MAX_COLLECTED_FILE_BYTES} bytes", path.display()));
    }
    // Left out and not copied: without its structure, secrets cannot be told from the rest.
    let documents = yaml::parse(&bytes).map_err(|error| format!("{}: left out: {error}", path.display()))?;
    let text = documents.into_iter().map(|document| {
        let mut value = document.value;
        redact_value(&mut value);
        to_yaml(&value)
    });
    Ok(format!("# {}\n{}", path.display(), text.collect::<Vec<_>>().join("---\n")))
}

fn tail(path: &Path, limit: u64) -> Result<String, String> {
    read_any(path, limit).map(redacted_end)
}

/// The text without secrets and, if it was cut, without its first line, which may begin within a secret.
fn redacted_end((bytes, is_cut): (Vec<u8>, bool)) -> String {
    let text = String::from_utf8_lossy(&bytes);
    redact_text(if is_cut { text.split_once('\n').map_or("", |(_, rest)| rest) } else { &text })
}

fn read_any(path: &Path, limit: u64) -> Result<(Vec<u8>, bool), String> {
    // Configuration files may be links.
    let real = fs::canonicalize(path).map_err(|error| format!("{}: {error}", path.display()))?;
    read_tail(&real, limit).map_err(|error| format!("{}: {error}", path.display()))
}

fn output(command: Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let ran = rt::block_on(program::run(command, Vec::new(), JOURNAL_TIMEOUT));
    let output = ran.map_err(|error| format!("{name}: {error}"))?;
    if !output.status.success() && output.stdout.is_empty() {
        return Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(redact_text(&String::from_utf8_lossy(&output.stdout)))
}

/// The entries of a directory in the order of their names.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut entries: Vec<PathBuf> = entries.collect();
    entries.sort_once();
    entries
}

/// A name that fits into a tar; of a longer one, the end is kept.
fn short_name(folder: &str, name: &str, extension: &str) -> String {
    const MAX_TAR_NAME_BYTES: usize = 70;
    let plain: String = name.chars().map(|c| if c.is_ascii_graphic() { c } else { '_' }).collect();
    let start = plain.len().saturating_sub(MAX_TAR_NAME_BYTES);
    let kept = plain.get(start..).unwrap_or_default();
    format!("{folder}/{}{extension}", kept.trim_end_matches(extension))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("coracle-support-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn manifests_are_redacted_and_those_that_cannot_be_are_left_out() {
        let folder = Folder::new("manifests");
        folder.write("a.yaml", "kind: Secret\nstringData: {k: HUNTER}\n---\nkind: Pod\nmetadata: {name: web}\n");
        folder.write("b.yaml", "kind: Secret\nstringData: {k: HUNTER\n");
        let parts = directory("manifests", &folder.0);
        let names: Vec<&str> = parts.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["manifests/a.yaml", "manifests/b.yaml"]);
        let text = parts[0].1.as_ref().unwrap();
        assert!(
            text.contains("name: web") && text.contains("REDACTED (6 bytes)") && !text.contains("HUNTER"),
            "{text}"
        );
        let error = parts[1].1.as_ref().unwrap_err();
        assert!(error.contains("left out") && !error.contains("HUNTER"), "{error}");
    }

    #[test]
    fn ends_of_container_logs_are_taken_without_a_cut_line() {
        let folder = Folder::new("logs");
        folder.write("ns_web_uid/main/0.log", "2026-01-01T00:00:00Z stdout F PASSWORD=HUNTER\n");
        let long = format!("password=HUNTER {}\nlast\n", "x".repeat(20_000));
        folder.write("ns_web_uid/long/1.log", &long);
        let parts = container_logs(&folder.0);
        let find = |name: &str| parts.iter().find(|(one, _)| one == name).unwrap().1.clone().unwrap();
        assert_eq!(find("logs/pods/ns_web_uid_main_0.log.txt"), "2026-01-01T00:00:00Z stdout F PASSWORD=REDACTED\n");
        assert_eq!(find("logs/pods/ns_web_uid_long_1.log.txt"), "last\n");
    }

    #[test]
    fn names_fit_into_a_tar() {
        let name = short_name("logs/pods", &"n".repeat(200), ".txt");
        assert!(name.len() < 85 && name.starts_with("logs/pods/n") && name.ends_with(".txt"), "{name}");
        assert_eq!(short_name("m", "a b.yaml", ".yaml"), "m/a_b.yaml");
    }

    #[test]
    fn silent_agent_leaves_an_error_for_each_page() {
        let parts = of_agent(Path::new("/nowhere/c.sock"));
        assert_eq!(parts.len(), 8);
        assert!(parts.iter().all(|(_, part)| part.as_ref().is_err_and(|error| error.contains("not running"))));
    }
}
