//! HTTP/1.1: responses to a client that sends one GET per connection, and request heads for a server. Pure.

mod request;
mod response;

pub use request::{MAX_REQUEST_HEAD_BYTES, PROTOCOLS, Refusal, Request, TOKEN_PROTOCOL, push_escaped, unescape};
pub use response::{Malformed, Response};
