use serde_json::{Value, json};

use super::*;
use crate::platform::apiserver::{Requester, Status};

fn pods() -> Collection {
    Collection {
        path: "/api/v1/pods".to_owned(),
        field_selector: "spec.nodeName=n".to_owned(),
        bookmarks: true,
        rereads_after_loss: false,
        rank: Rank::Intent,
        requester: Requester::Node,
    }
}

fn value(name: &str, version: u32) -> Value {
    json!({"metadata": {"name": name, "resourceVersion": version.to_string()}})
}

fn object(name: &str, version: u32) -> ObjectText {
    ObjectText::of(&value(name, version))
}

fn end(version: u32) -> WatchEvent {
    let annotations = json!({"k8s.io/initial-events-end": "true"});
    let metadata = json!({"resourceVersion": version.to_string(), "annotations": annotations});
    WatchEvent::Bookmark(ObjectText::of(&json!({"metadata": metadata})))
}

fn refused(code: u16) -> ApiError {
    ApiError::Refused(Box::new(Status { code, ..Status::default() }))
}

/// The next request, as type and query.
fn asked(reflection: &Reflection) -> String {
    let (kind, request) = match reflection.next_request(false, 0) {
        ReflectorRequest::List(request) => ("list", request),
        ReflectorRequest::Watch { request, .. } => ("watch", request),
    };
    let text = format!("{request:?}");
    let path = text.split("path: \"").nth(1).unwrap().split('"').next().unwrap();
    let query = path.split_once("fieldSelector=spec.nodeName%3Dn").unwrap().1;
    format!("{kind} {}", query.replace("&watch=1&timeoutSeconds=1800", ""))
}

const STREAM: &str = "watch &sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

/// The duration of a regular watch.
const LONG: Duration = Duration::from_secs(1800);

#[test]
fn watch_begins_with_initial_events() {
    let mut reflection = Reflection::new(pods());
    assert_eq!(asked(&reflection), STREAM);
    reflection.begun();
    assert_eq!(reflection.watched(WatchEvent::Added(object("a", 3))), None);
    assert_eq!(reflection.watched(end(5)), Some(Change::Replaced(vec![object("a", 3)])));
    assert_eq!(reflection.watched(WatchEvent::Modified(object("a", 6))), Some(Change::Applied(object("a", 6))));
    assert_eq!(reflection.watched(WatchEvent::Deleted(object("a", 7))), Some(Change::Deleted(object("a", 7))));
    assert_eq!(reflection.ended(LONG), Duration::ZERO);
    assert_eq!(asked(&reflection), "watch &resourceVersion=7&allowWatchBookmarks=true");
}

#[test]
fn tenants_object_is_watched_without_bookmarks() {
    let mut reflection = Reflection::new(Collection { bookmarks: false, requester: Requester::Tenant, ..pods() });
    assert_eq!(asked(&reflection), "list &limit=250");
    let list = json!({"metadata": {"resourceVersion": "5"}, "items": [value("a", 3)]});
    assert_eq!(reflection.listed(&ObjectText::of(&list)).unwrap(), Some(Change::Replaced(vec![object("a", 3)])));
    assert_eq!(asked(&reflection), "watch &resourceVersion=5");
}

#[test]
fn changed_history_starts_over() {
    let mut reflection = Reflection::new(pods());
    reflection.begun();
    reflection.watched(end(5));
    reflection.start_over();
    assert_eq!((asked(&reflection).as_str(), reflection.ended(LONG)), (STREAM, Duration::ZERO));
    reflection.begun();
    reflection.watched(WatchEvent::Added(object("a", 3)));
    reflection.start_over();
    assert_eq!((asked(&reflection).as_str(), reflection.ended(LONG)), (STREAM, Duration::ZERO));
}

#[test]
fn failed_watch_resumes_without_a_list() {
    let mut reflection = Reflection::new(pods());
    reflection.begun();
    reflection.watched(end(5));
    for error in [ApiError::Lost("reset".into()), ApiError::Timeout, refused(500), refused(401), refused(429)] {
        reflection.failed(&error, LONG);
        assert_eq!(asked(&reflection), "watch &resourceVersion=5&allowWatchBookmarks=true");
    }
}

