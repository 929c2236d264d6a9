//! HTTP/2: many requests on one connection.

use std::io::{Read, Write};
use std::time::Instant;

use coracle::protocol::hpack::Field;
use coracle::protocol::http2::{Connection, Ending, ErrorCode, Event, StreamId};
use serde_json::{Value, json};

use super::client::{self, Stream};
use super::{FakeApi, Options, PODS, WEB, config_map, pod, start};
use crate::fake_api::certificates::Validity;
use crate::fake_api::identity::Identity;
use crate::fake_api::world::WatchOrder;

pub(super) struct Client {
    stream: Box<dyn Stream>,
    pub(super) http: Connection,
    events: Vec<Event>,
}

impl Client {
    pub(super) fn new(api: &FakeApi) -> Self {
        let identity = Identity::admin();
        let validity = Validity::a_day(api.look(|world| world.now()));
        let stream = client::stream(api, Some((&identity, validity)), &[b"h2"]).unwrap();
        Self { stream, http: Connection::client(), events: Vec::new() }
    }

    pub(super) fn ask(&mut self, method: &'static str, path: &str, body: &str) -> StreamId {
        let fields = vec![
            Field::fixed(":method", method),
            Field::fixed(":scheme", "https"),
            Field::new(":path", path),
            Field::fixed(":authority", "api"),
            Field::fixed("content-type", "application/json"),
        ];
        let stream = self.http.open(fields, body.is_empty()).unwrap();
        if !body.is_empty() {
            self.http.send_data(stream, body.as_bytes().to_vec(), true);
        }
        self.flush();
        stream
    }

    pub(super) fn flush(&mut self) {
        loop {
            let mut out = Vec::new();
            self.http.transmit(&mut out);
            if out.is_empty() {
                return self.stream.flush().unwrap();
            }
            self.stream.write_all(&out).unwrap();
        }
    }

    /// Waits for an event that `take` accepts; `None` when the connection ends.
    pub(super) fn wait<T>(&mut self, mut take: impl FnMut(&Event) -> Option<T>) -> Option<T> {
        loop {
            let found = self.events.iter().enumerate().find_map(|(at, event)| Some((at, take(event)?)));
            if let Some((at, found)) = found {
                self.events.remove(at);
                return Some(found);
            }
            let mut bytes = [0; 8192];
            let Ok(length @ 1..) = self.stream.read(&mut bytes) else { return None };
            let before = self.events.len();
            self.http.receive(&bytes[..length], Instant::now(), &mut self.events).unwrap();
            for event in &self.events[before..] {
                if let Event::Data { stream, data, .. } = event {
                    self.http.consume(*stream, data.len());
                }
            }
            self.flush();
        }
    }

    pub(super) fn status(&mut self, stream: StreamId) -> u16 {
        let status = |event: &Event| match event {
            Event::Head { stream: of, fields, .. } if *of == stream => {
                let status = fields.iter().find(|field| *field.name == *b":status")?;
                std::str::from_utf8(&status.value).ok()?.parse().ok()
            }
            _ => None,
        };
        self.wait(status).expect("a status")
    }

    fn data(&mut self, stream: StreamId) -> Option<(Vec<u8>, bool)> {
        self.wait(|event| match event {
            Event::Data { stream: of, data, end } if *of == stream => Some((data.clone(), *end)),
            _ => None,
        })
    }

    pub(super) fn body(&mut self, stream: StreamId) -> Value {
        let mut body = Vec::new();
        loop {
            let (data, end) = self.data(stream).expect("content");
            body.extend(data);
            if end {
                return serde_json::from_slice(&body).unwrap();
            }
        }
    }

    pub(super) fn ending(&mut self, stream: StreamId) -> Ending {
        let ending = self.wait(|event| match event {
            Event::Reset { stream: of, ending } if *of == stream => Some(*ending),
            _ => None,
        });
        ending.expect("the end of the stream")
    }
}

