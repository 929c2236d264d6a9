//! Ed25519 public keys and signatures (RFC 8032), in the forms that OpenSSL writes. Pure.

use ring::signature::{ED25519, UnparsedPublicKey};

use crate::types::api::Bytes;

/// The public key that verifies manifests, programs and configurations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PublicKey([u8; 32]);

pub(crate) const EXPECTED_PUBLIC_KEY: &str = "expected an Ed25519 public key, in PEM or as base64";

impl PublicKey {
    #[cfg(test)]
    pub(crate) fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Parses the output of `openssl pkey -pubout`, or the key's 32 bytes in base64.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?.trim();
        let der = match text.strip_prefix(PEM_KEY_BEGIN) {
            Some(rest) => Bytes::from_base64(rest.split_once(PEM_KEY_END)?.0.trim())?.0,
            None => Bytes::from_base64(text)?.0,
        };
        let key = if der.len() == 32 { &*der } else { der.strip_prefix(&ED25519_KEY_INFO_PREFIX[..])? };
        Some(Self(key.try_into().ok()?))
    }

    /// The key as text.
    pub(crate) fn name(&self) -> String {
        Bytes(self.0.to_vec()).to_base64()
    }

    pub(crate) fn has_signed(&self, content: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, &self.0).verify(content, signature).is_ok()
    }
}

/// The 64 bytes of a plain signature, raw or in base64.
pub(crate) fn plain_signature(bytes: &[u8]) -> Option<Vec<u8>> {
    if bytes.len() == SIGNATURE_BYTES {
        return Some(bytes.to_vec());
    }
    let text = std::str::from_utf8(bytes).ok()?;
    Bytes::from_base64(text.trim()).map(|bytes| bytes.0).filter(|bytes| bytes.len() == SIGNATURE_BYTES)
}

pub(crate) const SIGNATURE_BYTES: usize = 64;
const PEM_KEY_BEGIN: &str = "-----BEGIN PUBLIC KEY-----";
const PEM_KEY_END: &str = "-----END PUBLIC KEY-----";
/// SubjectPublicKeyInfo of id-Ed25519, up to the key itself (RFC 8410).
const ED25519_KEY_INFO_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

#[cfg(test)]
mod tests {
    use ring::signature::{Ed25519KeyPair, KeyPair};

    use super::*;

    #[test]
    fn key_parses_in_each_supported_form_only() {
        let key: Vec<u8> = (0..32).collect();
        let raw = Bytes(key.clone()).to_base64();
        let der = Bytes([&ED25519_KEY_INFO_PREFIX[..], &key].concat()).to_base64();
        let pem = format!("{PEM_KEY_BEGIN}\n{der}\n{PEM_KEY_END}\n");
        let parsed = PublicKey::parse(raw.as_bytes()).unwrap();
        assert_eq!(parsed.0.to_vec(), key);
        assert_eq!(PublicKey::parse(format!("{raw}\n").as_bytes()).as_ref(), Some(&parsed));
        assert_eq!(PublicKey::parse(pem.as_bytes()).as_ref(), Some(&parsed));
        for wrong in [&b""[..], b"x", &raw.as_bytes()[..40], &pem.as_bytes()[..60], &key, b"\xff"] {
            assert_eq!(PublicKey::parse(wrong), None, "{wrong:?}");
        }
        let other = pem.replace("MCow", "MCox");
        assert_eq!(PublicKey::parse(other.as_bytes()), None);
    }

    #[test]
    fn rfc_test_vector_verifies_and_other_texts_do_not() {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        let key = PublicKey(pair.public_key().as_ref().try_into().unwrap());
        let signature = pair.sign(b"kind: Pod\n").as_ref().to_vec();
        assert!(key.has_signed(b"kind: Pod\n", &signature));
        assert!(!key.has_signed(b"kind: Pod", &signature));
        assert!(!key.has_signed(b"kind: Pod\n", &signature[1..]));
        let base64 = format!("{}\n", Bytes(signature.clone()).to_base64());
        assert_eq!(plain_signature(base64.as_bytes()), Some(signature.clone()));
        assert_eq!(plain_signature(&signature), Some(signature));
        assert_eq!((plain_signature(b""), plain_signature(b"AAAA"), plain_signature(&[0xff; 65])), (None, None, None));
    }
}
