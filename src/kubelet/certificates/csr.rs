//! Creates a certificate signing request and waits until it is signed.

use std::fmt;
use std::time::Duration;

use super::key::{Key, KeyError};
use super::pair::{Pair, PairError};
use super::pkcs10::{Names, certification_request};
use super::reenrolment_key::{ReenrolmentKey, SIGNATURE_ANNOTATION};
use super::rotation::{Failure, REQUEST_WAIT};
use super::signing_request::{Outcome, Purpose, SigningRequest};
use crate::platform::apiserver::{ApiError, Change, Client, Collection, Rank, Request, Requester, reflect};
use crate::platform::rt;
use crate::types::api::Bytes;

const CSR_PATH: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

#[derive(Debug)]
pub(super) struct IssuedCertificate {
    pub(super) pair: Pair,
    /// Whether this call created the request. A request from before a restart may have been signed long ago.
    pub(super) is_fresh: bool,
}

/// Vouches for requests of a node that the API server cannot authenticate any more.
pub(super) struct Endorsement<'a> {
    pub(super) key: ReenrolmentKey,
    /// Called with the name of the request, which waits for an approval.
    pub(super) awaits: &'a dyn Fn(&str),
}

/// Returns a certificate for `names` and `key`. A second call with the same key finds the first request.
pub(super) async fn request_certificate(
    client: &Client,
    purpose: Purpose,
    names: &Names,
    key: &Key,
    endorsement: Option<&Endorsement<'_>>,
) -> Result<IssuedCertificate, CsrError> {
    let der = certification_request(key, names).map_err(CsrError::Key)?;
    let public_key = key.public_key().map_err(CsrError::Key)?;
    let mut request = SigningRequest::new(purpose, names, &public_key, key.is_rsa(), &der);
    if let Some(endorsement) = endorsement {
        let (key, pem) = (endorsement.key.clone(), request.pem.clone());
        let signature = rt::slow(move || key.sign(pem.as_bytes())).await.map_err(CsrError::Endorsement)?;
        request.annotate(SIGNATURE_ANNOTATION, &Bytes(signature).to_base64());
    }
    let is_fresh = match client.send(&Request::post(CSR_PATH, &request.object)).await {
        Ok(_) => true,
        Err(error) if error.is_already_exists() => false,
        Err(error) => return Err(CsrError::Api(error)),
    };
    log!(info, "certificate requested", signer = purpose.signer(), request = request.name, new = is_fresh);
    if let Some(endorsement) = endorsement {
        (endorsement.awaits)(&request.name);
    }
    let issued = match rt::deadline(REQUEST_WAIT, issued(client, &request.name)).await {
        Ok(issued) => issued?,
        Err(rt::Elapsed) => return Err(CsrError::TimedOut { name: request.name }),
    };
    let pair = Pair::new(&issued, key.clone()).map_err(CsrError::Pair)?;
    if names.are_in(&pair.leaf) { Ok(IssuedCertificate { pair, is_fresh }) } else { Err(CsrError::OtherNames) }
}

/// Waits until the request is signed or denied.
async fn issued(client: &Client, name: &str) -> Result<Vec<u8>, CsrError> {
    let (sender, changes) = async_channel::bounded(4);
    let collection = Collection {
        path: CSR_PATH.to_owned(),
        field_selector: format!("metadata.name={name}"),
        bookmarks: false,
        rereads_after_loss: false,
        rank: Rank::Intent,
        requester: Requester::Node,
    };
    let _follows = rt::spawn(reflect(client.clone(), collection, sender));
    while let Ok(change) = changes.recv().await {
        let object = match change {
            Change::Applied(object) => Some(object),
            Change::Replaced(mut objects) => objects.pop(),
            Change::Deleted(_) => None,
            Change::Away(why) => {
                log!(debug, "failed to watch certificate signing request", request = name, error = why);
                continue;
            }
        };
        let Some(object) = object.and_then(|object| object.value().ok()) else {
            return Err(CsrError::Gone { name: name.to_owned() });
        };
        match Outcome::of(&object) {
            Outcome::Pending => {}
            Outcome::Issued(pem) => return Ok(pem),
            Outcome::Refused(why) => return Err(CsrError::Denied(why)),
        }
    }
    // The reflector runs as long as its receiver exists.
    std::future::pending().await
}

#[derive(Debug)]
pub(super) enum CsrError {
    Api(ApiError),
    Denied(String),
    /// Of the re-enrolment key.
    Endorsement(String),
    TimedOut {
        name: String,
    },
    /// The request was deleted before it was signed.
    Gone {
        name: String,
    },
    OtherNames,
    /// The request was signed before a restart, and the certificate is due for renewal.
    Old,
    Pair(PairError),
    Key(KeyError),
}

impl CsrError {
    pub(super) fn failure(&self) -> Failure {
        match self {
            Self::Api(error) if error.is_retryable() => Failure::Passing,
            Self::Endorsement(_) | Self::TimedOut { .. } | Self::Gone { .. } | Self::Old => Failure::Passing,
            Self::Api(_) | Self::Denied(_) | Self::OtherNames | Self::Pair(_) | Self::Key(_) => Failure::Refused,
        }
    }

    /// Whether other credentials may succeed: the client is unknown, forbidden, or could not connect.
    pub(super) fn is_about_requester(&self) -> bool {
        matches!(self, Self::Api(_))
    }

    /// Whether a new request with the same key would get the same result.
    pub(super) fn wants_new_key(&self) -> bool {
        matches!(self, Self::Denied(_) | Self::OtherNames | Self::Old | Self::Pair(_) | Self::Key(_))
    }
}

impl fmt::Display for CsrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let minutes = REQUEST_WAIT / 60;
        match self {
            Self::Api(_) => f.write_str("request a certificate"),
            Self::Denied(why) => f.write_str(why),
            Self::Endorsement(why) => write!(f, "sign the request with the re-enrolment key: {why}"),
            Self::TimedOut { name } => write!(
                f,
                "{name} was not signed within {} minutes (kubectl certificate approve {name})",
                Duration::as_secs(&minutes)
            ),
            Self::Gone { name } => write!(f, "{name} was deleted before it was signed"),
            Self::OtherNames => {
                f.write_str("expected a certificate for the requested names, found one for other names")
            }
            Self::Old => f.write_str("the certificate of the earlier request is due for renewal"),
            Self::Pair(_) => f.write_str("read the issued certificate"),
            Self::Key(_) => f.write_str("sign the request"),
        }
    }
}

impl std::error::Error for CsrError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Api(error) => Some(error),
            Self::Pair(error) => Some(error),
            Self::Key(error) => Some(error),
            Self::Denied(_)
            | Self::Endorsement(_)
            | Self::TimedOut { .. }
            | Self::Gone { .. }
            | Self::OtherNames
            | Self::Old => None,
        }
    }
}
