use super::super::golden;
use super::*;
use crate::state::pods::HostIps;
use crate::types::api::PodDnsConfigOption;

fn pod(policy: DnsPolicy) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.name = "web".to_owned();
    pod.metadata.namespace = "boats".to_owned();
    pod.metadata.uid = "u1".into();
    pod.spec.dns_policy = policy;
    pod
}

fn strings(items: &[&str]) -> Vec<String> {
    items.iter().map(|item| (*item).to_owned()).collect()
}

fn host() -> DnsConfig {
    DnsConfig { servers: strings(&["9.9.9.9"]), searches: strings(&["lan"]), options: strings(&["edns0"]) }
}

#[track_caller]
fn check(pod: &Pod, node: &NodeSettings, servers: &[&str], searches: &[&str], options: &[&str]) {
    let dns = pod_dns(pod, node, &host());
    assert_eq!(dns.config.servers, strings(servers));
    assert_eq!(dns.config.searches, strings(searches));
    assert_eq!(dns.config.options, strings(options));
}

const CLUSTER: [&str; 4] = ["boats.svc.cluster.local", "svc.cluster.local", "cluster.local", "lan"];

#[test]
fn each_policy_has_its_base_settings() {
    let node = golden::node();
    check(&pod(DnsPolicy::Default), &node, &["9.9.9.9"], &["lan"], &["edns0"]);
    check(&pod(DnsPolicy::ClusterFirst), &node, &["10.96.0.10"], &CLUSTER, &["ndots:5"]);
    check(&pod(DnsPolicy::None), &node, &[], &[], &[]);
    let mut on_host = pod(DnsPolicy::ClusterFirst);
    on_host.spec.host_network = true;
    check(&on_host, &node, &["9.9.9.9"], &["lan"], &["edns0"]);
    on_host.spec.dns_policy = DnsPolicy::ClusterFirstWithHostNet;
    check(&on_host, &node, &["10.96.0.10"], &CLUSTER, &["ndots:5"]);
}

#[test]
fn missing_cluster_dns_falls_back_to_the_host_with_a_warning() {
    let node = NodeSettings { cluster_dns: Vec::new(), ..golden::node() };
    check(&pod(DnsPolicy::ClusterFirst), &node, &["9.9.9.9"], &["lan"], &["edns0"]);
    let warnings = pod_dns(&pod(DnsPolicy::ClusterFirst), &node, &host()).warnings;
    assert_eq!(warnings.len(), 1);
    assert_eq!(warnings[0].reason, Reason::MISSING_CLUSTER_DNS);
    assert!(warnings[0].message.starts_with("pod: \"web_boats(u1)\". kubelet does not have"), "{warnings:?}");
    let of_node = pod_dns(&pod(DnsPolicy::ClusterFirst), &node, &host()).of_node;
    assert_eq!((of_node.len(), &of_node[0].reason), (1, &Reason::MISSING_CLUSTER_DNS));
    assert!(of_node[0].message.starts_with("kubelet does not have ClusterDNS IP configured"), "{of_node:?}");
    let other = pod_dns(&pod(DnsPolicy::Default), &node, &host());
    assert_eq!((other.warnings, other.of_node), (vec![], vec![]));
}

#[test]
fn standalone_node_does_not_warn_of_missing_cluster_dns() {
    let node = NodeSettings { cluster_dns: Vec::new(), has_cluster: false, ..golden::node() };
    check(&pod(DnsPolicy::ClusterFirst), &node, &["9.9.9.9"], &["lan"], &["edns0"]);
    assert_eq!(pod_dns(&pod(DnsPolicy::ClusterFirst), &node, &host()).warnings, []);
}

#[test]
fn node_without_resolver_file_uses_localhost() {
    let node = NodeSettings { resolv_conf: None, ..golden::node() };
    check(&pod(DnsPolicy::Default), &node, &["127.0.0.1"], &["."], &[]);
    let ips = vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()];
    let dual = NodeSettings { node_ips: HostIps::new(&ips, &[]), ..node.clone() };
    check(&pod(DnsPolicy::Default), &dual, &["127.0.0.1", "::1"], &["."], &[]);
    assert!(!needs_host_dns(&pod(DnsPolicy::Default), &node));
    assert!(!needs_host_dns(&pod(DnsPolicy::None), &golden::node()));
    assert!(needs_host_dns(&pod(DnsPolicy::ClusterFirst), &golden::node()));
}

