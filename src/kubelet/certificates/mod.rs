//! The node's certificates: as a client of the API server, and as a server of its own.
//!
//! Nothing here ends the process or touches a pod. A certificate that has expired, a clock that is wrong, a server that
//! cannot be reached: the node goes on, says so, and takes up a new certificate as soon as one can be had.

mod ask;
mod book;
mod client;
pub(crate) mod discovery;
mod key;
mod kubeconfig;
mod look;
mod pair;
mod pursuit;
mod request;
mod rotation;
mod serving;
mod signing_request;
mod situation;
mod store;
mod teller;
mod waits;

pub(crate) use book::{CertificateBook, CertificateEntry, Which};
pub(crate) use client::{ClientCertificate, run as keep_client_certificate};
pub(crate) use kubeconfig::of_token as kubeconfig_of_token;
pub(crate) use look::{Places, node_of_kubeconfig};
pub(crate) use request::Names;
pub(crate) use rotation::Standing;
pub(crate) use serving::{ServingCertificate, ServingSource, ShownCertificate, run as keep_serving_certificate};
pub(crate) use store::Store;
