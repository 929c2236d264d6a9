//! Events of a connection. Pure.

use super::error::ErrorCode;
use super::stream_id::StreamId;
use crate::protocol::hpack::Field;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The peer's first SETTINGS have arrived.
    Ready,
    /// A request (server) or the final response (client). Informational responses are dropped.
    Head { stream: StreamId, fields: Vec<Field>, end: bool },
    /// Content. Its length counts against the stream's window until it is returned with `consume`.
    Data { stream: StreamId, data: Vec<u8>, end: bool },
    /// Trailers; they end the stream.
    Trailers { stream: StreamId, fields: Vec<Field> },
    /// The stream is closed in both directions.
    Reset { stream: StreamId, ending: Ending },
    /// The peer accepts no new streams. Streams that it will still answer continue.
    GoAway { code: ErrorCode },
}

/// Why a stream was reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The peer states that it has not processed the request and will not.
    NotProcessed,
    ByPeer(ErrorCode),
    /// The peer violated the protocol on this stream; this side has reset it.
    Violation(&'static str),
}
