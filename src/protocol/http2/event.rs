//! What a peer's frames mean to the one who uses the connection. Pure.

use super::error::ErrorCode;
use super::stream_id::StreamId;
use crate::protocol::hpack::Field;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The peer speaks HTTP/2: its first SETTINGS are here.
    Ready,
    /// A request (as server) or the final response (as client); informational responses are dropped.
    Head { stream: StreamId, fields: Vec<Field>, end: bool },
    /// Content. Its length counts against the stream's window until it is given back with `consume`.
    Data { stream: StreamId, data: Vec<u8>, end: bool },
    /// The fields after the content; nothing comes after them.
    Trailers { stream: StreamId, fields: Vec<Field> },
    /// The stream is no more, in both directions.
    Reset { stream: StreamId, ending: Ending },
    /// The peer takes no new streams. Those that it will still answer go on.
    GoAway { code: ErrorCode },
}

/// Why a stream ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The peer said that it has not acted on the request, and will not.
    NotProcessed,
    ByPeer(ErrorCode),
    /// The peer broke a rule on this stream; it has been told.
    Violation(&'static str),
}
