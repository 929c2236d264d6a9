//! Pods in the container runtime: plans actions and executes them.

mod cancel;
mod config_error;
mod container_config;
mod container_gc;
mod cpu_placement;
mod dns;
mod environment;
mod error;
mod etc_hosts;
mod execute;
#[cfg(test)]
pub(crate) mod golden;
mod grace;
mod hooks;
mod hostname;
mod hosts;
mod image_filesystems;
mod kill;
mod known_images;
mod labels;
mod network_results;
mod observe;
mod oom_score;
mod pod_actions;
mod pod_cache;
mod pod_index;
mod pod_requests;
mod pod_sync;
mod post_start;
mod previous_runs;
mod pull_images;
mod record_event;
mod remove;
mod resize;
mod resources;
mod sandbox_config;
mod security_context;
mod service_links;
mod shim_group;
mod shim_groups;
mod start_metrics;
mod stop_order;
mod stops;
mod survivor_plan;
mod survivors;
mod termination_message;
mod user_namespace;
mod user_namespaces;
mod work_views;

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;

use async_channel::Sender;

use crate::kubelet::allocation::Allocations;
use crate::kubelet::image_transfer::LinkBudget;
use crate::kubelet::images::{Images, PullsUnderWay};
use crate::kubelet::node::NodeSettings;
use crate::platform::apiserver::Client;
use crate::platform::cgroups::{HIERARCHY, Tree};
use crate::platform::config::CgroupDriver;
use crate::platform::cri::RuntimeService;
use crate::platform::host::removals::Removals;
use crate::platform::net::Dialer;
use crate::platform::rpc;
use crate::state::objects::{Lookup, Objects};
use crate::state::pods::{PodDirs, SyncEvent};
use crate::types::api::{Pod, PodUid};
use crate::types::sorted::SortedSet;

pub(crate) use cancel::{Cancel, CancelWatch};
pub(crate) use container_gc::{Garbage, all_containers};
use cpu_placement::ContainerCpus;
pub(crate) use cpu_placement::{MisplacedContainer, processes};
pub(crate) use error::KillError;
use error::SandboxError;
pub(crate) use etc_hosts::{HostsUpdate, update_hosts_files};
pub(crate) use execute::ExecuteResult;
use hooks::Hooks;
pub(crate) use known_images::KnownImage;
use known_images::NodeImages;
pub(crate) use pod_actions::{
    Action, ActionInputs, KillReason, Plan, ProbedHealth, Resize, WantedContainer, compute_pod_actions,
};
pub(crate) use pod_cache::Process;
pub(crate) use pod_index::{ContainerIndex, PodIndex};
pub(crate) use pod_sync::PodSync;
use record_event::EventRecorder;
use remove::ContainerRemover;
use resize::ContainerResources;
pub(crate) use shim_group::SHIM_GROUP;
use user_namespaces::UserNamespaces;
pub(crate) use work_views::WorkViews;

/// The runtime with the state needed to run pods in it.
///
/// It joins the parts that a pod's start and end need together: `execute`, `kill`, `survivors`, `post_start` and
/// `pod_cache` are its methods. A part has its own file and fields, and knows none of the others.
pub(crate) struct PodRuntime {
    cri: RuntimeService,
    pub(crate) node: Rc<NodeSettings>,
    pub(crate) dirs: PodDirs,
    /// Removals of the files of pods and containers.
    pub(crate) removals: Removals,
    dialer: Dialer,
    /// The sync loop's inbox, for observations.
    inbox: Sender<SyncEvent>,
    recorder: EventRecorder,
    pub(crate) images: NodeImages,
    /// Dead containers and sandboxes.
    pub(crate) remover: ContainerRemover,
    hooks: Hooks,
    user_namespaces: UserNamespaces,
    /// Groups of sandboxes that are being created.
    shim_groups: shim_groups::ShimGroups,
    stops: stops::Stops,
    pub(crate) resources: ContainerResources,
    pub(crate) cpus: ContainerCpus,
    /// The cgroup driver reported by the runtime; overrides the configuration.
    cgroup_driver: Cell<Option<CgroupDriver>>,
    cgroup_driver_reported: Cell<bool>,
    /// The hierarchy with the pods' cgroups.
    cgroup_tree: Tree,
    /// Runtime handlers with recursive read-only mounts; `None` until the runtime has answered.
    recursive_read_only: RefCell<Option<Vec<String>>>,
    /// The runtime supports the strict supplemental groups policy.
    strict_groups: Cell<bool>,
    /// Running containers that were queried twice, and of which the runtime has told no pid.
    without_pid: RefCell<SortedSet<String>>,
}

