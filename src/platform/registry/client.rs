//! Requests to one server of a registry.

use std::fmt;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;
use ureq::http::{self, HeaderMap, Method, Request, Response};
use ureq::{Agent, Body};

use super::challenge::{Challenge, token_url};
use super::error::RegistryError;
use super::hosts::{Mirror, authority, mirrors};
use crate::platform::net::Connect;
use crate::types::api::Bytes;

/// The credentials for a registry. `Debug` does not print them.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) username: String,
    pub(crate) password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login")
    }
}

/// One server of a registry, and the authorization that it has accepted.
#[derive(Debug)]
pub(crate) struct Registry {
    mirror: Mirror,
    /// The path of the repository, such as `library/nginx`.
    repository: String,
    login: Option<Login>,
    agent: Agent,
    cancelled: Arc<AtomicBool>,
    /// The value of the header.
    authorization: Option<String>,
}

/// A request for something of the repository.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContentRequest<'a> {
    /// Below the repository, such as `blobs/sha256:...`.
    pub(crate) path: &'a str,
    pub(crate) accept: &'a str,
    /// The first byte to send.
    pub(crate) from: u64,
    /// How many bytes to send at most; a server may ignore it.
    pub(crate) most: Option<u64>,
}

/// A successful answer.
pub(crate) struct ContentResponse {
    /// The first byte of the body; 0 if the server ignored the range.
    pub(crate) from: u64,
    /// The length of the whole content, if the server states it.
    pub(crate) total: Option<u64>,
    url: String,
    body: ureq::BodyReader<'static>,
    cancelled: Arc<AtomicBool>,
}

const MAX_REGISTRY_REDIRECTS: usize = 5;
/// Limit of an error's text and of a token.
const MAX_REGISTRY_TEXT_BYTES: u64 = 64 << 10;
/// Characters of an error's message that are kept.
const MAX_REGISTRY_MESSAGE_CHARS: usize = 200;
const MAX_REGISTRY_RETRY_DELAY: Duration = Duration::from_secs(300);

impl Registry {
    pub(crate) fn new(mirror: Mirror, repository: &str, login: Option<Login>, connect: Connect) -> Self {
        let login = login.filter(|_| mirror.is_origin);
        let cancelled = Arc::clone(&connect.cancelled);
        let agent = connect.agent();
        Self { mirror, repository: repository.to_owned(), login, agent, cancelled, authorization: None }
    }

    pub(crate) fn base(&self) -> &str {
        &self.mirror.base
    }

    /// Whether this server resolves tags.
    pub(crate) fn resolves(&self) -> bool {
        self.mirror.resolves
    }

    /// Sends a request, and once more with a new token if the current one is rejected.
    pub(crate) fn get(&mut self, request: ContentRequest<'_>) -> Result<ContentResponse, RegistryError> {
        let url = format!("{}/{}/{}", self.mirror.base, self.repository, request.path);
        let (at, response) = self.follow(&url, request)?;
        if response.status().as_u16() != 401 || authority(&at) != authority(&url) {
            return self.read_response(&at, request, response);
        }
        self.authorize(&url, response.headers())?;
        let (at, response) = self.follow(&url, request)?;
        self.read_response(&at, request, response)
    }

    /// Asks whether the registry gives this content to these credentials, without getting it. `path` as in
    /// [`ContentRequest`].
    pub(crate) fn check(&mut self, path: &str, accept: &str) -> Result<(), RegistryError> {
        let url = format!("{}/{}/{path}", self.mirror.base, self.repository);
        let ask = ContentRequest { path, accept, from: 0, most: None };
        let (mut at, mut response) = self.follow_as(&Method::HEAD, &url, ask)?;
        if response.status().as_u16() == 401 && authority(&at) == authority(&url) {
            self.authorize(&url, response.headers())?;
            (at, response) = self.follow_as(&Method::HEAD, &url, ask)?;
        }
        match response.status().as_u16() {
            200 => Ok(()),
            // A storage may have signed its URL for GET only, and some servers do not know HEAD: one byte is enough.
            403 if authority(&at) != authority(&url) => self.get(ContentRequest { most: Some(1), ..ask }).map(drop),
            405 | 501 => self.get(ContentRequest { most: Some(1), ..ask }).map(drop),
            _ => self.read_response(&at, ask, response).map(drop),
        }
    }

    /// Sends a request to a server that is no registry: without credentials, and without following it elsewhere.
    pub(crate) fn get_once(&self, ask: ContentRequest<'_>) -> Result<ContentResponse, RegistryError> {
        let url = format!("{}/{}/{}", self.mirror.base, self.repository, ask.path);
        self.read_response(&url, ask, self.send(&url, request(&url, ask).body(()))?)
    }

