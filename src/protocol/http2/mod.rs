//! HTTP/2 (RFC 9113) without I/O, client and server: bytes in, events out; calls in, bytes out. Pure.
//!
//! [`Connection`] is the entry point. Received bytes go to `receive`, which returns [`Event`]s; `transmit` returns the
//! bytes to send. A violation by the peer is an [`Error`] if it ends the connection, and an [`Event::Reset`] if it ends
//! one stream.
//!
//! Everything that the peer can make this side store or answer has a limit in `limits.rs`. Priorities and server push
//! are not implemented: nothing here needs them, and peers must accept that.

mod connection;
mod error;
mod event;
mod fields;
mod flood;
mod frame;
mod limits;
mod settings;
mod stream;
mod stream_id;
#[cfg(test)]
mod tests;
mod window;

pub use connection::{Connection, GoingAway};
pub use error::{Error, ErrorCode};
pub use event::{Ending, Event};
pub use stream_id::StreamId;
