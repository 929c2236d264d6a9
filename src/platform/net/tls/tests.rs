use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream as Socket};
use std::thread;
use std::time::Instant;

use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, ServerConnection, SupportedProtocolVersion, version};

use super::*;
use crate::platform::net::{Dialer, GetError, GetResponse, Headers, Purpose, Url};
use crate::platform::rt;
use crate::types::api::UriScheme;

const LIMIT: Duration = Duration::from_secs(20);

/// A certificate of `tests/data/tls` with its key, and the names that clients requested.
#[derive(Debug)]
struct Certificate {
    key: Arc<CertifiedKey>,
    asked: async_channel::Sender<Option<String>>,
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.asked.try_send(hello.server_name().map(str::to_owned)).unwrap();
        Some(Arc::clone(&self.key))
    }
}

fn certified_key(certificate: &[u8]) -> Arc<CertifiedKey> {
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(&include_bytes!("../../../../tests/data/tls/key.der")[..]));
    let key = ring::sign::any_supported_type(&key).unwrap();
    Arc::new(CertifiedKey::new(vec![CertificateDer::from(certificate.to_vec())], key))
}

const SELF_SIGNED: &[u8] = include_bytes!("../../../../tests/data/tls/self-signed.der");
const EXPIRED: &[u8] = include_bytes!("../../../../tests/data/tls/expired.der");

/// Responds to each connection with the result of `respond` for its request line and the server's port.
struct Server {
    port: u16,
    asked: async_channel::Receiver<Option<String>>,
}

impl Server {
    fn start(
        certificate: &[u8],
        versions: &[&'static SupportedProtocolVersion],
        respond: impl Fn(&str, u16) -> String + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, asked) = async_channel::unbounded();
        let resolver = Arc::new(Certificate { key: certified_key(certificate), asked: sender });
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(versions)
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        let config = Arc::new(config);
        thread::spawn(move || {
            for stream in listener.incoming() {
                serve(&config, stream.unwrap(), |line| respond(line, port));
            }
        });
        Self { port, asked }
    }

    fn get(&self, path: &str) -> Result<GetResponse, GetError> {
        get(&Dialer::new(), "127.0.0.1", self.port, path)
    }
}

fn serve(config: &Arc<ServerConfig>, mut tcp: Socket, respond: impl Fn(&str) -> String) {
    let mut tls = ServerConnection::new(Arc::clone(config)).unwrap();
    let mut stream = rustls::Stream::new(&mut tls, &mut tcp);
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    while !head.ends_with(b"\r\n\r\n") {
        // The handshake failed, so no request arrived.
        let Ok(len @ 1..) = stream.read(&mut buffer) else { return };
        head.extend_from_slice(&buffer[..len]);
    }
    let head = String::from_utf8(head).unwrap();
    stream.write_all(respond(head.lines().next().unwrap()).as_bytes()).unwrap();
    // No close_notify, like many servers.
}

fn get(dialer: &Dialer, host: &str, port: u16, path: &str) -> Result<GetResponse, GetError> {
    let url = Url::new(UriScheme::Https, host, port, path);
    rt::block_on(dialer.get(&url, &Headers::new(&[], Purpose::Probe), LIMIT))
}

fn page(_: &str, _: u16) -> String {
    "HTTP/1.1 200 OK\r\n\r\nfine".to_owned()
}

#[test]
fn any_certificate_is_accepted_in_both_versions() {
    for certificate in [SELF_SIGNED, EXPIRED] {
        for version in [&version::TLS12, &version::TLS13] {
            let server = Server::start(certificate, &[version], page);
            let response = server.get("/").unwrap();
            assert_eq!((response.status, response.body.as_slice()), (200, &b"fine"[..]), "{version:?}");
        }
    }
}

#[test]
fn long_responses_are_read_up_to_the_limit() {
    let server = Server::start(SELF_SIGNED, rustls::ALL_VERSIONS, |_, _| {
        format!("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n{}", "x".repeat(100_000))
    });
    assert_eq!(server.get("/").unwrap().body.len(), 10 * 1024);
}

#[test]
fn names_are_sent_as_sni_and_addresses_are_not() {
    let server = Server::start(SELF_SIGNED, rustls::ALL_VERSIONS, page);
    for (host, told) in [("localhost", Some("localhost")), ("127.0.0.1", None)] {
        get(&Dialer::new(), host, server.port, "/").unwrap();
        assert_eq!(server.asked.recv_blocking().unwrap().as_deref(), told);
    }
    assert!(matches!(server_name("no name at all"), ServerName::IpAddress(_)));
}

#[test]
fn redirects_from_http_to_https_are_followed() {
    let server = Server::start(SELF_SIGNED, rustls::ALL_VERSIONS, |line, port| match line {
        "GET /a HTTP/1.1" => format!("HTTP/1.1 302 Found\r\nLocation: https://127.0.0.1:{port}/b\r\n\r\n"),
        _ => "HTTP/1.1 204 No Content\r\n\r\n".to_owned(),
    });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = Url::new(UriScheme::Http, "127.0.0.1", listener.local_addr().unwrap().port(), "/");
    let location = format!("https://127.0.0.1:{}/a", server.port);
    let plain = respond_once(listener, format!("HTTP/1.1 301 Moved\r\nLocation: {location}\r\n\r\n").into_bytes());
    let response = rt::block_on(Dialer::new().get(&url, &Headers::new(&[], Purpose::Probe), LIMIT)).unwrap();
    assert_eq!(response.status, 204);
    plain.join().unwrap();
}

