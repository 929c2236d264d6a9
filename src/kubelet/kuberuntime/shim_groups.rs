//! Groups of sandboxes that are being created, which no observation shows yet.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use crate::kubelet::kuberuntime::pod_sync::PodSync;
use crate::kubelet::kuberuntime::shim_group::shim_group;
use crate::platform::rt;
use crate::types::api::PodUid;
use crate::types::sorted::SortedMap;

/// At most one entry for each pod that has begun a sandbox within [`OBSERVATION_DELAY`].
#[derive(Debug, Default)]
pub(super) struct ShimGroups(RefCell<SortedMap<PodUid, PendingGroup>>);

#[derive(Debug)]
struct PendingGroup {
    group: String,
    /// When the runtime has answered; `None` before.
    created_at: Option<Instant>,
}

/// A sandbox that is not observed after this time does not exist.
const OBSERVATION_DELAY: Duration = Duration::from_secs(60);

/// The place of a pod in a group. It counts while this exists, and until the sandbox is observed.
pub(super) struct ReservedGroup<'a> {
    groups: &'a ShimGroups,
    pod: &'a PodUid,
    pub(super) group: String,
}

impl ShimGroups {
    /// A place for the pod's next sandbox; `None`: a shim of its own.
    pub(super) fn reserve<'a>(&'a self, sync: PodSync<'a>) -> Option<ReservedGroup<'a>> {
        let uid = &sync.pod.metadata.uid;
        let observed = sync.views.observed.read();
        let mut pending = self.0.borrow_mut();
        let shows =
            |pod: &PodUid, group: &str| observed.pod(pod).is_some_and(|pod| pod.shim_group.as_deref() == Some(group));
        pending.retain(|pod, PendingGroup { group, created_at: answered }| {
            let is_over = answered.is_some_and(|at| shows(pod, group) || rt::elapsed(at) > OBSERVATION_DELAY);
            pod != uid && !is_over
        });
        // A pod without a ready sandbox has left its group, unless it begins another one.
        let ready = observed.iter().filter(|pod| pod.uid != *uid && pod.ready_sandbox().is_some());
        let ready = ready.filter(|pod| !pending.contains_key(&pod.uid)).filter_map(|pod| pod.shim_group.as_deref());
        let others = ready.chain(pending.values().map(|entry| entry.group.as_str()));
        let group = shim_group(sync.pod, sync.observed.shim_group.as_deref(), others)?;
        pending.insert(uid.clone(), PendingGroup { group: group.clone(), created_at: None });
        Some(ReservedGroup { groups: self, pod: uid, group })
    }
}

impl Drop for ReservedGroup<'_> {
    fn drop(&mut self) {
        if let Some(entry) = self.groups.0.borrow_mut().get_mut(self.pod) {
            entry.created_at = Some(rt::now());
        }
    }
}