    fn follow(&self, url: &str, request: ContentRequest<'_>) -> Result<(String, Response<Body>), RegistryError> {
        self.follow_as(&Method::GET, url, request)
    }

    /// Sends the request and follows redirects, to other hosts without credentials.
    fn follow_as(
        &self,
        method: &Method,
        url: &str,
        ask: ContentRequest<'_>,
    ) -> Result<(String, Response<Body>), RegistryError> {
        let mut at = url.to_owned();
        for _ in 0..=MAX_REGISTRY_REDIRECTS {
            let mut request = request(&at, ask).method(method);
            if authority(&at) == authority(url) {
                for (name, value) in &self.mirror.headers {
                    request = request.header(name, value);
                }
                if let Some(authorization) = &self.authorization {
                    request = request.header("Authorization", authorization);
                }
            }
            let response = self.send(&at, request.body(()))?;
            if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
                return Ok((at, response));
            }
            let location = header(response.headers(), "location").unwrap_or_default();
            let next = join(&at, &location)
                .ok_or_else(|| RegistryError::protocol(&at, format!("redirected to {location:?}")))?;
            if at.starts_with("https:") && !next.starts_with("https:") {
                return Err(RegistryError::protocol(&at, "redirected from HTTPS to HTTP"));
            }
            at = next;
        }
        Err(RegistryError::protocol(url, "redirected too often"))
    }

    fn send(&self, url: &str, request: Result<Request<()>, http::Error>) -> Result<Response<Body>, RegistryError> {
        let request = request.map_err(|error| RegistryError::protocol(url, error.to_string()))?;
        self.agent.run(request).map_err(|error| match error {
            _ if self.cancelled.load(Ordering::Relaxed) => RegistryError::Cancelled,
            error => RegistryError::of(url, error),
        })
    }

    fn authorize(&mut self, url: &str, headers: &HeaderMap) -> Result<(), RegistryError> {
        self.authorization = None;
        let refused =
            || RegistryError::Status { url: url.to_owned(), status: 401, message: String::new(), retry_after: None };
        let challenges = headers.get_all("www-authenticate").iter();
        let challenge = challenges.filter_map(|value| Challenge::parse(value.to_str().ok()?)).next_back();
        let basic = self.login.as_ref().map(basic);
        match challenge.ok_or_else(refused)? {
            Challenge::Basic => self.authorization = Some(basic.ok_or_else(refused)?),
            Challenge::Bearer { realm, service, scope } => {
                let scope = scope.unwrap_or_else(|| format!("repository:{}:pull", self.repository));
                let realm = token_url(&realm, service.as_deref(), &scope);
                // The login would be sent unencrypted.
                if url.starts_with("https:") && !realm.starts_with("https:") {
                    return Err(RegistryError::protocol(url, "its token server is not on HTTPS"));
                }
                let mut request = Request::get(&realm);
                if let Some(basic) = basic {
                    request = request.header("Authorization", basic);
                }
                let ask = ContentRequest { path: "", accept: "*/*", from: 0, most: None };
                let response = self.read_response(&realm, ask, self.send(&realm, request.body(()))?)?;
                let text = response.text(MAX_REGISTRY_TEXT_BYTES)?;
                let token: Value = serde_json::from_slice(&text).unwrap_or_default();
                let token = ["token", "access_token"].iter().find_map(|name| token.get(name)?.as_str());
                let token = token.filter(|token| !token.is_empty());
                let token = token.ok_or_else(|| RegistryError::protocol(&realm, "no token in the answer"))?;
                self.authorization = Some(["Bearer ", token].concat());
            }
        }
        Ok(())
    }

    fn read_response(
        &self,
        url: &str,
        request: ContentRequest<'_>,
        response: Response<Body>,
    ) -> Result<ContentResponse, RegistryError> {
        let status = response.status().as_u16();
        let (head, body) = response.into_parts();
        let body = body.into_reader();
        let cancelled = Arc::clone(&self.cancelled);
        let content_response = |from, total| ContentResponse { from, total, url: url.to_owned(), body, cancelled };
        let length = header(&head.headers, "content-length").and_then(|length| length.parse().ok());
        let (from, total) = match status {
            200 => (0, length),
            206 => {
                let range = header(&head.headers, "content-range").unwrap_or_default();
                let range = content_range(&range)
                    .filter(|(from, _)| *from == request.from)
                    .ok_or_else(|| RegistryError::protocol(url, format!("wrong range {range:?}")))?;
                (range.0, range.1)
            }
            _ => {
                let retry_after = header(&head.headers, "retry-after").and_then(|seconds| seconds.trim().parse().ok());
                let retry_after = retry_after.map(|seconds| Duration::from_secs(seconds).min(MAX_REGISTRY_RETRY_DELAY));
                let message = content_response(0, None)
                    .text(MAX_REGISTRY_TEXT_BYTES)
                    .ok()
                    .and_then(|text| error_message(&text))
                    .unwrap_or_default();
                return Err(RegistryError::Status { url: url.to_owned(), status, message, retry_after });
            }
        };
        Ok(content_response(from, total))
    }
}

