//! A client of the OCI distribution API: registries and their mirrors, tokens, redirects, byte ranges. Blocks, and is
//! for threads that may wait.
//!
//! Credentials are sent to the registry that they are for, and to the token server that it names. Never to another host
//! that a registry redirects to.

mod challenge;
mod client;
mod error;
mod hosts;

pub use client::check_headers;
pub(crate) use client::{ContentRequest, ContentResponse, Login, Registry};
pub(crate) use error::RegistryError;
pub(crate) use hosts::{Mirror, mirrors};
