//! What this node knows better than the last answers of the server: addresses and readiness of its pods and of itself.
//! Pure.

use crate::types::api::NodeAddress;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct OwnNode {
    pub(crate) name: String,
    /// `pods` has all pods that may run: another one does not.
    pub(crate) is_complete: bool,
    /// The first one of a name counts.
    pub(crate) pods: Vec<OwnPod>,
    /// Empty: the server's.
    pub(crate) addresses: Vec<NodeAddress>,
    /// Status, reason and message of the condition `Ready`.
    pub(crate) ready: [String; 3],
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OwnPod {
    /// As [`key_of`](super::object_set::key_of) has it. A mirror pod has another uid than its static pod.
    pub(crate) name: String,
    /// `None`: it may run, and the node knows no more of it yet.
    pub(crate) state: Option<OwnPodState>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OwnPodState {
    /// None if it has ended: the pod is in no EndpointSlice.
    pub(crate) addresses: Vec<String>,
    pub(crate) is_ready: bool,
    pub(crate) is_terminating: bool,
}

/// The kinds with such fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnKind {
    EndpointSlice,
    Node,
}

/// An endpoint of a pod, as the server sent it.
#[derive(Debug)]
pub(super) struct Endpoint<'a> {
    pub(super) pod: &'a str,
    pub(super) node: &'a str,
    pub(super) address: &'a str,
    /// `ready`, `serving`, `terminating`
    pub(super) conditions: [Option<bool>; 3],
}

/// What becomes of an endpoint of this node.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EndpointChange<'a> {
    /// It is as the server says, or the node does not know better.
    Same,
    Gone,
    Changed {
        address: &'a str,
        /// `ready`, `serving`, `terminating`
        conditions: [bool; 3],
    },
}

/// An object about this node.
pub(super) struct CorrectedObject {
    pub(super) object: Vec<u8>,
    /// Whether more than its version differs from what the server says.
    pub(super) is_changed: bool,
}

impl OwnKind {
    pub(super) fn of(kind: &str, api_version: &str) -> Option<Self> {
        [Self::EndpointSlice, Self::Node].into_iter().find(|own_kind| own_kind.names() == [kind, api_version])
    }

    /// Kind and API version.
    pub(super) fn names(self) -> [&'static str; 2] {
        match self {
            Self::EndpointSlice => ["EndpointSlice", "discovery.k8s.io/v1"],
            Self::Node => ["Node", "v1"],
        }
    }
}

impl OwnNode {
    /// `None` if the endpoint is not of this node.
    pub(super) fn endpoint(&self, endpoint: &Endpoint<'_>, address_type: &str) -> Option<EndpointChange<'_>> {
        let is_of_type = |address: &&String| address.contains(':') == (address_type == "IPv6");
        if endpoint.node != self.name || !matches!(address_type, "IPv4" | "IPv6") {
            return None;
        }
        let Some(pod) = self.pods.iter().find(|pod| pod.name == endpoint.pod) else {
            return Some(if self.is_complete { EndpointChange::Gone } else { EndpointChange::Same });
        };
        let Some(state) = &pod.state else { return Some(EndpointChange::Same) };
        // Upstream's controller leaves out pods without addresses too.
        let Some(address) = state.addresses.iter().find(is_of_type) else { return Some(EndpointChange::Gone) };
        let (effective_conditions, publishes_unready) = effective(endpoint.conditions);
        let ready = state.is_ready && !state.is_terminating || publishes_unready;
        let conditions = [ready, state.is_ready, state.is_terminating];
        Some(match endpoint.address == address && effective_conditions == conditions {
            true => EndpointChange::Same,
            false => EndpointChange::Changed { address, conditions },
        })
    }
}

/// The conditions with the defaults for absent ones, and whether the Service has `publishNotReadyAddresses`: only that
/// makes an endpoint ready that does not serve or terminates.
fn effective([ready, serving, terminating]: [Option<bool>; 3]) -> ([bool; 3], bool) {
    let ready = ready.unwrap_or(true);
    let (serving, terminating) = (serving.unwrap_or(ready), terminating.unwrap_or(false));
    ([ready, serving, terminating], ready && (!serving || terminating))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, addresses: &[&str], is_ready: bool, is_terminating: bool) -> OwnPod {
        let addresses = addresses.iter().map(ToString::to_string).collect();
        OwnPod { name: name.to_owned(), state: Some(OwnPodState { addresses, is_ready, is_terminating }) }
    }

    fn own() -> OwnNode {
        let pods = vec![
            pod("ns/up", &["10.0.0.1", "fd00::1"], true, false),
            pod("ns/ending", &["10.0.0.2"], true, true),
            pod("ns/starting", &[], false, false),
            pod("ns/unready", &["10.0.0.4"], false, false),
            OwnPod { name: "ns/new".to_owned(), state: None },
        ];
        OwnNode { name: "n".to_owned(), is_complete: true, pods, ..OwnNode::default() }
    }

    fn endpoint<'a>(pod: &'a str, node: &'a str) -> Endpoint<'a> {
        Endpoint { pod, node, address: "10.0.0.9", conditions: [None; 3] }
    }

    #[track_caller]
    fn check(pod: &str, node: &str, address_type: &str, expected: Option<EndpointChange<'_>>) {
        assert_eq!(own().endpoint(&endpoint(pod, node), address_type), expected, "{pod} {node} {address_type}");
    }

    fn changed(address: &str, conditions: [bool; 3]) -> Option<EndpointChange<'_>> {
        Some(EndpointChange::Changed { address, conditions })
    }

    #[test]
    fn endpoints_of_own_pods_follow_the_pods() {
        check("ns/up", "n", "IPv4", changed("10.0.0.1", [true, true, false]));
        check("ns/up", "n", "IPv6", changed("fd00::1", [true, true, false]));
        check("ns/ending", "n", "IPv4", changed("10.0.0.2", [false, true, true]));
        check("ns/unready", "n", "IPv4", changed("10.0.0.4", [false, false, false]));
        for (pod, family) in [("ns/ending", "IPv6"), ("ns/starting", "IPv4"), ("ns/gone", "IPv4")] {
            check(pod, "n", family, Some(EndpointChange::Gone));
        }
    }

    #[test]
    fn what_the_node_does_not_know_better_stays() {
        check("ns/up", "other", "IPv4", None);
        check("ns/gone", "", "IPv4", None);
        check("ns/up", "n", "FQDN", None);
        check("ns/new", "n", "IPv4", Some(EndpointChange::Same));
        let starting = OwnNode { is_complete: false, ..own() };
        assert_eq!(starting.endpoint(&endpoint("ns/gone", "n"), "IPv4"), Some(EndpointChange::Same));
        for conditions in [[None; 3], [Some(true), Some(true), Some(false)], [Some(true), None, None]] {
            let same = Endpoint { address: "10.0.0.1", conditions, ..endpoint("ns/up", "n") };
            assert_eq!(own().endpoint(&same, "IPv4"), Some(EndpointChange::Same));
        }
    }

    #[test]
    fn published_endpoint_stays_ready() {
        for (server, is_ready) in [
            ([Some(true), Some(false), Some(false)], true),
            ([Some(true), Some(true), Some(true)], true),
            ([Some(true), Some(true), Some(false)], false),
            ([None, None, None], false),
            ([Some(false), Some(false), Some(false)], false),
        ] {
            let seen = Endpoint { conditions: server, ..endpoint("ns/unready", "n") };
            let own = own();
            assert_eq!(own.endpoint(&seen, "IPv4"), changed("10.0.0.4", [is_ready, false, false]), "{server:?}");
        }
    }
}
