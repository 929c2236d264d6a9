//! Generates a pod's status from its spec, its observed state and the previous status. Pure.
//!
//! No state machine position is kept: the same spec and observations give the same status, also after a restart. Only
//! what the runtime forgets (terminated containers, addresses) and what never changes (a terminal phase, the start
//! time) is taken from the previous status.

mod addresses;
mod conditions;
mod container_statuses;
mod phase;
mod resources;

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::Duration;

use crate::kubelet::allocation::PodResourceInfo;
use crate::kubelet::probes::ContainerProbeState;
use crate::state::pods::{AllocatedDevices, MAX_WAITING_MESSAGE_BYTES, ObservedPod, Waiting};
use crate::types::api::{
    self, AfterExit, ConditionStatus, Container, ContainerState, ContainerStatus, Pod, PodPhase, PodStatus, Reason,
    Time,
};
use crate::types::sorted::SortedMap;
use crate::types::text;

use conditions::ConditionInputs;
pub(super) use conditions::is_own;
use container_statuses::{List, container_statuses};
use phase::Progress;

#[derive(Clone, Copy, Debug)]
pub(crate) struct StatusInput<'a> {
    /// The pod from its source; its own status is the one at the API server.
    pub(crate) pod: &'a Pod,
    pub(crate) observed: &'a ObservedPod,
    /// The last generated status.
    pub(crate) previous: Option<&'a PodStatus>,
    /// Waiting reasons from the last start attempt, by container.
    pub(crate) waiting: &'a SortedMap<String, Waiting>,
    /// Containers in crash-loop back-off, with the delay.
    pub(crate) backing_off: &'a [(String, Duration)],
    /// Probe results; a container without an entry is started and ready once it runs.
    pub(crate) probed: &'a SortedMap<String, ContainerProbeState>,
    /// One address, or one of each family; the node's primary address first.
    pub(crate) host_ips: &'a [IpAddr],
    /// The scheme of container ids, such as `containerd`.
    pub(crate) runtime_name: &'a str,
    pub(crate) now: Time,
    /// The worker will start no container of the pod again.
    pub(crate) ended: bool,
    /// Why the node ends the pod: evicted, preempted, shut down, or past its deadline.
    pub(crate) failed: Option<&'a PodFailure>,
    pub(crate) resize: Resize<'a>,
    /// The runtime mounts read-only volumes recursively; `None` while that is not known.
    pub(crate) recursive_read_only: Option<bool>,
    /// The resources last given to the runtime, if known.
    pub(crate) actuated: Option<&'a PodResourceInfo>,
    /// Devices of all its containers.
    pub(crate) devices: &'a [AllocatedDevices],
    /// Ids of the instances that the worker's current sync replaces.
    pub(crate) replaced: &'a [String],
    /// Shows the condition `PodReadyToStartContainers`.
    pub(crate) shows_sandbox: bool,
    /// Conditions that upstream does not have.
    pub(crate) own_conditions: &'a [OwnCondition],
}

/// A condition of the pod that upstream does not have, and that no other part of its status tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnCondition {
    pub(crate) kind: &'static str,
    pub(crate) status: ConditionStatus,
    pub(crate) reason: Reason,
    pub(crate) message: String,
}

/// A pending or running resize.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Resize<'a> {
    /// Why the resize is not possible now, and the pod's generation that requests it.
    pub(crate) pending: Option<(&'a Reason, &'a str, i64)>,
    pub(crate) progress: ResizeProgress<'a>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ResizeProgress<'a> {
    #[default]
    None,
    /// In progress, with the pod's generation that requested it.
    InProgress(i64),
    /// Failed, and will be retried: the error, and the generation as for [`Self::InProgress`].
    Failed(&'a str, i64),
}

/// Why the node terminates or rejects a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodFailure {
    pub(crate) reason: Reason,
    pub(crate) message: Cow<'static, str>,
    /// Message of the `DisruptionTarget` condition, if the pod is terminated in favour of others.
    pub(crate) disruption: Option<Cow<'static, str>>,
}

