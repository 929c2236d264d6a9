//! Tests the status page with browsers' requests and others.

use std::io::{BufRead as _, BufReader, Write};
use std::net::{SocketAddr, TcpStream as StdStream};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

use serde_json::json;

use super::*;
use crate::control::server::connections::Text as _;
use crate::control::server::metrics_pages::Page;
use crate::control::server::{
    AnswerFuture, DeviceEntry, ImageEntry, JobRows, LogQuery, LogSource, MissingImage, NodeStatus, NotFound, PodEntry,
    PodQuery, SyncStatus,
};
use crate::kubelet::status::{LogUnavailable, NoLog};
use crate::platform::rt::{TcpListener, TestFolder, block_on, blocking, either};
use crate::state::pods::{PodAnswer, PodChange};
use crate::types::api::Event;
use crate::types::api::annotations::NEXT_VERSION;

/// A node with one pod, which counts the requests to it.
#[derive(Clone, Default)]
struct Asked {
    count: Arc<AtomicU32>,
    /// The pod's next version, whose line has another second at each request.
    has_next_version: Arc<AtomicBool>,
}

impl Asked {
    fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    fn note(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }
}

impl LocalApi for Asked {
    fn jobs(&self) -> JobRows {
        JobRows::default()
    }

    fn devices(&self) -> Vec<DeviceEntry> {
        Vec::new()
    }

    fn status(&self) -> NodeStatus {
        self.note();
        NodeStatus { node: "n".to_owned(), processors: 4, healthy: true, ..NodeStatus::default() }
    }

    fn pods(&self, each: &mut dyn FnMut(PodEntry)) {
        self.note();
        let container = json!({ "name": "main", "env": [{ "name": "A", "value": "SECRET" }] });
        let mut pod = json!({ "metadata": { "uid": "u", "name": "web" }, "spec": { "containers": [container] } });
        if self.has_next_version.load(Ordering::Relaxed) {
            pod["metadata"]["annotations"] = json!({ NEXT_VERSION: format!("pulling ({}s so far)", self.count()) });
        }
        each(PodEntry { source: "file:/m/web.yaml".to_owned(), pod, ..PodEntry::default() });
    }

    fn running_pods(&self, _: &mut dyn FnMut(serde_json::Value)) {
        self.note();
    }

    fn events(&self, each: &mut dyn FnMut(Event)) {
        self.note();
        for number in 0..120 {
            each(Event { message: format!("message {number}."), ..Event::default() });
        }
    }

    fn sync(&self, _: bool) -> AnswerFuture<SyncStatus> {
        self.note();
        Box::pin(async { Ok(SyncStatus::default()) })
    }

    fn page(&self, _: Page) -> Pin<Box<dyn Future<Output = Vec<u8>>>> {
        self.note();
        Box::pin(async { b"{\"node\":{}}".to_vec() })
    }

    fn images(&self) -> AnswerFuture<Vec<ImageEntry>> {
        Box::pin(async { Err("no images are shown".to_owned()) })
    }

    fn missing_images(&self) -> AnswerFuture<Vec<MissingImage>> {
        Box::pin(async { Ok(vec![MissingImage { image: "a:1".to_owned(), pods: Vec::new() }]) })
    }

    fn pull_image(&self, _name: String) -> AnswerFuture<String> {
        Box::pin(async { Err("no registry".to_owned()) })
    }

    fn remove_image(&self, _name: String) -> AnswerFuture<String> {
        Box::pin(async { Err("none is removed".to_owned()) })
    }

    fn log(&self, _: &LogQuery) -> Result<LogSource, LogUnavailable> {
        self.note();
        Err(LogUnavailable { pod: String::new(), container: String::new(), why: NoLog::NoPod })
    }

    fn running_container(&self, _: &PodQuery, _: &str) -> Result<String, NotFound> {
        self.note();
        Err(NotFound::Pod)
    }

    fn change(&self, _: PodChange) -> Pin<Box<dyn Future<Output = PodAnswer>>> {
        self.note();
        Box::pin(async { PodAnswer::Failed("asked to change a pod".to_owned()) })
    }

