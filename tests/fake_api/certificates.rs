//! The server's CA, and the certificates that it issues.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PublicKeyData, SanType, SignatureAlgorithm,
};
use rustls::pki_types::CertificateDer;

use super::der::CertificateRequest;
use super::identity::Identity;

/// A validity period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Validity {
    pub not_before: Timestamp,
    pub not_after: Timestamp,
}

impl Validity {
    /// A period of this lifetime that began an hour ago.
    pub(crate) fn lasting(now: Timestamp, lifetime: SignedDuration) -> Self {
        Self { not_before: now - SignedDuration::from_hours(1), not_after: now + lifetime }
    }

    pub(crate) fn a_day(now: Timestamp) -> Self {
        Self::lasting(now, SignedDuration::from_hours(24))
    }

    /// A period that ended an hour ago.
    pub(crate) fn expired(now: Timestamp) -> Self {
        let hours = SignedDuration::from_hours;
        Self { not_before: now - hours(48), not_after: now - hours(1) }
    }
}

/// A certificate with its key.
pub(crate) struct Certified {
    pub certificate: CertificateDer<'static>,
    /// PKCS #8.
    pub key: Vec<u8>,
}

impl fmt::Debug for Certified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Certified")
    }
}

impl Certified {
    pub(crate) fn certificate_pem(&self) -> String {
        pem("CERTIFICATE", &self.certificate)
    }

    pub(crate) fn key_pem(&self) -> String {
        pem("PRIVATE KEY", &self.key)
    }
}

pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authority")
    }
}

impl Authority {
    /// A CA that is a day old.
    pub(crate) fn new(now: Timestamp) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        let hours = SignedDuration::from_hours;
        valid(&mut params, Validity { not_before: now - hours(24), not_after: now + hours(10 * 365 * 24) });
        name(&mut params, "kubernetes", &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).unwrap().into();
        Self { issuer: Issuer::new(params, key), certificate }
    }

    pub(crate) fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    pub(crate) fn pem(&self) -> String {
        self.pair().certificate_pem()
    }

    /// The CA's certificate and key, for a signer elsewhere.
    pub(crate) fn pair(&self) -> Certified {
        Certified { certificate: self.certificate.clone(), key: self.issuer.key().serialize_der() }
    }

    /// A value unique to this server.
    pub(crate) fn seed(&self) -> String {
        STANDARD.encode(self.issuer.key().public_key_raw())
    }

    pub(crate) fn issue_server(&self, addresses: &[IpAddr], names: &[&str], validity: Validity) -> Certified {
        let mut params = CertificateParams::default();
        name(&mut params, "kube-apiserver", &[]);
        let names = names.iter().map(|&name| SanType::DnsName(name.try_into().unwrap()));
        let addresses = addresses.iter().map(|&address| SanType::IpAddress(address));
        params.subject_alt_names = names.chain(addresses).collect();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.issue(params, validity)
    }

    pub(crate) fn issue_client(&self, identity: &Identity, validity: Validity) -> Certified {
        let mut params = CertificateParams::default();
        name(&mut params, &identity.user, &identity.groups);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(params, validity)
    }

    /// Signs a CSR. Returns PEM, or `None` if the key's algorithm is unknown here.
    pub(crate) fn sign(&self, request: &CertificateRequest, usages: &[&str], validity: Validity) -> Option<String> {
        let key = RequestedKey { key: &request.key, algorithm: algorithm(&request.key_algorithm)? };
        let mut params = CertificateParams::default();
        let subject = &request.subject;
        name(&mut params, subject.common_name.as_deref().unwrap_or_default(), &subject.organizations);
        let dns = request.dns_names.iter().filter_map(|name| Some(SanType::DnsName(name.as_str().try_into().ok()?)));
        params.subject_alt_names = dns.chain(request.addresses.iter().copied().map(SanType::IpAddress)).collect();
        for usage in usages {
            match *usage {
                "digital signature" => params.key_usages.push(KeyUsagePurpose::DigitalSignature),
                "key encipherment" => params.key_usages.push(KeyUsagePurpose::KeyEncipherment),
                "client auth" => params.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth),
                "server auth" => params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth),
                _ => return None,
            }
        }
        valid(&mut params, validity);
        let certificate = params.signed_by(&key, &self.issuer).ok()?;
        Some(pem("CERTIFICATE", certificate.der()))
    }

    fn issue(&self, mut params: CertificateParams, validity: Validity) -> Certified {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        valid(&mut params, validity);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().into();
        Certified { certificate, key: key.serialize_der() }
    }
}

/// A key of which only the public half is known.
struct RequestedKey<'a> {
    key: &'a [u8],
    algorithm: &'static SignatureAlgorithm,
}

impl PublicKeyData for RequestedKey<'_> {
    fn der_bytes(&self) -> &[u8] {
        self.key
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        self.algorithm
    }
}

fn algorithm(identifier: &[u8]) -> Option<&'static SignatureAlgorithm> {
    const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
    const P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];
    const ED25519: &[u8] = &[0x2b, 0x65, 0x70];
    if identifier.ends_with(P256) {
        Some(&rcgen::PKCS_ECDSA_P256_SHA256)
    } else if identifier.ends_with(P384) {
        Some(&rcgen::PKCS_ECDSA_P384_SHA384)
    } else {
        identifier.ends_with(ED25519).then_some(&rcgen::PKCS_ED25519)
    }
}

fn name(params: &mut CertificateParams, common_name: &str, organizations: &[String]) {
    let mut name = rcgen::DistinguishedName::new();
    // A map keeps one organization only; certificates with several are rare.
    if let Some(first) = organizations.iter().find(|group| *group != "system:authenticated") {
        name.push(DnType::OrganizationName, first.as_str());
    }
    name.push(DnType::CommonName, common_name);
    params.distinguished_name = name;
}

fn valid(params: &mut CertificateParams, validity: Validity) {
    let since_1970 = |time: Timestamp| Duration::from_secs(u64::try_from(time.as_second()).unwrap());
    params.not_before = rcgen::date_time_ymd(1970, 1, 1) + since_1970(validity.not_before);
    params.not_after = rcgen::date_time_ymd(1970, 1, 1) + since_1970(validity.not_after);
}

/// PEM encoding of RFC 7468.
pub(crate) fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> = text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

/// The first block of a PEM text.
pub(crate) fn from_pem(text: &str) -> Option<Vec<u8>> {
    let mut lines = text.lines().skip_while(|line| !line.starts_with("-----BEGIN "));
    lines.next()?;
    let body: String = lines.take_while(|line| !line.starts_with("-----END ")).map(str::trim).collect();
    STANDARD.decode(body).ok()
}
