//! Resource usage of the node, its pods and their containers, for `/stats/summary` and `/metrics`.
//!
//! ```text
//!   request
//!   mod.rs                  the runtime's part: file systems, writable layers, everything without cgroup v2
//!   collect.rs              one pass over cgroups and procfs, on the slow pool
//!   cri_stats.rs            CRI statistics                                                     pure
//!   rates.rs                changes since the last request                                     pure
//!   disk_usage_cache.rs     disk usage of volumes, at most once a minute
//!   external_volumes.rs     volumes that are not directories of their pods                     pure
//!   volume_stats.rs         statistics of those, at most once a minute
//!   summary.rs  resource.rs  cadvisor.rs  volume_metrics.rs    the responses                   pure
//! ```
//!
//! Nothing runs without a request.

mod cadvisor;
mod cadvisor_families;
mod cadvisor_owners;
mod collect;
mod cri_stats;
mod disk_usage_cache;
mod external_volumes;
mod json_text;
mod rates;
mod resource;
mod snapshot;
mod summary;
#[cfg(test)]
mod tests;
mod volume_metrics;
mod volume_stats;

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::kubelet::csi::Csi;
use crate::kubelet::node::{Machine, NodeSettings};
use crate::platform::cgroups::{CgroupName, Depth};
use crate::platform::config::CgroupDriver;
use crate::platform::cri::v1::{ContainerStats, FilesystemUsage, ImageFsInfoResponse, PodSandboxStats};
use crate::platform::cri::{self, ImageService, RuntimeService};
use crate::platform::host::clock;
use crate::platform::host::disk_usage::DiskUsage;
use crate::platform::rt;
use crate::state::pods::{ContainerState, ObservedContainer, ObservedPod, PodDirs, volume_dirs};
use crate::types::api::{Pod, QosClass, Time, qos_class};
use crate::types::error::ErrorChain;

use collect::CollectInputs;
use disk_usage_cache::DiskUsageCache;
use rates::Rates;
use snapshot::{ContainerSnapshot, NodeSnapshot, PodSnapshot, Snapshot};
use volume_stats::VolumeStatsCache;

use crate::types::sorted::SortOnce;
pub(crate) use external_volumes::{ForeignVolume, foreign_volumes};
pub(crate) use volume_metrics::{ClaimUsage, write_claims};

pub(crate) struct Stats {
    settings: Settings,
    machine: Machine,
    dirs: PodDirs,
    cri: RuntimeService,
    images: ImageService,
    /// The runtime does not support sandbox statistics. It is not asked again, because it would log an error each
    /// time.
    sandboxes_refused: Cell<bool>,
    rates: RefCell<Rates>,
    walks: DiskUsageCache,
    inquiries: VolumeStatsCache,
}

struct Settings {
    node_name: String,
    root_dir: PathBuf,
    cgroup_v2: bool,
    /// The parent of `kubepods` and the configured driver; `None` if pods have no cgroups.
    groups: Option<(String, CgroupDriver)>,
    /// Configured system containers with their cgroups.
    system: Vec<(&'static str, String)>,
    agent_started_at: i64,
}

/// A pod whose statistics may be reported.
#[derive(Clone, Debug)]
pub(crate) struct PodInputs {
    pub(crate) pod: Arc<Pod>,
    pub(crate) observed: Rc<ObservedPod>,
    pub(crate) started_at: Option<Time>,
    pub(crate) foreign: Vec<ForeignVolume>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatsEndpoint {
    Cadvisor,
    Resource,
    Summary { only_cpu_and_memory: bool },
}

/// Deadline of the calls to the runtime, which are made at the same time: a runtime that hangs is waited for once. A
/// page without layers is better than no page, and the whole page must be ready before the server's timeout.
const RUNTIME_STATS_DEADLINE: Duration = Duration::from_secs(3);

/// The sources of the statistics.
pub(crate) struct Dependencies {
    pub(crate) dirs: PodDirs,
    pub(crate) cri: RuntimeService,
    pub(crate) images: ImageService,
    pub(crate) csi: Rc<Csi>,
}

impl Stats {
    pub(crate) fn new(settings: &NodeSettings, dependencies: Dependencies) -> Self {
        let Dependencies { dirs, cri, images, csi } = dependencies;
        Self {
            settings: Settings::new(settings),
            machine: Machine::read(Path::new("/")),
            dirs,
            cri,
            images,
            sandboxes_refused: Cell::new(false),
            rates: RefCell::default(),
            walks: DiskUsageCache::default(),
            inquiries: VolumeStatsCache::new(csi),
        }
    }

    /// The response body. `driver`: the cgroup driver reported by the runtime, which overrides the configuration.
    pub(crate) async fn render(
        &self,
        endpoint: StatsEndpoint,
        pods: Vec<PodInputs>,
        driver: Option<CgroupDriver>,
    ) -> Vec<u8> {
        let look = self.collect(endpoint, &pods, driver).await;
        match endpoint {
            StatsEndpoint::Cadvisor => cadvisor::cadvisor(&look, &self.machine),
            StatsEndpoint::Resource => resource::resource(&look),
            StatsEndpoint::Summary { only_cpu_and_memory } => summary::summary(&look, only_cpu_and_memory),
        }
    }