impl ContentResponse {
    /// The whole body, of at most `limit` bytes.
    pub(crate) fn text(self, limit: u64) -> Result<Vec<u8>, RegistryError> {
        let mut text = Vec::new();
        let Self { url, cancelled, .. } = self;
        let read = self.body.take(limit.saturating_add(1)).read_to_end(&mut text);
        read.map_err(|error| of_io(&url, &error, &cancelled))?;
        if u64::try_from(text.len()).unwrap_or(u64::MAX) > limit {
            return Err(RegistryError::protocol(&url, format!("the answer has more than {limit} bytes")));
        }
        Ok(text)
    }

    pub(crate) fn read(&mut self, out: &mut [u8]) -> Result<usize, RegistryError> {
        loop {
            match self.body.read(out) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return read.map_err(|error| of_io(&self.url, &error, &self.cancelled)),
            }
        }
    }
}

/// Parses a text as the headers and the error document of an answer, and as a `hosts.toml`, for the fuzz targets.
pub fn check_headers(text: &str) {
    if let Some(Challenge::Bearer { realm, service, scope }) = Challenge::parse(text) {
        drop(token_url(&realm, service.as_deref(), &scope.unwrap_or_default()));
    }
    let message = error_message(text.as_bytes()).unwrap_or_default();
    assert!(message.chars().count() <= MAX_REGISTRY_MESSAGE_CHARS);
    drop((content_range(text), join("https://registry.example.com/v2/a", text)));
    assert!(!mirrors("registry.example.com", Some(text), Path::new("/etc")).is_empty());
}

fn request(url: &str, ask: ContentRequest<'_>) -> http::request::Builder {
    let request = Request::get(url).header("Accept", ask.accept);
    if let Some(most) = ask.most {
        let last = ask.from.saturating_add(most).saturating_sub(1);
        request.header("Range", format!("bytes={}-{last}", ask.from))
    } else if ask.from > 0 {
        request.header("Range", format!("bytes={}-", ask.from))
    } else {
        request
    }
}

/// The message of a registry's error document.
fn error_message(text: &[u8]) -> Option<String> {
    let document: Value = serde_json::from_slice(text).ok()?;
    let first = document.get("errors")?.get(0)?;
    let message: String =
        first.get("message")?.as_str()?.chars().filter(|c| !c.is_control()).take(MAX_REGISTRY_MESSAGE_CHARS).collect();
    Some(message)
}

/// First byte and total length of `bytes 5-9/10`.
fn content_range(text: &str) -> Option<(u64, Option<u64>)> {
    let (range, total) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
    Some((range.split_once('-')?.0.trim().parse().ok()?, total.trim().parse().ok()))
}

fn of_io(url: &str, error: &io::Error, cancelled: &AtomicBool) -> RegistryError {
    if cancelled.load(Ordering::Relaxed) { RegistryError::Cancelled } else { RegistryError::io(url, error) }
}

fn basic(login: &Login) -> String {
    let text = format!("{}:{}", login.username, login.password);
    format!("Basic {}", Bytes(text.into_bytes()).to_base64())
}

fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.to_owned())
}

/// An absolute URL, or a path on the same server.
fn join(at: &str, location: &str) -> Option<String> {
    if location.starts_with("http://") || location.starts_with("https://") {
        return Some(location.to_owned());
    }
    if let Some(rest) = location.strip_prefix("//") {
        return Some([at.split_once("//")?.0, "//", rest].concat());
    }
    location.starts_with('/').then(|| [authority(at), location].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_joined() {
        for (location, expected) in [
            ("https://cdn/x?y", Some("https://cdn/x?y")),
            ("//cdn/x", Some("http://cdn/x")),
            ("/v2/x", Some("http://r:5000/v2/x")),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(join("http://r:5000/v2/a", location).as_deref(), expected);
        }
    }

    #[test]
    fn content_ranges_are_parsed() {
        for (text, expected) in [
            ("bytes 5-9/10", Some((5, Some(10)))),
            ("bytes 5-9/*", Some((5, None))),
            ("bytes */10", None),
            ("5-9/10", None),
            ("", None),
        ] {
            assert_eq!(content_range(text), expected, "{text}");
        }
    }
}
