//! A node under test: a private containerd and an agent with its own manifest directory.
//!
//! Each test has its own node, because an agent removes foreign pods from its runtime. A node starts in a third of a
//! second and is torn down with the test, even if the test fails.

pub(crate) mod activity;
mod crio;
mod enclosure;
mod events;
mod image_store;
mod lean;
pub(crate) mod manifest;
mod page;
mod pods;
mod process;
mod runtime;
pub(crate) mod settings;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use nix::sys::signal::Signal;

pub(crate) use enclosure::images;
pub(crate) use events::{Event, Events};
pub(crate) use lean::shim_children;
pub(crate) use manifest::{BUSYBOX, Manifest, STAY};
pub(crate) use page::{page, page_if_served};
pub(crate) use pods::{NODE_NAME, Pod, Pods};
pub(crate) use process::Process;
pub(crate) use runtime::Task;

use enclosure::{BRIDGE, Enclosure, SUBNET};

/// Default time limit of waits, long enough for a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Node {
    // Fields are dropped in this order. The processes of agent and runtime end with the enclosure.
    agent: Option<Process>,
    containerd: Option<Process>,
    enclosure: Enclosure,
    more_arguments: Vec<String>,
    /// `NAME=VALUE` for containerd.
    runtime_environment: Vec<String>,
}

impl Node {
    /// A node with a running containerd and a running agent.
    pub(crate) fn start() -> Self {
        let mut node = Self::with_runtime();
        node.start_agent();
        node
    }

    /// A node with a running containerd and no agent.
    pub(crate) fn with_runtime() -> Self {
        let mut node = Self::bare();
        node.start_containerd();
        node
    }

    /// A node with directories and configuration only.
    pub(crate) fn bare() -> Self {
        let node = Self {
            agent: None,
            containerd: None,
            enclosure: Enclosure::new(),
            more_arguments: Vec::new(),
            runtime_environment: Vec::new(),
        };
        for folder in ["manifests", "cni", "pods", "logs"] {
            fs::create_dir(node.folder().join(folder)).unwrap();
        }
        node.configure_containerd();
        node.configure_agent("");
        node
    }

    pub(crate) fn folder(&self) -> &Path {
        self.enclosure.folder()
    }

    pub(crate) fn enclosure(&self) -> &Enclosure {
        &self.enclosure
    }

    /// The runtime's socket, which is reachable from outside too.
    pub(crate) fn runtime_socket(&self) -> PathBuf {
        self.folder().join("containerd.sock")
    }
}

// The runtime.
impl Node {
    fn configure_containerd(&self) {
        let folder = self.folder().display().to_string();
        let top = Path::new(env!("CARGO_MANIFEST_DIR"));
        let config = fs::read_to_string(top.join("scripts/containerd.toml")).unwrap();
        let config = config
            .replace("@ROOT@", &format!("{folder}/containerd/root"))
            .replace("@STATE@", &format!("{folder}/containerd/state"))
            .replace("@SOCKET@", &self.runtime_socket().display().to_string())
            .replace("@RESTRICT_OOM@", if may_lower_oom_scores() { "false" } else { "true" })
            .replace("@CNI_PLUGINS@", cni_plugins())
            .replace("@CNI_CONF@", &format!("{folder}/cni"));
        fs::write(self.folder().join("containerd.toml"), config).unwrap();
        let bridge = fs::read_to_string(top.join("scripts/bridge.conflist")).unwrap();
        let bridge = bridge
            .replace("@NAME@", "bridge")
            .replace("@BRIDGE@", BRIDGE)
            .replace("@SUBNET@", SUBNET)
            .replace("@IPAM@", &format!("{folder}/containerd/ipam"));
        fs::write(self.folder().join("cni/10-bridge.conflist"), bridge).unwrap();
    }

