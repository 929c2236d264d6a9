//! The API server of a cluster: requests, lists and watches over one connection of HTTP/2.
//!
//! A [`Client`] connects when somebody asks, with what its kubeconfig says at that moment; at rest there is one socket,
//! no thread, and no timer but those of who asks. A request whose outcome is not known is repeated only where that is
//! the same as once.

mod access;
mod client;
mod connect;
mod error;
mod exchange;
mod gate;
mod gate_waiters;
mod gzip;
mod history;
mod kubeconfig;
mod reconnect;
mod reflector;
mod reflector_state;
mod request;
mod retry;
mod tls;
mod traffic;
mod verifier;
mod watch_event;

pub(crate) use access::Access;
pub(crate) use client::{Client, Source};
pub(crate) use error::{ApiError, Status};
pub(crate) use gate::{Gate, Opening, Rank};
pub(crate) use gate_waiters::settle;
pub(crate) use history::History;
pub(crate) use kubeconfig::{Kubeconfig, Pem, Token};
pub(crate) use reflector::reflect;
pub(crate) use reflector_state::{Change, Collection};
pub(crate) use request::{Patch, Request};
pub(crate) use verifier::{believable, believing, known_past};
