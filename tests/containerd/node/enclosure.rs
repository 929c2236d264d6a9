//! Private namespaces for one containerd, its containers and the agent.
//!
//! The processes, mounts and network of a test live in namespaces whose first process is the pause program. It exits
//! with the test's thread, and the kernel then kills everything inside. Only a folder in /tmp and empty cgroups
//! remain, and the enclosure removes them.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::process::{self, Process};
use super::wait_for;

pub(crate) struct Enclosure {
    unshare: Child,
    /// PID of the first process inside, as seen from outside.
    init: u32,
    folder: PathBuf,
}

impl Enclosure {
    pub(crate) fn new() -> Self {
        assert!(nix::unistd::geteuid().is_root(), "tests on a real containerd need root: run ./check as root");
        sweep();
        let folder = make_folder();
        let pause = images().join("pause");
        let unshare = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "unshare", "--pid", "--net", "--mount", "--fork", "--kill-child=KILL"])
            .arg("--mount-proc")
            .arg(&pause)
            .stdin(Stdio::null())
            .spawn()
            .expect("setpriv and unshare (util-linux) can be run");
        let init = wait_for("the private namespaces", Duration::from_secs(10), || process::child_of(&unshare, &pause));
        let enclosure = Self { unshare, init, folder };
        enclosure.furnish();
        enclosure
    }

    /// Mounts a tmpfs over the directories that containerd, its shims and CNI plugins use beside the configured ones, and
    /// a folder of the test over that of the links to logs.
    fn furnish(&self) {
        for folder in ["/run/containerd", "/run/netns", "/var/lib/cni", "/var/log/containers"] {
            fs::create_dir_all(folder).unwrap();
        }
        for folder in ["containerd", "containers"] {
            fs::create_dir(self.folder.join(folder)).unwrap();
        }
        let links = self.folder.join("containers").display().to_string();
        let covered = format!("/run/containerd /run/netns /var/lib/cni {}/containerd", self.folder.display());
        self.run(&[
            "sh",
            "-ec",
            &format!("mount --make-rshared /; for folder in {covered}; do mount -t tmpfs tmpfs $folder; done"),
        ]);
        self.run(&["mount", "--bind", &links, "/var/log/containers"]);
        self.run(&["ip", "link", "set", "lo", "up"]);
        self.run(&["ip", "link", "add", BRIDGE, "type", "bridge"]);
        self.run(&["ip", "addr", "add", GATEWAY, "dev", BRIDGE]);
        self.run(&["ip", "link", "set", BRIDGE, "up"]);
    }

    /// The folder with all files of this test. Its path is short because it contains sockets.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Programs in this folder replace those of the machine.
    pub(crate) fn programs(&self) -> PathBuf {
        self.folder.join("bin")
    }

    /// A command that runs inside.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["--target", &self.init.to_string(), "--pid", "--net", "--mount", "--root", "--wd", "--"])
            .arg(program);
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.programs().display()));
        // Storage configuration of CRI-O and of tools that share its images.
        command.stdin(Stdio::null()).env("CONTAINERS_STORAGE_CONF", self.folder.join("storage.conf"));
        command
    }

    /// Runs a command inside and returns its output.
    #[track_caller]
    pub(crate) fn run(&self, line: &[&str]) -> String {
        let done = self.command(line[0]).args(&line[1..]).output().unwrap();
        let error = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{}: {}", line.join(" "), error.trim());
        String::from_utf8_lossy(&done.stdout).into_owned()
    }

    /// Starts a long-running program inside and appends its output to `log`.
    pub(crate) fn start(&self, program: &Path, arguments: &[&str], log: &Path) -> Process {
        self.start_with(&[], program, arguments, log)
    }

    /// The same with these variables, as `NAME=VALUE`.
    pub(crate) fn start_with(&self, environment: &[String], program: &Path, arguments: &[&str], log: &Path) -> Process {
        let log = fs::File::options().create(true).append(true).open(log).unwrap();
        let mut command = self.command(program);
        command.envs(environment.iter().filter_map(|variable| variable.split_once('=')));
        command.args(arguments).stdout(log.try_clone().unwrap()).stderr(log);
        Process::start(command, program)
    }

    /// The path by which a file inside can be opened from outside.
    pub(crate) fn path(&self, inside: &Path) -> PathBuf {
        Path::new(&format!("/proc/{}/root", self.init)).join(inside.strip_prefix("/").unwrap())
    }

    /// The network namespace, for setns.
    pub(crate) fn network(&self) -> fs::File {
        fs::File::open(format!("/proc/{}/ns/net", self.init)).unwrap()
    }

    /// The mount namespace, for setns.
    pub(crate) fn mounts(&self) -> fs::File {
        fs::File::open(format!("/proc/{}/ns/mnt", self.init)).unwrap()
    }

    /// Runs `work` on a thread in the enclosure's network namespace.
    pub(crate) fn on_network<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let namespace = self.network();
        let thread = move || {
            nix::sched::setns(namespace, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            work()
        };
        std::thread::scope(|scope| scope.spawn(thread).join().unwrap())
    }
}

