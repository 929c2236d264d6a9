//! The open connections of one door: bounded in number and in time.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use super::http::{Head, MOST_HEAD, Response, STREAM_HEAD, chunk, parse_head};
use crate::rt::{self, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Task};

/// Runs at most [`MOST`] connections. One more displaces the oldest, so that idle clients cannot keep others out.
#[derive(Debug, Default)]
pub(super) struct Connections(VecDeque<Task<()>>);

impl Connections {
    pub(super) fn add(&mut self, connection: impl Future<Output = ()> + 'static) {
        self.0.retain(|task| !task.is_finished());
        if self.0.len() >= MOST {
            self.0.pop_front();
        }
        self.0.push_back(rt::spawn(connection));
    }
}

/// What a request is answered with.
pub(super) enum Reply {
    Whole(Response),
    /// A text that comes part by part, for as long as it comes.
    Text(Box<dyn Text>),
}

/// A text in parts.
pub(super) trait Text {
    /// Where it comes from is made ready; an answer instead of the text where it cannot be.
    fn open(&mut self) -> Pin<Box<dyn Future<Output = Result<(), Response>> + '_>>;

    /// The next part, none at the end.
    fn next(&mut self) -> Pin<Box<dyn Future<Output = Option<Vec<u8>>> + '_>>;
}

/// Reads one request and answers it; a client that takes too long or goes away gets nothing.
pub(super) async fn answer<S>(mut stream: S, respond: impl Fn(&str, &str) -> Reply)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut text = None;
    let exchange = async {
        let mut buffer = Vec::new();
        let mut chunk = [0; 512];
        loop {
            let bytes = match parse_head(&buffer) {
                Head::Partial => None,
                Head::Get { path, query, head_only } => match respond(path, query) {
                    Reply::Whole(response) => Some(response.bytes(head_only)),
                    Reply::Text(mut parts) => match parts.open().await {
                        Ok(()) => {
                            text = Some(parts);
                            return stream.write_all(STREAM_HEAD).await;
                        }
                        Err(response) => Some(response.bytes(head_only)),
                    },
                },
                refused @ (Head::OtherMethod | Head::Malformed) => {
                    Response::refusal(&refused).map(|response| response.bytes(false))
                }
            };
            if let Some(bytes) = bytes {
                stream.write_all(&bytes).await?;
                return stream.close().await;
            }
            let room = MOST_HEAD.saturating_sub(buffer.len()).min(chunk.len());
            match stream.read(chunk.get_mut(..room).unwrap_or_default()).await? {
                0 => return Ok(()),
                read => buffer.extend_from_slice(chunk.get(..read).unwrap_or_default()),
            }
        }
    };
    // Nothing of what a client does wrong is this side's trouble.
    let _ = rt::deadline(PATIENCE, exchange).await;
    if let Some(text) = text {
        let _ = send(&mut stream, text).await;
    }
}

/// A reader that pages takes its time: what bounds it is the number of connections.
async fn send<S>(stream: &mut S, mut text: Box<dyn Text>) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        let part = {
            let next = async { Ok(text.next().await) };
            rt::either(next, gone(stream)).await?
        };
        stream.write_all(&chunk(part.as_deref().unwrap_or_default())).await?;
        if part.is_none() {
            return stream.close().await;
        }
    }
}

/// Ends when the client has gone; what else it says is nothing to this side.
async fn gone<T>(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<T> {
    let mut buffer = [0; 64];
    while stream.read(&mut buffer).await? > 0 {}
    Err(io::ErrorKind::BrokenPipe.into())
}

const MOST: usize = 16;
const PATIENCE: Duration = Duration::from_secs(10);
