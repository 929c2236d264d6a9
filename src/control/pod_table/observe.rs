//! Stores observations of the runtime.

use std::rc::Rc;

use super::PodTable;
use crate::kubelet::logs::{ManagedLog, link_name};
use crate::state::pods::{
    ObservationTicket, ObserveResult, ObservedContainer, ObservedPod, PodDirs, ProbeResult, Relist,
};
use crate::types::api::PodUid;
use crate::types::sorted::SortedSet;

impl PodTable {
    /// True if the runtime has the pod and its state changed.
    pub(crate) fn observe(&mut self, pod: ObservedPod, ticket: &ObservationTicket) -> bool {
        let uid = pod.uid.clone();
        let taken = self.observed.write().observe(pod, ticket);
        if taken != ObserveResult::TooLate {
            self.workers.seen(&uid);
        }
        if taken != ObserveResult::News {
            return false;
        }
        let pod = self.observed.read().pod(&uid).cloned();
        let exists = pod.is_some();
        match pod {
            Some(pod) => {
                self.pleg.watch(&pod);
                self.logs.set_pod_logs(&uid, kept_logs(&self.runtime.dirs, &pod));
            }
            None => {
                self.pleg.forget(&uid);
                self.logs.set_pod_logs(&uid, Vec::new());
            }
        }
        self.workers.touch(&uid);
        self.mark_status(uid);
        exists
    }

    /// The pods of a relist. Known pods that it does not list are included as empty pods.
    pub(crate) fn take_relist(&mut self, relist: Relist) -> (Vec<ObservedPod>, ObservationTicket) {
        let listed: SortedSet<PodUid> = relist.pods.iter().chain(&relist.unseen).map(|pod| pod.uid.clone()).collect();
        let gone: Vec<ObservedPod> = {
            let observed = self.observed.read();
            let gone = observed.iter().filter(|pod| !listed.contains(&pod.uid));
            gone.map(|pod| ObservedPod::new(pod.uid.clone(), &pod.namespace, &pod.name)).collect()
        };
        if self.records.read().relisted_all != relist.unseen.is_empty() {
            self.records.write().relisted_all = relist.unseen.is_empty();
            self.reports.status.pods_changed();
        }
        self.workers.unseen(relist.unseen);
        (relist.pods.into_iter().chain(gone).collect(), relist.ticket)
    }

    /// Marks a relist as complete. True for the first one.
    pub(crate) fn relisted(&mut self) -> bool {
        !std::mem::replace(&mut self.relisted, true)
    }

    pub(crate) fn probed(&mut self, result: ProbeResult) {
        if self.probes.set(&result) {
            self.workers.touch(&result.pod);
            self.mark_status(result.pod);
        }
    }

    /// The observed pod without the new instances whose `postStart` hook has not completed.
    pub(super) fn as_started(&self, uid: &PodUid) -> Rc<ObservedPod> {
        let Some(observed) = self.observed.read().pod(uid).cloned() else {
            return Rc::new(ObservedPod::new(uid.clone(), "", ""));
        };
        match self.workers.hooked(uid) {
            [] => observed,
            hooked => Rc::new(observed.without_running(hooked)),
        }
    }
}

/// The logs of the containers that the runtime still has.
fn kept_logs(dirs: &PodDirs, pod: &ObservedPod) -> Vec<ManagedLog> {
    let (namespace, name) = (&pod.namespace, &pod.name);
    let kept = |run: &ObservedContainer| ManagedLog {
        container_id: run.id.clone(),
        log: dirs.log(namespace, name, &pod.uid, &run.name, run.restart_count),
        link: dirs.log_links().join(link_name(namespace, name, &run.name, &run.id)),
        runs: run.is_running(),
    };
    pod.containers.iter().map(kept).collect()
}
