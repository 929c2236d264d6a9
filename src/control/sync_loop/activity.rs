//! Maps sync loop events to the activity that the watchdog reports. Pure.

use crate::control::server::Activity;
use crate::state::pods::SyncEvent;

/// The activity that the watchdog reports if handling `event` stalls.
pub(super) fn doing(event: &SyncEvent) -> Activity {
    match event {
        SyncEvent::Sources(_) => Activity::Sources,
        SyncEvent::Observed(_) => Activity::Observed,
        SyncEvent::Relisted(_) => Activity::Relisted,
        SyncEvent::Runtime(_) => Activity::Runtime,
        SyncEvent::WorkDone(_) => Activity::WorkDone,
        SyncEvent::Probed(_) => Activity::Probed,
        SyncEvent::PodEvent(_) | SyncEvent::NodeEvent(_) | SyncEvent::NodeChanged(_) => Activity::Happened,
        SyncEvent::OomKilled(_)
        | SyncEvent::MemoryStalled
        | SyncEvent::PressureChecked(_)
        | SyncEvent::OverStorageLimits(_)
        | SyncEvent::Groupless(..) => Activity::Happened,
        SyncEvent::AddressesChanged
        | SyncEvent::NodeRead
        | SyncEvent::Object(_)
        | SyncEvent::ImagesImported
        | SyncEvent::CsiDriversChanged
        | SyncEvent::DevicesChanged
        | SyncEvent::DevicesRefused(..)
        | SyncEvent::VolumesRefused(..)
        | SyncEvent::Reported(_)
        | SyncEvent::StatusesAdmitted
        | SyncEvent::Mirrored(_) => Activity::Happened,
        SyncEvent::RestartRequest(_)
        | SyncEvent::RerunRequest(_)
        | SyncEvent::StopRequest(_)
        | SyncEvent::StoppedPodsWritten(_)
        | SyncEvent::HostsWritten
        | SyncEvent::RecordsRead
        | SyncEvent::JobsWritten(_)
        | SyncEvent::ScheduleDue(_)
        | SyncEvent::VersionRequest(_)
        | SyncEvent::NextVersionPulled { .. }
        | SyncEvent::TagsLookedUp { .. }
        | SyncEvent::UpdateLockTried(..)
        | SyncEvent::VersionsKept(_)
        | SyncEvent::CpusMoved(_)
        | SyncEvent::NodeShutsDown(_) => Activity::Happened,
        SyncEvent::Beat => Activity::Waiting,
    }
}
