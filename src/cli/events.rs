//! `coracle events`.

use std::process::ExitCode;
use std::thread;

use serde_json::{Value, json};

use super::command_table::Events;
use super::local_api::{WATCH_INTERVAL, get};
use super::outputs::StatusOutput;
use super::pod_name::PodName;
use super::pod_row::age;
use super::table::table;
use super::{colours, failed, print, print_painted};
use crate::platform::host::clock;
use crate::types::api::{Event, ObjectKind, Time, decode, record, to_yaml};
use crate::types::error::ErrorChain;
use crate::types::sorted::SortedMap;

pub(super) fn run(command: &Events) -> ExitCode {
    if command.watch {
        return match command.output {
            StatusOutput::Text => watch(command),
            StatusOutput::Json | StatusOutput::Yaml => failed("events: -w shows a table, leave out -o"),
        };
    }
    let events = match wanted(command) {
        Ok(events) => events,
        Err(line) => return failed(&line),
    };
    print(&match command.output {
        StatusOutput::Text => {
            let text = rows(events.iter().map(|(event, _)| event), clock::now().unix_seconds());
            return print_painted(&text, colours::of_events);
        }
        StatusOutput::Json => serde_json::to_string_pretty(&list(events)).unwrap_or_default() + "\n",
        StatusOutput::Yaml => to_yaml(&list(events)),
    })
}

/// The requested events, oldest first.
fn wanted(command: &Events) -> Result<Vec<(Event, Value)>, String> {
    let response =
        get::<EventsResponse>(&command.local_socket, "/events").map_err(|error| ErrorChain(&error).to_string())?;
    let namespace = command.namespace.as_deref().filter(|_| !command.all_namespaces);
    let pod = command.pod.as_deref().map(|pod| PodName::new(pod, namespace));
    let wanted = |event: &Event| match &pod {
        Some(pod) => is_about(event, pod),
        None => namespace.is_none_or(|namespace| *namespace == event.involved_object.namespace),
    };
    Ok(response.events().filter(|(event, _)| wanted(event)).collect())
}

/// Prints the events, then each new one and each repetition. Ends with Ctrl-C.
fn watch(command: &Events) -> ExitCode {
    let mut shown: SortedMap<String, String> = SortedMap::new();
    let mut is_first = true;
    loop {
        let events = match wanted(command) {
            Ok(events) => events,
            Err(line) => return failed(&line),
        };
        let version = |event: &Event| event.metadata.resource_version.to_string();
        let is_new = |event: &Event| shown.get(&*event.metadata.name) != Some(&version(event));
        let news: Vec<&Event> = events.iter().map(|(event, _)| event).filter(|event| is_new(event)).collect();
        let text = if news.is_empty() { String::new() } else { rows(news.into_iter(), clock::now().unix_seconds()) };
        let kind = colours::column(&text, "TYPE").unwrap_or_default();
        let skipped = if is_first { 0 } else { 1 };
        let text: String = text.split_inclusive('\n').skip(skipped).collect();
        is_first &= text.is_empty();
        if print_painted(&text, |text| colours::event_rows(text, kind)) != ExitCode::SUCCESS {
            return ExitCode::FAILURE;
        }
        shown = events.iter().map(|(event, _)| (event.metadata.name.clone(), version(event))).collect();
        thread::sleep(WATCH_INTERVAL);
    }
}

record! {
    pub(super) struct EventsResponse {
        items: Vec<Value>,
    }
}

impl EventsResponse {
    /// Oldest first, decoded and raw.
    pub(super) fn events(self) -> impl Iterator<Item = (Event, Value)> {
        // The same binary wrote them. An event that fails to decode is shown with default values.
        self.items.into_iter().map(|item| {
            let event = decode::<Event>(item.clone()).map(|event| event.value).unwrap_or_default();
            (event, item)
        })
    }
}

pub(super) fn is_about(event: &Event, pod: &PodName<'_>) -> bool {
    let object = &event.involved_object;
    object.kind == ObjectKind::Pod && pod.is(&object.namespace, &object.name, &event.source.host)
}

fn list(events: Vec<(Event, Value)>) -> Value {
    let items: Vec<Value> = events.into_iter().map(|(_, item)| item).collect();
    json!({ "apiVersion": "v1", "kind": "EventList", "metadata": {}, "items": items })
}

fn rows<'a>(events: impl Iterator<Item = &'a Event>, now: i64) -> String {
    let head = ["NAMESPACE", "LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for event in events {
        let object = &event.involved_object;
        rows.push(vec![
            object.namespace.clone(),
            last_seen(event, now),
            event.event_type.to_string(),
            event.reason.to_string(),
            format!("{}/{}", object.kind, object.name),
            in_one_line(&event.message),
        ]);
    }
    if rows.len() == 1 { "No events.\n".to_owned() } else { table(&rows) }
}

/// Last time and count, such as `8s (x5 over 94s)`.
pub(super) fn last_seen(event: &Event, now: i64) -> String {
    let since = |time: Option<Time>| {
        time.map_or_else(|| "<unknown>".to_owned(), |time| age(now.saturating_sub(time.unix_seconds())))
    };
    let last = since(event.last_timestamp);
    if event.count > 1 { format!("{last} (x{} over {})", event.count, since(event.first_timestamp)) } else { last }
}

/// Removes control characters: messages of containers and runtimes must not disturb the terminal.
pub(super) fn in_one_line(text: &str) -> String {
    text.trim_end().chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn event(namespace: &str, name: &str, message: &str, count: i32) -> Value {
        json!({
            "kind": "Event", "type": "Warning", "reason": "BackOff", "message": message, "count": count,
            "involvedObject": { "kind": "Pod", "namespace": namespace, "name": name },
            "source": { "component": "kubelet", "host": "n1" },
            "firstTimestamp": "2027-01-15T07:58:00Z", "lastTimestamp": "2027-01-15T07:59:55Z",
        })
    }

    fn events() -> Vec<Event> {
        let items = vec![event("default", "web-n1", "a\nb", 1), event("x", "web-n1", "c", 4)];
        EventsResponse { items }.events().map(|(event, _)| event).collect()
    }

    #[test]
    fn each_event_is_a_row_with_its_count() {
        let text = "\
NAMESPACE   LAST SEEN         TYPE      REASON    OBJECT       MESSAGE
default     5s                Warning   BackOff   Pod/web-n1   a b
x           5s (x4 over 2m)   Warning   BackOff   Pod/web-n1   c
";
        assert_eq!(rows(events().iter(), NOW), text);
        assert_eq!(rows([].iter(), NOW), "No events.\n");
    }

    #[test]
    fn pod_matches_by_its_name_or_manifest_name() {
        let about = |pod: &str, namespace: Option<&str>| {
            events().iter().filter(|event| is_about(event, &PodName::new(pod, namespace))).count()
        };
        assert_eq!((about("web", None), about("web-n1", None), about("web", Some("x"))), (2, 2, 1));
        assert_eq!((about("x/web", None), about("we", None), about("web-n", None)), (1, 0, 0));
    }
}
