//! Devices of device plugins and DRA drivers, and the pods that use them.

use std::rc::Rc;

use crate::control::pod_table::{Effect, NodeStatusChange, PodTable};
use crate::control::pod_workers::State;
use crate::kubelet::devices::Devices;
use crate::kubelet::dra::DraManager;
use crate::state::pods::AllocatedDevices;
use crate::types::api::PodUid;

pub(crate) struct DeviceAllocations {
    devices: Rc<Devices>,
    dra: Rc<DraManager>,
}

impl DeviceAllocations {
    pub(crate) fn new(devices: Rc<Devices>, dra: Rc<DraManager>) -> Self {
        Self { devices, dra }
    }

    /// Restores device allocations that the checkpoint lacks from the annotations of containers, of pods with a ready
    /// sandbox. Runs before pods are admitted, so that no device is given twice.
    pub(crate) fn on_first_relist(&self, pods: &PodTable) {
        let observed = pods.observed();
        for pod in observed.iter().map(|pod| &**pod).chain(pods.workers().all_unseen()) {
            // Container instances are listed newest first.
            for container in pod.containers.iter().filter(|_| pod.ready_sandbox().is_some()) {
                if let Some(written) = &container.devices {
                    self.devices.adopt(&pod.uid, &container.name, written);
                }
            }
        }
    }

    /// Pods that wait for devices retry at once. The statuses of the node and its pods are recomputed.
    pub(crate) fn on_changed(&self, pods: &PodTable) -> Vec<Effect> {
        let mut effects = vec![
            Effect::NodeStatus(NodeStatusChange::Devices(self.devices.amounts())),
            Effect::ReferencesChanged(pods.uids_where(|pod| self.devices.concerns(pod) || self.dra.concerns(pod))),
        ];
        let uids = pods.workers().iter().map(|worker| &worker.identity.uid);
        let shown = uids.filter(|uid| !self.shown(uid, pods).is_empty()).cloned();
        effects.extend(shown.map(Effect::MarkStatus));
        effects
    }

    /// The devices that the pod's status lists.
    pub(crate) fn shown(&self, uid: &PodUid, pods: &PodTable) -> Vec<AllocatedDevices> {
        let mut shown = self.devices.shown(uid);
        if let Some(pod) = pods.worker(uid).and_then(|worker| worker.pod.as_ref()) {
            shown.extend(self.dra.shown(pod));
        }
        shown
    }

    pub(crate) fn release(&self, pods: &PodTable) {
        release(&self.devices, pods);
        if_known(pods, |stays| self.dra.keep_only(stays));
    }
}

/// Releases the devices of ended pods, once all pods are known.
pub(super) fn release(devices: &Devices, pods: &PodTable) {
    if_known(pods, |stays| devices.keep_only(stays));
}

/// Calls `act` with which pods keep their devices, once all pods are known.
fn if_known(pods: &PodTable, act: impl FnOnce(&dyn Fn(&PodUid) -> bool)) {
    if !pods.is_relisted() || !pods.all_sources_ready() {
        return;
    }
    let observed = pods.observed();
    let stays = |uid: &PodUid| {
        let may_run = || observed.pod(uid).is_some() || pods.workers().is_unseen(uid) || pods.knows(uid);
        keeps_devices(pods.worker(uid).map(|worker| worker.state), may_run)
    };
    act(&stays);
}

/// Whether a pod keeps its devices. A pod without a worker has no `state`.
fn keeps_devices(state: Option<State>, may_run: impl FnOnce() -> bool) -> bool {
    match state {
        Some(State::Sync | State::Terminating { .. }) => true,
        Some(State::Terminated | State::Finished) => false,
        None => may_run(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::pod_table::testing::{pod, with_node};
    use crate::platform::rt;

    #[test]
    fn pod_keeps_its_devices_until_its_containers_have_stopped() {
        assert!(keeps_devices(Some(State::Sync), || false));
        assert!(!keeps_devices(Some(State::Terminated), || true) && !keeps_devices(Some(State::Finished), || true));
        assert!(keeps_devices(None, || true) && !keeps_devices(None, || false));
    }

    #[test]
    fn device_change_wakes_no_pod_without_devices() {
        with_node(|mut node| {
            node.pods.apply([Effect::Update(pod("a"))], rt::now());
            let effects = DeviceAllocations::new(Rc::clone(&node.devices), Rc::clone(&node.dra)).on_changed(&node.pods);
            let status = Effect::NodeStatus(NodeStatusChange::Devices(node.devices.amounts()));
            assert_eq!(effects, [status, Effect::ReferencesChanged(Vec::new())]);
        });
    }
}
