//! Between the WebSocket of a client and the SPDY connection of the runtime. Pure.
//!
//! A message of the client begins with the number of its channel (k8s.io/streaming, `remotecommand`). In a tunnel, the
//! messages of both sides are the bytes of a SPDY connection.

use std::io;

use crate::protocol::spdy::{self, StreamId};
use crate::protocol::websocket;

const STDIN_CHANNEL: u8 = 0;
const STDOUT_CHANNEL: u8 = 1;
const STDERR_CHANNEL: u8 = 2;
const STATUS_CHANNEL: u8 = 3;
const RESIZE_CHANNEL: u8 = 4;
/// Its message names a channel that ends.
const CLOSE_CHANNEL: u8 = 255;

/// The streams of a command that the client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::control::server) struct Streams {
    pub(in crate::control::server) stdin: bool,
    pub(in crate::control::server) stdout: bool,
    pub(in crate::control::server) stderr: bool,
    pub(in crate::control::server) tty: bool,
}

/// What becomes of the bytes of one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    /// The others are needed again, with more.
    pub(super) used: usize,
    /// This side has ended the conversation.
    pub(super) is_over: bool,
}

/// Translates the bytes of one side for the other.
pub(super) trait Direction {
    /// Appends to `out`, for the other side. `reply` becomes the newest answer to this side's pings, if there is one.
    fn take(&mut self, bytes: &mut [u8], out: &mut Vec<u8>, reply: &mut Vec<u8>) -> io::Result<Taken>;

    /// This side has closed its connection. An error if something is missing.
    fn end(&mut self, out: &mut Vec<u8>) -> io::Result<()>;
}

/// From the client to the runtime.
#[derive(Debug, Default)]
pub(super) struct FromClient {
    messages: websocket::Incoming,
    /// `None` in a tunnel.
    channels: Option<ClientChannels>,
}

#[derive(Debug, Default)]
struct ClientChannels {
    stdin: Option<StreamId>,
    resize: Option<StreamId>,
    /// Of the current message, once its first byte is there.
    current: Option<u8>,
}

/// From the runtime to the client.
#[derive(Debug, Default)]
pub(super) struct FromRuntime {
    /// `None` in a tunnel.
    streams: Option<RuntimeStreams>,
}

#[derive(Debug, Default)]
struct RuntimeStreams {
    frames: spdy::Incoming,
    /// Streams that have not ended, and the client's channels for them.
    open: Vec<(StreamId, u8)>,
    has_status: bool,
}

/// Opens the streams of a command. Returns both directions, and the first bytes for the runtime and for the client, whom
/// an empty message tells that the command has begun.
pub(super) fn open(streams: Streams) -> (FromClient, FromRuntime, Vec<u8>, Vec<u8>) {
    let (mut to_runtime, mut to_client) = (Vec::new(), Vec::new());
    let mut outgoing = spdy::Outgoing::default();
    let mut open =
        |kind: &str, is_wanted: bool| is_wanted.then(|| outgoing.open(&[("streamtype", kind)], &mut to_runtime));
    let error = open("error", true);
    let stdin = open("stdin", streams.stdin);
    let outputs = [
        (error, STATUS_CHANNEL),
        (open("stdout", streams.stdout), STDOUT_CHANNEL),
        (open("stderr", streams.stderr), STDERR_CHANNEL),
    ];
    let resize = open("resize", streams.tty);
    let open: Vec<_> = outputs.into_iter().filter_map(|(stream, channel)| Some((stream?, channel))).collect();
    let lowest = open.iter().map(|(_, channel)| *channel).min();
    websocket::binary(lowest.as_slice(), &[], &mut to_client);
    let channels = Some(ClientChannels { stdin, resize, current: None });
    let client = FromClient { messages: websocket::Incoming::default(), channels };
    let streams = Some(RuntimeStreams { frames: spdy::Incoming::default(), open, has_status: false });
    (client, FromRuntime { streams }, to_runtime, to_client)
}

impl Direction for FromClient {
    fn take(&mut self, bytes: &mut [u8], out: &mut Vec<u8>, reply: &mut Vec<u8>) -> io::Result<Taken> {
        let mut used = 0;
        loop {
            let rest = bytes.get_mut(used..).unwrap_or_default();
            let Some((event, count)) = self.messages.take(rest).map_err(io::Error::other)? else {
                return Ok(Taken { used, is_over: false });
            };
            used += count;
            match (event, &mut self.channels) {
                (websocket::Event::Begin, Some(channels)) => channels.current = None,
                (websocket::Event::Data(data), Some(channels)) => channels.take(data, out),
                (websocket::Event::Data(data), None) => out.extend_from_slice(data),
                (websocket::Event::Ping(content), _) => {
                    reply.clear();
                    websocket::pong(content, reply);
                }
                (websocket::Event::Close, _) => {
                    reply.clear();
                    websocket::close(reply);
                    return Ok(Taken { used, is_over: true });
                }
                (websocket::Event::Begin | websocket::Event::Other, _) => {}
            }
        }
    }

