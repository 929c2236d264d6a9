//! The parts of the sync loop. Each part owns its fields, reads the pod table and returns effects.

use std::path::PathBuf;
use std::rc::Rc;

use async_channel::Sender;

use crate::control::cluster::{ObjectWatcher, StatusManager};
use crate::control::eviction::{EvictionManager, StorageLimits};
use crate::control::jobs::{JobTable, Jobs};
use crate::control::node_shutdown::NodeShutdown;
use crate::control::pod_admission::{CpuAssignment, DeviceAllocations, PendingResizes, PodAdmission, Readmissions};
use crate::control::pod_sources::disabled_fields::DisabledFields;
use crate::control::sync_loop::csi_drivers::CsiDrivers;
use crate::control::sync_loop::deadlines::Deadlines;
use crate::control::sync_loop::hosts_files::HostsFiles;
use crate::control::sync_loop::image_gc::ImageGarbage;
use crate::control::sync_loop::node_cgroups::NodeCgroups;
use crate::control::sync_loop::object_watch::ObjectWatch;
use crate::control::sync_loop::oom::OomWatcher;
use crate::control::sync_loop::orphans::Orphans;
use crate::control::sync_loop::pod_stops::PodStops;
use crate::control::versions::{HeldSince, NextVersions, PodVersions, TagLookups, UpdateLocks, Versions};
use crate::kubelet::admission::{Admission, Rejection};
use crate::kubelet::container_manager::ContainerManager;
use crate::kubelet::csi::Csi;
use crate::kubelet::devices::Devices;
use crate::kubelet::dra::DraManager;
use crate::kubelet::kuberuntime::{PodRuntime, WorkViews};
use crate::kubelet::offline::OfflineStore;
use crate::kubelet::resource_managers::ResourceManagers;
use crate::platform::apiserver::Client;
use crate::platform::config::{Config, FeatureGates};
use crate::state::objects::Objects;
use crate::state::pods::{HostNames, SyncEvent};
use crate::types::api::Pod;
use crate::types::owned::Owned;

pub(super) struct Parts {
    pub(super) admission: PodAdmission,
    pub(super) cpus: CpuAssignment,
    pub(super) cgroups: NodeCgroups,
    pub(super) csi_drivers: CsiDrivers,
    pub(super) deadlines: Deadlines,
    pub(super) devices: DeviceAllocations,
    pub(super) disabled_fields: DisabledFields,
    pub(super) eviction: EvictionManager,
    pub(super) hosts_files: HostsFiles,
    pub(super) image_garbage: ImageGarbage,
    pub(super) jobs: Jobs,
    pub(super) locks: UpdateLocks,
    pub(super) next_versions: NextVersions,
    pub(super) objects: ObjectWatch,
    pub(super) oom: OomWatcher,
    pub(super) orphans: Orphans,
    pub(super) readmissions: Readmissions,
    pub(super) resizes: PendingResizes,
    pub(super) shutdown: NodeShutdown,
    gates: FeatureGates,
    pub(super) status_manager: StatusManager,
    pub(super) storage_limits: StorageLimits,
    pub(super) stops: PodStops,
    pub(super) tag_lookups: TagLookups,
    pub(super) versions: PodVersions,
}

/// What the parts own and read from the start.
pub(super) struct PartInputs {
    pub(super) managers: ResourceManagers,
    pub(super) devices: Rc<Devices>,
    pub(super) csi: Rc<Csi>,
    pub(super) dra: Rc<DraManager>,
    pub(super) stopped_pods: PathBuf,
    pub(super) jobs: JobTable,
    pub(super) versions: Versions,
    pub(super) held_since: (PathBuf, HeldSince),
    pub(super) objects: Owned<Objects>,
    pub(super) host_names: Owned<HostNames>,
    pub(super) views: WorkViews,
}

