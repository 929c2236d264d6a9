//! Tests the local API as a client.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::pin::Pin;

use super::super::http::parse_response;
use super::*;
use crate::control::server::{
    AnswerFuture, DeviceEntry, ImageEntry, JobRows, LogQuery, LogSource, MissingImage, NodeStatus, NotFound, PodEntry,
    PodQuery, SyncStatus,
};
use crate::kubelet::status::{LogUnavailable, NoLog};
use crate::platform::rt::{AsyncReadExt as _, AsyncWriteExt as _, TestFolder, block_on, blocking, either};
use crate::state::pods::PodAnswer;
use crate::types::api::{Event, Reason, decode_bytes};
use crate::types::error::ErrorChain;

struct TwoPods;

impl LocalApi for TwoPods {
    fn jobs(&self) -> JobRows {
        JobRows::default()
    }

    fn devices(&self) -> Vec<DeviceEntry> {
        Vec::new()
    }

    fn status(&self) -> NodeStatus {
        NodeStatus { node: "n".to_owned(), healthy: true, ..NodeStatus::default() }
    }

    fn pods(&self, each: &mut dyn FnMut(PodEntry)) {
        for name in ["a", "b"] {
            each(PodEntry {
                source: format!("file:/m/{name}"),
                pod: serde_json::json!({ "kind": "Pod" }),
                ..PodEntry::default()
            });
        }
    }

    fn running_pods(&self, _each: &mut dyn FnMut(serde_json::Value)) {}

    fn events(&self, each: &mut dyn FnMut(Event)) {
        for message in ["a", "b"] {
            each(Event { message: message.to_owned(), ..Event::default() });
        }
    }

    fn sync(&self, wait: bool) -> AnswerFuture<SyncStatus> {
        Box::pin(async move { Ok(SyncStatus { open: wait, ..SyncStatus::default() }) })
    }

    fn page(&self, page: Page) -> Pin<Box<dyn Future<Output = Vec<u8>>>> {
        Box::pin(async move {
            rt::yield_now().await;
            format!("{page:?}").into_bytes()
        })
    }

    fn images(&self) -> AnswerFuture<Vec<ImageEntry>> {
        Box::pin(async { Ok(vec![ImageEntry { id: "a".to_owned(), ..ImageEntry::default() }]) })
    }

    fn missing_images(&self) -> AnswerFuture<Vec<MissingImage>> {
        Box::pin(async { Ok(vec![MissingImage { image: "a:1".to_owned(), pods: Vec::new() }]) })
    }

    fn pull_image(&self, name: String) -> AnswerFuture<String> {
        Box::pin(async {
            rt::sleep(Duration::from_secs(3600)).await;
            Ok(name)
        })
    }

    fn remove_image(&self, name: String) -> AnswerFuture<String> {
        Box::pin(async move {
            if name == "large" {
                rt::sleep(Duration::from_secs(60)).await;
                return Ok(name);
            }
            Err(format!("image {name} stays"))
        })
    }

    fn log(&self, query: &LogQuery) -> Result<LogSource, LogUnavailable> {
        match query.container.as_str() {
            "none" => {
                let (pod, container) = (query.pod.clone(), query.container.clone());
                Err(LogUnavailable { pod, container, why: NoLog::NoPod })
            }
            "waiting" => {
                let (pod, container) = (query.pod.clone(), query.container.clone());
                Err(LogUnavailable { pod, container, why: NoLog::Waiting(Reason::CONTAINER_CREATING) })
            }
            name => {
                Ok(LogSource { log: PathBuf::from(format!("/nowhere/{name}")), ended: async_channel::bounded(1).1 })
            }
        }
    }

    fn change(&self, change: PodChange) -> Pin<Box<dyn Future<Output = PodAnswer>>> {
        Box::pin(async move { PodAnswer::Refused(format!("{change:?}")) })
    }

    fn running_container(&self, _: &PodQuery, _: &str) -> Result<String, NotFound> {
        Err(NotFound::Pod)
    }

    fn sandbox(&self, _: &PodQuery) -> Result<String, NotFound> {
        Err(NotFound::Pod)
    }
}

/// The complete response to these bytes.
fn exchange(path: &Path, request: &[u8]) -> Vec<u8> {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.write_all(request).unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).unwrap();
    response
}

/// Runs `client` against a new server.
fn with_server<T: Send + 'static>(client: impl FnOnce(PathBuf) -> T + Send + 'static) -> T {
    let dir = TestFolder::new("local");
    let path = dir.0.join("run/c.sock");
    let server = LocalServer::bind(&path, None).unwrap();
    let serve = async {
        server.serve(Rc::new(TwoPods)).await;
        unreachable!("serves for ever")
    };
    block_on(either(serve, blocking(move || client(path))))
}

