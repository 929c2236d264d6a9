//! Serves the requests of one connection, each within limits of time and memory.

use std::borrow::Cow;
use std::fs::File;
use std::future::{Future, ready};
use std::io::{self, Read as _};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::http::{AfterResponse, Response, Status, chunk, stream_head};
use super::relay::{ByteStream, relay};
use super::stream_slots::{StreamSlot, TooManyStreams, UNREAD_STREAM_TIMEOUT};
use super::unread_responses::{SMALL_RESPONSE_BYTES, UnreadResponses};
use super::web_sockets::WebSocket;
use crate::platform::rt::{self, AsyncReadExt, AsyncWriteExt, TcpStream};
use crate::protocol::gzip::gzip;
use crate::protocol::http1::{MAX_REQUEST_HEAD_BYTES, Refusal, Request};

/// The response to a request.
pub(super) enum Reply {
    Whole(Response),
    /// The last response on its connection.
    Last(Response),
    /// A response that takes a while to compute.
    Later(Pin<Box<dyn Future<Output = Response>>>),
    /// A response that takes as long as the client waits; the last one on its connection.
    Slow(Pin<Box<dyn Future<Output = Response>>>),
    /// A file or a part of it; the last response on its connection.
    File(Pin<Box<dyn Future<Output = Result<FilePart, Response>>>>),
    /// The connection is handed over to another server.
    Upgrade(UpgradeFuture),
    /// A text that is sent in parts, until it ends.
    Text(Box<dyn Text>),
}

impl Reply {
    /// It may take as long as the client wants.
    const fn is_stream(&self) -> bool {
        match self {
            Self::File(_) | Self::Upgrade(_) | Self::Slow(_) | Self::Text(_) => true,
            Self::Last(_) | Self::Later(_) | Self::Whole(_) => false,
        }
    }
}

/// The server that takes over a connection.
pub(super) enum UpgradedConnection {
    /// It answers the request itself: `head` is the first data to send to it.
    Relayed {
        to: TcpStream,
        head: Vec<u8>,
    },
    Translated(Box<WebSocket>),
}

/// A response whose body is in a file.
#[derive(Debug)]
pub(super) struct FilePart {
    /// The head states the length of the body, and that the connection closes.
    pub(super) head: Vec<u8>,
    /// The file, read from its current position, and the number of bytes.
    pub(super) body: Option<(File, u64)>,
    /// When the connection is closed even if the client still reads.
    pub(super) end: Option<Instant>,
    /// Dropped with the answer.
    pub(super) client_share: Option<Arc<str>>,
}

pub(super) type UpgradeFuture = Pin<Box<dyn Future<Output = Result<UpgradedConnection, Response>>>>;

/// A text in parts.
pub(super) trait Text {
    /// Opens the source of the text. The error is sent as the response instead.
    fn open(&mut self) -> Pin<Box<dyn Future<Output = Result<(), Response>> + '_>>;

    /// The next part; `None` at the end.
    fn next(&mut self) -> Pin<Box<dyn Future<Output = Option<Vec<u8>>> + '_>>;

    fn content_type(&self) -> &'static str {
        "text/plain; charset=utf-8"
    }

    /// The head of the response, if it is not 200 with the content type.
    fn head(&self, _after: AfterResponse) -> Option<Vec<u8>> {
        None
    }

    /// Time limit of [`Text::open`].
    fn open_limit(&self) -> Duration {
        REQUEST_READ_TIMEOUT
    }

    /// Whether the connection is used again after the text.
    fn keeps_connection(&self) -> bool {
        false
    }

    /// Whether the text ended before its end, which the client must notice.
    fn is_cut(&self) -> bool {
        false
    }

    /// Time limit for a reader to take a part. A user paging through a log takes long.
    fn slowest(&self) -> Duration {
        UNREAD_STREAM_TIMEOUT
    }
}

/// The error is the response to a request that the client may not make.
pub(super) type AdmissionFuture<'a> = Pin<Box<dyn Future<Output = Result<Option<u64>, Response>> + 'a>>;

pub(super) type ResponseFuture<'a> = Pin<Box<dyn Future<Output = Reply> + 'a>>;

/// Answers the requests of one connection.
pub(super) trait RequestHandler {
    /// Whether the connection accepts more than one request.
    fn keeps_alive(&self) -> bool;

