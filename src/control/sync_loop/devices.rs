//! Devices and drivers that come and go, and pods that ask for them.

use std::time::{Duration, Instant};

use crate::control::pod_workers::State;
use crate::control::sync_loop::SyncLoop;
use crate::kubelet::admission::Rejection;
use crate::kubelet::resource_managers::{Own, Provider, unexpected};
use crate::platform::rt;
use crate::state::objects::Topic;
use crate::types::api::{Pod, PodUid, Reason, VolumeSource};
use crate::types::metrics::{self, Count, Timed};

impl SyncLoop {
    /// What the pod would have for itself of processors, memory and devices; its devices are chosen then.
    pub(super) fn plan(&self, pod: &Pod) -> Result<Own, Rejection> {
        let seen = self.seen.borrow().pod(&pod.metadata.uid).cloned();
        let runs = |name: &str| {
            seen.as_ref().is_some_and(|pod| pod.container(name).is_some_and(|container| container.is_running()))
        };
        let managers = &self.placing.managers;
        let mut choosing = self.devices.choosing(pod, &runs, managers.nodes());
        let mut providers: Vec<&mut dyn Provider> = Vec::new();
        if self.devices.concerns(pod) {
            self.release_devices();
            providers.push(&mut choosing);
        }
        let begun = rt::now();
        let planned = managers.plan(pod, providers);
        let millis = u64::try_from(rt::elapsed(begun).as_millis()).unwrap_or(u64::MAX);
        metrics::took(Timed::TopologyAdmissions, &[], Duration::from_secs(millis));
        metrics::count(Count::TopologyAdmissions, &[]);
        if planned.is_err() && managers.has_topology() {
            metrics::count(Count::TopologyErrors, &[]);
        }
        planned.map_err(|(reason, message)| Rejection { reason, message })
    }

    /// Before any pod is taken: pods that are still there have what is written on their containers, whatever has become
    /// of the checkpoint.
    pub(super) fn learn_devices(&self) {
        let seen = self.seen.borrow();
        for pod in seen.iter().map(|pod| &**pod).chain(self.workers.all_unseen()) {
            // The newest instance of each comes first.
            for container in pod.containers.iter().filter(|_| pod.ready_sandbox().is_some()) {
                if let Some(written) = &container.devices {
                    self.devices.learn(&pod.uid, &container.name, written);
                }
            }
        }
    }

    /// What ended pods had can be given to others, once it is known which pods there are.
    pub(super) fn release_devices(&self) {
        if !self.relisted || !self.books.borrow().sources.all_ready() {
            return;
        }
        let seen = self.seen.borrow();
        let stays = |uid: &PodUid| match self.workers.worker(uid).map(|worker| worker.state) {
            Some(State::Sync | State::Terminating { .. }) => true,
            Some(_) => false,
            None => seen.pod(uid).is_some() || self.workers.is_unseen(uid),
        };
        self.devices.keep_only(&stays);
    }

    /// Pods that wait try again at once, and what is shown of devices is brought up to date.
    pub(super) fn on_devices_changed(&mut self) {
        self.news.devices(self.devices.amounts());
        let devices = &self.devices;
        self.workers.objects_changed(|pod| devices.concerns(pod));
        let pods = self.workers.iter().map(|worker| &worker.identity.uid);
        self.dirty.extend(pods.filter(|uid| !devices.shown(uid).is_empty()).cloned());
    }

    /// A driver has come.
    pub(super) fn on_csi_drivers_changed(&mut self) {
        self.follow_objects();
        self.ask_drivers_again();
        self.try_volumes_again();
    }

    /// Pods that wait for a driver, to begin or to end, try again at once.
    pub(super) fn try_volumes_again(&mut self) {
        self.workers.objects_changed(|pod| {
            let mut volumes = pod.spec.volumes.iter();
            volumes.any(|volume| matches!(volume.source, VolumeSource::Csi(_)) || Topic::claim(pod, volume).is_some())
        });
    }

    pub(super) fn on_devices_refused(&mut self, uid: &PodUid, why: &str, now: Instant) {
        let (reason, message) = unexpected(why);
        self.refuse(uid, Rejection { reason, message }, now);
    }

    pub(super) fn on_volumes_refused(&mut self, uid: &PodUid, message: String, now: Instant) {
        self.refuse(uid, Rejection { reason: Reason::VOLUME_ATTACHMENT_LIMIT_EXCEEDED, message }, now);
    }

    /// One that was taken and cannot begin.
    fn refuse(&mut self, uid: &PodUid, rejection: Rejection, now: Instant) {
        if self.workers.worker(uid).is_some_and(|worker| worker.state == State::Sync) {
            self.reject(uid, rejection, now);
            self.dirty.insert(uid.clone());
        }
    }
}
