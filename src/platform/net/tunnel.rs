//! Opens a tunnel through a proxy: CONNECT (RFC 9110, section 9.3.6), SOCKS 5 (RFC 1928, RFC 1929). Pure.
//!
//! ```text
//!   HTTP     CONNECT -> response head -> open
//!   SOCKS 5  greeting -> method [-> credentials -> verdict] -> CONNECT -> reply -> bound address -> open
//! ```

use std::net::IpAddr;

use super::proxy::{Credentials, ProxyScheme, authority};
use super::{Proxy, ProxyError};
use crate::protocol::http1::Response;
use crate::types::api::Bytes;

/// The negotiation with a proxy about one server.
pub(super) struct Tunnel<'a> {
    proxy: &'a Proxy,
    host: &'a str,
    port: u16,
    state: State,
}

enum State {
    Begun,
    /// The response head so far.
    Connect(Box<Response>, Vec<u8>),
    Method,
    Verdict,
    Reply,
    /// The length of a bound name.
    NameLength,
    BoundAddress,
}

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TunnelStep {
    /// Send these bytes, then read this many: what follows belongs to the server.
    Ask(Vec<u8>, usize),
    Read(usize),
    Open,
}

impl<'a> Tunnel<'a> {
    pub(super) fn new(proxy: &'a Proxy, host: &'a str, port: u16) -> Self {
        Self { proxy, host, port, state: State::Begun }
    }

    /// The next step after the bytes that the last one read; empty at first.
    pub(super) fn next(&mut self, received: &[u8]) -> Result<TunnelStep, ProxyError> {
        let state = std::mem::replace(&mut self.state, State::Begun);
        let (next, step) = match state {
            State::Begun if self.proxy.scheme == ProxyScheme::Socks5 => {
                let greeting: &[u8] = if self.proxy.credentials.is_some() { &[5, 2, 0, 2] } else { &[5, 1, 0] };
                (State::Method, TunnelStep::Ask(greeting.to_vec(), 2))
            }
            State::Begun => {
                (State::Connect(Box::new(Response::new(0)), Vec::new()), TunnelStep::Ask(self.connect_request(), 1))
            }
            State::Connect(response, head) => self.connect_response(response, head, received)?,
            State::Method => match (received, &self.proxy.credentials) {
                ([5, 0], _) => (State::Reply, TunnelStep::Ask(self.socks_request()?, 4)),
                ([5, 2], Some(credentials)) => {
                    (State::Verdict, TunnelStep::Ask(self.socks_credentials(credentials)?, 2))
                }
                ([5, _], _) => return Err(self.failed("expected other credentials: no authentication method accepted")),
                _ => return Err(self.failed("not a SOCKS 5 proxy")),
            },
            State::Verdict => match received {
                [_, 0] => (State::Reply, TunnelStep::Ask(self.socks_request()?, 4)),
                _ => return Err(self.failed("user name or password rejected")),
            },
            State::Reply => match *received {
                [5, 0, _, 1] => (State::BoundAddress, TunnelStep::Read(4 + 2)),
                [5, 0, _, 4] => (State::BoundAddress, TunnelStep::Read(16 + 2)),
                [5, 0, _, 3] => (State::NameLength, TunnelStep::Read(1)),
                [5, code, ..] if code > 0 => return Err(self.refused(socks_reply(code))),
                _ => return Err(self.failed("not a SOCKS 5 proxy")),
            },
            State::NameLength => {
                let length = received.first().copied().map_or(0, usize::from);
                (State::BoundAddress, TunnelStep::Read(length + 2))
            }
            State::BoundAddress => (State::Begun, TunnelStep::Open),
        };
        self.state = next;
        Ok(step)
    }

    fn connect_request(&self) -> Vec<u8> {
        let to = authority(self.host, self.port);
        let mut request = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n");
        if let Some(value) = self.proxy.authorization() {
            request.extend(["Proxy-Authorization: ", &value, "\r\n"]);
        }
        request.push_str(concat!("User-Agent: coracle/", env!("CARGO_PKG_VERSION"), "\r\n\r\n"));
        request.into_bytes()
    }

