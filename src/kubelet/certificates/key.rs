//! The node's private keys: generation, reading, signing.

use std::fmt;
use std::sync::Arc;

use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair};
use rustls::SignatureScheme;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::{AlgorithmIdentifier, PrivateKeyDer, PrivatePkcs8KeyDer, alg_id};
use rustls::sign::{Signer, SigningKey};

use crate::protocol::pem::{self, NoPem};

/// A private key. `Debug` shows nothing of it.
#[derive(Clone)]
pub(crate) struct Key {
    pem: Arc<str>,
    signing: Arc<dyn SigningKey>,
}

impl Key {
    /// A new ECDSA P-256 key, like upstream's.
    pub(crate) fn generate() -> Result<Self, KeyError> {
        Self::of_type(ECDSA_P256)
    }

    /// A new key of a `keyType` of the API, as PKCS #8. `KeyError::Unknown` if ring makes no such keys.
    pub(super) fn of_type(kind: &str) -> Result<Self, KeyError> {
        let random = SystemRandom::new();
        let der = match kind {
            ED25519 => {
                let mut seed = [0; 32];
                random.fill(&mut seed).map_err(|_| KeyError::NoRandomness)?;
                // ring's own encoding has the public key, which OpenSSL does not read.
                [&ED25519_PKCS8[..], &seed].concat()
            }
            ECDSA_P256 | ECDSA_P384 => {
                let algorithm = match kind {
                    ECDSA_P256 => &ECDSA_P256_SHA256_ASN1_SIGNING,
                    _ => &ECDSA_P384_SHA384_ASN1_SIGNING,
                };
                let made = EcdsaKeyPair::generate_pkcs8(algorithm, &random).map_err(|_| KeyError::NoRandomness)?;
                made.as_ref().to_owned()
            }
            _ => return Err(KeyError::Unknown),
        };
        Self::new(PrivatePkcs8KeyDer::from(&*der).into(), pem::encode(pem::PRIVATE_KEY, &der))
    }

    /// The first key in `text`, of any type that TLS supports.
    pub(crate) fn from_pem(text: &[u8]) -> Result<Self, KeyError> {
        let der = pem::private_key(text).map_err(KeyError::Pem)?;
        let label = match &der {
            PrivateKeyDer::Pkcs1(_) => "RSA PRIVATE KEY",
            PrivateKeyDer::Sec1(_) => "EC PRIVATE KEY",
            _ => pem::PRIVATE_KEY,
        };
        let text = pem::encode(label, der.secret_der());
        Self::new(der, text)
    }

    fn new(der: PrivateKeyDer<'_>, text: String) -> Result<Self, KeyError> {
        let signing = any_supported_type(&der).map_err(|_| KeyError::Unknown)?;
        Ok(Self { pem: text.into(), signing })
    }

    pub(super) fn to_pem(&self) -> &str {
        &self.pem
    }

    pub(crate) fn signing_key(&self) -> Arc<dyn SigningKey> {
        Arc::clone(&self.signing)
    }

    /// The DER of the SubjectPublicKeyInfo.
    pub(crate) fn public_key(&self) -> Result<Vec<u8>, KeyError> {
        self.signing.public_key().map(|key| key.to_vec()).ok_or(KeyError::Unknown)
    }

    pub(super) fn is_rsa(&self) -> bool {
        self.signing.choose_scheme(&[SignatureScheme::RSA_PKCS1_SHA256]).is_some()
    }

    /// The content of the AlgorithmIdentifier of the signatures.
    pub(super) fn algorithm(&self) -> Result<&'static [u8], KeyError> {
        let scheme = self.signer()?.scheme();
        let chosen = ALGORITHMS.iter().find(|(algorithm_scheme, _)| *algorithm_scheme == scheme);
        chosen.map(|(_, algorithm)| algorithm.as_ref()).ok_or(KeyError::Unknown)
    }

    pub(super) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        self.signer()?.sign(message).map_err(|_| KeyError::NoRandomness)
    }

    fn signer(&self) -> Result<Box<dyn Signer>, KeyError> {
        let schemes = ALGORITHMS.map(|(scheme, _)| scheme);
        self.signing.choose_scheme(&schemes).ok_or(KeyError::Unknown)
    }
}

