use serde_json::json;

use super::*;
use crate::platform::apiserver::Status;

fn pods() -> Collection {
    Collection {
        path: "/api/v1/pods".to_owned(),
        field_selector: "spec.nodeName=n".to_owned(),
        bookmarks: true,
        rank: Rank::Intent,
    }
}

fn object(name: &str, version: u32) -> Value {
    json!({"metadata": {"name": name, "resourceVersion": version.to_string()}})
}

fn end(version: u32) -> WatchEvent {
    let annotations = json!({"k8s.io/initial-events-end": "true"});
    WatchEvent::Bookmark(json!({"metadata": {"resourceVersion": version.to_string(), "annotations": annotations}}))
}

fn refused(code: u16) -> ApiError {
    ApiError::Refused(Box::new(Status { code, ..Status::default() }))
}

/// What is asked, as kind and query.
fn asked(reflection: &Reflection) -> String {
    let (kind, request) = match reflection.ask(false, 0) {
        Ask::List(request) => ("list", request),
        Ask::Watch { request, .. } => ("watch", request),
    };
    let text = format!("{request:?}");
    let path = text.split("path: \"").nth(1).unwrap().split('"').next().unwrap();
    let query = path.split_once("fieldSelector=spec.nodeName%3Dn").unwrap().1;
    format!("{kind} {}", query.replace("&watch=1&timeoutSeconds=1800", ""))
}

const STREAM: &str = "watch &sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

/// How long a watch lasts that is as it should be.
const LONG: Duration = Duration::from_secs(1800);