    fn sandbox(&self, _: &PodQuery) -> Result<String, NotFound> {
        self.note();
        Err(NotFound::Pod)
    }
}

/// Runs `client` against a new server, with the node's request counter.
fn with_door<T: Send + 'static>(client: impl FnOnce(SocketAddr, Asked) -> T + Send + 'static) -> T {
    let asked = Asked::default();
    block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let health = SyncHealth::new(Duration::from_secs(60), Instant::now());
        let folder = TestFolder::new("page-token");
        let token = folder.0.join("token");
        std::fs::write(&token, crate::protocol::sha256::sha256(b"abcd-efgh")).unwrap();
        let page = StatusPage::new(address, "edge-7", token, Rc::new(asked.clone()), health);
        let serve = async {
            let meet = |tcp, peer, client_state| -> crate::control::server::open_connections::ConnectionFuture {
                Box::pin(page.meet(tcp, peer, client_state))
            };
            page.door().accept(&listener, &meet).await;
            unreachable!("serves for ever")
        };
        either(serve, blocking(move || client(address, asked))).await
    })
}

fn connect(address: SocketAddr, request: &str) -> StdStream {
    let mut stream = StdStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

/// The complete response.
fn exchange(address: SocketAddr, line: &str, headers: &str) -> String {
    let mut response = Vec::new();
    connect(address, &format!("{line} HTTP/1.1\r\n{headers}\r\n")).read_to_end(&mut response).unwrap();
    String::from_utf8(response).unwrap()
}

fn get(address: SocketAddr, path: &str) -> String {
    exchange(address, &format!("GET {path}"), "Host: localhost:4194\r\n")
}

/// A client of the event stream, which collects the kinds of events.
struct Watching(BufReader<StdStream>);

impl Watching {
    fn begin(address: SocketAddr) -> Self {
        Self(BufReader::new(connect(address, "GET /events-stream HTTP/1.1\r\nHost: localhost\r\n\r\n")))
    }

    /// The lines up to the end of the next block.
    fn block(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the stream ended: {lines:?}");
            let is_time = line.starts_with("data: {\"time\":");
            lines.push(line.trim_end().to_owned());
            if is_time {
                return lines;
            }
        }
    }
}

#[test]
fn page_is_complete_small_and_restricted_to_this_server() {
    let text = include_str!("page.html");
    assert!(PACKED_PAGE.len() <= 20 * 1024, "{} bytes are in the binary", PACKED_PAGE.len());
    assert!(text.len() <= 44 * 1024, "{} bytes go to a browser", text.len());
    let response = with_door(|address, asked| {
        let response = get(address, "/");
        assert_eq!(asked.count(), 0, "the page itself asks the node for nothing");
        response
    });
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    assert_eq!(body, text);
    assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n"), "{head}");
    for line in [
        "Content-Security-Policy: default-src 'none'; script-src 'sha256-",
        "connect-src 'self'",
        "X-Content-Type-Options: nosniff",
        "Referrer-Policy: no-referrer",
        "Cross-Origin-Resource-Policy: same-origin",
        "Cache-Control: no-store",
    ] {
        assert!(head.contains(line), "{line}: {head}");
    }
    assert!(!head.to_lowercase().contains("access-control-") && !head.contains("unsafe"), "{head}");
    // Nothing is loaded from elsewhere, and no data is inserted as HTML.
    for word in ["innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "https:", " src=", "@import"] {
        assert!(!text.contains(word), "{word}");
    }
    assert_eq!(text.matches("http:").count(), text.matches("http://www.w3.org/2000/svg").count());
}

