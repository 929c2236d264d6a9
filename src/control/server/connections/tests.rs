//! Tests a server with well-behaved and other clients.

use std::cell::Cell;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream as StdStream;
use std::task::{Context, Poll};

use super::*;
use crate::control::server::http::Status;
use crate::control::server::stream_slots::StreamSlots;
use crate::platform::rt::{Async, AsyncRead, AsyncWrite, block_on, blocking, either};

struct Echo;

impl RequestHandler for Echo {
    fn keeps_alive(&self) -> bool {
        true
    }

    fn handle<'a>(&'a self, request: &'a Request) -> ResponseFuture<'a> {
        let text = format!("{} {} {}", request.method, request.path, request.body);
        let response = Response::text(Status::Ok, text);
        Box::pin(ready(match &*request.path {
            "/last" => Reply::Last(response),
            "/long" => Reply::Last(Response::text(Status::Ok, "long ".repeat(1000))),
            _ => Reply::Whole(response),
        }))
    }

    fn compresses(&self, request: &Request) -> bool {
        request.query.is_empty()
    }
}

/// The complete response to `text`. The client's side stays open meanwhile, unless `then_ends`.
fn said(text: &str, then_ends: bool) -> String {
    String::from_utf8(said_bytes(text, then_ends)).unwrap()
}

fn said_bytes(text: &str, then_ends: bool) -> Vec<u8> {
    let (ours, mut theirs) = StdStream::pair().unwrap();
    theirs.write_all(text.as_bytes()).unwrap();
    if then_ends {
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
    }
    block_on(async {
        let served = async {
            serve_connection(Async::new(ours).unwrap(), Echo).await;
            std::future::pending().await
        };
        let heard = blocking(move || {
            let mut heard = Vec::new();
            theirs.read_to_end(&mut heard).unwrap();
            heard
        });
        either(heard, served).await
    })
}

fn bodies(heard: &str) -> Vec<&str> {
    heard.split("HTTP/1.1 ").filter(|part| !part.is_empty()).map(|part| part.rsplit("\r\n").next().unwrap()).collect()
}

#[test]
fn requests_are_answered_in_order_and_bodies_are_skipped() {
    let heard = said(
        "GET /a HTTP/1.1\r\nHost: x\r\n\r\nPOST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nGET\
         \r\nHEAD /c HTTP/1.1\r\nHost: x\r\n\r\nGET /d HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\nGET /e",
        false,
    );
    assert_eq!(bodies(&heard), ["GET /a 0", "POST /b 3", "", "GET /d 0"]);
    assert_eq!(heard.matches("Connection: close").count(), 1);
}

#[test]
fn long_response_is_compressed_for_a_client_that_accepts_it() {
    let get = |target: &str, accepts: &str| {
        let heard = said_bytes(&format!("GET {target} HTTP/1.1\r\nHost: x\r\n{accepts}\r\n"), false);
        let end = heard.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
        (String::from_utf8(heard[..end].to_vec()).unwrap(), heard[end + 4..].to_vec())
    };
    let plain = "long ".repeat(1000).into_bytes();
    for accepts in ["Accept-Encoding: gzip\r\n", "Accept-Encoding: br, gzip;q=0.5\r\n"] {
        let (head, body) = get("/long", accepts);
        assert!(head.contains("\r\nContent-Encoding: gzip\r\nVary: Accept-Encoding\r\n"), "{head}");
        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())) && body.len() < 200, "{head}");
        let mut text = Vec::new();
        flate2::read::GzDecoder::new(&*body).read_to_end(&mut text).unwrap();
        assert!(text == plain);
    }
    let gzip = "Accept-Encoding: gzip\r\n";
    for (target, accepts) in [
        ("/long", ""),
        ("/long", "Accept-Encoding: br\r\n"),
        ("/long", "Accept-Encoding: gzip;q=0.0, x\r\n"),
        ("/long?x", gzip),
    ] {
        let (head, body) = get(target, accepts);
        assert!(!head.contains("Encoding") && body == plain, "{target} {accepts} {head}");
    }
    let (head, body) = get("/last", gzip);
    assert!(!head.contains("Encoding") && body == b"GET /last 0", "{head}");
}

