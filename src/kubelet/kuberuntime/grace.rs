//! Grace periods and messages of killed containers. Pure.

use std::time::Duration;

use crate::kubelet::kuberuntime::ContainerIndex;
use crate::kubelet::kuberuntime::pod_actions::KillReason;
use crate::state::pods::ProbeKind;
use crate::types::api::{Container, Pod, grace_of_seconds};

/// The grace period of a container that is killed while its pod continues: that of the failed probe, else the pod's.
/// The grace period of a deletion takes precedence over both. A restart of all containers gives none.
pub(super) fn grace_of_kill(pod: &Pod, container: &Container, why: KillReason) -> Duration {
    if why == KillReason::RestartsAll {
        return Duration::ZERO;
    }
    let probe = match why {
        KillReason::FailedProbe(ProbeKind::Startup) => &container.startup_probe,
        KillReason::FailedProbe(ProbeKind::Liveness) => &container.liveness_probe,
        KillReason::FailedProbe(ProbeKind::Readiness)
        | KillReason::DefinitionChanged
        | KillReason::Requested
        | KillReason::RestartsAll
        | KillReason::Resized
        | KillReason::StateUnknown => &None,
    };
    let of_probe = probe.as_ref().and_then(|probe| probe.termination_grace_period_seconds);
    let seconds = pod.metadata.deletion_grace_period_seconds.or(of_probe);
    seconds.map_or_else(|| pod.spec.termination_grace(), grace_of_seconds)
}

impl KillReason {
    /// The message of the `Killing` event, as upstream.
    pub(super) fn message(self, container: &str, index: ContainerIndex, restarts: bool) -> String {
        let kind = match index {
            ContainerIndex::Init(_) => "Init container",
            ContainerIndex::Main(_) => "Container",
            ContainerIndex::Ephemeral(_) => "Ephemeral container",
        };
        let restart = if restarts && matches!(index, ContainerIndex::Main(_)) { ", will be restarted" } else { "" };
        match self {
            Self::DefinitionChanged => format!("{kind} {container} definition changed{restart}"),
            Self::FailedProbe(probe) => format!("{kind} {container} failed {} probe{restart}", probe.word()),
            Self::Requested => format!("Stopping container {container} for a requested restart"),
            Self::RestartsAll => format!("{kind} {container} will be restarted with all containers of its pod"),
            Self::Resized => format!("{kind} {container} resize requires restart"),
            Self::StateUnknown => format!("{kind} is in \"unknown\" state, try killing it before restart"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::api::{ExecAction, Probe, ProbeHandler};

    fn probe(grace: Option<i64>) -> Option<Box<Probe>> {
        Some(Box::new(Probe {
            handler: ProbeHandler::Exec(ExecAction::default()),
            initial_delay_seconds: 0,
            timeout_seconds: 1,
            period_seconds: 10,
            success_threshold: 1,
            failure_threshold: 3,
            termination_grace_period_seconds: grace,
        }))
    }

    #[test]
    fn deletion_grace_goes_before_probe_grace_before_pod_grace() {
        let mut pod = Pod::default();
        pod.spec.termination_grace_period_seconds = Some(60);
        let container =
            Container { liveness_probe: probe(Some(5)), startup_probe: probe(None), ..Container::default() };
        let grace = |pod: &Pod, why| grace_of_kill(pod, &container, why).as_secs();
        assert_eq!(grace(&pod, KillReason::FailedProbe(ProbeKind::Liveness)), 5);
        assert_eq!(grace(&pod, KillReason::FailedProbe(ProbeKind::Startup)), 60);
        assert_eq!(grace(&pod, KillReason::DefinitionChanged), 60);
        pod.spec.termination_grace_period_seconds = Some(-1);
        assert_eq!(grace(&pod, KillReason::DefinitionChanged), 1);
        pod.metadata.deletion_grace_period_seconds = Some(7);
        assert_eq!(grace(&pod, KillReason::FailedProbe(ProbeKind::Liveness)), 7);
        assert_eq!(grace(&pod, KillReason::RestartsAll), 0);
    }

    #[test]
    fn message_says_whether_the_container_restarts() {
        let failed = KillReason::FailedProbe(ProbeKind::Liveness);
        let message = |index, restarts| failed.message("main", index, restarts);
        assert_eq!(message(ContainerIndex::Main(0), true), "Container main failed liveness probe, will be restarted");
        assert_eq!(message(ContainerIndex::Main(0), false), "Container main failed liveness probe");
        assert_eq!(message(ContainerIndex::Init(0), true), "Init container main failed liveness probe");
    }
}
