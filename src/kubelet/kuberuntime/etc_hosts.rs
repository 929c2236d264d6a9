//! Files mounted into each container: `/etc/hosts` and the termination log.

use std::fmt;
use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;

use super::dns::parse_resolv_conf;
use super::hosts::hosts_file;
use crate::kubelet::node::NodeSettings;
use crate::platform::cri::v1::{DnsConfig, Mount};
use crate::platform::host::{directories, file, regular_file};
use crate::platform::rt;
use crate::state::pods::{HostNames, PodDirs};
use crate::types::api::{Container, Pod};
use crate::types::error::ErrorChain;
use crate::types::owned::View;

/// A container file that could not be created, or a host file that could not be read.
#[derive(Debug)]
pub(crate) struct FileError {
    doing: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl FileError {
    fn new(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self { doing, path, source }
    }
}

impl fmt::Display for FileError {
    // The cause is in `source`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.doing, self.path.display())
    }
}

impl std::error::Error for FileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Creates the files for the instance of `container` with this restart count and returns their mounts, to be placed after
/// those of volumes.
///
/// `volumes` tells whether a volume of the container is mounted at `/etc/hosts`.
pub(crate) async fn make_own_files(
    pod: &Pod,
    container: &Container,
    restart_count: u32,
    pod_ips: &[IpAddr],
    volumes: &[Mount],
    node: &NodeSettings,
    host_names: &View<HostNames>,
) -> Result<Vec<Mount>, FileError> {
    let dirs = PodDirs::new(&node.root_dir, &node.pod_logs_dir);
    let uid = &pod.metadata.uid;
    let mut mounts = Vec::new();

    let wants_hosts = !volumes.iter().any(|mount| mount.container_path == ETC_HOSTS);
    let hosts = wants_hosts.then(|| dirs.etc_hosts(uid));
    let host_file =
        if wants_hosts && pod.spec.host_network { rt::blocking(host_hosts_file).await } else { String::new() };
    if let Some(path) = &hosts {
        mounts.push(mount(path, ETC_HOSTS, node));
    }
    let directory = dirs.container(uid, &container.name);
    // Each instance has a file of its own, so that the message of the last one can still be read. Attempts to start it
    // share it: a start that fails for days leaves one file.
    let log = dirs.termination_log(uid, &container.name, restart_count);
    let wants_log = !container.termination_message_path.is_empty();
    if wants_log {
        mounts.push(mount(&log, &container.termination_message_path, node));
    }

    rt::blocking_for(uid.as_str(), move || {
        make_directory(&directory)?;
        if wants_log {
            make_log(&log).map_err(FileError::new("make", &log))?;
        }
        Ok(())
    })
    .await?;
    let Some(path) = hosts else { return Ok(mounts) };
    loop {
        let (names, version) = {
            let names = host_names.read();
            (names.lines(&pod.metadata.namespace), names.version())
        };
        let text = hosts_file(pod, pod_ips, &node.cluster_domain, &host_file, &names);
        let path = path.clone();
        let write = move || write_if_other(&path, &text).map_err(FileError::new("write", &path));
        rt::blocking_for(uid.as_str(), write).await?;
        // On a slow disk the names may have changed meanwhile, and the files of running pods been written before this
        // one.
        if host_names.read().version() == version {
            return Ok(mounts);
        }
    }
}

/// A running pod, and the lines that its hosts file gets.
#[derive(Debug)]
pub(crate) struct HostsUpdate {
    pub(crate) pod: Arc<Pod>,
    pub(crate) pod_ips: Vec<IpAddr>,
    pub(crate) names: String,
}

/// Writes the hosts files of pods whose containers have one. What cannot be written is logged.
pub(crate) async fn update_hosts_files(node: &NodeSettings, updates: Vec<HostsUpdate>) {
    let dirs = PodDirs::new(&node.root_dir, &node.pod_logs_dir);
    let has_host_network = updates.iter().any(|update| update.pod.spec.host_network);
    let host_file = if has_host_network { rt::blocking(host_hosts_file).await } else { String::new() };
    for HostsUpdate { pod, pod_ips, names } in updates {
        let text = hosts_file(&pod, &pod_ips, &node.cluster_domain, &host_file, &names);
        let path = dirs.etc_hosts(&pod.metadata.uid);
        let write = move || if path.exists() { write_if_other(&path, &text) } else { Ok(()) };
        if let Err(error) = rt::blocking_for(pod.metadata.uid.as_str(), write).await {
            log!(warn, "failed to write hosts file", pod = pod.full_name(), error = ErrorChain(&error));
        }
    }
}