    /// A node whose runtime leaves the processes of a dead shim alive, as containerd 2.1 does: here the command that
    /// cleans up after it fails.
    pub(crate) fn with_leaking_shims() -> Self {
        let mut node = Self::bare();
        let name = "containerd-shim-runc-v2";
        let (shim, real) = (node.enclosure.programs().join(name), find_program(name));
        let is_delete = "for last; do :; done; [ $last != delete ] || exit 1";
        fs::create_dir(node.enclosure.programs()).unwrap();
        fs::write(&shim, format!("#!/bin/sh\n{is_delete}\nexec {} \"$@\"\n", real.display())).unwrap();
        fs::set_permissions(&shim, fs::Permissions::from_mode(0o755)).unwrap();
        // The process of such a container does not exit, so that without the runtime's events only a relist tells.
        node.configure_agent("syncFrequency: 1s\n");
        node.start_containerd();
        node.start_agent();
        node
    }

    /// Starts containerd, waits until it answers, and imports the images if they are missing.
    pub(crate) fn start_containerd(&mut self) {
        if let Some(programs) = crio::programs() {
            return self.start_crio(&programs);
        }
        let config = self.folder().join("containerd.toml").display().to_string();
        let log = self.folder().join("containerd.log");
        let containerd = self.enclosure.start_with(
            &self.runtime_environment,
            &find_program("containerd"),
            &["--config", &config],
            &log,
        );
        self.containerd = Some(containerd);
        wait_for("containerd to answer", PATIENCE, || {
            self.ctr_command(&["version"]).output().unwrap().status.success().then_some(())
        });
        if self.ctr(&["images", "list", "--quiet"]).is_empty() {
            for image in ["pause.tar", "busybox.tar"] {
                self.ctr(&["images", "import", &images().join(image).display().to_string()]);
            }
        }
    }

    /// Stops containerd alone. Its shims and containers keep running, as they do during an update.
    pub(crate) fn stop_containerd(&mut self, signal: Signal) {
        if let Some(containerd) = self.containerd.take() {
            containerd.end(signal);
        }
    }

    /// Kills everything at once. Only the state on disk remains.
    pub(crate) fn cut_power(&mut self) {
        self.kill_agent();
        self.stop_containerd(Signal::SIGKILL);
        self.enclosure.lose_memory();
    }

    pub(crate) fn ctr_command(&self, arguments: &[&str]) -> Command {
        let mut command = self.enclosure.command("ctr");
        command.arg("--address").arg(self.runtime_socket()).args(["--namespace", "k8s.io"]).args(arguments);
        command
    }

    /// Kills a pod's running container without telling the agent.
    #[track_caller]
    pub(crate) fn kill_container(&self, manifest: &str, container: &str) {
        let running = self.running_containers(manifest);
        let task = running.iter().find(|task| task.container == container).expect("the container to be killed runs");
        self.end_container(&task.id);
    }

    /// The CPUs in the affinity mask of a container.
    pub(crate) fn processors_of(&self, id: &str) -> Option<String> {
        let pid = *processes_of(id).first()?;
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        Some(allowed.trim().to_owned())
    }

