//! Events as JSON, for a file that outlives the agent. Pure.

use std::time::Instant;

use serde_json::{Map, Value, json};

use super::{EventRecord, EventRing, NewEvent};
use crate::state::pods::EventObject;
use crate::types::api::{Event, Time, decode, encode};

/// Which events to store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoredEvents {
    /// Those that the API server does not have.
    Unsent,
    All,
}

/// Flags of a stored event. Only those that hold are written.
const POSTED: &str = "posted";
const UNSENT: &str = "unsent";
const IS_COMBINED: &str = "combined";

impl EventRing {
    /// At most `limit` bytes, oldest first: of the events to send as many of the newest as fit, then of the others.
    pub(crate) fn to_json(&self, which: StoredEvents, limit: usize) -> String {
        let mut texts: Vec<Option<String>> = vec![None; self.events.len()];
        let mut left = limit.saturating_sub("[]".len());
        for is_unsent in [true, false] {
            if !is_unsent && which == StoredEvents::Unsent {
                break;
            }
            for (record, text) in
                self.events.iter().zip(&mut texts).rev().filter(|(record, _)| record.unsent == is_unsent)
            {
                let json = record.to_json().to_string();
                let Some(rest) = left.checked_sub(json.len() + ",\n".len()) else { break };
                left = rest;
                *text = Some(json);
            }
        }
        let texts: Vec<String> = texts.into_iter().flatten().collect();
        format!("[{}]", texts.join(",\n"))
    }

    /// Adds the events of an earlier process. `None` if `text` is not what [`Self::to_json`] returns.
    pub(crate) fn restore(&mut self, text: &[u8], monotonic: Instant) -> Option<()> {
        let stored: Vec<Value> = serde_json::from_slice(text).ok()?;
        let records = stored.into_iter().map(|record| EventRecord::from_json(record, monotonic));
        for mut record in records.collect::<Option<Vec<_>>>()? {
            record.unsent &= self.queue.is_some();
            self.add(record);
        }
        Some(())
    }

    /// Corrects the times of this process's events by `seconds` when the clock is set.
    pub(crate) fn on_clock_set(&mut self, seconds: i64) {
        let corrected = |time: Time| Time::from_unix_seconds(time.unix_seconds().saturating_add(seconds));
        for record in &mut self.events {
            if record.is_first_own {
                record.first = corrected(record.first);
            }
            if record.is_last_own {
                record.last = corrected(record.last);
            }
        }
    }
}

impl EventRecord {
    fn to_json(&self) -> Value {
        let event = encode(&self.event(""));
        let mut json = json!({ "event": event, "number": self.number, "named": self.named.unix_seconds() });
        let flags = [(POSTED, self.posted), (UNSENT, self.unsent), (IS_COMBINED, self.combined)];
        if let Value::Object(fields) = &mut json {
            fields
                .extend(flags.into_iter().filter(|(_, holds)| *holds).map(|(name, _)| (name.to_owned(), true.into())));
        }
        json
    }