/// Parses the node's resolver file; a missing file is empty. Upstream starts no pod without the file, which a pod with
/// cluster DNS can do without.
pub(crate) async fn host_dns(node: &NodeSettings) -> Result<DnsConfig, FileError> {
    let Some(path) = node.resolv_conf.clone() else { return Ok(DnsConfig::default()) };
    rt::blocking(move || match read_text(&path) {
        Ok(text) => Ok(parse_resolv_conf(&text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(DnsConfig::default()),
        Err(error) => Err(FileError::new("read", &path)(error)),
    })
    .await
}

/// A missing file counts as empty.
fn host_hosts_file() -> String {
    read_text(Path::new(ETC_HOSTS)).unwrap_or_default()
}

fn read_text(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(File::open(path)?, MAX_HOST_FILE_BYTES), &mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn make_directory(path: &Path) -> Result<(), FileError> {
    let make = || {
        if let Some(parent) = path.parent() {
            directories::make_own(parent, 0o750)?;
        }
        directories::make_own(path, 0o750)
    };
    make().map_err(FileError::new("make", path))
}

/// The file is mounted in running containers, so it is written in place, and only if it differs. A container may have
/// made it very long. It is not synced, because each start of a container compares it again.
fn write_if_other(path: &Path, text: &str) -> io::Result<()> {
    if file::read_head(path, text.len() + 1).is_ok_and(|old| old == text.as_bytes()) {
        return Ok(());
    }
    let there = match regular_file::open(path, OFlags::WRONLY | OFlags::TRUNC) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Ok(None) => {
            directories::set_aside(path)?;
            None
        }
        opened => opened?,
    };
    let mut made = match there {
        Some(file) => file,
        None => File::options().write(true).create_new(true).mode(0o644).open(path)?,
    };
    made.write_all(text.as_bytes())?;
    made.set_permissions(Permissions::from_mode(0o644))
}

/// The container must be able to write it whatever its user. An earlier attempt to start it may have left a file.
fn make_log(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let file = File::options().write(true).create_new(true).mode(0o666).open(path)?;
    // The umask has taken bits from the mode of the open.
    file.set_permissions(Permissions::from_mode(0o666))
}

fn mount(host_path: &Path, container_path: &str, node: &NodeSettings) -> Mount {
    Mount {
        container_path: container_path.to_owned(),
        host_path: host_path.to_string_lossy().into_owned(),
        selinux_relabel: node.selinux,
        ..Mount::default()
    }
}

const ETC_HOSTS: &str = "/etc/hosts";
const MAX_HOST_FILE_BYTES: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::super::golden;
    use super::*;
    use crate::platform::rt::block_on;
    use crate::types::owned::Owned;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> (Self, NodeSettings) {
            let path = std::env::temp_dir().join(format!("coracle-{name}-{}", std::process::id()));
            let node = NodeSettings { root_dir: path.clone(), ..golden::node() };
            (Self(path), node)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn pod() -> (Pod, Container) {
        let mut pod = Pod::default();
        pod.metadata.name = "web".to_owned();
        pod.metadata.uid = "u1".into();
        let path = "/dev/termination-log".to_owned();
        (pod, Container { name: "main".to_owned(), termination_message_path: path, ..Container::default() })
    }

    fn no_names() -> View<HostNames> {
        Owned::<HostNames>::default().view()
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn files_have_upstreams_modes_and_each_start_has_its_own_log() {
        let (scratch, node) = Scratch::new("own-files");
        let (pod, container) = pod();
        let ips = ["10.0.0.2".parse().unwrap()];
        let first = block_on(make_own_files(&pod, &container, 0, &ips, &[], &node, &no_names())).unwrap();
        let second = block_on(make_own_files(&pod, &container, 1, &ips, &[], &node, &no_names())).unwrap();
        let [hosts, log] = first.as_slice() else { panic!("{first:?}") };
        assert_eq!(
            (hosts.container_path.as_str(), log.container_path.as_str()),
            ("/etc/hosts", "/dev/termination-log")
        );
        assert_eq!(hosts, &second[0]);
        assert_ne!(log, &second[1]);
        let directory = scratch.0.join("pods/u1/containers/main");
        assert_eq!(Path::new(&log.host_path).parent(), Some(directory.as_path()));
        let modes = (mode(&directory), mode(Path::new(&log.host_path)), mode(Path::new(&hosts.host_path)));
        assert_eq!(modes, (0o750, 0o666, 0o644));
        assert!(fs::read_to_string(&hosts.host_path).unwrap().ends_with("10.0.0.2\tweb\n"));
    }

    #[test]
    fn attempts_of_one_start_share_an_empty_log() {
        let (scratch, node) = Scratch::new("shared-log");
        let (pod, container) = pod();
        let attempt = || block_on(make_own_files(&pod, &container, 3, &[], &[], &node, &no_names())).unwrap();
        let log = attempt().pop().unwrap().host_path;
        fs::write(&log, "of a container that the runtime lost").unwrap();
        assert_eq!(attempt().pop().unwrap().host_path, log);
        assert_eq!((fs::read_to_string(&log).unwrap().as_str(), mode(Path::new(&log))), ("", 0o666));
        assert_eq!(fs::read_dir(scratch.0.join("pods/u1/containers/main")).unwrap().count(), 1);
    }

    #[test]
    fn names_of_other_pods_are_written_to_the_files_that_exist() {
        let (_scratch, node) = Scratch::new("host-names");
        let (pod, container) = pod();
        let ips = ["10.0.0.2".parse().unwrap()];
        let mounts = block_on(make_own_files(&pod, &container, 0, &ips, &[], &node, &no_names())).unwrap();
        let file = Path::new(&mounts.first().unwrap().host_path).to_owned();
        let update = |uid: &str| {
            let mut pod = pod.clone();
            pod.metadata.uid = uid.into();
            HostsUpdate { pod: Arc::new(pod), pod_ips: ips.to_vec(), names: "10.0.0.3\tdb\tdb.default\n".to_owned() }
        };
        block_on(update_hosts_files(&node, vec![update("u1"), update("u2")]));
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains("\n10.0.0.2\tweb\n") && text.ends_with("\n10.0.0.3\tdb\tdb.default\n"), "{text}");
        assert!(!PodDirs::new(&node.root_dir, &node.pod_logs_dir).etc_hosts(&"u2".into()).exists());
    }

    #[test]
    fn own_files_are_relabelled_on_a_host_with_selinux() {
        let (_scratch, node) = Scratch::new("own-labels");
        for selinux in [false, true] {
            let node = NodeSettings { selinux, ..node.clone() };
            let (pod, container) = pod();
            let mounts = block_on(make_own_files(&pod, &container, 0, &[], &[], &node, &no_names())).unwrap();
            assert_eq!(mounts.iter().map(|mount| mount.selinux_relabel).collect::<Vec<_>>(), [selinux, selinux]);
        }
    }

    #[test]
    fn equal_hosts_file_is_kept_and_a_torn_one_rewritten() {
        let (scratch, _) = Scratch::new("hosts-file");
        fs::create_dir_all(&scratch.0).unwrap();
        let path = scratch.0.join("etc-hosts");
        write_if_other(&path, "one\n").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        write_if_other(&path, "one\n").unwrap();
        assert_eq!(mode(&path), 0o600, "it was written again");
        fs::write(&path, "").unwrap();
        write_if_other(&path, "one\n").unwrap();
        assert_eq!((mode(&path), fs::read_to_string(&path).unwrap().as_str()), (0o644, "one\n"));
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        write_if_other(&path, "one\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "one\n");
    }

    #[test]
    fn hosts_file_that_a_container_made_long_is_not_read_whole() {
        let (scratch, _) = Scratch::new("long-hosts");
        fs::create_dir_all(&scratch.0).unwrap();
        let path = scratch.0.join("etc-hosts");
        fs::write(&path, "one\n").unwrap();
        File::options().write(true).open(&path).unwrap().set_len(64 << 20).unwrap();
        let before = file::bytes_read_by_thread();
        write_if_other(&path, "one\n").unwrap();
        let read = file::bytes_read_by_thread() - before;
        assert!(read < 64 << 10, "{read} bytes were read");
        assert_eq!(fs::read_to_string(&path).unwrap(), "one\n");
    }

    #[test]
    fn own_hosts_file_and_missing_log_path_are_respected() {
        let (_scratch, node) = Scratch::new("own-hosts");
        let (pod, mut container) = pod();
        container.termination_message_path.clear();
        let volume = Mount { container_path: ETC_HOSTS.to_owned(), ..Mount::default() };
        assert_eq!(block_on(make_own_files(&pod, &container, 0, &[], &[volume], &node, &no_names())).unwrap(), []);
    }

    #[test]
    fn missing_resolver_file_is_empty_and_a_directory_is_an_error() {
        let with = |path: Option<&str>| NodeSettings { resolv_conf: path.map(Into::into), ..golden::node() };
        assert_eq!(block_on(host_dns(&with(None))).unwrap(), DnsConfig::default());
        assert_eq!(block_on(host_dns(&with(Some("/nonexistent")))).unwrap(), DnsConfig::default());
        let error = block_on(host_dns(&with(Some("/")))).unwrap_err();
        assert_eq!(error.to_string(), "read /");
    }
}
