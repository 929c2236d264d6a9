//! A certificate chain with its private key. Pure.

use std::fmt;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::sign::CertifiedKey;

use super::key::{Key, KeyError};
use crate::protocol::pem::{self, NoPem};
use crate::protocol::x509::Certificate;

#[derive(Clone, Debug)]
pub(crate) struct Pair {
    /// The leaf certificate and the intermediates.
    chain: Vec<CertificateDer<'static>>,
    /// The parsed leaf certificate.
    pub(crate) leaf: Certificate,
    key: Key,
}

impl Pair {
    /// Reads both from PEM texts, which may be the same text.
    pub(crate) fn from_pem(certificates: &[u8], key: &[u8]) -> Result<Self, PairError> {
        Self::new(certificates, Key::from_pem(key).map_err(PairError::Key)?)
    }

    /// Reads the certificates; fails if they are for another key.
    pub(crate) fn new(certificates: &[u8], key: Key) -> Result<Self, PairError> {
        let chain = pem::certificates(certificates).map_err(PairError::Pem)?;
        let leaf = chain.first().and_then(|leaf| Certificate::read(leaf).ok()).ok_or(PairError::Malformed)?;
        if key.public_key() != Ok(leaf.public_key.clone()) {
            return Err(PairError::OtherKey);
        }
        Ok(Self { chain, leaf, key })
    }

    /// Certificates and key in one PEM text, the format of the pair's file.
    pub(super) fn to_pem(&self) -> String {
        self.certificates_pem() + self.key_pem()
    }

    pub(super) fn certificates_pem(&self) -> String {
        self.chain.iter().map(|certificate| pem::encode(pem::CERTIFICATE, certificate)).collect()
    }

    pub(super) fn key_pem(&self) -> &str {
        self.key.to_pem()
    }

    /// The form that rustls takes.
    pub(crate) fn certified_key(&self) -> Arc<CertifiedKey> {
        Arc::new(CertifiedKey::new(self.chain.clone(), self.key.signing_key()))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PairError {
    Pem(NoPem),
    Key(KeyError),
    Malformed,
    OtherKey,
}

impl fmt::Display for PairError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pem(error) => error.fmt(f),
            Self::Key(error) => error.fmt(f),
            Self::Malformed => f.write_str("expected an X.509 certificate, found a damaged one"),
            Self::OtherKey => f.write_str("expected a certificate for the key beside it, found one for another key"),
        }
    }
}

impl std::error::Error for PairError {}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::kubelet::certificates::pkcs10::{Names, self_signed};
    use crate::types::api::Time;

    /// A pair for this node, valid between two times in seconds.
    pub(crate) fn pair(node: &str, from: i64, until: i64) -> Pair {
        let key = Key::generate().unwrap();
        let time = |seconds: i64| Time::from_unix_nanos(seconds * 1_000_000_000);
        let der = self_signed(&key, &Names::of_node(node), time(from), time(until)).unwrap();
        Pair::new(pem::encode(pem::CERTIFICATE, &der).as_bytes(), key).unwrap()
    }

    #[test]
    fn pair_survives_a_pem_round_trip() {
        let pair = pair("a", 0, 1);
        let text = pair.to_pem();
        let again = Pair::from_pem(text.as_bytes(), text.as_bytes()).unwrap();
        assert_eq!((again.to_pem(), again.leaf), (text, pair.leaf));
    }

    #[test]
    fn upstream_pair_is_read() {
        let certificate = include_bytes!("../../../tests/data/certificates/leaf.crt");
        let key = include_bytes!("../../../tests/data/certificates/leaf.key");
        let pair = Pair::from_pem(certificate, key).unwrap();
        assert_eq!(pair.to_pem().as_bytes(), [&certificate[..], &key[..]].concat());
    }

    #[test]
    fn certificate_for_another_key_is_refused() {
        let (one, other) = (pair("a", 0, 1).to_pem(), pair("a", 0, 1).to_pem());
        assert_eq!(Pair::from_pem(one.as_bytes(), other.as_bytes()).unwrap_err(), PairError::OtherKey);
        let certificate = pem::encode(pem::CERTIFICATE, b"no certificate");
        assert_eq!(Pair::from_pem(certificate.as_bytes(), one.as_bytes()).unwrap_err(), PairError::Malformed);
    }
}
