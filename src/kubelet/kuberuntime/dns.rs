//! Resolver configuration of pods. Pure.

use core::net::IpAddr;
use std::mem;

use crate::kubelet::node::NodeSettings;
use crate::platform::cri::v1::DnsConfig;
use crate::types::api::{DnsPolicy, Pod, PodDnsConfig, PodDnsConfigOption, Reason};
use crate::types::sorted::{Seen, SortOnce, SortedMap};

/// Resolver configuration of a pod, and warnings about it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PodDns {
    pub(crate) config: DnsConfig,
    pub(crate) warnings: Vec<DnsWarning>,
    /// Warnings about the node's settings, for node events.
    pub(crate) of_node: Vec<DnsWarning>,
}

/// A warning event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DnsWarning {
    pub(crate) reason: Reason,
    pub(crate) message: String,
}

/// The configuration of `pod`. `host` is the node's resolver file, read again for each sandbox.
pub(crate) fn pod_dns(pod: &Pod, node: &NodeSettings, host: &DnsConfig) -> PodDns {
    let mut warnings = Vec::new();
    let limits = host_limits(node, host).map(|message| (Reason::CHECK_LIMITS_FOR_RESOLV_CONF, message));
    let mut of_node: Vec<DnsWarning> =
        limits.into_iter().map(|(reason, message)| DnsWarning { reason, message }).collect();
    let mut config = match source(pod, node) {
        DnsSource::Pod => DnsConfig::default(),
        DnsSource::Cluster => DnsConfig {
            servers: node.cluster_dns.iter().map(IpAddr::to_string).collect(),
            searches: cluster_searches(&pod.metadata.namespace, &node.cluster_domain, &host.searches),
            options: vec![CLUSTER_OPTION.to_owned()],
        },
        DnsSource::Host { wanted_cluster } => {
            if wanted_cluster && node.has_cluster {
                let meta = &pod.metadata;
                let message = format!("pod: \"{}_{}({})\". {NO_CLUSTER_DNS}", meta.name, meta.namespace, meta.uid);
                let reason = Reason::MISSING_CLUSTER_DNS;
                of_node.push(DnsWarning { reason: reason.clone(), message: NO_CLUSTER_DNS.to_owned() });
                warnings.push(DnsWarning { reason, message });
            }
            host_settings(node, host)
        }
    };
    if let Some(dns_config) = &pod.spec.dns_config {
        add_own(&mut config, dns_config);
    }
    keep_limits(&mut config, &mut warnings);
    PodDns { config, warnings, of_node }
}

/// The warning if the node's resolver file, together with the cluster's entries, exceeds a limit of pods (kubelet:
/// `CheckLimitsForResolvConf`).
fn host_limits(node: &NodeSettings, host: &DnsConfig) -> Option<String> {
    let path = node.resolv_conf.as_ref()?.display();
    let most = MAX_SEARCH_DOMAINS - if node.cluster_domain.is_empty() { 0 } else { CLUSTER_SEARCH_DOMAINS };
    if host.searches.len() > most {
        return Some(format!("Resolv.conf file '{path}' contains search line consisting of more than {most} domains!"));
    }
    if host.searches.iter().any(|search| search.len() > MAX_DNS_NAME_BYTES) {
        return Some(format!(
            "Resolv.conf file '{path}' contains a search path which length is more than allowed {MAX_DNS_NAME_BYTES} chars!"
        ));
    }
    let length = host.searches.join(" ").len();
    (length > MAX_SEARCH_CHARS).then(|| {
        format!(
            "Resolv.conf file '{path}' contains search line which length is more than allowed {MAX_SEARCH_CHARS} chars!"
        )
    })
}

/// Whether the configuration of `pod` depends on the node's resolver file.
pub(crate) fn needs_host_dns(pod: &Pod, node: &NodeSettings) -> bool {
    node.resolv_conf.is_some() && source(pod, node) != DnsSource::Pod
}

/// What the configuration is based on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DnsSource {
    Cluster,
    Host {
        /// The pod wants cluster DNS, but the node has no cluster DNS server configured.
        wanted_cluster: bool,
    },
    /// The pod's own settings only.
    Pod,
}

fn source(pod: &Pod, node: &NodeSettings) -> DnsSource {
    match pod.spec.dns_policy {
        DnsPolicy::None => DnsSource::Pod,
        DnsPolicy::Default => DnsSource::Host { wanted_cluster: false },
        // Host-network pods do not use cluster DNS with this policy.
        DnsPolicy::ClusterFirst if pod.spec.host_network => DnsSource::Host { wanted_cluster: false },
        DnsPolicy::ClusterFirst | DnsPolicy::ClusterFirstWithHostNet if node.cluster_dns.is_empty() => {
            DnsSource::Host { wanted_cluster: true }
        }
        DnsPolicy::ClusterFirst | DnsPolicy::ClusterFirstWithHostNet => DnsSource::Cluster,
    }
}

fn cluster_searches(namespace: &str, domain: &str, host: &[String]) -> Vec<String> {
    let mut searches = Vec::new();
    if !domain.is_empty() {
        searches.extend([[namespace, ".svc.", domain].concat(), ["svc.", domain].concat(), domain.to_owned()]);
    }
    add_new(&mut searches, host);
    searches
}

