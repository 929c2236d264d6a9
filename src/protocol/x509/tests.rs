use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::*;
use crate::protocol::der::element;

fn der(pem: &[u8]) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem).unwrap()
}

const CA: &[u8] = include_bytes!("../../../tests/data/certificates/ca.crt");
const LEAF: &[u8] = include_bytes!("../../../tests/data/certificates/leaf.crt");

#[test]
fn certificates_have_subject_and_validity() {
    let leaf = Certificate::read(&der(LEAF)).unwrap();
    assert_eq!(leaf.common_name, "system:node:board-1");
    assert_eq!(leaf.organizations, ["system:nodes", "more"]);
    assert_eq!(leaf.dns_names, ["board-1"]);
    assert_eq!(leaf.ip_addresses, ["10.0.0.7".parse::<IpAddr>().unwrap(), "fd00::7".parse().unwrap()]);
    assert_eq!((leaf.not_before, leaf.not_after), (1_767_323_045, 253_402_300_799));
    let ca = Certificate::read(&der(CA)).unwrap();
    assert_eq!((ca.common_name.as_str(), ca.not_before, ca.not_after), ("kubernetes", 86_400, 2_524_607_999));
    assert!(ca.organizations.is_empty() && ca.dns_names.is_empty());
}

#[test]
fn truncated_and_extended_certificates_are_refused() {
    let whole = der(LEAF);
    for end in 0..whole.len() {
        assert!(Certificate::read(&whole[..end]).is_err(), "{end}");
    }
    assert!(Certificate::read(&[&whole[..], &[0]].concat()).is_err());
}

#[test]
fn damaged_certificates_never_panic() {
    let whole = der(LEAF);
    for at in 0..whole.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut changed = whole.to_vec();
            changed[at] = value;
            let _ = Certificate::read(&changed);
        }
    }
}

#[track_caller]
fn check_time(kind: u8, text: &str, seconds: Result<i64, Malformed>) {
    let bytes = element(kind, &[text.as_bytes()]);
    assert_eq!(time(&mut Reader::new(&bytes)), seconds, "{text}");
}

#[test]
fn both_time_formats_are_parsed() {
    check_time(tag::UTC_TIME, "700101000000Z", Ok(0));
    check_time(tag::UTC_TIME, "500301000000Z", Ok(-626_054_400));
    check_time(tag::UTC_TIME, "491231235959Z", Ok(2_524_607_999));
    check_time(tag::GENERALIZED_TIME, "20000229000000Z", Ok(951_782_400));
    check_time(tag::GENERALIZED_TIME, "99991231235959Z", Ok(253_402_300_799));
    for text in ["20000229000000", "20001329000000Z", "200002290000Z", "2000022900000xZ", "2000022900000000Z", "Z", ""]
    {
        check_time(tag::GENERALIZED_TIME, text, Err(Malformed));
    }
    check_time(tag::UTF8_STRING, "20000229000000Z", Err(Malformed));
}

#[test]
fn time_format_depends_on_the_year() {
    for (text, form, written) in [
        ("2049-12-31T23:59:59Z", tag::UTC_TIME, "491231235959Z"),
        ("2050-01-01T00:00:00Z", tag::GENERALIZED_TIME, "20500101000000Z"),
        ("1970-01-01T00:00:00Z", tag::GENERALIZED_TIME, "19700101000000Z"),
    ] {
        assert_eq!(encode_time(text), element(form, &[written.as_bytes()]), "{text}");
    }
}
