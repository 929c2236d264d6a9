//! Problems that only warnings tell: volumes, sandboxes, claims, and pods that do not end. Pure.

use super::advice::{CREATE_IN_CLUSTER, CREATE_ON_NODE};
use super::{PATIENCE_SECONDS, PodProblem, PodSituation, innermost, is_older};
use crate::state::pods::PodWarning;
use crate::types::api::{ConditionStatus, ContainerState, Pod, PodStatus, Reason, Time, conditions};

/// A warning that was not repeated for this long is over. Upstream repeats failed mounts after at most 2m2s.
const OVER_SECONDS: i64 = 180;
/// The same while the pod has no sandbox: the call that creates one may take four minutes before it fails.
const OVER_WITHOUT_SANDBOX_SECONDS: i64 = 600;

/// The newest warning about a failed probe of the container. `kind`: `Liveness`, `Readiness` or `Startup`.
pub(super) fn latest_probe<'a>(
    warnings: &'a [PodWarning<'a>],
    container: &str,
    kind: &str,
) -> Option<&'a PodWarning<'a>> {
    let is_it = |warning: &&PodWarning<'_>| {
        *warning.reason == Reason::UNHEALTHY && is_of(warning, container) && warning.text().starts_with(kind)
    };
    warnings.iter().rev().find(is_it)
}

/// The newest warning about the container's postStart hook.
pub(super) fn latest_post_start_hook<'a>(
    warnings: &'a [PodWarning<'a>],
    container: &str,
) -> Option<&'a PodWarning<'a>> {
    let is_it =
        |warning: &&PodWarning<'_>| *warning.reason == Reason::FAILED_POST_START_HOOK && is_of(warning, container);
    warnings.iter().rev().find(is_it)
}

fn is_of(warning: &PodWarning<'_>, container: &str) -> bool {
    let rest = warning.field_path.split_once('{').map(|(_, rest)| rest);
    rest.and_then(|rest| rest.strip_suffix('}')) == Some(container)
}

fn is_current(warning: &PodWarning<'_>, now: Time) -> bool {
    !is_older(OVER_SECONDS, Some(warning.last), now)
}

/// A step before the containers that fails again and again.
pub(super) fn while_starting(situation: PodSituation<'_>) -> Option<PodProblem> {
    let PodSituation { pod, status, warnings, now, .. } = situation;
    let mut last_end = None;
    for container in status.init_container_statuses.iter().chain(&status.container_statuses) {
        match &container.state {
            Some(ContainerState::Running(_)) => return None,
            Some(ContainerState::Terminated(ended)) => last_end = last_end.max(ended.finished_at),
            _ => {}
        }
    }
    let has_sandbox = has_sandbox(status);
    let is_now = |warning: &&PodWarning<'_>| match has_sandbox {
        // A container that has ended since was started by a later attempt.
        true => is_current(warning, now) && last_end.is_none_or(|end| end < warning.last),
        false => !is_older(OVER_WITHOUT_SANDBOX_SECONDS, Some(warning.last), now),
    };
    let warning = warnings.iter().rev().find(|warning| is_step(warning.reason) && is_now(warning))?;
    if !is_older(PATIENCE_SECONDS, Some(warning.first), now) {
        return None;
    }
    let cause = innermost(shortened(warning.text()));
    Some(PodProblem {
        reason: warning.reason.as_str().to_owned(),
        advice: advice(warning.reason, &cause, pod).to_owned(),
        cause,
        since: warning.first.to_string(),
        ..PodProblem::default()
    })
}

/// Containers that have ended may be those of a former sandbox, as after a reboot.
fn has_sandbox(status: &PodStatus) -> bool {
    let ready = status.conditions.iter().find(|one| one.kind == conditions::POD_READY_TO_START_CONTAINERS);
    ready.is_none_or(|condition| condition.status == ConditionStatus::True)
}

/// A pod that cannot be ended.
pub(super) fn while_terminating(situation: PodSituation<'_>) -> Option<PodProblem> {
    let PodSituation { warnings, now, .. } = situation;
    let warning = warnings.iter().rev().find(|warning| {
        [Reason::FAILED_KILL_POD, Reason::EXCEEDED_GRACE_PERIOD].contains(warning.reason) && is_current(warning, now)
    })?;
    is_older(PATIENCE_SECONDS, Some(warning.first), now).then(|| PodProblem {
        reason: warning.reason.as_str().to_owned(),
        cause: format!("the pod cannot be stopped: {}", innermost(warning.message)),
        advice: "see `coracle status` for the state of the runtime".to_owned(),
        since: warning.first.to_string(),
        ..PodProblem::default()
    })
}

/// Reasons of warnings about steps before the first container.
fn is_step(reason: &Reason) -> bool {
    [
        Reason::FAILED_ATTACH_VOLUME,
        Reason::FAILED_CREATE_POD_CONTAINER,
        Reason::FAILED_CREATE_POD_SANDBOX,
        Reason::FAILED_MAP_VOLUME,
        Reason::FAILED_MOUNT,
        Reason::FAILED_PREPARE_DYNAMIC_RESOURCES,
        Reason::FAILED_SYNC,
        Reason::FAILED_VALIDATION,
        Reason::NETWORK_NOT_READY,
    ]
    .contains(reason)
}

/// `MountVolume.SetUp failed for volume "a" : secret "b" not found` without the step's name.
fn shortened(message: &str) -> &str {
    let Some(rest) = message.strip_prefix("MountVolume.SetUp failed for ") else { return message };
    rest
}

fn advice(reason: &Reason, cause: &str, pod: &Pod) -> &'static str {
    let has = |phrases: &[&str]| phrases.iter().any(|phrase| cause.contains(phrase));
    match reason.as_str() {
        "NetworkNotReady" => "install a CNI plugin and its configuration in /etc/cni/net.d",
        "FailedCreatePodSandBox" if has(&["cni", "network", "plugin"]) => {
            "check the CNI configuration in /etc/cni/net.d and the plugins in /opt/cni/bin"
        }
        "FailedCreatePodSandBox" if has(&["pause", "image", "pull"]) => {
            "the runtime's sandbox image is missing: import it, or let the node reach its registry"
        }
        "FailedCreatePodSandBox" if has(&["no runtime for", "runtime handler"]) => {
            "configure this handler in the runtime, or remove runtimeClassName"
        }
        "FailedCreatePodSandBox" => "see the runtime's log",
        "FailedSync" if has(&["device"]) => {
            "start its device plugin, or write a devices rule into coracle.yaml: coracle devices lists what there is"
        }
        "FailedPrepareDynamicResources" => "check the ResourceClaim and its DRA driver",
        "FailedMount" if has(&["secret", "configmap", "Secret", "ConfigMap"]) => {
            if pod.is_of_cluster() {
                CREATE_IN_CLUSTER
            } else {
                CREATE_ON_NODE
            }
        }
        "FailedMount" if has(&["hostPath"]) => "create the path on the node, or use type DirectoryOrCreate",
        "FailedMount" if has(&["context deadline exceeded"]) => {
            "check the file servers and drivers of these volumes: a file system or driver does not answer"
        }
        "FailedMount" | "FailedAttachVolume" | "FailedMapVolume" => "check the volume that the message names",
        _ => "",
    }
}
