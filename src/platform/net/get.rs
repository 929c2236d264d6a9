//! One GET, and the redirects that stay with its host.

use std::io;
use std::time::Duration;

use crate::platform::net::error::BodyError;
use crate::platform::net::stream::Stream;
use crate::platform::net::stream_error::StreamError;
use crate::platform::net::tls::HANDSHAKE;
use crate::platform::net::{Dialer, GetError, Headers, TlsError, Url};
use crate::platform::rt::{self, TcpStream};
use crate::protocol::http1::Response;
use crate::types::api::UriScheme;

/// What was answered at last.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
    pub(crate) content_type: Option<String>,
    /// What tells this content from another one, as the server has it.
    pub(crate) etag: Option<String>,
    pub(crate) last_modified: Option<String>,
    /// It says how long it is: what is here is all of it.
    pub(crate) is_counted: bool,
}

impl Answer {
    fn of(response: Response) -> Self {
        let header = |name| response.header(name).map(str::to_owned);
        Self {
            status: response.status(),
            content_type: header("content-type"),
            etag: header("etag"),
            last_modified: header("last-modified"),
            is_counted: response.is_counted(),
            body: response.into_body(),
        }
    }
}

/// How a page is asked for.
#[derive(Clone, Copy)]
struct How {
    /// Of the body no more is kept.
    most: usize,
    /// Who was asked over TLS does not send on to where there is none.
    stays_secret: bool,
}

/// Of an answer's body (kubelet: `maxRespBodyLength`).
const BODY: usize = 10 * 1024;
const REDIRECTS: usize = 10;
const READ: usize = 4096;

impl Dialer {
    /// Asks for `url`. A redirect to the same host is followed; one to another host is the answer.
    pub(crate) async fn get(&self, url: &Url, headers: &Headers, limit: Duration) -> Result<Answer, GetError> {
        self.get_as(How { most: BODY, stays_secret: false }, url, headers, limit).await
    }

    /// The same for what is to be had as a whole, `most` bytes of it, and from nobody else.
    pub(crate) async fn fetch(
        &self,
        url: &Url,
        headers: &Headers,
        limit: Duration,
        most: usize,
    ) -> Result<Answer, GetError> {
        self.get_as(How { most, stays_secret: true }, url, headers, limit).await
    }

    async fn get_as(&self, how: How, url: &Url, headers: &Headers, limit: Duration) -> Result<Answer, GetError> {
        let end = rt::now() + limit;
        let left = || end.saturating_duration_since(rt::now());
        let mut at = url.clone();
        let mut keep_host = true;
        for _ in 0..=REDIRECTS {
            let asked = rt::deadline(left(), self.ask(&at, headers, keep_host, how.most)).await;
            let (stream, mut response) = asked.map_err(|rt::Elapsed| GetError::Timeout)??;
            let next = redirect(url, &at, &response)
                .filter(|(next, _)| !how.stays_secret || at.scheme == UriScheme::Http || next.scheme == at.scheme);
            if let Some((next, is_relative)) = next {
                // A host that was given goes with a redirect that names none itself.
                keep_host &= is_relative;
                at = next;
                let _ = rt::deadline(left(), stream.end()).await;
                continue;
            }
            let read = rt::deadline(left(), read_body(stream, &mut response)).await;
            read.unwrap_or(Err(BodyError::Timeout)).map_err(GetError::Body)?;
            return Ok(Answer::of(response));
        }
        Err(GetError::TooManyRedirects)
    }

    /// Sends the request; the answer as far as its head.
    async fn ask(
        &self,
        url: &Url,
        headers: &Headers,
        keep_host: bool,
        most: usize,
    ) -> Result<(Stream, Response), GetError> {
        let request = headers.request(url, keep_host)?;
        let tcp = self.reach(&url.host, url.port()).await.map_err(GetError::Dial)?;
        let mut stream = match url.scheme {
            UriScheme::Http => Stream::Plain(tcp),
            UriScheme::Https => self.shake_hands(tcp, &url.host).await?,
        };
        if let Err(error) = stream.write_all(&request).await {
            return Err(broken(stream.tcp(), error));
        }
        let mut response = Response::new(most);
        let mut buffer = vec![0; READ].into_boxed_slice();
        while !response.has_head() {
            match stream.read(&mut buffer).await {
                Ok(0) => return Err(GetError::Closed),
                Ok(len) => {
                    response.receive(buffer.get(..len).unwrap_or_default()).map_err(GetError::Malformed)?;
                    // A server that always has more bytes must not keep the other tasks, or the deadline, waiting.
                    rt::yield_now().await;
                }
                Err(error) => return Err(broken(stream.tcp(), error)),
            }
        }
        Ok((stream, response))
    }

    async fn shake_hands(&self, tcp: TcpStream, host: &str) -> Result<Stream, GetError> {
        // A second handle of the same socket, to tell whose it was.
        let socket = tcp.clone();
        match rt::deadline(HANDSHAKE, self.tls.connect(tcp, host)).await {
            Ok(Ok(stream)) => Ok(Stream::Tls(Box::new(stream))),
            Ok(Err(error)) => Err(broken(&socket, error)),
            Err(rt::Elapsed) => Err(GetError::Tls(TlsError::HandshakeTimeout)),
        }
    }
}

async fn read_body(mut stream: Stream, response: &mut Response) -> Result<(), BodyError> {
    let mut buffer = vec![0; READ].into_boxed_slice();
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

/// Where `response` to a request for `at` leads to, and whether it says so without a host of its own; `None`: nowhere
/// that is followed.
fn redirect(first: &Url, at: &Url, response: &Response) -> Option<(Url, bool)> {
    if !matches!(response.status(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let location = response.location()?;
    let next = at.join(location)?;
    let is_relative = !location.contains("//");
    next.host.eq_ignore_ascii_case(&first.host).then_some((next, is_relative))
}

fn broken(tcp: &TcpStream, error: StreamError) -> GetError {
    match error {
        StreamError::Io { cause, .. } if cause.kind() == io::ErrorKind::UnexpectedEof => GetError::Closed,
        StreamError::Io { what, cause } => {
            GetError::Io { from: tcp.local_addr().ok(), to: tcp.peer_addr().ok(), what, cause }
        }
        StreamError::Tls(error) => GetError::Tls(error),
    }
}

#[cfg(test)]
mod tests;
