//! What a node has too little of, as its conditions tell it, and the pods that are ended for it. Pure.

use std::time::Duration;

use crate::state::pods::NodeEvent;
use crate::types::api::{EventKind, PodUid, Reason, Time};
use crate::types::sorted::{SortedMap, SortedSet};

/// A condition of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pressure {
    Disk,
    Memory,
    Pid,
}

/// What came of a look at what the node has left.
#[derive(Debug, Default)]
pub(crate) struct PressureObservation {
    pub(crate) pressures: SortedSet<Pressure>,
    /// What is being reclaimed, when that is news.
    pub(crate) events: Vec<NodeEvent>,
    pub(crate) evictions: Vec<PodEviction>,
    /// What is left of containers of pods that have ended is to be removed first.
    pub(crate) wants_dead: bool,
    /// Something is about to run out: the next look must not wait for the next relist.
    pub(crate) is_close: bool,
}

/// A pod that the node ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodEviction {
    pub(crate) uid: PodUid,
    /// As the pod's status and event have it.
    pub(crate) message: String,
    /// At most; a pod that needs less to stop gets less.
    pub(crate) grace: Duration,
    /// It is for the node's sake and not for a limit of the pod's own.
    pub(crate) is_disruption: bool,
}

/// Which of them hold, and since when: what the node's status is made from.
#[derive(Debug, Default)]
pub(crate) struct NodePressures {
    since: SortedMap<Pressure, (bool, Time)>,
}

/// One condition in the words of a node's status.
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

    /// The type of the condition.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Disk => "DiskPressure",
            Self::Memory => "MemoryPressure",
            Self::Pid => "PIDPressure",
        }
    }

    /// The reason and the message of its condition.
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
    /// Those that hold now.
    pub(crate) fn held(&self) -> SortedSet<Pressure> {
        self.since.iter().filter(|(_, (holds, _))| *holds).map(|(pressure, _)| *pressure).collect()
    }

    /// What was found out; gives the events of those that have changed.
    pub(crate) fn set(&mut self, held: &SortedSet<Pressure>, node: &str, now: Time) -> Vec<NodeEvent> {
        let mut events = Vec::new();
        for pressure in Pressure::ALL {
            let holds = held.contains(&pressure);
            let before = self.since.get(&pressure).map(|(held, _)| *held);
            if before == Some(holds) {
                continue;
            }
            self.since.insert(pressure, (holds, now));
            // That nothing is short at the start is no news.
            if before.is_some() || holds {
                let reason = pressure.event(holds);
                let message = format!("Node {node} status is now: {reason}");
                events.push(NodeEvent::new(EventKind::Normal, reason, message));
            }
        }
        events
    }

    /// All of them in the order of a node's status; none before the first look.
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
    fn each_change_of_a_condition_is_told_once_and_calm_at_the_start_is_not() {
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
        assert_eq!(pressures.held(), SortedSet::from([Pressure::Disk]));
        let shown: Vec<_> = pressures.conditions().map(|c| (c.pressure.as_str(), c.holds, c.reason)).collect();
        let expected = [
            ("MemoryPressure", false, Reason::KUBELET_HAS_SUFFICIENT_MEMORY),
            ("DiskPressure", true, Reason::KUBELET_HAS_DISK_PRESSURE),
            ("PIDPressure", false, Reason::KUBELET_HAS_SUFFICIENT_PID),
        ];
        assert_eq!(shown, expected);
    }
}