#[test]
fn what_there_is_comes_with_the_watch_and_the_watch_goes_on_from_there() {
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
fn in_another_history_everything_is_asked_for_anew() {
    let mut reflection = Reflection::new(pods());
    reflection.begun();
    reflection.watched(end(5));
    reflection.begin_anew();
    assert_eq!((asked(&reflection).as_str(), reflection.ended(LONG)), (STREAM, Duration::ZERO));
    reflection.begun();
    reflection.watched(WatchEvent::Added(object("a", 3)));
    reflection.begin_anew();
    assert_eq!((asked(&reflection).as_str(), reflection.ended(LONG)), (STREAM, Duration::ZERO));
}

#[test]
fn a_watch_that_breaks_goes_on_where_it_was_and_lists_nothing() {
    let mut reflection = Reflection::new(pods());
    reflection.begun();
    reflection.watched(end(5));
    for error in [ApiError::Lost("reset".into()), ApiError::Timeout, refused(500), refused(401), refused(429)] {
        reflection.failed(&error, LONG);
        assert_eq!(asked(&reflection), "watch &resourceVersion=5&allowWatchBookmarks=true");
    }
}

#[test]
fn a_version_that_nobody_remembers_begins_anew_at_once() {
    let mut reflection = Reflection::new(pods());
    reflection.begun();
    reflection.watched(end(5));
    assert_eq!(reflection.failed(&refused(410), LONG), Duration::ZERO);
    assert_eq!(asked(&reflection), STREAM);
    reflection.begun();
    // And again: not at once.
    assert!(reflection.failed(&refused(410), LONG) > Duration::ZERO);
}

#[test]
fn a_watch_that_ends_before_it_has_told_all_counts_for_nothing() {
    let mut reflection = Reflection::new(pods());
    reflection.begun();
    reflection.watched(WatchEvent::Added(object("a", 3)));
    assert!(reflection.ended(LONG) > Duration::ZERO);
    assert_eq!(asked(&reflection), STREAM);
    reflection.begun();
    assert_eq!(reflection.watched(end(5)), Some(Change::Replaced(Vec::new())));
}

#[test]
fn a_server_that_cannot_begin_so_is_asked_for_pages() {
    let mut reflection = Reflection::new(pods());
    assert_eq!(reflection.failed(&refused(422), LONG), Duration::ZERO);
    assert_eq!(asked(&reflection), "list &limit=250");
    let page = |mark: &str, name: &str| json!({"metadata": {"resourceVersion": "9", "continue": mark}, "items": [object(name, 1)]});
    assert_eq!(reflection.listed(page("m", "a")).unwrap(), None);
    assert_eq!(asked(&reflection), "list &limit=250&continue=m");
    let all = Change::Replaced(vec![object("a", 1), object("b", 1)]);
    assert_eq!(reflection.listed(page("", "b")).unwrap(), Some(all));
    assert_eq!(asked(&reflection), "watch &resourceVersion=9&allowWatchBookmarks=true");
}

#[test]
fn pages_that_cannot_be_had_to_the_end_begin_anew() {
    let mut reflection = Reflection::new(pods());
    reflection.failed(&refused(400), LONG);
    let page = json!({"metadata": {"continue": "m"}, "items": [object("a", 1)]});
    reflection.listed(page.clone()).unwrap();
    reflection.failed(&refused(410), LONG);
    assert_eq!(asked(&reflection), "list &limit=250");
    let last = json!({"metadata": {"resourceVersion": "9"}, "items": null});
    assert_eq!(reflection.listed(last).unwrap(), Some(Change::Replaced(Vec::new())));
}

#[test]
fn an_answer_that_is_no_list_is_never_taken_for_an_empty_one() {
    for answer in [json!({}), json!([]), json!({"items": {}}), json!({"kind": "Status"})] {
        let mut reflection = Reflection::new(pods());
        assert!(reflection.listed(answer.clone()).is_err(), "{answer}");
    }
}

#[test]
fn watches_that_end_at_once_are_asked_for_ever_more_slowly() {
    let mut reflection = Reflection::new(pods());
    reflection.begun();
    reflection.watched(end(5));
    let short = Duration::from_millis(20);
    assert_eq!(reflection.ended(LONG), Duration::ZERO);
    let waits: Vec<Duration> = (0..3).map(|_| reflection.ended(short)).collect();
    assert_eq!(waits, [FIRST, FIRST * 2, FIRST * 4]);
    // A connection that is lost at once each time is no different.
    assert_eq!(reflection.failed(&ApiError::NeverSent, short), FIRST * 8);
    assert_eq!(reflection.failed(&ApiError::NeverSent, LONG), Duration::ZERO);
}

#[test]
fn a_version_that_is_too_old_again_and_again_is_asked_for_more_slowly() {
    let mut reflection = Reflection::new(pods());
    let short = Duration::from_millis(20);
    let begin = |reflection: &mut Reflection| {
        reflection.begun();
        reflection.watched(end(5));
    };
    begin(&mut reflection);
    assert_eq!(reflection.failed(&refused(410), short), Duration::ZERO);
    begin(&mut reflection);
    assert_eq!(reflection.failed(&refused(410), short), FIRST);
    begin(&mut reflection);
    assert_eq!(reflection.failed(&refused(410), LONG), Duration::ZERO);
}

#[test]
fn a_watch_may_last_a_minute_longer_than_asked() {
    let limit = |once| match Reflection::new(pods()).ask(once, 5) {
        Ask::Watch { limit, .. } => Some(limit),
        Ask::List(_) => None,
    };
    assert_eq!(limit(false), Some(Duration::from_secs(1805 + 60)));
}

#[test]
fn a_list_without_a_version_begins_again_after_a_wait() {
    let mut reflection = Reflection::new(pods());
    reflection.failed(&refused(400), Duration::ZERO);
    for least in [FIRST, FIRST * 2] {
        let listed = reflection.listed(json!({"metadata": {}, "items": []}));
        assert_eq!(listed.unwrap(), Some(Change::Replaced(vec![])));
        assert_eq!(reflection.after_list(), least);
    }
    let page = json!({"metadata": {"continue": "x"}, "items": []});
    assert_eq!(reflection.listed(page).unwrap(), None);
    assert_eq!(reflection.after_list(), Duration::ZERO);
}

#[test]
fn a_list_of_too_many_objects_or_pages_is_refused_and_begins_again_after_a_wait() {
    for (items, most) in [(50_000, 2), (0, MOST_PAGES)] {
        let mut reflection = Reflection::new(pods());
        reflection.failed(&refused(400), Duration::ZERO);
        let page = json!({"metadata": {"continue": "x"}, "items": vec![Value::Null; items]});
        for _ in 0..most {
            assert_eq!(reflection.listed(page.clone()).unwrap(), None);
        }
        let error = reflection.listed(page).unwrap_err();
        assert_eq!(reflection.failed(&error, Duration::ZERO), FIRST);
        assert_eq!(asked(&reflection), "list &limit=250");
    }
}
