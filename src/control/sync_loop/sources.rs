//! Reconciles the pods with their sources. Removals come before additions.

use std::sync::Arc;
use std::time::Instant;

use crate::control::pod_admission::{Gates, Labels, ResizeContext, RetryTrigger, in_order_of_admission};
use crate::control::pod_sources::merge::config_seen;
use crate::control::pod_sources::static_pod::{is_own_uid, owning_workload};
use crate::control::pod_table::{Effect, PodTable};
use crate::control::pod_workers::State;
use crate::control::sync_loop::SyncLoop;
use crate::control::sync_loop::parts::admits_growth;
use crate::state::objects::{ObjectKey, ObjectKind, references};
use crate::state::pods::{PodEvent, SourceName, SourceProblem, SourceUpdate};
use crate::types::api::{EventKind, ObjectMeta, OwnerReference, Pod, PodUid, Reason, VolumeSource};
use crate::types::sorted::SortedSet;

impl SyncLoop {
    /// Updates take effect after the first relist: until then it is unknown which pods already run.
    pub(super) fn on_sources(&mut self, mut update: SourceUpdate, now: Instant) {
        self.remove_disabled_fields(&mut update);
        let is_in_cluster = self.parts.hosts_files.is_in_cluster();
        if is_in_cluster {
            refuse_workloads(&mut update);
        }
        let waits_for_jobs = !is_in_cluster && self.parts.jobs.hold(&update);
        update.complete &= !(self.parts.versions.hold(&update) | waits_for_jobs);
        let has_jobs = !is_in_cluster && self.parts.jobs.take_documents(&mut update);
        let complete = update.complete.then_some(update.source);
        let update = self.parts.versions.on_sources(update, &self.pods);
        let relisted = update.relisted.then(|| update.pods.clone());
        let has_objects = update.source != SourceName::Api;
        self.pods.receive(update);
        if has_jobs {
            self.pods.set_job_pods(self.parts.jobs.pods());
        }
        if self.pods.all_sources_ready() {
            // A cluster refuses Jobs: their records stay for the time after it.
            if let Some(source) = complete.filter(|_| !is_in_cluster) {
                self.parts.jobs.forget_gone(source);
            }
            self.parts.versions.on_all_sources_ready();
            let records = self.pods.records();
            self.parts.stops.forget(records.sources.gone_stopped_pods(), records.sources.stopped_pods());
        }
        if has_objects {
            self.parts.next_versions.retry(now);
            let effects = self.take_objects();
            self.pods.apply(effects, now);
        }
        if let Some(relisted) = relisted {
            // The listed statuses replace what was reported before.
            self.parts.status_manager.relisted(&relisted);
            relisted.iter().for_each(|source| self.pods.mark_status(source.pod.metadata.uid.clone()));
        }
        if self.pods.is_relisted() {
            self.reconcile(now);
        }
    }

    /// Logs removed fields only for manifests: the API server has removed them from its pods, or means another node.
    fn remove_disabled_fields(&self, update: &mut SourceUpdate) {
        let is_api = update.source == SourceName::Api;
        for source in &mut update.pods {
            for gate in self.parts.disabled_fields.remove(&mut source.pod) {
                if !is_api {
                    let pod = source.pod.full_name();
                    log!(warn, "field of a feature that is off, ignored", pod = pod, gate = gate.name());
                }
            }
        }
    }

    pub(super) fn reconcile(&mut self, now: Instant) {
        if self.parts.versions.take_started(&self.pods) {
            self.select_versions();
        }
        let changes = self.pods.take_changes();
        for (pod, problem) in &changes.ignored {
            self.pods.record_ignored(pod, problem, now);
        }
        for uid in changes.removed {
            let uid = self.pods.take_running_uid(uid);
            self.pods.apply([Effect::Remove(uid)], now);
        }
        for pod in &changes.updated {
            let pod = self.pods.under_running_uid(pod);
            if self.pods.is_unreplaced(&pod) {
                let uid = &pod.metadata.uid;
                let event = PodEvent::of_pod(uid, EventKind::Warning, Reason::NOT_REPLACED, NOT_REPLACED);
                self.pods.apply([Effect::Record(event)], now);
            }
            self.update(&pod, now);
        }
        for pod in changes.reconciled {
            self.parts.status_manager.on_server_pod(&pod);
            let effect = if is_over(&pod) { Effect::Delete(pod) } else { Effect::UpdateStatus(pod) };
            self.pods.apply([effect], now);
        }
        let added: Vec<Arc<Pod>> = changes.added.iter().map(|pod| self.pods.under_running_uid(pod)).collect();
        let has_added = !added.is_empty();
        for pod in in_order_of_admission(added, &self.pods) {
            self.add(&pod, now);
        }
        self.pods.remove_orphaned_allocations();
        // All pods have their allocated resources by now.
        if has_added {
            self.retry_resizes(RetryTrigger::PodsAdded, now);
        }
        self.parts.cgroups.on_pods_changed();
        self.update_mirror_pods();
        self.parts.objects.follow(&self.pods);
        self.end_orphans(now);
    }

