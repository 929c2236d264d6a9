//! The status to report, given the one at the API server. Pure.
//!
//! Follows upstream's status manager (pkg/kubelet/status/status_manager.go: `mergePodStatus`, `TerminatePod`).

use super::generate::is_own;
use crate::types::api::{
    ConditionStatus, ContainerState, ContainerStateTerminated, ContainerStatus, Pod, PodPhase, PodStatus, Reason, Time,
    conditions,
};

/// Merges `new` into `shown`. `may_run`: a container may be running, so no terminal phase is reported.
pub(crate) fn reported(shown: &PodStatus, new: &PodStatus, may_run: bool, now: Time) -> PodStatus {
    let mut merged = new.clone();
    merged.conditions = shown.conditions.iter().filter(|condition| !is_own(&condition.kind)).cloned().collect();
    let ours = new.conditions.iter().filter(|condition| is_own(&condition.kind));
    merged.conditions.extend(ours.cloned());
    let disruption = |status: &PodStatus| {
        let disruption_target =
            status.conditions.iter().find(|condition| condition.kind == conditions::DISRUPTION_TARGET);
        disruption_target.cloned()
    };
    if let Some(mut disruption) = disruption(new).filter(|_| !may_run) {
        let former_disruption =
            merged.conditions.iter().position(|condition| condition.kind == conditions::DISRUPTION_TARGET);
        let former_disruption = former_disruption.map(|at| merged.conditions.remove(at));
        if former_disruption.is_none_or(|former_disruption| former_disruption.status != disruption.status) {
            disruption.last_transition_time = Some(now);
        }
        merged.conditions.push(disruption);
    }
    // Others take a terminal phase as the release of what the pod uses.
    if may_run && merged.phase.is_terminal() && !shown.phase.is_terminal() {
        merged.phase = shown.phase;
        merged.reason = shown.reason.clone();
        merged.message.clone_from(&shown.message);
    }
    if merged.phase.is_terminal() {
        let reason = if merged.phase == PodPhase::Succeeded { Reason::POD_COMPLETED } else { Reason::POD_FAILED };
        for condition in &mut merged.conditions {
            let is_readiness = [conditions::READY, conditions::CONTAINERS_READY].contains(&&*condition.kind);
            if is_readiness && condition.status != ConditionStatus::False {
                condition.status = ConditionStatus::False;
                condition.reason = reason.clone();
                condition.message = String::new();
                condition.last_transition_time = Some(now);
            }
        }
    }
    merged
}

/// The final status of a pod that has ended for good: containers not seen to exit have an unknown outcome. An outcome in
/// the `previous` status stays, also if the runtime's last list is older and shows that the container runs.
pub(crate) fn terminated(pod: &Pod, status: &PodStatus, previous: Option<&PodStatus>, now: Time) -> PodStatus {
    let mut last = status.clone();
    let main = previous.map(|previous| &*previous.container_statuses).unwrap_or_default();
    let init = previous.map(|previous| &*previous.init_container_statuses).unwrap_or_default();
    if has_initialized(pod, status) {
        last.container_statuses.iter_mut().for_each(|status| lose(status, main, now));
    }
    // Init containers after the last started one were not reached.
    let reached = status.init_container_statuses.iter().rposition(has_begun).map_or(0, |at| at + 1);
    last.init_container_statuses.iter_mut().take(reached).for_each(|status| lose(status, init, now));
    if !last.phase.is_terminal() {
        last.phase = PodPhase::Failed;
    }
    last
}

fn has_initialized(pod: &Pod, status: &PodStatus) -> bool {
    pod.spec.init_containers.is_empty() || status.container_statuses.iter().any(has_begun)
}

fn has_begun(status: &ContainerStatus) -> bool {
    let begun = |state: &Option<ContainerState>| {
        matches!(state, Some(ContainerState::Running(_) | ContainerState::Terminated(_)))
    };
    begun(&status.state) || begun(&status.last_state)
}

fn lose(status: &mut ContainerStatus, previous: &[ContainerStatus], now: Time) {
    let has_ended = |status: &ContainerStatus| matches!(status.state, Some(ContainerState::Terminated(_)));
    if has_ended(status) {
        return;
    }
    let mut same =
        previous.iter().filter(|known| known.name == status.name && known.container_id == status.container_id);
    if let Some(known) = same.find(|known| has_ended(known)) {
        known.clone_into(status);
        return;
    }
    let lost = ContainerStateTerminated {
        exit_code: 137,
        reason: Reason::CONTAINER_STATUS_UNKNOWN,
        message: "The container could not be located when the pod was terminated".to_owned(),
        finished_at: Some(now),
        ..ContainerStateTerminated::default()
    };
    status.state = Some(ContainerState::Terminated(Box::new(lost)));
    status.ready = false;
    status.started = Some(false);
}

#[cfg(test)]
mod tests;
