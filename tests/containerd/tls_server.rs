//! Servers inside a node's network: with TLS, without TLS, and one that never responds.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread;

use nix::sys::socket::{Shutdown, shutdown};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ServerConfig, ServerConnection};

use super::node::{Node, PATIENCE};

/// Created with `openssl req -x509`; the second one expired in 2001.
pub(crate) const SELF_SIGNED: &[u8] = include_bytes!("../data/tls/self-signed.der");
pub(crate) const EXPIRED: &[u8] = include_bytes!("../data/tls/expired.der");
const KEY: &[u8] = include_bytes!("../data/tls/key.der");

const PAGE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine";

/// Listens on 127.0.0.1 of the node until it is dropped.
pub(crate) struct Server {
    listener: TcpListener,
    pub(crate) port: u16,
    /// The received requests as text.
    requests: Mutex<Receiver<String>>,
}

impl Server {
    /// A server that answers every request over TLS with this certificate.
    pub(crate) fn with_certificate(node: &Node, certificate: &'static [u8]) -> Self {
        let config = config(certificate);
        Self::start(node, move |mut tcp| {
            let mut tls = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = rustls::Stream::new(&mut tls, &mut tcp);
            let head = read_head(&mut stream)?;
            stream.write_all(PAGE).ok()?;
            Some(head)
        })
    }

    /// A server that speaks plain HTTP and answers anything else with an HTTP error.
    pub(crate) fn without_tls(node: &Node) -> Self {
        Self::start(node, |mut tcp| {
            let mut first = [0; 1];
            tcp.read_exact(&mut first).ok()?;
            if &first != b"G" {
                tcp.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").ok()?;
                return None;
            }
            let head = read_head(&mut tcp)?;
            tcp.write_all(PAGE).ok()?;
            Some(format!("G{head}"))
        })
    }

    /// A server that accepts connections and never responds.
    pub(crate) fn silent(node: &Node) -> Self {
        Self::start(node, |mut tcp| {
            let _ = tcp.read_to_end(&mut Vec::new());
            None
        })
    }

    fn start(node: &Node, serve: impl Fn(TcpStream) -> Option<String> + Send + 'static) -> Self {
        let listener = node.enclosure().on_network(|| TcpListener::bind("127.0.0.1:0").unwrap());
        let port = listener.local_addr().unwrap().port();
        let (sender, requests) = mpsc::channel();
        let taken = listener.try_clone().unwrap();
        thread::spawn(move || {
            while let Ok((stream, _)) = taken.accept() {
                if let Some(request) = serve(stream) {
                    // The test may be over.
                    let _ = sender.send(request);
                }
            }
        });
        Self { listener, port, requests: Mutex::new(requests) }
    }

    /// Waits for the next request.
    #[track_caller]
    pub(crate) fn request(&self) -> String {
        self.requests.lock().unwrap().recv_timeout(PATIENCE).expect("the server is asked")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Unblocks the thread in accept.
        let _ = shutdown(self.listener.as_raw_fd(), Shutdown::Both);
    }
}

fn config(certificate: &'static [u8]) -> Arc<ServerConfig> {
    let key = ring::sign::any_supported_type(&PrivateKeyDer::from(PrivatePkcs8KeyDer::from(KEY))).unwrap();
    let key = CertifiedKey::new(vec![CertificateDer::from(certificate)], key);
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    Arc::new(builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(key))))
}

fn read_head(stream: &mut impl Read) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0; 1];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    String::from_utf8(head).ok()
}
