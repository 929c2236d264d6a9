//! One attempt to obtain a certificate: the key, the request, and the cleanup after a failure.

use std::fmt;

use super::csr::{CsrError, Endorsement, IssuedCertificate, request_certificate};
use super::pkcs10::Names;
use super::rotation::{Failure, HeldCertificate, KnownTime, RenewalState};
use super::signing_request::Purpose;
use super::store::{Store, StoreError};
use crate::platform::apiserver::Client;
use crate::platform::rt;
use crate::types::error::ErrorChain;

/// Tries `clients` in order until one is accepted; also returns the index of that client.
pub(super) async fn request_with_any(
    store: &Store,
    purpose: Purpose,
    names: &Names,
    clients: &[Client],
    endorsement: Option<&Endorsement<'_>>,
    present: KnownTime,
) -> Result<(IssuedCertificate, usize), AttemptError> {
    let keeps = store.clone();
    let key = rt::blocking(move || keeps.key()).await.map_err(AttemptError::Store)?;
    let mut refused = None;
    for (number, client) in clients.iter().enumerate() {
        let requested = request_certificate(client, purpose, names, &key, endorsement).await.and_then(|issued| {
            let standing = HeldCertificate::new(&issued.pair.leaf, None).standing(present);
            let is_old = !issued.is_fresh && !matches!(standing, RenewalState::Good { .. });
            if is_old { Err(CsrError::Old) } else { Ok(issued) }
        });
        match requested {
            Ok(issued) => return Ok((issued, number)),
            Err(error) if error.is_about_requester() => refused = Some(error),
            Err(error) => {
                if error.wants_new_key() {
                    let store = store.clone();
                    rt::blocking(move || store.forget_key()).await.map_err(AttemptError::Store)?;
                }
                return Err(AttemptError::Request(error));
            }
        }
    }
    Err(refused.map_or(AttemptError::NoCredentials, AttemptError::Request))
}

#[derive(Debug)]
pub(super) enum AttemptError {
    Request(CsrError),
    Store(StoreError),
    /// There are no credentials to send a request with.
    NoCredentials,
}

impl AttemptError {
    pub(super) fn failure(&self) -> Failure {
        match self {
            Self::Request(error) => error.failure(),
            Self::Store(_) => Failure::Passing,
            Self::NoCredentials => Failure::Refused,
        }
    }
}

impl fmt::Display for AttemptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(error) => ErrorChain(error).fmt(f),
            Self::Store(error) => ErrorChain(error).fmt(f),
            Self::NoCredentials => f.write_str("no credentials to request a certificate with"),
        }
    }
}
