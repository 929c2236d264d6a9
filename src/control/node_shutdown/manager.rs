//! Graceful node shutdown: ends pods in order of priority, and admits none.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_channel::Sender;

use super::Inhibitor;
use super::logind::follow;
use super::progress::{DuePhase, Progress};
use crate::control::pod_table::{Effect, EndCause, EndPod, NodeStatusChange, PodTable};
use crate::control::pod_workers::{State, Worker};
use crate::control::versions::{Decision, UpdateLocks};
use crate::kubelet::admission::Rejection;
use crate::kubelet::status::PodFailure;
use crate::platform::config::ShutdownPhase;
use crate::platform::rt;
use crate::state::pods::{NodeEvent, SyncEvent};
use crate::types::api::{EventKind, Pod, PodUid, Reason};

/// Upstream's messages in the pod's status.
const TERMINATED: &str = "Pod was terminated in response to imminent node shutdown.";
const NODE_SHUTDOWN_REJECTION: &str = "Pod was rejected as the node is shutting down.";

pub(crate) struct NodeShutdown {
    progress: Progress,
    inhibitor: Inhibitor,
    /// Pods that wait for their applications, and until when they may.
    waiting: Vec<WaitingEnd>,
    #[expect(dead_code, reason = "dropping the task ends it")]
    follower: Option<rt::Task<()>>,
}

/// The end of a pod that waits for its application.
struct WaitingEnd {
    uid: PodUid,
    /// The pod's own grace period ends with its phase then.
    latest: Instant,
    phase_end: Instant,
}

impl NodeShutdown {
    /// Without phases the node does not inhibit the shutdown.
    pub(crate) fn new(phases: &[ShutdownPhase], inbox: Sender<SyncEvent>) -> Self {
        let (progress, inhibitor) = (Progress::new(phases), Inhibitor::default());
        let time = progress.whole_time();
        let follower = (!phases.is_empty()).then(|| rt::spawn(follow(time, inhibitor.clone(), inbox)));
        Self { progress, inhibitor, waiting: Vec::new(), follower }
    }

    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.progress.due().into_iter().chain(self.waiting.iter().map(|end| end.latest)).min()
    }

    /// The shutdown starts or is cancelled.
    pub(crate) fn on_node_shuts_down(&mut self, shuts_down: bool, now: Instant) -> Vec<Effect> {
        let is_news = if shuts_down { self.progress.begin(now) } else { self.progress.cancel() };
        if !is_news {
            return Vec::new();
        }
        self.waiting.clear();
        let event_name = if shuts_down { "shutdown event" } else { "shutdown cancellation" };
        let message = format!("Shutdown manager detected {event_name}");
        vec![
            Effect::NodeStatus(NodeStatusChange::ShutsDown(shuts_down)),
            Effect::RecordNode(NodeEvent::new(EventKind::Normal, Reason::SHUTDOWN, message)),
        ]
    }

    /// Static pods that ended for a shutdown that was cancelled. No controller recreates them, so the node does.
    pub(crate) fn ended_static_pods(&self, pods: &PodTable) -> Vec<Arc<Pod>> {
        let for_shutdown = [Reason::TERMINATED, Reason::NODE_SHUTDOWN];
        let ended = pods.failed().filter(|(_, failed)| for_shutdown.contains(&failed.reason));
        let workers = ended.filter_map(|(uid, _)| pods.worker(uid)).filter(|worker| worker.wanted);
        workers.filter_map(|worker| worker.pod.clone()).filter(|pod| pod.is_static()).collect()
    }

    pub(crate) fn admits(&self) -> Result<(), Rejection> {
        match self.progress.is_under_way() {
            true => Err(Rejection { reason: Reason::NODE_SHUTDOWN, message: NODE_SHUTDOWN_REJECTION.to_owned() }),
            false => Ok(()),
        }
    }

    /// Ends the pods of the phases that have started. Runs before the work.
    pub(crate) fn round(&mut self, locks: &mut UpdateLocks, pods: &PodTable, now: Instant) -> Vec<Effect> {
        if self.next_due().is_none() {
            return Vec::new();
        }
        let running = running_pods(pods.workers().iter());
        let ends = self.end_phases(&running, now);
        for EndPod { uid, grace, .. } in ends {
            let pod_grace = pods
                .syncing(&uid)
                .and_then(|worker| worker.pod.as_ref())
                .map_or(grace, |pod| pod.spec.termination_grace());
            let latest = now + grace.saturating_sub(pod_grace);
            self.waiting.push(WaitingEnd { uid, latest, phase_end: now + grace });
        }
        let mut ends = Vec::new();
        self.waiting.retain(|end| {
            let waits = end.latest > now && !locks.permits(&end.uid, Decision::Shutdown, pods, now);
            if !waits {
                ends.push((end.uid.clone(), end.phase_end.saturating_duration_since(now)));
            }
            waits
        });
        ends.into_iter().map(|(uid, grace)| Effect::End(end(uid, grace))).collect()
    }

    fn end_phases(&mut self, running: &[(PodUid, i32)], now: Instant) -> Vec<EndPod> {
        let priorities: Vec<i32> = running.iter().map(|(_, priority)| *priority).collect();
        let mut ends = Vec::new();
        while let Some(DuePhase { phase, grace }) = self.progress.next(&priorities, now) {
            let of_phase = running.iter().filter(|(_, priority)| self.progress.phase_of(*priority) == phase);
            let of_phase: Vec<EndPod> = of_phase.map(|(uid, _)| end(uid.clone(), grace)).collect();
            log!(info, "ending pods for the shutdown", pods = of_phase.len(), seconds = grace.as_secs());
            ends.extend(of_phase);
        }
        ends
    }

    /// Releases the inhibitor, so that the machine can shut down. Runs after the work, when new statuses are being
    /// reported.
    pub(crate) fn release_inhibitor(&mut self, is_reporting: bool, now: Instant) {
        if self.progress.is_over(is_reporting, now) {
            log!(info, "pods ended, releasing the shutdown inhibitor");
            self.inhibitor.replace(None);
        }
    }
}

