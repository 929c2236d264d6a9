//! The machine shuts down: pods end in the order of their priorities, and no others are taken.

use std::sync::Arc;
use std::time::Instant;

use async_channel::Sender;

use crate::control::cluster::StatusManager;
use crate::control::pod_workers::State;
use crate::control::sync_loop::SyncLoop;
use crate::kubelet::admission::Rejection;
use crate::kubelet::node_shutdown::{End, Inhibitor, Progress, follow};
use crate::kubelet::status::Failed;
use crate::platform::config::ShutdownPhase;
use crate::platform::rt;
use crate::state::pods::{NodeEvent, SyncEvent};
use crate::types::api::{EventKind, Pod, PodUid, Reason};

/// As upstream tells the pod and whoever looks at its status.
const TERMINATED: &str = "Pod was terminated in response to imminent node shutdown.";
const REJECTED: &str = "Pod was rejected as the node is shutting down.";

pub(super) struct NodeShutdown {
    progress: Progress,
    inhibitor: Inhibitor,
    #[expect(dead_code, reason = "dropping the task ends it")]
    follower: Option<rt::Task<()>>,
}

impl NodeShutdown {
    /// Without phases nobody asks when the machine shuts down.
    pub(super) fn new(phases: &[ShutdownPhase], inbox: Sender<SyncEvent>) -> Self {
        let (progress, inhibitor) = (Progress::new(phases), Inhibitor::default());
        let time = progress.whole_time();
        let follower = (!phases.is_empty()).then(|| rt::spawn(follow(time, inhibitor.clone(), inbox)));
        Self { progress, inhibitor, follower }
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.progress.due()
    }
}

impl SyncLoop {
    pub(super) fn on_node_shuts_down(&mut self, shuts_down: bool, now: Instant) {
        let progress = &mut self.shutdown.progress;
        let is_news = if shuts_down { progress.begin(now) } else { progress.cancel() };
        if !is_news {
            return;
        }
        self.news.shuts_down(shuts_down);
        let what = if shuts_down { "shutdown event" } else { "shutdown cancellation" };
        let message = format!("Shutdown manager detected {what}");
        self.on_node_happened(NodeEvent::new(EventKind::Normal, Reason::NODE_SHUTDOWN, message), now);
        if !shuts_down {
            self.begin_own_anew(now);
        }
    }

    /// Nobody makes another pod for one of the node's own that has ended for nothing.
    fn begin_own_anew(&mut self, now: Instant) {
        let for_shutdown = [Reason::TERMINATED, Reason::NODE_SHUTDOWN];
        let ended = self.failed.iter().filter(|(_, failed)| for_shutdown.contains(&failed.reason));
        let workers = ended.filter_map(|(uid, _)| self.workers.worker(uid)).filter(|worker| worker.wanted);
        let own = workers.filter_map(|worker| worker.pod.clone()).filter(|pod| pod.is_static());
        for pod in own.collect::<Vec<Arc<Pod>>>() {
            self.workers.unwanted(&pod.metadata.uid);
            self.take_in_new(&pod, now);
        }
    }

    pub(super) fn admit_in_shutdown(&self) -> Result<(), Rejection> {
        match self.shutdown.progress.is_under_way() {
            true => Err(Rejection { reason: Reason::NODE_SHUTDOWN, message: REJECTED.to_owned() }),
            false => Ok(()),
        }
    }

    /// Before the work: ends those whose turn it is.
    pub(super) fn shut_down(&mut self, now: Instant) {
        if self.shutdown.due().is_none() {
            return;
        }
        let left: Vec<i32> = self.left().map(|(_, priority)| priority).collect();
        while let Some(End { phase, grace }) = self.shutdown.progress.next(&left, now) {
            let is_of_phase = |priority| self.shutdown.progress.phase_of(priority) == phase;
            let pods = self.left().filter(|(_, priority)| is_of_phase(*priority)).map(|(uid, _)| uid.clone());
            let pods: Vec<PodUid> = pods.collect();
            log!(info, "ending pods for the shutdown", pods = pods.len(), seconds = grace.as_secs());
            for uid in pods {
                self.end_for_shutdown(&uid);
                self.workers.end_within(&uid, grace);
                self.dirty.insert(uid);
            }
        }
    }

    /// After the work, and when what is new is on its way to the cluster.
    pub(super) fn let_machine_go(&mut self, now: Instant) {
        let tells = self.reporter.as_ref().is_some_and(StatusManager::is_telling);
        if self.shutdown.progress.is_over(tells, now) {
            log!(info, "the machine may shut down");
            self.shutdown.inhibitor.replace(None);
        }
    }

    /// The pods that have not ended, with their priorities.
    fn left(&self) -> impl Iterator<Item = (&PodUid, i32)> {
        self.workers.iter().filter(|worker| worker.state != State::Finished).filter_map(|worker| {
            let pod = worker.pod.as_ref()?;
            Some((&worker.identity.uid, pod.spec.priority.unwrap_or(0)))
        })
    }

    /// What is ending already keeps its own reason.
    fn end_for_shutdown(&mut self, uid: &PodUid) {
        if self.workers.worker(uid).is_some_and(|worker| worker.state == State::Sync) {
            let (message, disruption) = (TERMINATED.into(), Some(TERMINATED.into()));
            self.failed.insert(uid.clone(), Failed { reason: Reason::TERMINATED, message, disruption });
        }
    }
}