    /// Usage of the claims' volumes, each once.
    pub(crate) async fn claims(&self, pods: &[PodInputs]) -> Vec<ClaimUsage> {
        self.inquiries.begin(foreign(pods));
        self.inquiries.wait().await;
        let seen = foreign(pods).filter_map(|volume| ClaimUsage::of(volume, self.inquiries.last_result(volume)?));
        volume_metrics::each_once(seen)
    }

    async fn collect(&self, endpoint: StatsEndpoint, subjects: &[PodInputs], driver: Option<CgroupDriver>) -> Snapshot {
        let groups = self.settings.groups.as_ref().map(|(root, configured)| (root, driver.unwrap_or(*configured)));
        let mut inputs = self.settings.inputs(endpoint, groups);
        let with_rest = inputs.with_rest;
        let node = NodeSnapshot { name: self.settings.node_name.clone(), ..NodeSnapshot::default() };
        let pods = subjects.iter().filter_map(|subject| self.pod(subject, groups)).collect();
        let mut look = Snapshot { at: 0, node, pods, is_partial: false };
        let with_volumes = matches!(endpoint, StatsEndpoint::Summary { only_cpu_and_memory: false });
        if with_volumes {
            self.inquiries.begin(foreign(subjects));
        }
        let disks = async {
            match with_rest {
                true => within("ImageFsInfo", self.images.image_fs_info()).await.unwrap_or_default(),
                false => ImageFsInfoResponse::default(),
            }
        };
        let by_runtime = self.by_runtime(with_rest, groups.is_none());
        let (disks, (containers, sandboxes)) = rt::zip(disks, by_runtime).await;
        look.is_partial = containers.is_err();
        if with_rest {
            inputs.images = disks.image_filesystems.first().and_then(mount_and_usage);
            inputs.layers = disks.container_filesystems.first().and_then(mount_and_usage);
            let places = |subject: &PodInputs| {
                let uid = &subject.observed.uid;
                (uid.as_str().to_owned(), volume_dirs(&subject.pod, uid, &self.dirs))
            };
            self.walks.update(|| subjects.iter().map(places).collect()).await;
        }
        // A container can make this slow, and many clients may request it at the same time.
        let mut look = rt::slow_for("statistics", move || {
            look.at = clock::timestamp().as_nanosecond();
            collect::pass(&mut look, &inputs);
            look
        })
        .await;
        let now = look.at;
        cri_stats::take(&mut look.pods, &containers.unwrap_or_default(), &sandboxes, now);
        if groups.is_none() {
            look.node.pods = look.node.figures.clone();
        }
        for pod in look.pods.iter_mut().filter(|_| with_rest) {
            pod.volumes = self.walks.volumes(&pod.uid);
        }
        if with_volumes {
            self.inquiries.wait().await;
            for volume in foreign(subjects) {
                let pod = look.pods.iter_mut().find(|pod| pod.uid == volume.pod);
                if let Some((pod, seen)) = pod.zip(self.inquiries.last_result(volume)) {
                    pod.volumes.push(seen);
                }
            }
        }
        self.rate(&mut look);
        look
    }

    async fn by_runtime(
        &self,
        with_rest: bool,
        everything: bool,
    ) -> (Result<Vec<ContainerStats>, StatsFailure>, Vec<PodSandboxStats>) {
        let containers = async {
            match with_rest || everything {
                true => within("ListContainerStats", self.cri.list_container_stats(None)).await,
                false => Ok(Vec::new()),
            }
        };
        let sandboxes = async {
            // Not every runtime supports this for pods without a cgroup.
            if !everything || self.sandboxes_refused.get() {
                return Vec::new();
            }
            let stats = within("ListPodSandboxStats", self.cri.list_pod_sandbox_stats(None)).await;
            stats.unwrap_or_else(|failure| {
                self.sandboxes_refused.set(failure == StatsFailure::Refused);
                Vec::new()
            })
        };
        rt::zip(containers, sandboxes).await
    }

    /// The known fields of a pod; `None` if it has no running sandbox.
    fn pod(&self, subject: &PodInputs, groups: Option<(&String, CgroupDriver)>) -> Option<PodSnapshot> {
        let PodInputs { pod, observed, started_at, .. } = subject;
        let sandbox = observed.ready_sandbox()?;
        let uid = &observed.uid;
        let is_newest = |container: &&ObservedContainer| {
            observed.container(&container.name).is_some_and(|newest| newest.id == container.id)
        };
        let container = |container: &ObservedContainer| {
            let ContainerState::Running { started_at } = container.state else { return None };
            let logs = self.dirs.log(&observed.namespace, &observed.name, uid, &container.name, 0);
            Some(ContainerSnapshot {
                id: container.id.clone(),
                name: container.name.clone(),
                image: container.image.clone(),
                started_at,
                pid: container.pid,
                logs_directory: logs.parent().map(Path::to_path_buf).unwrap_or_default(),
                ..ContainerSnapshot::default()
            })
        };
        let mut containers: Vec<ContainerSnapshot> =
            observed.containers.iter().filter(is_newest).filter_map(container).collect();
        containers.sort_once_by(|a, b| a.name.cmp(&b.name));
        let network_pid = sandbox.pid.or_else(|| containers.iter().find_map(|container| container.pid));
        Some(PodSnapshot {
            namespace: observed.namespace.clone(),
            name: observed.name.clone(),
            uid: uid.as_str().to_owned(),
            started_at: started_at
                .map(|at| at.unix_seconds().saturating_mul(1_000_000_000))
                .or(Some(sandbox.created_at)),
            group: groups.map(|(root, driver)| CgroupName::pod(root, qos_class(pod), uid).path(driver)),
            sandbox_id: sandbox.id.clone(),
            network_pid: network_pid.filter(|_| !sandbox.host_network && !pod.spec.host_network),
            own_files: self.dirs.own_files(uid),
            containers,
            ..PodSnapshot::default()
        })
    }

