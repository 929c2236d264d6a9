//! Host names, name servers, hosts files.

use super::*;

#[test]
fn host_names_are_dns_labels() {
    passes_spec(json!({"hostname": "little", "subdomain": "boat", "setHostnameAsFQDN": true}));
    check_spec(json!({"hostname": "a.b"}), &[format!("spec.hostname: \"a.b\": {DNS_LABEL}")]);
    check_spec(json!({"subdomain": "B"}), &[format!("spec.subdomain: \"B\": {DNS_LABEL}")]);
}

#[test]
fn hostname_override_is_short_and_excludes_other_settings() {
    passes_spec(json!({"hostnameOverride": "a.b.example"}));
    let long = "a".repeat(65);
    check_spec(
        json!({"hostnameOverride": long}),
        &[format!("spec.hostnameOverride: \"{long}\": must be at most 64 characters")],
    );
    check_spec(
        json!({"hostnameOverride": "A", "setHostnameAsFQDN": true, "hostNetwork": true}),
        &[
            format!("spec.hostnameOverride: \"A\": {DNS_SUBDOMAIN}"),
            "spec.hostnameOverride: must not be set when setHostnameAsFQDN is true".to_owned(),
            "spec.hostnameOverride: must not be set when hostNetwork is true".to_owned(),
        ],
    );
}

#[test]
fn dns_policy_none_needs_a_nameserver() {
    passes_spec(json!({"dnsPolicy": "None", "dnsConfig": {"nameservers": ["10.0.0.1"]}}));
    passes_spec(json!({"dnsPolicy": "Default", "dnsConfig": {}}));
    let wanted = ["spec.dnsConfig.nameservers: required: at least one when dnsPolicy is \"None\""];
    check_spec(json!({"dnsPolicy": "None"}), &wanted);
    check_spec(json!({"dnsPolicy": "None", "dnsConfig": {"searches": ["a"]}}), &wanted);
}

#[test]
fn dns_config_is_bounded() {
    passes_spec(json!({"dnsConfig": {
        "nameservers": ["10.0.0.1", "fe80::1", "::1"],
        "searches": ["a.example", "_srv.b_c.example.", "."],
        "options": [{"name": "ndots", "value": "2"}],
    }}));
    check_spec(
        json!({"dnsConfig": {"nameservers": ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"]}}),
        &["spec.dnsConfig.nameservers: 4 nameservers: must be at most 3"],
    );
    check_spec(
        json!({"dnsConfig": {"nameservers": ["10.0.0.256", "010.0.0.1"]}}),
        &["10.0.0.256", "010.0.0.1"].iter().enumerate().map(|(index, ip)| format!(
            "spec.dnsConfig.nameservers[{index}]: \"{ip}\": must be an IP address such as 10.9.8.7 or 2001:db8::ffff"
        )).collect::<Vec<_>>(),
    );
    passes_spec(json!({"dnsConfig": {"searches": vec!["a"; 32]}}));
    check_spec(
        json!({"dnsConfig": {"searches": vec!["a"; 33]}}),
        &["spec.dnsConfig.searches: 33 search paths: must be at most 32"],
    );
    let long = ["a".repeat(63), "b".repeat(63)].join(".");
    let most: Vec<&str> = vec![&long; 15];
    passes_spec(json!({"dnsConfig": {"searches": most}}));
    let more: Vec<&str> = vec![&long; 16];
    passes_spec(json!({"dnsConfig": {"searches": more}}));
    let many: Vec<&str> = vec![&long; 17];
    check_spec(
        json!({"dnsConfig": {"searches": many}}),
        &["spec.dnsConfig.searches: 2175 characters: must be at most 2048 in all"],
    );
    check_spec(
        json!({"dnsConfig": {"searches": ["A"], "options": [{"value": "1"}]}}),
        &[
            "spec.dnsConfig.searches[0]: \"A\": must be a domain: at most 253 lower case letters, digits, '-', '_' or \
             '.', every part beginning (but for one '_') and ending with a letter or digit",
            "spec.dnsConfig.options[0].name: required",
        ],
    );
}

#[test]
fn host_aliases_are_addresses_and_domains() {
    passes_spec(json!({"hostAliases": [{"ip": "127.0.0.9", "hostnames": ["one", "two.example"]}, {"ip": "::1"}]}));
    check_spec(
        json!({"hostAliases": [{"hostnames": ["a b\n"]}]}),
        &[
            "spec.hostAliases[0].ip: \"\": must be an IP address such as 10.9.8.7 or 2001:db8::ffff".to_owned(),
            format!("spec.hostAliases[0].hostnames[0]: \"a b\\n\": {DNS_SUBDOMAIN}"),
        ],
    );
}
