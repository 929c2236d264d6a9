//! HTTP/2 (RFC 9113) without I/O, both roles: bytes in, events out; calls in, bytes out. Pure.
//!
//! [`Connection`] is the whole of it. What arrives goes to `receive`, which tells what it means as [`Event`]s; what
//! has to leave is fetched with `transmit`. A violation by the peer is an [`Error`] when the connection cannot go on,
//! and an [`Event::Reset`] when only one stream cannot.
//!
//! Everything that the peer can make this side remember or answer has a limit; they stand in `limits.rs`. Priorities
//! and push are not done: nothing here needs them, and a peer can be told so.

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
