//! HTTP/1.1: responses, as far as a client needs them that makes one GET a connection, and the heads of requests. Pure.

mod request;
mod response;

pub use request::{MOST_HEAD, PROTOCOLS, Refusal, Request, TOKEN_PROTOCOL, push_escaped};
pub use response::{Malformed, Response};
