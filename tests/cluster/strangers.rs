//! Attacks on the node's own server: refused, with bounded memory.

use std::fs;
use std::time::{Duration, Instant};

use super::door::Door;
use super::serving::{ALLOWS_ALL, Served, TOKEN_REVIEWS};
use crate::fake_api::Options;
use crate::fake_api::identity::Identity;
use crate::wait::wait;

/// The agent's resident memory in KiB.
fn resident(served: &Served) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", served.joined.node.agent_pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Memory that a debug build and its allocator may retain.
const SPREAD: u64 = 8 * 1024;

#[test]
fn made_up_tokens_cause_few_reviews_and_do_not_slow_known_ones() {
    let mut served = Served::new(Options::default());
    served.joined.api.add_token("known-token", &Identity::new("viewer", &["viewers"]));
    served.start(ALLOWS_ALL, &["--authentication-token-webhook-cache-ttl=1s"]);
    let known = "Authorization: Bearer known-token\r\n";
    assert_eq!(served.place.reach(None).get("/healthz", known).0, 200);
    let answers: Vec<u16> = (0..60)
        .map(|number| {
            let made_up = format!("Authorization: Bearer made-up-{number}\r\n");
            served.place.reach(None).get("/healthz", &made_up).0
        })
        .collect();
    let asked = answers.iter().filter(|status| **status == 401).count();
    assert!((20..=40).contains(&asked), "{asked} of 60 were asked about");
    assert_eq!(answers.last(), Some(&429));
    assert_eq!(answers.iter().filter(|status| **status == 429).count(), 60 - asked);
    // A large token counts for more than a small one.
    let large = format!("Authorization: Bearer {}\r\n", "x".repeat(12_000));
    assert_eq!(served.place.reach(None).get("/healthz", &large).0, 429);
    // The cached review of the known token has expired, so the agent asks again.
    let before = served.joined.api.count("create", TOKEN_REVIEWS);
    wait(|| match served.place.reach(None).get("/healthz", known).0 {
        200 if served.joined.api.count("create", TOKEN_REVIEWS) > before => Ok(()),
        status => Err(format!("{status}")),
    });
    let log = served.joined.node.log();
    assert_eq!(log.matches("too many unknown tokens").count(), 1, "{log}");
    assert!(!log.contains("made-up-") && !log.contains("known-token"), "{log}");
}

#[test]
fn endless_request_heads_block_nobody_and_take_no_memory() {
    let mut served = Served::new(Options::default());
    served.start(ALLOWS_ALL, &[]);
    let admin = served.admin();
    assert_eq!(served.place.get("/healthz", Some(&admin)).0, 200);
    let before = resident(&served);
    let slow = |_| -> Option<Door> {
        let mut door = served.place.connect(None).ok()?;
        let _ = door.begin(format!("GET /healthz HTTP/1.1\r\nHost: node\r\nA: {}", "x".repeat(15_000)).as_bytes());
        Some(door)
    };
    let mut doors: Vec<Option<Door>> = (0..60).map(slow).collect();
    assert_eq!(served.place.get("/healthz", Some(&admin)).0, 200);
    // An occasional byte does not extend the deadline.
    let begun = Instant::now();
    while doors.iter().flatten().count() > 0 && begun.elapsed() < Duration::from_secs(30) {
        for door in &mut doors {
            *door = door.take().and_then(|mut door| door.begin(b"x").then_some(door));
        }
        // A byte twice a second, slower than the server accepts.
        std::thread::sleep(Duration::from_millis(500));
    }
    assert!(doors.iter().flatten().count() == 0, "a slow client still has its connection");
    let after = resident(&served);
    assert!(after < before + SPREAD, "{before} KiB before, {after} KiB after");
}

#[test]
fn requests_of_strangers_are_bounded_and_logged_without_secrets() {
    let mut served = Served::new(Options::default());
    served.start(ALLOWS_ALL, &[]);
    let admin = served.admin();
    assert_eq!(served.place.get("/healthz", Some(&admin)).0, 200);
    let before = resident(&served);
    let secret = "Authorization: Basic c2VjcmV0LW9mLXN0cmFuZ2Vycw==\r\n";
    let many = "A: b\r\n".repeat(200);
    for (request, status) in [
        ("GET http://node/healthz HTTP/1.1\r\nHost: node\r\n".to_owned(), 400),
        ("GET //evil/healthz HTTP/1.1\r\nHost: node\r\nA: b\r\n continued\r\n".to_owned(), 400),
        ("GET /healthz HTTP/1.1\nHost: node\r\n".to_owned(), 400),
        ("GET /healthz HTTP/1.1\r\nHost: node\r\nA: b\nContent-Length: 7\r\n".to_owned(), 400),
        ("GET /healthz HTTP/1.1\r\nHost: node\r\nContent-Length : 7\r\n".to_owned(), 400),
        ("GET /healthz HTTP/1.1\r\nHost: node\r\nTransfer-Encoding: identity, chunked\r\n".to_owned(), 501),
        ("GET /healthz\0 HTTP/1.1\r\nHost: node\r\n".to_owned(), 400),
        ("PRI * HTTP/2.0\r\n".to_owned(), 400),
        ("CONNECT node:22 HTTP/1.1\r\nHost: node\r\n".to_owned(), 400),
        (format!("GET /healthz HTTP/1.1\r\nHost: node\r\n{many}"), 431),
        ("POST /pods HTTP/1.1\r\nHost: node\r\nContent-Length: 18446744073709551615\r\n".to_owned(), 401),
        ("GET /pods HTTP/1.1\r\nHost: node\r\n".to_owned(), 401),
    ] {
        for _ in 0..8 {
            let mut door = served.place.reach(None);
            assert_eq!(
                door.say(&format!("{request}{secret}\r\n")).map(|(status, _)| status),
                Some(status),
                "{request:?}"
            );
            assert_eq!(door.say("GET /healthz HTTP/1.1\r\nHost: node\r\n\r\n"), None, "{request:?}");
        }
    }
    // An invalid TLS handshake.
    for _ in 0..20 {
        assert!(served.place.speak(b"GET / HTTP/1.1\r\nHost: node\r\n\r\n"));
        assert!(served.place.speak(&[0x16, 3, 1, 0xff, 0xff]));
    }
    let after = resident(&served);
    assert!(after < before + SPREAD, "{before} KiB before, {after} KiB after");
    assert_eq!(served.place.get("/healthz", Some(&admin)).0, 200);
    let log = served.joined.node.log();
    assert!(!log.contains("c2VjcmV0") && !log.contains("panicked"), "{log}");
}
