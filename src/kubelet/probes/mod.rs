//! Probes of containers: liveness, readiness, startup.
//!
//! [`Probes`] keeps the results, and one task for each probe that is currently due. A task sleeps on one timer and
//! ends with its container instance; it sends results to the sync loop, which passes them back in. A container that
//! is not running, or whose probe has no further effect, has no task.

mod grpc;
mod http;
mod outcome;
mod prober;
mod results;
mod tcp;
mod timing;
mod worker;

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_channel::Sender;

use crate::kubelet::probes::prober::Prober;
use crate::kubelet::probes::results::{ProbeOutcome, ProbeResults, container_at, probe_of, with_probes};
use crate::kubelet::probes::worker::{ProbeTarget, ProbedAddress};
use crate::platform::cri::RuntimeService;
use crate::platform::host::{clock, process};
use crate::platform::net::Dialer;
use crate::platform::rt;
use crate::state::pods::{ContainerState, HostIps, ObservedContainer, ObservedPod, ProbeKind, ProbeResult, SyncEvent};
use crate::types::api::{Container, Pod, PodUid};
use crate::types::metrics;
use crate::types::sorted::{SortedMap, SortedSet};

#[cfg(test)]
pub(crate) use prober::command as probe_command;
pub(crate) use results::ContainerProbeState;

/// Dropping it stops every probe.
pub(crate) struct Probes {
    prober: Rc<Prober>,
    host_ips: HostIps,
    began: Instant,
    pods: SortedMap<PodUid, PodProbes>,
}

struct PodProbes {
    pod: Arc<Pod>,
    /// Probe times count from here, also those of restarted containers.
    since: Instant,
    /// Spreads the probes after a start of the agent.
    random: u32,
    probe_results: ProbeResults,
    tasks: Vec<ProbeWorker>,
}

struct ProbeWorker {
    container_index: usize,
    kind: ProbeKind,
    container_id: String,
    #[expect(dead_code, reason = "dropping the task cancels it")]
    task: rt::Task<()>,
}

/// A container that had run for this long when the agent started was adopted (as in the upstream kubelet).
const ADOPTED_CONTAINER_SLACK: Duration = Duration::from_secs(10);

static NO_PROBES: SortedMap<String, ContainerProbeState> = SortedMap::new();

impl Probes {
    pub(crate) fn new(cri: RuntimeService, dialer: Dialer, host_ips: HostIps, inbox: Sender<SyncEvent>) -> Self {
        let prober = Rc::new(Prober::new(cri, dialer, inbox));
        Self { prober, host_ips, began: rt::now(), pods: SortedMap::new() }
    }

    /// The results of the pod's running containers with probes.
    pub(crate) fn probed(&self, uid: &PodUid) -> &SortedMap<String, ContainerProbeState> {
        self.pods.get(uid).map_or(&NO_PROBES, |pod| pod.probe_results.probed())
    }

    /// Stores a result; true if it changes something.
    pub(crate) fn set(&mut self, result: &ProbeResult) -> bool {
        self.pods.get_mut(&result.pod).is_some_and(|pod| pod.probe_results.set(result))
    }

    /// Starts the tasks of the probes that are due now and stops all others. `ending`: the pod is terminating.
    pub(crate) fn update(&mut self, pod: &Arc<Pod>, observed: &ObservedPod, ending: bool, now: Instant) {
        if with_probes(&pod.spec).next().is_none() {
            self.pods.remove(&pod.metadata.uid);
            return;
        }
        let (prober, began, host_ips) = (&self.prober, self.began, &self.host_ips);
        let entry = self.pods.entry(pod.metadata.uid.clone()).or_insert_with(|| PodProbes::new(pod, now));
        entry.take_pod(pod);
        entry.probe_results.on_observation(&pod.spec, observed, |running| {
            outcome_at_start(pod, running, now.saturating_duration_since(began))
        });
        entry.drop_tasks(ending);
        let under_way: SortedSet<(usize, ProbeKind)> =
            entry.tasks.iter().map(|worker| (worker.container_index, worker.kind)).collect();
        for (index, container) in with_probes(&pod.spec) {
            for kind in ProbeKind::ALL {
                if !entry.probe_results.is_due(container, kind, ending) || under_way.contains(&(index, kind)) {
                    continue;
                }
                let Some(running) = observed.container(&container.name) else { continue };
                let work = ProbeTarget {
                    pod: Arc::clone(pod),
                    container_index: index,
                    kind,
                    container_id: running.id.clone(),
                    address: match pod.spec.host_network {
                        true => ProbedAddress::Node(host_ips.clone()),
                        false => ProbedAddress::Pod(pod_ip(observed, running, host_ips)),
                    },
                    first: entry.first_question(container, kind, index, running, began, now),
                };
                let task = rt::spawn(worker::run(Rc::clone(prober), work));
                entry.tasks.push(ProbeWorker { container_index: index, kind, container_id: running.id.clone(), task });
            }
        }
    }

    pub(crate) fn forget(&mut self, uid: &PodUid) {
        if let Some(gone) = self.pods.remove(uid) {
            let metadata = &gone.pod.metadata;
            metrics::forget_probes(&metadata.namespace, &metadata.name);
        }
    }
}

