//! Rate limit of events sent to the API server. Pure: time is an argument.
//!
//! As client-go's `EventSourceObjectSpamFilter`: a burst per object and event type, then one event per period.
//! Suppressed occurrences are counted and sent with the next event that passes.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::state::pods::EventObject;
use crate::types::api::EventKind;
use crate::types::time::TokenBucket;

/// Token buckets by object, most recently used last.
#[derive(Debug, Default)]
pub(super) struct SpamFilter {
    sources: VecDeque<(EventObject, EventKind, TokenBucket)>,
}

/// `defaultSpamBurst` and `defaultSpamQPS`.
const EVENT_SPAM_BURST: u32 = 25;
const EVENT_SPAM_REFILL_INTERVAL: Duration = Duration::from_secs(300);
/// Maximum number of objects; more than the pods of a node.
const MAX_SPAM_OBJECTS: usize = 512;

impl SpamFilter {
    /// Whether one more event may be sent.
    pub(super) fn may_send(&mut self, object: &EventObject, kind: EventKind, now: Instant) -> bool {
        let index = self.sources.iter().position(|(seen, its, _)| seen == object && *its == kind);
        let former = index.and_then(|index| self.sources.remove(index));
        let mut entry = former.unwrap_or_else(|| {
            (object.clone(), kind, TokenBucket::each(EVENT_SPAM_REFILL_INTERVAL, EVENT_SPAM_BURST, now))
        });
        if self.sources.len() >= MAX_SPAM_OBJECTS {
            self.sources.pop_front();
        }
        let may_send = entry.2.take(now);
        self.sources.push_back(entry);
        may_send
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::api::{ObjectKind, PodUid};

    fn object(name: usize) -> EventObject {
        let name = name.to_string();
        EventObject { kind: ObjectKind::Pod, namespace: String::new(), uid: PodUid::from(name.as_str()), name }
    }

    #[test]
    fn burst_passes_and_then_one_event_in_five_minutes() {
        let mut filter = SpamFilter::default();
        let start = Instant::now();
        let mut told = |name, kind, seconds, tries: usize| {
            let time = start + Duration::from_secs(seconds);
            (0..tries).filter(|_| filter.may_send(&object(name), kind, time)).count()
        };
        assert_eq!(told(1, EventKind::Warning, 0, 100), 25);
        assert_eq!(told(1, EventKind::Warning, 299, 100), 0);
        assert_eq!(told(1, EventKind::Warning, 301, 100), 1);
        assert_eq!(told(1, EventKind::Normal, 301, 100), 25, "another kind");
        assert_eq!(told(2, EventKind::Warning, 301, 100), 25, "another object");
    }

    #[test]
    fn memory_is_bounded() {
        let mut filter = SpamFilter::default();
        let start = Instant::now();
        for name in 0..MAX_SPAM_OBJECTS * 3 {
            assert!(filter.may_send(&object(name), EventKind::Normal, start));
        }
        assert_eq!(filter.sources.len(), MAX_SPAM_OBJECTS);
    }
}
