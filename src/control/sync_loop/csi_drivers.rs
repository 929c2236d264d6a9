//! Schedules the CSI drivers' work, and reports the volumes in use to the API server.

use std::rc::Rc;
use std::time::Duration;

use crate::control::pod_table::{Effect, NodeStatusChange, PodTable};
use crate::control::pod_workers::State;
use crate::kubelet::csi::Csi;
use crate::kubelet::volumes::{self, SetUpInputs};
use crate::state::objects::{Lookup, Objects, Topic};
use crate::types::api::{Pod, VolumeSource};
use crate::types::owned::View;
use crate::types::sorted::SortedSet;

pub(super) struct CsiDrivers {
    csi: Rc<Csi>,
    objects: View<Objects>,
    sync_frequency: Duration,
    in_cluster: bool,
}

impl CsiDrivers {
    pub(super) fn new(csi: Rc<Csi>, objects: View<Objects>, sync_frequency: Duration) -> Self {
        Self { csi, objects, sync_frequency, in_cluster: false }
    }

    pub(super) fn set_in_cluster(&mut self) {
        self.in_cluster = true;
    }

    /// A driver has registered.
    pub(super) fn on_changed(&self, pods: &PodTable) -> Vec<Effect> {
        self.schedule_allocatable();
        on_attached(pods)
    }

    /// Expands volumes of running pods whose claims ask for more.
    pub(super) fn on_relisted(&self, pods: &PodTable) {
        if !self.in_cluster {
            return;
        }
        let runtime = pods.runtime();
        let objects = self.objects.read();
        let with = SetUpInputs { dirs: &runtime.dirs, node: &runtime.node, objects: &objects };
        let running = pods.workers().iter().filter(|worker| worker.state == State::Sync);
        let running = running.filter_map(|worker| worker.pod.as_ref());
        let volumes =
            running.flat_map(|pod| volumes::of_drivers(pod, with, &|driver| self.csi.can_expand(driver))).collect();
        self.csi.follow_expansion(volumes, self.sync_frequency);
    }

    /// Queries the allocatable volumes of each driver at the interval in its CSIDriver object.
    pub(super) fn schedule_allocatable(&self) {
        let objects = self.objects.read();
        self.csi.refresh_periodically(|driver| match objects.csi_driver(driver) {
            Lookup::Found(driver) => driver.allocatable_period,
            Lookup::Missing | Lookup::Unknown(_) => None,
        });
    }

    /// Reports the volumes in use. The API server must not detach them before they are unmounted.
    pub(super) fn round(&self, pods: &PodTable) -> Option<Effect> {
        if !self.in_cluster {
            return None;
        }
        let objects = self.objects.read();
        let workers = pods.workers().iter().filter(|worker| worker.state != State::Finished);
        let pods = workers.filter_map(|worker| worker.pod.as_ref());
        let mut names: SortedSet<String> = pods.flat_map(|pod| objects.attachable(pod)).collect();
        names.extend(self.csi.present());
        Some(Effect::NodeStatus(NodeStatusChange::VolumesInUse(names.iter().cloned().collect())))
    }
}

/// Volumes were attached or detached: pods that wait for a driver retry at once.
pub(super) fn on_attached(pods: &PodTable) -> Vec<Effect> {
    vec![Effect::ReferencesChanged(pods.uids_where(has_driver_volumes))]
}

fn has_driver_volumes(pod: &Pod) -> bool {
    let mut volumes = pod.spec.volumes.iter();
    volumes.any(|volume| matches!(volume.source, VolumeSource::Csi(_)) || Topic::claim(pod, volume).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::pod_table::testing::{pod, with_node};
    use crate::platform::rt;
    use crate::types::owned::Owned;

    #[test]
    fn volumes_in_use_are_reported_only_in_a_cluster() {
        with_node(|node| {
            let mut drivers = CsiDrivers::new(node.csi, Owned::default().view(), Duration::from_secs(60));
            assert_eq!(drivers.round(&node.pods), None);
            drivers.set_in_cluster();
            let none = Effect::NodeStatus(NodeStatusChange::VolumesInUse(Vec::new()));
            assert_eq!(drivers.round(&node.pods), Some(none));
        });
    }

    #[test]
    fn driver_change_wakes_no_pod_without_csi_volumes() {
        with_node(|mut node| {
            node.pods.apply([Effect::Update(pod("a"))], rt::now());
            assert_eq!(on_attached(&node.pods), [Effect::ReferencesChanged(Vec::new())]);
        });
    }
}