#[test]
fn collection_is_read_again_after_a_lost_connection_if_it_wants() {
    for (rereads_after_loss, lost) in [(false, "watch &resourceVersion=5&allowWatchBookmarks=true"), (true, STREAM)] {
        for error in [ApiError::Lost("reset".into()), ApiError::Timeout, ApiError::Unreachable("no route".into())] {
            let mut reflection = Reflection::new(Collection { rereads_after_loss, ..pods() });
            reflection.begun();
            reflection.watched(end(5));
            assert_eq!(reflection.ended(LONG), Duration::ZERO);
            reflection.failed(&refused(500), LONG);
            assert_eq!(asked(&reflection), "watch &resourceVersion=5&allowWatchBookmarks=true");
            reflection.failed(&error, LONG);
            assert_eq!(asked(&reflection), lost);
        }
    }
}

#[test]
fn list_follows_a_watch_line_that_cannot_be_read() {
    let unreadable = ApiError::Malformed("watch line too long".into());
    let begun = || {
        let mut reflection = Reflection::new(pods());
        reflection.begun();
        reflection
    };
    let mut watching = begun();
    watching.watched(end(5));
    for mut reflection in [begun(), watching] {
        // Events of other objects arrive before the line.
        reflection.watched(WatchEvent::Added(object("a", 3)));
        assert_eq!(reflection.failed(&unreadable, LONG), FIRST_REFLECTOR_DELAY);
        assert_eq!(asked(&reflection), "list &limit=250");
        let list = json!({"metadata": {"resourceVersion": "9"}, "items": [value("b", 8)]});
        let replaced = Change::Replaced(vec![object("b", 8)]);
        assert_eq!(reflection.listed(&ObjectText::of(&list)).unwrap(), Some(replaced));
        assert_eq!(asked(&reflection), "watch &resourceVersion=9&allowWatchBookmarks=true");
    }
}

#[test]
fn pages_that_cannot_be_read_get_smaller_and_grow_after_a_list() {
    let mut reflection = Reflection::new(pods());
    reflection.failed(&refused(400), LONG);
    let unreadable = ApiError::Malformed("longer than 33554432 bytes".into());
    let fail = |reflection: &mut Reflection| {
        reflection.page_unread();
        reflection.failed(&unreadable, LONG);
        asked(reflection)
    };
    let page = |mark: &str| ObjectText::of(&json!({"metadata": {"continue": mark}, "items": []}));
    assert_eq!(fail(&mut reflection), "list &limit=31");
    reflection.listed(&page("m")).unwrap();
    assert_eq!(asked(&reflection), "list &limit=31&continue=m");
    for limit in [3, 1, 1] {
        assert_eq!(fail(&mut reflection), format!("list &limit={limit}"));
    }
    for limit in [8, 64, 250, 250] {
        reflection.listed(&page("")).unwrap();
        assert_eq!(asked(&reflection), format!("list &limit={limit}"));
    }
}

#[test]
fn expired_version_starts_over_at_once() {
    let mut reflection = Reflection::new(pods());
    reflection.begun();
    reflection.watched(end(5));
    assert_eq!(reflection.failed(&refused(410), LONG), Duration::ZERO);
    assert_eq!(asked(&reflection), STREAM);
    reflection.begun();
    // The second time in a row it waits.
    assert!(reflection.failed(&refused(410), LONG) > Duration::ZERO);
}

#[test]
fn watch_that_ends_within_initial_events_is_discarded() {
    let mut reflection = Reflection::new(pods());
    reflection.begun();
    reflection.watched(WatchEvent::Added(object("a", 3)));
    assert!(reflection.ended(LONG) > Duration::ZERO);
    assert_eq!(asked(&reflection), STREAM);
    reflection.begun();
    assert_eq!(reflection.watched(end(5)), Some(Change::Replaced(Vec::new())));
}

#[test]
fn without_initial_events_pages_are_listed() {
    let mut reflection = Reflection::new(pods());
    assert_eq!(reflection.failed(&refused(422), LONG), Duration::ZERO);
    assert_eq!(asked(&reflection), "list &limit=250");
    let page = |mark: &str, name: &str| json!({"metadata": {"resourceVersion": "9", "continue": mark}, "items": [value(name, 1)]});
    assert_eq!(reflection.listed(&ObjectText::of(&page("m", "a"))).unwrap(), None);
    assert_eq!(asked(&reflection), "list &limit=250&continue=m");
    let all = Change::Replaced(vec![object("a", 1), object("b", 1)]);
    assert_eq!(reflection.listed(&ObjectText::of(&page("", "b"))).unwrap(), Some(all));
    assert_eq!(asked(&reflection), "watch &resourceVersion=9&allowWatchBookmarks=true");
}

