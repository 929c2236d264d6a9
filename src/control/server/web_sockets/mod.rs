//! exec, attach and port-forward for clients that speak WebSocket, as the API server does (`ExtendWebSocketsToKubelet`).
//!
//! No runtime speaks the current protocol of commands (v5, in which a channel can be closed), and none the one of
//! port-forward. Both are translated to SPDY, which every runtime speaks; older protocols are the runtime's matter.

mod channels;

use std::cell::{Cell, RefCell};
use std::io;
use std::time::Duration;

use super::relay::ByteStream;
use super::stream_slots::UNREAD_STREAM_TIMEOUT;
use crate::platform::net::Url;
use crate::platform::rpc::Signal;
use crate::platform::rt::{self, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, TcpStream};
use crate::protocol::http1::{PROTOCOLS, Request};
use crate::protocol::websocket;

pub(super) use channels::Streams;
use channels::{Direction, FromClient, FromRuntime};

const WEB_SOCKET_KEY: &str = "sec-websocket-key";
const COMMAND_PROTOCOL: &str = "v5.channel.k8s.io";
const TUNNEL_PROTOCOL: &str = "SPDY/3.1+portforward.k8s.io";
/// What the runtime is asked for: v4 ends with a status, and v5 differs from it for WebSocket only.
const RUNTIME_COMMAND_PROTOCOL: &str = "v4.channel.k8s.io";
const RUNTIME_PORT_PROTOCOL: &str = "portforward.k8s.io";
const MAX_RUNTIME_HEAD_BYTES: usize = 16 * 1024;
const WEB_SOCKET_READ_BYTES: usize = 16 * 1024;
const RUNTIME_UPGRADE_TIMEOUT: Duration = Duration::from_secs(10);

/// A client that waits for the answer to its upgrade, and the runtime's connection, which is upgraded.
pub(super) struct WebSocket {
    runtime: TcpStream,
    from_client: FromClient,
    from_runtime: FromRuntime,
    /// The first bytes for each side.
    to_runtime: Vec<u8>,
    to_client: Vec<u8>,
    /// What the runtime has sent already.
    received: Vec<u8>,
}

/// Whether the client asks for a protocol that is translated here. `streams`: those of a command; `None`: ports are
/// forwarded.
pub(super) fn is_translated(request: &Request, streams: Option<Streams>) -> bool {
    request.is_web_socket()
        && request.header(WEB_SOCKET_KEY).is_some()
        && request.words(PROTOCOLS).any(|offered| offered == protocols(streams).0)
}

/// The client's protocol, and the runtime's.
const fn protocols(streams: Option<Streams>) -> (&'static str, &'static str) {
    match streams {
        None => (TUNNEL_PROTOCOL, RUNTIME_PORT_PROTOCOL),
        Some(_) => (COMMAND_PROTOCOL, RUNTIME_COMMAND_PROTOCOL),
    }
}

impl WebSocket {
    /// Upgrades the runtime's connection.
    pub(super) async fn open(
        request: &Request,
        streams: Option<Streams>,
        mut runtime: TcpStream,
        url: &Url,
    ) -> io::Result<Self> {
        let (client_protocol, runtime_protocol) = protocols(streams);
        let received = upgrade_runtime(&mut runtime, url, runtime_protocol).await?;
        let mut head = format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: {}\r\nSec-WebSocket-Protocol: {client_protocol}\r\n\r\n",
            websocket::accept(request.header(WEB_SOCKET_KEY).unwrap_or_default())
        )
        .into_bytes();
        let (from_client, from_runtime, to_runtime, mut to_client) = streams.map(channels::open).unwrap_or_default();
        head.append(&mut to_client);
        Ok(Self { runtime, from_client, from_runtime, to_runtime, to_client: head, received })
    }

    /// Returns when either side has ended. `unread` is what the client has sent after its request.
    pub(super) async fn serve(mut self, client: &mut dyn ByteStream, unread: Vec<u8>) -> io::Result<()> {
        let (mut from_client, mut to_client) = rt::split(client);
        let (mut from_runtime, mut to_runtime) = (self.runtime.clone(), self.runtime);
        let (for_client, for_runtime) = (Replies::default(), Replies::default());
        let up = Passage {
            from: &mut from_client,
            to: &mut to_runtime,
            direction: &mut self.from_client,
            received: unread,
            out: self.to_runtime,
            to_sender: &for_client,
            from_receiver: &for_runtime,
        };
        let down = Passage {
            from: &mut from_runtime,
            to: &mut to_client,
            direction: &mut self.from_runtime,
            received: self.received,
            out: self.to_client,
            to_sender: &for_runtime,
            from_receiver: &for_client,
        };
        rt::either(up.run(), down.run()).await
    }
}