const ECDSA_P256: &str = "ECDSAP256";
const ECDSA_P384: &str = "ECDSAP384";
const ED25519: &str = "ED25519";
/// The types of keys that a pod may ask for.
pub(super) const POD_KEY_TYPES: [&str; 3] = [ECDSA_P256, ECDSA_P384, ED25519];
/// PKCS #8 (RFC 8410) of an Ed25519 key, up to its 32 bytes.
const ED25519_PKCS8: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

/// The signature schemes used in certificates.
static ALGORITHMS: [(SignatureScheme, AlgorithmIdentifier); 4] = [
    (SignatureScheme::ECDSA_NISTP256_SHA256, alg_id::ECDSA_SHA256),
    (SignatureScheme::ECDSA_NISTP384_SHA384, alg_id::ECDSA_SHA384),
    (SignatureScheme::RSA_PKCS1_SHA256, alg_id::RSA_PKCS1_SHA256),
    (SignatureScheme::ED25519, alg_id::ED25519),
];

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyError {
    Pem(NoPem),
    /// Not a type that TLS supports.
    Unknown,
    /// The kernel's random number generator failed.
    NoRandomness,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pem(error) => error.fmt(f),
            Self::Unknown => {
                f.write_str("expected an ECDSA (P-256, P-384), RSA or Ed25519 key, found another or a damaged one")
            }
            Self::NoRandomness => f.write_str("failed to get random numbers"),
        }
    }
}

impl std::error::Error for KeyError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_key_survives_a_pem_round_trip() {
        let (one, other) = (Key::generate().unwrap(), Key::generate().unwrap());
        assert_ne!(one.public_key(), other.public_key());
        let again = Key::from_pem(one.to_pem().as_bytes()).unwrap();
        assert_eq!(again.public_key(), one.public_key());
        assert_eq!(again.to_pem(), one.to_pem());
    }

    #[test]
    fn keys_of_pods_have_their_type_and_others_are_refused() {
        for (kind, oid) in [
            ("ECDSAP256", &[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7][..]),
            ("ECDSAP384", &[0x2b, 0x81, 4, 0, 0x22]),
            ("ED25519", &[0x2b, 0x65, 0x70]),
        ] {
            let key = Key::of_type(kind).unwrap();
            let public = key.public_key().unwrap();
            assert!(public.windows(oid.len()).any(|part| part == oid), "{kind}");
            assert_eq!(Key::from_pem(key.to_pem().as_bytes()).unwrap().public_key(), Ok(public), "{kind}");
            assert!(key.sign(b"body").is_ok() && key.algorithm().is_ok(), "{kind}");
        }
        for kind in ["ECDSAP521", "RSA3072", "RSA4096", "", "ecdsap256"] {
            assert_eq!(Key::of_type(kind).unwrap_err(), KeyError::Unknown, "{kind}");
        }
    }

    #[test]
    fn upstream_key_is_read_and_kept_unchanged() {
        let text = include_str!("../../../tests/data/certificates/leaf.key");
        let key = Key::from_pem(text.as_bytes()).unwrap();
        assert_eq!(key.to_pem(), text);
        let leaf = pem::certificates(include_bytes!("../../../tests/data/certificates/leaf.crt")).unwrap();
        let leaf = crate::protocol::x509::Certificate::read(&leaf[0]).unwrap();
        assert_eq!(key.public_key(), Ok(leaf.public_key));
    }

    #[test]
    fn debug_and_errors_show_no_key_material() {
        let key = Key::generate().unwrap();
        assert_eq!(format!("{key:?}"), "Key");
        let damaged = pem::encode(pem::PRIVATE_KEY, b"damaged");
        for text in [&damaged, "nothing"] {
            let error = Key::from_pem(text.as_bytes()).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("damaged_"), "{error}");
        }
        assert_eq!(Key::from_pem(damaged.as_bytes()).unwrap_err(), KeyError::Unknown);
    }
}