#[test]
fn pods_are_shown_without_variable_values_and_other_requests_refused() {
    with_door(|address, asked| {
        let pods = get(address, "/pods");
        assert!(pods.contains("\"name\":\"web\"") && !pods.contains("SECRET"), "{pods}");
        assert!(get(address, "/status").contains("\"processors\":4"));
        assert!(get(address, "/events").contains("message 0."));
        assert!(get(address, "/stats/summary?only_cpu_and_memory=true").ends_with("{\"node\":{}}"));
        let before = asked.count();
        for path in [
            "/exec/default/web/main",
            "/run/default/web/main",
            "/logs/",
            "/configz",
            "/metrics",
            "/runningpods/",
            "/pods/default/web",
            "/x",
        ] {
            assert!(get(address, path).starts_with("HTTP/1.1 404 "), "{path}");
        }
        for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"] {
            for path in ["/", "/pods", "/pods/default/web", "/events-stream"] {
                let response = exchange(address, &format!("{method} {path}"), "Host: localhost\r\n");
                assert!(response.starts_with("HTTP/1.1 405 "), "{method} {path}: {response}");
            }
        }
        assert!(exchange(address, "HEAD /events-stream", "Host: localhost\r\n").starts_with("HTTP/1.1 405 "));
        assert!(exchange(address, "HEAD /", "Host: localhost\r\n").ends_with("\r\n\r\n"));
        assert_eq!(asked.count(), before, "what is refused asks the node for nothing");
    });
}

#[test]
fn only_the_owner_sees_logs_and_changes_pods() {
    with_door(|address, asked| {
        let log = "GET /containerLogs/default/web/main?previous=true&follow=true";
        let requests = [
            log,
            "POST /pods/default/web/restart",
            "POST /pods/default/web/rollback",
            "POST /pods/default/web/confirm",
        ];
        for request in requests {
            let response = exchange(address, request, "Host: localhost\r\n");
            assert!(response.starts_with("HTTP/1.1 401 "), "{request}: {response}");
        }
        let right = "Host: localhost\r\nAuthorization: Bearer abcd-efgh\r\n";
        // A page of another site has no token, and may not send one.
        let foreign = format!("{right}Origin: https://evil.example\r\nSec-Fetch-Site: cross-site\r\n");
        assert!(exchange(address, requests[1], &foreign).starts_with("HTTP/1.1 403 "));
        assert!(
            exchange(address, requests[1], &right.replace("localhost", "evil.example")).starts_with("HTTP/1.1 403 ")
        );
        assert!(exchange(address, "OPTIONS /pods/default/web/restart", right).starts_with("HTTP/1.1 405 "));
        assert_eq!(asked.count(), 0, "what is refused asks the node for nothing");
        assert!(exchange(address, log, right).starts_with("HTTP/1.1 404 "), "no such pod");
        assert!(exchange(address, requests[1], right).contains("asked to change a pod"));
        assert_eq!(asked.count(), 2);
        // Other changes are not for the page, even with the token.
        for request in
            ["DELETE /pods/default/web", "PUT /pods/default/web", "POST /pods/default/web/hold", "POST /sync"]
        {
            assert!(exchange(address, request, right).starts_with("HTTP/1.1 405 "), "{request}");
        }
        assert!(exchange(address, "GET /exec/default/web/main", right).starts_with("HTTP/1.1 404 "));
        let wrong = "Host: localhost\r\nAuthorization: Bearer abcd-efgi\r\n";
        for _ in 0..5 {
            assert!(exchange(address, requests[1], wrong).starts_with("HTTP/1.1 401 "));
        }
        for headers in [wrong, right] {
            assert!(exchange(address, requests[1], headers).starts_with("HTTP/1.1 429 "), "no sixth try");
        }
        assert_eq!(asked.count(), 2);
        assert!(get(address, "/status").starts_with("HTTP/1.1 200 "), "everyone still sees the page");
    });
}

#[test]
fn foreign_host_names_and_cross_site_requests_get_nothing() {
    with_door(|address, asked| {
        for path in ["/", "/status", "/pods", "/events", "/stats/summary", "/events-stream"] {
            for headers in ["Host: evil.example\r\n", "Host: evil.example:4194\r\n", "Host: \r\n"] {
                let response = exchange(address, &format!("GET {path}"), headers);
                assert!(response.starts_with("HTTP/1.1 403 "), "{path} {headers}: {response}");
            }
            let elsewhere = "Host: localhost\r\nOrigin: https://evil.example\r\nSec-Fetch-Site: cross-site\r\n";
            let response = exchange(address, &format!("GET {path}"), elsewhere);
            let status = if path == "/" { "200" } else { "403" };
            assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {response}");
            assert!(!response.to_lowercase().contains("access-control-"), "{response}");
        }
        assert_eq!(asked.count(), 0);
        assert!(exchange(address, "GET /status", "Host: edge-7.local:4194\r\n").starts_with("HTTP/1.1 200 "));
    });
}

