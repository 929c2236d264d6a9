use std::sync::Arc;
use std::time::Duration;

use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, RootCertStore};

use super::*;
use crate::protocol::der::Reader;

fn names() -> Names {
    Names {
        dns_names: vec!["board-1".to_owned()],
        ip_addresses: vec!["10.0.0.7".parse().unwrap(), "fd00::7".parse().unwrap()],
        ..Names::of_node("board-1")
    }
}

/// The signed body, if the signature is valid.
fn verified(key: &Key, der: &[u8]) -> Vec<u8> {
    let mut parts = Reader::new(der).inside(tag::SEQUENCE).unwrap();
    let body = parts.element(tag::SEQUENCE).unwrap();
    parts.content(tag::SEQUENCE).unwrap();
    let signature = &parts.content(tag::BIT_STRING).unwrap()[1..];
    let spki = key.public_key().unwrap();
    let mut spki = Reader::new(&spki).inside(tag::SEQUENCE).unwrap();
    spki.content(tag::SEQUENCE).unwrap();
    let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &spki.content(tag::BIT_STRING).unwrap()[1..]);
    public.verify(body.encoding, signature).unwrap();
    body.content.to_vec()
}

#[test]
fn request_is_signed_with_its_own_key_and_has_its_names() {
    let key = Key::generate().unwrap();
    for names in [names(), Names::of_node("board-1")] {
        let body = verified(&key, &certification_request(&key, &names).unwrap());
        let mut fields = Reader::new(&body);
        assert_eq!(fields.content(tag::INTEGER), Ok(&[0][..]));
        assert_eq!(fields.element(tag::SEQUENCE).unwrap().encoding, names.subject());
        assert_eq!(fields.element(tag::SEQUENCE).unwrap().encoding, key.public_key().unwrap());
        let attributes = fields.content(tag::constructed(0)).unwrap();
        assert_eq!(attributes.is_empty(), names.dns_names.is_empty());
        assert!(fields.is_empty());
    }
}

#[test]
fn subject_matches_another_programs_encoding() {
    let leaf =
        crate::protocol::pem::certificates(include_bytes!("../../../../tests/data/certificates/leaf.crt")).unwrap();
    let subject = Names::of_node("board-1").subject();
    // The other program writes each organization as a set of its own.
    let common_name = &subject[subject.len() - 30..];
    assert!(leaf[0].windows(common_name.len()).any(|window| window == common_name));
}

#[test]
fn self_signed_certificate_is_valid_for_its_names_and_time() {
    let key = Key::generate().unwrap();
    let (from, until) = (1_800_000_000, 2_600_000_000);
    let time = |seconds: i64| Time::from_unix_nanos(seconds * 1_000_000_000);
    let der = self_signed(&key, &names(), time(from), time(until)).unwrap();
    verified(&key, &der);
    let read = Certificate::read(&der).unwrap();
    assert!(names().are_in(&read));
    assert_eq!((read.not_before, read.not_after), (from, until));
    assert_eq!(read.public_key, key.public_key().unwrap());

    let der = CertificateDer::from(der);
    let mut roots = RootCertStore::empty();
    roots.add(der.clone()).unwrap();
    let provider = Arc::new(default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
    let check = |name: &'static str, at: i64| {
        let at = UnixTime::since_unix_epoch(Duration::from_secs(at.try_into().unwrap()));
        verifier.verify_server_cert(&der, &[], &ServerName::try_from(name).unwrap(), &[], at).map(drop)
    };
    for name in ["board-1", "10.0.0.7", "fd00::7"] {
        assert_eq!(check(name, from), Ok(()), "{name}");
    }
    assert!(check("board-2", from).is_err());
    assert!(matches!(
        check("board-1", until + 1),
        Err(rustls::Error::InvalidCertificate(CertificateError::ExpiredContext { .. } | CertificateError::Expired))
    ));
}

#[test]
fn names_match_only_certificates_that_have_them_all() {
    let key = Key::generate().unwrap();
    let time = Time::from_unix_nanos(0);
    let has = Certificate::read(&self_signed(&key, &names(), time, time).unwrap()).unwrap();
    assert!(Names::of_node("board-1").are_in(&has));
    assert!(!Names::of_node("board-2").are_in(&has));
    let other_address = Names { ip_addresses: vec!["10.0.0.8".parse().unwrap()], ..names() };
    let other_name = Names { dns_names: vec!["board".to_owned()], ..names() };
    let other_group = Names { organizations: vec!["system:masters".to_owned()], ..names() };
    for names in [other_address, other_name, other_group] {
        assert!(!names.are_in(&has), "{names:?}");
    }
}
