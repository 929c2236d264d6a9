//! Validates host names and DNS settings of a pod. Pure.

use core::net::IpAddr;

use super::faults::Faults;
use super::names::{DNS_LABEL, DNS_SUBDOMAIN, SEARCH_DOMAIN};
use crate::types::api::decode::Path;
use crate::types::api::{DnsPolicy, PodDnsConfig, PodSpec};

/// Limits of the C library's resolver.
const MAX_NAMESERVERS: usize = 3;
const MAX_SEARCH_PATHS: usize = 32;
const MAX_SEARCH_PATH_CHARS: usize = 2048;
/// The kernel's limit (`HOST_NAME_MAX`).
const MAX_HOST_NAME_BYTES: usize = 64;

pub(super) fn check(spec: &PodSpec, path: &Path<'_>, faults: &mut Faults) {
    check_host_name(spec, path, faults);
    if spec.dns_policy == DnsPolicy::None {
        let servers = spec.dns_config.as_ref().is_some_and(|config| !config.nameservers.is_empty());
        if !servers {
            let path = path.key("dnsConfig");
            faults.required_as(&path.key("nameservers"), "at least one when dnsPolicy is \"None\"");
        }
    }
    if let Some(config) = &spec.dns_config {
        check_config(config, &path.key("dnsConfig"), faults);
    }
    for (index, alias) in spec.host_aliases.iter().enumerate() {
        let aliases = path.key("hostAliases");
        let path = aliases.index(index);
        check_ip(&alias.ip, &path.key("ip"), faults);
        for (index, hostname) in alias.hostnames.iter().enumerate() {
            faults.name(&path.key("hostnames").index(index), hostname, &DNS_SUBDOMAIN);
        }
    }
}

fn check_host_name(spec: &PodSpec, path: &Path<'_>, faults: &mut Faults) {
    faults.optional_name(&path.key("hostname"), &spec.hostname, &DNS_LABEL);
    faults.optional_name(&path.key("subdomain"), &spec.subdomain, &DNS_LABEL);
    let Some(name) = &spec.hostname_override else { return };
    let path = path.key("hostnameOverride");
    if name.len() > MAX_HOST_NAME_BYTES {
        faults.invalid(&path, name, format_args!("must be at most {MAX_HOST_NAME_BYTES} characters"));
    } else {
        faults.name(&path, name, &DNS_SUBDOMAIN);
    }
    if spec.set_hostname_as_fqdn == Some(true) {
        faults.forbidden(&path, "when setHostnameAsFQDN is true");
    }
    if spec.host_network {
        faults.forbidden(&path, "when hostNetwork is true");
    }
}

fn check_config(config: &PodDnsConfig, path: &Path<'_>, faults: &mut Faults) {
    let count = config.nameservers.len();
    if count > MAX_NAMESERVERS {
        faults.other(&path.key("nameservers"), format_args!("{count} nameservers: must be at most {MAX_NAMESERVERS}"));
    }
    for (index, server) in config.nameservers.iter().enumerate() {
        check_ip(server, &path.key("nameservers").index(index), faults);
    }
    let searches = path.key("searches");
    let count = config.searches.len();
    if count > MAX_SEARCH_PATHS {
        faults.other(&searches, format_args!("{count} search paths: must be at most {MAX_SEARCH_PATHS}"));
    }
    // With a space between search paths.
    let length = config.searches.iter().map(String::len).sum::<usize>() + count.saturating_sub(1);
    if length > MAX_SEARCH_PATH_CHARS {
        faults.other(&searches, format_args!("{length} characters: must be at most {MAX_SEARCH_PATH_CHARS} in all"));
    }
    for (index, search) in config.searches.iter().enumerate().filter(|(_, search)| *search != ".") {
        let domain = search.strip_suffix('.').unwrap_or(search);
        faults.name(&searches.index(index), domain, &SEARCH_DOMAIN);
    }
    for (index, _) in config.options.iter().enumerate().filter(|(_, option)| option.name.is_empty()) {
        faults.required(&path.key("options").index(index).key("name"));
    }
}

fn check_ip(ip: &str, path: &Path<'_>, faults: &mut Faults) {
    if ip.parse::<IpAddr>().is_err() {
        faults.invalid(path, ip, "must be an IP address such as 10.9.8.7 or 2001:db8::ffff");
    }
}