    /// Kills the processes in the cgroup of a container.
    #[track_caller]
    pub(crate) fn end_container(&self, id: &str) {
        let pids = processes_of(id);
        assert!(!pids.is_empty(), "container {id} has no process");
        for pid in pids {
            // The process may have exited already.
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

// The agent.
impl Node {
    /// Writes the agent's configuration with `more` appended.
    pub(crate) fn configure_agent(&self, more: &str) {
        fs::write(self.folder().join("resolv.conf"), "nameserver 192.0.2.53\n").unwrap();
        let config = settings::configuration(self.folder(), more);
        fs::write(self.folder().join("config.yaml"), config).unwrap();
    }

    /// Adds options to the agent's command line.
    pub(crate) fn add_arguments(&mut self, arguments: &[&str]) {
        self.more_arguments.extend(arguments.iter().map(|argument| (*argument).to_owned()));
    }

    /// Starts the agent and waits until it answers on its socket.
    pub(crate) fn start_agent(&mut self) {
        self.launch_agent();
        wait_for("the agent to answer", PATIENCE, || {
            let ended = self.agent.as_mut().and_then(Process::ended);
            assert_eq!(ended, None, "the agent ended at its start: {}", tail(&self.agent_log()));
            page_if_served(self.folder(), "/pods").map(drop)
        });
    }

    /// Starts the agent without waiting.
    pub(crate) fn launch_agent(&mut self) {
        let endpoint = format!("unix://{}", self.runtime_socket().display());
        let arguments = settings::arguments(self.folder(), &endpoint);
        let arguments: Vec<&str> = arguments.iter().chain(&self.more_arguments).map(String::as_str).collect();
        let log = self.folder().join("coracle.log");
        self.agent = Some(self.enclosure.start(coracle(), &arguments, &log));
    }

    /// The agent's PID, as seen from outside.
    pub(crate) fn agent_pid(&self) -> u32 {
        self.agent.as_ref().expect("the agent runs").pid()
    }

    pub(crate) fn stop_agent(&mut self, signal: Signal) {
        if let Some(agent) = self.agent.take() {
            agent.end(signal);
        }
    }

    pub(crate) fn kill_agent(&mut self) {
        self.stop_agent(Signal::SIGKILL);
    }

    pub(crate) fn agent_log(&self) -> String {
        fs::read_to_string(self.folder().join("coracle.log")).unwrap_or_default()
    }

    /// The output of a subcommand; `None` if it fails.
    pub(crate) fn ask(&self, line: &[&str]) -> Option<String> {
        let done =
            Command::new(coracle()).args(line).arg("--local-socket").arg(self.folder().join("coracle.sock")).output();
        let done = done.unwrap();
        // `coracle status` ends with 3 or 4 if something is wrong with the node.
        let has_answered = [Some(0), Some(3), Some(4)].contains(&done.status.code());
        (has_answered && !done.stdout.is_empty()).then(|| String::from_utf8_lossy(&done.stdout).into_owned())
    }

    pub(crate) fn pods(&self) -> Pods {
        page_if_served(self.folder(), "/pods").map(|page| Pods::parse(&page)).unwrap_or_default()
    }

    /// The current errors of the manifests as one text.
    pub(crate) fn source_errors(&self) -> String {
        let status = self.ask(&["status", "-o", "json"]).expect("the agent answers");
        let status: serde_json::Value = serde_json::from_str(&status).expect("coracle status -o json is JSON");
        let sources = status["sources"].as_array().into_iter().flatten();
        let errors = sources.flat_map(|source| source["errors"].as_array().into_iter().flatten());
        errors.filter_map(|error| error.as_str()).collect::<Vec<_>>().join("\n")
    }

    /// Polls until the claim about the pods holds.
    #[track_caller]
    pub(crate) fn wait_until(&self, what: &str, claim: impl Fn(&Pods) -> bool) -> Pods {
        self.wait_until_within(PATIENCE, what, claim)
    }

    #[track_caller]
    pub(crate) fn wait_until_within(&self, limit: Duration, what: &str, claim: impl Fn(&Pods) -> bool) -> Pods {
        let mut last = Pods::default();
        let until = Instant::now() + limit;
        while Instant::now() < until {
            last = self.pods();
            if claim(&last) {
                return last;
            }
            std::thread::sleep(POLL);
        }
        panic!("waited {limit:?} in vain until {what}; last seen: {last:#?}");
    }
}

// Manifests and pod files.
impl Node {
    /// Writes a manifest atomically by rename, as editors and configuration management do.
    pub(crate) fn write_manifest(&self, name: &str, text: &str) {
        let folder = self.folder().join("manifests");
        let unfinished = folder.join(format!(".{name}.new"));
        fs::write(&unfinished, text).unwrap();
        fs::rename(unfinished, folder.join(format!("{name}.yaml"))).unwrap();
    }

    pub(crate) fn apply(&self, manifest: &Manifest) {
        self.write_manifest(manifest.name(), &manifest.text());
    }

    pub(crate) fn remove_manifest(&self, name: &str) {
        fs::remove_file(self.folder().join(format!("manifests/{name}.yaml"))).unwrap();
    }

    /// Waits until neither the agent nor the runtime knows the manifest's pod.
    #[track_caller]
    pub(crate) fn wait_until_gone(&self, name: &str) {
        self.wait_until("the pod is gone", |pods| pods.get(name).is_none());
        wait_for("the runtime to have nothing of the pod", PATIENCE, || self.tasks_of(name).is_empty().then_some(()));
    }

    /// The agent's directory for a pod.
    pub(crate) fn pod_folder(&self, uid: &str) -> PathBuf {
        self.folder().join("pods/pods").join(uid)
    }

    /// All log lines of a container's runs, oldest first, as logged by the runtime.
    pub(crate) fn container_log(&self, manifest: &str, container: &str) -> Vec<LogLine> {
        let pod = format!("default_{manifest}-{NODE_NAME}_");
        let mut runs = Vec::new();
        for folder in fs::read_dir(self.folder().join("logs")).into_iter().flatten().flatten() {
            if folder.file_name().to_string_lossy().starts_with(&pod) {
                runs.extend(fs::read_dir(folder.path().join(container)).into_iter().flatten().flatten());
            }
        }
        let texts = runs.iter().map(|run| fs::read_to_string(run.path()).unwrap_or_default());
        let mut lines: Vec<LogLine> =
            texts.flat_map(|text| text.lines().filter_map(LogLine::parse).collect::<Vec<_>>()).collect();
        lines.sort();
        lines
    }

    /// Waits for a line in a container's log and returns its timestamp.
    #[track_caller]
    pub(crate) fn wait_for_output(&self, manifest: &str, container: &str, text: &str) -> Timestamp {
        wait_for(&format!("{container} to write {text:?}"), PATIENCE, || {
            self.container_log(manifest, container).into_iter().find(|line| line.text == text).map(|line| line.at)
        })
    }

    /// The body of a page served inside the private network; `None` while the server does not answer.
    pub(crate) fn fetch(&self, address: &str, port: u16) -> Option<String> {
        self.enclosure.on_network(|| {
            let to = format!("{address}:{port}").parse().unwrap();
            let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(5)).ok()?;
            stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            stream.write_all(b"GET / HTTP/1.0\r\n\r\n").ok()?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).ok()?;
            answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned())
        })
    }
}

