//! A client of port 10250 on a node's network. It accepts every certificate.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};

use super::node::{Node, PATIENCE, wait_for};

/// Agent configuration that allows every request from the node's network.
pub(crate) const OPEN: &str = "authentication: {anonymous: {enabled: true}}\nauthorization: {mode: AlwaysAllow}\n";

pub(crate) type Tls = StreamOwned<ClientConnection, TcpStream>;

/// Connects as soon as the server listens and has a certificate.
pub(crate) fn connect(node: &Node) -> Tls {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap().dangerous();
    let config = Arc::new(config.with_custom_certificate_verifier(Arc::new(Anybody)).with_no_client_auth());
    wait_for("port 10250 to answer", PATIENCE, || {
        let tcp = node.enclosure().on_network(|| TcpStream::connect("127.0.0.1:10250")).ok()?;
        tcp.set_read_timeout(Some(PATIENCE)).unwrap();
        let name = ServerName::try_from("node-a").unwrap();
        let mut stream = StreamOwned::new(ClientConnection::new(Arc::clone(&config), name).unwrap(), tcp);
        stream.flush().ok()?;
        Some(stream)
    })
}

/// Sends a request and reads the head of the response.
pub(crate) fn ask(stream: &mut Tls, head: &str) -> String {
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        answer.push(byte[0]);
    }
    String::from_utf8(answer).unwrap()
}

/// The body of a page, fetched over its own connection.
pub(crate) fn get(node: &Node, path: &str) -> String {
    let mut stream = connect(node);
    let head = ask(&mut stream, &format!("GET {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n"));
    assert!(head.starts_with("HTTP/1.1 200 "), "{path}: {head}");
    let mut body = String::new();
    stream.read_to_string(&mut body).unwrap();
    body
}

#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
