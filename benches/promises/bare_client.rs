//! A client that makes only the CRI calls to start a pod. It measures the runtime's share.

use coracle::types::sorted::SortedMap;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use coracle::platform::cri::RuntimeService;
use coracle::platform::cri::v1::{
    ContainerConfig, ContainerFilter, ContainerMetadata, ContainerState, ContainerStatus, ImageSpec,
    LinuxContainerConfig, LinuxContainerResources, LinuxContainerSecurityContext, LinuxPodSandboxConfig,
    LinuxSandboxSecurityContext, Mount, NamespaceMode, NamespaceOption, PodSandboxConfig, PodSandboxMetadata,
    ProfileType, SecurityProfile,
};
use coracle::platform::{rpc, rt};

use crate::node::manifest::BUSYBOX;
use crate::node::{NODE_NAME, Node};

/// The script of every measured container: it logs one line and keeps running.
pub(crate) const SCRIPT: &str = "echo up; trap exit TERM; sleep 100000 & wait";

#[derive(Clone)]
pub(crate) struct BareClient {
    runtime: RuntimeService,
    folder: std::path::PathBuf,
}

/// Nanoseconds since 1970, the unit of CRI timestamps.
pub(crate) fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64
}

/// The time between two timestamps in nanoseconds since 1970.
pub(crate) fn between(from: i64, to: i64) -> Duration {
    Duration::from_nanos(u64::try_from(to - from).expect("the end is after the beginning"))
}

impl BareClient {
    pub(crate) fn new(node: &Node) -> Self {
        let client = rpc::Client::new(&node.runtime_socket().display().to_string());
        Self { runtime: RuntimeService::new(client, Duration::from_secs(60)), folder: node.folder().to_owned() }
    }

    /// Starts one pod and returns the time until its container ran.
    pub(crate) fn start_one(&self, name: &str) -> Duration {
        let begun = now();
        between(begun, rt::block_on(self.clone().start_pod(name.to_owned())))
    }

    /// Starts pods in parallel and returns the time until the last container ran.
    pub(crate) fn start_crowd(&self, names: &[String]) -> Duration {
        let begun = now();
        let last = rt::block_on(async {
            let pods: Vec<_> = names.iter().map(|name| rt::spawn(self.clone().start_pod(name.clone()))).collect();
            let mut last = begun;
            for pod in pods {
                last = last.max(pod.await);
            }
            last
        });
        between(begun, last)
    }

    /// Creates and starts another container in an existing sandbox, as a restart does.
    pub(crate) fn start_container_in(&self, name: &str) -> Duration {
        rt::block_on(async {
            let sandbox = self.sandbox_of(name).await;
            let config = sandbox_config(name, &self.folder);
            let begun = now();
            let container = self.start_container(&sandbox, &config, 1).await;
            between(begun, self.started_at(&container).await)
        })
    }

    /// The time from the exit of a container's process until the runtime reports it. No kubelet can restart a
    /// container earlier.
    pub(crate) fn notice_end(&self, name: &str, end: impl FnOnce(&str)) -> Duration {
        let (id, _) = self.running(name, None).expect("the container runs");
        let begun = now();
        end(&id);
        rt::block_on(async {
            while self.status(&id).await.state == ContainerState::Running {
                rt::sleep(Duration::from_millis(1)).await;
            }
        });
        between(begun, now())
    }

    async fn start_pod(self, name: String) -> i64 {
        let config = sandbox_config(&name, &self.folder);
        let sandbox = self.runtime.run_pod_sandbox(&config, "").await.expect("run a sandbox");
        let container = self.start_container(&sandbox, &config, 0).await;
        self.started_at(&container).await
    }

    async fn start_container(&self, sandbox: &str, config: &PodSandboxConfig, attempt: u32) -> String {
        let container = container_config(config, &self.folder, attempt);
        let id = self.runtime.create_container(sandbox, &container, config).await.expect("create a container");
        self.runtime.start_container(&id).await.expect("start a container");
        id
    }

    async fn started_at(&self, container: &str) -> i64 {
        self.status(container).await.started_at
    }

    async fn status(&self, container: &str) -> ContainerStatus {
        let answer = self.runtime.container_status(container, false).await.expect("ask for a container's status");
        answer.status.unwrap()
    }

