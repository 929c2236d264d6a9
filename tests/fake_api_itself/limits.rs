//! The limits of kube-apiserver: streams, requests at once, idle connections, GOAWAY, sizes and the ends of watches.

use std::time::Duration;

use coracle::protocol::http2::{Ending, Event};
use serde_json::{Value, json};

use super::client;
use super::http2::Client;
use super::{FakeApi, Options, WEB, config_map, start};
use crate::fake_api::handle::Reply;
use crate::fake_api::http::Message;
use crate::fake_api::identity::Identity;
use crate::fake_api::in_process::Server;

const WATCH: &str = "/api/v1/pods?watch=true";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn went_away(event: &Event) -> Option<()> {
    matches!(event, Event::GoAway { .. }).then_some(())
}

#[test]
fn connection_has_a_hundred_streams() {
    let api = start();
    let mut client = Client::new(&api);
    // The client has not read the server's settings yet.
    let watches: Vec<_> = (0..101).map(|_| client.ask("GET", WATCH, "")).collect();
    let (last, rest) = watches.split_last().unwrap();
    assert_eq!(client.ending(*last), Ending::NotProcessed);
    assert!(rest.iter().all(|watch| client.status(*watch) == 200));
    // From now on the client knows the limit, and waits.
    let waiting = client.ask("GET", WEB, "");
    client.http.reset(rest[0], coracle::protocol::http2::ErrorCode::CANCEL);
    client.flush();
    assert_eq!(client.status(waiting), 404);
}

/// What a held request and others get from a server with one seat for each priority level.
fn beside_a_held_request(longest_wait: Duration, then: impl FnOnce(&FakeApi, &mut Client)) {
    let api = FakeApi::start(Options { seats: [1, 1], longest_wait, ..Options::default() });
    api.on("GET", CONFIG_MAPS).hold().times(1);
    let mut holder = Client::new(&api);
    let held = holder.ask("GET", CONFIG_MAPS, "");
    api.wait_for("the request to be held", |world| world.is_held());
    let mut client = Client::new(&api);
    let node = client.ask("GET", "/api/v1/nodes/n", "");
    assert_eq!(client.status(node), 404, "Node objects have seats of their own");
    then(&api, &mut client);
    api.release();
    assert_eq!(holder.status(held), 200);
    let get = client.ask("GET", WEB, "");
    assert_eq!(client.status(get), 404);
}

#[test]
fn request_without_a_seat_is_refused_after_the_longest_wait() {
    beside_a_held_request(Duration::from_millis(100), |_, client| {
        let get = client.ask("GET", WEB, "");
        let head = client.wait(|event| match event {
            Event::Head { stream, fields, .. } if *stream == get => Some(fields.clone()),
            _ => None,
        });
        let head = head.unwrap();
        let value = |name: &str| {
            let field = head.iter().find(|field| *field.name == *name.as_bytes());
            field.map(|field| String::from_utf8_lossy(&field.value).into_owned())
        };
        assert_eq!((value(":status"), value("retry-after")), (Some("429".to_owned()), Some("1".to_owned())));
    });
}

#[test]
fn request_waits_for_a_seat_and_watches_keep_none() {
    beside_a_held_request(Duration::from_secs(60), |api, client| {
        let waiting = client.ask("GET", WEB, "");
        let watch = client.ask("GET", WATCH, "");
        api.wait_for("both to wait", |world| world.waiting_for_seats() == 2);
        api.release();
        assert_eq!((client.status(waiting), client.status(watch)), (404, 200));
    });
}

#[test]
fn idle_connection_is_closed_and_a_watch_keeps_it_open() {
    let options = Options { idle: Duration::from_millis(200), ..Options::default() };
    let api = FakeApi::start(options);
    let mut client = Client::new(&api);
    let mut watching = Client::new(&api);
    let watch = watching.ask("GET", WATCH, "");
    assert_eq!(watching.status(watch), 200);
    let get = client.ask("GET", WEB, "");
    assert_eq!(client.status(get), 404);
    assert_eq!(client.wait(went_away), Some(()));
    assert_eq!(client.wait(|_| None::<()>), None);
    let get = watching.ask("GET", WEB, "");
    assert_eq!(watching.status(get), 404);
}

#[test]
fn goaway_by_chance_ends_the_connection_after_its_requests() {
    let api = FakeApi::start(Options { goaway_chance: 1.0, ..Options::default() });
    let mut client = Client::new(&api);
    let get = client.ask("GET", WEB, "");
    assert_eq!((client.status(get), &client.body(get)["code"]), (404, &json!(404)));
    assert_eq!(client.wait(went_away), Some(()));
    assert_eq!(client.wait(|_| None::<()>), None);
}

#[test]
fn objects_have_a_largest_size() {
    let api = start();
    let mut client = client::Client::admin(&api);
    let sizes = [(1_500_000, 201, ""), (1_600_000, 500, "etcdserver: request is too large")];
    for (size, code, message) in sizes {
        let answer = client.post(CONFIG_MAPS, &config_map(&format!("a{size}"), &"x".repeat(size)));
        let body: Value = answer.json();
        assert_eq!((answer.status, body["message"].as_str().unwrap_or_default()), (code, message));
    }
}

#[test]
fn watches_get_bookmarks_and_end_by_themselves() {
    let api = FakeApi::start(Options { bookmarks: Duration::from_millis(50), ..Options::default() });
    let mut client = client::Client::admin(&api);
    client.watch(&format!("{WATCH}&allowWatchBookmarks=true"));
    for _ in 0..3 {
        assert_eq!(client.event().unwrap().0, "BOOKMARK");
    }
    let lasts = |server: &mut Server, query: &str| {
        let message = Message { method: "GET".to_owned(), target: format!("{WATCH}{query}"), ..Message::default() };
        match server.answer(&message, Identity::admin()) {
            Reply::Watch(watch) => watch.lasts(),
            Reply::Answer(answer) => panic!("{answer:?}"),
        }
    };
    let mut server = Server::new(jiff::Timestamp::now, 1);
    assert_eq!(lasts(&mut server, "&timeoutSeconds=7"), Duration::from_secs(7));
    let all: Vec<_> = (0..20).map(|_| lasts(&mut server, "")).collect();
    assert!(all.iter().all(|lasts| (1800..3600).contains(&lasts.as_secs())), "{all:?}");
    assert!(all.iter().max().unwrap().as_secs() - all.iter().min().unwrap().as_secs() > 600, "{all:?}");
}
