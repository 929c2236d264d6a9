//! Node pressure: conditions, observations, evictions. Pure.

use std::time::Duration;

use crate::state::pods::NodeEvent;
use crate::types::api::{EventKind, PodUid, Reason, Time};
use crate::types::sorted::{SortedMap, SortedSet};

/// A pressure condition of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pressure {
    Disk,
    Memory,
    Pid,
}

/// The result of a node-pressure check.
#[derive(Debug, Default)]
pub(crate) struct PressureObservation {
    pub(crate) pressures: SortedSet<Pressure>,
    /// Events for resources that begin to be reclaimed.
    pub(crate) events: Vec<NodeEvent>,
    pub(crate) evictions: Vec<PodEviction>,
    /// Dead containers must be removed first.
    pub(crate) wants_dead: bool,
    /// A resource is close to its threshold: check again before the next relist.
    pub(crate) is_close: bool,
}

/// A pod to evict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodEviction {
    pub(crate) uid: PodUid,
    /// The eviction signal, for the metrics.
    pub(crate) signal: &'static str,
    /// Message for the pod's status and event.
    pub(crate) message: String,
    /// Upper limit of the grace period.
    pub(crate) grace: Duration,
    /// Evicted because of the node, not because of the pod's own limit.
    pub(crate) is_disruption: bool,
}

/// State and transition time of each condition, for the node status.
#[derive(Debug, Default)]
pub(crate) struct NodePressures {
    since: SortedMap<Pressure, (bool, Time)>,
}

/// One condition as in the node status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PressureCondition {
    pub(crate) pressure: Pressure,
    pub(crate) holds: bool,
    pub(crate) reason: Reason,
    pub(crate) message: &'static str,
    pub(crate) since: Time,
}

impl Pressure {
    pub(crate) const ALL: [Self; 3] = [Self::Memory, Self::Disk, Self::Pid];

    /// The condition type.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Disk => "DiskPressure",
            Self::Memory => "MemoryPressure",
            Self::Pid => "PIDPressure",
        }
    }

    /// Reason and message of the condition.
    pub(crate) fn words(self, holds: bool) -> (Reason, &'static str) {
        match (self, holds) {
            (Self::Disk, true) => (Reason::KUBELET_HAS_DISK_PRESSURE, "kubelet has disk pressure"),
            (Self::Disk, false) => (Reason::KUBELET_HAS_NO_DISK_PRESSURE, "kubelet has no disk pressure"),
            (Self::Memory, true) => {
                (Reason::KUBELET_HAS_INSUFFICIENT_MEMORY, "kubelet has insufficient memory available")
            }
            (Self::Memory, false) => (Reason::KUBELET_HAS_SUFFICIENT_MEMORY, "kubelet has sufficient memory available"),
            (Self::Pid, true) => (Reason::KUBELET_HAS_INSUFFICIENT_PID, "kubelet has insufficient PID available"),
            (Self::Pid, false) => (Reason::KUBELET_HAS_SUFFICIENT_PID, "kubelet has sufficient PID available"),
        }
    }

    fn event(self, holds: bool) -> Reason {
        match (self, holds) {
            (Self::Disk, true) => Reason::NODE_HAS_DISK_PRESSURE,
            (Self::Disk, false) => Reason::NODE_HAS_NO_DISK_PRESSURE,
            (Self::Memory, true) => Reason::NODE_HAS_INSUFFICIENT_MEMORY,
            (Self::Memory, false) => Reason::NODE_HAS_SUFFICIENT_MEMORY,
            (Self::Pid, true) => Reason::NODE_HAS_INSUFFICIENT_PID,
            (Self::Pid, false) => Reason::NODE_HAS_SUFFICIENT_PID,
        }
    }
}

impl NodePressures {
    /// The conditions that hold.
    pub(crate) fn active(&self) -> SortedSet<Pressure> {
        self.since.iter().filter(|(_, (holds, _))| *holds).map(|(pressure, _)| *pressure).collect()
    }

    /// Sets the conditions and returns the events of those that changed.
    pub(crate) fn set(&mut self, pressures: &SortedSet<Pressure>, node: &str, now: Time) -> Vec<NodeEvent> {
        let mut events = Vec::new();
        for pressure in Pressure::ALL {
            let holds = pressures.contains(&pressure);
            let before = self.since.get(&pressure).map(|(held, _)| *held);
            if before == Some(holds) {
                continue;
            }
            self.since.insert(pressure, (holds, now));
            // No pressure at the start is not a change.
            if before.is_some() || holds {
                let reason = pressure.event(holds);
                let message = format!("Node {node} status is now: {reason}");
                events.push(NodeEvent::new(EventKind::Normal, reason, message));
            }
        }
        events
    }

    /// All conditions in the order of the node status; empty before the first check.
    pub(crate) fn conditions(&self) -> impl Iterator<Item = PressureCondition> + '_ {
        Pressure::ALL.into_iter().filter_map(|pressure| {
            let (holds, since) = *self.since.get(&pressure)?;
            let (reason, message) = pressure.words(holds);
            Some(PressureCondition { pressure, holds, reason, message, since })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_sends_one_event_and_no_pressure_at_start_none() {
        let mut pressures = NodePressures::default();
        let mut told = |held: &[Pressure]| {
            let events = pressures.set(&held.iter().copied().collect(), "n", Time::from_unix_nanos(0));
            events.into_iter().map(|event| event.message).collect::<Vec<_>>()
        };
        assert!(told(&[]).is_empty());
        assert_eq!(told(&[Pressure::Memory]), ["Node n status is now: NodeHasInsufficientMemory"]);
        assert!(told(&[Pressure::Memory]).is_empty());
        let both = ["Node n status is now: NodeHasSufficientMemory", "Node n status is now: NodeHasDiskPressure"];
        assert_eq!(told(&[Pressure::Disk]), both);
        assert_eq!(pressures.active(), SortedSet::from([Pressure::Disk]));
        let shown: Vec<_> = pressures.conditions().map(|c| (c.pressure.as_str(), c.holds, c.reason)).collect();
        let expected = [
            ("MemoryPressure", false, Reason::KUBELET_HAS_SUFFICIENT_MEMORY),
            ("DiskPressure", true, Reason::KUBELET_HAS_DISK_PRESSURE),
            ("PIDPressure", false, Reason::KUBELET_HAS_SUFFICIENT_PID),
        ];
        assert_eq!(shown, expected);
    }
}
