//! Pod IPs and host IPs. Pure.

use std::net::IpAddr;

use crate::state::pods::{SandboxState, primary_first};
use crate::types::api::{Ip, PodStatus};

use super::StatusInput;

/// The first address of each family, the node's primary family first.
///
/// A terminated pod keeps its addresses. A host-network pod has the node's addresses, also without an API server.
pub(super) fn pod_ips(input: &StatusInput<'_>, previous: &PodStatus) -> Vec<Ip> {
    let newest = input.observed.newest_sandbox();
    let ready = newest.filter(|sandbox| sandbox.state == SandboxState::Ready);
    let seen = ready.map_or(&[][..], |sandbox| &sandbox.ips);
    if seen.is_empty() && ready.is_none() && !previous.pod_ips.is_empty() {
        return previous.pod_ips.clone();
    }
    let node = input.host_ips;
    let mut ips = primary_first(node, seen);
    if input.pod.spec.host_network {
        if ips.is_empty() {
            ips.extend(node.first());
        }
        if let ([only], Some(second)) = (ips.as_slice(), node.get(1)) {
            if only.is_ipv6() != second.is_ipv6() {
                ips.push(*second);
            }
        }
    }
    ips.into_iter().map(in_words).collect()
}

/// A node has one address, or one of each family.
pub(super) fn host_ips(host_ips: &[IpAddr]) -> Vec<Ip> {
    host_ips.iter().take(2).copied().map(in_words).collect()
}

fn in_words(ip: IpAddr) -> Ip {
    Ip { ip: ip.to_string() }
}
