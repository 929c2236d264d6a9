//! The status of a pod, from its spec, from what is seen of it and from what was reported before. Pure.
//!
//! Nothing here is a position that could be lost: the same spec and the same sight give the same status, after a
//! restart of this process too. What is taken over from the status before is what the runtime forgets (ended
//! containers, addresses) and what never changes again (a terminal phase, the start time).

mod addresses;
mod conditions;
mod container_statuses;
mod phase;
mod resources;

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::Duration;

use crate::kubelet::probes::Probed;
use crate::state::pods::{AllocatedDevices, ObservedPod, Waiting};
use crate::types::api::{self, Pod, PodPhase, PodStatus, Reason, Time};
use crate::types::sorted::SortedMap;

use conditions::Facts;
pub(super) use conditions::is_own;
use container_statuses::{List, container_statuses};
use phase::Progress;

/// All that a status comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StatusInput<'a> {
    /// As its source has it; its own status is what the API server shows.
    pub(crate) pod: &'a Pod,
    pub(crate) observed: &'a ObservedPod,
    /// The status that was generated last.
    pub(crate) previous: Option<&'a PodStatus>,
    /// Why containers wait, from the last try to start them.
    pub(crate) waiting: &'a SortedMap<String, Waiting>,
    /// The containers in crash-loop back-off, and how long that is.
    pub(crate) backing_off: &'a [(String, Duration)],
    /// What probes have found; a container that none is about is started and ready once it runs.
    pub(crate) probed: &'a SortedMap<String, Probed>,
    /// One address, or one of each family, the node's main one first.
    pub(crate) host_ips: &'a [IpAddr],
    /// The scheme of container ids, as `containerd`.
    pub(crate) runtime_name: &'a str,
    pub(crate) now: Time,
    /// No container of the pod will be started again.
    pub(crate) ended: bool,
    /// Why the pod has failed, whatever its containers do: it was evicted, or has outlived its deadline.
    pub(crate) failed: Option<&'a Failed>,
    pub(crate) resize: Resize<'a>,
    /// Of all of its containers.
    pub(crate) devices: &'a [AllocatedDevices],
}

/// Other resources that a pod waits for, or is being given.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Resize<'a> {
    /// Why it does not get them now.
    pub(crate) pending: Option<(&'a Reason, &'a str)>,
    pub(crate) progress: ResizeProgress<'a>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ResizeProgress<'a> {
    #[default]
    None,
    Goes,
    /// It is tried again.
    Failed(&'a str),
}

/// Why the node ends a pod or does not take it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) reason: Reason,
    pub(crate) message: Cow<'static, str>,
    /// Set if the node ends the pod for the sake of others: what the condition `DisruptionTarget` says.
    pub(crate) disruption: Option<Cow<'static, str>>,
}

/// The status of the pod.
pub(crate) fn pod_status(input: &StatusInput<'_>) -> PodStatus {
    let pod = input.pod;
    let previous = input.previous.unwrap_or(&pod.status);
    let main = container_statuses(input, List::Main, &previous.container_statuses);
    let init = container_statuses(input, List::Init, &previous.init_container_statuses);
    let ephemeral = container_statuses(input, List::Ephemeral, &previous.ephemeral_container_statuses);
    let progress = Progress { init: &init, main: &main, initialized: has_active_main(input), ended: input.ended };
    let seen = phase::phase(pod, progress);
    let (phase, reason, message) = settle(input, previous, seen);
    let facts = Facts {
        pod,
        observed: input.observed,
        phase,
        init: &init,
        main: &main,
        previous,
        now: input.now,
        resize: input.resize,
        failed: input.failed,
    };
    let conditions = conditions::conditions(&facts);
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
        start_time: previous.start_time.or(Some(input.now)),
        init_container_statuses: init,
        container_statuses: main,
        ephemeral_container_statuses: ephemeral,
        qos_class: Some(api::qos_class(pod)),
        allocated_resources: api::pod_requests(&pod.spec),
        resources: Some(Box::new(resources::pod_resources(input, previous))),
        ..PodStatus::default()
    }
}

/// The phase that is reported, with the words that belong to it. A terminal phase never changes again.
fn settle(input: &StatusInput<'_>, previous: &PodStatus, seen: PodPhase) -> (PodPhase, Reason, String) {
    let shown = &input.pod.status;
    let terminal = [shown, previous].into_iter().find(|status| status.phase.is_terminal());
    let phase = match (terminal, input.failed) {
        (Some(status), _) => status.phase,
        (None, Some(Failed { reason, message, .. })) => {
            return (PodPhase::Failed, reason.clone(), message.clone().into_owned());
        }
        (None, None) => seen,
    };
    let told = [terminal.unwrap_or(previous), shown].map(|status| (status.phase == phase).then_some(status));
    let reason = told.into_iter().flatten().map(|status| &status.reason).find(|reason| !reason.is_empty());
    let message = told.into_iter().flatten().map(|status| &status.message).find(|message| !message.is_empty());
    (phase, reason.cloned().unwrap_or_default(), message.cloned().unwrap_or_default())
}

/// A main container was made in the sandbox of now.
fn has_active_main(input: &StatusInput<'_>) -> bool {
    let Some(sandbox) = input.observed.newest_sandbox() else { return false };
    let is_main = |name: &str| input.pod.spec.containers.iter().any(|container| container.name == name);
    sandbox.state == crate::state::pods::SandboxState::Ready
        && input.observed.containers.iter().any(|seen| seen.sandbox_id == sandbox.id && is_main(&seen.name))
}

impl StatusInput<'_> {
    fn waiting_of(&self, container: &str) -> Option<Waiting> {
        match self.backing_off.iter().find(|(name, _)| name == container) {
            Some((_, wait)) => Some(self.crash_loop(container, *wait)),
            None => self.waiting.get(container).cloned(),
        }
    }

    fn crash_loop(&self, container: &str, wait: Duration) -> Waiting {
        let meta = &self.pod.metadata;
        let wait = Minutes(wait.as_secs());
        let pod = format!("{}_{}({})", meta.name, meta.namespace, meta.uid);
        let message = format!("back-off {wait} restarting failed container={container} pod={pod}");
        Waiting::new(Reason::CRASH_LOOP_BACK_OFF, message)
    }
}

/// So many seconds as Go prints them: `40s`, `2m40s`, `5m0s`.
struct Minutes(u64);

impl std::fmt::Display for Minutes {
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