    /// Static pods or their mirror pods changed, or a static pod has ended.
    pub(super) fn update_mirror_pods(&mut self) {
        if !self.parts.status_manager.has_cluster() {
            return;
        }
        let pods = self.pods.static_pods();
        pods.pods.iter().chain(&pods.ending).for_each(|(uid, _)| self.pods.mark_status(uid.clone()));
        let records = self.pods.records();
        let (complete, mirrors) = (records.sources.all_ready(), records.sources.mirrors().to_vec());
        self.parts.status_manager.set_mirror_pods(pods, complete, mirrors);
    }

    /// Selects the versions to run again although no source changed.
    pub(super) fn select_versions(&mut self) {
        let versions = self.parts.versions.read();
        self.pods.replace_pods(|source| versions.runs(source).map(Arc::clone));
    }

    /// The source changed the pod.
    fn update(&mut self, pod: &Arc<Pod>, now: Instant) {
        self.parts.status_manager.on_server_pod(pod);
        if pod.metadata.deletion_timestamp.is_some() || is_over(pod) {
            self.pods.apply([Effect::Delete(Arc::clone(pod))], now);
        } else if is_recreated(pod, &self.pods) {
            self.recreate(pod, now);
        } else {
            let (pods, parts) = (&self.pods, &mut self.parts);
            let gate = |pod: &Pod| admits_growth(&parts.eviction, &parts.shutdown, pod);
            let deciders = ResizeContext { admission: &parts.admission, managers: parts.cpus.managers(), gate: &gate };
            let effects = parts.resizes.on_update(pod, pods, deciders, now);
            let is_resized = effects.len() > 1;
            self.pods.apply(effects, now);
            if is_resized {
                self.retry_resizes(RetryTrigger::PodUpdated, now);
            }
        }
    }

    /// A source added a pod.
    pub(super) fn add(&mut self, pod: &Arc<Pod>, now: Instant) {
        let uid = &pod.metadata.uid;
        self.parts.status_manager.on_server_pod(pod);
        if !pod.is_static() && pod.metadata.deletion_timestamp.is_some() || is_over(pod) {
            // An ended pod never restarts, whatever the runtime still has of it.
            self.pods.apply([Effect::Delete(Arc::clone(pod))], now);
            return;
        }
        // After a restart, the pod is admitted with the resources that it has.
        self.pods.restore_allocation(pod);
        self.pods.apply([Effect::Update(Arc::clone(pod))], now);
        // A pod with this uid that is still ending ends first.
        let worker = self.pods.worker(uid).filter(|worker| worker.successor.is_none());
        let Some(allocated) = worker.and_then(|worker| worker.pod.clone()) else { return };
        self.admit(&allocated, Labels::MayChange, now);
        self.parts.resizes.on_added(pod, &self.pods, now);
    }

    /// Admits or rejects a pod that its worker has not started.
    pub(super) fn admit(&mut self, pod: &Pod, labels: Labels, now: Instant) {
        let (pods, parts) = (&self.pods, &mut self.parts);
        let gates = Gates { eviction: parts.eviction.admits(pod, pods), shutdown: parts.shutdown.admits() };
        let effects = parts.admission.on_new_pod(pod, pods, &mut parts.cpus, &mut parts.locks, gates, (labels, now));
        self.pods.apply(effects, now);
    }

    /// Decides again about the pods that wait for the applications of pods that they preempt.
    pub(super) fn admit_waiting(&mut self, now: Instant) {
        for uid in self.parts.admission.take_waiting() {
            self.admit_undecided(&uid, now);
        }
    }

    /// Decides about a pod whose decision has waited.
    pub(super) fn admit_undecided(&mut self, uid: &PodUid, now: Instant) {
        let undecided = self.pods.syncing(uid).filter(|_| !self.pods.is_admitted(uid));
        let Some(pod) = undecided.and_then(|worker| worker.pod.clone()) else { return };
        self.admit(&pod, Labels::Final, now);
        let source = self.pods.source_pod(uid);
        source.into_iter().for_each(|pod| self.parts.resizes.on_added(&pod, &self.pods, now));
    }

    /// Admits rejected static pods again whose reason is gone.
    pub(super) fn readmit(&mut self, now: Instant) {
        if !self.parts.readmissions.is_due(now) {
            return;
        }
        for uid in self.parts.readmissions.take_due(&self.pods.rejected_static_pods(), now) {
            let Some(pod) = self.pods.worker(&uid).and_then(|worker| worker.pod.clone()) else { continue };
            let (pods, parts) = (&self.pods, &self.parts);
            let gates = Gates { eviction: parts.eviction.admits(&pod, pods), shutdown: parts.shutdown.admits() };
            // Asked first: each rejection of a pod that is created again is another event.
            if parts.admission.would_admit(&pod, pods, &parts.cpus, gates) {
                log!(info, "admitting rejected pod again", pod = pod.full_name());
                self.recreate(&pod, now);
            }
        }
    }

