//! HTTP GET with redirects.
//!
//! Not by ureq, whose parser does not return the malformed line that upstream's messages of failed probes contain.

use std::io;
use std::time::Duration;

use crate::platform::net::error::BodyError;
use crate::platform::net::redirect::{MAX_HTTP_REDIRECTS, redirect};
use crate::platform::net::stream::Stream;
use crate::platform::net::stream_error::StreamError;
use crate::platform::net::tls::HANDSHAKE_TIMEOUT;
use crate::platform::net::{DialError, Dialer, GetError, Headers, TlsError, Url};
use crate::platform::rt::{self, TcpStream};
use crate::protocol::http1::Response;
use crate::types::api::UriScheme;

/// The final response.
#[derive(Debug, Default)]
pub(crate) struct GetResponse {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

/// Limit of a body (kubelet: `maxRespBodyLength`).
const MAX_GET_BODY_BYTES: usize = 10 * 1024;
const GET_READ_BYTES: usize = 4096;

impl Dialer {
    /// Sends a GET for `url`. Follows redirects on the same host; a redirect to another host is returned as the
    /// response.
    pub(crate) async fn get(&self, url: &Url, headers: &Headers, limit: Duration) -> Result<GetResponse, GetError> {
        let end = rt::now() + limit;
        let time_left = || end.saturating_duration_since(rt::now());
        let mut at = url.clone();
        let mut keep_host = true;
        for _ in 0..=MAX_HTTP_REDIRECTS {
            let exchange = rt::deadline(time_left(), self.send_request(&at, headers, keep_host, time_left())).await;
            let (stream, mut response) = exchange.map_err(|rt::Elapsed| GetError::Timeout)??;
            if let Some((next, is_relative)) = redirect(url, &at, response.status(), response.location()) {
                // A given Host header is kept on a relative redirect.
                keep_host &= is_relative;
                at = next;
                let _ = rt::deadline(time_left(), stream.end()).await;
                continue;
            }
            let read = rt::deadline(time_left(), read_body(stream, &mut response)).await;
            read.unwrap_or(Err(BodyError::Timeout)).map_err(GetError::Body)?;
            return Ok(GetResponse { status: response.status(), body: response.into_body() });
        }
        Err(GetError::TooManyRedirects)
    }

    /// Sends the request and reads the response up to its head. The caller ends it after `limit`, which the addresses
    /// of a name share.
    async fn send_request(
        &self,
        url: &Url,
        headers: &Headers,
        keep_host: bool,
        limit: Duration,
    ) -> Result<(Stream, Response), GetError> {
        let request = headers.request(url, keep_host)?;
        let tcp = self.dial(&url.host, url.port(), limit).await.map_err(|error| match error {
            DialError::Timeout { .. } => GetError::Timeout,
            error => GetError::Dial(error),
        })?;
        let mut stream = match url.scheme {
            UriScheme::Http => Stream::Plain(tcp),
            UriScheme::Https => self.shake_hands(tcp, &url.host).await?,
        };
        if let Err(error) = stream.write_all(&request).await {
            return Err(broken(stream.tcp(), error));
        }
        let mut response = Response::new(MAX_GET_BODY_BYTES);
        let mut buffer = vec![0; GET_READ_BYTES].into_boxed_slice();
        while !response.has_head() {
            match stream.read(&mut buffer).await {
                Ok(0) => return Err(GetError::Closed),
                Ok(len) => {
                    response.receive(buffer.get(..len).unwrap_or_default()).map_err(GetError::Malformed)?;
                    // A server that keeps sending must not starve the other tasks or the deadline.
                    rt::yield_now().await;
                }
                Err(error) => return Err(broken(stream.tcp(), error)),
            }
        }
        Ok((stream, response))
    }

    async fn shake_hands(&self, tcp: TcpStream, host: &str) -> Result<Stream, GetError> {
        // A second handle of the socket, for its address in errors.
        let socket = tcp.clone();
        match rt::deadline(HANDSHAKE_TIMEOUT, self.tls.connect(tcp, host)).await {
            Ok(Ok(stream)) => Ok(Stream::Tls(Box::new(stream))),
            Ok(Err(error)) => Err(broken(&socket, error)),
            Err(rt::Elapsed) => Err(GetError::Tls(TlsError::HandshakeTimeout)),
        }
    }
}

async fn read_body(mut stream: Stream, response: &mut Response) -> Result<(), BodyError> {
    let mut buffer = vec![0; GET_READ_BYTES].into_boxed_slice();
    while !response.is_done() {
        match stream.read(&mut buffer).await {
            Ok(0) if response.end() => break,
            Ok(0) => return Err(BodyError::Cut),
            Ok(len) => {
                response.receive(buffer.get(..len).unwrap_or_default()).map_err(BodyError::Malformed)?;
                rt::yield_now().await;
            }
            Err(StreamError::Io { cause, .. }) => return Err(BodyError::Io(cause)),
            Err(StreamError::Tls(error)) => return Err(BodyError::Tls(error)),
        }
    }
    stream.end().await;
    Ok(())
}

fn broken(tcp: &TcpStream, error: StreamError) -> GetError {
    match error {
        StreamError::Io { cause, .. } if cause.kind() == io::ErrorKind::UnexpectedEof => GetError::Closed,
        StreamError::Io { call, cause } => {
            GetError::Io { from: tcp.local_addr().ok(), to: tcp.peer_addr().ok(), call, cause }
        }
        StreamError::Tls(error) => GetError::Tls(error),
    }
}

#[cfg(test)]
mod tests;
