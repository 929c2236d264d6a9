//! Reduces an event to what unauthenticated users may see. Pure.

use crate::types::api::{Event, Reason};

/// Reasons of events whose message quotes a container: the output of a probe or a hook, or the runtime's error with the
/// command.
const QUOTING: [Reason; 5] = [
    Reason::FAILED,
    Reason::FAILED_POST_START_HOOK,
    Reason::FAILED_PRE_STOP_HOOK,
    Reason::PROBE_WARNING,
    Reason::UNHEALTHY,
];
/// What an event about an image begins with. Its message is the registry's.
const OF_IMAGE: &str = "Failed to pull image ";

/// The event, its message without what it quotes.
pub(super) fn shown_event(mut event: Event) -> Event {
    if QUOTING.contains(&event.reason) && !event.message.starts_with(OF_IMAGE) {
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
            (Reason::KILLING, "Stopping container main: now", "Stopping container main: now"),
        ] {
            let event = Event { reason, message: message.to_owned(), ..Event::default() };
            assert_eq!(shown_event(event).message, shown);
        }
    }
}