    fn from_json(json: Value, monotonic: Instant) -> Option<Self> {
        let Value::Object(mut fields) = json else { return None };
        let event: Event = decode(fields.remove("event")?).ok()?.value;
        let holds = |fields: &Map<String, Value>, flag: &str| fields.get(flag) == Some(&Value::Bool(true));
        let object = event.involved_object;
        Some(Self {
            resource_version: object.resource_version.clone(),
            content: NewEvent {
                object: EventObject {
                    kind: object.kind,
                    namespace: object.namespace,
                    name: object.name,
                    uid: object.uid,
                },
                resource_version: object.resource_version,
                field_path: object.field_path,
                kind: event.event_type,
                reason: event.reason,
                message: event.message,
            },
            count: event.count,
            first: event.first_timestamp?,
            last: event.last_timestamp?,
            // A moment of the monotonic clock cannot be stored: the event counts as recent.
            last_moment: monotonic,
            number: fields.get("number")?.as_u64()?,
            named: Time::from_unix_seconds(fields.get("named")?.as_i64()?),
            combined: holds(&fields, IS_COMBINED),
            unsent: holds(&fields, UNSENT),
            posted: holds(&fields, POSTED),
            is_first_own: false,
            is_last_own: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Clock, new_event, tell_all};
    use super::super::{SendOutcome, UnsentChange};
    use super::*;

    const LARGE_RING_BYTES: usize = 1 << 20;

    fn restarted(clock: &Clock, which: StoredEvents, limit: usize) -> Clock {
        let text = clock.ring.to_json(which, limit);
        let mut restarted = Clock::queueing();
        restarted.ring.restore(text.as_bytes(), restarted.begin).unwrap();
        restarted
    }

    #[test]
    fn unsent_events_are_sent_by_the_next_process_with_their_times() {
        let mut clock = Clock::queueing();
        clock.note(1, new_event("web", "sent"));
        tell_all(&mut clock.ring);
        for second in [100, 160] {
            clock.note(second, new_event("web", "unsent"));
        }
        let mut restarted = restarted(&clock, StoredEvents::Unsent, LARGE_RING_BYTES);
        assert_eq!(restarted.lines(), [("unsent".to_owned(), 2, 100, 160)]);
        assert_eq!(tell_all(&mut restarted.ring), ["+unsent 2"]);
    }

    #[test]
    fn next_process_patches_an_event_that_the_server_has() {
        let mut clock = Clock::queueing();
        clock.note(1, new_event("web", "a"));
        let posted = clock.ring.unsent("n").unwrap();
        clock.ring.sent(&posted, SendOutcome::Accepted);
        clock.note(2, new_event("web", "a"));
        let mut restarted = restarted(&clock, StoredEvents::All, LARGE_RING_BYTES);
        restarted.note(3, new_event("web", "a"));
        let patch = restarted.ring.unsent("n").unwrap();
        assert_eq!((patch.name, patch.count), (posted.name, 3));
        assert!(matches!(patch.change, UnsentChange::Again(_)), "{:?}", patch.change);
    }

    #[test]
    fn newest_unsent_events_come_first_within_the_limit() {
        let mut clock = Clock::queueing();
        clock.note(1, new_event("web", "sent"));
        tell_all(&mut clock.ring);
        for second in 2..7 {
            clock.note(second, new_event(&format!("pod-{second}"), "unsent"));
        }
        let one = clock.ring.events[1].to_json().to_string().len() + 2;
        for (limit, expected) in [(0, 0), (2 * one + 2, 2), (5 * one + 2, 5), (LARGE_RING_BYTES, 6)] {
            let text = clock.ring.to_json(StoredEvents::All, limit);
            assert!(text.len() <= limit.max(2), "{} {limit}", text.len());
            let lines = restarted(&clock, StoredEvents::All, limit).lines();
            assert_eq!(lines.len(), expected, "{limit}");
            assert!(lines.is_empty() || lines.last().unwrap().2 == 6, "{lines:?}");
        }
    }

    #[test]
    fn what_is_no_list_of_events_is_not_restored() {
        for text in
            ["", "{}", "[1]", r#"[{"event":{},"number":1,"named":1}]"#, r#"[{"event":{"count":"x"},"number":1}]"#]
        {
            let mut ring = EventRing::default();
            assert_eq!(ring.restore(text.as_bytes(), Instant::now()), None, "{text}");
            assert_eq!(ring.events("n").count(), 0, "{text}");
        }
    }

    #[test]
    fn node_without_a_cluster_sends_nothing_restored() {
        let mut clock = Clock::queueing();
        clock.note(1, new_event("web", "unsent"));
        let text = clock.ring.to_json(StoredEvents::All, LARGE_RING_BYTES);
        let mut ring = EventRing::default();
        ring.restore(text.as_bytes(), clock.begin).unwrap();
        assert_eq!((ring.unsent("n"), ring.events("n").count()), (None, 1));
    }

    #[test]
    fn clock_that_is_set_corrects_the_times_of_this_process_only() {
        let mut before = Clock::queueing();
        before.note(7, new_event("web", "restored"));
        let mut clock = restarted(&before, StoredEvents::All, LARGE_RING_BYTES);
        clock.note(10, new_event("web", "own"));
        let name = clock.ring.events("n").last().unwrap().metadata.name;
        clock.ring.on_clock_set(1000);
        clock.note(1020, new_event("web", "restored"));
        clock.ring.on_clock_set(5);
        assert_eq!(clock.lines(), [("own".to_owned(), 1, 1015, 1015), ("restored".to_owned(), 2, 7, 1025)]);
        assert_eq!(clock.ring.events("n").next().unwrap().metadata.name, name, "the server may have it by this name");
    }
}