pub(crate) fn pod_status(input: &StatusInput<'_>) -> PodStatus {
    let pod = input.pod;
    let previous = input.previous.unwrap_or(&pod.status);
    let restarting_all = input.is_restarting_all(previous);
    let statuses = |list, before| container_statuses(input, list, restarting_all, before);
    let mut main = statuses(List::Main, &previous.container_statuses);
    let mut init = statuses(List::Init, &previous.init_container_statuses);
    if input.failed.is_some_and(PodFailure::is_rejection) {
        // As upstream's rejectPod: a container that will never be created is not shown as waiting.
        [&mut init, &mut main].into_iter().for_each(|list| list.retain(|status| !never_existed(status)));
    }
    let ephemeral = statuses(List::Ephemeral, &previous.ephemeral_container_statuses);
    let (init_by_name, main_by_name) = (by_name(&init), by_name(&main));
    let progress = Progress {
        init: &init_by_name,
        main: &main_by_name,
        initialized: has_active_main(input),
        ended: input.ended,
        restarting_all: restarts_all(pod, input.observed),
    };
    let seen = phase::phase(pod, progress);
    let (phase, reason, mut message) = settle(input, previous, seen);
    let facts = ConditionInputs {
        pod,
        observed: input.observed,
        phase,
        init: &init_by_name,
        main: &main_by_name,
        previous,
        now: input.now,
        resize: input.resize,
        failed: input.failed,
        shows_sandbox: input.shows_sandbox,
        own: input.own_conditions,
    };
    let mut conditions = conditions::conditions(&facts);
    let messages = conditions.iter_mut().map(|condition| &mut condition.message);
    messages.chain([&mut message]).for_each(|message| text::cut(message, MAX_WAITING_MESSAGE_BYTES));
    let host_ips = addresses::host_ips(input.host_ips);
    let pod_ips = addresses::pod_ips(input, previous);
    let first = |ips: &[api::Ip]| ips.first().map_or_else(String::new, |first| first.ip.clone());
    PodStatus {
        observed_generation: pod.metadata.generation,
        phase,
        conditions,
        message,
        reason,
        host_ip: first(&host_ips),
        host_ips,
        pod_ip: first(&pod_ips),
        pod_ips,
        start_time: previous.start_time.or_else(|| adopted_since(input, phase)).or(Some(input.now)),
        init_container_statuses: init,
        container_statuses: main,
        ephemeral_container_statuses: ephemeral,
        qos_class: Some(api::qos_class(pod)),
        allocated_resources: api::pod_requests(&pod.spec),
        resources: Some(Box::new(resources::pod_resources(input, previous))),
        ..PodStatus::default()
    }
}

/// When an earlier agent created the first sandbox of a pod that runs or has ended: its start time, which no server has.
fn adopted_since(input: &StatusInput<'_>, phase: PodPhase) -> Option<Time> {
    let observed = input.observed;
    let is_its_own = observed.ready_sandbox().is_some() || phase.is_terminal();
    let first = observed.sandboxes.iter().map(|sandbox| sandbox.created_at).filter(|created| *created > 0).min();
    first.filter(|_| is_its_own).map(Time::from_unix_nanos).filter(|created| *created <= input.now)
}

/// Statuses by the names of their containers.
type StatusesByName<'a> = SortedMap<&'a str, &'a ContainerStatus>;

fn by_name(statuses: &[ContainerStatus]) -> StatusesByName<'_> {
    statuses.iter().map(|status| (status.name.as_str(), status)).collect()
}

/// The reported phase with its reason and message. A terminal phase never changes, except that the exits of the containers
/// decide before it is reported, as upstream: an evicted pod whose containers all exit with 0 has succeeded.
fn settle(input: &StatusInput<'_>, previous: &PodStatus, observed_phase: PodPhase) -> (PodPhase, Reason, String) {
    let shown = &input.pod.status;
    let failure = input.failed.filter(|_| !shown.phase.is_terminal());
    let phase = match failure {
        _ if shown.phase.is_terminal() => shown.phase,
        Some(failure) if observed_phase.is_terminal() && !failure.overrides_exits() => observed_phase,
        _ if previous.phase.is_terminal() => previous.phase,
        Some(_) => PodPhase::Failed,
        None => observed_phase,
    };
    if let Some(failure) = failure.filter(|_| phase == PodPhase::Failed) {
        return (phase, failure.reason.clone(), failure.message.clone().into_owned());
    }
    let same_phase = [previous, shown].map(|status| (status.phase == phase).then_some(status));
    let reason = same_phase.into_iter().flatten().map(|status| &status.reason).find(|reason| !reason.is_empty());
    let message = same_phase.into_iter().flatten().map(|status| &status.message).find(|message| !message.is_empty());
    (phase, reason.cloned().unwrap_or_default(), message.cloned().unwrap_or_default())
}

