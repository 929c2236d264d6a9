//! Follows the addresses of the machine: a node may start before its network, and its addresses may change.

use std::rc::Rc;
use std::time::Duration;

use async_channel::Sender;

use super::{NodeInfo, StatusInputs};
use crate::platform::host::link_state::LinkEvents;
use crate::platform::rt;
use crate::state::pods::{HostIps, SyncEvent};

/// Delay after a change, because several usually come together: an address, its route, those of the other family.
const ADDRESS_SETTLE_DELAY: Duration = Duration::from_millis(500);

pub(crate) struct AddressWatch {
    pub(crate) host_ips: HostIps,
    pub(crate) status_inputs: Rc<StatusInputs>,
    pub(crate) inbox: Sender<SyncEvent>,
}

impl AddressWatch {
    /// Returns without netlink: the node then keeps the addresses found at its start.
    pub(crate) async fn run(self) {
        let Some(events) = LinkEvents::of_addresses() else { return };
        loop {
            // Detects changes between the start and the first event.
            if !self.on_addresses(&NodeInfo::read_addresses()).await {
                return;
            }
            events.next().await;
            rt::sleep(ADDRESS_SETTLE_DELAY).await;
            events.discard();
        }
    }

    /// False if the sync loop has ended.
    async fn on_addresses(&self, addresses: &[std::net::IpAddr]) -> bool {
        if !self.host_ips.update(addresses) {
            return true;
        }
        let shown: Vec<String> = self.host_ips.current().iter().map(ToString::to_string).collect();
        log!(info, "node addresses changed", addresses = shown.join(","));
        self.status_inputs.changed.notify();
        self.inbox.send(SyncEvent::AddressesChanged).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_address_is_reported_once() {
        rt::block_on(async {
            let (inbox, events) = async_channel::bounded(4);
            let watch = AddressWatch { host_ips: HostIps::new(&[], &[]), status_inputs: Rc::default(), inbox };
            let before = watch.status_inputs.changed.changes();
            for seen in [&[][..], &["10.0.0.1".parse().unwrap()], &["10.0.0.1".parse().unwrap()], &[]] {
                assert!(watch.on_addresses(seen).await);
            }
            assert_eq!((events.len(), watch.status_inputs.changed.changes() - before), (1, 1));
            assert_eq!(*watch.host_ips.current(), ["10.0.0.1".parse::<std::net::IpAddr>().unwrap()]);
        });
    }
}
