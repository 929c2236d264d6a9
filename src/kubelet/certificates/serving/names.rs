//! The names in a serving certificate: the node's name and addresses. Pure.

use std::net::IpAddr;

use crate::kubelet::certificates::pkcs10::Names;
use crate::types::api::NodeAddress;
use crate::types::sorted::SortedSet;

/// The names that the cluster's signer accepts (`addressesToHostnamesAndIPs`); `None` without an IP address, or with
/// `dns_only` without any name.
pub(super) fn of_addresses(node_name: &str, addresses: &[NodeAddress], dns_only: bool) -> Option<Names> {
    let (mut dns_names, mut ip_addresses) = (SortedSet::new(), SortedSet::new());
    for NodeAddress { kind, address } in addresses.iter().filter(|node_address| !node_address.address.is_empty()) {
        let parsed: Result<IpAddr, _> = address.parse();
        match (&**kind, parsed) {
            ("Hostname" | "InternalDNS" | "ExternalDNS" | "InternalIP" | "ExternalIP", Ok(ip)) => {
                ip_addresses.insert(ip);
            }
            ("Hostname" | "InternalDNS" | "ExternalDNS", Err(_)) => {
                dns_names.insert(address.clone());
            }
            _ => {}
        }
    }
    let names = Names {
        dns_names: dns_names.into_iter().collect(),
        ip_addresses: ip_addresses.into_iter().collect(),
        ..Names::of_node(node_name)
    };
    let suffices = !names.ip_addresses.is_empty() || dns_only && !names.dns_names.is_empty();
    suffices.then_some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(kind: &'static str, address: &str) -> NodeAddress {
        NodeAddress { kind: kind.into(), address: address.to_owned() }
    }

    #[test]
    fn every_address_is_named_once_in_order() {
        let addresses = [
            address("InternalIP", "10.0.0.2"),
            address("ExternalIP", "10.0.0.1"),
            address("Hostname", "board"),
            address("InternalDNS", "board"),
            address("ExternalDNS", "a.example"),
            address("InternalIP", "::1"),
            address("InternalIP", "no address"),
            address("Other", "x"),
            address("Hostname", ""),
        ];
        let names = of_addresses("board", &addresses, false).unwrap();
        assert_eq!(names.dns_names, ["a.example", "board"]);
        let ips: Vec<String> = names.ip_addresses.iter().map(ToString::to_string).collect();
        assert_eq!(ips, ["10.0.0.1", "10.0.0.2", "::1"]);
        assert_eq!(
            (&*names.common_name, &*names.organizations),
            ("system:node:board", &["system:nodes".to_owned()][..])
        );
    }

    #[test]
    fn host_name_that_is_an_address_becomes_an_address() {
        let names = of_addresses("10.0.0.1", &[address("Hostname", "10.0.0.1")], false).unwrap();
        assert!(names.dns_names.is_empty() && names.ip_addresses.len() == 1);
    }

    #[test]
    fn nothing_is_requested_without_an_address() {
        assert_eq!(of_addresses("board", &[], true), None);
        let name = [address("Hostname", "board")];
        assert_eq!(of_addresses("board", &name, false), None);
        assert_eq!(of_addresses("board", &name, true).unwrap().dns_names, ["board"]);
    }
}
