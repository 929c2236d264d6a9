//! Reads the facts about clock, disks, watchdog, ports, certificates and the pod network.

use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::fs::Access;

use super::facts::{CertificateFacts, ClockFacts, CniFacts, DiskFacts, PortFacts, RuntimeAnswer, WatchdogFacts};
use super::runtime::plugin_types;
use crate::kubelet::image_signatures::load_policy;
use crate::kubelet::node::BoardMoment;
use crate::platform::apiserver::{Kubeconfig, Pem};
use crate::platform::config::{Config, ServingIdentity};
use crate::platform::host::durable::{self, StoredFile};
use crate::platform::host::file_system::file_system;
use crate::platform::host::procfs::Procfs;
use crate::platform::host::time_mark::LATEST_TIME;
use crate::platform::host::{clock, file, program};
use crate::platform::rt;
use crate::protocol::pem;
use crate::protocol::x509::Certificate;
use crate::types::board::BoardReadings;
use crate::types::error::ErrorChain;
use crate::types::sorted::SortOnce;

/// Size limit of certificates, kubeconfigs and CNI configurations.
const MAX_CHECKED_FILE_BYTES: u64 = 1 << 20;
/// As the kernel shortens their names.
const TIME_SERVICES: [&str; 6] = ["chronyd", "connmand", "ntpd", "phc2sys", "sntp", "systemd-timesyn"];
const TIMEDATECTL_TIMEOUT: Duration = Duration::from_secs(3);
const CNI_CONFIGURATIONS: &str = "/etc/cni/net.d";
/// Where distributions put the plugins.
const CNI_PLUGINS: [&str; 4] = ["/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni", "/usr/local/lib/cni"];

pub(super) fn clock(root: &Path, config: &Config) -> ClockFacts {
    let latest = match durable::read(&config.root_dir.join(LATEST_TIME), MAX_CHECKED_FILE_BYTES) {
        Ok(StoredFile::Whole(text)) => String::from_utf8_lossy(&text).trim().parse().ok(),
        Ok(StoredFile::Damaged | StoredFile::Nothing) | Err(_) => None,
    };
    let rtc = fs::read_dir(root.join("sys/class/rtc")).is_ok_and(|mut entries| entries.next().is_some());
    ClockFacts {
        now: clock::now().unix_seconds(),
        built: clock::built(),
        latest,
        has_rtc: rtc,
        time_service: Procfs::at(root.join("proc")).first_running(&TIME_SERVICES),
        is_synchronised: is_synchronised(),
    }
}

/// The kernel's state of the clock, which every time service sets. `None` without systemd.
fn is_synchronised() -> Option<bool> {
    let mut command = Command::new("timedatectl");
    command.args(["show", "--property=NTPSynchronized", "--value"]);
    let output = rt::block_on(program::run(command, Vec::new(), TIMEDATECTL_TIMEOUT)).ok()?;
    match output.stdout.trim_ascii() {
        b"yes" => Some(true),
        b"no" => Some(false),
        _ => None,
    }
}

pub(super) fn board(root: &Path, config: &Config) -> BoardReadings {
    BoardReadings::read(root, &config.root_dir)
}

pub(super) fn board_times() -> BoardMoment {
    BoardMoment { now: clock::now(), instant: rt::now(), built: clock::built(), is_alarmed: false }
}

/// The directories that grow.
pub(super) fn disks(config: &Config, runtime: &str) -> Vec<DiskFacts> {
    let images = if runtime.contains("crio") { "/var/lib/containers" } else { "/var/lib/containerd" };
    let places =
        [("state", config.root_dir.clone()), ("images", images.into()), ("logs", config.logs.pods_dir.clone())];
    let mut disks: Vec<DiskFacts> = Vec::new();
    for disk in places.into_iter().filter_map(|(purpose, path)| disk(purpose, &path)) {
        // Most nodes have one file system.
        let is_same = |other: &DiskFacts| (other.capacity, other.inodes) == (disk.capacity, disk.inodes);
        if !disks.iter().any(is_same) || disk.is_read_only {
            disks.push(disk);
        }
    }
    disks
}

fn disk(purpose: &'static str, path: &Path) -> Option<DiskFacts> {
    let there = path.ancestors().find(|path| path.is_dir())?;
    let space = file_system(there).ok()?;
    Some(DiskFacts {
        purpose,
        path: there.display().to_string(),
        capacity: space.capacity,
        available: space.available,
        inodes: space.inodes,
        inodes_free: space.inodes_free,
        is_read_only: rustix::fs::access(there, Access::WRITE_OK) == Err(rustix::io::Errno::ROFS),
    })
}

/// The file of the signature policy, and why it cannot be honoured; `None` without a policy.
pub(super) fn signature_policy(config: &Config) -> Option<(String, Option<String>)> {
    let path = config.images.fetch.signature_policy.as_ref()?;
    Some((path.display().to_string(), load_policy(path).err()))
}

