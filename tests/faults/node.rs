//! A node under test: the agent with a folder and a fake runtime of its own. Needs no root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use coracle::platform::cri::v1::{ContainerConfig, ContainerState, CreateContainerRequest};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::containerd::node::settings;
use crate::fake_cri::{FakeCri, World};
use crate::wait::{wait, wait_at};

pub(crate) use crate::containerd::node::{BUSYBOX, Events, Manifest, NODE_NAME, Pods, page, page_if_served};

/// A part of the time in which the agent is seen to rest.
const REST: Duration = Duration::from_millis(500);
const RESTFUL_ROUNDS: u32 = 3;
const MAX_REST_ROUNDS: u32 = 400;
/// Short runtime timeouts and back-offs.
const IMPATIENT: &str = "runtimeRequestTimeout: 1s\ncrashLoopBackOff: {maxContainerRestartPeriod: 1s}\n";

pub(crate) struct Node {
    agent: Option<Child>,
    pub(crate) fake: FakeCri,
    folder: PathBuf,
}

// The agent.
impl Node {
    /// A runtime that answers and has the most common image, without an agent.
    pub(crate) fn new() -> Self {
        Self::inside(&std::env::temp_dir())
    }

    /// A node whose folder lies in `parent`.
    pub(crate) fn inside(parent: &Path) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = parent.join(format!("faults-{}-{number}", std::process::id()));
        for part in ["manifests", "pods", "logs"] {
            fs::create_dir_all(folder.join(part)).unwrap();
        }
        fs::write(folder.join("resolv.conf"), "nameserver 192.0.2.53\n").unwrap();
        let fake = FakeCri::start();
        fake.add_image(BUSYBOX);
        let node = Self { agent: None, fake, folder };
        node.configure(IMPATIENT);
        node
    }

    /// Adds configuration for the agent's next start. By default it listens on no port, and removes no image, however
    /// full this machine's disk is.
    pub(crate) fn configure(&self, more: &str) {
        let server = if more.contains("port: ") { "" } else { "enableServer: false\n" };
        let images = if more.contains("imageGC") { "" } else { "imageGCHighThresholdPercent: 100\n" };
        let more = format!("healthzPort: 0\n{server}{images}{more}");
        fs::write(self.folder.join("config.yaml"), settings::configuration(&self.folder, &more)).unwrap();
    }

    pub(crate) fn start_agent(&mut self) {
        self.start_agent_with(|_| {});
    }

    /// Starts the agent after `change` to its command. Returns its standard error if piped.
    pub(crate) fn start_agent_with(&mut self, change: impl FnOnce(&mut Command)) -> Option<ChildStderr> {
        let log = fs::File::options().create(true).append(true).open(self.folder.join("log")).unwrap();
        let mut command = Command::new(CORACLE);
        command.args(settings::arguments(&self.folder, &self.fake.endpoint()));
        command.arg("-v=4").stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        change(&mut command);
        let mut agent = command.spawn().unwrap();
        let stderr = agent.stderr.take();
        self.agent = Some(agent);
        stderr
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn agent_pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.agent.as_ref().unwrap().id()).unwrap())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.agent_pid(), signal).unwrap();
    }

    pub(crate) fn wait_for_the_agents_end(&mut self) {
        self.agent.take().unwrap().wait().unwrap();
    }

    pub(crate) fn kill_agent(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            agent.kill().unwrap();
            agent.wait().unwrap();
        }
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    pub(crate) fn says_that_the_runtime_is_ready(&self) -> bool {
        self.status()["runtime"]["ready"] == true
    }

    /// The agent's uptime in seconds, from its status.
    pub(crate) fn age(&self) -> u64 {
        self.status()["uptimeSeconds"].as_u64().unwrap_or_default()
    }

    /// The agent's status; null while the agent does not answer.
    pub(crate) fn status(&self) -> serde_json::Value {
        let status = page_if_served(&self.folder, "/status").unwrap_or_default();
        serde_json::from_str(&status).unwrap_or_default()
    }

    /// The agent's CPU time.
    pub(crate) fn processor_time(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.agent.as_ref().unwrap().id())).unwrap();
        // The 12th and 13th field after the name, in hundredths of a second (proc_pid_stat(5)).
        let fields = stat.rsplit_once(')').unwrap().1.split_whitespace();
        Duration::from_millis(fields.skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap() * 10).sum())
    }

    /// Waits until the agent has done all work that has begun: it uses less than a twentieth of a processor.
    #[track_caller]
    pub(crate) fn wait_until_at_rest(&self) {
        let (mut last, mut restful) = (self.processor_time(), 0);
        for _ in 0..MAX_REST_ROUNDS {
            std::thread::sleep(REST);
            let now = self.processor_time();
            restful = if now - last < REST / 20 { restful + 1 } else { 0 };
            if restful == RESTFUL_ROUNDS {
                return;
            }
            last = now;
        }
        panic!("the agent does not rest: {last:?} of processor time");
    }

    /// The agent's pods; empty while the agent does not answer.
    pub(crate) fn pods(&self) -> Pods {
        page_if_served(&self.folder, "/pods").map(|page| Pods::parse(&page)).unwrap_or_default()
    }

    /// The output of a subcommand; `None` if it fails.
    pub(crate) fn ask(&self, line: &[&str]) -> Option<String> {
        let socket = self.folder.join("coracle.sock");
        let asked = Command::new(CORACLE).args(line).arg("--local-socket").arg(socket).output().unwrap();
        // `coracle status` ends with 3 or 4 if something is wrong with the node.
        let has_answered = [Some(0), Some(3), Some(4)].contains(&asked.status.code());
        (has_answered && !asked.stdout.is_empty()).then(|| String::from_utf8_lossy(&asked.stdout).into_owned())
    }

    /// Polls until the condition on the pods holds.
    #[track_caller]
    pub(crate) fn wait_until(&self, what: &str, claim: impl Fn(&Pods) -> bool) -> Pods {
        wait_at(POLL, || {
            let pods = self.pods();
            if claim(&pods) { Ok(pods) } else { Err(format!("until {what}; last seen: {pods:#?}")) }
        })
    }

    #[track_caller]
    pub(crate) fn wait_until_ready(&self, manifest: &str) {
        self.wait_until(&format!("{manifest} is ready"), |pods| pods.has(manifest, |pod| pod.is_ready()));
    }
}