#[test]
fn expect_100_continue_is_answered() {
    let heard = said("POST /last HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n1", false);
    assert!(heard.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n"), "{heard}");
}

#[test]
fn invalid_request_ends_the_connection() {
    for (text, status) in [
        ("GET /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "400 "),
        ("POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "501 "),
        ("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n", "413 "),
        ("nonsense\r\n\r\n", "400 "),
    ] {
        let heard = said(&format!("{text}GET /b HTTP/1.1\r\nHost: x\r\n\r\n"), false);
        assert!(heard.starts_with(&format!("HTTP/1.1 {status}")), "{heard}");
        assert_eq!(bodies(&heard).len(), 1, "{heard}");
    }
    let heard = said(&format!("GET /a HTTP/1.1\r\nA: {}", "b".repeat(20_000)), false);
    assert!(heard.starts_with("HTTP/1.1 431 "), "{heard}");
}

#[test]
fn incomplete_request_gets_no_response() {
    assert_eq!(said("GET /a HTTP/1.1\r\nHost", true), "");
    assert_eq!(said("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n1", true), "");
    assert_eq!(said("", true), "");
}

/// A client that always has more bytes to send, and accepts whatever is written.
struct Endless {
    text: &'static [u8],
    read: usize,
    most: usize,
}

impl AsyncRead for Endless {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, out: &mut [u8]) -> Poll<io::Result<usize>> {
        assert!(self.read < self.most, "the client is read without a pause");
        for byte in out.iter_mut() {
            *byte = self.text[self.read % self.text.len()];
            self.read += 1;
        }
        Poll::Ready(Ok(out.len()))
    }
}

impl AsyncWrite for Endless {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[test]
fn client_that_sends_unexpected_data_is_dropped_after_64_kib() {
    let mut client = Endless { text: b"x", read: 0, most: usize::MAX };
    let ended = block_on(rt::deadline(Duration::from_secs(20), gone::<()>(&mut client)));
    assert_eq!(ended.unwrap().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    assert_eq!(client.read, MAX_IGNORED_BYTES);
}

#[test]
fn client_that_sends_without_pause_does_not_outlive_a_deadline() {
    let mut client = Endless { text: b"x", read: 0, most: MAX_IGNORED_BYTES };
    assert_eq!(block_on(rt::deadline(Duration::ZERO, gone::<()>(&mut client))).unwrap_err(), rt::Elapsed);
    let text = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    let mut client = Endless { text, read: 0, most: 100 * REQUEST_READ_BYTES };
    let conversation = rt::deadline(Duration::ZERO, converse(&mut client, &Echo));
    assert_eq!(block_on(conversation).unwrap_err(), rt::Elapsed);
}

/// A text that never ends.
struct Followed;

impl Text for Followed {
    fn open(&mut self) -> Pin<Box<dyn Future<Output = Result<(), Response>> + '_>> {
        Box::pin(ready(Ok(())))
    }

    fn next(&mut self) -> Pin<Box<dyn Future<Output = Option<Vec<u8>>> + '_>> {
        Box::pin(std::future::pending())
    }
}

struct Streams(Rc<StreamSlots>);

impl RequestHandler for Streams {
    fn keeps_alive(&self) -> bool {
        false
    }

    fn handle<'a>(&'a self, request: &'a Request) -> ResponseFuture<'a> {
        let reply = match &*request.path {
            "/follow" => Reply::Text(Box::new(Followed)),
            _ => Reply::Whole(Response::text(Status::Ok, "short")),
        };
        Box::pin(ready(reply))
    }

    fn stream(&self) -> Result<Option<StreamSlot>, TooManyStreams> {
        self.0.take("client").map(Some)
    }
}

#[test]
fn streams_leave_connections_to_short_requests() {
    block_on(async {
        let slots = StreamSlots::new(2, 2);
        let ask = |path: &'static str| {
            let (ours, theirs) = StdStream::pair().unwrap();
            let mut client = Async::new(ours).unwrap();
            let served = rt::spawn(serve_connection(Async::new(theirs).unwrap(), Streams(Rc::clone(&slots))));
            async move {
                client.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await.unwrap();
                let mut line = [0; 12];
                client.read_exact(&mut line).await.unwrap();
                (String::from_utf8_lossy(&line).into_owned(), client, served)
            }
        };
        let first = ask("/follow").await;
        let second = ask("/follow").await;
        assert_eq!((first.0.as_str(), second.0.as_str()), ("HTTP/1.1 200", "HTTP/1.1 200"));
        assert_eq!(ask("/follow").await.0, "HTTP/1.1 429");
        assert_eq!(ask("/pods").await.0, "HTTP/1.1 200");
        // The reader of a stream disconnects.
        let (_, client, served) = first;
        drop(client);
        rt::deadline(Duration::from_secs(20), served).await.unwrap();
        assert_eq!(ask("/follow").await.0, "HTTP/1.1 200");
    });
}

/// A server whose pages have a mebibyte, and which refuses to change anything.
struct LargePages {
    unread: Rc<UnreadResponses>,
    made: Rc<Cell<usize>>,
}

impl RequestHandler for LargePages {
    fn keeps_alive(&self) -> bool {
        true
    }

    fn admit<'a>(&'a self, request: &'a Request) -> AdmissionFuture<'a> {
        Box::pin(ready(match &*request.method {
            "PUT" => Err(Response::text(Status::Forbidden, "no")),
            _ => Ok(Some(1 << 20)),
        }))
    }

    fn handle<'a>(&'a self, request: &'a Request) -> ResponseFuture<'a> {
        assert_eq!(request.method, "GET", "answered although it was refused");
        self.made.set(self.made.get() + 1);
        Box::pin(ready(Reply::Whole(Response::text(Status::Ok, "x".repeat(1 << 20)))))
    }

    fn unread(&self) -> Option<&Rc<UnreadResponses>> {
        Some(&self.unread)
    }

    fn compresses(&self, _request: &Request) -> bool {
        true
    }
}

#[test]
fn request_is_refused_before_its_body_is_read() {
    block_on(async {
        let (ours, theirs) = StdStream::pair().unwrap();
        let server = LargePages { unread: Rc::default(), made: Rc::default() };
        let _served = rt::spawn(serve_connection(Async::new(theirs).unwrap(), server));
        let mut client = Async::new(ours).unwrap();
        let head = b"PUT /pods/a/b HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1000000\r\n\r\n";
        client.write_all(head).await.unwrap();
        let mut line = [0; 12];
        rt::deadline(Duration::from_secs(20), client.read_exact(&mut line)).await.unwrap().unwrap();
        assert_eq!(&line, b"HTTP/1.1 403");
    });
}

/// Twenty clients that have sent this request and do not read, after four pages were made for them.
async fn waiting_clients(made: &Rc<Cell<usize>>, request: &'static [u8]) -> (Vec<Async<StdStream>>, Vec<rt::Task<()>>) {
    let unread = Rc::<UnreadResponses>::default();
    let mut clients = Vec::new();
    let mut serving = Vec::new();
    for _ in 0..20 {
        let (ours, theirs) = StdStream::pair().unwrap();
        let server = LargePages { unread: Rc::clone(&unread), made: Rc::clone(made) };
        serving.push(rt::spawn(serve_connection(Async::new(theirs).unwrap(), server)));
        let mut client = Async::new(ours).unwrap();
        client.write_all(request).await.unwrap();
        clients.push(client);
    }
    pages_are_made(made, 4).await;
    // A fifth page would be made within this time.
    rt::sleep(Duration::from_millis(100)).await;
    assert_eq!(made.get(), 4, "pages in memory");
    (clients, serving)
}

async fn pages_are_made(made: &Cell<usize>, count: usize) {
    let all = async {
        while made.get() < count {
            rt::sleep(Duration::from_millis(10)).await;
        }
    };
    rt::deadline(Duration::from_secs(20), all).await.unwrap();
}

#[test]
fn pages_for_readers_that_do_not_read_are_bounded_in_bytes() {
    block_on(async {
        let made = Rc::<Cell<usize>>::default();
        let (mut clients, _serving) = waiting_clients(&made, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
        // The first reader takes its page, and there is room for another one.
        let mut page = vec![0; 1 << 20];
        clients[0].read_exact(&mut page).await.unwrap();
        clients[0].read_exact(&mut page[..100]).await.unwrap();
        pages_are_made(&made, 5).await;
        assert_eq!(made.get(), 5);
    });
}

#[test]
fn pages_that_wait_to_be_compressed_are_bounded_in_bytes() {
    block_on(async {
        let (release, hangs) = async_channel::bounded::<()>(1);
        let hung: Vec<_> = (0..2)
            .map(|_| hangs.clone())
            .map(|hangs| rt::blocking_for(COMPRESSION, move || hangs.recv_blocking().is_err()))
            .collect();
        let made = Rc::<Cell<usize>>::default();
        let request = b"GET / HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n";
        let (_clients, _serving) = waiting_clients(&made, request).await;
        drop((release, hung));
        pages_are_made(&made, 5).await;
    });
}
