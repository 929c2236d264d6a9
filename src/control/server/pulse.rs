//! What the sync loop is doing, for the watchdog's thread.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// Written by the sync loop and another task of its thread, read by the watchdog's thread.
/// Relaxed accesses are enough: each value stands for itself, and guards no other memory.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    rounds: AtomicU32,
    other_task_runs: AtomicU32,
    doing: AtomicU8,
}

/// The current activity of the sync loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Activity {
    /// Waits for an event, or for another task of its thread.
    Waiting,
    Sources,
    Observed,
    Relisted,
    Runtime,
    WorkDone,
    Probed,
    Happened,
    // The parts of a round, in order.
    Deadlines,
    Shutdown,
    Probes,
    Readmissions,
    StartingWork,
    PendingResizes,
    CpuAssignment,
    Volumes,
    Images,
    NodePressure,
    Statuses,
    Versions,
    Reporting,
    ShutdownEnd,
    /// Runs rounds without ever waiting.
    Spinning,
}

impl Pulse {
    pub(crate) fn begin(&self, activity: Activity) {
        self.doing.store(activity as u8, Ordering::Relaxed);
    }

    /// The round is complete.
    pub(crate) fn end_round(&self) {
        self.begin(Activity::Waiting);
        self.rounds.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of rounds so far; wraps around.
    pub(crate) fn rounds(&self) -> u32 {
        self.rounds.load(Ordering::Relaxed)
    }

    /// A task other than the sync loop has run.
    pub(crate) fn count_other_task(&self) {
        self.other_task_runs.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of turns of the other task; wraps around.
    pub(crate) fn other_task_runs(&self) -> u32 {
        self.other_task_runs.load(Ordering::Relaxed)
    }

    pub(crate) fn doing(&self) -> Activity {
        let index = usize::from(self.doing.load(Ordering::Relaxed));
        ALL_ACTIVITIES.get(index).copied().unwrap_or(Activity::Waiting)
    }
}

impl Activity {
    /// The activity as text after "while".
    pub(crate) fn text(self) -> &'static str {
        match self {
            // The loop itself would have been woken by the watchdog's event.
            Self::Waiting => "another task held its thread",
            Self::Sources => "taking in manifests",
            Self::Observed => "taking in a look at a pod",
            Self::Relisted => "taking in a relist of the runtime",
            Self::Runtime => "taking in the runtime's state",
            Self::WorkDone => "taking in the end of work on a pod",
            Self::Probed => "taking in the result of a probe",
            Self::Happened => "telling what happened to a pod",
            Self::Deadlines => "ending pods that are past their deadline",
            Self::Shutdown => "ending pods because the node shuts down",
            Self::Probes => "updating the probes of pods",
            Self::Readmissions => "checking rejected pods",
            Self::StartingWork => "starting work on pods",
            Self::PendingResizes => "resizing pods",
            Self::CpuAssignment => "placing containers on processors and memory",
            Self::Volumes => "updating the volumes in use",
            Self::Images => "starting the collection of unused images",
            Self::NodePressure => "checking for node pressure",
            Self::Statuses => "making the statuses of pods",
            Self::Versions => "judging the versions of pods",
            Self::Reporting => "starting status reports to the API server",
            Self::ShutdownEnd => "letting the machine shut down",
            Self::Spinning => "going round without ever waiting",
        }
    }
}

/// In the order of their numbers.
const ALL_ACTIVITIES: [Activity; 23] = [
    Activity::Waiting,
    Activity::Sources,
    Activity::Observed,
    Activity::Relisted,
    Activity::Runtime,
    Activity::WorkDone,
    Activity::Probed,
    Activity::Happened,
    Activity::Deadlines,
    Activity::Shutdown,
    Activity::Probes,
    Activity::Readmissions,
    Activity::StartingWork,
    Activity::PendingResizes,
    Activity::CpuAssignment,
    Activity::Volumes,
    Activity::Images,
    Activity::NodePressure,
    Activity::Statuses,
    Activity::Versions,
    Activity::Reporting,
    Activity::ShutdownEnd,
    Activity::Spinning,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activity_is_read_back_until_the_round_ends() {
        let pulse = Pulse::default();
        for (rounds, doing) in (0..).zip(ALL_ACTIVITIES) {
            assert_eq!(pulse.rounds(), rounds);
            pulse.begin(doing);
            assert_eq!(pulse.doing(), doing);
            pulse.end_round();
            assert_eq!(pulse.doing(), Activity::Waiting);
        }
    }

    #[test]
    fn every_activity_has_its_own_text() {
        for (index, doing) in ALL_ACTIVITIES.iter().enumerate() {
            assert_eq!(*doing as usize, index);
            assert!(ALL_ACTIVITIES[..index].iter().all(|other| other.text() != doing.text()), "{doing:?}");
        }
    }
}