impl PodRuntime {
    pub(crate) fn new(cri: RuntimeService, images: Images, node: NodeSettings, inbox: Sender<SyncEvent>) -> Self {
        let (dirs, removals) = (PodDirs::new(&node.root_dir, &node.pod_logs_dir), Removals::default());
        let (node, dialer, recorder) = (Rc::new(node), Dialer::new(), EventRecorder::new(inbox.clone()));
        Self {
            images: NodeImages { pulls: images, cri: cri.clone(), node: Rc::clone(&node) },
            remover: ContainerRemover {
                cri: cri.clone(),
                dirs: dirs.clone(),
                removals: removals.clone(),
                recorder: recorder.clone(),
            },
            hooks: Hooks {
                cri: cri.clone(),
                dialer: dialer.clone(),
                node: Rc::clone(&node),
                recorder: recorder.clone(),
            },
            user_namespaces: UserNamespaces::new(dirs.pods(), node.user_ids_per_pod),
            shim_groups: shim_groups::ShimGroups::default(),
            stops: stops::Stops::default(),
            resources: ContainerResources::new(cri.clone(), Rc::clone(&node)),
            cpus: ContainerCpus::new(cri.clone()),
            cgroup_driver: Cell::new(None),
            cgroup_driver_reported: Cell::new(false),
            cgroup_tree: Tree::new(Path::new(HIERARCHY)),
            recursive_read_only: RefCell::default(),
            strict_groups: Cell::new(false),
            without_pid: RefCell::default(),
            cri,
            node,
            dirs,
            removals,
            dialer,
            inbox,
            recorder,
        }
    }

    /// Uses these allocated and actuated resources.
    pub(crate) fn with_allocations(mut self, allocations: Rc<Allocations>) -> Self {
        self.resources.allocations = allocations;
        self
    }

    /// The API server, for the tokens of credential providers.
    pub(crate) fn set_cluster(&self, client: &Client) {
        self.images.pulls.in_cluster(client);
    }

    pub(crate) fn allocations(&self) -> Rc<Allocations> {
        Rc::clone(&self.resources.allocations)
    }

    /// The CRI client, for other requests about containers.
    pub(crate) fn cri(&self) -> RuntimeService {
        self.cri.clone()
    }

    /// The runtime for calls that are made for this pod.
    fn cri_for(&self, pod: &PodUid) -> RuntimeService {
        self.cri.of_pod(pod.as_str())
    }

    /// Whether the pod's runtime handler supports recursive read-only mounts; `None` while that is not known.
    pub(crate) fn mounts_read_only_recursively(&self, pod: &Pod, objects: &Objects) -> Option<bool> {
        let handler = match handler(pod, objects) {
            Ok(handler) => handler,
            Err(SandboxError::RuntimeClassUnknown { .. }) => return None,
            Err(_) => return Some(false),
        };
        self.recursive_read_only.borrow().as_ref().map(|able| able.contains(&handler))
    }

    /// Whether the runtime supports the strict supplemental groups policy.
    pub(crate) fn supports_strict_groups(&self) -> bool {
        self.strict_groups.get()
    }

    pub(crate) fn pull_budget(&self) -> Rc<LinkBudget> {
        self.images.pulls.budget()
    }

    pub(crate) fn pulls_under_way(&self) -> PullsUnderWay {
        self.images.pulls.under_way()
    }

    pub(crate) fn dialer(&self) -> Dialer {
        self.dialer.clone()
    }

    /// Watches the connection to the runtime.
    pub(crate) fn connection(&self) -> rpc::Watch {
        self.cri.watch()
    }
}

/// The runtime handler of the pod's RuntimeClass; empty for the default. For static pods the class name is the
/// handler, because RuntimeClass objects need a cluster.
fn handler(pod: &Pod, objects: &Objects) -> Result<String, SandboxError> {
    let Some(class) = pod.spec.runtime_class_name.as_deref() else { return Ok(String::new()) };
    match objects.runtime_handler(class) {
        Lookup::Found(handler) => Ok(handler.to_owned()),
        // A static pod starts without the cluster, and there may be none.
        Lookup::Missing | Lookup::Unknown(_) if !pod.is_of_cluster() => Ok(class.to_owned()),
        Lookup::Missing => Err(SandboxError::NoRuntimeClass { class: class.to_owned() }),
        Lookup::Unknown(why) => Err(SandboxError::RuntimeClassUnknown { class: class.to_owned(), why }),
    }
}