#[test]
fn watchers_share_one_observation_which_ends_with_the_last_watcher() {
    with_door(|address, asked| {
        let mut first = Watching::begin(address);
        let told = [first.block(), first.block()].concat().join("\n");
        for part in ["Content-Type: text/event-stream", "event: pod\n", "event: status\n", "event: figures\n"] {
            assert!(told.contains(part), "{part}: {told}");
        }
        assert!(!told.contains("SECRET"), "{told}");
        assert!(told.contains("message 119.") && !told.contains("message 19."), "only the newest events");
        // A later watcher gets the complete state first.
        let mut others: Vec<Watching> = (1..watchers::MAX_WATCHERS).map(|_| Watching::begin(address)).collect();
        for other in &mut others {
            let told = other.block().join("\n");
            for part in ["event: pod\n", "event: status\n", "event: figures\n"] {
                assert!(told.contains(part), "{part}: {told}");
            }
        }
        assert!(get(address, "/events-stream").starts_with("HTTP/1.1 503 "));
        assert!(get(address, "/").starts_with("HTTP/1.1 200 "), "the page is there for who cannot watch");
        // From now on nothing changes, and all watchers get the same events.
        let (before, begun) = (asked.count(), Instant::now());
        let news = others.last_mut().unwrap().block();
        for other in others.iter_mut().rev().skip(1).chain([&mut first]) {
            // Earlier watchers have more to read.
            assert!((0..watchers::MAX_KEPT_BLOCKS).any(|_| other.block() == news));
        }
        // Separate observations would make eight times as many requests.
        let most = begun.elapsed().as_secs() + 4;
        assert!(u64::from(asked.count() - before) <= most, "{} questions", asked.count() - before);
        drop(others);
        drop(first);
        // The next watcher finds a place once the server has noticed that the others left.
        let is_there = |_| {
            let mut again = Watching::begin(address);
            let mut line = String::new();
            again.0.read_line(&mut line).unwrap();
            line.starts_with("HTTP/1.1 200 ")
        };
        assert!((0..100).any(is_there));
        let rest = || {
            let before = asked.count();
            // Longer than two observations of a watched page.
            std::thread::sleep(Duration::from_millis(4500));
            asked.count() - before
        };
        assert!((0..3).any(|_| rest() == 0), "the node is asked though nobody watches");
    });
}

#[test]
fn progress_of_a_next_version_is_sent_while_the_sync_loop_rests() {
    with_door(|address, asked| {
        asked.has_next_version.store(true, Ordering::Relaxed);
        let mut watching = Watching::begin(address);
        let mut lines = Vec::new();
        for _ in 0..8 {
            lines.extend(watching.block().into_iter().filter(|line| line.contains("s so far)")));
        }
        assert!(lines.len() > 1, "{lines:?}");
    });
}

#[test]
fn slow_watcher_is_dropped() {
    block_on(async {
        let health = SyncHealth::new(Duration::from_secs(60), Instant::now());
        let watchers = Watchers::new(Rc::new(Asked::default()), health);
        let (mut slow, mut quick) = (Watchers::join(&watchers).unwrap(), Watchers::join(&watchers).unwrap());
        assert!(quick.next().await.is_some());
        for _ in 0..watchers::MAX_KEPT_BLOCKS {
            watchers.broadcast(Default::default());
            assert!(quick.next().await.is_some());
        }
        assert!(slow.next().await.is_some(), "not yet");
        for _ in 0..watchers::MAX_KEPT_BLOCKS {
            watchers.broadcast(Default::default());
        }
        assert!(slow.next().await.is_none());
    });
}