/// Does not open a device: that would arm it.
pub(super) fn watchdog(root: &Path, config: &Config) -> WatchdogFacts {
    let configured = config.health.watchdog_device.as_deref();
    let entries = fs::read_dir(root.join("sys/class/watchdog")).into_iter().flatten().flatten();
    let mut devices: Vec<(String, Option<u64>)> = entries
        .map(|entry| {
            let timeout = fs::read_to_string(entry.path().join("timeout")).ok();
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, timeout.and_then(|text| text.trim().parse().ok()))
        })
        .collect();
    devices.sort_once();
    WatchdogFacts {
        configured: configured.map(|path| path.display().to_string()),
        exists: configured.is_some_and(Path::exists),
        devices,
    }
}

/// `agent`: the pid of the running agent.
pub(super) fn ports(root: &Path, config: &Config, agent: Option<u32>) -> Vec<PortFacts> {
    let server = &config.identity.server;
    let is_open = server.enabled && (config.cluster.kubeconfig.is_some() || config.identity.client_ca_file.is_some());
    let ports: [(&'static str, Option<SocketAddr>); 4] = [
        ("kubelet API", Some(server.address).filter(|_| is_open || server.anonymous)),
        ("health", config.health.healthz),
        ("read-only", server.read_only),
        ("status page", config.health.status_page),
    ];
    let procfs = Procfs::at(root.join("proc"));
    let listeners = procfs.listeners();
    let ports = ports.into_iter().filter_map(|(purpose, address)| Some((purpose, address?.port())));
    let facts = ports.map(|(purpose, port)| {
        let socket = listeners.iter().find(|listener| listener.port == port);
        let holder = socket.map(|listener| procfs.holder(listener.inode).unwrap_or_default());
        let is_own = holder.as_ref().is_some_and(|(pid, _)| agent == Some(*pid));
        PortFacts { port, purpose, holder, is_own }
    });
    facts.collect()
}

pub(super) fn certificates(config: &Config) -> Vec<CertificateFacts> {
    let mut facts = Vec::new();
    if let Some(path) = config.cluster.kubeconfig.as_deref() {
        facts.push(client_certificate(path, config.identity.bootstrap_kubeconfig.as_deref()));
    }
    match &config.identity.serving {
        ServingIdentity::Files { certificate, .. } => facts.push(of_file("serving", certificate)),
        _ => {
            let stored = config.identity.cert_dir.join("kubelet-server-current.pem");
            facts.push(of_file("serving", &stored));
        }
    }
    if let Some(path) = config.identity.client_ca_file.as_deref() {
        facts.push(required("client CA", path));
    }
    facts
}

fn client_certificate(path: &Path, bootstrap: Option<&Path>) -> CertificateFacts {
    let name = "client";
    if !path.exists() && bootstrap.is_some_and(Path::exists) {
        // The agent requests one.
        return CertificateFacts { name, path: path.display().to_string(), not_after: None };
    }
    let folder = path.parent().unwrap_or(Path::new("/"));
    let read = file::read_all(path, MAX_CHECKED_FILE_BYTES).map_err(|error| error.to_string());
    let kubeconfig = read.and_then(|text| Kubeconfig::read(&text, folder).map_err(|error| error.to_string()));
    let not_after = match kubeconfig.map(|kubeconfig| kubeconfig.certificate) {
        Ok(Some((Pem::File(path), _))) => return required(name, &path),
        Ok(Some((Pem::Data(text), _))) => Some(end(&text)),
        // It has a token.
        Ok(None) => None,
        Err(error) => Some(Err(error)),
    };
    CertificateFacts { name, path: path.display().to_string(), not_after }
}

/// A missing file is no fault.
fn of_file(name: &'static str, path: &Path) -> CertificateFacts {
    if path.exists() {
        return required(name, path);
    }
    CertificateFacts { name, path: path.display().to_string(), not_after: None }
}

fn required(name: &'static str, path: &Path) -> CertificateFacts {
    let read = file::read_all(path, MAX_CHECKED_FILE_BYTES).map_err(|error| error.to_string());
    CertificateFacts { name, path: path.display().to_string(), not_after: Some(read.and_then(|text| end(&text))) }
}

/// The first certificate's end; CAs have one.
fn end(pem: &[u8]) -> Result<i64, String> {
    let certificates = pem::certificates(pem).map_err(|error| ErrorChain(&error).to_string())?;
    let first = certificates.first().ok_or_else(|| "no certificate".to_owned())?;
    let certificate = Certificate::read(first).map_err(|error| ErrorChain(&error).to_string())?;
    Ok(certificate.not_after)
}

/// `runtime`: its response, which names its directories.
pub(super) fn cni(runtime: Option<&RuntimeAnswer>) -> CniFacts {
    let directory = runtime.and_then(|response| response.cni_config_directory.as_deref()).unwrap_or(CNI_CONFIGURATIONS);
    let plugin_directories = match runtime.map(|response| response.cni_plugin_directories.as_slice()) {
        None | Some([]) => CNI_PLUGINS.map(str::to_owned).to_vec(),
        Some(directories) => directories.to_vec(),
    };
    cni_in(Path::new(directory), plugin_directories)
}

fn cni_in(directory: &Path, plugin_directories: Vec<String>) -> CniFacts {
    let is_config = |path: &PathBuf| {
        let extension = path.extension().and_then(OsStr::to_str);
        extension.is_some_and(|extension| ["conf", "conflist", "json"].contains(&extension))
    };
    // Runtimes use the first by name.
    let config = files(directory).into_iter().filter(is_config).min().map(|path| {
        let read = file::read_all(&path, MAX_CHECKED_FILE_BYTES).map_err(|error| error.to_string());
        (file_name(&path), read.and_then(|text| plugin_types(&text)))
    });
    let plugins = plugin_directories.iter().flat_map(|directory| files(Path::new(directory)));
    CniFacts {
        config_directory: directory.display().to_string(),
        config,
        plugins: plugins.map(|path| file_name(&path)).collect(),
        plugin_directories,
    }
}

fn files(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_configuration_by_name_counts_and_plugins_are_listed() {
        let root = std::env::temp_dir().join(format!("coracle-doctor-cni-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let (configs, bin) = (root.join("net.d"), root.join("bin"));
        fs::create_dir_all(&configs).unwrap();
        fs::create_dir_all(&bin).unwrap();
        fs::write(configs.join("20-b.conflist"), r#"{"plugins":[{"type":"host-local"}]}"#).unwrap();
        fs::write(configs.join("10-a.conf"), r#"{"type":"bridge"}"#).unwrap();
        fs::write(configs.join("00-readme.txt"), "x").unwrap();
        fs::write(bin.join("bridge"), "").unwrap();
        let facts = cni_in(&configs, vec![bin.display().to_string()]);
        let none = cni_in(&root.join("nowhere"), Vec::new());
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(facts.config, Some(("10-a.conf".to_owned(), Ok(vec!["bridge".to_owned()]))));
        assert_eq!(facts.plugins, ["bridge"]);
        assert_eq!((none.config, none.plugins), (None, Vec::new()));
    }

    #[test]
    fn time_service_is_found_by_its_name() {
        let root = std::env::temp_dir().join(format!("coracle-doctor-clock-{}", std::process::id()));
        for (pid, name) in [("1", "systemd"), ("310", "systemd-timesyn"), ("self", "chronyd")] {
            fs::create_dir_all(root.join("proc").join(pid)).unwrap();
            fs::write(root.join("proc").join(pid).join("comm"), format!("{name}\n")).unwrap();
        }
        let service = clock(&root, &Config::default()).time_service;
        fs::remove_dir_all(root.join("proc/310")).unwrap();
        let none = clock(&root, &Config::default()).time_service;
        fs::remove_dir_all(&root).unwrap();
        assert_eq!((service.as_deref(), none), (Some("systemd-timesyn"), None));
    }

    #[test]
    fn own_ports_are_found_with_their_process() {
        // At the usual address another test may get the port.
        let listener = std::net::TcpListener::bind("127.71.3.3:0").unwrap();
        let mut config = Config::default();
        config.health.healthz = Some(listener.local_addr().unwrap());
        let found = ports(Path::new("/"), &config, Some(std::process::id()));
        let health = found.iter().find(|port| port.purpose == "health").unwrap();
        assert!(health.is_own && health.holder.as_ref().unwrap().0 == std::process::id(), "{health:?}");
        drop(listener);
        // A child that another test is starting has the descriptor until it executes its program.
        let holder = || ports(Path::new("/"), &config, None).into_iter().find(|port| port.purpose == "health").unwrap();
        let begun = std::time::Instant::now();
        while holder().holder.is_some() && begun.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(holder().holder, None);
    }

    #[test]
    fn watchdogs_of_the_machine_are_listed_without_opening_them() {
        let root = std::env::temp_dir().join(format!("coracle-doctor-watchdog-{}", std::process::id()));
        let device = root.join("sys/class/watchdog/watchdog0");
        fs::create_dir_all(&device).unwrap();
        fs::write(device.join("timeout"), "15\n").unwrap();
        let mut config = Config::default();
        config.health.watchdog_device = Some("/nowhere/watchdog".into());
        let facts = watchdog(&root, &config);
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(facts.devices, [("watchdog0".to_owned(), Some(15))]);
        assert_eq!((facts.configured.as_deref(), facts.exists), (Some("/nowhere/watchdog"), false));
    }
}
