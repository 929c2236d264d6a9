use std::cell::Cell;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream as Socket};
use std::rc::Rc;
use std::thread;

use super::*;
use crate::platform::net::Purpose;
use crate::platform::rt::AsyncWriteExt as _;
use crate::types::api::{HttpHeader, UriScheme};

/// Responds to each connection with the result of `respond` for its request line, and reports the requests.
struct Server {
    address: SocketAddr,
    asked: async_channel::Receiver<String>,
}

impl Server {
    fn start(respond: impl Fn(&str, SocketAddr) -> String + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, asked) = async_channel::unbounded();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let request = head(&stream);
                let response = respond(request.lines().next().unwrap_or_default(), address);
                // The client may have closed the connection, and the test may be over.
                let _ = stream.write_all(response.as_bytes());
                if sender.try_send(request).is_err() {
                    return;
                }
            }
        });
        Self { address, asked }
    }

    fn url(&self, path: &str) -> Url {
        Url::new(UriScheme::Http, "127.0.0.1", self.address.port(), path)
    }

    fn asked(&self) -> String {
        self.asked.recv_blocking().unwrap()
    }
}

fn head(stream: &Socket) -> String {
    let lines = BufReader::new(stream.try_clone().unwrap()).lines();
    lines.map(Result::unwrap).take_while(|line| !line.is_empty()).map(|line| line + "\n").collect()
}

const LONG: Duration = Duration::from_secs(20);

fn get(url: &Url, headers: &[HttpHeader], limit: Duration) -> Result<GetResponse, GetError> {
    rt::block_on(Dialer::new().get(url, &Headers::new(headers, Purpose::Probe), limit))
}

fn page(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{headers}\r\n{body}")
}

#[test]
fn response_is_returned() {
    let server = Server::start(|_, _| page("200 OK", "Content-Length: 4\r\n", "fine and more"));
    let response = get(&server.url("/live?x=1"), &[], LONG).unwrap();
    assert_eq!((response.status, response.body.as_slice()), (200, &b"fine"[..]));
    let asked = server.asked();
    assert!(asked.starts_with("GET /live?x=1 HTTP/1.1\nHost: 127.0.0.1:"), "{asked}");
}

#[test]
fn endless_bodies_are_truncated() {
    let server = Server::start(|_, _| page("200 OK", "", &"x".repeat(1 << 20)));
    assert_eq!(get(&server.url("/"), &[], LONG).unwrap().body.len(), MAX_GET_BODY_BYTES);
}

#[test]
fn redirects_on_the_same_host_keep_the_host_header() {
    let server = Server::start(|line, _| match line {
        "GET /a HTTP/1.1" => page("302 Found", "Location: /b\r\n", ""),
        _ => page("204 No Content", "", ""),
    });
    let host = [HttpHeader { name: "Host".to_owned(), value: "example.com".to_owned() }];
    assert_eq!(get(&server.url("/a"), &host, LONG).unwrap().status, 204);
    for path in ["/a", "/b"] {
        assert!(server.asked().starts_with(&format!("GET {path} HTTP/1.1\nHost: example.com\n")));
    }
}

#[test]
fn redirects_to_another_host_are_returned() {
    let server = Server::start(|_, _| page("301 Moved", "Location: http://example.com/\r\n", "gone there"));
    let response = get(&server.url("/"), &[], LONG).unwrap();
    assert_eq!((response.status, response.body.as_slice()), (301, &b"gone there"[..]));
    let server = Server::start(|_, _| page("304 Not Modified", "Location: /\r\n", ""));
    assert_eq!(get(&server.url("/"), &[], LONG).unwrap().status, 304);
}

#[test]
fn redirect_loops_end() {
    let server = Server::start(|_, at| page("302 Found", &format!("Location: http://{at}/again\r\n"), ""));
    assert_eq!(get(&server.url("/"), &[], LONG).unwrap_err().to_string(), "stopped after 10 redirects");
    (0..11).for_each(|_| drop(server.asked()));
    assert!(server.asked.is_empty());
}