    /// Sets the CPU rates since the last look. A rate reported by the runtime is kept until there is one.
    fn rate(&self, look: &mut Snapshot) {
        let mut rates = self.rates.borrow_mut();
        let now = clock::since_boot();
        let mut rate = |who: &str, figures: &mut snapshot::UsageStats| {
            let Some(cpu) = figures.cpu_nanos else { return };
            figures.nano_cores = rates.nano_cores(who, cpu, now).or(figures.nano_cores);
        };
        rate("", &mut look.node.figures);
        rate("pods", &mut look.node.pods);
        look.node.system.iter_mut().for_each(|container| rate(container.name, &mut container.figures));
        for pod in &mut look.pods {
            rate(&pod.uid, &mut pod.figures);
            for container in &mut pod.containers {
                rate(&container.id, &mut container.figures);
            }
        }
        rates.end_look();
    }
}

impl Settings {
    fn new(settings: &NodeSettings) -> Self {
        Self {
            node_name: settings.node_name.clone(),
            root_dir: settings.root_dir.clone(),
            cgroup_v2: settings.cgroup_v2,
            groups: settings.pod_cgroups.as_ref().map(|groups| (groups.root.clone(), groups.driver)),
            system: settings.system_containers.clone(),
            agent_started_at: clock::timestamp().as_nanosecond(),
        }
    }

    /// What the endpoint's page shows, without the file systems of the runtime.
    fn inputs(&self, endpoint: StatsEndpoint, groups: Option<(&String, CgroupDriver)>) -> CollectInputs {
        let (depth, with_rest) = match endpoint {
            StatsEndpoint::Cadvisor => (Depth::Whole, true),
            StatsEndpoint::Resource | StatsEndpoint::Summary { only_cpu_and_memory: true } => {
                (Depth::CpuAndMemory, false)
            }
            StatsEndpoint::Summary { only_cpu_and_memory: false } => (Depth::Pressure, true),
        };
        let is_summary = matches!(endpoint, StatsEndpoint::Summary { .. });
        CollectInputs {
            depth,
            with_rest,
            groups: groups.map(|(root, driver)| {
                let class = |class| CgroupName::class(root, class).path(driver);
                let classes = [QosClass::Burstable, QosClass::BestEffort].map(class).to_vec();
                (CgroupName::kubepods(root).path(driver), classes)
            }),
            system: if is_summary { self.system.clone() } else { Vec::new() },
            agent_started_at: is_summary.then_some(self.agent_started_at),
            cgroup_v2: self.cgroup_v2,
            root_dir: self.root_dir.clone(),
            images: None,
            layers: None,
        }
    }
}

/// The external volumes of pods with a running sandbox: they are set up before it and removed after it.
fn foreign(pods: &[PodInputs]) -> impl Iterator<Item = &ForeignVolume> {
    pods.iter().filter(|subject| subject.observed.ready_sandbox().is_some()).flat_map(|subject| &subject.foreign)
}

/// The mount point and usage of a runtime file system.
fn mount_and_usage(usage: &FilesystemUsage) -> Option<(PathBuf, DiskUsage)> {
    let path = usage.fs_id.as_ref().map(|id| PathBuf::from(&id.mountpoint))?;
    Some((path, cri_stats::disk_usage(usage)))
}

/// Why the runtime returned no statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StatsFailure {
    /// The runtime answered with an error.
    Refused,
    /// The runtime did not answer, or not in time. It may the next time.
    Unanswered,
}

async fn within<T>(doing: &str, call: impl Future<Output = Result<T, cri::Error>>) -> Result<T, StatsFailure> {
    match rt::deadline(RUNTIME_STATS_DEADLINE, call).await {
        Ok(Ok(stats)) => Ok(stats),
        Ok(Err(error)) => {
            log!(debug, "failed to get runtime statistics", call = doing, error = ErrorChain(&error));
            Err(if error.status().is_some() { StatsFailure::Refused } else { StatsFailure::Unanswered })
        }
        Err(elapsed) => {
            log!(debug, "failed to get runtime statistics", call = doing, error = elapsed);
            Err(StatsFailure::Unanswered)
        }
    }
}
