//! Pods from a URL: polled, and stored for a start without the server.
//!
//! ```text
//!   the stored response -> UrlState::take -> SyncEvent::Sources
//!   GET, with the validators of the last response -> 304: nothing
//!                                                 -> 200: UrlState::take -> the disk -> SyncEvent::Sources
//! ```
//!
//! A response is accepted or rejected as a whole. On any failure (unreachable server, truncated or invalid response,
//! bad signature) the running pods stay, the failure is reported once, and polls become less frequent.

mod bundle;
mod error;
mod signature;
mod url_state;

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use async_channel::Sender;

use self::error::FetchError;
pub(crate) use self::signature::Trust;
use self::url_state::{ResponseVerdict, SignedManifest, UrlState, decode, encode};
use crate::control::pod_sources::static_pod::ManifestNode;
use crate::kubelet::images::Artifacts;
use crate::kubelet::node::StatusInputs;
use crate::platform::host::durable::{self, StoredFile};
use crate::platform::host::{clock, file};
use crate::platform::net::{
    AnyCertificate, Dialer, FetchRequest, FetchResponse as Response, FetchTls, Headers, MAX_AUTHORITIES_BYTES, Purpose,
    SYSTEM_AUTHORITIES, Url, tls_config, trusting,
};
use crate::platform::rt;
use crate::protocol::pem;
use crate::state::pods::SyncEvent;
use crate::types::api::{HttpHeader, UriScheme};
use crate::types::error::ErrorChain;
use crate::types::text::without_credentials;
use crate::types::time::{Backoff, jitter};

pub(crate) enum ManifestPlace {
    Server(Url),
    /// The name of an artifact in a registry.
    Registry(String, Box<Artifacts>),
}

/// The URL of the manifests, and how it is requested and verified.
pub(crate) struct UrlPods {
    pub(crate) place: ManifestPlace,
    /// The URL as configured, which is part of the pods' identity. It may contain credentials.
    pub(crate) configured: String,
    /// Names and values.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) every: Duration,
    /// Time limit of one complete response.
    pub(crate) limit: Duration,
    /// CA bundle for the server's certificate; `None`: the system's.
    pub(crate) authorities: Option<PathBuf>,
    pub(crate) trust: Option<Trust>,
    /// File with the last accepted response.
    pub(crate) kept: PathBuf,
    /// File with the highest serial number of an accepted signature.
    pub(crate) serial: PathBuf,
    pub(crate) node: ManifestNode,
}

/// Sends the stored pods to `inbox` at once, and the pods at the URL whenever they change, until the inbox is closed.
pub(crate) async fn run(source: UrlPods, dialer: Dialer, inbox: Sender<SyncEvent>, status_inputs: Rc<StatusInputs>) {
    let url_state = UrlState::new(&source.configured, source.node.clone(), source.trust.clone());
    let longest = MAX_URL_POLL_DELAY.max(source.every);
    let backoff = Backoff::new(source.every, longest);
    let validators = Validators::default();
    let mut running = UrlSource { source, dialer, inbox, status_inputs, url_state, validators, backoff };
    running.load().await;
    if running.send_pods().await.is_err() {
        return;
    }
    loop {
        let wait = running.round().await;
        let Ok(wait) = wait else { return };
        rt::sleep(wait).await;
    }
}

/// Allows a complete response over a slow line.
pub(crate) const URL_RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest manifest, the same as for an API object.
const MAX_URL_MANIFEST_BYTES: usize = 1 << 20;
/// Longest signature with its audience.
const MAX_POD_SIGNATURE_BYTES: usize = 4 << 10;
/// Longest header of the stored file.
const MAX_STORED_HEADER_BYTES: u64 = 16 << 10;
const MAX_SERIAL_BYTES: u64 = 1 << 10;
/// Longest wait between polls of an unreachable server.
const MAX_URL_POLL_DELAY: Duration = Duration::from_secs(300);

struct UrlSource {
    source: UrlPods,
    dialer: Dialer,
    inbox: Sender<SyncEvent>,
    /// Takes the version of the agent that the manifest asks for.
    status_inputs: Rc<StatusInputs>,
    url_state: UrlState,
    validators: Validators,
    backoff: Backoff,
}

/// The HTTP validators of the accepted response.
#[derive(Debug, Default)]
struct Validators {
    etag: Option<String>,
    last_modified: Option<String>,
}

/// The result of a request.
enum FetchedManifest {
    /// Unchanged (304).
    NotModified,
    New(SignedManifest, Validators),
}

/// The inbox is closed.
struct Closed;

