//! The node's addresses, which may change while the agent runs.

use crate::types::sorted::SortOnce;
use core::cell::{Ref, RefCell};
use core::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;

/// Every clone shows the current addresses.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct HostIps {
    /// From `--node-ip`. 0.0.0.0 and :: only select the first family.
    configured: Vec<IpAddr>,
    current: Rc<RefCell<Vec<IpAddr>>>,
}

impl HostIps {
    pub(crate) fn new(configured: &[IpAddr], addresses: &[IpAddr]) -> Self {
        let current = Rc::new(RefCell::new(chosen(configured, addresses)));
        Self { configured: configured.to_vec(), current }
    }

    /// The preferred address first; empty while none is known.
    pub(crate) fn current(&self) -> Ref<'_, Vec<IpAddr>> {
        self.current.borrow()
    }

    /// The address of services that listen on the node's network. Without a network that is localhost.
    pub(crate) fn own_address(&self) -> IpAddr {
        self.current.borrow().first().copied().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    /// The addresses of a pod as clients see them.
    pub(crate) fn of_pod(&self, sandbox_ips: &[IpAddr]) -> Vec<IpAddr> {
        primary_first(&self.current.borrow(), sandbox_ips)
    }

    /// Takes the addresses of the machine; true if this changes something. Without a network the last ones stay.
    pub(crate) fn update(&self, addresses: &[IpAddr]) -> bool {
        let next = chosen(&self.configured, addresses);
        if next.is_empty() || *self.current.borrow() == next {
            return false;
        }
        self.current.replace(next);
        true
    }
}

/// The first address of each family in `sandbox_ips`, the primary family of the node first (kubelet: `sortPodIPs`).
pub(crate) fn primary_first(node: &[IpAddr], sandbox_ips: &[IpAddr]) -> Vec<IpAddr> {
    let first_is_v6 = node.first().is_some_and(IpAddr::is_ipv6);
    let of_family = |v6: bool| sandbox_ips.iter().copied().find(|ip| ip.is_ipv6() == v6);
    [first_is_v6, !first_is_v6].into_iter().filter_map(of_family).collect()
}

/// The configured addresses, else the detected ones.
fn chosen(configured: &[IpAddr], addresses: &[IpAddr]) -> Vec<IpAddr> {
    let mut ips: Vec<IpAddr> = configured.iter().filter(|ip| !ip.is_unspecified()).copied().collect();
    if ips.is_empty() {
        let family = configured.first().is_none_or(IpAddr::is_ipv4);
        ips.extend(addresses);
        ips.sort_once_by_key(|ip| ip.is_ipv4() != family);
    }
    ips
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn unspecified_address_selects_the_first_family() {
        let seen = ips(&["10.0.0.1", "2001:db8::1"]);
        let both = ips(&["2001:db8::1", "10.0.0.1"]);
        assert_eq!(chosen(&[], &seen), seen);
        assert_eq!(chosen(&ips(&["0.0.0.0"]), &seen), seen);
        assert_eq!(chosen(&ips(&["::"]), &seen), both);
        assert_eq!(chosen(&ips(&["10.9.9.9"]), &seen), ips(&["10.9.9.9"]));
    }

    #[test]
    fn pod_has_one_address_of_each_family_in_the_nodes_order() {
        let seen = ips(&["2001:db8::7", "10.1.0.7", "10.1.0.8"]);
        let host = |addresses: &[&str]| HostIps::new(&ips(addresses), &[]);
        assert_eq!(host(&["10.0.0.1", "2001:db8::1"]).of_pod(&seen), ips(&["10.1.0.7", "2001:db8::7"]));
        assert_eq!(host(&["2001:db8::1"]).of_pod(&seen), ips(&["2001:db8::7", "10.1.0.7"]));
        assert_eq!(host(&[]).of_pod(&seen[..1]), ips(&["2001:db8::7"]));
    }

    #[test]
    fn clones_show_a_change_and_the_last_address_outlives_the_network() {
        let host = HostIps::new(&[], &[]);
        let shown = host.clone();
        assert!(host.update(&ips(&["10.0.0.1"])) && !host.update(&ips(&["10.0.0.1"])) && !host.update(&[]));
        assert_eq!(*shown.current(), ips(&["10.0.0.1"]));
        let configured = HostIps::new(&ips(&["10.9.9.9"]), &[]);
        assert!(!configured.update(&ips(&["10.0.0.1"])));
    }
}
