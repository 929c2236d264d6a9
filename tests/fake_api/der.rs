//! The subset of DER that certificates and CSRs need. Pure.

use std::net::IpAddr;

/// The subject of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Subject {
    pub common_name: Option<String>,
    pub organizations: Vec<String>,
}

/// A parsed CSR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CertificateRequest {
    pub subject: Subject,
    pub dns_names: Vec<String>,
    pub addresses: Vec<IpAddr>,
    /// The content of the key's AlgorithmIdentifier.
    pub key_algorithm: Vec<u8>,
    /// The content of the key's bit string.
    pub key: Vec<u8>,
    /// The signed bytes, the algorithm and the signature.
    pub signed: Vec<u8>,
    pub signature_algorithm: Vec<u8>,
    pub signature: Vec<u8>,
}

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const CONTEXT_0: u8 = 0xa0;

const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];
const EXTENSION_REQUEST: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x0e];
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];

/// A sequence of elements.
#[derive(Clone, Copy, Debug)]
struct Elements<'a>(&'a [u8]);

#[derive(Clone, Copy, Debug)]
struct Element<'a> {
    tag: u8,
    content: &'a [u8],
    /// The element with its tag and length.
    whole: &'a [u8],
}

impl<'a> Iterator for Elements<'a> {
    type Item = Element<'a>;

    fn next(&mut self) -> Option<Element<'a>> {
        let all = self.0;
        let (&tag, rest) = all.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = if first < 0x80 {
            (usize::from(first), rest)
        } else {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (bytes.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some(Element { tag, content, whole: &all[..all.len() - rest.len()] })
    }
}

impl<'a> Elements<'a> {
    fn expect(&mut self, tag: u8) -> Option<Element<'a>> {
        self.next().filter(|element| element.tag == tag)
    }
}

impl<'a> Element<'a> {
    fn elements(self) -> Elements<'a> {
        Elements(self.content)
    }
}

pub(crate) fn certificate_subject(certificate: &[u8]) -> Option<Subject> {
    let certificate = Elements(certificate).expect(SEQUENCE)?;
    let mut fields = certificate.elements().expect(SEQUENCE)?.elements().filter(|field| field.tag != CONTEXT_0);
    // Serial number, algorithm, issuer and validity precede it.
    Some(subject(fields.nth(4)?))
}

pub(crate) fn certificate_request(der: &[u8]) -> Option<CertificateRequest> {
    let mut outer = Elements(der).expect(SEQUENCE)?.elements();
    let info = outer.expect(SEQUENCE)?;
    let mut fields = info.elements();
    let _version = fields.next()?;
    let subject = subject(fields.expect(SEQUENCE)?);
    let mut key = fields.expect(SEQUENCE)?.elements();
    let key_algorithm = key.expect(SEQUENCE)?.content.to_vec();
    let key = bits(key.expect(BIT_STRING)?)?;
    let extensions = fields.expect(CONTEXT_0).and_then(requested_extensions);
    let names = extensions.and_then(alternative_names).unwrap_or(Elements(&[]));
    let text = |element: Element<'_>| String::from_utf8_lossy(element.content).into_owned();
    Some(CertificateRequest {
        subject,
        dns_names: names.filter(|name| name.tag == 0x82).map(text).collect(),
        addresses: names.filter(|name| name.tag == 0x87).filter_map(|name| address(name.content)).collect(),
        key_algorithm,
        key,
        signed: info.whole.to_vec(),
        signature_algorithm: outer.expect(SEQUENCE)?.content.to_vec(),
        signature: bits(outer.expect(BIT_STRING)?)?,
    })
}

fn subject(name: Element<'_>) -> Subject {
    let mut subject = Subject::default();
    for attribute in name.elements().filter(|set| set.tag == SET).flat_map(Element::elements) {
        let mut parts = attribute.elements();
        let (Some(kind), Some(value)) = (parts.next(), parts.next()) else { continue };
        let value = String::from_utf8_lossy(value.content).into_owned();
        match kind.content {
            COMMON_NAME => subject.common_name = Some(value),
            ORGANIZATION => subject.organizations.push(value),
            _ => {}
        }
    }
    subject
}

fn bits(element: Element<'_>) -> Option<Vec<u8>> {
    // The first byte is the number of unused bits.
    element.content.split_first().map(|(_, bits)| bits.to_vec())
}

/// The extensions among the attributes of a request.
fn requested_extensions(attributes: Element<'_>) -> Option<Elements<'_>> {
    let mut attributes = attributes.elements().map(Element::elements);
    let mut found = attributes
        .find_map(|mut parts| (parts.expect(OBJECT_IDENTIFIER)?.content == EXTENSION_REQUEST).then_some(parts))?;
    Some(found.expect(SET)?.elements().expect(SEQUENCE)?.elements())
}

fn alternative_names(mut extensions: Elements<'_>) -> Option<Elements<'_>> {
    let value = extensions.find_map(|extension| {
        let mut parts = extension.elements();
        let is_it = parts.expect(OBJECT_IDENTIFIER)?.content == SUBJECT_ALT_NAME;
        // A boolean for criticality may precede the value.
        parts.find(|part| part.tag == OCTET_STRING).filter(|_| is_it)
    })?;
    Some(value.elements().expect(SEQUENCE)?.elements())
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from).ok();
    four.or_else(|| <[u8; 16]>::try_from(bytes).map(IpAddr::from).ok())
}