impl PodProbes {
    fn new(pod: &Arc<Pod>, now: Instant) -> Self {
        let (pod, random) = (Arc::clone(pod), rt::random());
        Self { pod, since: now, random, probe_results: ProbeResults::default(), tasks: Vec::new() }
    }

    /// Takes a new version of the pod, whose probes may differ.
    fn take_pod(&mut self, pod: &Arc<Pod>) {
        if Arc::ptr_eq(&self.pod, pod) {
            return;
        }
        let probe = |pod: &Arc<Pod>, running: &ProbeWorker| {
            let container = container_at(&pod.spec, running.container_index)?;
            Some((container.name.clone(), probe_of(container, running.kind)?.clone()))
        };
        self.tasks.retain(|running| probe(&self.pod, running) == probe(pod, running));
        self.pod = Arc::clone(pod);
    }

    fn drop_tasks(&mut self, ending: bool) {
        let Self { pod, probe_results, tasks, .. } = self;
        tasks.retain(|running| {
            let Some(container) = container_at(&pod.spec, running.container_index) else { return false };
            let same = probe_results.instance(container) == Some(&*running.container_id);
            same && probe_results.is_due(container, running.kind, ending)
        });
    }

    /// The first attempt. Readiness probes run as soon as possible, so that a container becomes ready soon; others wait
    /// for a tick.
    fn first_question(
        &self,
        container: &Container,
        kind: ProbeKind,
        index: usize,
        running: &ObservedContainer,
        began: Instant,
        now: Instant,
    ) -> Instant {
        let Some(probe) = probe_of(container, kind) else { return now };
        let period = timing::period(probe);
        let delay = results::seconds(probe.initial_delay_seconds);
        let delay_left = if delay.is_zero() { delay } else { delay.saturating_sub(time_since_start(running)) };
        // After a start of the agent, probes do not all run at once.
        let is_young = self.since.saturating_duration_since(began) < period;
        let spread = if is_young { period.mul_f64(self.fraction(index, kind)) } else { Duration::ZERO };
        match kind {
            ProbeKind::Readiness if is_young && age(running) > ADOPTED_CONTAINER_SLACK => now + delay_left.max(spread),
            ProbeKind::Readiness => now + delay_left,
            ProbeKind::Startup | ProbeKind::Liveness => {
                timing::first_tick(self.since + spread, period, now + delay_left)
            }
        }
    }

    /// A number from 0 to 1, different for each probe and constant.
    fn fraction(&self, index: usize, kind: ProbeKind) -> f64 {
        let number = u32::try_from(index).unwrap_or(u32::MAX).wrapping_mul(3).wrapping_add(kind as u32);
        // Steps of the golden ratio are evenly spread for any number of probes.
        f64::from(self.random.wrapping_add(number.wrapping_mul(0x9e37_79b9))) / f64::from(u32::MAX)
    }
}

/// The host in the spec, else the pod's address.
fn host(probe_host: &str, ip: Option<IpAddr>) -> String {
    if probe_host.is_empty() { ip.map_or_else(String::new, |ip| ip.to_string()) } else { probe_host.to_owned() }
}

/// The address that the pod's status shows first.
fn pod_ip(observed: &ObservedPod, running: &ObservedContainer, host_ips: &HostIps) -> Option<IpAddr> {
    let sandbox = observed.sandboxes.iter().find(|sandbox| sandbox.id == running.sandbox_id)?;
    host_ips.of_pod(&sandbox.ips).first().copied()
}

fn outcome_at_start(pod: &Pod, running: &ObservedContainer, agent: Duration) -> ProbeOutcome {
    let statuses = || pod.status.init_container_statuses.iter().chain(&pod.status.container_statuses);
    // In the form `containerd://id`.
    let status = statuses().find(|status| status.container_id.ends_with(&running.id));
    let age = age(running);
    ProbeOutcome {
        age,
        adopted: age > agent + ADOPTED_CONTAINER_SLACK,
        was_started: status.is_some_and(|status| status.started == Some(true)),
        was_ready: status.is_some_and(|status| status.ready),
    }
}

/// The age of the container: by its process if that is visible, else by the runtime's start time and the clock.
fn age(running: &ObservedContainer) -> Duration {
    let ContainerState::Running { started_at } = running.state else { return Duration::ZERO };
    running.pid.and_then(process::age).unwrap_or_else(|| clock::since(started_at))
}

/// Since the container was started, for its initial delay. The process is older, because the runtime makes it before it
/// starts the container in it, seconds before on a busy machine. The clock may have been set since.
fn time_since_start(running: &ObservedContainer) -> Duration {
    let ContainerState::Running { started_at } = running.state else { return Duration::ZERO };
    age(running).min(clock::since(started_at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initial_delay_begins_when_the_container_starts_not_with_its_older_process() {
        let started = |started_at: i64| {
            let state = ContainerState::Running { started_at };
            ObservedContainer { pid: Some(1), ..ObservedContainer::seen("id", "main", "s", state) }
        };
        let now = i64::try_from(clock::unix_nanos()).unwrap();
        assert!(age(&started(now)) > Duration::from_secs(1), "the first process is old");
        assert!(time_since_start(&started(now)) < Duration::from_secs(1));
        let by_clock = time_since_start(&started(0));
        assert!(by_clock <= age(&started(0)), "a clock that was set does not make it older than its process");
    }
}
