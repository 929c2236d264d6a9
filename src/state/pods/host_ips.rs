//! The node's addresses, which may change while the agent runs.

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

/// The configured addresses, else the detected ones.
fn chosen(configured: &[IpAddr], addresses: &[IpAddr]) -> Vec<IpAddr> {
    let mut ips: Vec<IpAddr> = configured.iter().filter(|ip| !ip.is_unspecified()).copied().collect();
    if ips.is_empty() {
        let family = configured.first().is_none_or(IpAddr::is_ipv4);
        ips.extend(addresses);
        ips.sort_by_key(|ip| ip.is_ipv4() != family);
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
    fn clones_show_a_change_and_the_last_address_outlives_the_network() {
        let host = HostIps::new(&[], &[]);
        let shown = host.clone();
        assert!(host.update(&ips(&["10.0.0.1"])) && !host.update(&ips(&["10.0.0.1"])) && !host.update(&[]));
        assert_eq!(*shown.current(), ips(&["10.0.0.1"]));
        let configured = HostIps::new(&ips(&["10.9.9.9"]), &[]);
        assert!(!configured.update(&ips(&["10.0.0.1"])));
    }
}
