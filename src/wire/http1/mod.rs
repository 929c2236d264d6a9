//! HTTP/1.1 as far as a client needs it that makes one GET a connection. Pure.

mod response;

pub use response::{Malformed, Response};
