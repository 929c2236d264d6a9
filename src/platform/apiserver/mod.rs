//! The API server client: requests, lists and watches over HTTP/2. Also single requests without it.
//!
//! A [`Client`] connects on demand with the current kubeconfig. At rest it has one socket, no thread, and no timers but
//! its callers'. Watches beyond the server's limit for a connection use further sockets. A request with an unknown
//! outcome is repeated only if that is idempotent.

mod access;
mod client;
mod connect;
mod connections;
mod error;
mod exchange;
mod exec_credential;
mod exec_plugin;
mod gate;
mod gate_waiters;
mod history;
mod kubeconfig;
mod pass_on;
mod reconnect;
mod reflector;
mod reflector_state;
mod request;
mod retry;
mod single_request;
mod tls;
mod token_file;
mod traffic;
mod transport;
mod watch_event;

pub(crate) use access::Access;
pub(crate) use client::{ApiResponse, Client};
pub(crate) use error::{ApiError, Status};
pub(crate) use exec_plugin::ExecCredentials;
pub(crate) use gate::{Gate, Opening, Rank};
pub(crate) use gate_waiters::settle;
pub(crate) use history::History;
pub(crate) use kubeconfig::{Kubeconfig, KubeconfigSource, Pem, Token};
pub(crate) use pass_on::{PassedRequest, PassedResponse};
pub(crate) use reflector::reflect;
pub(crate) use reflector_state::{Change, Collection};
pub(crate) use request::{Patch, Request, Requester};
pub(crate) use single_request::SingleRequests;
