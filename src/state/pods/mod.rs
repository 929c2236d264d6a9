//! The books: desired pods, observed pods, events. Pure.

mod event;
mod event_ring;
mod event_spam;
mod given_devices;
#[cfg(test)]
mod golden_events;
mod observed;
mod observed_cache;
mod oom_kill;
mod placements;
mod pod_change;
mod pod_dirs;
mod pod_event;
mod pressure;
mod probe_result;
mod report;
mod source_update;
pub(crate) mod volume_places;
mod waiting;

pub(crate) use event::{NodeTerms, Observation, Placed, Relist, RuntimeState, SyncEvent, WorkDone, WorkResult};
pub(crate) use event_ring::{EventObject, EventRing, Sent, Told, Unsent, UnsentWhat};
pub(crate) use given_devices::GivenDevices;
pub(crate) use observed::{
    ContainerState, Exit, ObservedContainer, ObservedPod, ObservedSandbox, ObservedUser, SandboxState,
};
pub(crate) use observed_cache::{Look, ObservedCache, Taken};
pub(crate) use oom_kill::OomKill;
pub(crate) use placements::{Assigned, MemoryBlock, PlacedMemory, Placements};
pub(crate) use pod_change::{PodAnswer, PodChange, PodChangeKind, Put, RestartAsked, VersionAsk, VersionAsked};
pub(crate) use pod_dirs::PodDirs;
pub(crate) use pod_event::{NodeEvent, PodEvent};
pub(crate) use pressure::{NodePressures, PodEviction, Pressure, PressureCondition, PressureLook};
pub(crate) use probe_result::{ProbeKind, ProbeResult};
pub(crate) use report::{MirrorDone, ReportDone, ReportOutcome};
pub(crate) use source_update::{SourceName, SourcePod, SourceProblem, SourceUpdate};
pub(crate) use volume_places::{VolumePlace, volume_places};
pub(crate) use waiting::Waiting;