fn never_existed(status: &ContainerStatus) -> bool {
    status.container_id.is_empty()
        && status.last_state.is_none()
        && matches!(status.state, None | Some(ContainerState::Waiting(_)))
}

/// Begins the message of a rejected pod, as upstream.
const REJECTED: &str = "Pod was rejected: ";

impl PodFailure {
    /// A pod that admission rejected.
    pub(crate) fn rejection(reason: Reason, message: &str) -> Self {
        Self { reason, message: [REJECTED, message].concat().into(), disruption: None }
    }

    pub(crate) fn is_rejection(&self) -> bool {
        self.message.starts_with(REJECTED)
    }

    /// Whether the pod has failed even if its containers all exit with 0 (upstream's `PodSyncHandlers`).
    fn overrides_exits(&self) -> bool {
        self.reason == Reason::DEADLINE_EXCEEDED
    }
}

/// Whether a container has exited with a RestartAllContainers rule and still exists; it is removed last.
fn restarts_all(pod: &Pod, observed: &ObservedPod) -> bool {
    let sandbox = observed.newest_sandbox();
    let mut containers = pod.spec.init_containers.iter().chain(&pod.spec.containers);
    containers.any(|container| {
        let newest = observed.container(&container.name);
        let newest = newest.filter(|seen| sandbox.is_some_and(|sandbox| sandbox.id == seen.sandbox_id));
        let exit = newest.and_then(|seen| seen.exit());
        exit.is_some_and(|exit| container.after_exit(pod.spec.restart_policy, exit.code) == AfterExit::RestartAll)
    })
}

/// A main container exists in the current sandbox.
fn has_active_main(input: &StatusInput<'_>) -> bool {
    let Some(sandbox) = input.observed.newest_sandbox() else { return false };
    let is_active = |container: &Container| {
        let mut instances = input.observed.containers.named(&container.name);
        instances.any(|seen| seen.sandbox_id == sandbox.id)
    };
    sandbox.state == crate::state::pods::SandboxState::Ready && input.pod.spec.containers.iter().any(is_active)
}

impl StatusInput<'_> {
    /// All containers of the pod are being restarted, or were when its status was last generated.
    fn is_restarting_all(&self, previous: &PodStatus) -> bool {
        let condition = conditions::find(&previous.conditions, api::conditions::ALL_CONTAINERS_RESTARTING);
        condition.is_some_and(|condition| condition.status == ConditionStatus::True)
            || restarts_all(self.pod, self.observed)
    }

    fn waiting_of(&self, container: &str, backing_off: Option<Duration>) -> Option<Waiting> {
        match backing_off {
            Some(wait) => Some(self.crash_loop(container, wait)),
            None => self.waiting.get(container).cloned(),
        }
    }

    fn crash_loop(&self, container: &str, wait: Duration) -> Waiting {
        let meta = &self.pod.metadata;
        let wait = GoDuration(wait.as_secs());
        let pod = format!("{}_{}({})", meta.name, meta.namespace, meta.uid);
        let message = format!("back-off {wait} restarting failed container={container} pod={pod}");
        Waiting::new(Reason::CRASH_LOOP_BACK_OFF, message)
    }
}

/// Seconds in Go's duration format: `40s`, `2m40s`, `5m0s`.
struct GoDuration(u64);

impl std::fmt::Display for GoDuration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.0 / 60, self.0 % 60) {
            (0, seconds) => write!(f, "{seconds}s"),
            (minutes, seconds) => write!(f, "{minutes}m{seconds}s"),
        }
    }
}

#[cfg(test)]
mod golden_tests;
#[cfg(test)]
mod tests;
