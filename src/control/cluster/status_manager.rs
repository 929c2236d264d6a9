//! The status manager: sends due status updates and mirror pod changes, and handles their results.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_channel::Sender;
use serde_json::{Value, json};

use super::mirror_pods::{self, MirrorStep};
use super::status_queue::{StatusJob, StatusQueue, StatusRequest, Target};
use crate::kubelet::status::reported;
use crate::platform::apiserver::{ApiError, Client, Patch, Rank, Request};
use crate::platform::rt;
use crate::state::pods::{MirrorDone, ReportDone, ReportOutcome, SourcePod, SyncEvent};
use crate::types::api::{Pod, PodStatus, PodUid, Time};
use crate::types::metrics::{self, Timed};
use crate::types::owned::{Owned, View};
use crate::types::sorted::SortedMap;
use crate::types::time::jitter;

/// Sends pod statuses, deletions and mirror pod changes to the API server. Does nothing without a cluster.
#[derive(Default)]
pub(crate) struct StatusManager {
    server: Option<Server>,
    reports: StatusQueue,
    /// Number of pods whose status has not been reported.
    unreported: Owned<usize>,
    /// The uid of the Node object; empty while unknown. Mirror pods are not created without it.
    node_uid: String,
    /// Mirror pods being created or deleted, or that recently were, and when the next step may be tried.
    mirrored: SortedMap<String, Mirrored>,
    static_pods: Vec<Arc<Pod>>,
    /// Static pods that no manifest has any more and whose containers have not stopped.
    ending: Vec<Arc<Pod>>,
    own_complete: bool,
    mirrors: Vec<Arc<Pod>>,
    tasks: Vec<rt::Task<()>>,
}

/// The API server, and the node that reports to it.
struct Server {
    client: Client,
    node: String,
    inbox: Sender<SyncEvent>,
    #[expect(dead_code, reason = "dropping the task ends it")]
    wake: rt::Task<()>,
}

/// Static pods, each with its running uid.
#[derive(Debug)]
pub(crate) struct StaticPods {
    pub(crate) pods: Vec<(PodUid, Arc<Pod>)>,
    /// No manifest has them any more, and their containers have not stopped.
    pub(crate) ending: Vec<(PodUid, Arc<Pod>)>,
}

#[derive(Clone, Copy, Debug)]
enum Mirrored {
    UnderWay,
    /// The API server answered. Until this moment, the watch is expected to show the result.
    Settles(Instant),
    Failed(Instant),
}

/// How long the watch may take to show a mirror pod.
const MIRROR_POD_WATCH_TIMEOUT: Duration = Duration::from_secs(10);
/// With jitter: what refused one node's mirror pod, such as a webhook, has refused those of the whole fleet.
const MIRROR_RETRY_DELAY: Duration = Duration::from_secs(20);

impl StatusManager {
    pub(crate) fn set_cluster(&mut self, client: Client, node: &str, inbox: Sender<SyncEvent>) {
        let wake = rt::spawn(wake(client.clone(), inbox.clone()));
        self.server = Some(Server { wake, client, node: node.to_owned(), inbox });
    }

    pub(crate) fn has_cluster(&self) -> bool {
        self.server.is_some()
    }

    pub(crate) fn unreported(&self) -> View<usize> {
        self.unreported.view()
    }

    /// Sets the uid of the Node object. The API server removes the mirror pods of an earlier Node object; new ones
    /// replace them.
    pub(crate) fn set_node_uid(&mut self, uid: &str) {
        uid.clone_into(&mut self.node_uid);
    }

    /// The API server's current state of the pod. It counts as reported until the node reports a status.
    pub(crate) fn on_server_pod(&mut self, pod: &Pod) {
        if self.server.is_none() || pod.is_static() {
            return;
        }
        self.reports.on_server_status(&pod.metadata.uid, target(pod), &pod.status, version(pod));
    }

    /// The API server listed all pods: these, and the mirror pods of the next [`Self::set_mirror_pods`].
    pub(crate) fn relisted(&mut self, pods: &[SourcePod]) {
        let all = pods.iter().map(|source| &*source.pod);
        self.reports.relisted(all.map(|pod| (&pod.metadata.uid, &pod.status, version(pod))));
    }