    /// Objects in manifests take effect before the pods that come with them.
    fn take_objects(&mut self) -> Vec<Effect> {
        let objects = self.pods.records().sources.objects();
        let changes = self.parts.objects.replace(&objects);
        self.parts.hosts_files.on_change();
        let mut refused = changes.refused;
        if self.parts.hosts_files.is_in_cluster() {
            refused.extend(objects.into_iter().filter_map(|object| {
                let why = match object.object.key.kind {
                    ObjectKind::Service => SERVICE_IN_CLUSTER,
                    ObjectKind::VolumeClaim => CLAIM_IN_CLUSTER,
                    ObjectKind::ConfigMap | ObjectKind::Secret => return None,
                };
                Some((object, why.to_owned()))
            }));
        }
        let refused = refused.into_iter().map(|(object, message)| SourceProblem {
            origin: object.origin,
            message,
            keeps_last_good: false,
            since: object.since,
        });
        let refused = self.pods.refuse(refused.collect());
        for SourceProblem { origin, message, .. } in refused {
            log!(warn, "manifest problem", file = origin, problem = message);
        }
        let changed: SortedSet<ObjectKey> = changes.keys;
        let refers = |pod: &Pod| !pod.is_of_cluster() && references(pod).iter().any(|key| changed.contains(key));
        vec![Effect::ReferencesChanged(self.pods.uids_where(refers))]
    }

    /// A user runs a static pod again, unless it has not ended or is not wanted any more.
    pub(super) fn rerun(&mut self, pod: &Arc<Pod>, now: Instant) {
        let pod = self.pods.under_running_uid(pod);
        let worker = self.pods.worker(&pod.metadata.uid);
        if worker.is_some_and(|worker| worker.wanted && worker.state != State::Sync) {
            log!(info, "running ended pod again", pod = pod.full_name());
            self.recreate(&pod, now);
        }
    }

    /// The pod has ended and is created again.
    pub(super) fn recreate(&mut self, pod: &Arc<Pod>, now: Instant) {
        self.pods.apply([Effect::Supersede(pod.metadata.uid.clone())], now);
        self.add(pod, now);
    }
}

/// A cluster has controllers for its Deployments and other workloads, which would make the same pods again.
fn refuse_workloads(update: &mut SourceUpdate) {
    let mut refused: Vec<SourceProblem> = Vec::new();
    update.pods.retain(|source| {
        let ObjectMeta { namespace, name, .. } = &source.pod.metadata;
        let message = match owning_workload(&source.pod) {
            Some(OwnerReference { kind, name, .. }) => {
                format!("{kind} {namespace}/{name}: a cluster has its own controllers: create it there")
            }
            // The API server takes no mirror pod with a claim.
            None if source.pod.is_static() && has_claim(&source.pod) => {
                format!("pod {namespace}/{name}: static pods may not reference persistentvolumeclaims of a cluster")
            }
            None => return true,
        };
        if !refused.iter().any(|problem| problem.message == message) {
            log!(warn, "manifest problem", file = source.origin, problem = message);
            let (origin, since) = (Arc::clone(&source.origin), config_seen(&source.pod));
            refused.push(SourceProblem { origin, message, keeps_last_good: false, since });
        }
        false
    });
    update.problems.append(&mut refused);
}

fn has_claim(pod: &Pod) -> bool {
    pod.spec.volumes.iter().any(|volume| matches!(volume.source, VolumeSource::PersistentVolumeClaim(_)))
}

const CLAIM_IN_CLUSTER: &str = "kind PersistentVolumeClaim: a cluster has its own volumes: create it there";
const SERVICE_IN_CLUSTER: &str = "kind Service: names of a node in a cluster come from the cluster: create it there";
const NOT_REPLACED: &str = "The manifest has changed and its metadata.uid has not: the pod runs on as before. Change the \
                            uid with each change, or leave it out";

/// The API server shows the pod in a terminal phase, which pod garbage collection, taint eviction or a user has set, or
/// it is a pod of a Job that has ended. The agent stops the pod, as upstream.
fn is_over(pod: &Pod) -> bool {
    pod.status.phase.is_terminal()
}

/// Whether an ended static pod is created again because its manifest changed the resources. The uid does not cover what
/// can be changed while the pod runs.
fn is_recreated(pod: &Pod, pods: &PodTable) -> bool {
    let uid = &pod.metadata.uid;
    let has_ended = pods.worker(uid).is_some_and(|worker| worker.wanted && worker.state != State::Sync);
    has_ended && is_own_uid(uid.as_str())
}