// Manifests, and what pods leave behind.
impl Node {
    pub(crate) fn apply(&self, manifest: &Manifest) {
        self.write_manifest(manifest.name(), &manifest.text());
    }

    pub(crate) fn write_manifest(&self, file: &str, text: &str) {
        let unfinished = self.folder.join(format!("{file}.new"));
        fs::write(&unfinished, text).unwrap();
        fs::rename(unfinished, self.folder.join(format!("manifests/{file}.yaml"))).unwrap();
    }

    pub(crate) fn remove_manifest(&self, file: &str) {
        fs::remove_file(self.folder.join(format!("manifests/{file}.yaml"))).unwrap();
    }

    pub(crate) fn remove_all_manifests(&self) {
        for manifest in fs::read_dir(self.folder.join("manifests")).unwrap() {
            fs::remove_file(manifest.unwrap().path()).unwrap();
        }
    }

    /// The state of a manifest's pod in the runtime.
    pub(crate) fn seen(&self, manifest: &str) -> Seen {
        self.fake.look(|world| Seen::of(world, manifest))
    }

    /// Configs of all containers created for the manifest's pod, the oldest first.
    pub(crate) fn created_containers(&self, manifest: &str) -> Vec<ContainerConfig> {
        let requests: Vec<CreateContainerRequest> = self.fake.requests("CreateContainer");
        let of_pod = requests.into_iter().filter(|request| {
            let metadata = request.sandbox_config.as_ref().and_then(|config| config.metadata.as_ref());
            metadata.is_some_and(|metadata| metadata.name.starts_with(&format!("{manifest}-")))
        });
        of_pod.filter_map(|request| request.config).collect()
    }

