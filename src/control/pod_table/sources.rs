//! Stores what the sources report.

use std::rc::Rc;
use std::sync::Arc;

use super::{PodTable, adoption};
use crate::control::cluster::StaticPods;
use crate::control::pod_sources::merge::Changes;
use crate::state::pods::{ObservedPod, SourceName, SourcePod, SourceProblem, SourceUpdate, StoppedPods};
use crate::types::api::{ObjectMeta, Pod, PodUid};

impl PodTable {
    /// Stores the update. [`Self::take_changes`] computes its effects.
    pub(crate) fn receive(&mut self, update: SourceUpdate) {
        self.records.write().sources.receive(update);
    }

    /// Replaces the pods of Jobs, each with the source of its Job.
    pub(crate) fn set_job_pods(&mut self, pods: Vec<(SourceName, SourcePod)>) {
        self.records.write().sources.set_job_pods(pods);
    }

    pub(crate) fn set_stopped_pods(&mut self, stopped: StoppedPods) {
        self.records.write().sources.set_stopped_pods(stopped);
    }

    /// Replaces each pod of the sources for which `version` returns another one.
    pub(crate) fn replace_pods(&mut self, version: impl Fn(&SourcePod) -> Option<Arc<Pod>>) {
        self.records.write().sources.replace_pods(version);
    }

    /// Stores the refused objects of manifests. Returns those that are new.
    pub(crate) fn refuse(&mut self, refused: Vec<SourceProblem>) -> Vec<SourceProblem> {
        self.records.write().sources.refuse(refused)
    }

    /// The changes of the wanted pods since the last call.
    pub(crate) fn take_changes(&mut self) -> Changes {
        let observed = self.observed.read();
        let runs = |pod: &Pod| {
            let ObjectMeta { namespace, name, uid, .. } = &pod.metadata;
            let is_named = |observed: &Rc<ObservedPod>| (&observed.namespace, &observed.name) == (namespace, name);
            observed.pod(uid).is_some_and(is_named) || self.workers.is_unseen(uid)
        };
        self.records.write().sources.changes(runs)
    }

    /// The pod as its source has it.
    pub(crate) fn source_pod(&self, uid: &PodUid) -> Option<Arc<Pod>> {
        let records = self.records.read();
        let mut pods = records.sources.pods();
        pods.find(|source| source.pod.metadata.uid == *uid).map(|source| Arc::clone(&source.pod))
    }

    /// The static pods of the sources, and those that have not stopped since their manifest is gone.
    pub(crate) fn static_pods(&self) -> StaticPods {
        let records = self.records.read();
        let static_pods = records.sources.pods().map(|source| &source.pod).filter(|pod| pod.is_static());
        let static_pods =
            static_pods.map(|pod| (records.running_uid(&pod.metadata.uid).clone(), Arc::clone(pod))).collect();
        let ending = records.ending.iter().filter(|(uid, pod)| pod.is_static() && self.may_run(uid));
        let ending = ending.map(|(uid, pod)| (uid.clone(), Arc::clone(pod))).collect();
        StaticPods { pods: static_pods, ending }
    }

    /// The source no longer has the pod. Returns its running uid.
    pub(crate) fn take_running_uid(&mut self, uid: PodUid) -> PodUid {
        let taken_over = self.records.write().takeovers.remove(&uid);
        taken_over.unwrap_or(uid)
    }

    /// The pod, under its running uid if another kubelet started it.
    pub(crate) fn under_running_uid(&mut self, pod: &Arc<Pod>) -> Arc<Pod> {
        let Some(uid) = self.find_running_uid(pod) else { return Arc::clone(pod) };
        self.records.write().takeovers.insert(pod.metadata.uid.clone(), uid.clone());
        let mut taken = Pod::clone(pod);
        taken.metadata.uid = uid;
        Arc::new(taken)
    }

    fn find_running_uid(&self, pod: &Pod) -> Option<PodUid> {
        let manifest_uid = &pod.metadata.uid;
        if let Some(uid) = self.records.read().takeovers.get(manifest_uid) {
            return Some(uid.clone());
        }
        let observed = self.observed.read();
        let running_pods = observed.iter().map(|rc| &**rc).chain(self.workers.all_unseen());
        if running_pods.clone().any(|observed| observed.uid == *manifest_uid) {
            return None;
        }
        adoption::running_uid(pod, running_pods.filter(|observed| self.worker(&observed.uid).is_none()))
    }
}
