//! The container runtime's part in node readiness. Pure: time is an argument.
//!
//! Messages and grace period are those of pkg/kubelet/runtime.go. A restarted runtime is back within seconds, and the
//! pods of a node that is not ready are removed from every Service, so an outage counts only after a grace period.

use std::time::{Duration, Instant};

use crate::state::pods::RuntimeState;

/// `maxWaitForContainerRuntime`.
const RUNTIME_HEALTH_WAIT: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(crate) struct RuntimeHealth {
    /// The runtime's last reported state; `None` before the first.
    reported: Option<RuntimeState>,
    /// Start of the outage, in which it was not reachable or not ready.
    missing: Option<Instant>,
    /// It was reachable and ready at least once.
    was_ready: bool,
}

impl RuntimeHealth {
    pub(crate) fn note(&mut self, state: RuntimeState, now: Instant) {
        let reached = !state.name.is_empty();
        if reached && state.ready {
            self.missing = None;
            self.was_ready = true;
        } else {
            self.missing.get_or_insert(now);
        }
        if reached {
            self.reported = Some(state);
        }
    }

    /// The runtime's last reported state.
    pub(crate) fn last_reported(&self) -> Option<&RuntimeState> {
        self.reported.as_ref()
    }

    /// Why the node is not ready because of the runtime.
    pub(crate) fn faults(&self, now: Instant) -> Vec<String> {
        let mut faults = Vec::new();
        if !self.was_ready {
            faults.push("container runtime status check may not have completed yet".to_owned());
        } else if self.missing.is_some_and(|since| now >= since + RUNTIME_HEALTH_WAIT) {
            faults.push("container runtime is down".to_owned());
        }
        match &self.reported {
            None => faults.push("network state unknown".to_owned()),
            Some(reported) => {
                if !reported.ready {
                    faults.push(format!("container runtime not ready: {}", reported.ready_fault));
                }
                if !reported.network_ready {
                    faults.push(format!("container runtime network not ready: {}", reported.network_fault));
                }
            }
        }
        faults
    }

    /// The end of the grace period; `faults` changes over time only then.
    pub(crate) fn due(&self, now: Instant) -> Option<Instant> {
        let due = self.missing.filter(|_| self.was_ready)? + RUNTIME_HEALTH_WAIT;
        (due > now).then_some(due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready() -> RuntimeState {
        let name = "containerd".to_owned();
        RuntimeState { name, ready: true, network_ready: true, ..RuntimeState::default() }
    }

    #[test]
    fn unknown_runtime_is_reported_as_not_checked() {
        let mut health = RuntimeHealth::default();
        let now = Instant::now();
        let faults = ["container runtime status check may not have completed yet", "network state unknown"];
        assert_eq!(health.faults(now), faults);
        health.note(RuntimeState::default(), now);
        assert_eq!(health.faults(now + RUNTIME_HEALTH_WAIT), faults);
        assert_eq!(health.due(now), None);
        health.note(ready(), now);
        assert!(health.faults(now).is_empty());
    }

    #[test]
    fn runtime_restart_is_tolerated_for_half_a_minute() {
        let mut health = RuntimeHealth::default();
        let start = Instant::now();
        health.note(ready(), start);
        health.note(RuntimeState::default(), start);
        // A second failure does not restart the grace period.
        health.note(
            RuntimeState { message: "refused".to_owned(), ..RuntimeState::default() },
            start + RUNTIME_HEALTH_WAIT / 2,
        );
        assert!(health.faults(start + RUNTIME_HEALTH_WAIT - Duration::from_millis(1)).is_empty());
        assert_eq!(health.due(start), Some(start + RUNTIME_HEALTH_WAIT));
        assert_eq!(health.faults(start + RUNTIME_HEALTH_WAIT), ["container runtime is down"]);
        assert_eq!(health.due(start + RUNTIME_HEALTH_WAIT), None);
        health.note(ready(), start + RUNTIME_HEALTH_WAIT);
        assert!(health.faults(start + RUNTIME_HEALTH_WAIT).is_empty());
    }

    #[test]
    fn runtime_not_ready_counts_at_once() {
        let mut health = RuntimeHealth::default();
        let now = Instant::now();
        health.note(ready(), now);
        let network_fault = "NetworkReady=false reason:NetworkPluginNotReady message:no CNI".to_owned();
        health.note(RuntimeState { network_ready: false, network_fault, ..ready() }, now);
        let fault =
            "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:no CNI";
        assert_eq!(health.faults(now), [fault]);
        let ready_fault = "<nil>".to_owned();
        health.note(RuntimeState { ready: false, ready_fault, ..ready() }, now);
        assert_eq!(health.faults(now), ["container runtime not ready: <nil>"]);
        assert_eq!(health.faults(now + RUNTIME_HEALTH_WAIT).len(), 2);
        assert_eq!(health.last_reported().map(|reported| reported.name.as_str()), Some("containerd"));
    }
}
