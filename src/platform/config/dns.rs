//! The sources of the pods' resolver settings. Pure.

use core::net::IpAddr;
use std::path::PathBuf;

use serde_json::Value;

use super::fields::Fields;

/// DNS of pods: `clusterDNS`, `clusterDomain` and `resolvConf`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DnsSettings {
    pub(crate) cluster_dns: Vec<IpAddr>,
    pub(crate) cluster_domain: String,
    /// `None`: pods inherit no resolver settings from the host.
    pub(crate) resolv_conf: Option<PathBuf>,
}

impl Default for DnsSettings {
    fn default() -> Self {
        Self {
            cluster_dns: Vec::new(),
            cluster_domain: String::new(),
            resolv_conf: Some(PathBuf::from("/etc/resolv.conf")),
        }
    }
}

pub(super) fn read(fields: &Fields<'_>) -> DnsSettings {
    let mut dns = DnsSettings {
        cluster_domain: fields.text("clusterDomain").unwrap_or_default().to_owned(),
        ..DnsSettings::default()
    };
    dns.cluster_dns = cluster_dns(fields).filter_map(|(_, address)| address).collect();
    if let Some(Value::String(path)) = fields.at("resolvConf") {
        dns.resolv_conf = (!path.is_empty()).then(|| PathBuf::from(path));
    }
    dns
}

/// What is wrong in `clusterDNS`. As upstream, the other servers count.
pub(super) fn warnings(fields: &Fields<'_>) -> Vec<String> {
    let wrong = cluster_dns(fields).filter(|(_, address)| address.is_none());
    wrong.map(|(text, _)| format!("clusterDNS: expected an IP address, found {text:?}, which is ignored")).collect()
}

fn cluster_dns<'a>(fields: &Fields<'a>) -> impl Iterator<Item = (&'a str, Option<IpAddr>)> {
    let servers = fields.at("clusterDNS").and_then(Value::as_array);
    servers.into_iter().flatten().filter_map(Value::as_str).map(|text| (text, address(text)))
}

/// Numbers of IPv4 addresses may have leading zeros, as in Go's former parser.
fn address(text: &str) -> Option<IpAddr> {
    let without_zeros = |number: &str| match number.trim_start_matches('0') {
        "" if !number.is_empty() => "0".to_owned(),
        number => number.to_owned(),
    };
    let numbers: Vec<String> = text.split('.').map(without_zeros).collect();
    text.parse().ok().or_else(|| numbers.join(".").parse().ok())
}
