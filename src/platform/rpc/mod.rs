//! gRPC over Unix sockets: a client, and a server for plugins and tests. Also single calls over TCP.
//!
//! A [`Client`] multiplexes its calls over one connection; calls of tenants, such as pods, use further ones if the server
//! limits the calls of each. It connects on the first call, and reconnects on the next
//! call after a loss, with back-off; an idle client has no timer and no large buffer. A call with an unknown outcome is
//! never repeated here.
//!
//! The layer below the calls ([`Link`] and the [`Connector`] that makes it) serves every HTTP/2 client.

mod call;
mod client;
mod client_connections;
mod connector;
mod cut_answer;
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
#[cfg(test)]
pub(crate) use handler::hanging;
pub use handler::{Handler, Reply, Request, Wire, handler};
pub(crate) use link::{Exchange, Link, Ongoing};
pub(crate) use once::call_once;
pub use serve::serve_connection;
pub use server::Server;
pub use server_limits::ServerLimits;
pub(crate) use signal::Signal;

#[cfg(test)]
pub(crate) use drive::{End, drive};
