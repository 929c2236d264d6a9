//! Maps sync loop events to the activity that the watchdog reports. Pure.

use crate::control::server::Doing;
use crate::state::pods::SyncEvent;

/// The activity that the watchdog reports if handling `event` stalls.
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
        SyncEvent::RestartRequest(_)
        | SyncEvent::VersionAsked(_)
        | SyncEvent::VersionsKept(_)
        | SyncEvent::Placed(_)
        | SyncEvent::NodeShutsDown(_) => Doing::Happened,
        SyncEvent::Beat => Doing::Waiting,
    }
}
