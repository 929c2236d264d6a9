//! Certificates and keys in PEM (RFC 7468). Pure.

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::types::api::Bytes;

pub const CERTIFICATE: &str = "CERTIFICATE";
pub const CERTIFICATE_REQUEST: &str = "CERTIFICATE REQUEST";
pub const PRIVATE_KEY: &str = "PRIVATE KEY";

/// Encodes one section.
pub fn encode(label: &str, der: &[u8]) -> String {
    const PEM_LINE_CHARS: usize = 64;
    let text = Bytes(der.to_vec()).to_base64();
    let mut out = format!("-----BEGIN {label}-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, more) = rest.split_at_checked(PEM_LINE_CHARS).unwrap_or((rest, ""));
        out.extend([line, "\n"]);
        rest = more;
    }
    out.push_str(&format!("-----END {label}-----\n"));
    out
}

/// The certificates in a text, in order. Other sections are skipped.
pub fn certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, NoPem> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    certificates.ok().filter(|certificates| !certificates.is_empty()).ok_or(NoPem("a certificate"))
}

/// The first private key of a text: PKCS #8, or one of the older forms that upstream's tools write.
pub fn private_key(text: &[u8]) -> Result<PrivateKeyDer<'static>, NoPem> {
    PrivateKeyDer::from_pem_slice(text).map_err(|_| NoPem("a private key"))
}

/// The missing section. The text itself is not shown, as it may be a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoPem(pub &'static str);

impl std::fmt::Display for NoPem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "expected {} in PEM, found no valid one", self.0)
    }
}

impl std::error::Error for NoPem {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pem_round_trips() {
        for length in [1, 47, 48, 49, 500] {
            let der = vec![7; length];
            let text = encode(CERTIFICATE, &der);
            assert!(text.lines().all(|line| line.len() <= 64), "{text}");
            let both = format!("first\n{text}between\n{}{text}", encode(PRIVATE_KEY, &[1]));
            assert_eq!(certificates(both.as_bytes()).unwrap(), [CertificateDer::from(der.clone()), der.into()]);
            assert_eq!(private_key(both.as_bytes()).unwrap().secret_der(), [1]);
        }
    }

    #[test]
    fn openssl_output_round_trips() {
        let text = include_bytes!("../../tests/data/certificates/leaf.crt");
        let read = certificates(text).unwrap();
        assert_eq!(encode(CERTIFICATE, &read[0]).as_bytes(), text);
    }

    #[test]
    fn truncated_pem_is_refused_and_not_shown() {
        let text = encode(PRIVATE_KEY, b"secret bytes of a key");
        for end in 0..text.len() - 1 {
            assert!(private_key(&text.as_bytes()[..end]).is_err(), "{end}");
            assert!(certificates(&text.as_bytes()[..end]).is_err(), "{end}");
        }
        assert_eq!(
            private_key(b"nothing").unwrap_err().to_string(),
            "expected a private key in PEM, found no valid one"
        );
    }
}