impl Parts {
    pub(super) fn new(
        config: &Config,
        runtime: &PodRuntime,
        groups: Rc<ContainerManager>,
        inputs: PartInputs,
        inbox: &Sender<SyncEvent>,
    ) -> Self {
        let PartInputs { managers, devices, csi, dra, stopped_pods, jobs, versions, .. } = inputs;
        let PartInputs { held_since, objects, host_names, views, .. } = inputs;
        let admission = Admission::new(config, &runtime.node.allocatable, runtime.node.max_pods);
        Self {
            admission: PodAdmission::new(admission, Rc::clone(&devices)),
            cpus: CpuAssignment::new(managers, inbox.clone()),
            cgroups: NodeCgroups::new(Rc::clone(&groups), inbox.clone()),
            csi_drivers: CsiDrivers::new(Rc::clone(&csi), views.objects.clone(), config.pods.sync_frequency),
            deadlines: Deadlines::default(),
            devices: DeviceAllocations::new(devices, dra),
            disabled_fields: DisabledFields::new(&config.gates),
            eviction: EvictionManager::new(&config.eviction, inbox.clone()),
            hosts_files: HostsFiles::new(host_names, views.objects.clone(), inbox.clone()),
            image_garbage: ImageGarbage::default(),
            jobs: Jobs::new(jobs, inbox.clone()),
            locks: UpdateLocks::new(held_since, config.update_lock_limit, views.objects.clone(), inbox.clone()),
            tag_lookups: TagLookups::new(views.objects.clone(), inbox.clone()),
            next_versions: NextVersions::new(views.objects, inbox.clone()),
            objects: ObjectWatch::new(objects, Rc::clone(&csi)),
            oom: OomWatcher::new(groups, inbox),
            orphans: Orphans::new(csi),
            readmissions: Readmissions::default(),
            resizes: PendingResizes::default(),
            shutdown: NodeShutdown::new(&config.shutdown_phases, inbox.clone()),
            gates: config.gates.clone(),
            status_manager: StatusManager::default(),
            storage_limits: StorageLimits::new(inbox.clone()),
            stops: PodStops::new(stopped_pods, inbox.clone()),
            versions: PodVersions::new(versions, inbox.clone()),
        }
    }

    /// Connects the parts to a cluster.
    pub(super) fn join(&mut self, client: &Client, store: &OfflineStore, node: &str, inbox: &Sender<SyncEvent>) {
        self.status_manager.set_cluster(client.clone(), node, inbox.clone());
        let follower = ObjectWatcher::new(client.clone(), store.clone(), inbox.clone(), self.gates.clone());
        self.objects.set_cluster(follower, store.clone());
        self.csi_drivers.set_in_cluster();
        self.hosts_files.set_in_cluster();
    }
}

/// Whether a running pod may get more resources.
pub(super) fn admits_growth(eviction: &EvictionManager, shutdown: &NodeShutdown, pod: &Pod) -> Result<(), Rejection> {
    eviction.admits_growth(pod)?;
    shutdown.admits()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::pod_table::testing::{pod, with_node};
    use crate::platform::config::Eviction;
    use crate::platform::rt;
    use crate::state::pods::{Pressure, PressureObservation};
    use crate::types::api::Reason;

    #[test]
    fn running_pod_gets_no_more_resources_under_pressure_and_during_a_shutdown() {
        with_node(|node| {
            let mut eviction = EvictionManager::new(&Eviction::default(), node.inbox.clone());
            let mut shutdown = NodeShutdown::new(&[], node.inbox.clone());
            let (pod, now) = (pod("a"), rt::now());
            assert_eq!(admits_growth(&eviction, &shutdown, &pod), Ok(()));
            for (pressures, reason) in [(vec![Pressure::Disk], Some(Reason::EVICTED)), (Vec::new(), None)] {
                let pressures = pressures.into_iter().collect();
                let observation = PressureObservation { pressures, ..PressureObservation::default() };
                eviction.on_observation(observation, &node.pods, now);
                assert_eq!(admits_growth(&eviction, &shutdown, &pod).err().map(|refused| refused.reason), reason);
            }
            shutdown.on_node_shuts_down(true, now);
            assert_eq!(admits_growth(&eviction, &shutdown, &pod).unwrap_err().reason, Reason::NODE_SHUTDOWN);
        });
    }
}
