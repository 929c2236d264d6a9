//! CRI-O instead of containerd: `CORACLE_CRIO=DIR cargo test --test integration containerd::`, with `crio` and `pinns`
//! in DIR, and conmon, runc and skopeo installed.
//!
//! Tests that talk to containerd itself fail on CRI-O with a message that says so.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::runtime::Task;
use super::{Node, PATIENCE, cni_plugins, find_program, images, wait_for};

/// Directory of the CRI-O programs, if the tests run on CRI-O.
pub(super) fn programs() -> Option<PathBuf> {
    std::env::var_os("CORACLE_CRIO").map(PathBuf::from)
}

impl Node {
    pub(crate) fn is_on_crio() -> bool {
        programs().is_some()
    }

    /// Starts CRI-O with the images and waits until it answers.
    pub(super) fn start_crio(&mut self, programs: &Path) {
        let folder = self.folder().display().to_string();
        if !self.crio_storage("overlay-containers").exists() {
            fs::write(self.folder().join("crio.conf"), configuration(&folder, programs)).unwrap();
            let storage = format!(
                "[storage]\ndriver = \"overlay\"\ngraphroot = \"{folder}/containerd/root\"\n\
                 runroot = \"{folder}/containerd/run\"\n"
            );
            fs::write(self.folder().join("storage.conf"), storage).unwrap();
            let registry = "[[registry]]\nlocation = \"127.0.0.1:5000\"\ninsecure = true\n";
            fs::write(self.folder().join("registries.conf"), registry).unwrap();
        }
        for image in ["pause", "busybox"] {
            let archive = images().join(image).with_extension("tar");
            self.import_image(&archive, &format!("localhost/coracle/{image}:1"));
        }
        let [config, registries] =
            ["crio.conf", "registries.conf"].map(|name| self.folder().join(name).display().to_string());
        let line = ["--config", &config, "--config-dir", "", "--registries-conf", &registries];
        let log = self.folder().join("containerd.log");
        self.containerd = Some(self.enclosure.start(&programs.join("crio"), &line, &log));
        wait_for("CRI-O to listen", PATIENCE, || {
            let log = fs::read_to_string(&log).unwrap_or_default();
            assert!(!log.contains("level=fatal"), "{log}");
            self.runtime_socket().exists().then_some(())
        });
    }

    /// A file of the store, from outside.
    pub(super) fn crio_storage(&self, name: &str) -> PathBuf {
        self.enclosure().path(&self.folder().join("containerd/root").join(name))
    }

    /// The containers in CRI-O's storage, with the state that conmon reports.
    pub(super) fn crio_tasks(&self) -> Vec<Task> {
        let listed =
            fs::read_to_string(self.crio_storage("overlay-containers/volatile-containers.json")).unwrap_or_default();
        let listed: Vec<Value> = serde_json::from_str(&listed).unwrap_or_default();
        listed.iter().filter_map(|one| self.crio_task(one)).collect()
    }

    fn crio_task(&self, one: &Value) -> Option<Task> {
        let id = one["id"].as_str()?;
        // k8s_CONTAINER_POD_NAMESPACE_UID_ATTEMPT, the format of dockershim.
        let name = one["names"].as_array()?.iter().filter_map(Value::as_str).find(|name| name.starts_with("k8s_"))?;
        let mut words = name.split('_').skip(1);
        let (container, pod) = (words.next()?, words.next()?);
        let container = if container == "POD" { "" } else { container };
        let userdata = self.folder().join("containerd/run/overlay-containers").join(id).join("userdata");
        let pid = fs::read_to_string(self.enclosure().path(&userdata.join("pidfile"))).unwrap_or_default();
        let pid = pid.trim().parse().unwrap_or_default();
        let runs = pid != 0 && self.enclosure().path(Path::new(&format!("/proc/{pid}"))).exists();
        let pid = if runs { pid } else { 0 };
        Some(Task { pod: pod.to_owned(), container: container.to_owned(), id: id.to_owned(), pid })
    }
}

fn configuration(folder: &str, programs: &Path) -> String {
    let (programs, cni) = (programs.display(), cni_plugins());
    let [conmon, runc] = ["conmon", "runc"].map(|name| find_program(name).display().to_string());
    format!(
        r#"[crio]
root = "{folder}/containerd/root"
runroot = "{folder}/containerd/run"
storage_driver = "overlay"
log_dir = "{folder}/logs"
version_file = "{folder}/containerd/version"
clean_shutdown_file = "{folder}/containerd/clean"
[crio.api]
listen = "{folder}/containerd.sock"
stream_address = "127.0.0.1"
stream_port = "0"
[crio.runtime]
cgroup_manager = "cgroupfs"
conmon_cgroup = "pod"
default_runtime = "runc"
hooks_dir = []
selinux = false
pinns_path = "{programs}/pinns"
namespaces_dir = "{folder}/containerd/ns"
container_exits_dir = "{folder}/containerd/exits"
container_attach_socket_dir = "{folder}/containerd/a"
drop_infra_ctr = false
irqbalance_config_file = ""
log_level = "info"
apparmor_profile = "unconfined"
[crio.runtime.runtimes.runc]
runtime_path = "{runc}"
runtime_root = "{folder}/containerd/runc"
runtime_type = "oci"
monitor_path = "{conmon}"
monitor_cgroup = "pod"
[crio.image]
pause_image = "localhost/coracle/pause:1"
pause_command = "/pause"
signature_policy = "/etc/containers/policy.json"
[crio.network]
network_dir = "{folder}/cni"
plugin_dirs = ["{cni}"]
"#
    )
}
