//! Single requests to an API server, each over HTTP/1.1 on a connection of its own, to join and to leave a cluster.

use std::sync::Arc;
use std::time::Duration;

use super::access::Access;
use super::client::{MAX_API_RESPONSE_BYTES, in_time};
use super::transport::{caller, unreachable};
use super::{ApiError, ApiResponse, Request, Status};
use crate::platform::net::{Dialer, FetchRequest, FetchTls, GetError, Headers, Purpose, Url};
use crate::types::api::HttpHeader;
use crate::types::error::ErrorChain;

#[derive(Debug)]
pub(crate) struct SingleRequests {
    access: Access,
    dialer: Dialer,
}

impl SingleRequests {
    pub(crate) fn new(access: Access, dialer: Dialer) -> Self {
        Self { access, dialer }
    }

    /// Sends a request and returns its response within the request's limit.
    pub(crate) async fn send(&self, request: &Request) -> Result<ApiResponse, ApiError> {
        in_time(request, async |left| self.send_once(request, left).await, |_| {}).await
    }

    /// The proxy that requests take, if any.
    pub(crate) fn proxy(&self) -> Option<String> {
        let configured_proxy = self.access.proxy.as_ref();
        configured_proxy.or_else(|| self.dialer.proxy_for(&self.access.url)).map(ToString::to_string)
    }

    async fn send_once(&self, request: &Request, timeout: Duration) -> Result<ApiResponse, ApiError> {
        let fetched =
            self.dialer.fetch(self.fetch_request(request, timeout)).await.map_err(|error| self.failed(&error))?;
        if fetched.body.len() > MAX_API_RESPONSE_BYTES {
            return Err(ApiError::Malformed(format!("longer than {MAX_API_RESPONSE_BYTES} bytes").into()));
        }
        if (200..300).contains(&fetched.status) {
            return Ok(ApiResponse::of(fetched.body));
        }
        let retry_after = fetched.retry_after.and_then(|seconds| seconds.trim().parse().ok()).map(Duration::from_secs);
        Err(ApiError::Refused(Box::new(Status::of_body(fetched.status, retry_after, &fetched.body))))
    }

    fn fetch_request(&self, request: &Request, limit: Duration) -> FetchRequest {
        let mut url: Url = self.access.url.clone();
        let mut headers = Vec::new();
        for field in request.head(&caller(&self.access)) {
            let (name, value) = (String::from_utf8_lossy(&field.name), String::from_utf8_lossy(&field.value));
            match &*name {
                ":path" => url.target = value.into_owned(),
                pseudo if pseudo.starts_with(':') => {}
                name => headers.push(HttpHeader { name: name.to_owned(), value: value.into_owned() }),
            }
        }
        let tls = self.access.tls.as_ref().map(|(config, name)| {
            let mut config = rustls::ClientConfig::clone(config);
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
            FetchTls { config: Arc::new(config), name: Some(name.clone()), trusted: self.access.trusted.clone() }
        });
        FetchRequest {
            method: request.method(),
            url,
            // The purpose names a client without a user agent, and `head` has one.
            headers: Headers::new(&headers, Purpose::Probe),
            content: request.content().to_vec(),
            tls,
            proxy: self.access.proxy.clone(),
            limit,
            // One byte more, by which a longer response is noticed.
            most: MAX_API_RESPONSE_BYTES + 1,
            follows: false,
        }
    }

    fn failed(&self, error: &GetError) -> ApiError {
        match error {
            GetError::Dial(_) | GetError::Proxy(_) | GetError::Tls(_) | GetError::Header(_) => {
                unreachable(&self.access, &ErrorChain(error))
            }
            GetError::Timeout => ApiError::Timeout,
            GetError::Malformed(_) | GetError::Http(_) | GetError::TooManyRedirects => {
                ApiError::Malformed(error.to_string().into())
            }
            GetError::Io { .. } | GetError::Closed | GetError::Body(_) => ApiError::Lost(error.to_string().into()),
        }
    }
}
