//! Devices and drivers that come and go, and pods that ask for them.

use crate::control::pod_workers::State;
use crate::control::sync_loop::SyncLoop;
use crate::control::sync_loop::effect::{Effect, NodeStatusChange};
use crate::control::sync_loop::pod_table::PodTable;
use crate::kubelet::devices::Devices;
use crate::platform::rt;
use crate::state::objects::Topic;
use crate::types::api::{PodUid, VolumeSource};

impl SyncLoop {
    /// Before any pod is taken: pods that are still there have what is written on their containers, whatever has become
    /// of the checkpoint.
    pub(super) fn learn_devices(&self) {
        let seen = self.pods.observed();
        for pod in seen.iter().map(|pod| &**pod).chain(self.pods.workers().all_unseen()) {
            // The newest instance of each comes first.
            for container in pod.containers.iter().filter(|_| pod.ready_sandbox().is_some()) {
                if let Some(written) = &container.devices {
                    self.devices.learn(&pod.uid, &container.name, written);
                }
            }
        }
    }

    /// Pods that wait try again at once, and what is shown of devices is brought up to date.
    pub(super) fn on_devices_changed(&mut self) {
        let devices = &self.devices;
        let mut effects = vec![
            Effect::NodeStatus(NodeStatusChange::Devices(devices.amounts())),
            Effect::ReferencesChanged(self.pods.uids_where(|pod| devices.concerns(pod))),
        ];
        let pods = self.pods.workers().iter().map(|worker| &worker.identity.uid);
        let shown = pods.filter(|uid| !devices.shown(uid).is_empty()).cloned();
        effects.extend(shown.map(Effect::MarkStatus));
        self.pods.apply(effects, rt::now());
    }

    /// A driver has come.
    pub(super) fn on_csi_drivers_changed(&mut self) {
        self.follow_objects();
        self.ask_drivers_again();
        self.try_volumes_again();
    }

    /// Pods that wait for a driver, to begin or to end, try again at once.
    pub(super) fn try_volumes_again(&mut self) {
        let pods = self.pods.uids_where(|pod| {
            let mut volumes = pod.spec.volumes.iter();
            volumes.any(|volume| matches!(volume.source, VolumeSource::Csi(_)) || Topic::claim(pod, volume).is_some())
        });
        self.pods.apply([Effect::ReferencesChanged(pods)], rt::now());
    }
}

/// Releases the devices of pods that have ended, once it is known which pods there are.
pub(super) fn release(devices: &Devices, pods: &PodTable) {
    if !pods.is_relisted() || !pods.all_sources_ready() {
        return;
    }
    let observed = pods.observed();
    let stays = |uid: &PodUid| match pods.worker(uid).map(|worker| worker.state) {
        Some(State::Sync | State::Terminating { .. }) => true,
        Some(_) => false,
        None => observed.pod(uid).is_some() || pods.workers().is_unseen(uid),
    };
    devices.keep_only(&stays);
}
