//! Pods put on this node: their manifests are stored in the state directory, one file per pod, and run after every
//! start.
//!
//! ```text
//!   PUT -> LocalPods::request -> PodList::judge -> the disk (blocking) -> SyncEvent::Sources -> the response
//! ```
//!
//! A change is answered once it is on disk. Changes are handled one at a time; a refused manifest changes nothing. A
//! damaged file is set aside, and its pod keeps running until it is put again or deleted.

mod files;
mod pod_list;

use std::path::PathBuf;
use std::time::Duration;

use async_channel::{Receiver, Sender};

use self::files::FileContent;
use self::pod_list::{AcceptedManifest, PodList};
use crate::control::pod_sources::static_pod::ManifestNode;
use crate::platform::host::clock;
use crate::platform::rt;
use crate::state::pods::{ApplyOutcome, PodAnswer, PodChange, PodChangeKind, SyncEvent};
use crate::types::error::ErrorChain;

/// Handle for requesting changes.
#[derive(Clone, Debug)]
pub(crate) struct LocalPods {
    requests: Sender<LocalPodRequest>,
}

/// One change, and the channel for its answer.
#[derive(Debug)]
pub(crate) struct LocalPodRequest {
    change: PodChange,
    response: Sender<PodAnswer>,
}

/// Capacity of the queue of changes. Requests wait when it is full.
const PENDING_LOCAL_CHANGES: usize = 4;
/// Wait before the directory is read again after a failure.
const LOCAL_PODS_RETRY_DELAY: Duration = Duration::from_secs(30);

impl LocalPods {
    /// The handle, and the receiver for [`run`].
    pub(crate) fn new() -> (Self, Receiver<LocalPodRequest>) {
        let (requests, receiver) = async_channel::bounded(PENDING_LOCAL_CHANGES);
        (Self { requests }, receiver)
    }

    /// Requests a change. It completes even if this future is dropped.
    pub(crate) async fn request(&self, change: PodChange) -> PodAnswer {
        let (answer, answered) = async_channel::bounded(1);
        // Both fail only when the agent is ending.
        let _ = self.requests.send(LocalPodRequest { change, response: answer }).await;
        answered.recv().await.unwrap_or_else(|_| PodAnswer::Failed("coracle is shutting down".to_owned()))
    }
}

/// Sends the pods in `directory` to `inbox` at once and after every change, and answers requests. Never returns.
pub(crate) async fn run(
    directory: PathBuf,
    node: ManifestNode,
    requests: Receiver<LocalPodRequest>,
    inbox: Sender<SyncEvent>,
) {
    let mut running = LocalPodSource { directory, pod_list: PodList::new(node), inbox };
    let mut is_loaded = running.load().await;
    loop {
        let next = if is_loaded {
            Ok(requests.recv().await)
        } else {
            rt::deadline(LOCAL_PODS_RETRY_DELAY, requests.recv()).await
        };
        match next {
            Ok(Ok(LocalPodRequest { change, response: answer })) => {
                is_loaded = is_loaded || running.load().await;
                let answered = if is_loaded { running.change(change).await } else { running.unreadable() };
                // The requester may have gone.
                let _ = answer.try_send(answered);
            }
            Ok(Err(_)) => return,
            Err(rt::Elapsed) => is_loaded = running.load().await,
        }
    }
}

struct LocalPodSource {
    directory: PathBuf,
    pod_list: PodList,
    inbox: Sender<SyncEvent>,
}

impl LocalPodSource {
    /// Reads the stored manifests. False on failure: the known pods then stay.
    async fn load(&mut self) -> bool {
        let directory = self.directory.clone();
        let loaded = match rt::blocking(move || files::load(&directory)).await {
            Ok(files) => {
                self.pod_list.load(files, clock::timestamp(), clock::now());
                true
            }
            Err(error) => {
                let place = self.directory.display().to_string();
                let message = format!("cannot be read: {}", ErrorChain(&error));
                self.pod_list.fail(&place, message, clock::now());
                false
            }
        };
        self.send_pods().await;
        loaded
    }

    fn unreadable(&self) -> PodAnswer {
        PodAnswer::Failed(format!("failed to read {}: coracle status shows why", self.directory.display()))
    }

    async fn send_pods(&mut self) {
        for problem in self.pod_list.new_problems() {
            log!(warn, "manifest problem", file = problem.origin, problem = problem.message);
        }
        // Fails only when the agent is ending.
        let _ = self.inbox.send(SyncEvent::Sources(self.pod_list.update())).await;
    }

    async fn change(&mut self, change: PodChange) -> PodAnswer {
        let key = files::key(&change.namespace, &change.name);
        let path = self.directory.join(&key);
        match change.kind {
            PodChangeKind::Get if self.pod_list.has(&key) => match rt::blocking(move || files::read(&path)).await {
                Ok(FileContent::Manifest(text)) => PodAnswer::Manifest(text),
                Ok(FileContent::Damaged) => PodAnswer::Failed("its file is corrupt: apply the pod again".to_owned()),
                Err(error) => PodAnswer::Failed(format!("failed to read its file: {}", ErrorChain(&error))),
            },
            PodChangeKind::Put(text) => {
                let judged =
                    self.pod_list.judge(&change.namespace, &change.name, &text, clock::timestamp(), clock::now());
                let AcceptedManifest { manifest, how, warnings } = match judged {
                    Ok(verdict) => verdict,
                    Err(error) => return PodAnswer::Refused(error.to_string()),
                };
                match rt::blocking(move || files::write(&path, &text)).await {
                    Ok(is_new) => {
                        self.pod_list.put(key, manifest, clock::now());
                        self.send_pods().await;
                        PodAnswer::Applied { how: if is_new { how } else { ApplyOutcome::Unchanged }, warnings }
                    }
                    Err(error) => PodAnswer::Failed(format!("failed to write its file: {}", ErrorChain(&error))),
                }
            }
            PodChangeKind::Delete if self.pod_list.has(&key) => {
                match rt::blocking(move || files::remove(&path)).await {
                    Ok(()) => {
                        self.pod_list.remove(&key);
                        self.send_pods().await;
                        PodAnswer::Deleted
                    }
                    Err(error) => PodAnswer::Failed(format!("failed to remove its file: {}", ErrorChain(&error))),
                }
            }
            PodChangeKind::Get
            | PodChangeKind::Delete
            | PodChangeKind::Restart(_)
            | PodChangeKind::Rerun
            | PodChangeKind::Stop(_)
            | PodChangeKind::Versions(_) => {
                PodAnswer::Missing(format!("no applied pod {}/{} on this node", change.namespace, change.name))
            }
        }
    }
}

#[cfg(test)]
mod tests;
