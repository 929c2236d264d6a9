//! Devices that come and go, and pods that ask for them.

use std::time::Instant;

use crate::admission::Rejection;
use crate::api::{Pod, PodUid, Reason};
use crate::pod_workers::State;
use crate::sync_loop::SyncLoop;

impl SyncLoop {
    /// Chooses the pod's devices. A pod of the node's own waits for those that are not there, as nobody would make it again;
    /// and so does one that had devices before a reboot, when whoever tells of them may be a pod that has yet to start.
    pub(super) fn reserve_devices(&self, pod: &Pod) -> Result<(), Rejection> {
        if !self.devices.concerns(pod) {
            return Ok(());
        }
        self.release_devices();
        let uid = &pod.metadata.uid;
        let seen = self.seen.borrow().pod(uid).cloned();
        let runs = |name: &str| {
            seen.as_ref().is_some_and(|pod| pod.container(name).is_some_and(|container| container.is_running()))
        };
        match self.devices.reserve(pod, &runs) {
            Err(lacks) if !pod.is_static() && self.devices.shown(uid).is_empty() => Err(not_allocated(&lacks.0)),
            _ => Ok(()),
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

    pub(super) fn on_devices_refused(&mut self, uid: &PodUid, why: &str, now: Instant) {
        if self.workers.worker(uid).is_some_and(|worker| worker.state == State::Sync) {
            self.reject(uid, not_allocated(why), now);
            self.dirty.insert(uid.clone());
        }
    }
}

/// Upstream's words.
fn not_allocated(why: &str) -> Rejection {
    let message = format!("Allocate failed due to {why}, which is unexpected");
    Rejection { reason: Reason::UNEXPECTED_ADMISSION_ERROR, message }
}
