//! Host port conflicts. Pure.
//!
//! `HostPortInfo` in pkg/scheduler/framework.

use crate::types::api::{Pod, Protocol};
use crate::types::sorted::SortOnce;

/// A host port of `pod` that one of `other_pods` uses, such as `TCP port 80 is used by default/web`.
pub(super) fn conflict(pod: &Pod, other_pods: &[&Pod]) -> Option<String> {
    let mut wanted: Vec<HostPort<'_>> = host_ports(pod).collect();
    if wanted.is_empty() {
        return None;
    }
    wanted.sort_once_by_key(HostPort::key);
    let is_wanted = |taken: &HostPort<'_>| {
        let of = |ip| wanted.binary_search_by_key(&HostPort { ip, ..*taken }.key(), HostPort::key).is_ok();
        // With all addresses taken, any address of the same port conflicts.
        let first = wanted.partition_point(|port| (port.protocol, port.port) < (taken.protocol, taken.port));
        let has_port =
            || wanted.get(first).is_some_and(|port| (port.protocol, port.port) == (taken.protocol, taken.port));
        of(ALL_HOST_ADDRESSES) || if taken.ip == ALL_HOST_ADDRESSES { has_port() } else { of(taken.ip) }
    };
    other_pods.iter().find_map(|other| {
        let HostPort { protocol, port, .. } = host_ports(other).find(is_wanted)?;
        Some(format!("{protocol} port {port} is used by {}/{}", other.metadata.namespace, other.metadata.name))
    })
}

#[derive(Clone, Copy, Debug)]
struct HostPort<'a> {
    ip: &'a str,
    protocol: Protocol,
    port: i32,
}

/// All addresses of the host.
const ALL_HOST_ADDRESSES: &str = "0.0.0.0";

/// Only sidecars among the init containers count: the others end before the pod runs.
fn host_ports(pod: &Pod) -> impl Iterator<Item = HostPort<'_>> {
    let sidecars = pod.spec.init_containers.iter().filter(|container| container.is_sidecar());
    let ports = pod.spec.containers.iter().chain(sidecars).flat_map(|container| &container.ports);
    ports.filter(|port| port.host_port > 0).map(|port| HostPort {
        ip: if port.host_ip.is_empty() { ALL_HOST_ADDRESSES } else { &port.host_ip },
        protocol: port.protocol,
        port: port.host_port,
    })
}

impl<'a> HostPort<'a> {
    fn key(&self) -> (Protocol, i32, &'a str) {
        (self.protocol, self.port, self.ip)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::api::{Container, ContainerPort, RestartPolicy};

    fn container(ip: &str, protocol: Protocol, port: i32) -> Container {
        let port = ContainerPort { host_port: port, protocol, host_ip: ip.to_owned(), ..ContainerPort::default() };
        Container { ports: vec![port], ..Container::default() }
    }

    fn pod(ip: &str, protocol: Protocol, port: i32) -> Pod {
        let mut pod = Pod::default();
        pod.spec.containers = vec![container(ip, protocol, port)];
        pod
    }

    #[test]
    fn port_conflicts_by_protocol_and_address() {
        use Protocol::{Sctp, Tcp, Udp};
        for (one, other, expected) in [
            (("", Tcp, 80), ("", Tcp, 80), true),
            (("", Tcp, 80), ("", Tcp, 81), false),
            (("", Tcp, 80), ("", Udp, 80), false),
            (("", Sctp, 80), ("0.0.0.0", Sctp, 80), true),
            (("127.0.0.1", Tcp, 80), ("", Tcp, 80), true),
            (("127.0.0.1", Tcp, 80), ("127.0.0.1", Tcp, 80), true),
            (("127.0.0.1", Tcp, 80), ("127.0.0.2", Tcp, 80), false),
            (("", Tcp, 0), ("", Tcp, 0), false),
        ] {
            let [one, other] = [one, other].map(|(ip, protocol, port)| pod(ip, protocol, port));
            assert_eq!(conflict(&one, &[&other]).is_some(), expected, "{:?}", one.spec.containers);
            assert_eq!(conflict(&other, &[&Pod::default(), &one]).is_some(), expected, "{:?}", one.spec.containers);
        }
        assert_eq!(conflict(&pod("", Tcp, 80), &[]), None);
    }

    #[test]
    fn conflict_names_port_and_holder() {
        let mut holder = pod("", Protocol::Udp, 53);
        (holder.metadata.namespace, holder.metadata.name) = ("default".to_owned(), "dns".to_owned());
        let why = conflict(&pod("", Protocol::Udp, 53), &[&holder]);
        assert_eq!(why.as_deref(), Some("UDP port 53 is used by default/dns"));
    }

    #[test]
    fn only_sidecars_among_init_containers_hold_ports() {
        let mut init = Pod::default();
        init.spec.init_containers = vec![container("", Protocol::Tcp, 80)];
        let main = pod("", Protocol::Tcp, 80);
        assert_eq!(conflict(&main, &[&init]), None);
        init.spec.init_containers[0].restart_policy = Some(RestartPolicy::Always);
        assert!(conflict(&main, &[&init]).is_some());
    }
}