    /// The static pods under their running uids, and the API server's mirror pods. `complete`: `pods` has those of all
    /// manifests.
    pub(crate) fn set_mirror_pods(&mut self, pods: StaticPods, complete: bool, mirrors: Vec<Arc<Pod>>) {
        let StaticPods { pods: static_pods, ending } = pods;
        for mirror in &mirrors {
            let is_of = |pod: &Pod| pod.full_name() == mirror.full_name() && mirror_pods::has_hash_of(mirror, pod);
            let pod = static_pods.iter().chain(&ending).find(|(_, pod)| is_of(pod));
            if let Some((uid, _)) = pod.filter(|_| mirror.metadata.deletion_timestamp.is_none()) {
                self.reports.on_server_status(uid, target(mirror), &mirror.status, version(mirror));
            }
        }
        let settled = |name: &str| mirrors.iter().any(|mirror| mirror.full_name() == name);
        self.mirrored.retain(|name, state| !(matches!(state, Mirrored::Settles(_)) && settled(name)));
        self.static_pods = static_pods.into_iter().map(|(_, pod)| pod).collect();
        self.ending = ending.into_iter().map(|(_, pod)| pod).collect();
        self.own_complete = complete;
        self.mirrors = mirrors;
    }

    /// Sets the pod's status to report. `may_run`: not all of its containers are known to have exited.
    pub(crate) fn set_pod_status(&mut self, pod: &PodUid, status: &PodStatus, may_run: bool, now: Time) {
        let Some(shown) = self.reports.shown(pod) else { return };
        let merged = reported(shown, status, may_run, now);
        self.reports.enqueue(pod, merged);
    }

    /// Nothing is left on the node of a pod that the API server is deleting.
    pub(crate) fn finish_deletion(&mut self, pod: &PodUid) {
        self.reports.enqueue_delete(pod);
    }

    pub(crate) fn forget(&mut self, pod: &PodUid) {
        self.reports.forget(pod);
    }

    /// A status update is in flight.
    pub(crate) fn is_reporting(&self) -> bool {
        self.reports.are_under_way()
    }

    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.server.as_ref().filter(|server| server.client.gate().admits(Rank::Status))?;
        let mirrored = self.mirrored.values().filter_map(|state| match state {
            Mirrored::UnderWay => None,
            Mirrored::Settles(moment) | Mirrored::Failed(moment) => Some(*moment),
        });
        self.reports.due().into_iter().chain(mirrored).min()
    }

    /// The API server accepts statuses again: failed requests are retried at once.
    pub(crate) fn admitted(&mut self) {
        self.reports.clear_backoff();
    }

    /// Starts the due requests, if statuses are admitted.
    pub(crate) fn round(&mut self, now: Instant) {
        self.start(now);
        *self.unreported.write() = self.reports.unreported();
    }

    fn start(&mut self, now: Instant) {
        let Some(Server { client, inbox, .. }) = &self.server else { return };
        self.tasks.retain(|task| !task.is_finished());
        if !client.gate().admits(Rank::Status) {
            self.reports.settle();
            return;
        }
        if self.reports.take_overdue_denials(now) {
            client.on_restored();
        }
        for job in self.reports.next(now) {
            let (client, inbox) = (client.clone(), inbox.clone());
            self.tasks.push(rt::spawn(async move {
                let begun = rt::now();
                let outcome = report(&client, &job).await;
                if matches!((&job.request, &outcome), (StatusRequest::Patch(_), ReportOutcome::Accepted { .. })) {
                    metrics::took(Timed::StatusSyncs, &[], rt::elapsed(begun));
                }
                let done = ReportDone { pod: job.pod, outcome };
                // The loop is gone only when the process ends.
                let _ = inbox.send(SyncEvent::Reported(done)).await;
            }));
        }
        self.start_mirrors(now);
    }

    fn start_mirrors(&mut self, now: Instant) {
        let Some(Server { client, node, inbox, .. }) = &self.server else { return };
        self.mirrored.retain(|_, state| match state {
            Mirrored::UnderWay => true,
            Mirrored::Settles(moment) | Mirrored::Failed(moment) => *moment > now,
        });
        let Self { static_pods, ending, mirrors, node_uid, .. } = self;
        for step in mirror_pods::steps(static_pods, ending, mirrors, self.own_complete, node, node_uid) {
            let (MirrorStep::Delete { namespace, name, .. } | MirrorStep::Create { namespace, name, .. }) = &step;
            let name = crate::types::api::full_name(name, namespace);
            if self.mirrored.contains_key(&name) {
                continue;
            }
            self.mirrored.insert(name.clone(), Mirrored::UnderWay);
            let (client, inbox) = (client.clone(), inbox.clone());
            self.tasks.push(rt::spawn(async move {
                let failure = carry_out(&client, step).await.err().map(|error| error.to_string());
                let _ = inbox.send(SyncEvent::Mirrored(MirrorDone { name, failure })).await;
            }));
        }
    }

    pub(crate) fn reported(&mut self, done: &ReportDone, now: Instant) {
        match &done.outcome {
            ReportOutcome::Failed(why) => log!(debug, "failed to patch pod status", pod = done.pod, error = why),
            ReportOutcome::Invalid(why) => log!(warn, "API server refuses pod status", pod = done.pod, error = why),
            ReportOutcome::Accepted { .. } | ReportOutcome::Unknown => {}
        }
        let is_restored = self.reports.done(&done.pod, &done.outcome, now, |wait| jitter(wait, 0.5, rt::random()));
        if let Some(server) = self.server.as_ref().filter(|_| is_restored) {
            server.client.begin_history();
        }
    }

    pub(crate) fn mirrored(&mut self, done: MirrorDone, now: Instant) {
        let state = match done.failure {
            None => Mirrored::Settles(now + MIRROR_POD_WATCH_TIMEOUT),
            Some(why) => {
                log!(warn, "failed to update mirror pod", pod = done.name, error = why);
                Mirrored::Failed(now + jitter(MIRROR_RETRY_DELAY, 0.5, rt::random()))
            }
        };
        self.mirrored.insert(done.name, state);
    }
}