    /// Decides whether the client may make this request, before its body is read. Returns the longest body accepted with
    /// it; a body is skipped if `None`.
    fn admit<'a>(&'a self, _request: &'a Request) -> AdmissionFuture<'a> {
        Box::pin(ready(Ok(None)))
    }

    fn handle<'a>(&'a self, request: &'a Request) -> ResponseFuture<'a>;

    /// Claims a stream, for a response that takes as long as its reader. `None`: they are not limited.
    fn stream(&self) -> Result<Option<StreamSlot>, TooManyStreams> {
        Ok(None)
    }

    /// The responses of this server that wait for their readers. `None`: all are small.
    fn unread(&self) -> Option<&Rc<UnreadResponses>> {
        None
    }

    /// Whether the response to this request is compressed for a client that accepts it.
    fn compresses(&self, _request: &Request) -> bool {
        false
    }

    /// All requests so far are answered, and the next one is awaited.
    fn on_idle(&self) {}

    /// Header lines of every response of this server.
    fn headers(&self) -> &'static str {
        ""
    }
}

/// Answers one GET, and closes the connection.
pub(super) struct SingleGet<F>(pub(super) F);

impl<F: Fn(&str, &str) -> Reply> RequestHandler for SingleGet<F> {
    fn keeps_alive(&self) -> bool {
        false
    }

    fn handle<'a>(&'a self, request: &'a Request) -> ResponseFuture<'a> {
        Box::pin(ready(match &*request.method {
            "GET" | "HEAD" => self.0(&request.path, &request.query),
            _ => Reply::Whole(Response::only_get()),
        }))
    }
}

/// Reads requests and answers them. A client that is too slow, disconnects or violates the protocol is dropped without
/// an error.
pub(super) async fn serve_connection(mut stream: impl ByteStream, answers: impl RequestHandler) {
    serve_requests(&mut stream, &answers).await;
}

async fn serve_requests(stream: &mut dyn ByteStream, answers: &dyn RequestHandler) {
    let _ = converse(stream, answers).await;
    let _ = rt::deadline(REQUEST_READ_TIMEOUT, stream.close()).await;
}

async fn converse(stream: &mut dyn ByteStream, answers: &dyn RequestHandler) -> io::Result<()> {
    let mut unread = Vec::new();
    let mut wait = REQUEST_READ_TIMEOUT;
    loop {
        let request = match next_request(stream, &mut unread, wait, answers).await? {
            Ok(request) => request,
            Err(refused) => match refuse(stream, &refused, answers).await? {
                AfterResponse::Close => return Ok(()),
                AfterResponse::Keep => {
                    answers.on_idle();
                    wait = IDLE_CONNECTION_TIMEOUT;
                    rt::yield_now().await;
                    continue;
                }
            },
        };
        let after = if request.keeps && answers.keeps_alive() { AfterResponse::Keep } else { AfterResponse::Close };
        let head_only = request.method == "HEAD";
        let has_room = match answers.unread() {
            Some(unread) => rt::deadline(REQUEST_READ_TIMEOUT, unread.room()).await.is_ok(),
            None => true,
        };
        let reply = match has_room {
            true => answers.handle(&request).await,
            false => Reply::Whole(Response::too_many_unread()),
        };
        let (reply, _slot) = match if reply.is_stream() { answers.stream() } else { Ok(None) } {
            Ok(slot) => (reply, slot),
            Err(full) => (Reply::Whole(Response::too_many_streams(full)), None),
        };
        let (response, after) = match reply {
            Reply::Whole(response) => (response, after),
            Reply::Last(response) => (response, AfterResponse::Close),
            Reply::Later(response) => match rt::deadline(REQUEST_READ_TIMEOUT, response).await {
                Ok(response) => (response, after),
                Err(rt::Elapsed) => return Ok(()),
            },
            // Input from the client is ignored meanwhile.
            Reply::Slow(response) => {
                let response = async { Ok(response.await) };
                (rt::either(response, gone(stream)).await?, AfterResponse::Close)
            }
            Reply::File(part) => match rt::deadline(REQUEST_READ_TIMEOUT, part).await {
                Ok(Err(response)) => (response, after),
                Ok(Ok(part)) => return send_file(stream, part).await,
                Err(rt::Elapsed) => return Ok(()),
            },
            Reply::Upgrade(handing) => match rt::deadline(REQUEST_READ_TIMEOUT, handing).await {
                Ok(Err(response)) => (response, after),
                Ok(Ok(UpgradedConnection::Relayed { to, mut head })) => {
                    head.append(&mut unread);
                    return relay(stream, to, &head).await;
                }
                Ok(Ok(UpgradedConnection::Translated(web_socket))) => return web_socket.serve(stream, unread).await,
                Err(rt::Elapsed) => return Ok(()),
            },
            Reply::Text(mut text) => match rt::deadline(text.open_limit(), text.open()).await {
                Ok(Err(response)) => (response, after),
                Ok(Ok(())) => {
                    // Later requests of the client wait until the end.
                    let after = if text.keeps_connection() { after } else { AfterResponse::Close };
                    let head = text.head(after);
                    let head = head.unwrap_or_else(|| stream_head(text.content_type(), after, answers.headers()));
                    write(stream, &head).await?;
                    send(stream, text).await?;
                    if after == AfterResponse::Close {
                        return Ok(());
                    }
                    answers.on_idle();
                    wait = IDLE_CONNECTION_TIMEOUT;
                    rt::yield_now().await;
                    continue;
                }
                Err(rt::Elapsed) => return Ok(()),
            },
        };
        let compresses = answers.compresses(&request) && accepts_gzip(&request);
        send_whole(stream, response, (head_only, after), compresses, answers).await?;
        if after == AfterResponse::Close {
            return Ok(());
        }
        answers.on_idle();
        wait = IDLE_CONNECTION_TIMEOUT;
        // A client that always has another request must not block other tasks.
        rt::yield_now().await;
    }
}