/// Returns what the runtime has sent after its head.
async fn upgrade_runtime(runtime: &mut TcpStream, url: &Url, protocol: &str) -> io::Result<Vec<u8>> {
    let request = format!(
        "POST {} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
         X-Stream-Protocol-Version: {protocol}\r\nContent-Length: 0\r\n\r\n",
        url.target,
        url.authority()
    );
    let exchange = async {
        runtime.write_all(request.as_bytes()).await?;
        let mut received = Vec::new();
        loop {
            let mut chunk = [0; 1024];
            let read = runtime.read(&mut chunk).await?;
            received.extend_from_slice(chunk.get(..read).unwrap_or_default());
            let end = received.windows(4).position(|window| window == b"\r\n\r\n");
            match end {
                Some(end) => return Ok::<_, io::Error>((received.split_off(end + 4), received)),
                None if read == 0 || received.len() > MAX_RUNTIME_HEAD_BYTES => {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                None => {}
            }
        }
    };
    let (rest, head) = rt::deadline(RUNTIME_UPGRADE_TIMEOUT, exchange).await.map_err(io::Error::other)??;
    let head = String::from_utf8_lossy(&head);
    match head.starts_with("HTTP/1.1 101 ") {
        true => Ok(rest),
        false => {
            let (line, text) = (head.lines().next().unwrap_or_default(), String::from_utf8_lossy(&rest));
            Err(io::Error::other(format!("{line}: {}", text.trim())))
        }
    }
}

/// One direction of a conversation.
struct Passage<'a> {
    from: &'a mut (dyn AsyncRead + Unpin),
    to: &'a mut (dyn AsyncWrite + Unpin),
    direction: &'a mut dyn Direction,
    received: Vec<u8>,
    out: Vec<u8>,
    /// Answers to the side that is read from, which the other direction writes.
    to_sender: &'a Replies,
    /// Answers to the side that is written to.
    from_receiver: &'a Replies,
}

/// What one direction asks the other to write: the newest answer to a ping is enough (RFC 6455, section 5.5.3).
#[derive(Debug, Default)]
struct Replies {
    newest: RefCell<Vec<u8>>,
    /// Nothing is written after it.
    is_last: Cell<bool>,
    noted: Signal,
}

impl Passage<'_> {
    async fn run(mut self) -> io::Result<()> {
        let mut chunk = vec![0; WEB_SOCKET_READ_BYTES];
        let mut reply = Vec::new();
        loop {
            let noted = self.from_receiver.noted.changes();
            let taken = self.direction.take(&mut self.received, &mut self.out, &mut reply)?;
            self.received.drain(..taken.used);
            if !reply.is_empty() {
                self.to_sender.newest.replace(std::mem::take(&mut reply));
                self.to_sender.is_last.set(taken.is_over);
                self.to_sender.noted.notify();
            }
            if self.write().await? || taken.is_over && !self.to_sender.is_last.get() {
                return Ok(());
            }
            if taken.is_over {
                // The other direction writes the last reply and ends.
                return std::future::pending().await;
            }
            // A side that always has more data must not block other tasks.
            rt::yield_now().await;
            let read = async { self.from.read(&mut chunk).await.map(Some) };
            let asked = async {
                self.from_receiver.noted.beyond(noted).await;
                Ok(None)
            };
            match rt::either(read, asked).await? {
                Some(0) => {
                    self.direction.end(&mut self.out)?;
                    return self.write().await.map(drop);
                }
                Some(count) => self.received.extend_from_slice(chunk.get(..count).unwrap_or_default()),
                None => {}
            }
        }
    }

    /// Returns whether nothing may follow.
    async fn write(&mut self) -> io::Result<bool> {
        self.out.append(&mut self.from_receiver.newest.borrow_mut());
        let is_last = self.from_receiver.is_last.get();
        if !self.out.is_empty() {
            rt::deadline(UNREAD_STREAM_TIMEOUT, self.to.write_all(&self.out)).await.map_err(io::Error::other)??;
            self.out.clear();
        }
        Ok(is_last)
    }
}