#[test]
fn status_and_pods_are_json() {
    let (status, pods) = with_server(|path| {
        (
            exchange(&path, b"GET /status HTTP/1.1\r\nHost: x\r\n\r\n"),
            exchange(&path, b"GET /pods HTTP/1.1\r\nHost: x\r\n\r\n"),
        )
    });
    let (line, body) = parse_response(&status).unwrap();
    assert_eq!(line, "200 OK");
    let missing = vec![MissingImage { image: "a:1".to_owned(), pods: Vec::new() }];
    let expected = NodeStatus { missing_images: Some(missing), ..TwoPods.status() };
    assert_eq!(decode_bytes::<NodeStatus>(body).unwrap(), expected);
    let (_, body) = parse_response(&pods).unwrap();
    assert_eq!(
        serde_json::from_slice::<serde_json::Value>(body).unwrap(),
        serde_json::json!({ "pods": [
            { "source": "file:/m/a", "pod": { "kind": "Pod" } },
            { "source": "file:/m/b", "pod": { "kind": "Pod" } },
        ] })
    );
}

#[test]
fn events_have_the_api_list_format() {
    let response = with_server(|path| exchange(&path, b"GET /events HTTP/1.1\r\nHost: x\r\n\r\n"));
    let (_, body) = parse_response(&response).unwrap();
    let list: serde_json::Value = serde_json::from_slice(body).unwrap();
    assert_eq!((&list["kind"], &list["apiVersion"]), (&"EventList".into(), &"v1".into()));
    assert_eq!((&list["items"][0]["message"], &list["items"][1]["message"]), (&"a".into(), &"b".into()));
}

#[test]
fn unknown_requests_are_refused() {
    for (request, line) in [
        (&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], "404 Not Found"),
        (b"GET /containerLogs/d/p/none HTTP/1.1\r\nHost: x\r\n\r\n", "404 Not Found"),
        (b"GET /containerLogs/d/p/gone HTTP/1.1\r\nHost: x\r\n\r\n", "400 Bad Request"),
        (b"GET /containerLogs/d/p/c?follow=x HTTP/1.1\r\nHost: x\r\n\r\n", "400 Bad Request"),
        (b"POST /pods HTTP/1.1\r\nHost: x\r\n\r\n", "405 Method Not Allowed"),
        (b"hello\r\n\r\n", "400 Bad Request"),
    ] {
        let response = with_server(move |path| exchange(&path, request));
        assert_eq!(parse_response(&response).unwrap().0, line);
    }
}

/// The API server shows clients the text of a 400 only, within its own message.
#[test]
fn log_of_a_waiting_container_is_refused_in_upstreams_words() {
    let request = b"GET /containerLogs/d/p/waiting HTTP/1.1\r\nHost: x\r\n\r\n";
    let response = with_server(|path| exchange(&path, request));
    let (line, body) = parse_response(&response).unwrap();
    assert_eq!(line, "400 Bad Request");
    assert_eq!(body, b"container \"waiting\" in pod \"p\" is waiting to start: ContainerCreating");
}

#[test]
fn manifest_may_arrive_in_pieces_and_has_a_size_limit() {
    let response = with_server(|path| {
        let mut stream = UnixStream::connect(&path).unwrap();
        let head = b"PUT /pods/default/web HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\nExpect: 100-continue\r\n\r\n";
        stream.write_all(head).unwrap();
        let mut go_on = [0; 25];
        stream.read_exact(&mut go_on).unwrap();
        assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
        for part in [&b"ki"[..], b"nd", b":\n"] {
            stream.write_all(part).unwrap();
        }
        let mut response = Vec::new();
        stream.read_to_end(&mut response).unwrap();
        response
    });
    let (line, body) = parse_response(&response).unwrap();
    assert_eq!(line, "422 Unprocessable Content");
    let asked = "PodChange { namespace: \"default\", name: \"web\", kind: Put([107, 105, 110, 100, 58, 10]) }\n";
    assert_eq!(std::str::from_utf8(body).unwrap(), asked);
    let long = with_server(|path| {
        exchange(&path, b"PUT /pods/default/web HTTP/1.1\r\nHost: x\r\nContent-Length: 1048577\r\n\r\n")
    });
    assert_eq!(parse_response(&long).unwrap().0, "413 Content Too Large");
}

