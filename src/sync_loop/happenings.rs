//! What happens to pods, as it is told in the log: once, however often the same happens in a row.

use std::collections::BTreeMap;

use crate::api::PodUid;
use crate::pods::{EventKind, PodEvent};

/// The last event of each pod, container and reason. Its size has the bound of the pods' own number.
#[derive(Debug, Default)]
pub(super) struct Happenings {
    last: BTreeMap<Key, String>,
}

type Key = (PodUid, Option<String>, String);

impl Happenings {
    pub(super) fn tell(&mut self, pod: &str, event: PodEvent) {
        let PodEvent { pod: uid, container, kind, reason, message } = event;
        let name = container.clone().unwrap_or_default();
        if kind == EventKind::Normal {
            log!(info, &message, pod = pod, container = name, reason = reason);
            // Something new has begun: what goes wrong from now on is news.
            self.last.retain(|(pod, other, _), _| (pod, other) != (&uid, &container));
            return;
        }
        let again = self.last.insert((uid, container, reason.to_string()), message.clone());
        if again.is_some_and(|last| last == message) {
            log!(debug, &message, pod = pod, container = name, reason = reason);
        } else {
            log!(warn, &message, pod = pod, container = name, reason = reason);
        }
    }

    pub(super) fn forget(&mut self, uid: &PodUid) {
        self.last.retain(|(pod, ..), _| pod != uid);
    }
}
