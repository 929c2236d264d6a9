//! Reads certificates: subject, validity, public key. Pure.
//!
//! RFC 5280. Verifies nothing: TLS checks signatures and chains.

use std::net::IpAddr;

use super::der::{Malformed, Reader, tag};
use crate::types::timestamp::days;

/// The fields used here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Certificate {
    /// Unix seconds.
    pub not_before: i64,
    pub not_after: i64,
    pub common_name: String,
    pub organizations: Vec<String>,
    pub dns_names: Vec<String>,
    pub ip_addresses: Vec<IpAddr>,
    /// The DER of SubjectPublicKeyInfo: the public key with its algorithm.
    pub public_key: Vec<u8>,
}

/// Object identifiers, as content octets.
pub mod oid {
    pub const COMMON_NAME: &[u8] = &[0x55, 4, 3];
    pub const ORGANIZATION: &[u8] = &[0x55, 4, 10];
    pub const KEY_USAGE: &[u8] = &[0x55, 0x1d, 15];
    pub const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 17];
    pub const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 37];
    /// id-kp-serverAuth.
    pub const SERVER_AUTH: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 1];
    /// PKCS #9 extensionRequest: the extensions of a certificate request.
    pub const EXTENSION_REQUEST: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 14];
}

/// GeneralName, RFC 5280 section 4.2.1.6.
pub const DNS_NAME: u8 = tag::implicit(2);
pub const IP_ADDRESS: u8 = tag::implicit(7);

impl Certificate {
    /// Parses one certificate in DER.
    pub fn read(der: &[u8]) -> Result<Self, Malformed> {
        let mut all = Reader::new(der);
        let mut signed = all.inside(tag::SEQUENCE)?;
        if !all.is_empty() {
            return Err(Malformed);
        }
        let mut fields = signed.inside(tag::SEQUENCE)?;
        // Version, serial number, signature algorithm, issuer.
        fields.optional(tag::constructed(0))?;
        fields.content(tag::INTEGER)?;
        fields.content(tag::SEQUENCE)?;
        fields.content(tag::SEQUENCE)?;
        let mut validity = fields.inside(tag::SEQUENCE)?;
        let mut certificate =
            Self { not_before: time(&mut validity)?, not_after: time(&mut validity)?, ..Self::default() };
        certificate.take_subject(fields.inside(tag::SEQUENCE)?)?;
        certificate.public_key = fields.element(tag::SEQUENCE)?.encoding.to_vec();
        // The unique identifiers of old certificates.
        fields.optional(tag::implicit(1))?;
        fields.optional(tag::implicit(2))?;
        if let Some(extensions) = fields.optional(tag::constructed(3))? {
            certificate.take_extensions(Reader::new(extensions).inside(tag::SEQUENCE)?)?;
        }
        Ok(certificate)
    }

    fn take_subject(&mut self, mut names: Reader<'_>) -> Result<(), Malformed> {
        while !names.is_empty() {
            let mut set = names.inside(tag::SET)?;
            while !set.is_empty() {
                let mut attribute = set.inside(tag::SEQUENCE)?;
                let kind = attribute.content(tag::OID)?;
                // One of several string types.
                let value = attribute.any()?;
                let text = || String::from_utf8_lossy(value.content).into_owned();
                match kind {
                    oid::COMMON_NAME => self.common_name = text(),
                    oid::ORGANIZATION => self.organizations.push(text()),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn take_extensions(&mut self, mut extensions: Reader<'_>) -> Result<(), Malformed> {
        while !extensions.is_empty() {
            let mut extension = extensions.inside(tag::SEQUENCE)?;
            let is_names = extension.content(tag::OID)? == oid::SUBJECT_ALT_NAME;
            extension.optional(tag::BOOLEAN)?;
            let value = extension.content(tag::OCTET_STRING)?;
            if is_names {
                self.take_names(Reader::new(value).inside(tag::SEQUENCE)?)?;
            }
        }
        Ok(())
    }

    fn take_names(&mut self, mut names: Reader<'_>) -> Result<(), Malformed> {
        while !names.is_empty() {
            let name = names.any()?;
            match name.tag {
                DNS_NAME => self.dns_names.push(String::from_utf8_lossy(name.content).into_owned()),
                IP_ADDRESS => self.ip_addresses.push(address(name.content).ok_or(Malformed)?),
                _ => {}
            }
        }
        Ok(())
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

/// UTCTime or GeneralizedTime in the only form that RFC 5280 allows: whole seconds, UTC.
fn time(from: &mut Reader<'_>) -> Result<i64, Malformed> {
    let element = from.any()?;
    let digits = element.content.strip_suffix(b"Z").ok_or(Malformed)?;
    let (year, rest) = match element.tag {
        tag::UTC_TIME => {
            let (year, rest) = digits.split_at_checked(2).ok_or(Malformed)?;
            let year = number(year)?;
            // RFC 5280, section 4.1.2.5.1.
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        tag::GENERALIZED_TIME => {
            let (year, rest) = digits.split_at_checked(4).ok_or(Malformed)?;
            (number(year)?, rest)
        }
        _ => return Err(Malformed),
    };
    let mut pairs = rest.chunks_exact(2).map(number);
    let mut next = |most: i64| match pairs.next() {
        Some(Ok(value)) if value <= most => Ok(value),
        _ => Err(Malformed),
    };
    let (month, day, hour, minute, second) = (next(12)?, next(31)?, next(23)?, next(59)?, next(59)?);
    if rest.len() != 10 || month == 0 || day == 0 {
        return Err(Malformed);
    }
    Ok(((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second)
}

fn number(digits: &[u8]) -> Result<i64, Malformed> {
    digits.iter().try_fold(0, |number, digit| match digit {
        b'0'..=b'9' => Ok(number * 10 + i64::from(digit - b'0')),
        _ => Err(Malformed),
    })
}

/// Encodes an RFC 3339 time such as `2026-01-02T03:04:05Z` (RFC 5280, section 4.1.2.5).
pub fn encode_time(rfc3339: &str) -> Vec<u8> {
    let digits: Vec<u8> = rfc3339.bytes().filter(|byte| byte.is_ascii_digit()).chain([b'Z']).collect();
    match digits.get(..2) {
        // UTCTime is used up to 2049.
        Some(b"20") if digits.get(2).is_some_and(|digit| *digit < b'5') => {
            super::der::element(tag::UTC_TIME, &[digits.get(2..).unwrap_or_default()])
        }
        _ => super::der::element(tag::GENERALIZED_TIME, &[&digits]),
    }
}

#[cfg(test)]
mod tests;
