//! Ed25519 signatures of manifests (RFC 8032). Pure.
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

use crate::protocol::ed25519::{PublicKey, SIGNATURE_BYTES, plain_signature};
use crate::types::api::Bytes;

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
            let plain = plain_signature(signature).ok_or(SignatureError::NoSignature)?;
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

#[cfg(test)]
mod tests {
    use ring::signature::{Ed25519KeyPair, KeyPair};

    use super::*;

    const MANIFEST: &[u8] = b"kind: Pod\n";

    fn signed(head: &str) -> Vec<u8> {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        let signature = pair.sign(&[head.as_bytes(), MANIFEST].concat()).as_ref().to_vec();
        [head, &Bytes(signature).to_base64(), "\n"].concat().into_bytes()
    }

    fn trust() -> Trust {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        let key = PublicKey::from_bytes(pair.public_key().as_ref().try_into().unwrap());
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
        assert_eq!(HighestSerial::decode(&stored, &PublicKey::from_bytes([3; 32])), None);
        assert_eq!(HighestSerial::decode(&stored[..20], &key), None);
    }
}
