//! Changes of one pod for a user: finds the pod, refuses what is not possible, and passes the rest on.

use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;

use super::NodeLocalApi;
use super::pod_requests::{self, conflict_with_other_source, is_taken, name_on_node, still_stopped};
use crate::control::pod_table::PodRecords;
use crate::state::pods::{
    PodAnswer, PodChange, PodChangeKind, RestartRequest, SourcePod, StopAction, StopRequest, SyncEvent, VersionAction,
    VersionActionRequest,
};

impl NodeLocalApi {
    /// Carries out a change when awaited. The sync loop or the local pods decide.
    pub(super) fn change_pod(&self, change: PodChange) -> Pin<Box<dyn Future<Output = PodAnswer>>> {
        if let PodChangeKind::Restart(container) = &change.kind {
            let request = self.restart(&change, container.as_deref());
            let inbox = self.inbox.clone();
            return Box::pin(async move {
                let request = match request {
                    Ok(request) => request,
                    Err(refused) => return refused,
                };
                let containers = request.containers.clone();
                // Fails only when the agent is ending.
                let _ = inbox.send(SyncEvent::RestartRequest(request)).await;
                PodAnswer::Restarts(containers)
            });
        }
        if change.kind == PodChangeKind::Rerun {
            return self.rerun(&change);
        }
        if let PodChangeKind::Stop(action) = change.kind {
            return self.stop(&change, action);
        }
        if let PodChangeKind::Versions(action) = change.kind {
            return self.request_of_versions(&change, action);
        }
        let node = &self.config.node.name;
        let records = self.views.records.read();
        let all_pods = || records.sources.pods().chain(records.sources.stopped().map(|(source, _)| source));
        if let (PodChangeKind::Put(_), Some(why)) = (&change.kind, is_taken(&change, node, all_pods())) {
            return Box::pin(ready(PodAnswer::Conflict(why)));
        }
        let conflict = conflict_with_other_source(&change, node, all_pods());
        let stopped = self.find_stopped(&records, &change).map(|source| still_stopped(&source.pod));
        let pods = self.local_pods.clone();
        Box::pin(async move {
            match (pods.request(change).await, conflict) {
                (PodAnswer::Missing(_), Some(conflict)) => PodAnswer::Conflict(conflict),
                (PodAnswer::Applied { how, mut warnings }, _) => {
                    warnings.extend(stopped);
                    PodAnswer::Applied { how, warnings }
                }
                (answer, _) => answer,
            }
        })
    }

    /// The pod with that name, on the node or in its manifest. A stopped pod has to be started first.
    fn find<'a>(&self, records: &'a PodRecords, change: &PodChange) -> Result<&'a SourcePod, PodAnswer> {
        if let Some(source) = records.sources.pods().find(|source| self.is_of(change, source)) {
            return Ok(source);
        }
        let PodChange { namespace, name, .. } = change;
        Err(match self.find_stopped(records, change) {
            Some(stopped) => PodAnswer::Conflict(still_stopped(&stopped.pod)),
            None => PodAnswer::Missing(format!("there is no pod {namespace}/{name}")),
        })
    }

    fn find_stopped<'a>(&self, records: &'a PodRecords, change: &PodChange) -> Option<&'a SourcePod> {
        records.sources.stopped().map(|(source, _)| source).find(|source| self.is_of(change, source))
    }

    fn is_of(&self, change: &PodChange, source: &SourcePod) -> bool {
        let (PodChange { namespace, name, .. }, metadata) = (change, &source.pod.metadata);
        metadata.namespace == *namespace
            && (metadata.name == *name || metadata.name == name_on_node(name, &self.config.node.name))
    }

    /// Lets the sync loop stop or start a pod, which answers once that is on disk.
    fn stop(&self, change: &PodChange, action: StopAction) -> Pin<Box<dyn Future<Output = PodAnswer>>> {
        let records = self.views.records.read();
        let stopped = self.find_stopped(&records, change);
        let asked = match (stopped, action) {
            (Some(source), _) => Ok(source.pod.full_name()),
            (None, action) => self
                .find(&records, change)
                .and_then(|source| pod_requests::stop(&source.pod, action).map(|()| source.pod.full_name())),
        };
        let pod = match asked {
            Ok(pod) => pod,
            Err(refused) => return Box::pin(ready(refused)),
        };
        let inbox = self.inbox.clone();
        Box::pin(async move {
            let (answer, answered) = async_channel::bounded(1);
            // Both fail only when the agent is ending.
            let _ = inbox.send(SyncEvent::StopRequest(StopRequest { pod, action, response: Some(answer) })).await;
            answered.recv().await.unwrap_or_else(|_| PodAnswer::Failed("coracle is shutting down".to_owned()))
        })
    }

    /// Sends the request to the sync loop, which changes the version and answers once it is on disk.
    fn request_of_versions(
        &self,
        change: &PodChange,
        action: VersionAction,
    ) -> Pin<Box<dyn Future<Output = PodAnswer>>> {
        let pod = match self.find(&self.views.records.read(), change) {
            Ok(source) => Arc::clone(&source.pod),
            Err(missing) => return Box::pin(ready(missing)),
        };
        let inbox = self.inbox.clone();
        Box::pin(async move {
            let (answer, answered) = async_channel::bounded(1);
            // Both fail only when the agent is ending.
            let _ = inbox.send(SyncEvent::VersionRequest(VersionActionRequest { pod, action, response: answer })).await;
            answered.recv().await.unwrap_or_else(|_| PodAnswer::Failed("coracle is shutting down".to_owned()))
        })
    }

    /// Lets the sync loop run an ended pod again.
    fn rerun(&self, change: &PodChange) -> Pin<Box<dyn Future<Output = PodAnswer>>> {
        let records = self.views.records.read();
        let restartable = self.find(&records, change).and_then(|source| {
            let uid = records.running_uid(&source.pod.metadata.uid);
            let phase = records.statuses.status(uid).map_or(source.pod.status.phase, |status| status.phase);
            pod_requests::rerun(&source.pod, phase).map(|()| Arc::clone(&source.pod))
        });
        let pod = match restartable {
            Ok(pod) => pod,
            Err(refused) => return Box::pin(ready(refused)),
        };
        let inbox = self.inbox.clone();
        Box::pin(async move {
            // Fails only when the agent is ending.
            let _ = inbox.send(SyncEvent::RerunRequest(pod)).await;
            PodAnswer::Done("runs again")
        })
    }

    /// Resolves a restart request to containers.
    fn restart(&self, change: &PodChange, container: Option<&str>) -> Result<RestartRequest, PodAnswer> {
        let (records, seen) = (self.views.records.read(), self.views.observed.read());
        let source = self.find(&records, change)?;
        let uid = records.running_uid(&source.pod.metadata.uid);
        let phase = records.statuses.status(uid).map_or(source.pod.status.phase, |status| status.phase);
        let request = pod_requests::restart(&source.pod, phase, seen.pod(uid).map(|pod| &**pod), container)?;
        Ok(RestartRequest { uid: uid.clone(), ..request })
    }
}