/// Responds to one connection with these bytes, whatever it sends.
fn respond_once(listener: TcpListener, response: Vec<u8>) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut buffer = [0; 1024];
        let _ = stream.read(&mut buffer).unwrap();
        stream.write_all(&response).unwrap();
    })
}

#[test]
fn handshake_errors_have_upstreams_text() {
    for (answer, told) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "http: server gave HTTP response to HTTPS client"),
        (b"SSH-2.0-x\r\n", "tls: first record does not look like a TLS handshake"),
        (b"", "EOF"),
        (b"\x16\x03", "EOF"),
        (&[0x15, 3, 3, 0, 2, 2, 40], "remote error: tls: handshake failure"),
        (&[0x15, 3, 3, 0, 2, 2, 70], "remote error: tls: protocol version not supported"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = respond_once(listener, answer.to_vec());
        assert_eq!(get(&Dialer::new(), "127.0.0.1", port, "/").unwrap_err().to_string(), told, "{answer:?}");
        server.join().unwrap();
    }
}

#[test]
fn hanging_handshake_times_out() {
    // The kernel completes connections that the listener never accepts.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = Url::new(UriScheme::Https, "127.0.0.1", listener.local_addr().unwrap().port(), "/");
    let began = Instant::now();
    let headers = Headers::new(&[], Purpose::Probe);
    let silent = rt::block_on(Dialer::new().get(&url, &headers, Duration::from_millis(50)));
    assert!(matches!(silent, Err(GetError::Timeout)), "{silent:?}");
    assert!(began.elapsed() < HANDSHAKE_TIMEOUT);
}

#[test]
fn configuration_is_created_once_on_demand() {
    let dialer = Dialer::new();
    let server = Server::start(SELF_SIGNED, rustls::ALL_VERSIONS, page);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = Url::new(UriScheme::Http, "127.0.0.1", listener.local_addr().unwrap().port(), "/");
    let plain = respond_once(listener, b"HTTP/1.1 200 OK\r\n\r\n".to_vec());
    rt::block_on(dialer.get(&url, &Headers::new(&[], Purpose::Probe), LIMIT)).unwrap();
    plain.join().unwrap();
    assert!(dialer.tls.0.get().is_none());
    let first = |dialer: &Dialer| {
        get(dialer, "127.0.0.1", server.port, "/").unwrap();
        Arc::as_ptr(dialer.tls.0.get().unwrap())
    };
    assert_eq!(first(&dialer), first(&dialer.clone()));
}

#[test]
fn time_is_that_of_the_host() {
    let now = HostClock.current_time().unwrap().as_secs();
    assert!(i64::try_from(now).unwrap().abs_diff(clock::timestamp().as_second()) < 60);
}

/// Sends more session tickets after the handshake than one read returns, then one byte.
async fn serve_tickets(mut tcp: TcpStream) {
    let (asked, _names) = async_channel::unbounded();
    let resolver = Arc::new(Certificate { key: certified_key(SELF_SIGNED), asked });
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(resolver);
    config.send_tls13_tickets = 500;
    let mut tls = ServerConnection::new(Arc::new(config)).unwrap();
    let mut buffer = [0; TLS_READ_BYTES];
    while tls.is_handshaking() {
        let len = tcp.read(&mut buffer).await.unwrap();
        tls.read_tls(&mut &buffer[..len]).unwrap();
        tls.process_new_packets().unwrap();
        if !tls.is_handshaking() {
            tls.writer().write_all(b"x").unwrap();
        }
        let mut out = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut out).unwrap();
        }
        tcp.write_all(&out).await.unwrap();
    }
    std::future::pending().await
}

#[test]
fn other_tasks_run_while_empty_records_are_read() {
    let turns = rt::simulate(1, |world| async move {
        world.shuffle.set(0);
        let address = std::net::SocketAddr::from(([10, 0, 0, 1], 443));
        let connections = world.network.host(&address.to_string()).listen();
        let tcp = rt::simulated_connection(address).await.unwrap().unwrap();
        let _server = rt::spawn(serve_tickets(TcpStream::Simulated(connections.recv().await.unwrap())));
        let mut stream = Tls::default().connect(tcp, "10.0.0.1").await.unwrap();
        rt::sleep(Duration::from_secs(1)).await;
        let turns = Rc::new(std::cell::Cell::new(0));
        let count = Rc::clone(&turns);
        let _task = rt::spawn(async move {
            loop {
                count.set(count.get() + 1);
                rt::yield_now().await;
            }
        });
        assert_eq!(stream.read(&mut [0; 10]).await.unwrap(), 1);
        turns.get()
    });
    let turns = turns.unwrap();
    assert!(turns > 5, "{turns} turns");
}
