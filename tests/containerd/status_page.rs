//! The status page: its responses, its event stream and its cost.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::node::activity::Activity;
use super::node::{Manifest, Node, PATIENCE, STAY, wait_for};

const PORT: u16 = 4194;

/// A node with the status page enabled.
fn start() -> Node {
    let mut node = Node::with_runtime();
    node.add_arguments(&["--page-port", &PORT.to_string()]);
    node.start_agent();
    wait_for("the page's port to be open", PATIENCE, || {
        node.enclosure().on_network(|| TcpStream::connect(("127.0.0.1", PORT)).ok())
    });
    node
}

impl Node {
    fn at_the_page(&self, head: &str) -> TcpStream {
        let mut stream = self.enclosure().on_network(|| TcpStream::connect(("127.0.0.1", PORT)).unwrap());
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(format!("{head}\r\n\r\n").as_bytes()).unwrap();
        stream
    }

    /// The whole response from the page's port.
    fn asked_at_the_page(&self, head: &str) -> String {
        let mut answer = String::new();
        self.at_the_page(head).read_to_string(&mut answer).unwrap();
        answer
    }

    fn shown(&self, path: &str) -> Value {
        let answer = self.asked_at_the_page(&format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{PORT}"));
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{path}: {head}");
        serde_json::from_str(body).unwrap()
    }

    fn watch(&self) -> Watcher {
        Watcher(BufReader::new(self.at_the_page("GET /events-stream HTTP/1.1\r\nHost: localhost:4194")))
    }
}

/// A client of the event stream.
struct Watcher(BufReader<TcpStream>);

impl Watcher {
    /// Waits for an event for which the claim holds and returns its data.
    #[track_caller]
    fn wait_for(&mut self, what: &str, claim: impl Fn(&str, &Value) -> bool) -> Value {
        let until = Instant::now() + PATIENCE;
        let (mut kind, mut line) = (String::new(), String::new());
        while Instant::now() < until {
            line.clear();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the stream ended before {what}");
            if let Some(name) = line.strip_prefix("event: ") {
                kind = name.trim().to_owned();
            }
            let Some(data) = line.strip_prefix("data: ") else { continue };
            let data = serde_json::from_str(data).unwrap();
            if claim(&kind, &data) {
                return data;
            }
        }
        panic!("waited in vain for {what}");
    }
}

fn is_pod(data: &Value, name: &str) -> bool {
    data["pod"]["metadata"]["name"] == format!("{name}-node-a")
}

#[test]
fn page_answers_only_local_requests_and_shows_no_secrets() {
    let node = start();
    let env = "env: [{name: PASSWORD, value: swordfish}]";
    node.apply(&Manifest::new("web").container_with("main", STAY, env));
    node.wait_until("it runs", |pods| pods.has("web", |pod| pod.is_ready()));
    let pods = node.shown("/pods");
    assert!(is_pod(&pods["pods"][0], "web"), "{pods:#}");
    assert_eq!(pods["pods"][0]["pod"]["status"]["containerStatuses"][0]["ready"], true, "{pods:#}");
    let status = node.shown("/status");
    assert_eq!(status["node"], "node-a");
    assert!(status["processors"].as_u64().unwrap() > 0, "{status:#}");
    assert!(!node.shown("/events")["items"].as_array().unwrap().is_empty());
    assert!(node.shown("/stats/summary")["node"]["memory"]["workingSetBytes"].as_u64().unwrap() > 0);
    let page = node.asked_at_the_page("GET / HTTP/1.1\r\nHost: 127.0.0.1:4194");
    assert!(page.contains("<!doctype html>") && page.len() <= 45 * 1024, "{} bytes", page.len());
    for path in ["/", "/pods", "/status", "/events", "/stats/summary"] {
        let head = format!("GET {path} HTTP/1.1\r\nHost:");
        let answer = node.asked_at_the_page(&format!("{head} localhost"));
        assert!(!answer.contains("swordfish") && !answer.contains("trap exit"), "{path}: {answer}");
        // A foreign name that resolves to this machine (DNS rebinding), and a cross-site request.
        for rest in [" rebound.example:4194", " localhost\r\nSec-Fetch-Site: cross-site\r\nOrigin: https://x.example"] {
            let answer = node.asked_at_the_page(&format!("{head}{rest}"));
            let welcome = path == "/" && rest.starts_with(" localhost");
            assert_eq!(answer.starts_with("HTTP/1.1 403 "), !welcome, "{path}{rest}: {answer}");
            assert!(!answer.contains("Access-Control"), "{answer}");
        }
    }
    for (head, code) in [
        // Logs are the owner's, and this node has no token.
        ("GET /containerLogs/default/web-node-a/main", 403),
        ("GET /exec/default/web-node-a/main?command=id", 404),
        ("GET /metrics", 404),
    ] {
        let answer = node.asked_at_the_page(&format!("{head} HTTP/1.1\r\nHost: localhost"));
        assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{head}: {answer}");
    }
    let answer = node.asked_at_the_page("DELETE /pods/default/web-node-a HTTP/1.1\r\nHost: localhost");
    assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
    // The port is closed on other addresses of this machine.
    let outside = node.enclosure().on_network(|| TcpStream::connect(("10.88.0.1", PORT)).map(drop));
    assert!(outside.is_err(), "the port is open beyond this machine");
}

#[test]
fn watchers_see_a_restart_and_without_watchers_the_agent_idles() {
    let node = start();
    node.apply(&Manifest::new("web").container("main", STAY));
    let mut watcher = node.watch();
    watcher.wait_for("the pod to run", |kind, data| {
        kind == "pod" && is_pod(data, "web") && data["pod"]["status"]["containerStatuses"][0]["ready"] == true
    });
    watcher.wait_for("what it uses", |kind, data| {
        kind == "figures" && data["pods"][0]["memory"]["workingSetBytes"].is_u64()
    });
    watcher.wait_for("what processors do", |kind, data| {
        kind == "figures" && data["pods"][0]["cpu"]["usageNanoCores"].is_u64()
    });
    node.kill_container("web", "main");
    watcher.wait_for("the restart", |kind, data| {
        kind == "pod" && data["pod"]["status"]["containerStatuses"][0]["restartCount"] == 1
    });
    // A later watcher gets the current state at once.
    let mut late = node.watch();
    let pod = late.wait_for("the pod", |kind, data| kind == "pod" && is_pod(data, "web"));
    assert!(pod["pod"]["status"]["containerStatuses"][0]["restartCount"].as_u64().unwrap() >= 1, "{pod:#}");
    node.remove_manifest("web");
    for watcher in [&mut watcher, &mut late] {
        watcher.wait_for("its end", |kind, data| kind == "pod-gone" && *data == pod["pod"]["metadata"]["uid"]);
    }
    // More watchers than allowed; each disconnects without closing properly.
    let crowd: Vec<TcpStream> =
        (0..20).map(|_| node.at_the_page("GET /events-stream HTTP/1.1\r\nHost: localhost")).collect();
    assert!(!node.shown("/status").is_null(), "the page is answered beside them");
    drop((crowd, watcher, late));
    let pid = node.agent_pid();
    let sockets = || std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    let mut before = Activity::of(pid);
    // The sync loop's own timers are rarer than this; with a watcher the agent would look every two seconds.
    let open = wait_for("the agent to come to rest", PATIENCE, || {
        std::thread::sleep(Duration::from_secs(5));
        let now = Activity::of(pid);
        let done = now.since(&before);
        before = now;
        (done.wakes <= 1).then(sockets)
    });
    let mut again = node.watch();
    again.wait_for("the node's time", |kind, _| kind == "look");
    assert!(sockets() <= open + 2, "{} files are open, {open} before", sockets());
}