    fn connect_response(
        &self,
        mut response: Box<Response>,
        mut head: Vec<u8>,
        received: &[u8],
    ) -> Result<(State, TunnelStep), ProxyError> {
        head.extend_from_slice(received);
        response.receive(received).map_err(|what| self.failed(&what.to_string()))?;
        if !response.has_head() {
            return Ok((State::Connect(response, head), TunnelStep::Read(1)));
        }
        if (200..300).contains(&response.status()) {
            return Ok((State::Begun, TunnelStep::Open));
        }
        // The status with its text, without the version.
        let head = String::from_utf8_lossy(&head);
        let line = head.lines().next().unwrap_or_default();
        let shown: String = line.chars().filter(|c| !c.is_control()).take(MAX_SHOWN_TUNNEL_CHARS).collect();
        let status_line = shown.split_once(' ').map_or(&*shown, |(_, status_line)| status_line.trim());
        Err(self.refused(status_line))
    }

    fn socks_request(&self) -> Result<Vec<u8>, ProxyError> {
        let mut request = vec![5, 1, 0];
        match self.host.parse() {
            Ok(IpAddr::V4(address)) => {
                request.push(1);
                request.extend(address.octets());
            }
            Ok(IpAddr::V6(address)) => {
                request.push(4);
                request.extend(address.octets());
            }
            Err(_) => {
                request.push(3);
                self.push_counted(&mut request, self.host)?;
            }
        }
        request.extend(self.port.to_be_bytes());
        Ok(request)
    }

    fn socks_credentials(&self, credentials: &Credentials) -> Result<Vec<u8>, ProxyError> {
        let mut request = vec![1];
        self.push_counted(&mut request, &credentials.user)?;
        self.push_counted(&mut request, &credentials.password)?;
        Ok(request)
    }

    fn push_counted(&self, request: &mut Vec<u8>, text: &str) -> Result<(), ProxyError> {
        let length = u8::try_from(text.len()).map_err(|_| self.failed("name longer than 255 bytes"))?;
        request.push(length);
        request.extend(text.bytes());
        Ok(())
    }

    fn refused(&self, response: &str) -> ProxyError {
        self.failed(&format!("refused to connect to {}: {response}", authority(self.host, self.port)))
    }

    fn failed(&self, message: &str) -> ProxyError {
        ProxyError::new(self.proxy, message)
    }
}

impl Proxy {
    /// The value of `Proxy-Authorization` (RFC 7617).
    pub(super) fn authorization(&self) -> Option<String> {
        let Credentials { user, password } = self.credentials.as_ref()?;
        let both = Bytes(format!("{user}:{password}").into_bytes());
        Some(format!("Basic {}", both.to_base64()))
    }
}

/// RFC 1928, section 6.
fn socks_reply(code: u8) -> &'static str {
    match code {
        2 => "not allowed by its rules",
        3 => "network unreachable",
        4 => "host unreachable",
        5 => "connection refused",
        6 => "TTL expired",
        7 => "command not supported",
        8 => "address type not supported",
        _ => "general failure",
    }
}

