//! Builds the current node status. Pure.

use std::net::IpAddr;
use std::time::Instant;

use crate::kubelet::node::board_health::BoardProblem;
use crate::kubelet::node::profile::specified;
use crate::kubelet::node::{BoardCondition, NodeProfile, RuntimeHealth};
use crate::state::pods::{Pressure, PressureCondition};
use crate::types::api::{
    CPU, ContainerImage, EPHEMERAL_STORAGE, HUGE_PAGES_PREFIX, MEMORY, NodeAddress, NodeCondition, NodeStatus, PODS,
    Quantity, Reason, ResourceList, Time,
};

/// The parts of the node status that change.
#[derive(Debug)]
pub(crate) struct NodeObservation<'a> {
    /// Empty before the first node-pressure check.
    pub(crate) pressures: &'a [PressureCondition],
    /// `None` before the first readings of the board.
    pub(crate) board: Option<&'a [BoardCondition]>,
    pub(crate) runtime: &'a RuntimeHealth,
    /// Addresses of the default route's interface, IPv4 first.
    pub(crate) addresses: &'a [IpAddr],
    /// The images to report.
    pub(crate) images: &'a [ContainerImage],
    pub(crate) shuts_down: bool,
    /// Volumes that controllers attach, sorted.
    pub(crate) volumes_in_use: &'a [String],
    /// Capacity and allocatable devices.
    pub(crate) devices: &'a [ResourceList; 2],
    /// Wall clock time.
    pub(crate) now: Time,
    pub(crate) instant: Instant,
}

pub(crate) const READY: &str = "Ready";

impl NodeProfile {
    /// The wanted status, given the one at the API server. Fields written by others stay.
    pub(crate) fn status(&self, observation: &NodeObservation<'_>, server: &NodeStatus) -> NodeStatus {
        let [devices, allocatable_devices] = observation.devices;
        let mut capacity = self.capacity_beside(&server.capacity);
        add_all(&mut capacity, devices);
        let mut allocatable = self.allocatable_of(&capacity, &server.allocatable);
        add_all(&mut allocatable, allocatable_devices);
        let runtime = observation.runtime.last_reported();
        let mut info = self.info.clone();
        info.container_runtime_version = match runtime {
            Some(runtime) => format!("{}://{}", runtime.name, runtime.version),
            // Not asked yet; keep the previous version.
            None => server.node_info.container_runtime_version.clone(),
        };
        let handlers = runtime.map_or(&server.runtime_handlers, |runtime| &runtime.handlers);
        NodeStatus {
            allocatable,
            conditions: self.conditions(observation, &capacity, &server.conditions),
            capacity,
            addresses: self.addresses(observation.addresses, &server.addresses),
            daemon_endpoints: self.endpoints.clone(),
            node_info: info,
            images: observation.images.to_vec(),
            volumes_in_use: observation.volumes_in_use.to_vec(),
            volumes_attached: server.volumes_attached.clone(),
            runtime_handlers: handlers.clone(),
            features: runtime.map_or_else(|| server.features.clone(), |runtime| runtime.features.clone()),
            declared_features: self.declared_features.clone(),
        }
    }

    /// The status for registering over an existing object: its extended resources were another kubelet's and are set
    /// to zero (`reconcileExtendedResource`).
    pub(crate) fn status_at_registration(&self, observation: &NodeObservation<'_>, server: &NodeStatus) -> NodeStatus {
        let mut status = self.status(observation, server);
        if self.keeps_extended {
            return status;
        }
        for (list, plugin_resources) in
            [&mut status.capacity, &mut status.allocatable].into_iter().zip(observation.devices)
        {
            let names: Vec<String> = list.iter().map(|(name, _)| name.to_owned()).collect();
            for name in names.iter().filter(|name| is_extended(name) && !plugin_resources.contains_key(name)) {
                list.insert(name, Quantity::ZERO);
            }
        }
        status
    }

    /// The machine's capacity plus extended resources set by an administrator; huge page sizes that no longer exist
    /// are dropped.
    fn capacity_beside(&self, server: &ResourceList) -> ResourceList {
        let stays = |name: &str| !name.starts_with(HUGE_PAGES_PREFIX);
        let others = server.iter().filter(|(name, _)| stays(name)).map(|(name, quantity)| (name, *quantity));
        others.chain(self.capacity.iter().map(|(name, quantity)| (name, *quantity))).collect()
    }

    fn allocatable_of(&self, capacity: &ResourceList, server: &ResourceList) -> ResourceList {
        // Resources of other clients are kept: those that are neither in the capacity nor extended.
        let stays = |name: &str| !is_extended(name) && !name.starts_with(HUGE_PAGES_PREFIX);
        let others = server.iter().filter(|(name, _)| stays(name)).chain(capacity.iter());
        others.chain(self.allocatable.iter()).map(|(name, quantity)| (name, *quantity)).collect()
    }

    /// One address of each kind, or two if two are configured (`NodeAddress` in pkg/kubelet/nodestatus). Unlike
    /// upstream no name is looked up: without configured addresses, those of the default route are used.
    pub(super) fn addresses(&self, machine: &[IpAddr], server: &[NodeAddress]) -> Vec<NodeAddress> {
        if self.external_cloud && !server.is_empty() {
            return server.to_vec();
        }
        let name = &self.metadata.name;
        let hostname = NodeAddress { kind: "Hostname".into(), address: name.clone() };
        let internal = |ip: &IpAddr| NodeAddress { kind: "InternalIP".into(), address: ip.to_string() };
        let mut addresses: Vec<NodeAddress> = specified(&self.ips).map(internal).collect();
        if addresses.is_empty() && !(self.external_cloud && self.ips.is_empty()) {
            let family = self.ips.first().is_none_or(IpAddr::is_ipv4);
            let preferred = machine.iter().find(|ip| ip.is_ipv4() == family).or(machine.first());
            let named = name.parse().ok();
            addresses.extend(named.as_ref().or(preferred).map(internal));
            if addresses.is_empty() && !server.is_empty() {
                // The network is down for a while; keep the last address.
                return server.to_vec();
            }
        }
        addresses.push(hostname);
        addresses
    }

