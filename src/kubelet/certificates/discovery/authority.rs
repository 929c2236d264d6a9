//! Checks the cluster's CA against pinned public key hashes. Pure.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use ring::digest::{SHA256, digest};

use crate::protocol::pem;
use crate::protocol::x509::Certificate;

/// `sha256:` and the SHA-256 of the SubjectPublicKeyInfo in hex, as `kubeadm` prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pin(String);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadPin;

impl fmt::Display for BadPin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected sha256: and 64 hexadecimal digits")
    }
}

impl Pin {
    fn of(certificate: &Certificate) -> Self {
        let mut text = "sha256:".to_owned();
        for byte in digest(&SHA256, &certificate.public_key).as_ref() {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        Self(text)
    }
}

impl FromStr for Pin {
    type Err = BadPin;

    fn from_str(text: &str) -> Result<Self, BadPin> {
        let (kind, digits) = text.split_once(':').ok_or(BadPin)?;
        let is_digest = digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_known = kind.eq_ignore_ascii_case("sha256");
        if is_known && is_digest { Ok(Self(text.to_ascii_lowercase())) } else { Err(BadPin) }
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a CA was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PinMismatch {
    /// The CA bundle has no certificate.
    Nothing,
    /// No pin matches any of the keys found.
    Other { expected: Vec<Pin>, found: Vec<Pin> },
}

impl fmt::Display for PinMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |pins: &[Pin]| pins.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
        match self {
            Self::Nothing => f.write_str("the cluster's CA bundle has no certificate"),
            Self::Other { expected, found } => {
                write!(f, "the cluster's CA does not match: expected {}, found {}", list(expected), list(found))
            }
        }
    }
}

/// The certificates in `pem` that have a pinned key, in PEM. Without pins every CA is accepted.
///
/// Unlike kubeadm, which trusts the whole bundle if one certificate is pinned: an attacker could add a CA to it.
pub(crate) fn pinned_authority(pem: &[u8], pins: &[Pin]) -> Result<Vec<u8>, PinMismatch> {
    let certificates = pem::certificates(pem).map_err(|_| PinMismatch::Nothing)?;
    let received_pins: Result<Vec<Pin>, _> =
        certificates.iter().map(|der| Certificate::read(der).map(|read| Pin::of(&read))).collect();
    let received_pins = received_pins.map_err(|_| PinMismatch::Nothing)?;
    if pins.is_empty() {
        return Ok(pem.to_vec());
    }
    let pinned = certificates.iter().zip(&received_pins).filter(|(_, pin)| pins.contains(pin));
    let pinned: String = pinned.map(|(der, _)| pem::encode(pem::CERTIFICATE, der)).collect();
    if pinned.is_empty() {
        Err(PinMismatch::Other { expected: pins.to_vec(), found: received_pins })
    } else {
        Ok(pinned.into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CA: &[u8] = include_bytes!("../../../../tests/data/certificates/ca.crt");
    const LEAF: &[u8] = include_bytes!("../../../../tests/data/certificates/leaf.crt");
    /// openssl x509 -pubkey | openssl pkey -pubin -outform DER | sha256sum
    const PIN: &str = "sha256:4f71478110e4d1e7487d1a8cadd9c8228254999cb6e3bcfce119ff3900165488";
    const OTHER: &str = "sha256:978fe5a36bbfed38836d62266694db1ce434bee3a6f8e83103d2228ff46760e1";

    fn pins(texts: &[&str]) -> Vec<Pin> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn pin_equals_the_digest_from_openssl() {
        for pins in [pins(&[PIN]), pins(&[&PIN.to_uppercase()]), pins(&[OTHER, PIN])] {
            assert!(pinned_authority(CA, &pins).is_ok(), "{pins:?}");
        }
        assert_eq!(pinned_authority(LEAF, &[]), Ok(LEAF.to_vec()));
    }

    #[test]
    fn only_the_pinned_certificates_of_a_bundle_are_kept() {
        let kept = pinned_authority(&[LEAF, CA].concat(), &pins(&[PIN])).unwrap();
        assert_eq!(pem::certificates(&kept), pem::certificates(CA));
        let both = pinned_authority(&[LEAF, CA].concat(), &[]).unwrap();
        assert_eq!(pem::certificates(&both).unwrap().len(), 2);
    }

    #[test]
    fn other_authority_is_refused_with_both_digests() {
        let error = pinned_authority(CA, &pins(&[OTHER])).unwrap_err().to_string();
        assert_eq!(error, format!("the cluster's CA does not match: expected {OTHER}, found {PIN}"));
        assert_eq!(pinned_authority(b"", &pins(&[PIN])), Err(PinMismatch::Nothing));
        assert_eq!(pinned_authority(b"", &[]), Err(PinMismatch::Nothing));
    }

    #[test]
    fn malformed_pins_are_refused() {
        for text in [
            "",
            "sha256",
            "sha256:",
            "sha1:4f71",
            PIN.trim_end_matches('8'),
            &PIN.replace('f', "g"),
            &format!("{PIN}0"),
        ] {
            assert_eq!(text.parse::<Pin>(), Err(BadPin), "{text}");
        }
    }
}
