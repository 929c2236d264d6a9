//! The resources allocated to the pods. A worker has the pod of its source with these.

use std::sync::Arc;

use super::PodTable;
use crate::control::pod_workers::{Resizing, Worker};
use crate::kubelet::allocation::PodResourceInfo;
use crate::types::api::{Pod, PodUid};

impl PodTable {
    pub(crate) fn allocated(&self, uid: &PodUid) -> Option<PodResourceInfo> {
        self.allocations.allocated.get(uid)
    }

    /// A source added the pod. Without a checkpoint of it, the allocated and actuated resources are those in its status
    /// at the API server.
    pub(crate) fn restore_allocation(&mut self, pod: &Pod) {
        if pod.is_static() {
            return;
        }
        let (uid, allocations) = (&pod.metadata.uid, &self.allocations);
        for (state, of_status) in [
            (&allocations.allocated, PodResourceInfo::of_status(pod)),
            (&allocations.actuated, PodResourceInfo::actual_of_status(pod)),
        ] {
            if let Some(shown) = of_status.filter(|_| !state.contains(uid)) {
                state.set(uid, shown);
            }
        }
    }

    /// Forgets the allocations of pods that no source and no worker has.
    pub(crate) fn remove_orphaned_allocations(&mut self) {
        if self.all_sources_ready() {
            let is_known = |uid: &PodUid| self.knows(uid);
            self.allocations.allocated.remove_orphaned(is_known);
            self.allocations.actuated.remove_orphaned(is_known);
        }
    }

    /// The worker's pod with the resources that it takes up: while it is resized, the higher requests.
    pub(crate) fn with_room_in_use(&self, worker: &Worker) -> Option<Arc<Pod>> {
        let pod = worker.pod.as_ref()?;
        let uid = &pod.metadata.uid;
        if *self.workers.resizing(uid) == Resizing::No {
            return Some(Arc::clone(pod));
        }
        let Some(actuated) = self.allocations.actuated.get(uid) else { return Some(Arc::clone(pod)) };
        Some(PodResourceInfo::of(pod).with_higher_requests(&actuated).put_on(pod))
    }

    /// The pod of a source with its allocated resources.
    pub(super) fn with_allocation(&self, pod: &Arc<Pod>) -> Arc<Pod> {
        self.allocated(&pod.metadata.uid).map_or_else(|| Arc::clone(pod), |allocated| allocated.put_on(pod))
    }
}