#[test]
fn requests_share_a_connection_without_blocking_each_other() {
    let api = start();
    let mut client = Client::new(&api);
    api.on("create", PODS).hold();
    let slow = client.ask("POST", PODS, &pod("web", None).to_string());
    api.wait_for("the request to be held", |world| world.is_held());
    let quick = client.ask("GET", WEB, "");
    assert_eq!(client.status(quick), 404);
    api.release();
    assert_eq!((client.status(slow), &client.body(slow)["metadata"]["name"]), (201, &json!("web")));
    assert_eq!(api.connections_so_far(), 1);
    assert_eq!(api.requests()[0].identity.user, "kubernetes-admin");
}

#[test]
fn client_can_reset_the_stream_of_a_watch() {
    let api = start();
    let mut client = Client::new(&api);
    let watch = client.ask("GET", "/api/v1/pods?watch=true", "");
    assert_eq!(client.status(watch), 200);
    api.create(&pod("web", None));
    let event: Value = serde_json::from_slice(&client.data(watch).unwrap().0).unwrap();
    assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&json!("ADDED"), &json!("web")));
    client.http.reset(watch, ErrorCode::CANCEL);
    client.flush();
    api.wait_for_watches("/api/v1/pods", 0);
    let watch = client.ask("GET", "/api/v1/pods?watch=true&resourceVersion=0", "");
    assert_eq!(client.status(watch), 200);
    api.order_watches("*", &WatchOrder::Cut);
    assert_eq!(client.ending(watch), Ending::ByPeer(ErrorCode::INTERNAL_ERROR));
    drop(client);
    api.wait_for("the connection to end", |world| world.connections.iter().all(|connection| !connection.is_open));
}

#[test]
fn fault_of_one_stream_leaves_the_others() {
    let api = start();
    let mut client = Client::new(&api);
    api.on("create", PODS).refuse_stream().times(1);
    api.on("create", PODS).reset_after_effect().times(1);
    let refused = client.ask("POST", PODS, &pod("web", None).to_string());
    assert_eq!(client.ending(refused), Ending::NotProcessed);
    assert_eq!(api.get(WEB), None);
    let lost = client.ask("POST", PODS, &pod("web", None).to_string());
    assert_eq!(client.ending(lost), Ending::ByPeer(ErrorCode::INTERNAL_ERROR));
    assert!(api.get(WEB).is_some());
    api.on("get", WEB).reset_in_answer().times(1);
    let half = client.ask("GET", WEB, "");
    assert_eq!(client.status(half), 200);
    assert_eq!(client.ending(half), Ending::ByPeer(ErrorCode::INTERNAL_ERROR));
    let whole = client.ask("GET", WEB, "");
    assert_eq!((client.status(whole), &client.body(whole)["kind"]), (200, &json!("Pod")));
    api.on("get", WEB).cut();
    client.ask("GET", WEB, "");
    assert!(client.wait(|event| matches!(event, Event::GoAway { .. }).then_some(())).is_none());
}

#[test]
fn after_goaway_requests_in_flight_finish() {
    let api = start();
    let mut client = Client::new(&api);
    let watch = client.ask("GET", "/api/v1/pods?watch=true", "");
    assert_eq!(client.status(watch), 200);
    api.go_away();
    client.wait(|event| matches!(event, Event::GoAway { .. }).then_some(())).expect("word of it");
    assert!(client.http.is_going_away());
    api.create(&pod("web", None));
    assert!(!client.data(watch).unwrap().0.is_empty());
}

#[test]
fn bodies_can_exceed_the_flow_control_window() {
    let api = start();
    let mut client = Client::new(&api);
    let large = config_map("a", &"x".repeat(900_000));
    let post = client.ask("POST", "/api/v1/namespaces/default/configmaps", &large.to_string());
    // The rest is sent as the server extends the window.
    assert_eq!(client.status(post), 201);
    assert_eq!(client.body(post)["data"], large["data"]);
}

#[test]
fn without_tls_clients_use_prior_knowledge() {
    let api = FakeApi::start(Options { tls: false, node_authorization: false, ..Options::default() });
    let mut client = Client::new(&api);
    let get = client.ask("GET", WEB, "");
    assert_eq!((client.status(get), &client.body(get)["code"]), (404, &json!(404)));
    let (received, sent) = api.traffic();
    assert!(received > 50 && sent > 100);
}
