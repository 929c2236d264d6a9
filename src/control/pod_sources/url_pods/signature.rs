//! Ed25519 signatures of manifests (RFC 8032), and the public key. Pure.
//!
//! ```text
//! coracle-manifest-v1
//! audience: https://fleet.example/board.yaml     the configured URL without its query, or node/NAME
//! serial: 1769000000                             never lower than that of an accepted manifest
//! 9h3k...==                                      the signature of the three lines above and the manifest
//! ```
//!
//! A plain signature, of the manifest alone, can be replayed: it is accepted only if configured.

use std::fmt;

use ring::signature::{ED25519, UnparsedPublicKey};

use crate::types::api::Bytes;

/// The public key that verifies manifests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PublicKey([u8; 32]);

pub(crate) const EXPECTED_PUBLIC_KEY: &str = "expected an Ed25519 public key, in PEM or as base64";

impl PublicKey {
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
    pub(super) fn name(&self) -> String {
        Bytes(self.0.to_vec()).to_base64()
    }

    pub(super) fn has_signed(&self, manifest: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, &self.0).verify(manifest, signature).is_ok()
    }
}

/// Which signatures are accepted.
#[derive(Clone, Debug)]
pub(crate) struct Trust {
    pub(crate) key: PublicKey,
    /// The audiences of this node.
    pub(crate) audiences: Vec<String>,
    /// Also signatures of the manifest alone.
    pub(crate) takes_plain: bool,
}

/// A good signature: its serial number, if it has one.
pub(super) type Serial = Option<u64>;

/// Why a signature does not make a manifest acceptable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SignatureError {
    Forged,
    LowerSerial {
        serial: u64,
        highest: u64,
    },
    Malformed,
    /// It has no serial number, and an earlier one had.
    NoSerial {
        highest: u64,
    },
    NoSignature,
    OtherAudience(String),
    /// Of the manifest alone, which is not configured.
    Plain,
    /// The serial number of an earlier and different manifest.
    UsedSerial(u64),
}

impl fmt::Display for SignatureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forged => f.write_str("the signature is not that of this manifest by this key"),
            Self::LowerSerial { serial, highest } => {
                write!(f, "the serial number {serial} is lower than {highest} of an earlier manifest")
            }
            Self::Malformed => f.write_str(
                "the signature is malformed: expected the lines audience and serial, and 64 bytes in base64",
            ),
            Self::NoSerial { highest } => {
                write!(f, "the signature has no serial number, and that of an earlier one is {highest}")
            }
            Self::NoSignature => f.write_str("invalid signature: expected 64 bytes, raw or in base64"),
            Self::OtherAudience(audience) => write!(f, "the manifest is signed for another audience: {audience:?}"),
            Self::Plain => {
                f.write_str("the signature has no audience and no serial number (--manifest-plain-signatures takes it)")
            }
            Self::UsedSerial(serial) => {
                write!(f, "the serial number {serial} is that of an earlier and different manifest")
            }
        }
    }
}

impl std::error::Error for SignatureError {}

impl Trust {
    pub(super) fn verify(&self, manifest: &[u8], signature: Option<&[u8]>) -> Result<Serial, SignatureError> {
        let signature = signature.unwrap_or_default();
        if !signature.starts_with(SIGNED_MANIFEST_FORMAT.as_bytes()) {
            let plain = plain(signature).ok_or(SignatureError::NoSignature)?;
            if !self.takes_plain {
                return Err(SignatureError::Plain);
            }
            return if self.key.has_signed(manifest, &plain) { Ok(None) } else { Err(SignatureError::Forged) };
        }
        let Signed { head, audience, serial, signature } = Signed::read(signature).ok_or(SignatureError::Malformed)?;
        if !self.key.has_signed(&[head, manifest].concat(), &signature) {
            return Err(SignatureError::Forged);
        }
        if !self.audiences.iter().any(|own| own == audience) {
            return Err(SignatureError::OtherAudience(audience.to_owned()));
        }
        Ok(Some(serial))
    }
}

const SIGNED_MANIFEST_FORMAT: &str = "coracle-manifest-v1\n";

struct Signed<'a> {
    /// The signed lines.
    head: &'a [u8],
    audience: &'a str,
    serial: u64,
    signature: Vec<u8>,
}

impl<'a> Signed<'a> {
    fn read(bytes: &'a [u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let (audience, rest) =
            text.strip_prefix(SIGNED_MANIFEST_FORMAT)?.strip_prefix("audience: ")?.split_once('\n')?;
        let (serial, rest) = rest.strip_prefix("serial: ")?.split_once('\n')?;
        let head = bytes.get(..bytes.len().checked_sub(rest.len())?)?;
        let signature =
            Bytes::from_base64(rest.trim()).map(|bytes| bytes.0).filter(|bytes| bytes.len() == SIGNATURE_BYTES)?;
        Some(Self { head, audience, serial: serial.parse().ok()?, signature })
    }
}

/// The highest accepted serial number, and the digest of its manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HighestSerial {
    pub(super) serial: u64,
    pub(super) digest: [u8; 32],
}

impl HighestSerial {
    /// The stored form: one line, which holds for this key only.
    pub(super) fn encode(&self, key: &PublicKey) -> Vec<u8> {
        format!("{} {} {}\n", key.name(), self.serial, Bytes(self.digest.to_vec()).to_base64()).into_bytes()
    }