    fn end(&mut self, _out: &mut Vec<u8>) -> io::Result<()> {
        Ok(())
    }
}

impl ClientChannels {
    /// A part of a message. Channels that a client may not write to are ignored, as upstream does.
    fn take(&mut self, data: &[u8], out: &mut Vec<u8>) {
        let (channel, data) = match (self.current, data) {
            (None, [channel, rest @ ..]) => (*channel, rest),
            (None, []) => return,
            (Some(channel), data) => (channel, data),
        };
        self.current = Some(channel);
        let stream = match channel {
            STDIN_CHANNEL => self.stdin,
            RESIZE_CHANNEL => self.resize,
            CLOSE_CHANNEL => {
                if data.contains(&STDIN_CHANNEL) {
                    self.stdin.take().into_iter().for_each(|stdin| spdy::end(stdin, out));
                }
                None
            }
            _ => None,
        };
        if let Some(stream) = stream.filter(|_| !data.is_empty()) {
            spdy::data(stream, data, out);
        }
    }
}

impl Direction for FromRuntime {
    fn take(&mut self, bytes: &mut [u8], out: &mut Vec<u8>, reply: &mut Vec<u8>) -> io::Result<Taken> {
        let Some(streams) = &mut self.streams else {
            if !bytes.is_empty() {
                websocket::binary(&[], bytes, out);
            }
            return Ok(Taken { used: bytes.len(), is_over: false });
        };
        let used = streams.take(bytes, out, reply)?;
        let is_over = streams.open.is_empty();
        if is_over {
            websocket::close(out);
        }
        Ok(Taken { used, is_over })
    }

    fn end(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        if self.streams.as_ref().is_some_and(|streams| !streams.has_status) {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the runtime gave no status of the command"));
        }
        websocket::close(out);
        Ok(())
    }
}