impl UrlSource {
    /// Uses the stored response until the server sends another one.
    async fn load(&mut self) {
        self.load_serial().await;
        let path = self.source.kept.clone();
        let limit = MAX_STORED_HEADER_BYTES + u64::try_from(MAX_URL_MANIFEST_BYTES).unwrap_or(u64::MAX);
        let kept = match rt::blocking(move || durable::read(&path, limit)).await {
            Ok(StoredFile::Nothing) => return,
            Ok(StoredFile::Whole(kept)) => kept,
            Ok(StoredFile::Damaged) => return self.not_kept("it is damaged"),
            Err(error) => return self.not_kept(&ErrorChain(&error).to_string()),
        };
        // Ignores the stored pods of another URL.
        let Some(response) = decode(&self.source.configured, &kept) else { return };
        if let Err(error) = self.url_state.take(&response, &clock::timestamp().to_string(), clock::now()) {
            self.not_kept(&error.to_string());
        }
    }

    async fn load_serial(&mut self) {
        let path = self.source.serial.clone();
        match rt::blocking(move || durable::read(&path, MAX_SERIAL_BYTES)).await {
            Ok(StoredFile::Nothing) => {}
            Ok(StoredFile::Whole(stored)) => self.url_state.remember(&stored),
            Ok(StoredFile::Damaged) => self.serial_not_read("it is damaged"),
            Err(error) => self.serial_not_read(&ErrorChain(&error).to_string()),
        }
    }

    fn serial_not_read(&self, why: &str) {
        let path = self.source.serial.display();
        log!(
            warn,
            "highest serial number of manifests unknown, starting with that of the next one",
            file = path,
            error = why
        );
    }

    fn not_kept(&mut self, why: &str) {
        let path = self.source.kept.display();
        log!(warn, "stored response of staticPodURL not used", file = path, error = why);
        self.url_state.fail(format!("what was kept in {path} is not used: {why}"), clock::now());
    }

    /// Polls once. Returns the wait until the next poll.
    async fn round(&mut self) -> Result<Duration, Closed> {
        let is_news = match self.fetch().await {
            Ok(FetchedManifest::NotModified) => self.url_state.succeed(),
            Ok(FetchedManifest::New(response, validators)) => {
                match self.url_state.take(&response, &clock::timestamp().to_string(), clock::now()) {
                    Ok(taken) => match self.store(&response).await {
                        Ok(()) => {
                            self.validators = validators;
                            self.url_state.succeed() || taken == ResponseVerdict::New
                        }
                        Err(error) => {
                            // Fetch the manifest in full at the next poll, and write it then.
                            self.validators = Validators::default();
                            self.fail(ErrorChain(&error).to_string()) || taken == ResponseVerdict::New
                        }
                    },
                    Err(error) => self.fail(error.to_string()),
                }
            }
            Err(error) => self.fail(ErrorChain(&error).to_string()),
        };
        if is_news {
            self.send_pods().await?;
        }
        let failed = self.url_state.has_failed();
        let wait = if failed {
            self.backoff.next_wait()
        } else {
            self.backoff.reset();
            self.source.every
        };
        Ok(jitter(wait, 0.2, rt::random()))
    }

    fn fail(&mut self, why: String) -> bool {
        let is_news = self.url_state.fail(why.clone(), clock::now());
        if is_news {
            log!(warn, "manifest problem", file = without_credentials(&self.source.configured), problem = why);
        }
        is_news
    }

    /// Stores the accepted response and its serial number if they are not on disk.
    async fn store(&self, response: &SignedManifest) -> Result<(), FetchError> {
        if let Some(serial) = self.url_state.highest() {
            self.write(&self.source.serial, serial).await?;
        }
        self.write(&self.source.kept, encode(&self.source.configured, response)).await
    }

    async fn write(&self, path: &Path, bytes: Vec<u8>) -> Result<(), FetchError> {
        let place = path.to_owned();
        let written = rt::blocking(move || durable::write_changed(&place, &bytes)).await;
        written.map(drop).map_err(|source| FetchError::Keep { path: path.to_owned(), source })
    }

    async fn send_pods(&self) -> Result<(), Closed> {
        self.inbox.send(SyncEvent::Sources(self.url_state.update())).await.map_err(|_| Closed)?;
        // An update of the agent notes which pods run: those that come with it have to be known first.
        self.status_inputs.set_wanted_agent(self.url_state.agent());
        Ok(())
    }

    async fn fetch(&self) -> Result<FetchedManifest, FetchError> {
        match &self.source.place {
            ManifestPlace::Server(url) => self.fetch_from_server(url).await,
            ManifestPlace::Registry(artifact, artifacts) => self.fetch_from_registry(artifact, artifacts).await,
        }
    }

    /// The tag is resolved each time; a layer that is here is not fetched again.
    async fn fetch_from_registry(&self, artifact: &str, artifacts: &Artifacts) -> Result<FetchedManifest, FetchError> {
        let choose = if self.source.trust.is_some() { bundle::signed_manifests } else { bundle::manifests };
        let files = artifacts.files(artifact, choose).await.map_err(FetchError::Artifact)?;
        let mut contents = files.into_iter().map(|file| file.content);
        let (manifest, signature) = (contents.next().unwrap_or_default(), contents.next());
        Ok(FetchedManifest::New(SignedManifest { manifest, signature }, Validators::default()))
    }