/// Without a resolver file for pods, a name server on localhost is assumed.
fn host_settings(node: &NodeSettings, host: &DnsConfig) -> DnsConfig {
    if node.resolv_conf.is_some() {
        return host.clone();
    }
    let local = |ip: &IpAddr| if ip.is_ipv6() { "::1" } else { "127.0.0.1" };
    let mut servers: Vec<String> = node.node_ips.current().iter().map(|ip| local(ip).to_owned()).collect();
    if servers.is_empty() {
        servers.push("127.0.0.1".to_owned());
    }
    DnsConfig { servers, searches: vec![".".to_owned()], options: Vec::new() }
}

fn add_own(config: &mut DnsConfig, pod_config: &PodDnsConfig) {
    add_new(&mut config.servers, &pod_config.nameservers);
    add_new(&mut config.searches, &pod_config.searches);
    let text = |option: &PodDnsConfigOption| match option.value.as_deref() {
        None | Some("") => option.name.clone(),
        Some(value) => [&option.name, ":", value].concat(),
    };
    set_options(&mut config.options, pod_config.options.iter().map(text));
}

fn add_new(list: &mut Vec<String>, more: &[String]) {
    let mut present = Seen::default();
    for item in list.iter() {
        present.insert(item.as_str());
    }
    let new: Vec<String> = more.iter().filter(|item| present.insert(item)).cloned().collect();
    list.extend(new);
}

/// Adds options; one with the name of another replaces that in place.
fn set_options(options: &mut Vec<String>, more: impl IntoIterator<Item = String>) {
    let node_options = options.len();
    options.extend(more);
    let name = |option: &str| option.split(':').next().unwrap_or_default().to_owned();
    // Of two options with one name in the file, the first is replaced.
    let places: SortedMap<String, usize> =
        options.iter().enumerate().rev().map(|(index, option)| (name(option), index)).collect();
    let mut slots: Vec<Option<String>> = mem::take(options).into_iter().map(Some).collect();
    for index in node_options..slots.len() {
        let option = slots.get_mut(index).and_then(Option::take);
        let replaced = option.as_deref().and_then(|option| places.get(&name(option))).copied();
        if let Some(slot) = slots.get_mut(replaced.unwrap_or(index)) {
            *slot = option;
        }
    }
    options.extend(slots.into_iter().flatten());
}

/// Drops entries beyond the resolver's limits, with a warning.
fn keep_limits(config: &mut DnsConfig, warnings: &mut Vec<DnsWarning>) {
    if config.servers.len() > MAX_RESOLVER_SERVERS {
        config.servers.truncate(MAX_RESOLVER_SERVERS);
        warnings.push(left_out("Nameserver", "nameservers", "nameserver", &config.servers));
    }
    let wanted_count = config.searches.len();
    config.searches.truncate(MAX_SEARCH_DOMAINS);
    // Some resolvers abort on a longer name.
    config.searches.retain(|search| search.len() <= MAX_DNS_NAME_BYTES);
    let mut room = MAX_SEARCH_CHARS + 1;
    let fitting = config.searches.iter().take_while(|search| {
        let rest = room.checked_sub(search.len() + 1);
        room = rest.unwrap_or(0);
        rest.is_some()
    });
    let fitting = fitting.count();
    config.searches.truncate(fitting);
    if config.searches.len() < wanted_count {
        warnings.push(left_out("Search Line", "search paths", "search", &config.searches));
    }
}

fn left_out(limit: &str, items: &str, line: &str, applied: &[String]) -> DnsWarning {
    let applied = applied.join(" ");
    let message =
        format!("{limit} limits were exceeded, some {items} have been omitted, the applied {line} line is: {applied}");
    DnsWarning { reason: Reason::DNS_CONFIG_FORMING, message }
}

const NO_CLUSTER_DNS: &str = "kubelet does not have ClusterDNS IP configured and cannot create Pod using \
     \"ClusterFirst\" policy. Falling back to \"Default\" policy.";

/// Parses a `resolv.conf`. Name servers accumulate, the last search line wins, options replace each other.
pub(crate) fn parse_resolv_conf(text: &str) -> DnsConfig {
    let mut config = DnsConfig::default();
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => config.servers.extend(words.next().map(str::to_owned)),
            Some("search") => config.searches = words.map(without_last_dot).collect(),
            Some("options") => set_options(&mut config.options, words.map(str::to_owned)),
            _ => {}
        }
    }
    config.options.sort_once();
    config
}

/// A trailing dot does not matter, except for the root domain.
fn without_last_dot(search: &str) -> String {
    let name = if search == "." { search } else { search.strip_suffix('.').unwrap_or(search) };
    name.to_owned()
}

/// Cluster names have up to four dots.
const CLUSTER_OPTION: &str = "ndots:5";
/// The resolver's `MAXNS`.
const MAX_RESOLVER_SERVERS: usize = 3;
/// `MaxDNSSearchPaths` of the API: more than the six of old resolvers, which ignore the rest.
const MAX_SEARCH_DOMAINS: usize = 32;
/// Search paths added for the cluster.
const CLUSTER_SEARCH_DOMAINS: usize = 3;
/// `MaxDNSSearchListChars`.
const MAX_SEARCH_CHARS: usize = 2048;
const MAX_DNS_NAME_BYTES: usize = 253;

#[cfg(test)]
mod tests;