impl RuntimeStreams {
    fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>, reply: &mut Vec<u8>) -> io::Result<usize> {
        let mut used = 0;
        loop {
            let rest = bytes.get(used..).unwrap_or_default();
            let taken = self.frames.take(rest).map_err(|error| io::Error::other(error.to_string()))?;
            let Some((event, count)) = taken else { return Ok(used) };
            used += count;
            match event {
                spdy::Event::Data { stream, bytes } => {
                    if let Some((_, channel)) = self.open.iter().find(|(open, _)| *open == stream) {
                        self.has_status |= *channel == STATUS_CHANNEL;
                        websocket::binary(&[*channel], bytes, out);
                    }
                }
                spdy::Event::End(stream) | spdy::Event::Reset(stream) => self.open.retain(|(open, _)| *open != stream),
                spdy::Event::Ping(id) => {
                    reply.clear();
                    spdy::ping(id, reply);
                }
                spdy::Event::Accepted(_) | spdy::Event::GoAway | spdy::Event::Other => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Streams = Streams { stdin: true, stdout: true, stderr: true, tty: false };
    /// In the order in which they are opened.
    const STATUS_STREAM: StreamId = 1;
    const STDIN_STREAM: StreamId = 3;
    const STDOUT_STREAM: StreamId = 5;
    const STDERR_STREAM: StreamId = 7;

    /// A message as a client sends it, with a mask of zeros.
    fn message(opcode: u8, content: &[u8]) -> Vec<u8> {
        [&[0x80 | opcode, 0x80 | u8::try_from(content.len()).unwrap(), 0, 0, 0, 0], content].concat()
    }

    fn sent(client: &mut FromClient, bytes: &mut [u8]) -> (Vec<u8>, Vec<u8>, bool) {
        let (mut out, mut reply) = (Vec::new(), Vec::new());
        let taken = client.take(bytes, &mut out, &mut reply).unwrap();
        assert_eq!(taken.used, bytes.len());
        (out, reply, taken.is_over)
    }

    #[test]
    fn input_reaches_its_stream_and_its_end_is_passed_on_once() {
        let (mut client, _, opened, first) = open(ALL);
        // The lowest channel that the client reads.
        assert_eq!((opened.is_empty(), &*first), (false, &[0x82, 1, STDOUT_CHANNEL][..]));
        let mut bytes = [&[STDIN_CHANNEL][..], b"a"].map(|part| message(2, part)).concat();
        bytes.truncate(message(2, &[STDIN_CHANNEL]).len());
        assert_eq!(sent(&mut client, &mut bytes).0, b"", "an empty message");
        let mut messages = [
            message(2, b"\0hello"),
            message(2, &[CLOSE_CHANNEL, STDIN_CHANNEL]),
            message(2, b"\0late"),
            message(2, &[CLOSE_CHANNEL, STDIN_CHANNEL]),
            message(2, b"\x01not writable"),
            message(2, b"\x04{}"),
        ]
        .concat();
        let mut expected = Vec::new();
        spdy::data(STDIN_STREAM, b"hello", &mut expected);
        spdy::end(STDIN_STREAM, &mut expected);
        assert_eq!(sent(&mut client, &mut messages), (expected, vec![], false));
    }

    #[test]
    fn size_of_a_terminal_has_a_stream_and_stderr_has_none() {
        let (mut client, mut runtime, ..) = open(Streams { stderr: false, tty: true, ..ALL });
        let mut expected = Vec::new();
        spdy::data(7, b"{}", &mut expected);
        assert_eq!(sent(&mut client, &mut message(2, b"\x04{}")).0, expected);
        let streams: Vec<_> = runtime.streams.take().unwrap().open;
        assert_eq!(streams, [(STATUS_STREAM, STATUS_CHANNEL), (STDOUT_STREAM, STDOUT_CHANNEL)]);
    }

    #[test]
    fn ping_is_answered_and_a_close_ends_the_conversation() {
        let (mut client, ..) = open(ALL);
        let (mut pong, mut close) = (Vec::new(), Vec::new());
        websocket::pong(b"2", &mut pong);
        websocket::close(&mut close);
        let mut pings = [message(9, b"1"), message(9, b"2")].concat();
        assert_eq!(sent(&mut client, &mut pings), (vec![], pong, false));
        assert_eq!(sent(&mut client, &mut message(8, &[3, 232])), (vec![], close, true));
    }

    #[test]
    fn output_becomes_messages_until_the_last_stream_ends() {
        let (_, mut runtime, ..) = open(ALL);
        let mut bytes = Vec::new();
        spdy::data(STDERR_STREAM, b"careful", &mut bytes);
        spdy::ping(2, &mut bytes);
        spdy::data(STATUS_STREAM, b"{}", &mut bytes);
        for stream in [STDOUT_STREAM, STATUS_STREAM] {
            spdy::end(stream, &mut bytes);
        }
        let (mut out, mut reply, mut expected, mut ping) = (vec![], vec![], vec![], vec![]);
        assert!(!runtime.take(&mut bytes, &mut out, &mut reply).unwrap().is_over);
        websocket::binary(&[STDERR_CHANNEL], b"careful", &mut expected);
        websocket::binary(&[STATUS_CHANNEL], b"{}", &mut expected);
        spdy::ping(2, &mut ping);
        assert_eq!((&out, &reply), (&expected, &ping));
        let mut end = Vec::new();
        spdy::end(STDERR_STREAM, &mut end);
        assert!(runtime.take(&mut end, &mut out, &mut reply).unwrap().is_over);
        websocket::close(&mut expected);
        assert_eq!(out, expected);
    }

    #[test]
    fn runtime_that_vanishes_before_the_status_is_an_error() {
        let (_, mut runtime, ..) = open(ALL);
        let mut bytes = Vec::new();
        spdy::data(STDOUT_STREAM, b"half", &mut bytes);
        let mut out = Vec::new();
        runtime.take(&mut bytes, &mut out, &mut Vec::new()).unwrap();
        assert_eq!(runtime.end(&mut Vec::new()).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let mut status = Vec::new();
        spdy::data(STATUS_STREAM, b"{}", &mut status);
        runtime.take(&mut status, &mut out, &mut Vec::new()).unwrap();
        runtime.end(&mut out).unwrap();
    }

    #[test]
    fn tunnel_passes_bytes_on_as_they_are() {
        let (mut client, mut runtime) = (FromClient::default(), FromRuntime::default());
        let (out, ..) = sent(&mut client, &mut [message(2, b"ab"), message(2, b"c")].concat());
        assert_eq!(out, b"abc");
        let (mut out, mut reply) = (Vec::new(), Vec::new());
        let taken = runtime.take(&mut b"xyz".to_vec(), &mut out, &mut reply).unwrap();
        assert_eq!((taken, &*out), (Taken { used: 3, is_over: false }, &b"\x82\x03xyz"[..]));
        runtime.take(&mut [], &mut out, &mut reply).unwrap();
        assert_eq!(out.len(), 5, "no empty message");
    }
}
