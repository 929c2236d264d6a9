//! Reduces an event to what unauthenticated users may see. Pure.

use crate::types::api::{Event, ObjectKind, Reason};

/// Reasons of events of pods whose message is Coracle's, a registry's or a volume's server's. Others are or quote what a
/// probe, a hook or the runtime says, which may contain the output or the command of a container.
const EVENTS_WITH_MESSAGE: [Reason; 76] = [
    Reason::APP_ARMOR,
    Reason::BACKOFF_LIMIT_EXCEEDED,
    Reason::BACK_OFF,
    Reason::CERTIFICATE_EXPIRED,
    Reason::CERTIFICATE_ISSUED,
    Reason::CERTIFICATE_OVERDUE_FOR_REFRESH,
    Reason::CERTIFICATE_REQUEST_FAILED,
    Reason::CHECK_LIMITS_FOR_RESOLV_CONF,
    Reason::CONTAINER_SURVIVED,
    Reason::CREATED,
    Reason::DEADLINE_EXCEEDED,
    Reason::DENIED,
    Reason::DNS_CONFIG_FORMING,
    Reason::EMPTY_POD_SHARED_POOL_ERROR,
    Reason::ERR_IMAGE_NEVER_PULL,
    Reason::EVICTED,
    Reason::EXCEEDED_GRACE_PERIOD,
    Reason::FAILED_ATTACH_VOLUME,
    Reason::FAILED_CREATE,
    Reason::FAILED_MAP_VOLUME,
    Reason::FAILED_MOUNT,
    Reason::FAILED_PREPARE_DYNAMIC_RESOURCES,
    Reason::FAILED_TO_RETRIEVE_IMAGE_PULL_SECRET,
    Reason::FILE_SYSTEM_RESIZE_FAILED,
    Reason::FILE_SYSTEM_RESIZE_SUCCESSFUL,
    Reason::IMAGE_PULL_WAITING,
    Reason::INIT_CONTAINER_RESTART_POLICY_FORBIDDEN,
    Reason::INSPECT_FAILED,
    Reason::JOB_ALREADY_ACTIVE,
    Reason::KILLING,
    Reason::LIFECYCLE_HTTP_FALLBACK,
    Reason::MISSING_CLUSTER_DNS,
    Reason::NETWORK_NOT_READY,
    Reason::NODE_AFFINITY,
    Reason::NODE_NAME,
    Reason::NODE_PORTS,
    Reason::NODE_SHUTDOWN,
    Reason::NOT_REPLACED,
    Reason::ON_TRIAL,
    Reason::POD_FEATURE_UNSUPPORTED,
    Reason::POD_OS_NOT_SUPPORTED,
    Reason::POD_OS_SELECTOR_NODE_LABEL_DOES_NOT_MATCH,
    Reason::PREEMPTING,
    Reason::PULLED,
    Reason::PULLING,
    Reason::RESIZE_COMPLETED,
    Reason::RESIZE_DEFERRED,
    Reason::RESIZE_INFEASIBLE,
    Reason::RESIZE_STARTED,
    Reason::RESUMED,
    Reason::SANDBOX_CHANGED,
    Reason::SIGNATURE_VALIDATION_FAILED,
    Reason::SMT_ALIGNMENT_ERROR,
    Reason::STARTED,
    Reason::STOPPED,
    Reason::SUCCESSFUL_CREATE,
    Reason::SUCCESSFUL_DELETE,
    Reason::SUPPLEMENTAL_GROUPS_POLICY_NOT_SUPPORTED,
    Reason::SUSPENDED,
    Reason::SYSCTL_FORBIDDEN,
    Reason::TAG_LOOKUP_FAILED,
    Reason::TAG_MOVED,
    Reason::TAINT_TOLERATION,
    Reason::TOKEN_EXPIRED,
    Reason::TOO_MANY_MISSED_TIMES,
    Reason::TOPOLOGY_AFFINITY_ERROR,
    Reason::UNEXPECTED_ADMISSION_ERROR,
    Reason::UNKNOWN_TIME_ZONE,
    Reason::UPDATE_ACCEPTED,
    Reason::UPDATE_HELD,
    Reason::UPDATE_LOCK_EXPIRED,
    Reason::UPDATE_LOCK_UNUSABLE,
    Reason::UPDATE_REJECTED,
    Reason::UPDATE_WAITS,
    Reason::VOLUME_ATTACHMENT_LIMIT_EXCEEDED,
    Reason::VOLUME_RESIZE_FAILED,
];
/// What the reasons of pods begin with that ask for more of a resource than the node has.
const OUT_OF: &str = "OutOf";
/// What an event about an image begins with, under a reason that others share. Its message is the registry's.
const OF_IMAGE: &str = "Failed to pull image ";

/// The event, its message without what it quotes. Events of the node are Coracle's own.
pub(super) fn shown_event(mut event: Event) -> Event {
    let is_chosen = event.involved_object.kind == ObjectKind::Node
        || EVENTS_WITH_MESSAGE.contains(&event.reason)
        || event.reason.as_str().starts_with(OUT_OF)
        || event.message.starts_with(OF_IMAGE);
    if !is_chosen {
        let end = event.message.find(':').unwrap_or(event.message.len());
        event.message.truncate(end);
    }
    event
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_probes_and_hooks_is_not_shown() {
        for (reason, message, shown) in [
            (Reason::UNHEALTHY, "Liveness probe failed: words: more", "Liveness probe failed"),
            (
                Reason::UNHEALTHY,
                "Readiness probe errored and resulted in unknown state: words",
                "Readiness probe errored and resulted in unknown state",
            ),
            (Reason::PROBE_WARNING, "Liveness probe warning: words", "Liveness probe warning"),
            (Reason::FAILED_POST_START_HOOK, "PostStartHook failed", "PostStartHook failed"),
            (Reason::FAILED, "Error: exec: \"words\": not found", "Error"),
            (Reason::FAILED, "Failed to pull image \"a:1\": not found", "Failed to pull image \"a:1\": not found"),
            (Reason::FAILED_CREATE_POD_SANDBOX, "Failed to create pod sandbox: words", "Failed to create pod sandbox"),
            ("OutOfcpu".to_owned().into(), "Node: cpu", "Node: cpu"),
            ("NewReason".to_owned().into(), "It failed: words", "It failed"),
            (Reason::KILLING, "Stopping container main: now", "Stopping container main: now"),
        ] {
            let event = Event { reason, message: message.to_owned(), ..Event::default() };
            assert_eq!(shown_event(event).message, shown);
        }
    }

    #[test]
    fn events_of_the_node_are_shown_whole() {
        let mut event = Event { message: "eviction: memory".to_owned(), ..Event::default() };
        event.involved_object.kind = ObjectKind::Node;
        assert_eq!(shown_event(event).message, "eviction: memory");
    }
}
