//! WATCH: events, bookmarks and endings.

use serde_json::json;

use super::client::Client;
use super::{FakeApi, Options, WEB, pod, start};
use crate::fake_api::world::WatchOrder;

/// The next event's type and the name of its object.
fn next(client: &mut Client) -> (String, String) {
    let (kind, object) = client.event().expect("an event");
    (kind, object["metadata"]["name"].as_str().unwrap_or_default().to_owned())
}

fn event(kind: &str, name: &str) -> (String, String) {
    (kind.to_owned(), name.to_owned())
}

#[test]
fn watch_continues_from_a_list() {
    let api = start();
    api.create(&pod("web", Some("n1")));
    let mut client = Client::admin(&api);
    let list = client.get("/api/v1/pods").json();
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    api.patch(&format!("{WEB}/status"), &json!({ "status": { "phase": "Running" } }));
    client.watch(&format!("/api/v1/pods?watch=true&resourceVersion={version}"));
    assert_eq!(next(&mut client), event("MODIFIED", "web"));
    api.create(&pod("other", None));
    assert_eq!(next(&mut client), event("ADDED", "other"));
    api.delete_with_grace(WEB, 0);
    // The last update of the pod ends its grace period.
    let (kind, marked) = client.event().unwrap();
    assert_eq!((kind.as_str(), &marked["metadata"]["deletionGracePeriodSeconds"]), ("MODIFIED", &json!(0)));
    let (kind, gone) = client.event().unwrap();
    let version =
        |object: &serde_json::Value| object["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    assert!(kind == "DELETED" && version(&gone) > version(&marked));
}

#[test]
fn changes_of_selection_appear_as_added_and_deleted() {
    let api = start();
    api.create(&pod("web", None));
    let mut client = Client::admin(&api);
    client.watch("/api/v1/pods?watch=1&fieldSelector=spec.nodeName%3Dn1,status.phase!%3DFailed");
    api.bind(WEB, "n1");
    assert_eq!(next(&mut client), event("ADDED", "web"));
    assert_eq!(next(&mut client), event("MODIFIED", "web"));
    api.patch(&format!("{WEB}/status"), &json!({ "status": { "phase": "Failed" } }));
    let (kind, gone) = client.event().unwrap();
    assert_eq!((kind.as_str(), &gone["status"]["phase"]), ("DELETED", &json!("Pending")));
}

#[test]
fn watch_can_send_initial_events_and_a_closing_bookmark() {
    let api = start();
    api.create(&pod("web", None));
    let mut client = Client::admin(&api);
    client.watch(
        "/api/v1/pods?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
    );
    assert_eq!(next(&mut client), event("ADDED", "web"));
    let (kind, bookmark) = client.event().unwrap();
    assert_eq!((kind.as_str(), &bookmark["kind"]), ("BOOKMARK", &json!("Pod")));
    assert_eq!(bookmark["metadata"]["annotations"], json!({ "k8s.io/initial-events-end": "true" }));
    let mut client = Client::admin(&api);
    let answer = client.get("/api/v1/pods?watch=true&sendInitialEvents=true");
    assert_eq!(answer.status, 422);
    assert!(answer.message().contains("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"));
}

#[test]
fn watch_from_an_expired_version_ends_with_an_error_event() {
    let api = FakeApi::start(Options { history: 3, ..Options::default() });
    let first = api.create(&pod("web", None));
    for reason in ["a", "b", "c", "d"] {
        api.patch(&format!("{WEB}/status"), &json!({ "status": { "reason": reason } }));
    }
    let version = first["metadata"]["resourceVersion"].as_str().unwrap();
    let mut client = Client::admin(&api);
    client.watch(&format!("/api/v1/pods?watch=true&resourceVersion={version}"));
    let (kind, status) = client.event().unwrap();
    assert_eq!((kind.as_str(), &status["code"], &status["reason"]), ("ERROR", &json!(410), &json!("Expired")));
    assert!(status["message"].as_str().unwrap().starts_with(&format!("too old resource version: {version} (")));
    assert!(client.event().is_none());
    // The connection serves another request.
    assert_eq!(client.get(WEB).status, 200);
}

#[test]
fn watch_honours_its_timeout_and_sends_a_final_bookmark() {
    let api = start();
    let mut client = Client::admin(&api);
    client.watch("/api/v1/pods?watch=true&timeoutSeconds=1&allowWatchBookmarks=true&resourceVersion=201");
    assert!(client.event().is_none());
    client.watch("/api/v1/pods?watch=true&timeoutSeconds=3&allowWatchBookmarks=true&resourceVersion=201");
    let (kind, bookmark) = client.event().unwrap();
    let version = api.look(|world| world.store.version().to_string());
    assert_eq!((kind.as_str(), &bookmark["metadata"]["resourceVersion"]), ("BOOKMARK", &json!(version)));
    drop(client);
    api.wait_for_watches("/api/v1/pods", 0);
}

#[test]
fn watch_from_a_future_version_waits_silently() {
    let api = start();
    let mut client = Client::admin(&api);
    let later = api.look(|world| world.store.version()) + 2;
    client.watch(&format!("/api/v1/pods?watch=true&resourceVersion={later}"));
    for name in ["a", "b", "c"] {
        api.create(&pod(name, None));
    }
    assert_eq!(next(&mut client), event("ADDED", "c"));
}

#[test]
fn open_watches_follow_orders() {
    let api = start();
    let mut client = Client::admin(&api);
    client.watch("/api/v1/pods?watch=true&allowWatchBookmarks=true");
    api.order_watches("/api/v1/pods", &WatchOrder::Bookmark);
    assert_eq!(client.event().unwrap().0, "BOOKMARK");
    api.order_watches("*", &WatchOrder::Write(b"nonsense\n".to_vec()));
    assert_eq!(client.chunk().unwrap().unwrap(), b"nonsense\n");
    api.order_watches("*", &WatchOrder::Expire);
    assert_eq!(client.event().unwrap().0, "ERROR");
    assert!(client.event().is_none());

    client.watch("/api/v1/pods?watch=true");
    api.order_watches("*", &WatchOrder::Silence);
    api.create(&pod("unheard", None));
    api.order_watches("*", &WatchOrder::End);
    assert!(client.event().is_none());

    client.watch("/api/v1/nodes?watch=true");
    api.order_watches("*", &WatchOrder::Cut);
    assert!(client.chunk().is_err());
}

#[test]
fn closed_connection_ends_its_watch() {
    for tls in [true, false] {
        let api = FakeApi::start(Options { tls, node_authorization: false, ..Options::default() });
        let mut client = Client::anonymous(&api);
        client.watch("/api/v1/pods?watch=true");
        api.wait_for_watches("/api/v1/pods", 1);
        drop(client);
        api.wait_for_watches("/api/v1/pods", 0);
        api.wait_for("the connection to end", |world| world.connections.iter().all(|connection| !connection.is_open));
    }
}
