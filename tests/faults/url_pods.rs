//! Pods from a URL whose server fails in every way: what runs is never touched.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::node::{Manifest, Node};

/// A server on this machine: it gives these bytes to whoever asks, and ends the connection.
fn server(answer: &Arc<Mutex<Vec<u8>>>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let answer = Arc::clone(answer);
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
                head.push(byte[0]);
            }
            let bytes = answer.lock().unwrap().clone();
            let _ = stream.write_all(&bytes);
        }
    });
    port
}

fn ok(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// What is wrong with the source now.
fn errors(node: &Node) -> Vec<String> {
    let status = node.status();
    let sources = status["sources"].as_array().cloned().unwrap_or_default();
    let http = sources.into_iter().find(|source| source["name"] == "http").unwrap_or_default();
    let errors = http["errors"].as_array().cloned().unwrap_or_default();
    errors.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[track_caller]
fn wait_for_errors(node: &Node, claim: impl Fn(&[String]) -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let errors = errors(node);
        if claim(&errors) {
            return;
        }
        assert!(Instant::now() < end, "still: {errors:?}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_url_that_fails_ends_no_pod_and_a_start_without_its_server_knows_them() {
    let mut node = Node::new();
    let text = Manifest::new("web").container("main", "stays").text();
    let answer = Arc::new(Mutex::new(ok(&text)));
    let url = format!("http://127.0.0.1:{}/board.yaml", server(&answer));
    node.configure(&format!("staticPodURL: {url}\nhttpCheckFrequency: 1s\n"));
    node.start_agent();
    node.wait_until_ready("web");
    let before = node.seen("web");
    let pods = node.ask(&["pods", "-o", "wide"]).unwrap();
    assert!(pods.contains(&url), "{pods}");

    for (bytes, why) in [
        (ok("<html>Sign in</html>"), "expected an object with apiVersion and kind"),
        (format!("HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n{text}").into_bytes(), "unexpected EOF"),
        (Vec::new(), "cannot be fetched: EOF"),
    ] {
        *answer.lock().unwrap() = bytes;
        wait_for_errors(&node, |errors| {
            errors.iter().any(|error| error.contains(why) && error.contains("its last good state goes on"))
        });
        assert_eq!(node.seen("web"), before, "{why}");
    }
    let told = node.log().lines().filter(|line| line.contains("cannot be fetched: EOF")).count();
    assert_eq!(told, 1, "{}", node.log());

    // A start without the server.
    node.kill_agent();
    node.start_agent();
    node.wait_until_ready("web");
    assert_eq!(node.seen("web"), before);
    wait_for_errors(&node, |errors| errors.iter().any(|error| error.contains("cannot be fetched: EOF")));

    *answer.lock().unwrap() = ok("apiVersion: v1\nkind: PodList\nitems: []\n");
    node.wait_until_nothing_is_left();
    assert_eq!(errors(&node), Vec::<String>::new());
}
