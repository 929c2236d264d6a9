//! The task of one probe: runs it at each tick, counts the results, and reports verdicts.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use crate::kubelet::probes::outcome::Outcome;
use crate::kubelet::probes::prober::Prober;
use crate::kubelet::probes::results::{container_at, probe_of};
use crate::kubelet::probes::timing::{self, ResultRun};
use crate::platform::net::Dialer;
use crate::platform::rt;
use crate::state::pods::{HostIps, PodEvent, ProbeKind, ProbeResult, SyncEvent};
use crate::types::api::{EventKind, Pod};
use crate::types::metrics::{self, Count, Timed};

/// The probe and instance that a worker is for.
#[derive(Debug)]
pub(super) struct ProbeTarget {
    pub(super) pod: Arc<Pod>,
    /// Index of the container in the pod.
    pub(super) container_index: usize,
    pub(super) kind: ProbeKind,
    pub(super) container_id: String,
    pub(super) address: ProbedAddress,
    /// Time of the first attempt.
    pub(super) first: Instant,
}

/// The address of a pod.
#[derive(Debug)]
pub(super) enum ProbedAddress {
    /// Of a host-network pod: the node's current address.
    Node(HostIps),
    Pod(Option<IpAddr>),
}

impl ProbedAddress {
    fn current(&self) -> Option<IpAddr> {
        match self {
            Self::Node(ips) => Some(ips.own_address()),
            Self::Pod(ip) => *ip,
        }
    }
}

/// Immediate attempts per tick if the probe errors (kubelet: `maxProbeRetries`).
const MAX_PROBE_TRIES: u32 = 3;

/// Runs until a verdict makes further probes of this instance pointless.
pub(super) async fn run(prober: Rc<Prober>, work: ProbeTarget) {
    let mut tally = ResultRun::default();
    let mut reported = None;
    let mut tick = work.first;
    let dialer = prober.dialer.of_pod(work.pod.metadata.uid.as_str());
    loop {
        rt::sleep_until(tick).await;
        // Boxed, so that the memory of an attempt is freed between two of them.
        let passed = Box::pin(run_probe(&prober, &dialer, &work)).await;
        let Some(probe) =
            container_at(&work.pod.spec, work.container_index).and_then(|container| probe_of(container, work.kind))
        else {
            return;
        };
        let verdict = passed.and_then(|passed| tally.count(passed, probe));
        if let Some(passed) = verdict.filter(|_| reported != verdict) {
            // The sync loop is gone only when the process exits.
            let _ = prober.inbox.send(SyncEvent::Probed(result(&work, passed))).await;
            reported = verdict;
        }
        // A container that will be killed is not probed again, nor is the startup probe of one that has started.
        let is_last = match work.kind {
            ProbeKind::Startup => reported.is_some(),
            ProbeKind::Liveness => reported == Some(false),
            ProbeKind::Readiness => false,
        };
        if is_last {
            return;
        }
        tick = timing::next_tick(tick, timing::period(probe), rt::now());
    }
}

async fn run_probe(prober: &Prober, dialer: &Dialer, work: &ProbeTarget) -> Option<bool> {
    let container = container_at(&work.pod.spec, work.container_index)?;
    let probe = probe_of(container, work.kind)?;
    let mut outcome = Outcome::Passed;
    for _ in 0..MAX_PROBE_TRIES {
        let begun = rt::now();
        let (uid, id) = (work.pod.metadata.uid.as_str(), &work.container_id);
        outcome = prober.probe(dialer, uid, container, probe, id, work.address.current()).await;
        note(work, &container.name, &outcome, begun);
        if outcome.passed().is_some() {
            break;
        }
    }
    if let Some((reason, message)) = outcome.event(work.kind) {
        let uid = &work.pod.metadata.uid;
        let event = PodEvent::of_container(uid, &container.name, EventKind::Warning, reason, message);
        // Events may be dropped when the inbox is full.
        let _ = prober.inbox.try_send(SyncEvent::PodEvent(event));
    }
    outcome.passed()
}

/// Upstream's metrics: each attempt, and the duration of successful ones.
fn note(work: &ProbeTarget, container: &str, outcome: &Outcome, begun: Instant) {
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

fn result(work: &ProbeTarget, passed: bool) -> ProbeResult {
    ProbeResult {
        pod: work.pod.metadata.uid.clone(),
        container: container_at(&work.pod.spec, work.container_index)
            .map_or_else(String::new, |spec| spec.name.clone()),
        container_id: work.container_id.clone(),
        kind: work.kind,
        passed,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::platform::cri::RuntimeService;
    use crate::platform::rpc::Client;
    use crate::types::api::{Container, IntOrString, Probe, ProbeHandler, TcpSocketAction};

    /// A readiness probe of each second that connects to `host`.
    fn target(pod: &str, host: &str) -> ProbeTarget {
        let action = TcpSocketAction { host: host.to_owned(), port: IntOrString::Int(80) };
        let handler = ProbeHandler::TcpSocket(action);
        let probe = Probe {
            handler,
            initial_delay_seconds: 0,
            timeout_seconds: 1,
            period_seconds: 1,
            success_threshold: 1,
            failure_threshold: 1,
            termination_grace_period_seconds: None,
        };
        let container = Container { readiness_probe: Some(Box::new(probe)), ..Container::default() };
        let mut with_probe = Pod::default();
        with_probe.metadata.uid = pod.into();
        with_probe.spec.containers.push(container);
        ProbeTarget {
            pod: Arc::new(with_probe),
            container_index: 0,
            kind: ProbeKind::Readiness,
            container_id: String::new(),
            address: ProbedAddress::Pod(None),
            first: rt::now(),
        }
    }

    #[test]
    fn names_that_cannot_be_looked_up_delay_no_probe_of_another_pod() {
        let passed = rt::simulate(1, |world| async move {
            world.network.resolver.set(rt::Resolver { slow: Duration::from_secs(100_000), failing: 0 });
            world.network.add_name("alive", IpAddr::from([10, 0, 0, 1]));
            let _accepted = world.network.host("10.0.0.1:80").listen();
            let (inbox, events) = async_channel::bounded(100);
            let cri = RuntimeService::new(Client::new("/nowhere"), Duration::from_secs(1));
            let prober = Rc::new(Prober::new(cri, Dialer::new(), inbox));
            let probe = |pod: &str, host: &str| rt::spawn(run(Rc::clone(&prober), target(pod, host)));
            let _greedy: Vec<_> = (0..20).map(|_| probe("greedy", "dead")).collect();
            rt::sleep(Duration::from_secs(60)).await;
            world.network.resolver.set(rt::Resolver::default());
            let _honest = probe("honest", "alive");
            let verdict = async {
                loop {
                    match events.recv().await {
                        Ok(SyncEvent::Probed(result)) if result.pod.as_str() == "honest" => return result.passed,
                        _ => {}
                    }
                }
            };
            rt::deadline(Duration::from_secs(1), verdict).await
        });
        assert_eq!(passed, Ok(Ok(true)));
    }
}
