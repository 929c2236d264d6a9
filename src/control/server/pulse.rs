//! What the sync loop is about, for the thread that looks whether it moves.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// Written by the sync loop and another task, read by the watchdog's thread.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    rounds: AtomicU32,
    turns: AtomicU32,
    doing: AtomicU8,
}

/// What the sync loop is busy with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Doing {
    /// It waits for an event, or for another task of its thread to make room.
    Waiting,
    Sources,
    Observed,
    Relisted,
    Runtime,
    WorkDone,
    Probed,
    Happened,
    // The parts of a round, in their order.
    Deadlines,
    Shutdown,
    Probes,
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
    /// It goes round and never waits.
    Spinning,
}

impl Pulse {
    pub(crate) fn begin(&self, doing: Doing) {
        self.doing.store(doing as u8, Ordering::Relaxed);
    }

    /// All that there was to do is done.
    pub(crate) fn end_round(&self) {
        self.begin(Doing::Waiting);
        self.rounds.fetch_add(1, Ordering::Relaxed);
    }

    /// How many rounds were done; it begins anew after the last number that fits.
    pub(crate) fn rounds(&self) -> u32 {
        self.rounds.load(Ordering::Relaxed)
    }

    /// A task other than the sync loop has had a turn.
    pub(crate) fn turn(&self) {
        self.turns.fetch_add(1, Ordering::Relaxed);
    }

    /// How many turns the other task has had; wraps around.
    pub(crate) fn turns(&self) -> u32 {
        self.turns.load(Ordering::Relaxed)
    }

    pub(crate) fn doing(&self) -> Doing {
        let index = usize::from(self.doing.load(Ordering::Relaxed));
        ALL.get(index).copied().unwrap_or(Doing::Waiting)
    }
}

impl Doing {
    /// As it follows "while".
    pub(crate) fn text(self) -> &'static str {
        match self {
            // It would have been woken for the watchdog's question.
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
const ALL: [Doing; 22] = [
    Doing::Waiting,
    Doing::Sources,
    Doing::Observed,
    Doing::Relisted,
    Doing::Runtime,
    Doing::WorkDone,
    Doing::Probed,
    Doing::Happened,
    Doing::Deadlines,
    Doing::Shutdown,
    Doing::Probes,
    Doing::StartingWork,
    Doing::PendingResizes,
    Doing::CpuAssignment,
    Doing::Volumes,
    Doing::Images,
    Doing::NodePressure,
    Doing::Statuses,
    Doing::Versions,
    Doing::Reporting,
    Doing::ShutdownEnd,
    Doing::Spinning,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_loop_begins_is_read_back_until_the_round_is_done() {
        let pulse = Pulse::default();
        for (rounds, doing) in (0..).zip(ALL) {
            assert_eq!(pulse.rounds(), rounds);
            pulse.begin(doing);
            assert_eq!(pulse.doing(), doing);
            pulse.end_round();
            assert_eq!(pulse.doing(), Doing::Waiting);
        }
    }

    #[test]
    fn each_thing_that_the_loop_does_has_a_text_of_its_own() {
        for (place, doing) in ALL.iter().enumerate() {
            assert_eq!(*doing as usize, place);
            assert!(ALL[..place].iter().all(|other| other.text() != doing.text()), "{doing:?}");
        }
    }
}