#[test]
fn silent_clients_do_not_keep_others_out() {
    let response = with_server(|path| {
        let silent: Vec<UnixStream> = (0..100).map(|_| UnixStream::connect(&path).unwrap()).collect();
        let response = exchange(&path, b"GET /status HTTP/1.1\r\nHost: x\r\n\r\n");
        drop(silent);
        response
    });
    assert_eq!(parse_response(&response).unwrap().0, "200 OK");
}

#[test]
fn only_the_owner_can_reach_the_socket() {
    let dir = TestFolder::new("local");
    let path = dir.0.join("run/c.sock");
    let _server = LocalServer::bind(&path, None).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(path.parent().unwrap()), 0o700);
}

#[test]
fn second_process_fails_and_the_first_keeps_its_socket() {
    let dir = TestFolder::new("local");
    let path = dir.0.join("c.sock");
    let first = LocalServer::bind(&path, None).unwrap();
    let error = LocalServer::bind(&path, None).unwrap_err();
    let held = format!("coracle is already running: it holds {}", path.display());
    assert_eq!(ErrorChain(&error).to_string(), held);
    assert!(UnixStream::connect(&path).is_ok());
    drop(first);
    assert!(!path.exists());
    assert!(LocalServer::bind(&path, None).is_ok());
}

#[test]
fn stale_socket_is_replaced_but_no_other_file() {
    let dir = TestFolder::new("local");
    let path = dir.0.join("c.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    drop(LocalServer::bind(&path, None).unwrap());
    fs::write(&path, "precious").unwrap();
    let error = LocalServer::bind(&path, None).unwrap_err();
    assert_eq!(ErrorChain(&error).to_string(), format!("replace {}: it is no socket", path.display()));
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
}

#[test]
fn metrics_have_their_own_content_types() {
    let ask = |path: PathBuf, what: &str| {
        let response = exchange(&path, format!("GET {what} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
        String::from_utf8(response).unwrap()
    };
    let (summary, resource) = with_server(move |path| {
        (ask(path.clone(), "/stats/summary?only_cpu_and_memory=true"), ask(path, "/metrics/resource"))
    });
    assert!(summary.contains("Content-Type: application/json\r\n"), "{summary}");
    assert!(summary.ends_with("Summary { only_cpu_and_memory: true }"), "{summary}");
    assert!(resource.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{resource}");
}

#[test]
fn images_are_listed_and_refused_removals_are_explained() {
    let (list, stays, nameless, put) = with_server(|path| {
        (
            exchange(&path, b"GET /images HTTP/1.1\r\nHost: x\r\n\r\n"),
            exchange(&path, b"DELETE /images?image=a%2Fb%3A1 HTTP/1.1\r\nHost: x\r\n\r\n"),
            exchange(&path, b"DELETE /images HTTP/1.1\r\nHost: x\r\n\r\n"),
            exchange(&path, b"PUT /images HTTP/1.1\r\nHost: x\r\n\r\n"),
        )
    });
    let (line, body) = parse_response(&list).unwrap();
    let images: crate::control::server::Images = decode_bytes(body).unwrap();
    assert_eq!((line, images.images.len(), &*images.images[0].id), ("200 OK", 1, "a"));
    assert_eq!(parse_response(&stays).unwrap(), ("400 Bad Request", &b"image a/b:1 stays\n"[..]));
    assert_eq!(parse_response(&nameless).unwrap().0, "400 Bad Request");
    assert_eq!(parse_response(&put).unwrap().0, "405 Method Not Allowed");
}

#[test]
fn pull_and_removal_of_image_take_longer_than_other_requests() {
    for (method, body) in [("POST", "{\"result\":\"large\"}"), ("DELETE", "large\n")] {
        let response = rt::simulate(1, move |world| async move {
            let connections = world.network.host("/c.sock").listen();
            let mut client = rt::UnixStream::connect("/c.sock").await.unwrap();
            let accepted = rt::UnixStream::Simulated(connections.recv().await.unwrap());
            let served = ServedConnection {
                api: Rc::new(TwoPods),
                streaming: None,
                slots: StreamSlots::new(1, 1),
                peer: LocalPeer { process: 1, may_change: true },
                unread: Rc::default(),
                client_state: Rc::default(),
            };
            let _served = rt::spawn(serve_connection(accepted, served));
            let head = format!("{method} /images?image=large HTTP/1.1\r\nHost: x\r\n\r\n");
            client.write_all(head.as_bytes()).await.unwrap();
            let mut response = Vec::new();
            client.read_to_end(&mut response).await.unwrap();
            response
        });
        assert_eq!(parse_response(&response.unwrap()), Some(("200 OK", body.as_bytes())), "{method}");
    }
}
