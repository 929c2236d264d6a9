use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use super::*;
use crate::platform::net::error::BodyError;
use crate::platform::net::{ProxySettings, Purpose};
use crate::types::api::HttpHeader;

/// Responds to each connection with `respond` for its request line, and reports the requests.
struct Server {
    address: SocketAddr,
    asked: async_channel::Receiver<String>,
}

impl Server {
    fn start(respond: impl Fn(&str, &mut TcpStream) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, asked) = async_channel::unbounded();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let head: String =
                    lines.map_while(Result::ok).take_while(|line| !line.is_empty()).map(|line| line + "\n").collect();
                respond(head.lines().next().unwrap_or_default(), &mut stream);
                if sender.try_send(head).is_err() {
                    return;
                }
            }
        });
        Self { address, asked }
    }

    /// Always sends these bytes.
    fn saying(page: &'static str) -> Self {
        // The client may have closed the connection.
        Self::start(move |_, stream| drop(stream.write_all(page.as_bytes())))
    }

    fn asked(&self) -> String {
        self.asked.recv_blocking().unwrap()
    }
}

fn request(url: &str) -> FetchRequest {
    FetchRequest {
        method: "GET",
        url: Url::parse(url).unwrap(),
        headers: Headers::new(&[], Purpose::Probe),
        content: Vec::new(),
        tls: None,
        proxy: None,
        limit: Duration::from_secs(20),
        most: 1000,
        follows: true,
    }
}

fn fetch(request: FetchRequest) -> Result<FetchResponse, GetError> {
    rt::block_on(Dialer::of_server(ProxySettings::default()).fetch(request))
}

fn of(server: &Server, path: &str) -> FetchRequest {
    request(&format!("http://{}{path}", server.address))
}

#[test]
fn head_and_body_are_returned() {
    let server =
        Server::saying("HTTP/1.1 200 OK\r\nContent-Length: 4\r\nETag: \"x\"\r\nRetry-After: 7\r\n\r\nfine more");
    let fetched = fetch(of(&server, "/a?b=\"<>")).unwrap();
    assert_eq!((fetched.status, &*fetched.body, fetched.is_counted), (200, &b"fine"[..], true));
    assert_eq!((fetched.etag.as_deref(), fetched.retry_after.as_deref()), (Some("\"x\""), Some("7")));
    let asked = server.asked();
    assert!(asked.starts_with("GET /a?b=%22%3C%3E HTTP/1.1\n"), "{asked}");
    let lower = asked.to_lowercase();
    for line in [&format!("host: {}\n", server.address), "user-agent: kube-probe/1.36\n", "connection: close\n"] {
        assert_eq!(lower.matches(line).count(), 1, "{asked}");
    }
    assert!(!lower.contains("accept-encoding") && !lower.contains("ureq"), "{asked}");
}

#[test]
fn body_until_the_end_is_not_counted() {
    let fetched = fetch(of(&Server::saying("HTTP/1.1 200 OK\r\n\r\nhalf"), "/")).unwrap();
    assert_eq!((&*fetched.body, fetched.is_counted), (&b"half"[..], false));
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n";
    let fetched = fetch(of(&Server::saying(chunked), "/")).unwrap();
    assert_eq!((&*fetched.body, fetched.is_counted), (&b"abc"[..], true));
    assert!(fetch(of(&Server::saying("HTTP/1.1 304 Not Modified\r\n\r\n"), "/")).unwrap().is_counted);
}

#[test]
fn long_bodies_are_cut_and_incomplete_ones_are_errors() {
    let long: &str = "HTTP/1.1 200 OK\r\n\r\n".to_owned().leak();
    let server = Server::start(move |_, stream| {
        let _ = stream.write_all(long.as_bytes());
        while stream.write_all(&[b'x'; 4096]).is_ok() {}
    });
    assert_eq!(fetch(of(&server, "/")).unwrap().body.len(), 1000);
    for (page, expected) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", "unexpected EOF"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nha", "unexpected EOF"),
        ("", "EOF"),
        ("HTTP/1.1 200 OK\r\nContent-Le", "EOF"),
    ] {
        let error = fetch(of(&Server::saying(page), "/")).unwrap_err();
        assert_eq!(error.to_string(), expected, "{page}");
    }
    let malformed = fetch(of(&Server::saying("SSH-2.0-x\r\n\r\n"), "/")).unwrap_err();
    assert!(matches!(malformed, GetError::Http(_)), "{malformed}");
}