    async fn sandbox_of(&self, name: &str) -> String {
        let sandboxes = self.runtime.list_pod_sandbox(None).await.expect("list sandboxes");
        let mut named = sandboxes.into_iter().filter(|sandbox| sandbox.metadata.as_ref().unwrap().name == name);
        named.next().expect("the sandbox is there").id
    }

    /// Id and start time of a pod's running container, if there is one other than `but`.
    pub(crate) fn running(&self, pod: &str, but: Option<&str>) -> Option<(String, i64)> {
        let labels = SortedMap::from([("io.kubernetes.pod.name".to_owned(), pod.to_owned())]);
        let filter = ContainerFilter { label_selector: labels, ..Default::default() };
        rt::block_on(async {
            let containers = self.runtime.list_containers(Some(&filter)).await.expect("list containers");
            let mut running = containers.into_iter().filter(|container| container.state == ContainerState::Running);
            let id = running.find(|container| Some(&*container.id) != but)?.id;
            let started = self.started_at(&id).await;
            Some((id, started))
        })
    }

    pub(crate) fn clear(&self) {
        rt::block_on(async {
            for sandbox in self.runtime.list_pod_sandbox(None).await.expect("list sandboxes") {
                self.runtime.stop_pod_sandbox(&sandbox.id).await.expect("stop a sandbox");
                self.runtime.remove_pod_sandbox(&sandbox.id).await.expect("remove a sandbox");
            }
        });
    }
}

/// The sandbox configuration of a static pod on the host network.
fn sandbox_config(name: &str, folder: &Path) -> PodSandboxConfig {
    let uid = format!("{name}-uid");
    let log_directory = folder.join("logs").join(name);
    std::fs::create_dir_all(log_directory.join("main")).unwrap();
    let security_context = LinuxSandboxSecurityContext {
        namespace_options: Some(namespaces()),
        seccomp: Some(SecurityProfile { profile_type: ProfileType::RuntimeDefault, ..Default::default() }),
        ..Default::default()
    };
    let labels = [("name", name), ("namespace", "default"), ("uid", &uid)];
    PodSandboxConfig {
        labels: labels.iter().map(|(key, value)| (format!("io.kubernetes.pod.{key}"), (*value).to_owned())).collect(),
        metadata: Some(PodSandboxMetadata { name: name.to_owned(), uid, namespace: "default".to_owned(), attempt: 0 }),
        log_directory: log_directory.display().to_string(),
        linux: Some(LinuxPodSandboxConfig { security_context: Some(security_context), ..Default::default() }),
        ..Default::default()
    }
}

fn container_config(sandbox: &PodSandboxConfig, folder: &Path, attempt: u32) -> ContainerConfig {
    let mounts = [("/etc/hosts", "hosts"), ("/dev/termination-log", "termination-log")].map(|(inside, name)| {
        let host_path = folder.join(name);
        std::fs::write(&host_path, "").unwrap();
        Mount { container_path: inside.to_owned(), host_path: host_path.display().to_string(), ..Default::default() }
    });
    let resources =
        LinuxContainerResources { cpu_period: 100_000, cpu_shares: 2, oom_score_adj: 1000, ..Default::default() };
    let security_context =
        LinuxContainerSecurityContext { namespace_options: Some(namespaces()), ..Default::default() };
    ContainerConfig {
        metadata: Some(ContainerMetadata { name: "main".to_owned(), attempt }),
        image: Some(ImageSpec { image: BUSYBOX.to_owned(), ..Default::default() }),
        command: ["sh", "-c", SCRIPT].map(str::to_owned).to_vec(),
        mounts: mounts.to_vec(),
        labels: sandbox.labels.clone(),
        log_path: format!("main/{attempt}.log"),
        linux: Some(LinuxContainerConfig { resources: Some(resources), security_context: Some(security_context) }),
        ..Default::default()
    }
}

fn namespaces() -> NamespaceOption {
    NamespaceOption {
        network: NamespaceMode::Node,
        pid: NamespaceMode::Container,
        ipc: NamespaceMode::Pod,
        ..Default::default()
    }
}

/// The name of a manifest's pod in the runtime.
pub(crate) fn pod_name(manifest: &str) -> String {
    format!("{manifest}-{NODE_NAME}")
}
