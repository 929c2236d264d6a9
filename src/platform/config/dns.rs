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
    if let Some(Value::Array(servers)) = fields.at("clusterDNS") {
        dns.cluster_dns = servers.iter().filter_map(|server| server.as_str()?.parse().ok()).collect();
    }
    if let Some(Value::String(path)) = fields.at("resolvConf") {
        dns.resolv_conf = (!path.is_empty()).then(|| PathBuf::from(path));
    }
    dns
}