/// How much of an answer an error shows.
const MAX_SHOWN_TUNNEL_CHARS: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays a proxy that sends these bytes. Returns what it was sent, and the bytes left over or the error.
    fn play(proxy: &str, host: &str, answers: &[u8]) -> (Vec<u8>, Result<usize, String>) {
        let proxy = Proxy::parse(proxy).unwrap();
        let mut tunnel = Tunnel::new(&proxy, host, 6443);
        let (mut sent, mut left, mut received) = (Vec::new(), answers, Vec::new());
        loop {
            let length = match tunnel.next(&received) {
                Ok(TunnelStep::Ask(bytes, length)) => {
                    sent.extend(bytes);
                    length
                }
                Ok(TunnelStep::Read(length)) => length,
                Ok(TunnelStep::Open) => return (sent, Ok(left.len())),
                Err(error) => return (sent, Err(error.to_string())),
            };
            let Some((read, rest)) = left.split_at_checked(length) else { return (sent, Err("EOF".to_owned())) };
            (received, left) = (read.to_vec(), rest);
        }
    }

    #[test]
    fn connect_leaves_the_servers_first_bytes() {
        let (sent, opened) = play("http://u:p@p:1", "api", b"HTTP/1.1 200 OK\r\nVia: x\r\n\r\nserver");
        assert_eq!(opened, Ok(6));
        let sent = String::from_utf8(sent).unwrap();
        let head =
            "CONNECT api:6443 HTTP/1.1\r\nHost: api:6443\r\nProxy-Authorization: Basic dTpw\r\nUser-Agent: coracle/";
        assert!(sent.starts_with(head) && sent.ends_with("\r\n\r\n"), "{sent}");
        assert!(play("https://p:1", "fd00::1", b"").0.starts_with(b"CONNECT [fd00::1]:6443 HTTP/1.1\r\n"));
        let interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 200 Connection established\r\n\r\n";
        assert_eq!(play("http://p:1", "api", interim).1, Ok(0));
    }

    #[test]
    fn refusal_names_proxy_and_answer_without_password() {
        for (response, line) in [
            ("HTTP/1.1 403 Forbidden\r\n\r\n", "proxy http://p:1: refused to connect to api:6443: 403 Forbidden"),
            ("HTTP/1.1 407 \r\n\r\n", "proxy http://p:1: refused to connect to api:6443: 407"),
            ("SSH-2.0-x\r\n", "proxy http://p:1: malformed HTTP response \"S\""),
        ] {
            let refused = play("http://u:secret@p:1", "api", response.as_bytes()).1;
            assert_eq!(refused.unwrap_err(), line);
        }
    }

    #[test]
    fn socks_sends_names_and_addresses() {
        let reply = [5, 0, 5, 0, 0, 1, 127, 0, 0, 1, 1, 2, b'x'];
        let (sent, opened) = play("socks5://p", "api", &reply);
        assert_eq!((sent, opened), ([&[5, 1, 0, 5, 1, 0, 3, 3][..], b"api", &[0x19, 0x2b]].concat(), Ok(1)));
        let name = [5, 0, 5, 0, 0, 3, 2, b'a', b'b', 1, 2];
        let (sent, opened) = play("socks5h://p", "10.0.0.1", &name);
        assert_eq!((sent, opened), (vec![5, 1, 0, 5, 1, 0, 1, 10, 0, 0, 1, 0x19, 0x2b], Ok(0)));
        let v6 = [&[5, 2, 1, 0, 5, 0, 0, 4][..], &[0; 18]].concat();
        let (sent, opened) = play("socks5://u:pw@p", "::1", &v6);
        let asked = [&[5, 2, 0, 2, 1, 1, b'u', 2, b'p', b'w', 5, 1, 0, 4][..], &[0; 15], &[1, 0x19, 0x2b]].concat();
        assert_eq!((sent, opened), (asked, Ok(0)));
    }

    #[test]
    fn socks_refusals_have_a_reason() {
        for (answers, line) in [
            (&[5, 0xff][..], "expected other credentials: no authentication method accepted"),
            (&[5, 2, 1, 1], "user name or password rejected"),
            (&[5, 0, 5, 2, 0, 1], "refused to connect to api:6443: not allowed by its rules"),
            (&[5, 0, 5, 5, 0, 1], "refused to connect to api:6443: connection refused"),
            (b"HT", "not a SOCKS 5 proxy"),
        ] {
            let refused = play("socks5://u:secret@p:1", "api", answers).1;
            assert_eq!(refused.unwrap_err(), format!("proxy socks5://p:1: {line}"));
        }
    }
}