/// A request that is invalid or not allowed, and whose body is not read.
struct RefusedRequest {
    response: Response,
    head_only: bool,
    after: AfterResponse,
}

impl RefusedRequest {
    /// The connection is closed after a request that cannot be read.
    fn unreadable(response: Response) -> Self {
        Self { response, head_only: false, after: AfterResponse::Close }
    }

    /// The connection stays open for a known client, if there is no body to skip.
    fn forbidden(request: &Request, response: Response, answers: &dyn RequestHandler) -> Self {
        let keeps =
            request.keeps && request.body == 0 && answers.keeps_alive() && response.status != Status::Unauthorized;
        let after = if keeps { AfterResponse::Keep } else { AfterResponse::Close };
        Self { response, head_only: request.method == "HEAD", after }
    }
}

/// Sends the response to a refused request, and closes the connection unless it is kept.
async fn refuse(
    stream: &mut dyn ByteStream,
    RefusedRequest { response, head_only, after }: &RefusedRequest,
    answers: &dyn RequestHandler,
) -> io::Result<AfterResponse> {
    write(stream, &response.bytes(*head_only, *after, answers.headers())).await?;
    if *after == AfterResponse::Close {
        stream.close().await?;
        // Closing with unread data causes a reset, in which the response may be lost.
        rt::deadline(LINGER_TIME, gone(stream)).await.unwrap_or(Ok(()))?;
    }
    Ok(*after)
}

/// RFC 9110, section 12.5.3.
fn accepts_gzip(request: &Request) -> bool {
    request.words("accept-encoding").any(|word| match word.split_once(';') {
        None => word == "gzip",
        Some((coding, weight)) => {
            let weight = weight.trim().strip_prefix("q=").unwrap_or("1");
            coding.trim() == "gzip" && weight.contains(|digit: char| ('1'..='9').contains(&digit))
        }
    })
}

