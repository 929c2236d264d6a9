//! The state of network interfaces, and its changes.

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
    flags & UP != 0 && matches!(&*read("operstate"), "up" | "unknown")
}

/// `IFF_UP`.
const UP: u32 = 1;

/// Link change events from the kernel.
pub(crate) struct LinkEvents {
    /// `None` if netlink is not available.
    socket: Option<rt::Async<OwnedFd>>,
}

/// `RTMGRP_LINK`.
const LINKS: u32 = 1;
/// Polling interval without netlink.
const LOOK: Duration = Duration::from_secs(10);

impl LinkEvents {
    pub(crate) fn new() -> Self {
        let socket = listen().inspect_err(|error| log!(debug, "failed to watch network interfaces", error = error));
        Self { socket: socket.ok() }
    }

    /// Returns when an interface may have changed.
    pub(crate) async fn next(&self) {
        let Some(socket) = &self.socket else { return rt::sleep(LOOK).await };
        if socket.readable().await.is_err() {
            return rt::sleep(LOOK).await;
        }
        // The state is read from sysfs, so the content of the messages, even of lost ones, does not matter.
        let mut buffer = [0; 4096];
        while recv(std::os::fd::AsRawFd::as_raw_fd(socket.get_ref()), &mut buffer, MsgFlags::MSG_DONTWAIT).is_ok() {}
    }
}

fn listen() -> io::Result<rt::Async<OwnedFd>> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute)?;
    bind(std::os::fd::AsRawFd::as_raw_fd(&socket), &NetlinkAddr::new(0, LINKS))?;
    rt::Async::new(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_interface_is_not_up() {
        assert!(!is_up("no-such-link") && !is_up("..") && !is_up(""));
        assert_eq!(is_up("lo"), std::fs::read_to_string("/sys/class/net/lo/flags").unwrap().trim() == "0x9");
    }

    #[test]
    fn waiting_for_link_events_does_not_fail() {
        rt::block_on(async {
            let news = LinkEvents::new();
            assert!(news.socket.is_some());
            // Another test may change an interface meanwhile; the wait only must not fail.
            let _ = rt::deadline(Duration::from_millis(20), news.next()).await;
        });
    }
}
