//! Makes the requests that are due, and says what has become of them.

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
use crate::types::sorted::SortedMap;
use crate::types::time::jitter;

/// StatusRequest the sync loop tells the cluster through.
pub(crate) struct StatusManager {
    client: Client,
    node: String,
    inbox: Sender<SyncEvent>,
    reports: StatusQueue,
    /// Of the node's object; empty until it is known. Without it no mirror can be made.
    node_uid: String,
    /// The pods of the node's own whose mirrors are being made or removed, or were, and until when nothing more is tried.
    mirrored: SortedMap<String, Mirrored>,
    own: Vec<Arc<Pod>>,
    own_complete: bool,
    mirrors: Vec<Arc<Pod>>,
    tasks: Vec<rt::Task<()>>,
    #[expect(dead_code, reason = "dropping the task ends it")]
    wake: rt::Task<()>,
}

#[derive(Clone, Copy, Debug)]
enum Mirrored {
    UnderWay,
    /// The server has answered; its watch tells what has become of it before this moment.
    Settles(Instant),
    Failed(Instant),
}

/// Until the watch has shown a mirror.
const SETTLES: Duration = Duration::from_secs(10);
const RETRY_MIRROR: Duration = Duration::from_secs(20);

impl StatusManager {
    pub(crate) fn new(client: Client, node: &str, inbox: Sender<SyncEvent>) -> Self {
        let wake = rt::spawn(wake(client.clone(), inbox.clone()));
        Self {
            wake,
            client,
            node: node.to_owned(),
            inbox,
            reports: StatusQueue::default(),
            node_uid: String::new(),
            mirrored: SortedMap::new(),
            own: Vec::new(),
            own_complete: false,
            mirrors: Vec::new(),
            tasks: Vec::new(),
        }
    }

    /// The node's object is this one. Mirrors of an earlier one are the cluster's to remove; others take their place.
    pub(crate) fn node_is(&mut self, uid: &str) {
        uid.clone_into(&mut self.node_uid);
    }

    /// The server shows this pod so.
    pub(crate) fn see(&mut self, pod: &Pod) {
        self.reports.see(&pod.metadata.uid, target(pod), &pod.status, version(pod));
    }

    /// The server has told all of its pods anew: these, and mirrors that are seen with the next [`Self::see_mirrors`].
    pub(crate) fn relisted(&mut self, pods: &[SourcePod]) {
        let all = pods.iter().map(|source| &*source.pod);
        self.reports.relisted(all.map(|pod| (&pod.metadata.uid, &pod.status, version(pod))));
    }

    /// The node's own pods, under the uids that they run with, and the mirrors that the server has.
    pub(crate) fn see_mirrors(&mut self, own: Vec<(PodUid, Arc<Pod>)>, complete: bool, mirrors: Vec<Arc<Pod>>) {
        for mirror in &mirrors {
            let pod = own.iter().find(|(_, pod)| pod.full_name() == mirror.full_name());
            if let Some((uid, _)) = pod.filter(|_| mirror.metadata.deletion_timestamp.is_none()) {
                self.reports.see(uid, target(mirror), &mirror.status, version(mirror));
            }
        }
        let settled = |name: &str| mirrors.iter().any(|mirror| mirror.full_name() == name);
        self.mirrored.retain(|name, state| !(matches!(state, Mirrored::Settles(_)) && settled(name)));
        self.own = own.into_iter().map(|(_, pod)| pod).collect();
        self.own_complete = complete;
        self.mirrors = mirrors;
    }

    /// This is true of the pod now. `may_run`: not all of its containers are known to have ended.
    pub(crate) fn tell(&mut self, pod: &PodUid, status: &PodStatus, may_run: bool, now: Time) {
        let Some(shown) = self.reports.shown(pod) else { return };
        let told = reported(shown, status, may_run, now);
        self.reports.want(pod, told);
    }

    /// Nothing of a pod is left that the cluster has deleted.
    pub(crate) fn gone(&mut self, pod: &PodUid) {
        self.reports.gone(pod);
    }

    pub(crate) fn forget(&mut self, pod: &PodUid) {
        self.reports.forget(pod);
    }

    /// A pod's status is on its way.
    pub(crate) fn is_telling(&self) -> bool {
        self.reports.are_under_way()
    }

    /// Of so many pods something is to be told.
    pub(crate) fn untold(&self) -> usize {
        self.reports.untold()
    }