    async fn fetch_from_server(&self, url: &Url) -> Result<FetchedManifest, FetchError> {
        let tls = self.tls(url).await?;
        let answer =
            self.get(url, self.headers(self.url_state.has_accepted()), tls.clone(), MAX_URL_MANIFEST_BYTES).await?;
        if answer.status == 304 && self.url_state.has_accepted() {
            return Ok(FetchedManifest::NotModified);
        }
        let manifest = whole(&answer, MAX_URL_MANIFEST_BYTES)?.to_vec();
        if answer.content_type.as_deref().is_some_and(|kind| kind.trim().to_ascii_lowercase().starts_with("text/html"))
        {
            return Err(FetchError::Html);
        }
        let signature = match self.source.trust {
            None => None,
            Some(_) => {
                let url = with_suffix(url);
                let answer = self.get(&url, self.headers(false), tls, MAX_POD_SIGNATURE_BYTES).await;
                let failed = |error| FetchError::Signature {
                    url: without_credentials(&url.to_string()),
                    source: Box::new(error),
                };
                let answer = answer.map_err(failed)?;
                Some(whole(&answer, MAX_POD_SIGNATURE_BYTES).map_err(failed)?.to_vec())
            }
        };
        let validators = Validators { etag: answer.etag, last_modified: answer.last_modified };
        Ok(FetchedManifest::New(SignedManifest { manifest, signature }, validators))
    }

    /// Sends a GET. The body is cut one byte after `most`.
    async fn get(&self, url: &Url, headers: Headers, tls: FetchTls, most: usize) -> Result<Response, FetchError> {
        let request = FetchRequest {
            method: "GET",
            url: url.clone(),
            headers,
            content: Vec::new(),
            tls: Some(tls),
            proxy: None,
            limit: self.source.limit,
            most: most + 1,
            follows: true,
        };
        self.dialer.fetch(request).await.map_err(FetchError::Get)
    }

    /// Checks the server's certificate. Reads the CA bundle each time, because it may be replaced.
    async fn tls(&self, url: &Url) -> Result<FetchTls, FetchError> {
        if url.scheme == UriScheme::Http {
            // Only a redirect leads to HTTPS, and the redirect itself was not verified.
            let config = tls_config(Arc::new(AnyCertificate)).map_err(FetchError::Tls)?;
            return Ok(FetchTls { config, name: None, trusted: Vec::new() });
        }
        let path = self.source.authorities.clone().unwrap_or_else(|| PathBuf::from(SYSTEM_AUTHORITIES));
        let file = path.clone();
        let read = rt::blocking(move || file::read_all(&file, MAX_AUTHORITIES_BYTES)).await;
        let text = read.map_err(|source| FetchError::ReadAuthorities { path: path.clone(), source })?;
        let unusable = |source| FetchError::Authorities { path: path.clone(), source };
        let trusted = pem::certificates(&text).map_err(|_| unusable("expected certificates in PEM".into()))?;
        let verifier = trusting(&trusted).map_err(|error| unusable(error.into()))?;
        let config = tls_config(verifier).map_err(FetchError::Tls)?;
        Ok(FetchTls { config, name: None, trusted })
    }

    fn headers(&self, is_conditional: bool) -> Headers {
        let mut headers: Vec<HttpHeader> = Vec::new();
        let mut add = |name: &str, value: &str| {
            headers.push(HttpHeader { name: name.to_owned(), value: value.to_owned() });
        };
        add("User-Agent", concat!("coracle/", env!("CARGO_PKG_VERSION")));
        if is_conditional {
            if let Some(etag) = &self.validators.etag {
                add("If-None-Match", etag);
            } else if let Some(last_modified) = &self.validators.last_modified {
                add("If-Modified-Since", last_modified);
            }
        }
        for (name, value) in &self.source.headers {
            add(name, value);
        }
        Headers::new(&headers, Purpose::Probe)
    }
}

/// The body of a successful and complete response.
fn whole(response: &Response, limit: usize) -> Result<&[u8], FetchError> {
    if response.status != 200 {
        return Err(FetchError::Status { status: response.status });
    }
    if response.body.len() > limit {
        return Err(FetchError::TooLong { limit });
    }
    // If a body without a stated length were cut, it would be a shorter manifest.
    if !response.is_counted {
        return Err(FetchError::Uncounted);
    }
    Ok(&response.body)
}

/// The URL of the signature of `url`: the suffix follows the path, before the query.
fn with_suffix(url: &Url) -> Url {
    let (path, query) = match url.target.split_once('?') {
        Some((path, query)) => (path, format!("?{query}")),
        None => (url.target.as_str(), String::new()),
    };
    let mut signed = url.clone();
    signed.target = format!("{path}.sig{query}");
    signed
}

#[cfg(test)]
mod tests;