/// A line of a container's log: `2026-11-20T20:28:11.512009866Z stdout F the line`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LogLine {
    pub(crate) at: Timestamp,
    pub(crate) text: String,
}

impl LogLine {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.splitn(4, ' ');
        let at = words.next()?.parse().ok()?;
        Some(Self { at, text: words.nth(2)?.to_owned() })
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let containerd = fs::read_to_string(self.folder().join("containerd.log")).unwrap_or_default();
            // Leave out the long lines that containerd logs at its start.
            let start = ["loading plugin", "msg=\"Start cri plugin with config"];
            let said = containerd.lines().filter(|line| !start.iter().any(|part| line.contains(part)));
            let said = said.collect::<Vec<_>>();
            eprintln!("--- containerd's log ends:\n{}", tail(&said.join("\n")));
            eprintln!("--- the agent's log ends:\n{}", tail(&self.agent_log()));
        }
    }
}

/// Each look starts a program.
pub(crate) const POLL: Duration = Duration::from_millis(100);

/// The program under test: the one that cargo has just built, or the one that `CORACLE_BINARY` names.
pub(crate) fn coracle() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| match std::env::var_os("CORACLE_BINARY") {
        // The canonical path, because procfs shows that of a running program.
        Some(named) => fs::canonicalize(&named).unwrap_or_else(|error| panic!("CORACLE_BINARY, {named:?}: {error}")),
        None => PathBuf::from(env!("CARGO_BIN_EXE_coracle")),
    })
}

/// Polls until `look` returns a value.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + limit;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "waited {limit:?} in vain for {what}");
        std::thread::sleep(POLL / 2);
    }
}

/// The PIDs in a container's cgroup, as seen from outside.
pub(crate) fn processes_of(container: &str) -> Vec<i32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| fs::read_to_string(format!("/proc/{pid}/cgroup")).is_ok_and(|text| text.contains(container)))
        .collect()
}

fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(60)..].join("\n")
}

#[track_caller]
pub(crate) fn find_program(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.exists());
    found.unwrap_or_else(|| panic!("tests on a real containerd need {name}: run ./check, which installs it"))
}

fn cni_plugins() -> &'static str {
    let known = ["/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"];
    let found = known.into_iter().find(|folder| Path::new(folder).join("bridge").exists());
    found.expect("tests on a real containerd need the CNI plugins: run ./check, which installs them")
}

/// CAP_SYS_RESOURCE is bit 24.
fn may_lower_oom_scores() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    u64::from_str_radix(effective.trim(), 16).unwrap() >> 24 & 1 == 1
}
