//! Stops and starts the node's own pods for a user, and writes the stopped pods to disk.
//!
//! ```text
//! StopRequest -> the disk (blocking) -> StoppedPodsWritten -> the pod table -> the answer
//! ```

use std::io;
use std::path::{Path, PathBuf};

use async_channel::Sender;

use crate::platform::host::clock;
use crate::platform::host::directories::set_aside;
use crate::platform::host::durable::{self, StoredFile};
use crate::platform::rt;
use crate::state::pods::{PodAnswer, StopAction, StopRequest, StoppedPods, SyncEvent};
use crate::types::error::ErrorChain;

/// Room for the names of some thousand pods.
const MAX_STOPPED_PODS_BYTES: u64 = 1 << 20;

pub(super) struct PodStops {
    file: PathBuf,
    inbox: Sender<SyncEvent>,
    writer: Option<rt::Task<()>>,
    /// Requests that the write under way does not have.
    waiting: Vec<StopRequest>,
    /// Requests of the write under way.
    in_flight: Vec<StopRequest>,
}

impl PodStops {
    pub(super) fn new(file: PathBuf, inbox: Sender<SyncEvent>) -> Self {
        Self { file, inbox, writer: None, waiting: Vec::new(), in_flight: Vec::new() }
    }

    /// A user stops or starts a pod.
    pub(super) fn on_request(&mut self, request: StopRequest, stopped: &StoppedPods) {
        self.waiting.push(request);
        self.write(stopped);
    }

    /// No source has these pods any more.
    pub(super) fn forget(&mut self, gone: Vec<String>, stopped: &StoppedPods) {
        let start = |pod| StopRequest { pod, action: StopAction::Start, response: None };
        self.waiting.extend(gone.into_iter().map(start));
        self.write(stopped);
    }

    /// One write at a time.
    fn write(&mut self, stopped: &StoppedPods) {
        if self.writer.is_some() || self.waiting.is_empty() {
            return;
        }
        self.in_flight = std::mem::take(&mut self.waiting);
        let mut next = stopped.clone();
        for StopRequest { pod, action, .. } in &self.in_flight {
            log!(info, if *action == StopAction::Stop { "stopping pod" } else { "starting pod" }, pod = pod);
            match action {
                StopAction::Stop => next.stop(pod, clock::now()),
                StopAction::Start => next.start(pod),
            }
        }
        let (inbox, file) = (self.inbox.clone(), self.file.clone());
        self.writer = Some(rt::spawn(async move {
            let written = rt::blocking(move || write(&file, &next).map(|()| next)).await;
            let written = written.map_err(|error| format!("stopped pods not written: {}", ErrorChain(&error)));
            // Fails only when the agent is ending.
            let _ = inbox.send(SyncEvent::StoppedPodsWritten(written)).await;
        }));
    }

    /// Answers the users whose change is on disk and in the pod table, or failed.
    pub(super) fn on_written(&mut self, fault: Option<String>, stopped: &StoppedPods) {
        self.writer = None;
        if let Some(fault) = &fault {
            log!(warn, fault);
        }
        for StopRequest { action, response: answer, .. } in self.in_flight.drain(..) {
            let done = match action {
                StopAction::Stop => "stopped",
                StopAction::Start => "started",
            };
            let done = fault.clone().map_or(PodAnswer::Done(done), PodAnswer::Failed);
            // The user may have disconnected.
            let _ = answer.map(|answer| answer.try_send(done));
        }
        self.write(stopped);
    }
}

/// Blocking.
fn write(file: &Path, stopped: &StoppedPods) -> io::Result<()> {
    if stopped.full_names().next().is_none() {
        return durable::remove(file);
    }
    durable::write_changed_within(file, stopped.to_json().as_bytes(), MAX_STOPPED_PODS_BYTES).map(drop)
}

/// Reads the stopped pods. Blocking. An unusable file is set aside: all pods run then.
pub(crate) fn read_stopped_pods(file: &Path) -> StoppedPods {
    let stopped = match durable::read(file, MAX_STOPPED_PODS_BYTES) {
        Ok(StoredFile::Nothing) => return StoppedPods::default(),
        Ok(StoredFile::Whole(text)) => StoppedPods::from_json(&text),
        Ok(StoredFile::Damaged) => None,
        Err(error) => {
            log!(warn, "failed to read stopped pods, all run", file = file.display(), error = error);
            return StoppedPods::default();
        }
    };
    stopped.unwrap_or_else(|| {
        let kept = set_aside(file).err().map(|error| error.to_string()).unwrap_or_default();
        log!(warn, "stopped pods are damaged, all run", file = file.display(), error = kept);
        StoppedPods::default()
    })
}