    /// In upstream's order: old clients expect Ready to be last.
    fn conditions(
        &self,
        observation: &NodeObservation<'_>,
        capacity: &ResourceList,
        server: &[NodeCondition],
    ) -> Vec<NodeCondition> {
        let before = |kind: &str| server.iter().find(|condition| condition.kind == kind);
        let mut conditions: Vec<NodeCondition> = Vec::with_capacity(4);
        for pressure in Pressure::ALL {
            let kind = pressure.as_str();
            let before = before(kind);
            let seen = observation.pressures.iter().find(|condition| condition.pressure == pressure);
            conditions.push(match (seen, before) {
                // Before the first check, the condition keeps its previous status.
                (None, Some(before)) => NodeCondition { last_heartbeat_time: Some(observation.now), ..before.clone() },
                (seen, before) => {
                    let (reason, message) = pressure.words(seen.is_some_and(|seen| seen.holds));
                    let holds = seen.is_some_and(|seen| seen.holds);
                    condition(kind, holds, reason, message.to_owned(), before, observation.now)
                }
            });
        }
        conditions.extend(BoardProblem::ALL.iter().filter_map(|problem| of_board(*problem, observation, server)));
        let faults = self.faults(observation, capacity);
        let (reason, message) = readiness(&faults);
        conditions.push(condition(READY, faults.is_empty(), reason, message, before(READY), observation.now));
        conditions
    }

    /// Why the node is not ready, in upstream's order.
    fn faults(&self, observation: &NodeObservation<'_>, capacity: &ResourceList) -> Vec<String> {
        let mut faults = faults(observation.runtime, observation.shuts_down, observation.instant);
        let storage = self.needs_storage.then_some(EPHEMERAL_STORAGE);
        let needed = [CPU, MEMORY, PODS].into_iter().chain(storage);
        let missing: Vec<&str> = needed.filter(|name| !capacity.contains_key(name)).collect();
        if !missing.is_empty() {
            faults.push(format!("missing node capacity for resources: {}", missing.join(", ")));
        }
        faults
    }
}

/// Why the node is not ready, whatever its capacity is.
pub(super) fn faults(runtime: &RuntimeHealth, shuts_down: bool, now: Instant) -> Vec<String> {
    let mut faults = runtime.faults(now);
    if shuts_down {
        faults.push("node is shutting down".to_owned());
    }
    faults
}

/// Reason and message of the condition `Ready`.
pub(super) fn readiness(faults: &[String]) -> (Reason, String) {
    match faults.is_empty() {
        true => (Reason::KUBELET_READY, "kubelet is posting ready status".to_owned()),
        false => (Reason::KUBELET_NOT_READY, aggregate(faults.to_vec())),
    }
}

/// The condition of the board. One that another program has written stays as it is.
fn of_board(
    problem: BoardProblem,
    observation: &NodeObservation<'_>,
    server: &[NodeCondition],
) -> Option<NodeCondition> {
    let kind = problem.as_str();
    let before = server.iter().find(|condition| condition.kind == kind);
    let is_own = |reason: &Reason| [true, false].iter().any(|holds| problem.reason(*holds) == *reason);
    if let Some(foreign) = before.filter(|before| !is_own(&before.reason)) {
        return Some(foreign.clone());
    }
    let Some(board_conditions) = observation.board else {
        let heartbeat = Some(observation.now);
        return before.map(|before| NodeCondition { last_heartbeat_time: heartbeat, ..before.clone() });
    };
    let seen = board_conditions.iter().find(|condition| condition.problem == problem);
    // Nothing can be read any more for one that is at the server: it no longer holds.
    let holds = seen.map(|seen| seen.holds).or(before.map(|_| false))?;
    let message = seen.map_or_else(|| problem.fine().to_owned(), |seen| seen.message.clone());
    Some(condition(kind, holds, problem.reason(holds), message, before, observation.now))
}

fn add_all(list: &mut ResourceList, more: &ResourceList) {
    for (name, quantity) in more.iter() {
        list.insert(name, *quantity);
    }
}

fn condition(
    kind: &'static str,
    holds: bool,
    reason: Reason,
    message: String,
    before: Option<&NodeCondition>,
    now: Time,
) -> NodeCondition {
    let status = if holds { "True" } else { "False" };
    let same = before.filter(|before| before.status == status);
    NodeCondition {
        kind: kind.into(),
        status: status.into(),
        last_heartbeat_time: Some(now),
        last_transition_time: Some(same.and_then(|same| same.last_transition_time).unwrap_or(now)),
        reason,
        message,
    }
}

/// Joins several errors in one line, as apimachinery does.
fn aggregate(mut faults: Vec<String>) -> String {
    faults.dedup();
    match <[String; 1]>::try_from(faults) {
        Ok([one]) => one,
        Err(several) => format!("[{}]", several.join(", ")),
    }
}

/// A resource of neither the kernel nor Kubernetes.
fn is_extended(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/")
}

#[cfg(test)]
mod tests;
