//! One GET, and the redirects that stay with its host.

use std::io;
use std::time::{Duration, Instant};

use crate::api::UriScheme;
use crate::net::error::BodyError;
use crate::net::{DialError, Dialer, GetError, Headers, Url};
use crate::rt::{self, AsyncReadExt, AsyncWriteExt, TcpStream};
use crate::wire::http1::Response;

/// What was answered at last.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

/// Of an answer's body (kubelet: `maxRespBodyLength`).
const BODY: usize = 10 * 1024;
const REDIRECTS: usize = 10;
const READ: usize = 4096;

impl Dialer {
    /// Asks for `url`. A redirect to the same host is followed; one to another host is the answer.
    pub(crate) async fn get(&self, url: &Url, headers: &Headers, limit: Duration) -> Result<Answer, GetError> {
        let end = Instant::now() + limit;
        let left = || end.saturating_duration_since(Instant::now());
        let mut at = url.clone();
        let mut keep_host = true;
        for _ in 0..=REDIRECTS {
            let asked = rt::deadline(left(), self.ask(&at, headers, keep_host, end)).await;
            let (stream, mut response) = asked.map_err(|rt::Elapsed| GetError::Timeout)??;
            if let Some((next, is_relative)) = redirect(url, &at, &response) {
                // A host that was given goes with a redirect that names none itself.
                keep_host &= is_relative;
                at = next;
                continue;
            }
            let read = rt::deadline(left(), read_body(stream, &mut response)).await;
            read.unwrap_or(Err(BodyError::Timeout)).map_err(GetError::Body)?;
            return Ok(Answer { status: response.status(), body: response.into_body() });
        }
        Err(GetError::TooManyRedirects)
    }

    /// Sends the request; the answer as far as its head.
    async fn ask(
        &self,
        url: &Url,
        headers: &Headers,
        keep_host: bool,
        end: Instant,
    ) -> Result<(TcpStream, Response), GetError> {
        if url.scheme == UriScheme::Https {
            return Err(GetError::NoTls);
        }
        let request = headers.request(url, keep_host)?;
        let left = end.saturating_duration_since(Instant::now());
        let mut stream = self.dial(&url.host, url.port(), left).await.map_err(|error| match error {
            DialError::Timeout { .. } => GetError::Timeout,
            error => GetError::Dial(error),
        })?;
        if let Err(cause) = stream.write_all(&request).await {
            return Err(broken(&stream, "write", cause));
        }
        let mut response = Response::new(BODY);
        let mut buffer = vec![0; READ].into_boxed_slice();
        while !response.has_head() {
            match stream.read(&mut buffer).await {
                Ok(0) => return Err(GetError::Closed),
                Ok(len) => {
                    response.receive(buffer.get(..len).unwrap_or_default()).map_err(GetError::Malformed)?;
                }
                Err(cause) => return Err(broken(&stream, "read", cause)),
            }
        }
        Ok((stream, response))
    }
}

async fn read_body(mut stream: TcpStream, response: &mut Response) -> Result<(), BodyError> {
    let mut buffer = vec![0; READ].into_boxed_slice();
    while !response.is_done() {
        match stream.read(&mut buffer).await {
            Ok(0) if response.end() => return Ok(()),
            Ok(0) => return Err(BodyError::Cut),
            Ok(len) => response.receive(buffer.get(..len).unwrap_or_default()).map_err(BodyError::Malformed)?,
            Err(cause) => return Err(BodyError::Io(cause)),
        }
    }
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

fn broken(stream: &TcpStream, what: &'static str, cause: io::Error) -> GetError {
    GetError::Io { from: stream.local_addr().ok(), to: stream.peer_addr().ok(), what, cause }
}

#[cfg(test)]
mod tests;
