//! Encodes certification requests (PKCS #10, RFC 2986) and self-signed certificates as DER.

use std::net::IpAddr;

use ring::rand::{SecureRandom, SystemRandom};

use super::key::{Key, KeyError, POD_KEY_TYPES};
use crate::protocol::der::{bit_string, element, sequence, tag};
use crate::protocol::x509::{Certificate, DNS_NAME, IP_ADDRESS, encode_time, oid};
use crate::types::api::Time;

/// The subject and alternative names of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) common_name: String,
    pub(crate) organizations: Vec<String>,
    pub(crate) dns_names: Vec<String>,
    pub(crate) ip_addresses: Vec<IpAddr>,
}

impl Names {
    /// The names of a node as an API user.
    pub(crate) fn of_node(node_name: &str) -> Self {
        Self {
            common_name: format!("system:node:{node_name}"),
            organizations: vec!["system:nodes".to_owned()],
            ..Self::default()
        }
    }

    /// Whether `certificate` has all of these names. It may have more.
    pub(crate) fn are_in(&self, certificate: &Certificate) -> bool {
        self.common_name == certificate.common_name
            && self.organizations.iter().all(|name| certificate.organizations.contains(name))
            && self.dns_names.iter().all(|name| certificate.dns_names.contains(name))
            && self.ip_addresses.iter().all(|address| certificate.ip_addresses.contains(address))
    }

    /// The subject as a Name (RFC 5280, section 4.1.2.4); organizations first, as Go writes them.
    fn subject(&self) -> Vec<u8> {
        let organizations: Vec<Vec<u8>> =
            self.organizations.iter().map(|name| attribute(oid::ORGANIZATION, name)).collect();
        let organizations: Vec<&[u8]> = organizations.iter().map(Vec::as_slice).collect();
        let organizations = match organizations.as_slice() {
            [] => Vec::new(),
            some => element(tag::SET, some),
        };
        let common_name = match &*self.common_name {
            "" => Vec::new(),
            name => element(tag::SET, &[&attribute(oid::COMMON_NAME, name)]),
        };
        sequence(&[&organizations, &common_name])
    }

    /// The subjectAltName extension; empty without alternative names.
    fn alternatives(&self) -> Vec<u8> {
        let mut names = Vec::new();
        for name in &self.dns_names {
            names.extend(element(DNS_NAME, &[name.as_bytes()]));
        }
        for address in &self.ip_addresses {
            names.extend(match address {
                IpAddr::V4(address) => element(IP_ADDRESS, &[&address.octets()]),
                IpAddr::V6(address) => element(IP_ADDRESS, &[&address.octets()]),
            });
        }
        if names.is_empty() { names } else { extension(oid::SUBJECT_ALT_NAME, &sequence(&[&names])) }
    }
}

fn attribute(kind: &[u8], value: &str) -> Vec<u8> {
    sequence(&[&element(tag::OID, &[kind]), &element(tag::UTF8_STRING, &[value.as_bytes()])])
}

fn extension(kind: &[u8], value: &[u8]) -> Vec<u8> {
    sequence(&[&element(tag::OID, &[kind]), &element(tag::OCTET_STRING, &[value])])
}

/// A request for these names, signed with its own key.
pub(crate) fn certification_request(key: &Key, names: &Names) -> Result<Vec<u8>, KeyError> {
    let alternatives = names.alternatives();
    let attributes = match alternatives.as_slice() {
        [] => Vec::new(),
        extension => {
            let extensions = element(tag::SET, &[&sequence(&[extension])]);
            sequence(&[&element(tag::OID, &[oid::EXTENSION_REQUEST]), &extensions])
        }
    };
    let version = element(tag::INTEGER, &[&[0]]);
    let attributes = element(tag::constructed(0), &[&attributes]);
    signed(key, &sequence(&[&version, &names.subject(), &key.public_key()?, &attributes]))
}

/// A new key for a pod, in PEM, and an empty request that proves its possession. `kind`: the API's `keyType`.
pub(crate) fn pod_key(kind: &str) -> Result<(String, Vec<u8>), String> {
    let made = Key::of_type(kind)
        .and_then(|key| Ok((key.to_pem().to_owned(), certification_request(&key, &Names::default())?)));
    made.map_err(|error| match error {
        KeyError::Unknown => {
            format!("Coracle makes no keys of the type {kind:?}: {} are supported", POD_KEY_TYPES.join(", "))
        }
        error => error.to_string(),
    })
}

/// A self-signed server certificate.
pub(crate) fn self_signed(key: &Key, names: &Names, from: Time, until: Time) -> Result<Vec<u8>, KeyError> {
    let mut serial = [0; 16];
    SystemRandom::new().fill(&mut serial).map_err(|_| KeyError::NoRandomness)?;
    // The serial number must be positive and have no redundant leading byte.
    if let Some(first) = serial.first_mut() {
        *first = *first & 0x3f | 0x40;
    }
    let version = element(tag::constructed(0), &[&element(tag::INTEGER, &[&[2]])]);
    let algorithm = sequence(&[key.algorithm()?]);
    let validity = sequence(&[&encode_time(&from.to_string()), &encode_time(&until.to_string())]);
    let subject = names.subject();
    // Bit 0: digitalSignature.
    let usage = extension(oid::KEY_USAGE, &element(tag::BIT_STRING, &[&[7, 0x80]]));
    let purpose = sequence(&[&element(tag::OID, &[oid::SERVER_AUTH])]);
    let purpose = extension(oid::EXTENDED_KEY_USAGE, &purpose);
    let extensions = sequence(&[&usage, &purpose, &names.alternatives()]);
    let body = sequence(&[
        &version,
        &element(tag::INTEGER, &[&serial]),
        &algorithm,
        &subject,
        &validity,
        &subject,
        &key.public_key()?,
        &element(tag::constructed(3), &[&extensions]),
    ]);
    signed(key, &body)
}

/// `body` with its signature: the outer structure of requests and certificates.
fn signed(key: &Key, body: &[u8]) -> Result<Vec<u8>, KeyError> {
    Ok(sequence(&[body, &sequence(&[key.algorithm()?]), &bit_string(&key.sign(body)?)]))
}

#[cfg(test)]
mod tests;
