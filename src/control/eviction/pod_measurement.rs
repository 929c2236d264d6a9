//! Measures pods: by cgroup, by CRI stats, and by walking their directories.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::local_storage::has_storage_limit;
use super::usage::{ClaimUsage, ContainerUsage, Disk, PodUsage, VolumeUsage};
use crate::platform::cgroups::{CgroupName, Depth, HIERARCHY, UsageReader};
use crate::platform::config::CgroupDriver;
use crate::platform::cri::RuntimeService;
use crate::platform::host::disk_usage::disk_usage;
use crate::platform::rt;
use crate::state::objects::WritableClaim;
use crate::state::pods::volume_paths::{CONFIG_MAP, EMPTY_DIR};
use crate::state::pods::{ObservedPod, PodDirs, VolumeDir, volume_dirs};
use crate::types::api::{Pod, qos_class};
use crate::types::sorted::SortOnce;

/// Time limit for measuring one pod against its own limits.
const POD_MEASUREMENT_TIMEOUT: Duration = Duration::from_secs(60);

/// A pod that may be evicted.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) pod: Arc<Pod>,
    pub(crate) observed: Rc<ObservedPod>,
    /// The claims from manifests that it can write to.
    pub(crate) claims: Vec<WritableClaim>,
}

#[derive(Clone, Debug)]
pub(crate) struct Measure {
    pub(crate) cri: RuntimeService,
    pub(crate) dirs: PodDirs,
    /// The cgroup driver and the parent of `kubepods`; `None` if pods have no cgroups.
    pub(crate) groups: Option<(CgroupDriver, String)>,
}

impl Measure {
    /// Memory and process usage. `None` if the pod cannot be measured.
    pub(crate) async fn memory(&self, pod: &Candidate) -> Option<PodUsage> {
        match &self.groups {
            Some((driver, root)) => {
                let group = CgroupName::pod(root, qos_class(&pod.pod), &pod.pod.metadata.uid).path(*driver);
                let names = running(&pod.observed).map(|running| (running.id.clone(), running.name.clone())).collect();
                // Under memory pressure even reads of cgroup files may block.
                rt::blocking(move || memory_of_group(&group, names)).await
            }
            None => self.memory_by_runtime(pod).await,
        }
    }

    /// The runtime reports no process count.
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

