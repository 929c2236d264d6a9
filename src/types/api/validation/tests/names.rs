//! Accepted and rejected names of every name rule.

use crate::types::api::validation::names::*;

#[track_caller]
fn check(holds: fn(&str) -> bool, good: &[&str], bad: &[&str]) {
    for name in good {
        assert!(holds(name), "{name:?} is good");
    }
    for name in bad {
        assert!(!holds(name), "{name:?} is bad");
    }
}

#[test]
fn dns_labels_are_lower_case_letters_digits_and_inner_dashes() {
    let (longest, too_long) = ("a".repeat(63), "a".repeat(64));
    let bad = ["", "-", "-a", "a-", "A", "a.b", "a_b", "ä", "a b", "a\n", &too_long];
    check(is_dns_label, &["a", "0", "a-b", "a--b", "123-abc", &longest], &bad);
}

#[test]
fn dns_subdomains_are_dotted_labels() {
    let (longest, too_long) = ("a".repeat(253), "a".repeat(254));
    let bad = ["", ".", "a.", ".a", "a..b", "a.-b", "A.b", "a_b", "a/b", &too_long];
    check(is_dns_subdomain, &["a", "a.b.c", "0.1", "a-b.c", &longest], &bad);
}

#[test]
fn name_prefix_may_end_in_a_dash() {
    check(is_name_prefix, &["a", "a-", "ab-", "a.b-", "a--"], &["", "-", "A-", ".a-", "ä-", "a_b-"]);
}

#[test]
fn search_domain_may_have_underscores() {
    check(
        is_search_domain,
        &["a", "_tcp.a.example", "a_b.c", "cluster.local"],
        &["", "a.", "__a", "_", "a_", "a._", "A"],
    );
}

#[test]
fn qualified_name_may_have_a_subdomain_prefix() {
    let (longest, too_long) = ("a".repeat(63), "a".repeat(64));
    check(
        is_qualified_name,
        &["a", "A", "a.b", "a_b-C", "example.com/a", "1/2", &longest],
        &["", "/", "/a", "a/", "-a", "a.", "a/b/c", "A.com/a", "a b", &too_long],
    );
    check(is_annotation_key, &["Example.com/A", "a"], &["", "a/b/c", "a b"]);
}

#[test]
fn label_value_may_be_empty() {
    let too_long = "a".repeat(64);
    check(is_label_value, &["", "a", "A.b_c-1"], &["-", "a/b", "a.", "ä", &too_long]);
}

#[test]
fn port_name_has_a_letter_and_no_double_dash() {
    check(
        is_port_name,
        &["http", "a", "1a", "a-1-b", "a23456789012345"],
        &["", "80", "-a", "a-", "a--b", "A", "a_b", "a234567890123456"],
    );
}

#[test]
fn variable_name_is_printable_ascii_without_equals() {
    check(is_variable_name, &["A", "a.b", "1", "..", " ", "my var~"], &["", "=", "a=b", "ä", "a\tb", "a\u{7f}"]);
}

#[test]
fn config_key_does_not_begin_with_two_dots() {
    let too_long = "a".repeat(254);
    check(is_config_key, &["a", ".a", "A_b-c.d", "a..b"], &["", ".", "..", "..a", "a/b", "a b", &too_long]);
}

#[test]
fn uid_is_part_of_a_file_name() {
    let (longest, too_long) = ("a".repeat(200), "a".repeat(201));
    check(
        is_uid,
        &["0f9b53e1-9d2f-4c36-a6c5-2f1d0b6cf0d6", "my_plc", "A.1", "a..b", &longest],
        &["", ".", "..", "a/b", "a b", "a~b", "-a", "a_", "ä", "a\0b", &too_long],
    );
}

#[test]
fn header_name_is_letters_digits_and_dashes() {
    check(is_header_name, &["Host", "X-Header-1"], &["", "X_Y", "a:b", "a b"]);
}

#[test]
fn sysctl_names_use_dots_or_slashes() {
    let too_long = "a".repeat(254);
    check(
        is_sysctl_name,
        &["kernel.shm_rmid_forced", "net/ipv4/conf/eth0.1/forwarding", "a", "net.ipv4.a-b"],
        &["", ".", "a.", "a..b", "_a", "A.b", "net.*", &too_long],
    );
}