#[test]
fn closed_and_malformed_responses_differ() {
    let server = Server::start(|_, _| String::new());
    assert_eq!(get(&server.url("/"), &[], LONG).unwrap_err().to_string(), "EOF");
    let server = Server::start(|_, _| "SSH-2.0-x\r\n".to_owned());
    let broken = "net/http: HTTP/1.x transport connection broken: malformed HTTP response \"SSH-2.0-x\"";
    assert_eq!(get(&server.url("/"), &[], LONG).unwrap_err().to_string(), broken);
    let server = Server::start(|_, _| page("200 OK", "Content-Length: 100\r\n", "half"));
    let cut = get(&server.url("/"), &[], LONG).unwrap_err();
    assert!(matches!(cut, GetError::Body(BodyError::Cut)), "{cut}");
}

#[test]
fn timeout_is_respected() {
    // The kernel completes connections that the listener never accepts.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = Url::new(UriScheme::Http, "127.0.0.1", listener.local_addr().unwrap().port(), "/");
    let silent = get(&url, &[], Duration::from_millis(50));
    assert!(matches!(silent, Err(GetError::Timeout)), "{silent:?}");
    let answers = thread::spawn(move || {
        let streams = [listener.accept().unwrap().0, listener.accept().unwrap().0];
        (&streams[1]).write_all(page("200 OK", "Content-Length: 100\r\n", "half").as_bytes()).unwrap();
        streams
    });
    let slow = get(&url, &[], Duration::from_millis(500));
    assert!(matches!(slow, Err(GetError::Body(BodyError::Timeout))), "{slow:?}");
    drop(answers.join());
}

#[test]
fn silent_address_of_a_name_leaves_time_for_the_others() {
    let response = rt::simulate(1, |world| async move {
        let [silent, alive] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(|ip| SocketAddr::from((ip, 80)));
        [silent, alive].iter().for_each(|address| world.network.add_name("web", address.ip()));
        world.network.host(&silent.to_string()).set_line(rt::Line::BlackHole);
        let connections = world.network.host(&alive.to_string()).listen();
        let _server = rt::spawn(async move {
            let mut stream = TcpStream::Simulated(connections.recv().await.unwrap());
            stream.write_all(page("204 No Content", "", "").as_bytes()).await.unwrap();
            stream
        });
        let url = Url::new(UriScheme::Http, "web", 80, "/");
        Dialer::new().get(&url, &Headers::new(&[], Purpose::Probe), Duration::from_secs(10)).await
    });
    assert_eq!(response.unwrap().unwrap().status, 204);
}

#[test]
fn refused_connections_have_a_reason() {
    // At the usual address another test may get the port.
    const HOST: &str = "127.71.3.4";
    let port = TcpListener::bind((HOST, 0)).unwrap().local_addr().unwrap().port();
    let refused = get(&Url::new(UriScheme::Http, HOST, port, "/"), &[], LONG).unwrap_err();
    assert_eq!(refused.to_string(), format!("dial tcp {HOST}:{port}: connect: connection refused"));
}

#[test]
fn other_tasks_run_while_a_body_is_read() {
    let read = rt::simulate(1, |world| async move {
        world.shuffle.set(0);
        let address = SocketAddr::from(([10, 0, 0, 1], 80));
        let connections = world.network.host(&address.to_string()).listen();
        let stream = rt::simulated_connection(address).await.unwrap().unwrap();
        let mut server = TcpStream::Simulated(connections.recv().await.unwrap());
        let page = format!("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n{}", "x".repeat(100_000));
        server.write_all(page.as_bytes()).await.unwrap();
        rt::sleep(Duration::from_secs(1)).await;
        let turns = Rc::new(Cell::new(0));
        let count = Rc::clone(&turns);
        let _task = rt::spawn(async move {
            loop {
                count.set(count.get() + 1);
                rt::yield_now().await;
            }
        });
        let mut response = Response::new(100_000);
        read_body(Stream::Plain(stream), &mut response).await.unwrap();
        (response.into_body().len(), turns.get())
    });
    let (body, turns) = read.unwrap();
    assert_eq!(body, 100_000);
    assert!(turns > 20, "{turns} turns");
}
