//! The files about network interfaces and routes. Pure.

use procfs::net::{InterfaceDeviceStatus, RouteEntries};

use super::rows;

/// Traffic of one interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) received: Counts,
    pub(crate) sent: Counts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) bytes: u64,
    pub(crate) packets: u64,
    pub(crate) errors: u64,
    pub(crate) dropped: u64,
}

impl Interface {
    /// The two head lines of the table parse as no interface.
    pub(super) fn parse_all(net_dev: &[u8]) -> Vec<Self> {
        let tables = rows::<InterfaceDeviceStatus>(b"\n\n", net_dev);
        let interface = |device: procfs::net::DeviceStatus| Self {
            received: Counts {
                bytes: device.recv_bytes,
                packets: device.recv_packets,
                errors: device.recv_errs,
                dropped: device.recv_drop,
            },
            sent: Counts {
                bytes: device.sent_bytes,
                packets: device.sent_packets,
                errors: device.sent_errs,
                dropped: device.sent_drop,
            },
            name: device.name,
        };
        tables.flat_map(|table| table.0.into_values()).map(interface).collect()
    }
}

pub(super) fn default_interface(route: &[u8]) -> Option<String> {
    let routes = rows::<RouteEntries>(b"\n", route).flat_map(|table| table.0);
    let defaults = routes
        .filter(|route| route.destination.is_unspecified() && route.mask.is_unspecified() && is_up(route.flags.into()));
    defaults.min_by_key(|route| route.metrics).map(|route| route.iface)
}

/// A parser of our own: the crate does not read this file. The kernel's own "no route" entries are on `lo`.
pub(super) fn default_ipv6_interface(route: &str) -> Option<String> {
    let defaults = route.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [to, "00", _, _, _, metric, _, _, flags, name] = fields.as_slice() else { return None };
        let any = to.bytes().all(|digit| digit == b'0') && *name != "lo";
        let flags = u32::from_str_radix(flags, 16).ok()?;
        Some((any && is_up(flags), u32::from_str_radix(metric, 16).ok()?, *name))
    });
    defaults.filter(|(up, ..)| *up).min_by_key(|(_, metric, _)| *metric).map(|(.., name)| name.to_owned())
}

/// `RTF_UP` of a route's flags.
fn is_up(flags: u32) -> bool {
    flags & 1 != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_in_the_order_of_the_table() {
        let text = b"Inter-|   Receive                                                |  Transmit\n \
            face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    \
            lo:     100       1    0    0    0     0          0         0      100       1    0    0    0     0       0          0\n  \
            eth0: 1223017083   32842    1    2    0     0          0         0  1938356   24223    3    4    0     0       0          0\n  \
            bad: 1 2\n  odd: x 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0\n\
            veth12:  1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0 17\n";
        let all = Interface::parse_all(text);
        let [lo, eth0, veth] = all.as_slice() else { panic!("{all:?}") };
        assert_eq!((lo.name.as_str(), veth.name.as_str()), ("lo", "veth12"));
        assert_eq!(eth0.name, "eth0");
        assert_eq!(eth0.received, Counts { bytes: 1_223_017_083, packets: 32_842, errors: 1, dropped: 2 });
        assert_eq!(eth0.sent, Counts { bytes: 1_938_356, packets: 24_223, errors: 3, dropped: 4 });
    }

    #[test]
    fn of_several_default_routes_the_one_with_the_lowest_metric_counts() {
        let route = b"Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n\
                     wlan0\t00000000\t0102000A\t0003\t0\t0\t600\t00000000\t0\t0\t0\n\
                     eth0\t00000000\t0102000A\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
                     eth1\t00000000\t0102000A\t0002\t0\t0\t1\t00000000\t0\t0\t0\n\
                     odd0\t00000000\t0102000A\n\
                     eth0\t0002000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
        assert_eq!(default_interface(route).as_deref(), Some("eth0"));
        assert_eq!(default_interface(b""), None);
    }

    #[test]
    fn kernels_refusal_of_ipv6_is_no_default_route() {
        let zero = "0".repeat(32);
        let refusal = format!("{zero} 00 {zero} 00 {zero} ffffffff 00000001 00000000 00200200       lo\n");
        assert_eq!(default_ipv6_interface(&refusal), None);
        let route = format!("{zero} 00 {zero} 00 {} 00000400 00000002 00000000 00000003 wan\n", "f".repeat(32));
        assert_eq!(default_ipv6_interface(&(refusal + &route)).as_deref(), Some("wan"));
    }
}