    pub(crate) fn due(&self) -> Option<Instant> {
        if !self.client.gate().admits(Rank::Status) {
            return None;
        }
        let mirrored = self.mirrored.values().filter_map(|state| match state {
            Mirrored::UnderWay => None,
            Mirrored::Settles(moment) | Mirrored::Failed(moment) => Some(*moment),
        });
        self.reports.due().into_iter().chain(mirrored).min()
    }

    /// StatusRequest waits can be told again.
    pub(crate) fn admitted(&mut self) {
        self.reports.begin_anew();
    }

    /// Begins what is due, while it is admitted.
    pub(crate) fn start(&mut self, now: Instant) {
        self.tasks.retain(|task| !task.is_finished());
        if !self.client.gate().admits(Rank::Status) {
            self.reports.settle();
            return;
        }
        for job in self.reports.next(now) {
            let (client, inbox) = (self.client.clone(), self.inbox.clone());
            self.tasks.push(rt::spawn(async move {
                let begun = rt::now();
                let outcome = report(&client, &job).await;
                if matches!((&job.what, &outcome), (StatusRequest::Patch(_), ReportOutcome::Accepted { .. })) {
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
        self.mirrored.retain(|_, state| match state {
            Mirrored::UnderWay => true,
            Mirrored::Settles(moment) | Mirrored::Failed(moment) => *moment > now,
        });
        for step in mirror_pods::steps(&self.own, &self.mirrors, self.own_complete, &self.node, &self.node_uid) {
            let (MirrorStep::Delete { namespace, name, .. } | MirrorStep::Create { namespace, name, .. }) = &step;
            let name = crate::types::api::full_name(name, namespace);
            if self.mirrored.contains_key(&name) {
                continue;
            }
            self.mirrored.insert(name.clone(), Mirrored::UnderWay);
            let (client, inbox) = (self.client.clone(), self.inbox.clone());
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
        if self.reports.done(&done.pod, &done.outcome, now, |wait| jitter(wait, 0.5, rt::random())) {
            self.client.begin_history();
        }
    }

    pub(crate) fn mirrored(&mut self, done: MirrorDone, now: Instant) {
        let state = match done.failure {
            None => Mirrored::Settles(now + SETTLES),
            Some(why) => {
                log!(warn, "mirror pod not as it should be", pod = done.name, error = why);
                Mirrored::Failed(now + jitter(RETRY_MIRROR, 0.5, rt::random()))
            }
        };
        self.mirrored.insert(done.name, state);
    }
}

/// The loop has to be told when what waits can be told.
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

/// Versions of one server can be compared as numbers.
fn version(pod: &Pod) -> u64 {
    pod.metadata.resource_version.parse().unwrap_or_default()
}

async fn report(client: &Client, job: &StatusJob) -> ReportOutcome {
    let Target { namespace, name, uid } = &job.target;
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
    let request = match &job.what {
        StatusRequest::Patch(patch) => Request::patch(format!("{path}/status"), Patch::StrategicMerge, patch),
        StatusRequest::Delete { version } => {
            let mut options = delete_options(uid.as_str());
            if let Some(preconditions) = options.get_mut("preconditions").filter(|_| *version > 0) {
                preconditions["resourceVersion"] = version.to_string().into();
            }
            Request::delete(path, &options)
        }
    };
    match client.send(&request.for_metadata().ranked(Rank::Status)).await {
        Ok(answer) => {
            let answer = answer.json().unwrap_or_default();
            let version = answer.pointer("/metadata/resourceVersion").and_then(Value::as_str);
            ReportOutcome::Accepted { version: version.and_then(|version| version.parse().ok()).unwrap_or_default() }
        }
        Err(error) if error.is_not_found() || error.is_conflict() || is_another(&error) => ReportOutcome::Unknown,
        Err(error) if matches!(&error, ApiError::Refused(status) if status.code == 422) => {
            ReportOutcome::Invalid(error.to_string())
        }
        Err(error) => ReportOutcome::Failed(error.to_string()),
    }
}

/// A patch for the pod of another uid is an invalid one to the server.
fn is_another(error: &ApiError) -> bool {
    matches!(error, ApiError::Refused(status) if status.code == 422 && status.message.contains("metadata.uid"))
}

/// At once, and no other pod of this name.
fn delete_options(uid: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "preconditions": {"uid": uid}})
}

/// StatusRequest is there already, or gone, is as it should be.
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
