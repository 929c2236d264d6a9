//! Events as `coracle events -o json` shows them.

use serde_json::Value;

/// Events, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Events(pub(crate) Vec<Event>);

#[derive(Clone, Debug)]
pub(crate) struct Event(pub(crate) Value);

impl Events {
    pub(crate) fn parse(text: &str) -> Self {
        let list: Value = serde_json::from_str(text).expect("coracle events -o json is JSON");
        assert_eq!(list["kind"], "EventList");
        Self(list["items"].as_array().into_iter().flatten().cloned().map(Event).collect())
    }

    /// One line for each event, such as `Normal Started spec.containers{main} Container started`.
    pub(crate) fn lines(&self) -> Vec<String> {
        let line = |Event(event): &Event| {
            let word = |value: &Value| value.as_str().unwrap_or("-").to_owned();
            let path = word(&event["involvedObject"]["fieldPath"]);
            format!("{} {} {path} {}", word(&event["type"]), word(&event["reason"]), word(&event["message"]))
        };
        self.0.iter().map(line).collect()
    }

    /// The first event with this reason whose message starts with `message`.
    pub(crate) fn find(&self, reason: &str, message: &str) -> Option<&Event> {
        let is_it = |Event(event): &&Event| {
            event["reason"] == reason && event["message"].as_str().is_some_and(|text| text.starts_with(message))
        };
        self.0.iter().find(is_it)
    }
}

impl Event {
    pub(crate) fn count(&self) -> u64 {
        self.0["count"].as_u64().unwrap_or_default()
    }
}
