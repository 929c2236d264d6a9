//! Fetches one file by byte ranges, within the windows and budgets of images. The part on the disk survives restarts.

use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::LinkBudget;
use super::space;
use crate::platform::host::file;
use crate::platform::net::{
    AnyCertificate, Dialer, FetchRequest, FetchResponse, FetchTls, Headers, Purpose, Url, tls_config, trusting,
    with_system,
};
use crate::platform::rt;
use crate::types::api::{HttpHeader, UriScheme};
use crate::types::error::ErrorChain;

/// A file at a URL. Errors are one line.
pub(crate) struct FileFetch {
    pub(crate) dialer: Dialer,
    pub(crate) budget: Rc<LinkBudget>,
    /// The unfinished file. Its content is trusted only after the caller has verified it.
    pub(crate) part: PathBuf,
    /// Size limit of the file.
    pub(crate) limit: u64,
}

/// Bytes of one request.
const FILE_RANGE_BYTES: u64 = 512 << 10;
const FILE_RANGE_TIMEOUT: Duration = Duration::from_secs(120);

impl FileFetch {
    /// Continues the part, and returns the whole file. The part stays after an error.
    pub(crate) async fn run(&self, url: &Url) -> Result<Vec<u8>, String> {
        let part = self.part.clone();
        let opened = rt::blocking(move || {
            part.parent().map_or(Ok(()), space::make_private)?;
            fs::metadata(&part).map_or(Ok(0), |metadata| Ok::<_, io::Error>(metadata.len()))
        });
        let mut length = opened.await.map_err(|error| self.disk(&error))?;
        loop {
            if let Some(hold) = self.budget.hold() {
                return Err(hold.why);
            }
            if length > self.limit {
                return Err(format!("larger than {} bytes", self.limit));
            }
            let wanted = self.take().await?;
            let range = format!("bytes={length}-{}", length + wanted - 1);
            let response = get(&self.dialer, url, Some(range), FILE_RANGE_BYTES).await;
            let came = response.as_ref().map_or(0, |response| u64::try_from(response.body.len()).unwrap_or(u64::MAX));
            self.budget.meter().refund(wanted.saturating_sub(came), false);
            self.budget.charge();
            let response = response?;
            match response.status {
                206 if came <= wanted => {}
                // The end was reached before, and the caller found the file whole or not.
                416 if length > 0 => return self.read().await,
                200 => return Err("the server sends no byte ranges".to_owned()),
                status => return Err(format!("the server answers {status}")),
            }
            self.append(response.body).await?;
            length += came;
            if came < wanted {
                return self.read().await;
            }
        }
    }

    /// Whether a part of an earlier attempt is there.
    pub(crate) async fn has_begun(&self) -> bool {
        let part = self.part.clone();
        rt::blocking(move || fs::metadata(part).is_ok_and(|metadata| metadata.len() > 0)).await
    }

    /// Removes the part, which was found to be wrong. False if this was done before: on a line that always breaks, each
    /// file is a continued one, and a wrong one would be fetched for ever.
    pub(crate) async fn begin_again(&self) -> bool {
        let (part, mark) = (self.part.clone(), self.mark());
        let begin = move || fs::File::create_new(mark).is_ok() && fs::remove_file(part).is_ok();
        rt::blocking(begin).await
    }

    /// A file beside the part: it was begun again.
    fn mark(&self) -> PathBuf {
        self.part.with_extension("again")
    }

    /// Removes the part, which is no longer needed.
    pub(crate) async fn forget(&self) {
        let files = [self.part.clone(), self.mark()];
        rt::blocking(move || files.into_iter().for_each(|file| drop(fs::remove_file(file)))).await;
    }

    /// Removes the parts of other files in its folder.
    pub(crate) async fn forget_others(&self) {
        let (part, mark) = (self.part.clone(), self.mark());
        let forget = move || {
            let folder = part.parent().map(fs::read_dir).into_iter().flatten().flatten().flatten();
            for entry in folder.filter(|entry| entry.path() != part && entry.path() != mark) {
                let _ = fs::remove_file(entry.path());
            }
        };
        rt::blocking(forget).await;
    }

    /// Takes bytes from the budget.
    async fn take(&self) -> Result<u64, String> {
        let meter = self.budget.meter();
        let taken =
            rt::blocking(move || meter.take(FILE_RANGE_BYTES, false)).await.map_err(|error| self.disk(&error))?;
        if taken == 0 { Err("the budget of images is used up".to_owned()) } else { Ok(taken) }
    }

    async fn append(&self, bytes: Vec<u8>) -> Result<(), String> {
        let (part, meter) = (self.part.clone(), self.budget.meter());
        // On the slow pool, because the rate limit sleeps there.
        let written = rt::slow(move || {
            let mut file = fs::OpenOptions::new().append(true).create(true).open(part)?;
            file.write_all(&bytes)?;
            file.sync_data()?;
            meter.pace(u64::try_from(bytes.len()).unwrap_or(u64::MAX), &AtomicBool::new(false));
            meter.settle();
            Ok::<_, io::Error>(())
        });
        written.await.map_err(|error| self.disk(&error))
    }

    async fn read(&self) -> Result<Vec<u8>, String> {
        let (part, limit) = (self.part.clone(), self.limit);
        rt::blocking(move || file::read_all(&part, limit)).await.map_err(|error| self.disk(&error))
    }

    fn disk(&self, error: &io::Error) -> String {
        format!("{}: {error}", self.part.display())
    }
}

/// A small file, such as a signature.
pub(crate) async fn fetch_small(dialer: &Dialer, url: &Url, limit: u64) -> Result<Vec<u8>, String> {
    let response = get(dialer, url, None, limit).await?;
    match response.status {
        200 => Ok(response.body),
        status => Err(format!("the server answers {status}")),
    }
}

async fn get(dialer: &Dialer, url: &Url, range: Option<String>, most: u64) -> Result<FetchResponse, String> {
    let agent =
        HttpHeader { name: "User-Agent".to_owned(), value: concat!("coracle/", env!("CARGO_PKG_VERSION")).to_owned() };
    let range = range.map(|value| HttpHeader { name: "Range".to_owned(), value });
    let headers: Vec<HttpHeader> = [agent].into_iter().chain(range).collect();
    let is_plain = url.scheme == UriScheme::Http;
    let tls = rt::blocking(move || {
        let trusted = with_system(&[]).map_err(|error| format!("system CAs: {error}"))?;
        // Signatures protect the content; only a redirect leads from HTTP to HTTPS.
        let config =
            if is_plain { tls_config(Arc::new(AnyCertificate)) } else { trusting(&trusted).and_then(tls_config) };
        let config = config.map_err(|error| format!("system CAs: {error}"))?;
        Ok::<_, String>(FetchTls { config, name: None, trusted })
    });
    let request = FetchRequest {
        method: "GET",
        url: url.clone(),
        headers: Headers::new(&headers, Purpose::Probe),
        content: Vec::new(),
        tls: Some(tls.await?),
        proxy: None,
        limit: FILE_RANGE_TIMEOUT,
        most: usize::try_from(most).unwrap_or(usize::MAX),
        follows: true,
    };
    dialer.fetch(request).await.map_err(|error| ErrorChain(&error).to_string())
}
