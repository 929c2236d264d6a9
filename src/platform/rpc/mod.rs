//! gRPC over a Unix socket: the client, and a server for plugins and for the tests. One call over TCP.
//!
//! A [`Client`] has one connection and many calls on it at once. It connects when the first call needs it, and again
//! after a loss when the next call does, with a back-off; at rest it has no timer and no buffer worth naming. A call
//! whose outcome is not known is never repeated here.
//!
//! What is below the calls (a [`Link`], the [`Connector`] that makes it) serves every client of HTTP/2.

mod call;
mod client;
mod connector;
mod drive;
mod error;
mod handler;
mod link;
mod once;
mod serve;
mod server;
mod server_limits;
mod signal;
mod socket_watch;
#[cfg(test)]
mod tests;

pub use client::{Client, Streaming, Watch};
pub(crate) use connector::{Attempt, Connector, live};
pub use error::Error;
pub use handler::{Handler, Reply, Request, Wire, handler};
pub(crate) use link::{Exchange, Link, Ongoing};
pub(crate) use once::call_once;
pub use serve::serve_connection;
pub use server::Server;
pub use server_limits::ServerLimits;
pub(crate) use signal::Signal;

#[cfg(test)]
pub(crate) use drive::{End, drive};
