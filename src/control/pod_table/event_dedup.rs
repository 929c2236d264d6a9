//! Logs pod events. A warning that repeats in a row is logged once.

use std::collections::VecDeque;

use crate::state::pods::PodEvent;
use crate::types::api::{EventKind, PodUid, Reason};
use crate::types::sorted::SortedMap;

/// The last warnings of each pod and container, bounded by the number of pods.
#[derive(Debug, Default)]
pub(super) struct EventDedup {
    warned: SortedMap<Key, VecDeque<(Reason, String)>>,
}

type Key = (PodUid, Option<String>);

/// Warnings remembered per container. A persistent failure repeats a few warnings in turn.
const MAX_REMEMBERED_WARNINGS: usize = 6;

impl EventDedup {
    pub(super) fn log_event(&mut self, pod: &str, event: &PodEvent) {
        let PodEvent { pod: uid, container, kind, reason, message } = event;
        let name = container.as_deref().unwrap_or_default();
        match kind {
            // Each of these precedes an event that is logged at info.
            EventKind::Normal if is_step(reason) => {
                log!(debug, message, pod = pod, container = name, reason = reason);
            }
            EventKind::Normal => {
                log!(info, message, pod = pod, container = name, reason = reason);
                // Something new has started: log further warnings again.
                self.warned.remove(&(uid.clone(), container.clone()));
            }
            // Outside a cluster this concerns every pod without a DNS policy.
            EventKind::Warning if *reason == Reason::MISSING_CLUSTER_DNS => {
                log!(debug, message, pod = pod, container = name, reason = reason);
            }
            EventKind::Warning if self.is_news(event) => {
                log!(warn, message, pod = pod, container = name, reason = reason);
            }
            EventKind::Warning => log!(debug, message, pod = pod, container = name, reason = reason),
        }
    }

    fn is_news(&mut self, event: &PodEvent) -> bool {
        let warned = self.warned.entry((event.pod.clone(), event.container.clone())).or_default();
        if warned.iter().any(|(reason, message)| *reason == event.reason && *message == event.message) {
            return false;
        }
        if warned.len() == MAX_REMEMBERED_WARNINGS {
            warned.pop_front();
        }
        warned.push_back((event.reason.clone(), event.message.clone()));
        true
    }

    pub(super) fn forget(&mut self, uid: &PodUid) {
        self.warned.retain(|(pod, _), _| pod != uid);
    }
}

/// Steps towards the start of a container, which is logged itself.
fn is_step(reason: &Reason) -> bool {
    [Reason::PULLING, Reason::PULLED, Reason::BACK_OFF, Reason::CREATED].contains(reason)
}
