//! Single requests, each on a connection of its own.
//!
//! ureq speaks HTTP on the slow pool.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::client::ClientConfig;
use rustls::pki_types::{CertificateDer, ServerName};
use ureq::http;

use super::agent::exchange;
use super::http_connection::{Connection, Limit, Target};
use super::redirect::{MAX_HTTP_REDIRECTS, redirect};
use super::{Dialer, GetError, Headers, Proxy, TlsError, Url};
use crate::platform::rt;
use crate::types::api::UriScheme;

/// A request, and the limits of its response.
#[derive(Clone, Debug)]
pub(crate) struct FetchRequest {
    pub(crate) method: &'static str,
    pub(crate) url: Url,
    pub(crate) headers: Headers,
    pub(crate) content: Vec<u8>,
    /// For HTTPS.
    pub(crate) tls: Option<FetchTls>,
    /// Replaces the proxy of the environment.
    pub(crate) proxy: Option<Proxy>,
    /// Limit of everything up to the last byte of the response, with all redirects.
    pub(crate) limit: Duration,
    /// Most bytes of the body to keep.
    pub(crate) most: usize,
    /// Whether to follow redirects on the same host, but none from HTTPS to HTTP. After one to another port or scheme,
    /// the headers are not sent.
    pub(crate) follows: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct FetchTls {
    pub(crate) config: Arc<ClientConfig>,
    /// The name in the server's certificate; `None` for that of the URL.
    pub(crate) name: Option<ServerName<'static>>,
    /// CAs that a proxy's certificate may come from, besides those of the system.
    pub(crate) trusted: Vec<CertificateDer<'static>>,
}

/// The final response.
#[derive(Debug, Default)]
pub(crate) struct FetchResponse {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
    pub(crate) content_type: Option<String>,
    /// Validators of the content.
    pub(crate) etag: Option<String>,
    pub(crate) last_modified: Option<String>,
    pub(crate) retry_after: Option<String>,
    /// Whether its length was given, so that the body is known to be complete.
    pub(crate) is_counted: bool,
    location: Option<String>,
}

impl Dialer {
    /// Sends a request through the proxy that it has to take, if any.
    pub(crate) async fn fetch(&self, request: FetchRequest) -> Result<FetchResponse, GetError> {
        let end = rt::now() + request.limit;
        let request = Arc::new(request);
        let mut at = request.url.clone();
        let mut headers = request.headers.clone();
        let mut keep_host = true;
        for _ in 0..=MAX_HTTP_REDIRECTS {
            let fetched = self.fetch_once(&request, &at, (headers.clone(), keep_host), end).await?;
            let next = redirect(&request.url, &at, fetched.status, fetched.location.as_deref());
            let next = next.filter(|(next, _)| at.scheme == UriScheme::Http || next.scheme == at.scheme);
            let Some((next, is_relative)) = next.filter(|_| request.follows) else { return Ok(fetched) };
            // A given Host header is kept on a relative redirect.
            keep_host &= is_relative;
            if !next.is_same_origin(&at) {
                headers = headers.for_another_origin();
            }
            at = next;
        }
        Err(GetError::TooManyRedirects)
    }

    async fn fetch_once(
        &self,
        request: &Arc<FetchRequest>,
        at: &Url,
        (headers, keep_host): (Headers, bool),
        end: Instant,
    ) -> Result<FetchResponse, GetError> {
        let proxy = request.proxy.clone().or_else(|| self.proxy_for(at).cloned());
        let (host, port) = match &proxy {
            Some(proxy) => (&*proxy.host, proxy.port),
            None => (&*at.host, at.port()),
        };
        let time_left = end.saturating_duration_since(rt::now());
        let addresses =
            rt::deadline(time_left, self.addresses(host, port)).await.map_err(|rt::Elapsed| GetError::Timeout)?;
        let one =
            OneRequest { request: Arc::clone(request), url: at.clone(), headers, keep_host, proxy, addresses, end };
        rt::slow(move || one.send()).await
    }
}

/// A request that runs on the slow pool.
struct OneRequest {
    request: Arc<FetchRequest>,
    url: Url,
    headers: Headers,
    keep_host: bool,
    proxy: Option<Proxy>,
    /// Of the server or the proxy.
    addresses: Vec<SocketAddr>,
    end: Instant,
}

impl OneRequest {
    fn send(&self) -> Result<FetchResponse, GetError> {
        let request = self.http_request()?;
        let tls = match (&self.request.tls, self.url.scheme) {
            (_, UriScheme::Http) => None,
            (Some(tls), UriScheme::Https) => Some((Arc::clone(&tls.config), self.server_name(tls)?)),
            (None, UriScheme::Https) => return Err(GetError::Tls(TlsError::NotTls)),
        };
        let trusted = self.request.tls.as_ref().map_or(&[][..], |tls| &tls.trusted);
        let target = Target { url: &self.url, proxy: self.proxy.as_ref(), tls, trusted };
        let connection = Connection::open(&target, &self.addresses, Limit::Until(self.end))?;
        let (head, body) = exchange(connection, request, self.request.most)?;
        Ok(FetchResponse::of(&head, body))
    }

    fn server_name(&self, tls: &FetchTls) -> Result<ServerName<'static>, GetError> {
        let of_url = || ServerName::try_from(self.url.host.clone());
        let name = tls.name.clone().map_or_else(of_url, Ok);
        name.map_err(|_| GetError::Tls(TlsError::Other(rustls::Error::General("invalid server name".into()))))
    }

    fn http_request(&self) -> Result<http::Request<Vec<u8>>, GetError> {
        // The URI type refuses these, which Go sends.
        let uri = self.url.to_string().replace('"', "%22").replace('<', "%3C").replace('>', "%3E");
        let mut request = http::Request::builder().method(self.request.method).uri(uri);
        let (host, fields) = self.headers.fields(&self.url, self.keep_host)?;
        request = request.header("Host", host);
        for (name, value) in fields {
            request = request.header(name.as_str(), value.trim());
        }
        let request = request.header("Connection", "close").body(self.request.content.clone());
        request.map_err(|error| GetError::Header(error.to_string()))
    }
}

impl FetchResponse {
    fn of(response: &http::response::Parts, body: Vec<u8>) -> Self {
        let header = |name: &str| {
            let value = response.headers.get(name)?;
            Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let status = response.status.as_u16();
        Self {
            status,
            content_type: header("content-type"),
            etag: header("etag"),
            last_modified: header("last-modified"),
            retry_after: header("retry-after"),
            location: header("location"),
            is_counted: matches!(status, 204 | 304)
                || header("content-length").is_some()
                || header("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")),
            body,
        }
    }
}

#[cfg(test)]
mod tests;