/// Notifies the sync loop when statuses can be sent again.
async fn wake(client: Client, inbox: Sender<SyncEvent>) {
    loop {
        client.gate().shut_out(Rank::Status).await;
        client.gate().admitted(Rank::Status).await;
        if inbox.send(SyncEvent::StatusesAdmitted).await.is_err() {
            return;
        }
    }
}

fn target(pod: &Pod) -> Target {
    let metadata = &pod.metadata;
    Target { namespace: metadata.namespace.clone(), name: metadata.name.clone(), uid: metadata.uid.clone() }
}

/// Resource versions of one API server can be compared as numbers.
fn version(pod: &Pod) -> u64 {
    pod.metadata.resource_version.parse().unwrap_or_default()
}

async fn report(client: &Client, job: &StatusJob) -> ReportOutcome {
    let Target { namespace, name, uid } = &job.target;
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
    let request = match &job.request {
        StatusRequest::Patch(patch) => Request::patch(format!("{path}/status"), Patch::StrategicMerge, patch),
        StatusRequest::Delete { version } => {
            let mut options = delete_options(uid.as_str());
            if let Some(preconditions) = options.get_mut("preconditions").filter(|_| *version > 0) {
                preconditions["resourceVersion"] = version.to_string().into();
            }
            Request::delete(path, &options)
        }
    };
    // Of the answer only the version is used: the API server need not send the pod back.
    match client.send(&request.for_metadata().ranked(Rank::Status)).await {
        Ok(response) => {
            let response = response.json().unwrap_or_default();
            let version = response.pointer("/metadata/resourceVersion").and_then(Value::as_str);
            ReportOutcome::Accepted { version: version.and_then(|version| version.parse().ok()).unwrap_or_default() }
        }
        Err(error) if error.is_not_found() || error.is_conflict() || is_another(&error) => ReportOutcome::Unknown,
        Err(error) if error.code() == Some(422) || error.is_too_large() => ReportOutcome::Invalid(error.to_string()),
        Err(error) => ReportOutcome::Failed(error.to_string()),
    }
}

/// The API server rejects a patch as invalid if the pod has another uid.
fn is_another(error: &ApiError) -> bool {
    matches!(error, ApiError::Refused(status) if status.code == 422 && status.message.contains("metadata.uid"))
}

/// Deletes at once, and only the pod with this uid.
fn delete_options(uid: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "preconditions": {"uid": uid}})
}

/// An object that already exists, or is already gone, counts as success.
async fn carry_out(client: &Client, step: MirrorStep) -> Result<(), ApiError> {
    match step {
        MirrorStep::Delete { namespace, name, uid } => {
            let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
            match client.send(&Request::delete(path, &delete_options(&uid)).for_metadata().ranked(Rank::Status)).await {
                Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error),
                _ => Ok(()),
            }
        }
        MirrorStep::Create { namespace, object, .. } => {
            let request = Request::post(format!("/api/v1/namespaces/{namespace}/pods"), &object)
                .for_metadata()
                .ranked(Rank::Status);
            match client.send(&request).await {
                Err(error) if !error.is_already_exists() => Err(error),
                _ => Ok(()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_reported_without_a_cluster() {
        let mut manager = StatusManager::default();
        let pod = Pod::default();
        manager.on_server_pod(&pod);
        manager.set_pod_status(&pod.metadata.uid, &PodStatus::default(), true, Time::from_unix_nanos(0));
        manager.round(Instant::now());
        assert_eq!((manager.next_due(), manager.is_reporting(), *manager.unreported().read()), (None, false, 0));
    }
}
