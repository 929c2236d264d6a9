//! A minimal client: HTTP/1.1 with or without TLS, one request after the other.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;

use crate::fake_api::FakeApi;
use crate::fake_api::certificates::Validity;
use crate::fake_api::identity::Identity;

/// No test step takes longer.
const LIMIT: Duration = Duration::from_secs(20);

pub(crate) trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// A connection, with TLS if the server uses it.
pub(crate) fn stream(
    api: &FakeApi,
    identity: Option<(&Identity, Validity)>,
    protocols: &[&[u8]],
) -> io::Result<Box<dyn Stream>> {
    let tcp = TcpStream::connect(api.address())?;
    tcp.set_read_timeout(Some(LIMIT))?;
    tcp.set_nodelay(true)?;
    if !api.uses_tls() {
        return Ok(Box::new(tcp));
    }
    let mut roots = RootCertStore::empty();
    roots.add(der_of(&api.authority_pem())).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(rustls::ALL_VERSIONS)
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match identity {
        None => config.with_no_client_auth(),
        Some((identity, validity)) => {
            let own = api.client_certificate(identity, validity);
            let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(own.key));
            config.with_client_auth_cert(vec![own.certificate], key).unwrap()
        }
    };
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let name = ServerName::from(api.address().ip());
    Ok(Box::new(StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), tcp)))
}

pub(crate) struct Client {
    stream: Box<dyn Stream>,
    buffer: Vec<u8>,
    headers: Vec<(String, String)>,
}

#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str()).unwrap_or_default()
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        let mut text = Vec::new();
        if self.header("content-encoding") == "gzip" {
            GzDecoder::new(self.body.as_slice()).read_to_end(&mut text).unwrap();
        } else {
            text.clone_from(&self.body);
        }
        serde_json::from_slice(&text).unwrap_or_else(|_| panic!("not JSON: {}", String::from_utf8_lossy(&text)))
    }

    /// The code, reason and message of a Status.
    #[track_caller]
    pub(crate) fn message(&self) -> String {
        self.json()["message"].as_str().unwrap_or_default().to_owned()
    }
}

impl Client {
    /// A client without a certificate, with TLS if the server uses it.
    pub(crate) fn anonymous(api: &FakeApi) -> Self {
        Self::connect(api, None).unwrap()
    }

    pub(crate) fn node(api: &FakeApi, name: &str) -> Self {
        Self::of(api, &Identity::node(name))
    }

    pub(crate) fn admin(api: &FakeApi) -> Self {
        Self::of(api, &Identity::admin())
    }

    pub(crate) fn of(api: &FakeApi, identity: &Identity) -> Self {
        let validity = Validity::a_day(api.look(|world| world.now()));
        Self::connect(api, Some((identity, validity))).unwrap()
    }

    pub(crate) fn connect(api: &FakeApi, identity: Option<(&Identity, Validity)>) -> io::Result<Self> {
        let stream = stream(api, identity, &[])?;
        Ok(Self { stream, buffer: Vec::new(), headers: Vec::new() })
    }

    /// Adds a header to every later request.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn get(&mut self, target: &str) -> Answer {
        self.ask("GET", target, &[], b"").unwrap()
    }

    pub(crate) fn post(&mut self, target: &str, body: &Value) -> Answer {
        self.ask("POST", target, &[("Content-Type", "application/json")], body.to_string().as_bytes()).unwrap()
    }

    pub(crate) fn put(&mut self, target: &str, body: &Value) -> Answer {
        self.ask("PUT", target, &[("Content-Type", "application/json")], body.to_string().as_bytes()).unwrap()
    }

    /// `sort` is `json`, `merge` or `strategic-merge`.
    pub(crate) fn patch(&mut self, sort: &str, target: &str, body: &Value) -> Answer {
        let content_type = format!("application/{sort}-patch+json");
        self.ask("PATCH", target, &[("Content-Type", &content_type)], body.to_string().as_bytes()).unwrap()
    }

    pub(crate) fn delete(&mut self, target: &str, body: &Value) -> Answer {
        self.ask("DELETE", target, &[("Content-Type", "application/json")], body.to_string().as_bytes()).unwrap()
    }

    pub(crate) fn ask(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Answer> {
        self.send(method, target, headers, body)?;
        self.answer()
    }

    /// Sends a body that is already framed.
    pub(crate) fn ask_raw(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Answer> {
        self.send_head(method, target, headers)?;
        self.stream.write_all(b"\r\n")?;
        self.stream.write_all(body)?;
        self.stream.flush()?;
        self.answer()
    }

    fn answer(&mut self) -> io::Result<Answer> {
        let (status, headers) = self.head()?;
        let mut answer = Answer { status, headers, body: Vec::new() };
        if answer.header("transfer-encoding") == "chunked" {
            while let Some(chunk) = self.chunk()? {
                answer.body.extend(chunk);
            }
        } else {
            let length = answer.header("content-length").parse().map_err(io::Error::other)?;
            answer.body = self.take(length)?;
        }
        Ok(answer)
    }

    pub(crate) fn send(&mut self, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> io::Result<()> {
        self.send_head(method, target, headers)?;
        self.stream.write_all(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes())?;
        self.stream.write_all(body)?;
        self.stream.flush()
    }

    fn send_head(&mut self, method: &str, target: &str, headers: &[(&str, &str)]) -> io::Result<()> {
        let mut head = format!("{method} {target} HTTP/1.1\r\nHost: api\r\nUser-Agent: kubelet/v1.36.2\r\n");
        let own = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in own.chain(headers.iter().copied()) {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        self.stream.write_all(head.as_bytes())
    }

    /// Begins a watch; `event` returns its events.
    #[track_caller]
    pub(crate) fn watch(&mut self, target: &str) {
        self.send("GET", target, &[], b"").unwrap();
        let (status, _) = self.head().unwrap();
        assert_eq!(status, 200);
    }

    /// The next event of a watch; `None` at its end.
    pub(crate) fn event(&mut self) -> Option<(String, Value)> {
        let event: Value = serde_json::from_slice(&self.chunk().unwrap()?).expect("an event");
        Some((event["type"].as_str().unwrap().to_owned(), event["object"].clone()))
    }

    pub(crate) fn head(&mut self) -> io::Result<(u16, Vec<(String, String)>)> {
        let status = self.line()?.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_default();
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(": ") else { return Ok((status, headers)) };
            headers.push((name.to_owned(), value.to_owned()));
        }
    }

    pub(crate) fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let size = usize::from_str_radix(&self.line()?, 16).map_err(io::Error::other)?;
        let chunk = self.take(size)?;
        self.line()?;
        Ok((size > 0).then_some(chunk))
    }

    fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|two| two == b"\r\n") {
                let line: Vec<u8> = self.buffer.drain(..end + 2).collect();
                return Ok(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
            self.more()?;
        }
    }

    fn take(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.buffer.len() < length {
            self.more()?;
        }
        Ok(self.buffer.drain(..length).collect())
    }

    fn more(&mut self) -> io::Result<()> {
        let mut bytes = [0; 4096];
        match self.stream.read(&mut bytes)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            length => {
                self.buffer.extend_from_slice(&bytes[..length]);
                Ok(())
            }
        }
    }
}

fn der_of(pem: &str) -> CertificateDer<'static> {
    let body: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    STANDARD.decode(body).unwrap().into()
}
