//! Finds out what pods use: from their control groups, from the runtime, and from the disk.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use super::local_storage::has_storage_limit;
use super::usage::{ContainerUsage, Disk, PodUsage, VolumeUsage};
use crate::platform::cgroups::{CgroupName, Depth, HIERARCHY, UsageReader};
use crate::platform::config::CgroupDriver;
use crate::platform::cri::RuntimeService;
use crate::platform::host::disk_usage::disk_usage;
use crate::platform::rt;
use crate::state::pods::volume_paths::{CONFIG_MAP, EMPTY_DIR};
use crate::state::pods::{ObservedPod, PodDirs, VolumePlace, volume_places};
use crate::types::api::{Pod, qos_class};

/// A pod that may be ended.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) pod: Arc<Pod>,
    pub(crate) observed: Rc<ObservedPod>,
}

/// What pods are measured with.
#[derive(Clone, Debug)]
pub(crate) struct Measure {
    pub(crate) cri: RuntimeService,
    pub(crate) dirs: PodDirs,
    /// The driver of the pods' groups and the group above all of them; `None` where pods have no groups.
    pub(crate) groups: Option<(CgroupDriver, String)>,
}

impl Measure {
    /// Memory and processes. `None` for a pod of which nothing could be found out.
    pub(crate) async fn memory(&self, pod: &Candidate) -> Option<PodUsage> {
        match &self.groups {
            Some((driver, root)) => {
                let group = CgroupName::pod(root, qos_class(&pod.pod), &pod.pod.metadata.uid).path(*driver);
                let names = running(&pod.observed).map(|running| (running.id.clone(), running.name.clone())).collect();
                // Where memory is short, even such files may take their time.
                rt::blocking(move || memory_of_group(&group, names)).await
            }
            None => self.memory_by_runtime(pod).await,
        }
    }

    /// Processes are not counted then.
    async fn memory_by_runtime(&self, Candidate { observed, .. }: &Candidate) -> Option<PodUsage> {
        let mut containers = Vec::new();
        for running in running(observed) {
            let stats = self.cri.container_stats(&running.id).await.ok()?;
            let memory = stats.memory.and_then(|memory| memory.working_set_bytes);
            containers.push(ContainerUsage { name: running.name.clone(), memory, ..ContainerUsage::default() });
        }
        let memory = containers.iter().filter_map(|container| container.memory).reduce(u64::saturating_add);
        Some(PodUsage { memory, containers, ..PodUsage::default() })
    }

    /// What the pod has on the disk. Writable layers are only asked for where they count.
    pub(crate) async fn disk(&self, candidate: &Candidate, layers: bool) -> PodUsage {
        let Candidate { pod, observed } = candidate;
        let (dirs, shown, uid) = (self.dirs.clone(), Arc::clone(pod), pod.metadata.uid.clone());
        let names: Vec<String> = running(observed).map(|container| container.name.clone()).collect();
        let owner = uid.clone();
        let mut usage = rt::slow_for(owner.as_str(), move || {
            let logs = dirs.logs(&shown.metadata.namespace, &shown.metadata.name, &uid);
            let logs_of = |name: String| {
                let logs = Some(measured(&logs.join(&name)));
                ContainerUsage { name, logs, ..ContainerUsage::default() }
            };
            let volume = |place: VolumePlace| VolumeUsage {
                name: place.name,
                disk: measured(&place.path),
                in_memory: place.in_memory,
            };
            PodUsage {
                containers: names.into_iter().map(logs_of).collect(),
                volumes: volumes(&shown, &dirs).map(volume).collect(),
                own: measured(&dirs.etc_hosts(&uid)),
                ..PodUsage::default()
            }
        })
        .await;
        for (container, running) in usage.containers.iter_mut().zip(running(observed).filter(|_| layers)) {
            let stats = self.cri.container_stats(&running.id).await.ok();
            container.layer = stats
                .and_then(|stats| stats.writable_layer)
                .map(|layer| Disk { bytes: layer.used_bytes.unwrap_or(0), inodes: layer.inodes_used.unwrap_or(0) });
        }
        usage
    }

    /// What counts against the pod's own limits.
    pub(crate) async fn limited(&self, candidate: &Candidate) -> PodUsage {
        self.disk(candidate, has_storage_limit(&candidate.pod)).await
    }
}

/// What the group of a pod uses, and the groups of its containers, which are given by id and name.
fn memory_of_group(group: &str, running: Vec<(String, String)>) -> Option<PodUsage> {
    let mut reader = UsageReader::new(Path::new(HIERARCHY));
    let whole = reader.read(group, Depth::Memory).ok()?;
    let mut containers = Vec::new();
    for (place, below) in reader.containers(group, running.iter().map(|(id, _)| id.as_str())).ok()? {
        let Some((_, name)) = running.get(place) else { continue };
        let memory = reader.read(&below, Depth::Memory).ok().and_then(|usage| usage.working_set());
        containers.push(ContainerUsage { name: name.clone(), memory, ..ContainerUsage::default() });
    }
    containers.sort_by(|a, b| a.name.cmp(&b.name));
    Some(PodUsage { memory: whole.working_set(), pids: whole.pids, containers, ..PodUsage::default() })
}

/// The containers that run.
fn running(observed: &ObservedPod) -> impl Iterator<Item = &crate::state::pods::ObservedContainer> {
    observed.containers.iter().filter(|container| container.is_running())
}

/// A directory that cannot be read holds nothing: no pod goes for what was not seen.
fn measured(path: &Path) -> Disk {
    let found = disk_usage(path).unwrap_or_default();
    Disk { bytes: found.bytes, inodes: found.inodes }
}

/// The volumes that count against the pod, as upstream has it.
fn volumes(pod: &Pod, dirs: &PodDirs) -> impl Iterator<Item = VolumePlace> {
    let places = volume_places(pod, &pod.metadata.uid, dirs);
    places.into_iter().filter(|place| matches!(place.kind, EMPTY_DIR | CONFIG_MAP))
}
