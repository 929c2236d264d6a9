//! The complete state of the runtime.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use coracle::platform::cri::v1;
use coracle::protocol::protobuf::encode;
use coracle::types::sorted::SortedMap;

use super::containers::Container;
use super::faults::Rule;
use super::images::Images;
use super::process::Process;
use super::sandboxes::Sandbox;

pub(crate) type Listener = Box<dyn Fn(&[u8]) -> bool + Send>;

pub(crate) struct World {
    pub(crate) sandboxes: Vec<Sandbox>,
    pub(crate) containers: Vec<Container>,
    pub(crate) images: Images,
    pub(crate) calls: Vec<Call>,
    pub(super) rules: Vec<Rule>,
    /// Number of releases, by method.
    pub(super) released: HashMap<&'static str, u32>,
    /// By the id of the container or sandbox.
    pub(super) processes: BTreeMap<String, Process>,
    pub(super) ignoring_sigterm: Vec<String>,
    pub(super) exec: v1::ExecSyncResponse,
    pub(super) stats: v1::ContainerStats,
    /// The runtime's name.
    pub(super) name: &'static str,
    pub(super) network_ready: bool,
    pub(super) pids_hidden: bool,
    /// The addresses of the sandbox with this number.
    pub(super) ips: fn(usize) -> Vec<String>,
    pub(super) cgroup_driver: Option<v1::CgroupDriver>,
    pub(super) handlers: Vec<v1::RuntimeHandler>,
    /// The listeners of the event streams; `None` while events are disabled.
    pub(super) events: Option<Vec<Listener>>,
    /// Nanoseconds since 1970.
    pub(super) clock: fn() -> i64,
    /// Starts the process of a container or sandbox.
    pub(super) start: fn() -> Process,
    /// Whether the test is over.
    pub(super) ended: bool,
    pub(super) ids: u64,
}

/// A recorded call.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Call {
    /// The method name, such as `RunPodSandbox`.
    pub(crate) method: String,
    pub(crate) request: Vec<u8>,
    /// The deadline that the caller sent.
    pub(crate) timeout: Option<Duration>,
}

impl Default for World {
    fn default() -> Self {
        Self {
            sandboxes: Vec::new(),
            containers: Vec::new(),
            images: Images::default(),
            calls: Vec::new(),
            rules: Vec::new(),
            released: HashMap::new(),
            processes: BTreeMap::new(),
            ignoring_sigterm: Vec::new(),
            exec: v1::ExecSyncResponse::default(),
            stats: v1::ContainerStats::default(),
            name: "fake",
            network_ready: true,
            pids_hidden: false,
            ips: |number| vec![ipv4(number)],
            cgroup_driver: None,
            handlers: Vec::new(),
            events: None,
            clock: now,
            start: Process::start,
            ended: false,
            ids: 0,
        }
    }
}

impl World {
    pub(crate) fn calls_of(&self, method: &str) -> usize {
        self.calls.iter().filter(|call| call.method == method).count()
    }

    /// The running container with this id, or called `container` or `pod/container`.
    pub(crate) fn running(&self, called: &str) -> Option<&Container> {
        let running = |container: &&Container| container.state == v1::ContainerState::Running;
        self.containers.iter().rev().filter(running).find(|container| self.is_called(container, called))
    }

    pub(super) fn is_called(&self, container: &Container, called: &str) -> bool {
        let pod = self.sandboxes.iter().find(|sandbox| sandbox.id == container.sandbox_id);
        let pod = pod.map_or("", |sandbox| sandbox.name());
        container.id == called
            || container.name() == called
            || called.split_once('/').is_some_and(|parts| parts == (pod, container.name()))
    }

    /// Number of open event streams.
    pub(crate) fn listeners(&self) -> usize {
        self.events.as_ref().map_or(0, Vec::len)
    }

    pub(super) fn released(&self, method: &str) -> u32 {
        self.released.get(method).copied().unwrap_or_default()
    }

    pub(super) fn forget_pods(&mut self) {
        self.containers.clear();
        self.sandboxes.clear();
        self.processes.clear();
    }

    pub(super) fn end_pods(&mut self) {
        let running = self.containers.iter().filter(|container| container.state == v1::ContainerState::Running);
        let running: Vec<String> = running.map(|container| container.id.clone()).collect();
        running.iter().for_each(|id| self.container_exited(id, 255, "Unknown"));
        for sandbox in &mut self.sandboxes {
            sandbox.state = v1::PodSandboxState::NotReady;
            sandbox.pid = 0;
        }
        self.processes.clear();
    }

    pub(super) fn end(&mut self) {
        self.ended = true;
        self.processes.clear();
    }

    pub(super) fn new_id(&mut self) -> String {
        self.ids += 1;
        made_up_id(self.ids)
    }

    /// Sends an event to the listeners.
    pub(super) fn tell(&mut self, id: &str, sandbox_id: &str, container_event_type: v1::ContainerEventType) {
        let Some(mut listeners) = self.events.take() else { return };
        let containers = self.containers.iter().filter(|container| container.sandbox_id == sandbox_id);
        let event = v1::ContainerEventResponse {
            container_id: id.to_owned(),
            container_event_type,
            created_at: self.now(),
            pod_sandbox_status: self.sandboxes.iter().find(|one| one.id == sandbox_id).map(Sandbox::status),
            containers_statuses: containers.map(|container| container.status(&self.images)).collect(),
        };
        let event = encode(&event);
        listeners.retain(|hears| hears(&event));
        self.events = Some(listeners);
    }

    pub(super) fn now(&self) -> i64 {
        (self.clock)()
    }

    pub(super) fn start_process(&self) -> Process {
        (self.start)()
    }
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({} bytes)", self.method, self.request.len())
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sandboxes = self.sandboxes.iter().map(|sandbox| (sandbox.name(), sandbox.state)).collect::<Vec<_>>();
        let containers = self.containers.iter();
        let containers = containers.map(|container| (container.name(), container.state)).collect::<Vec<_>>();
        let mut shown = f.debug_struct("World");
        shown.field("sandboxes", &sandboxes).field("containers", &containers).field("calls", &self.calls);
        shown.finish_non_exhaustive()
    }
}

pub(super) const POD_UID: &str = "io.kubernetes.pod.uid";

/// Whether the labels contain every label of the selector.
pub(super) fn selects(selector: &SortedMap<String, String>, labels: &SortedMap<String, String>) -> bool {
    selector.iter().all(|(name, value)| labels.get(name) == Some(value))
}

/// Nanoseconds since 1970.
/// Of a network of 65,536 addresses, as the usual plugins have it: a node of 110 pods keeps more than 255 sandboxes.
pub(super) fn ipv4(number: usize) -> String {
    format!("10.88.{}.{}", number >> 8, number & 0xff)
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_nanos()).unwrap()
}

/// 64 hexadecimal digits that look random and are not.
pub(super) fn made_up_id(number: u64) -> String {
    let word = |part: u64| {
        let mixed = (number.wrapping_mul(4).wrapping_add(part)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    };
    (0..4).map(|part| format!("{:016x}", word(part))).collect()
}