/// Compresses the response if that may save a packet. Returns its header lines.
async fn compressed(response: &mut Response, headers: &'static str) -> Cow<'static, str> {
    if response.body.len() <= MAX_PACKET_BYTES {
        return Cow::Borrowed(headers);
    }
    // The page of a client that has disconnected does not wait for a thread.
    let body = Arc::new(std::mem::take(&mut response.body));
    let wanted = Arc::downgrade(&body);
    let zip = move || wanted.upgrade().map(|body| gzip(&body)).unwrap_or_default();
    response.body = rt::blocking_for(COMPRESSION, zip).await;
    Cow::Owned([headers, "Content-Encoding: gzip\r\nVary: Accept-Encoding\r\n"].concat())
}

/// Sends a response, and counts it until its reader has taken it, also while it waits to be compressed.
async fn send_whole(
    stream: &mut dyn ByteStream,
    mut response: Response,
    (head_only, after): (bool, AfterResponse),
    compresses: bool,
    answers: &dyn RequestHandler,
) -> io::Result<()> {
    let claim = answers.unread().map(|unread| unread.claim(response.body.len()));
    if let Some(None) = claim {
        return write(stream, &Response::too_many_unread().bytes(head_only, after, answers.headers())).await;
    }
    let claim = claim.flatten();
    let written = async {
        let headers = match compresses {
            true => compressed(&mut response, answers.headers()).await,
            false => Cow::Borrowed(answers.headers()),
        };
        if let Some(claim) = &claim {
            claim.shrink(response.body.len());
        }
        // A page is not copied.
        let is_small = head_only || response.body.len() <= SMALL_RESPONSE_BYTES;
        let head = response.bytes(!is_small || head_only, after, &headers);
        let body = if is_small { Vec::new() } else { response.body };
        write(stream, &head).await?;
        write(stream, &body).await
    };
    match &claim {
        None => written.await,
        Some(claim) => {
            let displaced = async {
                claim.displaced().await;
                Err(io::ErrorKind::TimedOut.into())
            };
            rt::either(written, displaced).await
        }
    }
}

/// The next request with its body, if wanted; or the response to one that is invalid or not allowed. `wait` is the time
/// limit for the first byte.
async fn next_request(
    stream: &mut dyn ByteStream,
    unread: &mut Vec<u8>,
    wait: Duration,
    answers: &dyn RequestHandler,
) -> io::Result<Result<Request, RefusedRequest>> {
    let mut end = rt::now() + if unread.is_empty() { wait } else { REQUEST_READ_TIMEOUT };
    let mut searched = 0;
    loop {
        match Request::take_after(unread, searched) {
            Ok(Some((mut request, used))) => {
                unread.drain(..used);
                let takes = match answers.admit(&request).await {
                    Ok(takes) => takes,
                    Err(response) => return Ok(Err(RefusedRequest::forbidden(&request, response, answers))),
                };
                let most = takes.unwrap_or(if request.has_form() { MAX_FORM_BYTES } else { MAX_REQUEST_BODY_BYTES });
                if request.body > most {
                    return Ok(Err(RefusedRequest::unreadable(Response::too_large())));
                }
                if request.body > 0 && request.header("expect").is_some() {
                    write(stream, b"HTTP/1.1 100 Continue\r\n\r\n").await?;
                }
                let is_kept = takes.is_some() || request.has_form();
                let body = body(stream, unread, request.body, is_kept).await?;
                if takes.is_some() {
                    request.content = body;
                } else if let Ok(form) = String::from_utf8(body) {
                    request.form = form;
                } else {
                    return Ok(Err(RefusedRequest::unreadable(Response::not_utf8("form"))));
                }
                return Ok(Ok(request));
            }
            Ok(None) => {}
            Err(refusal) => return Ok(Err(RefusedRequest::unreadable(Response::refusal(refusal)))),
        }
        let was_empty = unread.is_empty();
        searched = unread.len();
        let time_left = end.saturating_duration_since(rt::now());
        if !rt::deadline(time_left, read(stream, unread)).await.map_err(io::Error::other)?? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if was_empty {
            end = rt::now() + REQUEST_READ_TIMEOUT;
        }
        if unread.len() > MAX_REQUEST_HEAD_BYTES + REQUEST_READ_BYTES {
            return Ok(Err(RefusedRequest::unreadable(Response::refusal(Refusal::TooLong))));
        }
    }
}

/// Reads a body of this length, or skips it: only forms, and bodies accepted by [`RequestHandler::admit`], are
/// kept.
async fn body(stream: &mut dyn ByteStream, unread: &mut Vec<u8>, length: u64, is_kept: bool) -> io::Result<Vec<u8>> {
    let mut bytes_left = usize::try_from(length).map_err(io::Error::other)?;
    let mut kept = Vec::new();
    let taken = async {
        loop {
            let taken = bytes_left.min(unread.len());
            let part = unread.drain(..taken);
            if is_kept {
                kept.extend(part);
            } else {
                drop(part);
            }
            bytes_left -= taken;
            if bytes_left == 0 {
                return Ok(kept);
            }
            if !read(stream, unread).await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            rt::yield_now().await;
        }
    };
    rt::deadline(REQUEST_READ_TIMEOUT, taken).await.map_err(io::Error::other)?
}

/// Reads available data. False at the end.
async fn read(stream: &mut dyn ByteStream, unread: &mut Vec<u8>) -> io::Result<bool> {
    // The buffer grows only while reading, so that an idle connection holds none.
    let before = unread.len();
    let mut chunk = [0; REQUEST_READ_BYTES];
    let read = stream.read(&mut chunk).await?;
    unread.extend_from_slice(chunk.get(..read).unwrap_or_default());
    Ok(unread.len() > before)
}

/// Writes everything, as long as the other side keeps reading.
async fn write(stream: &mut dyn ByteStream, bytes: &[u8]) -> io::Result<()> {
    for part in bytes.chunks(RESPONSE_WRITE_BYTES) {
        rt::deadline(DEAD_READER_TIMEOUT, stream.write_all(part)).await.map_err(io::Error::other)??;
    }
    Ok(())
}

/// Slow readers are limited by the text's time limit and the number of connections.
async fn send(stream: &mut dyn ByteStream, mut text: Box<dyn Text>) -> io::Result<()> {
    loop {
        let part = {
            let next = async { Ok(text.next().await) };
            rt::either(next, gone(stream)).await?
        };
        if part.is_none() && text.is_cut() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let chunk = chunk(part.as_deref().unwrap_or_default());
        rt::deadline(text.slowest(), stream.write_all(&chunk)).await.map_err(io::Error::other)??;
        if part.is_none() {
            return Ok(());
        }
    }
}

/// Sends no more than the stated length, even if the file grows. If the file has shrunk, the connection ends early.
async fn send_file(stream: &mut dyn ByteStream, part: FilePart) -> io::Result<()> {
    write(stream, &part.head).await?;
    let _turn = part.client_share;
    let Some((mut file, mut bytes_left)) = part.body else { return Ok(()) };
    let mut buffer = Vec::new();
    while bytes_left > 0 && part.end.is_none_or(|end| rt::now() < end) {
        let next = move || {
            buffer.clear();
            let most = bytes_left.min(FILE_PART_BYTES);
            (&file).take(most).read_to_end(&mut buffer).map(|_| (file, buffer))
        };
        (file, buffer) = rt::blocking_for_client(next).await?;
        if buffer.is_empty() {
            return Ok(());
        }
        write(stream, &buffer).await?;
        bytes_left = bytes_left.saturating_sub(u64::try_from(buffer.len()).unwrap_or(u64::MAX));
    }
    Ok(())
}

/// Discards what the client sends until it closes the connection, or has sent more than [`MAX_IGNORED_BYTES`].
async fn gone<T>(stream: &mut dyn ByteStream) -> io::Result<T> {
    let mut buffer = [0; 64];
    let mut bytes_left = MAX_IGNORED_BYTES;
    while bytes_left > 0 {
        match stream.read(&mut buffer).await? {
            0 => break,
            len => bytes_left = bytes_left.saturating_sub(len),
        }
        // A client that always has more bytes must not block other tasks or a deadline.
        rt::yield_now().await;
    }
    Err(io::ErrorKind::BrokenPipe.into())
}

/// Maximum number of connections of local servers.
pub(super) const MAX_LOCAL_CONNECTIONS: usize = 16;
/// Time limit of a request, from its first byte.
pub(super) const REQUEST_READ_TIMEOUT: Duration = Duration::from_secs(10);
/// Wait for the next request (kubelet: `IdleTimeout`).
const IDLE_CONNECTION_TIMEOUT: Duration = Duration::from_secs(90);
/// Wait after the response to an invalid request (net/http: `rstAvoidanceDelay`).
const LINGER_TIME: Duration = Duration::from_millis(500);
/// A client that reads nothing for this long is taken for dead.
const DEAD_READER_TIMEOUT: Duration = Duration::from_secs(30);
/// More than most requests have. Each connection has a buffer of this size.
const REQUEST_READ_BYTES: usize = 1024;
/// The content of a TLS record.
const RESPONSE_WRITE_BYTES: usize = 16 * 1024;
/// The owner of compression in the blocking pool: no client's file delays it.
pub(super) const COMPRESSION: &str = "compression";
/// A response that takes one packet anyway is not compressed.
const MAX_PACKET_BYTES: usize = 1400;
const MAX_REQUEST_BODY_BYTES: u64 = 64 * 1024;
/// Bytes that a client may send when nothing is expected.
const MAX_IGNORED_BYTES: usize = 64 * 1024;
/// Longest form. It is kept until the request is answered, also for unauthenticated clients.
const MAX_FORM_BYTES: u64 = 16 * 1024;
const FILE_PART_BYTES: u64 = 64 * 1024;

#[cfg(test)]
mod tests;