#[test]
fn incomplete_list_starts_over() {
    let mut reflection = Reflection::new(pods());
    reflection.failed(&refused(400), LONG);
    let page = json!({"metadata": {"continue": "m"}, "items": [value("a", 1)]});
    reflection.listed(&ObjectText::of(&page)).unwrap();
    reflection.failed(&refused(410), LONG);
    assert_eq!(asked(&reflection), "list &limit=250");
    let last = json!({"metadata": {"resourceVersion": "9"}, "items": null});
    assert_eq!(reflection.listed(&ObjectText::of(&last)).unwrap(), Some(Change::Replaced(Vec::new())));
}

#[test]
fn invalid_list_is_not_an_empty_list() {
    for response in [json!({}), json!([]), json!({"items": {}}), json!({"kind": "Status"})] {
        let mut reflection = Reflection::new(pods());
        let error = reflection.listed(&ObjectText::of(&response)).err();
        let is_it = matches!(&error, Some(ApiError::Malformed(why)) if &**why == "expected a list of items");
        assert!(is_it, "{response}: {error:?}");
    }
}

#[test]
fn very_short_watches_back_off() {
    let mut reflection = Reflection::new(pods());
    reflection.begun();
    reflection.watched(end(5));
    let short = Duration::from_millis(20);
    assert_eq!(reflection.ended(LONG), Duration::ZERO);
    let waits: Vec<Duration> = (0..3).map(|_| reflection.ended(short)).collect();
    assert_eq!(waits, [FIRST_REFLECTOR_DELAY, FIRST_REFLECTOR_DELAY * 2, FIRST_REFLECTOR_DELAY * 4]);
    // Connections that are lost at once are no different.
    assert_eq!(reflection.failed(&ApiError::NeverSent, short), FIRST_REFLECTOR_DELAY * 8);
    assert_eq!(reflection.failed(&ApiError::NeverSent, LONG), Duration::ZERO);
}

#[test]
fn repeatedly_expired_versions_back_off() {
    let mut reflection = Reflection::new(pods());
    let short = Duration::from_millis(20);
    let begin = |reflection: &mut Reflection| {
        reflection.begun();
        reflection.watched(end(5));
    };
    begin(&mut reflection);
    assert_eq!(reflection.failed(&refused(410), short), Duration::ZERO);
    begin(&mut reflection);
    assert_eq!(reflection.failed(&refused(410), short), FIRST_REFLECTOR_DELAY);
    begin(&mut reflection);
    assert_eq!(reflection.failed(&refused(410), LONG), Duration::ZERO);
}

#[test]
fn watch_may_exceed_its_duration_by_a_minute() {
    let limit = |once| match Reflection::new(pods()).next_request(once, 5) {
        ReflectorRequest::Watch { limit, .. } => Some(limit),
        ReflectorRequest::List(_) => None,
    };
    assert_eq!(limit(false), Some(Duration::from_secs(1805 + 60)));
}

#[test]
fn list_without_a_version_starts_over_after_a_delay() {
    let mut reflection = Reflection::new(pods());
    reflection.failed(&refused(400), Duration::ZERO);
    for least in [FIRST_REFLECTOR_DELAY, FIRST_REFLECTOR_DELAY * 2] {
        let listed = reflection.listed(&ObjectText::of(&json!({"metadata": {}, "items": []})));
        assert_eq!(listed.unwrap(), Some(Change::Replaced(vec![])));
        assert_eq!(reflection.after_list(), least);
    }
    let page = json!({"metadata": {"continue": "x"}, "items": []});
    assert_eq!(reflection.listed(&ObjectText::of(&page)).unwrap(), None);
    assert_eq!(reflection.after_list(), Duration::ZERO);
}

#[test]
fn oversized_lists_start_over_after_a_delay() {
    for (items, most) in [(50_000, 2), (0, MAX_LIST_PAGES)] {
        let mut reflection = Reflection::new(pods());
        reflection.failed(&refused(400), Duration::ZERO);
        let page = json!({"metadata": {"continue": "x"}, "items": vec![Value::Null; items]});
        for _ in 0..most {
            assert_eq!(reflection.listed(&ObjectText::of(&page)).unwrap(), None);
        }
        let error = reflection.listed(&ObjectText::of(&page)).unwrap_err();
        assert_eq!(reflection.failed(&error, Duration::ZERO), FIRST_REFLECTOR_DELAY);
        assert_eq!(asked(&reflection), "list &limit=250");
    }
}
