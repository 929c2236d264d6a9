//! The state of network interfaces, and changes of interfaces and addresses.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use nix::sys::socket::{AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket};

use super::file::read_head;
use crate::platform::rt;

/// Whether the interface is up, with a carrier as far as its driver knows: modems often do not report one.
pub(crate) fn is_up(name: &str) -> bool {
    let read = |file: &str| {
        let bytes = read_head(&Path::new("/sys/class/net").join(name).join(file), 32).unwrap_or_default();
        String::from_utf8_lossy(&bytes).trim().to_owned()
    };
    let flags = read("flags");
    let flags = flags.strip_prefix("0x").and_then(|digits| u32::from_str_radix(digits, 16).ok()).unwrap_or_default();
    flags & INTERFACE_UP_FLAG != 0 && matches!(&*read("operstate"), "up" | "unknown")
}

/// `IFF_UP`.
const INTERFACE_UP_FLAG: u32 = 1;

/// Events from the kernel: something has changed.
pub(crate) struct LinkEvents {
    /// `None` if netlink is not available.
    socket: Option<rt::Async<OwnedFd>>,
}

/// `RTMGRP_LINK`.
const LINK_GROUPS: u32 = 1;
/// `RTMGRP_IPV4_IFADDR`, `RTMGRP_IPV4_ROUTE`, `RTMGRP_IPV6_IFADDR`, `RTMGRP_IPV6_ROUTE`: the address of the default
/// route changes with each of them.
const ADDRESS_GROUPS: u32 = 0x10 | 0x40 | 0x100 | 0x400;
/// Polling interval without netlink.
const LINK_POLL_INTERVAL: Duration = Duration::from_secs(10);

impl LinkEvents {
    /// Changes of interfaces.
    pub(crate) fn of_links() -> Self {
        let socket =
            listen(LINK_GROUPS).inspect_err(|error| log!(debug, "failed to watch network interfaces", error = error));
        Self { socket: socket.ok() }
    }

    /// Changes of addresses and routes; `None` if netlink is not available.
    pub(crate) fn of_addresses() -> Option<Self> {
        let socket =
            listen(ADDRESS_GROUPS).inspect_err(|error| log!(debug, "failed to watch addresses", error = error));
        Some(Self { socket: Some(socket.ok()?) })
    }

    /// Returns when something may have changed.
    pub(crate) async fn next(&self) {
        let Some(socket) = &self.socket else { return rt::sleep(LINK_POLL_INTERVAL).await };
        if socket.readable().await.is_err() {
            return rt::sleep(LINK_POLL_INTERVAL).await;
        }
        self.discard();
    }

    /// Drops the queued messages. The state is read elsewhere, so their content, even of lost ones, does not matter.
    pub(crate) fn discard(&self) {
        let Some(socket) = &self.socket else { return };
        let mut buffer = [0; 4096];
        while recv(std::os::fd::AsRawFd::as_raw_fd(socket.get_ref()), &mut buffer, MsgFlags::MSG_DONTWAIT).is_ok() {}
    }
}

fn listen(groups: u32) -> io::Result<rt::Async<OwnedFd>> {
    #[cfg(test)]
    if rt::world().is_some() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute)?;
    bind(std::os::fd::AsRawFd::as_raw_fd(&socket), &NetlinkAddr::new(0, groups))?;
    rt::Async::new(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_interface_is_not_up() {
        assert!(!is_up("no-such-link") && !is_up("..") && !is_up(""));
        assert_eq!(is_up("lo"), std::fs::read_to_string("/sys/class/net/lo/flags").unwrap().trim() == "0x9");
    }

    #[test]
    fn waiting_for_link_events_does_not_fail() {
        rt::block_on(async {
            let news = LinkEvents::of_links();
            assert!(news.socket.is_some());
            // Another test may change an interface meanwhile; the wait only must not fail.
            let _ = rt::deadline(Duration::from_millis(20), news.next()).await;
        });
    }
}