/// Simulating a power cut.
impl Enclosure {
    /// Kills every process but the first and removes what is kept in memory: runtime state, network namespaces and
    /// mounts.
    pub(crate) fn lose_memory(&self) {
        let containers = self.containers();
        let folder = self.folder.display();
        self.run(&[
            "sh",
            "-ec",
            &format!(
                "kill -s KILL -- -1
                 while mounts=$(awk '{{ print $5 }}' /proc/self/mountinfo |
                     grep -E '^(/run/(containerd|netns)|{folder}/(pods|containerd/state))(/|$)' | tac) && [ -n \"$mounts\" ]
                 do umount -l $mounts; done
                 rm -rf {folder}/containerd/state
                 for folder in /run/containerd /run/netns; do mount -t tmpfs tmpfs $folder; done"
            ),
        ]);
        remove_cgroups(Path::new("/sys/fs/cgroup"), &containers);
    }

    /// Ids of the running containers.
    fn containers(&self) -> Vec<String> {
        let tasks = self.path(&self.folder.join("containerd/state/io.containerd.runtime.v2.task/k8s.io"));
        let entries = fs::read_dir(tasks).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }
}

impl Drop for Enclosure {
    fn drop(&mut self) {
        let containers = self.containers();
        let _ = self.unshare.kill();
        let _ = self.unshare.wait();
        remove_cgroups(Path::new("/sys/fs/cgroup"), &containers);
        let _ = fs::remove_dir_all(&self.folder);
    }
}

pub(crate) const BRIDGE: &str = "cni0";
pub(crate) const SUBNET: &str = "10.88.0.0/16";
const GATEWAY: &str = "10.88.0.1/16";

/// Removes the cgroups named after these containers, leaves first.
fn remove_cgroups(folder: &Path, containers: &[String]) {
    if containers.is_empty() {
        return;
    }
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        remove_cgroups(&path, containers);
        let name = entry.file_name().to_string_lossy().into_owned();
        if containers.iter().any(|id| name.contains(id.as_str())) {
            let _ = fs::remove_dir(&path);
        }
    }
}

/// A folder with the images as tar files, created once.
pub(crate) fn images() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("images");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/images");
        let made = Command::new(script).arg(&folder).status().expect("scripts/images can be run");
        assert!(made.success(), "scripts/images could not make the images");
        folder
    })
}

/// `/tmp/coracle-PID-N`.
fn make_folder() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("{PREFIX}{}-{count}", std::process::id()));
    fs::DirBuilder::new().mode(0o755).create(&folder).unwrap();
    folder
}

/// Removes the folders of test processes that were killed.
fn sweep() {
    for entry in fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some((owner, _)) = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-')) else { continue };
        if owner.parse::<u32>().is_ok() && !Path::new("/proc").join(owner).exists() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

const PREFIX: &str = "coracle-";
