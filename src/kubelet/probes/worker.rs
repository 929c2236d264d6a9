//! The task of one probe: asks, counts, tells, sleeps.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use crate::kubelet::probes::outcome::Outcome;
use crate::kubelet::probes::prober::Prober;
use crate::kubelet::probes::results::{container_at, probe_of};
use crate::kubelet::probes::timing::{self, Tally};
use crate::platform::rt;
use crate::state::pods::{PodEvent, ProbeKind, ProbeResult, SyncEvent};
use crate::types::api::{EventKind, Pod};
use crate::types::metrics::{self, Count, Timed};

/// Which probe of which instance.
#[derive(Debug)]
pub(super) struct Assignment {
    pub(super) pod: Arc<Pod>,
    /// The container's place in the pod.
    pub(super) place: usize,
    pub(super) kind: ProbeKind,
    pub(super) container_id: String,
    /// The pod's address.
    pub(super) ip: Option<IpAddr>,
    /// When to ask for the first time.
    pub(super) first: Instant,
}

/// Tries at once after one that could not be made (kubelet: `maxProbeRetries`).
const TRIES: u32 = 3;

/// Asks until a verdict says that there is nothing more to ask of this instance.
pub(super) async fn run(prober: Rc<Prober>, work: Assignment) {
    let mut tally = Tally::default();
    let mut told = None;
    let mut tick = work.first;
    loop {
        rt::sleep_until(tick).await;
        // Boxed: what a question needs must not lie in memory between two of them.
        let passed = Box::pin(ask(&prober, &work)).await;
        let Some(probe) = container_at(&work.pod.spec, work.place).and_then(|one| probe_of(one, work.kind)) else {
            return;
        };
        let verdict = passed.and_then(|passed| tally.count(passed, probe));
        if let Some(passed) = verdict.filter(|_| told != verdict) {
            // The loop is gone only when the process ends.
            let _ = prober.inbox.send(SyncEvent::Probed(result(&work, passed))).await;
            told = verdict;
        }
        // Whoever is to be ended is not asked any more, nor who has started.
        let is_last = match work.kind {
            ProbeKind::Startup => told.is_some(),
            ProbeKind::Liveness => told == Some(false),
            ProbeKind::Readiness => false,
        };
        if is_last {
            return;
        }
        tick = timing::next_tick(tick, timing::period(probe), rt::now());
    }
}

async fn ask(prober: &Prober, work: &Assignment) -> Option<bool> {
    let container = container_at(&work.pod.spec, work.place)?;
    let probe = probe_of(container, work.kind)?;
    let mut outcome = Outcome::Passed;
    for _ in 0..TRIES {
        let begun = rt::now();
        outcome = prober.ask(container, probe, &work.container_id, work.ip).await;
        note(work, &container.name, &outcome, begun);
        if outcome.passed().is_some() {
            break;
        }
    }
    if let Some((reason, message)) = outcome.event(work.kind) {
        let uid = &work.pod.metadata.uid;
        let event = PodEvent::of_container(uid, &container.name, EventKind::Warning, reason, message);
        // Nothing depends on it: when the inbox is full it is dropped.
        let _ = prober.inbox.try_send(SyncEvent::Happened(event));
    }
    outcome.passed()
}

/// As upstream counts them: each question, and of those that were passed how long they took.
fn note(work: &Assignment, container: &str, outcome: &Outcome, begun: Instant) {
    let metadata = &work.pod.metadata;
    let (namespace, pod, uid) = (metadata.namespace.as_str(), metadata.name.as_str(), metadata.uid.as_str());
    let kind = work.kind.to_string();
    let result = match outcome.passed() {
        Some(true) => "successful",
        Some(false) => "failed",
        None => "unknown",
    };
    metrics::count(Count::Probes, &[container, namespace, pod, uid, &kind, result]);
    if outcome.passed() == Some(true) {
        metrics::took(Timed::Probes, &[container, namespace, pod, &kind], rt::elapsed(begun));
    }
}

fn result(work: &Assignment, passed: bool) -> ProbeResult {
    ProbeResult {
        pod: work.pod.metadata.uid.clone(),
        container: container_at(&work.pod.spec, work.place).map_or_else(String::new, |one| one.name.clone()),
        container_id: work.container_id.clone(),
        kind: work.kind,
        passed,
    }
}
