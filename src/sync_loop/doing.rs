//! What the watchdog shows of the sync loop while it handles an event. Pure.

use crate::pods::SyncEvent;
use crate::server::Doing;

/// What is told of the loop when it does not come back from this event.
pub(super) fn doing(event: &SyncEvent) -> Doing {
    match event {
        SyncEvent::Sources(_) => Doing::Sources,
        SyncEvent::Observed(_) => Doing::Observed,
        SyncEvent::Relisted(_) => Doing::Relisted,
        SyncEvent::Runtime(_) => Doing::Runtime,
        SyncEvent::WorkDone(_) => Doing::WorkDone,
        SyncEvent::Probed(_) => Doing::Probed,
        SyncEvent::Happened(_) | SyncEvent::NodeHappened(_) | SyncEvent::NodeHeard(_) => Doing::Happened,
        SyncEvent::OomKilled(_)
        | SyncEvent::MemoryStalled
        | SyncEvent::PressureLooked(_)
        | SyncEvent::OverStorageLimits(_)
        | SyncEvent::Groupless(..) => Doing::Happened,
        SyncEvent::Object(_)
        | SyncEvent::ImagesCame
        | SyncEvent::CsiDriversChanged
        | SyncEvent::DevicesChanged
        | SyncEvent::DevicesRefused(..)
        | SyncEvent::VolumesRefused(..)
        | SyncEvent::Reported(_)
        | SyncEvent::StatusesAdmitted
        | SyncEvent::Mirrored(_) => Doing::Happened,
        SyncEvent::RestartAsked(_)
        | SyncEvent::VersionAsked(_)
        | SyncEvent::VersionsKept(_)
        | SyncEvent::Placed(_)
        | SyncEvent::NodeShutsDown(_) => Doing::Happened,
        SyncEvent::Beat => Doing::Waiting,
    }
}
