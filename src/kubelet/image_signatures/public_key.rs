//! Public keys that sign images, in PEM: ECDSA P-256 and P-384, Ed25519, RSA. Pure.

use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ED25519, RSA_PKCS1_2048_8192_SHA256,
    UnparsedPublicKey, VerificationAlgorithm,
};
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject as _;

use crate::protocol::der::{Reader, tag};

#[derive(Clone)]
pub(crate) struct PublicKey {
    algorithms: Vec<&'static dyn VerificationAlgorithm>,
    /// As ring takes it: a point, 32 bytes, or modulus and exponent.
    key: Vec<u8>,
}

pub(super) const EXPECTED_KEY: &str =
    "expected one public key in PEM: ECDSA P-256 or P-384, Ed25519, or RSA of 2048 to 8192 bits";

impl PublicKey {
    pub(super) fn from_pem(text: &[u8]) -> Option<Self> {
        let mut keys = SubjectPublicKeyInfoDer::pem_slice_iter(text);
        let (Some(Ok(info)), None) = (keys.next(), keys.next()) else { return None };
        Self::from_info(&info)
    }

    /// From a SubjectPublicKeyInfo (RFC 5280, section 4.1).
    fn from_info(info: &[u8]) -> Option<Self> {
        let mut outer = Reader::new(info);
        let mut inside = outer.inside(tag::SEQUENCE).ok().filter(|_| outer.is_empty())?;
        let mut algorithm = inside.inside(tag::SEQUENCE).ok()?;
        let oid = algorithm.content(tag::OID).ok()?;
        let curve = algorithm.optional(tag::OID).ok()?;
        let key = inside.content(tag::BIT_STRING).ok()?.strip_prefix(&[0])?;
        let algorithms: Vec<&'static dyn VerificationAlgorithm> = match (oid, curve) {
            (EC_PUBLIC_KEY, Some(P256)) if key.len() == 65 => vec![&ECDSA_P256_SHA256_ASN1],
            // cosign signs with SHA-256 whatever the curve; its bundles have SHA-384.
            (EC_PUBLIC_KEY, Some(P384)) if key.len() == 97 => vec![&ECDSA_P384_SHA256_ASN1, &ECDSA_P384_SHA384_ASN1],
            (ED25519_KEY, None) if key.len() == 32 => vec![&ED25519],
            (RSA_ENCRYPTION, None) if is_supported_rsa(key) => vec![&RSA_PKCS1_2048_8192_SHA256],
            _ => return None,
        };
        Some(Self { algorithms, key: key.to_vec() })
    }

    pub(super) fn has_signed(&self, content: &[u8], signature: &[u8]) -> bool {
        let verifies = |algorithm| UnparsedPublicKey::new(algorithm, &self.key).verify(content, signature).is_ok();
        self.algorithms.iter().copied().any(verifies)
    }
}

impl std::fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PublicKey({} bytes)", self.key.len())
    }
}

/// Whether ring takes a key with this modulus. Other keys would verify nothing.
fn is_supported_rsa(key: &[u8]) -> bool {
    let modulus = Reader::new(key).inside(tag::SEQUENCE).and_then(|mut key| key.content(tag::INTEGER));
    let digits = modulus.map(|modulus| modulus.iter().skip_while(|byte| **byte == 0).count()).unwrap_or_default();
    (256..=1024).contains(&digits)
}

const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];
const ED25519_KEY: &[u8] = &[0x2b, 0x65, 0x70];
const RSA_ENCRYPTION: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
