//! Desired pods, observed pods, events. Pure.

mod cpu_placements;
mod device_allocation;
mod event_object;
mod event_ring;
mod event_spam_filter;
#[cfg(test)]
mod golden_events;
mod host_ips;
mod host_names;
mod node_error;
mod observed;
mod observed_cache;
mod oom_kill;
mod pod_change;
mod pod_dirs;
mod pod_event;
mod pressure;
mod probe_result;
mod source_update;
mod status_report;
mod stopped_pods;
mod sync_event;
mod update_lock;
pub(crate) mod volume_paths;
mod waiting_reason;

pub(crate) use cpu_placements::{Assigned, AssignedMemory, MemoryBlock, Placements, PodCpus};
pub(crate) use device_allocation::{AllocatedDevice, AllocatedDevices, DeviceHealth};
pub(crate) use event_object::EventObject;
pub(crate) use event_ring::{EventRing, NewEvent, PodWarning, SendOutcome, StoredEvents, UnsentChange, UnsentEvent};
pub(crate) use host_ips::{HostIps, primary_first};
pub(crate) use host_names::{HostName, HostNames, NamedPod, host_names};
pub(crate) use node_error::{ErrorSubject, NodeError};
pub(crate) use observed::{
    ContainerState, Exit, ObservedContainer, ObservedPod, ObservedResources, ObservedSandbox, ObservedUser,
    SandboxState, StartingContainer,
};
pub(crate) use observed_cache::{ObservationTicket, ObserveResult, ObservedCache};
pub(crate) use oom_kill::OomKill;
pub(crate) use pod_change::{
    ApplyOutcome, PodAnswer, PodChange, PodChangeKind, RestartRequest, StopAction, StopRequest, VersionAction,
    VersionActionRequest,
};
pub(crate) use pod_dirs::{PodDirs, is_uid_in_name};
pub(crate) use pod_event::{NodeEvent, PodEvent};
pub(crate) use pressure::{NodePressures, PodEviction, Pressure, PressureCondition, PressureObservation};
pub(crate) use probe_result::{ProbeKind, ProbeResult};
pub(crate) use source_update::{SourceName, SourcePod, SourceProblem, SourceUpdate};
pub(crate) use status_report::{MirrorDone, ReportDone, ReportOutcome};
pub(crate) use stopped_pods::StoppedPods;
pub(crate) use sync_event::{
    CpuMoveResult, NodeFields, Observation, Relist, RuntimeState, SyncEvent, TagTarget, WorkDone, WorkResult, ZoneFile,
};
pub(crate) use update_lock::UpdateLock;
pub(crate) use volume_paths::{VolumeDir, volume_dirs};
pub(crate) use waiting_reason::{MAX_WAITING_MESSAGE_BYTES, Waiting};