    /// Disk usage, or the sum of what was found until `end`. Writable layers are requested only if they count.
    pub(crate) async fn disk(&self, candidate: &Candidate, layers: bool, end: Instant) -> PodUsage {
        let Candidate { pod, observed, claims } = candidate;
        let (dirs, shown, uid) = (self.dirs.clone(), Arc::clone(pod), pod.metadata.uid.clone());
        let claims = claims.clone();
        let names: Vec<String> = running(observed).map(|container| container.name.clone()).collect();
        let owner = uid.clone();
        let mut usage = rt::walk_for(owner.as_str(), move || {
            let logs = dirs.logs(&shown.metadata.namespace, &shown.metadata.name, &uid);
            let logs_of = |name: String| {
                let logs = Some(measured(&logs.join(&name), end));
                ContainerUsage { name, logs, ..ContainerUsage::default() }
            };
            let volume = |volume_dir: VolumeDir| VolumeUsage {
                name: volume_dir.name,
                disk: measured(&volume_dir.path, end),
                in_memory: volume_dir.in_memory,
            };
            let device = |path: &Path| fs::metadata(path).ok().map(|metadata| metadata.dev());
            let node_disk = device(dirs.pods());
            let claim = |claim: WritableClaim| ClaimUsage {
                disk: measured(&claim.path, end),
                on_node_disk: device(&claim.path) == node_disk,
                name: claim.name,
                limit: claim.limit,
            };
            PodUsage {
                claims: claims.into_iter().map(claim).collect(),
                containers: names.into_iter().map(logs_of).collect(),
                volumes: volumes(&shown, &dirs).map(volume).collect(),
                pod_files: dirs
                    .own_files(&uid)
                    .map(|path| measured(&path, end))
                    .into_iter()
                    .fold(Disk::default(), Disk::plus),
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

    /// The usage that counts towards the pod's own limits.
    pub(crate) async fn limited(&self, candidate: &Candidate) -> PodUsage {
        self.disk(candidate, has_storage_limit(&candidate.pod), rt::now() + POD_MEASUREMENT_TIMEOUT).await
    }
}

/// Usage of a pod's cgroup and of its containers, given by id and name.
fn memory_of_group(group: &str, running: Vec<(String, String)>) -> Option<PodUsage> {
    let mut reader = UsageReader::new(Path::new(HIERARCHY));
    let pod_usage = reader.read(group, Depth::Memory).ok()?;
    let mut containers = Vec::new();
    for (index, child_group) in reader.containers(group, running.iter().map(|(id, _)| id.as_str())).ok()? {
        let Some((_, name)) = running.get(index) else { continue };
        let memory = reader.read(&child_group, Depth::Memory).ok().and_then(|usage| usage.working_set());
        containers.push(ContainerUsage { name: name.clone(), memory, ..ContainerUsage::default() });
    }
    containers.sort_once_by(|a, b| a.name.cmp(&b.name));
    Some(PodUsage { memory: pod_usage.working_set(), pids: pod_usage.pids, containers, ..PodUsage::default() })
}

fn running(observed: &ObservedPod) -> impl Iterator<Item = &crate::state::pods::ObservedContainer> {
    observed.containers.iter().filter(|container| container.is_running())
}

/// An unreadable directory counts as empty: no pod is evicted for usage that was not measured.
fn measured(path: &Path, end: Instant) -> Disk {
    let usage = disk_usage(path, end).unwrap_or_default();
    Disk { bytes: usage.bytes, inodes: usage.inodes }
}

/// The volumes that count towards the pod, as upstream.
fn volumes(pod: &Pod, dirs: &PodDirs) -> impl Iterator<Item = VolumeDir> {
    let volume_dirs = volume_dirs(pod, &pod.metadata.uid, dirs);
    volume_dirs.into_iter().filter(|place| matches!(place.kind, EMPTY_DIR | CONFIG_MAP))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::rpc::Client;

    fn candidate() -> Candidate {
        let mut pod = Pod::default();
        pod.metadata.uid = "u".into();
        let observed = Rc::new(ObservedPod::new("u".into(), "ns", "web"));
        Candidate { pod: Arc::new(pod), observed, claims: Vec::new() }
    }

    #[test]
    fn hosts_file_and_termination_messages_are_measured() {
        let root = std::env::temp_dir().join(format!("coracle-pod-files-{}", std::process::id()));
        let dirs = PodDirs::new(&root, &root.join("logs"));
        let log = dirs.termination_log(&"u".into(), "main", 0);
        fs::create_dir_all(log.parent().unwrap()).unwrap();
        fs::write(dirs.etc_hosts(&"u".into()), "x").unwrap();
        fs::write(&log, [b'x'; 100_000]).unwrap();
        let cri = RuntimeService::new(Client::new("/nowhere"), Duration::from_secs(1));
        let measure = Measure { cri, dirs, groups: None };
        let end = rt::now() + Duration::from_secs(20);
        let files = rt::block_on(measure.disk(&candidate(), false, end)).pod_files;
        fs::remove_dir_all(&root).unwrap();
        assert!(files.bytes >= 100_000, "{files:?}");
        assert_eq!(files.inodes, 4, "the two files, and two directories");
    }

    #[test]
    fn memory_is_measured_while_walks_hang() {
        let candidate = candidate();
        let measure = Measure {
            cri: RuntimeService::new(Client::new("/nowhere"), Duration::from_secs(1)),
            dirs: PodDirs::new(Path::new("/nowhere"), Path::new("/nowhere")),
            groups: Some((CgroupDriver::Cgroupfs, "nowhere".to_owned())),
        };
        let (release, hangs) = async_channel::bounded::<()>(1);
        let hung = ["a", "b", "c", "d"].map(|owner| {
            let hangs = hangs.clone();
            rt::walk_for(owner, move || hangs.recv_blocking().is_err())
        });
        let walk = async { rt::deadline(Duration::from_millis(200), measure.disk(&candidate, false, rt::now())).await };
        let memory = async { rt::deadline(Duration::from_secs(20), measure.memory(&candidate)).await };
        let (walk, memory) = rt::block_on(async { (walk.await, memory.await) });
        drop(release);
        rt::block_on(async {
            for one in hung {
                one.await;
            }
        });
        assert!(walk.is_err(), "walks of pods share the threads that hang");
        assert_eq!(memory.ok(), Some(None), "no such cgroup");
    }
}