#[test]
fn later_option_takes_the_place_of_the_first_with_its_name() {
    for (own, more, expected) in [
        (&["a:1", "b"][..], &["c", "a:2", "c:3", "d"][..], &["a:2", "b", "c:3", "d"][..]),
        (&["a:1", "a:2"], &["a:3"], &["a:3", "a:2"]),
        (&[], &["a", "a:1", "a"], &["a"]),
        (&["a"], &[], &["a"]),
    ] {
        let mut options = strings(own);
        set_options(&mut options, strings(more));
        assert_eq!(options, strings(expected));
    }
}

#[test]
fn pod_dns_config_is_added_and_replaces_options() {
    let option =
        |name: &str, value: Option<&str>| PodDnsConfigOption { name: name.to_owned(), value: value.map(str::to_owned) };
    let mut pod = pod(DnsPolicy::ClusterFirst);
    pod.spec.dns_config = Some(Box::new(PodDnsConfig {
        nameservers: strings(&["10.96.0.10", "1.1.1.1"]),
        searches: strings(&["lan", "example"]),
        options: vec![option("ndots", Some("2")), option("edns0", None)],
    }));
    let searches = [&CLUSTER[..], &["example"]].concat();
    check(&pod, &golden::node(), &["10.96.0.10", "1.1.1.1"], &searches, &["ndots:2", "edns0"]);
}

#[test]
fn entries_beyond_the_limits_are_dropped_with_a_warning() {
    let mut config = DnsConfig { servers: strings(&["1", "2", "3", "4"]), ..DnsConfig::default() };
    let mut warnings = Vec::new();
    keep_limits(&mut config, &mut warnings);
    assert_eq!(config.servers, strings(&["1", "2", "3"]));
    let message = "Nameserver limits were exceeded, some nameservers have been omitted, \
                   the applied nameserver line is: 1 2 3";
    let reason = Reason::DNS_CONFIG_FORMING;
    assert_eq!(warnings, [DnsWarning { reason, message: message.to_owned() }]);
}

#[track_caller]
fn check_searches(searches: Vec<String>, kept: usize) {
    let warned = kept < searches.len();
    let mut config = DnsConfig { searches, ..DnsConfig::default() };
    let mut warnings = Vec::new();
    keep_limits(&mut config, &mut warnings);
    assert_eq!((config.searches.len(), warnings.len()), (kept, usize::from(warned)));
}

#[test]
fn search_paths_are_limited_in_number_and_length() {
    check_searches(vec!["a".to_owned(); 32], 32);
    check_searches(vec!["a".to_owned(); 33], 32);
    check_searches(vec!["a".repeat(253)], 1);
    check_searches(vec!["a".repeat(254)], 0);
    // Eight paths of 253 characters with separators have 2031; 17 more with a separator reach the limit.
    let eight = vec!["a".repeat(253); 8];
    check_searches([eight.clone(), vec!["b".repeat(16)]].concat(), 9);
    check_searches([eight, vec!["b".repeat(17)]].concat(), 8);
}

#[test]
fn resolv_conf_is_parsed_like_the_resolver_does() {
    let text = "# comment\n nameserver 1.1.1.1 \nnameserver\nnameserver\t::1 extra\nsearch old\n\
                search example. lan .\noptions ndots:2 edns0\noptions ndots:3\nsortlist x\n";
    let config = parse_resolv_conf(text);
    assert_eq!(config.servers, strings(&["1.1.1.1", "::1"]));
    assert_eq!(config.searches, strings(&["example", "lan", "."]));
    assert_eq!(config.options, strings(&["edns0", "ndots:3"]));
    assert_eq!(parse_resolv_conf(""), DnsConfig::default());
}

#[test]
fn resolver_file_beyond_the_limits_is_reported() {
    let told = |searches: Vec<String>, cluster_domain: &str| {
        let node = NodeSettings { cluster_domain: cluster_domain.to_owned(), ..golden::node() };
        let mut told = pod_dns(&Pod::default(), &node, &DnsConfig { searches, ..DnsConfig::default() }).of_node;
        assert!(told.iter().all(|warning| warning.reason == Reason::CHECK_LIMITS_FOR_RESOLV_CONF));
        told.pop().map(|warning| warning.message)
    };
    let many = |count: usize| (0..count).map(|n| format!("s{n}.example")).collect::<Vec<_>>();
    assert_eq!(told(many(29), "cluster.local"), None);
    let message = "Resolv.conf file '/etc/resolv.conf' contains search line consisting of more than 29 domains!";
    assert_eq!(told(many(30), "cluster.local").as_deref(), Some(message));
    assert_eq!(told(many(32), ""), None);
    assert!(told(vec!["x".repeat(254)], "").unwrap().contains("more than allowed 253"));
    assert!(told(vec!["x".repeat(250); 9], "").unwrap().contains("more than allowed 2048 chars!"));
}