    /// `None` if it is malformed or of another key.
    pub(super) fn decode(stored: &[u8], key: &PublicKey) -> Option<Self> {
        let mut words = std::str::from_utf8(stored).ok()?.split_whitespace();
        let _key = words.next().filter(|name| *name == key.name())?;
        let serial = words.next()?.parse().ok()?;
        Some(Self { serial, digest: Bytes::from_base64(words.next()?)?.0.try_into().ok()? })
    }

    /// Fails for a manifest that this one forbids.
    pub(super) fn allows(&self, serial: Serial, digest: [u8; 32]) -> Result<(), SignatureError> {
        let highest = self.serial;
        match serial {
            None => Err(SignatureError::NoSerial { highest }),
            Some(serial) if serial < highest => Err(SignatureError::LowerSerial { serial, highest }),
            Some(serial) if serial == highest && digest != self.digest => Err(SignatureError::UsedSerial(serial)),
            Some(_) => Ok(()),
        }
    }
}

/// The 64 bytes of a plain signature, raw or in base64.
fn plain(bytes: &[u8]) -> Option<Vec<u8>> {
    if bytes.len() == SIGNATURE_BYTES {
        return Some(bytes.to_vec());
    }
    let text = std::str::from_utf8(bytes).ok()?;
    Bytes::from_base64(text.trim()).map(|bytes| bytes.0).filter(|bytes| bytes.len() == SIGNATURE_BYTES)
}

const SIGNATURE_BYTES: usize = 64;
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
        assert_eq!(plain(base64.as_bytes()), Some(signature.clone()));
        assert_eq!(plain(&signature), Some(signature));
        assert_eq!((plain(b""), plain(b"AAAA"), plain(&[0xff; 65])), (None, None, None));
    }

    const MANIFEST: &[u8] = b"kind: Pod\n";

    fn signed(head: &str) -> Vec<u8> {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        let signature = pair.sign(&[head.as_bytes(), MANIFEST].concat()).as_ref().to_vec();
        [head, &Bytes(signature).to_base64(), "\n"].concat().into_bytes()
    }

    fn trust() -> Trust {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        let key = PublicKey(pair.public_key().as_ref().try_into().unwrap());
        Trust { key, audiences: vec!["https://h/a".to_owned(), "node/n1".to_owned()], takes_plain: false }
    }

    #[test]
    fn audience_and_serial_are_signed_with_the_manifest() {
        let head =
            |audience: &str, serial: &str| format!("{SIGNED_MANIFEST_FORMAT}audience: {audience}\nserial: {serial}\n");
        let verify = |signature: &[u8]| trust().verify(MANIFEST, Some(signature));
        assert_eq!(verify(&signed(&head("https://h/a", "7"))), Ok(Some(7)));
        assert_eq!(verify(&signed(&head("node/n1", "0"))), Ok(Some(0)));
        for other in ["node/n2", "https://h/b", "https://h/a?x", ""] {
            let error = verify(&signed(&head(other, "7"))).unwrap_err().to_string();
            assert!(error.contains("another audience"), "{error}");
        }
        let text = String::from_utf8(signed(&head("node/n2", "7"))).unwrap();
        let serial = text.replace("serial: 7", "serial: 8");
        for forged in [text.replace("n2", "n1"), serial] {
            assert_eq!(verify(forged.as_bytes()), Err(SignatureError::Forged));
        }
        for malformed in
            [SIGNED_MANIFEST_FORMAT, &head("a", "x"), &head("a", "-1"), &format!("{SIGNED_MANIFEST_FORMAT}serial: 1\n")]
        {
            assert_eq!(verify(&signed(malformed)), Err(SignatureError::Malformed), "{malformed}");
        }
        assert_eq!(trust().verify(b"kind: Job\n", Some(&signed(&head("node/n1", "7")))), Err(SignatureError::Forged));
    }

    #[test]
    fn plain_signature_is_accepted_only_if_configured() {
        let plain = signed("");
        let error = trust().verify(MANIFEST, Some(&plain)).unwrap_err().to_string();
        assert!(error.contains("--manifest-plain-signatures"), "{error}");
        assert_eq!(Trust { takes_plain: true, ..trust() }.verify(MANIFEST, Some(&plain)), Ok(None));
    }

    #[test]
    fn lower_serial_and_another_manifest_with_the_same_one_are_refused() {
        let highest = HighestSerial { serial: 7, digest: [1; 32] };
        assert_eq!(highest.allows(Some(7), [1; 32]), Ok(()));
        assert_eq!(highest.allows(Some(8), [2; 32]), Ok(()));
        assert!(highest.allows(Some(7), [2; 32]).is_err());
        assert!(highest.allows(Some(6), [1; 32]).is_err());
        assert!(highest.allows(None, [1; 32]).is_err());
        let key = trust().key;
        let stored = highest.encode(&key);
        assert_eq!(HighestSerial::decode(&stored, &key), Some(highest));
        assert_eq!(HighestSerial::decode(&stored, &PublicKey([3; 32])), None);
        assert_eq!(HighestSerial::decode(&stored[..20], &key), None);
    }
}
