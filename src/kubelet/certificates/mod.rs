//! The node's client and serving certificates.
//!
//! No failure here stops the process or affects a pod. If a certificate has expired, the clock is wrong or the API
//! server cannot be reached, the node keeps running, reports the problem, and uses a new certificate as soon as it
//! gets one.

mod certificate_status;
mod client;
mod csr;
mod csr_attempt;
pub(crate) mod discovery;
mod events;
mod inspect;
mod key;
mod kubeconfig;
mod next_step;
mod pair;
mod pkcs10;
mod reenrolment;
mod reenrolment_key;
mod rotation;
mod serving;
mod signing_request;
mod store;
mod tpm_key;
mod waits;

pub(crate) use certificate_status::{CertificateEntry, CertificateKind, CertificateStatuses};
pub(crate) use client::{ClientCertificate, run as keep_client_certificate};
pub(crate) use inspect::{CredentialPaths, node_of_kubeconfig};
pub(crate) use kubeconfig::{BOOTSTRAP_ONCE, of_token as kubeconfig_of_token};
pub(crate) use pkcs10::{Names, pod_key};
pub(crate) use reenrolment::Reenrolment;
pub(crate) use reenrolment_key::ReenrolmentPaths;
pub(crate) use rotation::RenewalState;
pub(crate) use serving::{
    ServingCertificate, ServingCertificateCell, ServingSource, run as keep_serving_certificate,
    run_for_endpoint as keep_endpoint_certificate,
};
pub(crate) use store::Store;