    /// Waits until the agent, the runtime and the disk hold nothing of any pod.
    #[track_caller]
    pub(crate) fn wait_until_nothing_is_left(&self) {
        self.fake.wait_for("nothing to be left", |world| world.sandboxes.is_empty() && world.containers.is_empty());
        self.wait_until("no pod is left", |pods| pods.0.is_empty());
        wait(|| {
            let left = self.left_on_disk();
            if left.is_empty() { Ok(()) } else { Err(format!("left on disk: {left:?}")) }
        });
    }

    fn left_on_disk(&self) -> Vec<PathBuf> {
        let folders = ["pods/pods", "logs"].map(|part| self.folder.join(part));
        let entries = folders.iter().filter_map(|folder| fs::read_dir(folder).ok());
        entries.flatten().map(|entry| entry.unwrap().path()).collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill_agent();
        if std::thread::panicking() {
            let calls = self.fake.calls().iter().map(|call| call.method.clone()).collect::<Vec<_>>();
            eprintln!("--- the agent's log:\n{}--- the calls: {}", self.log(), calls.join(" "));
        }
        // A failed test may leave tmpfs volumes mounted.
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        for place in mounts.lines().filter_map(|line| line.split(' ').nth(1)) {
            if Path::new(place).starts_with(&self.folder) {
                let _ = nix::mount::umount2(place, nix::mount::MntFlags::MNT_DETACH);
            }
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

pub(crate) const CORACLE: &str = env!("CARGO_BIN_EXE_coracle");
/// Each look starts a program.
const POLL: Duration = Duration::from_millis(60);

/// The state of a manifest's pod in the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) sandboxes: Vec<String>,
    pub(crate) ready: usize,
    pub(crate) containers: Vec<Instance>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Instance {
    pub(crate) name: String,
    pub(crate) id: String,
    pub(crate) state: ContainerState,
    pub(crate) attempt: u32,
}

impl Seen {
    pub(crate) fn of(world: &World, manifest: &str) -> Self {
        let name = format!("{manifest}-{NODE_NAME}");
        let sandboxes: Vec<_> = world.sandboxes.iter().filter(|sandbox| sandbox.name() == name).collect();
        let is_its_own = |id: &str| sandboxes.iter().any(|sandbox| sandbox.id == id);
        let containers = world.containers.iter().filter(|container| is_its_own(&container.sandbox_id));
        Self {
            ready: sandboxes.iter().filter(|sandbox| sandbox.is_ready()).count(),
            containers: containers
                .map(|container| Instance {
                    name: container.name().to_owned(),
                    id: container.id.clone(),
                    state: container.state,
                    attempt: container.attempt(),
                })
                .collect(),
            sandboxes: sandboxes.into_iter().map(|sandbox| sandbox.id.clone()).collect(),
        }
    }

    /// The running containers with their attempts, sorted by name.
    pub(crate) fn running(&self) -> Vec<(&str, u32)> {
        let running = self.containers.iter().filter(|one| one.state == ContainerState::Running);
        let mut running: Vec<_> = running.map(|one| (&*one.name, one.attempt)).collect();
        running.sort_unstable();
        running
    }

    /// The ids of the sandbox and the running containers.
    pub(crate) fn ids(&self) -> Vec<&str> {
        let running = self.containers.iter().filter(|one| one.state == ContainerState::Running);
        running.map(|one| &*one.id).chain(self.sandboxes.iter().map(|id| &**id)).collect()
    }

    /// Whether there is one ready sandbox and exactly the given instance of each container.
    pub(crate) fn is_exactly(&self, running: &[(&str, u32)]) -> bool {
        (self.sandboxes.len(), self.ready) == (1, 1) && self.running() == running && !self.has_created()
    }

    fn has_created(&self) -> bool {
        self.containers.iter().any(|one| one.state == ContainerState::Created)
    }
}
