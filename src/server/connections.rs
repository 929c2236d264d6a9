//! The open connections of one door: bounded in number and in time.

use std::collections::VecDeque;
use std::future::Future;
use std::time::Duration;

use super::http::{Head, MOST_HEAD, Response, parse_head};
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

/// Reads one request and answers it; a client that takes too long or goes away gets nothing.
pub(super) async fn answer<S>(mut stream: S, respond: impl Fn(&str) -> Response)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let exchange = async {
        let mut buffer = Vec::new();
        let mut chunk = [0; 512];
        loop {
            let bytes = match parse_head(&buffer) {
                Head::Partial => None,
                Head::Get { path, head_only } => Some(respond(path).bytes(head_only)),
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
}

const MOST: usize = 16;
const PATIENCE: Duration = Duration::from_secs(10);