/// The pods that have not ended, with their priorities.
/// A pod ends when its volumes are unmounted too, as upstream (`WaitForAllPodsUnmount`).
fn running_pods<'a>(workers: impl Iterator<Item = &'a Worker>) -> Vec<(PodUid, i32)> {
    let running = workers.filter(|worker| worker.state != State::Finished).filter_map(|worker| {
        let pod = worker.pod.as_ref()?;
        Some((worker.identity.uid.clone(), pod.spec.priority.unwrap_or(0)))
    });
    running.collect()
}

fn end(uid: PodUid, grace: Duration) -> EndPod {
    let (message, disruption) = (TERMINATED.into(), Some(TERMINATED.into()));
    let failed = PodFailure { reason: Reason::TERMINATED, message, disruption };
    EndPod { uid, cause: EndCause::NodeShutdown, failed, grace, event: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::pod_table::testing::{pod, with_node};
    use crate::types::api::annotations::HOLD;

    fn shutdown(phases: &[(i32, u64)]) -> NodeShutdown {
        let phases: Vec<ShutdownPhase> = phases
            .iter()
            .map(|(priority, grace)| ShutdownPhase { priority: *priority, grace: Duration::from_secs(*grace) })
            .collect();
        let (progress, inhibitor) = (Progress::new(&phases), Inhibitor::default());
        NodeShutdown { progress, inhibitor, waiting: Vec::new(), follower: None }
    }

    #[test]
    fn shutdown_ends_pods_in_order_of_priority() {
        let (mut shutdown, now) = (shutdown(&[(0, 20), (1000, 10)]), Instant::now());
        let left = [(PodUid::from("low"), 0), (PodUid::from("high"), 2000)];
        assert_eq!(shutdown.end_phases(&left, now), []);
        shutdown.on_node_shuts_down(true, now);
        let low = end("low".into(), Duration::from_secs(20));
        assert_eq!(shutdown.end_phases(&left, now), [low]);
        let high = end("high".into(), Duration::from_secs(10));
        assert_eq!(shutdown.end_phases(&left[1..], now), [high]);
    }

    #[test]
    fn held_pod_ends_when_its_grace_just_fits_into_the_phase() {
        with_node(|mut node| {
            let (mut shutdown, now) = (shutdown(&[(0, 20)]), rt::now());
            let mut locks = UpdateLocks::without_state(node.inbox.clone());
            let mut held = Pod::clone(&pod("held"));
            held.metadata.annotations.insert(HOLD, "true".to_owned());
            held.spec.termination_grace_period_seconds = Some(5);
            node.pods.apply([Effect::Update(Arc::new(held)), Effect::Update(pod("other"))], now);
            shutdown.on_node_shuts_down(true, now);
            let ends = |uid: &str, seconds| [Effect::End(end(uid.into(), Duration::from_secs(seconds)))];
            assert_eq!(shutdown.round(&mut locks, &node.pods, now), ends("other", 20));
            let latest = now + Duration::from_secs(15);
            assert_eq!(shutdown.next_due(), Some(latest));
            assert_eq!(shutdown.round(&mut locks, &node.pods, latest), ends("held", 5));
        });
    }

    #[test]
    fn shutdown_is_recorded_once() {
        let (mut shutdown, now) = (shutdown(&[(0, 20)]), Instant::now());
        let effects = shutdown.on_node_shuts_down(true, now);
        assert_eq!(effects.first(), Some(&Effect::NodeStatus(NodeStatusChange::ShutsDown(true))));
        assert!(matches!(effects.as_slice(), [_, Effect::RecordNode(event)] if event.reason == Reason::SHUTDOWN));
        assert_eq!(shutdown.on_node_shuts_down(true, now), []);
        assert!(shutdown.admits().is_err());
    }
}
