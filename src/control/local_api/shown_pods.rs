//! The pods as clients see them, each with its health. Pure: the time is an argument.

use std::rc::Rc;

use crate::control::pod_table::PodRecords;
use crate::kubelet::status::{PodHealth, PodSituation, pod_health};
use crate::state::pods::{EventRing, PodWarning};
use crate::types::api::{Pod, PodStatus, PodUid, Reason, Time};
use crate::types::sorted::SortedMap;

pub(super) struct ShownPod<'a> {
    pub(super) pod: &'a Pod,
    /// The running uid.
    pub(super) uid: &'a PodUid,
    pub(super) status: &'a PodStatus,
    /// Empty for a pod that no source has any more.
    pub(super) origin: &'a str,
    pub(super) health: PodHealth,
}

/// Calls `each` with every wanted, ending or stopped pod.
pub(super) fn each_pod(records: &PodRecords, events: &EventRing, now: Time, each: &mut dyn FnMut(ShownPod<'_>)) {
    let mut warnings: SortedMap<&PodUid, Vec<PodWarning<'_>>> = SortedMap::new();
    for warning in events.pod_warnings() {
        warnings.entry(warning.pod).or_default().push(warning);
    }
    let wanted = records.sources.pods().map(|source| (&source.pod, &*source.origin));
    let none = Rc::default();
    for (pod, origin) in wanted.chain(records.ending.values().map(|pod| (pod, ""))) {
        let uid = records.running_uid(&pod.metadata.uid);
        let status = records.statuses.status(uid).unwrap_or(&none);
        let warnings = warnings.get(&uid).map(Vec::as_slice).unwrap_or_default();
        let unreplaced_since = records.unreplaced_since(uid);
        let health = pod_health(PodSituation { pod, status, warnings, unreplaced_since, now });
        each(ShownPod { pod, uid, status, origin, health });
    }
    for (source, since) in records.sources.stopped() {
        let (pod, origin) = (&*source.pod, &*source.origin);
        let uid = &pod.metadata.uid;
        if records.ending.contains_key(uid) {
            continue;
        }
        let name = &pod.metadata.name;
        let message = format!("stopped by a user at {since}: coracle start {name} runs it again");
        let status = PodStatus { reason: Reason::STOPPED, message, ..PodStatus::default() };
        each(ShownPod { pod, uid, status: &status, origin, health: PodHealth::Stopped });
    }
}