#[test]
fn only_redirects_on_the_same_host_are_followed() {
    let server = Server::start(|line, stream| {
        let head = match line {
            "GET /a HTTP/1.1" => "302 Found\r\nLocation: /b\r\nContent-Length: 4\r\n\r\nbody",
            "GET /loop HTTP/1.1" => "302 Found\r\nLocation: /loop\r\nContent-Length: 0\r\n\r\n",
            "GET /away HTTP/1.1" => "301 Moved\r\nLocation: http://example.com/\r\nContent-Length: 4\r\n\r\ngone",
            _ => "200 OK\r\nContent-Length: 2\r\n\r\nb.",
        };
        stream.write_all(format!("HTTP/1.1 {head}").as_bytes()).unwrap();
    });
    assert_eq!(fetch(of(&server, "/a")).unwrap().body, b"b.");
    let away = fetch(of(&server, "/away")).unwrap();
    assert_eq!((away.status, &*away.body), (301, &b"gone"[..]));
    assert_eq!(fetch(of(&server, "/loop")).unwrap_err().to_string(), "stopped after 10 redirects");
    let fixed = fetch(FetchRequest { follows: false, ..of(&server, "/a") }).unwrap();
    assert_eq!((fixed.status, &*fixed.body), (302, &b"body"[..]));
}

#[test]
fn request_with_content_is_sent_whole() {
    let server = Server::start(|_, stream| drop(stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")));
    fetch(FetchRequest { method: "DELETE", content: b"{}".to_vec(), ..of(&server, "/x") }).unwrap();
    let asked = server.asked();
    assert!(
        asked.starts_with("DELETE /x HTTP/1.1\n") && asked.to_lowercase().contains("content-length: 2\n"),
        "{asked}"
    );
}

#[test]
fn peer_that_sends_slowly_is_left_at_the_deadline() {
    for head in ["HTTP/1.1 200 OK\r\nX: ", "HTTP/1.1 200 OK\r\n\r\n"] {
        let server = Server::start(move |_, stream| {
            let _ = stream.write_all(head.as_bytes());
            while stream.write_all(b"x").is_ok() {
                // Each byte comes long before the deadline, which must not be extended by it.
                thread::sleep(Duration::from_millis(10));
            }
        });
        let begun = rt::now();
        let error = fetch(FetchRequest { limit: Duration::from_millis(300), ..of(&server, "/") }).unwrap_err();
        assert!(matches!(error, GetError::Timeout | GetError::Body(BodyError::Timeout)), "{error}");
        assert!(rt::elapsed(begun) < Duration::from_secs(10));
    }
}

#[test]
fn proxy_forwards_plain_http() {
    let server = Server::saying("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n");
    let proxy = Proxy::parse(&format!("http://u:p@{}", server.address));
    let fetched = fetch(FetchRequest { proxy, ..request("http://pods.test:81/a?b") }).unwrap();
    assert_eq!(fetched.status, 403);
    let asked = server.asked().to_lowercase();
    assert!(asked.starts_with("get http://pods.test:81/a?b http/1.1\n"), "{asked}");
    assert!(asked.contains("host: pods.test:81\n") && asked.contains("proxy-authorization: basic dtpw\n"), "{asked}");
}

#[test]
fn errors_name_the_proxy() {
    let server = Server::saying("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n");
    let at = server.address;
    let https = |proxy: &str| {
        let config = crate::platform::net::tls_config(Arc::new(crate::platform::net::AnyCertificate)).unwrap();
        let tls = Some(FetchTls { config, name: None, trusted: Vec::new() });
        fetch(FetchRequest { proxy: Proxy::parse(proxy), tls, ..request("https://api.test:6443/") }).unwrap_err()
    };
    let line = format!("proxy http://{at}: refused to connect to api.test:6443: 407 Proxy Authentication Required");
    assert_eq!(https(&format!("http://u:secret@{at}")).to_string(), line);
    let dead = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let line = format!("proxy socks5://{dead}: dial tcp {dead}: connect: connection refused");
    assert_eq!(https(&format!("socks5h://u:secret@{dead}")).to_string(), line);
}

#[test]
fn configured_headers_are_not_sent_to_another_origin() {
    let other = Server::saying("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nb.");
    let location = format!("HTTP/1.1 302 Found\r\nLocation: http://{}/x\r\nContent-Length: 0\r\n\r\n", other.address);
    let server = Server::start(move |line, stream| {
        let page = match line {
            "GET /here HTTP/1.1" => "HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n",
            "GET /x HTTP/1.1" => "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            _ => &location,
        };
        stream.write_all(page.as_bytes()).unwrap();
    });
    let given = [("Authorization", "Bearer secret"), ("X-Token", "secret"), ("If-None-Match", "\"v\"")]
        .map(|(name, value)| HttpHeader { name: name.to_owned(), value: value.to_owned() });
    let headers = Headers::new(&given, Purpose::Probe);
    let get = |path: &str| fetch(FetchRequest { headers: headers.clone(), ..of(&server, path) }).unwrap();
    assert_eq!(get("/away").body, b"b.");
    let asked = other.asked().to_lowercase();
    assert!(!asked.contains("secret"), "{asked}");
    assert!(asked.contains("if-none-match: \"v\"\n") && asked.contains("user-agent: "), "{asked}");
    assert!(server.asked().contains("secret"));
    get("/here");
    for line in ["/here", "/x"] {
        let asked = server.asked();
        assert!(asked.starts_with(&format!("GET {line} ")) && asked.matches("secret").count() == 2, "{asked}");
    }
}
