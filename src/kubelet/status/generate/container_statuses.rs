//! Container statuses. Pure.
//!
//! As `convertToAPIContainerStatuses` in pkg/kubelet/kubelet_pods.go: computed from the two newest instances in the
//! runtime, the last reported status, and the reason for which the last start failed.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::time::Duration;

use serde_json::{Value, json};

use crate::state::pods::{self, AllocatedDevice, AllocatedDevices, ObservedContainer, ObservedUser, Waiting};
use crate::types::api::{
    CPU, Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerStatus, ContainerUser, LinuxContainerUser, MEMORY, ObjectMeta, Reason, RecursiveReadOnlyMode,
    ResourceList, ResourceRequirements, Time, VolumeMount, VolumeMountStatus,
};
use crate::types::sorted::{SortOnce, SortedMap, SortedSet};
use crate::types::text;

use super::phase::restarts;
use super::{ResizeProgress, StatusInput};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    Init,
    Main,
    Ephemeral,
}

/// The statuses of one list: init containers in the order of the spec, others sorted by name.
pub(super) fn container_statuses(
    input: &StatusInput<'_>,
    list: List,
    restarting_all: bool,
    before: &[ContainerStatus],
) -> Vec<ContainerStatus> {
    let spec = &input.pod.spec;
    let containers = match list {
        List::Init => &spec.init_containers,
        List::Main => &spec.containers,
        List::Ephemeral => &spec.ephemeral_containers,
    };
    let shared = PodFacts::of(input, before);
    let restarting_all = restarting_all && list != List::Ephemeral;
    let of = |container: &Container| {
        let before = shared.before.get(container.name.as_str()).copied();
        ContainerInput { input, shared: &shared, list, container, before, restarting_all }.status()
    };
    let mut statuses: Vec<ContainerStatus> = containers.iter().map(of).collect();
    if list != List::Init {
        statuses.sort_once_by(|one, other| one.name.cmp(&other.name));
    }
    statuses
}

/// What the statuses of all containers of a list need, found by name.
struct PodFacts<'a> {
    before: SortedMap<&'a str, &'a ContainerStatus>,
    backing_off: SortedMap<&'a str, Duration>,
    /// Sorted by container.
    devices: Vec<&'a AllocatedDevices>,
    replaced: SortedSet<&'a str>,
    /// The termination messages of a pod share a fixed size.
    message_limit: usize,
    has_main_instance: OnceCell<bool>,
}

impl<'a> PodFacts<'a> {
    fn of(input: &StatusInput<'a>, before: &'a [ContainerStatus]) -> Self {
        let mut devices: Vec<&AllocatedDevices> = input.devices.iter().collect();
        devices.sort_once_by(|one, other| one.container.cmp(&other.container));
        Self {
            before: before.iter().map(|status| (status.name.as_str(), status)).collect(),
            backing_off: input.backing_off.iter().map(|(name, wait)| (name.as_str(), *wait)).collect(),
            devices,
            replaced: input.replaced.iter().map(String::as_str).collect(),
            message_limit: POD_MESSAGE_BYTES / input.pod.spec.all_containers().count().max(1),
            has_main_instance: OnceCell::new(),
        }
    }

    fn devices(&self, container: &'a str) -> impl Iterator<Item = &'a AllocatedDevices> {
        let first = self.devices.partition_point(|allocated| allocated.container.as_str() < container);
        let from = self.devices.get(first..).unwrap_or_default();
        from.iter().copied().take_while(move |allocated| allocated.container == container)
    }
}

fn user(observed: &ObservedUser) -> Box<ContainerUser> {
    let ObservedUser { uid, gid, groups } = observed;
    let linux = LinuxContainerUser { uid: *uid, gid: *gid, supplemental_groups: groups.clone() };
    Box::new(ContainerUser { linux: Some(linux) })
}

/// The state of a container that ran and was not found again.
pub(in crate::kubelet::status) fn lost(message: &'static str) -> ContainerState {
    ContainerState::Terminated(Box::new(ContainerStateTerminated {
        exit_code: LOST_EXIT_CODE,
        reason: Reason::CONTAINER_STATUS_UNKNOWN,
        message: message.to_owned(),
        ..ContainerStateTerminated::default()
    }))
}

pub(in crate::kubelet::status) const LOST_WHEN_TERMINATED: &str =
    "The container could not be located when the pod was terminated";
const LOST_WHEN_DELETED: &str =
    "The container could not be located when the pod was deleted.  The container used to be Running";
const LOST_BUT_INITIALIZED: &str = "Unable to get init container status from container runtime and pod has been \
                                    initialized, treat it as exited normally";
const REMOVED_TO_RESTART: &str = "The container is removed because RestartAllContainers in place";
/// The exit code of a killed process, because the outcome is unknown.
const LOST_EXIT_CODE: i32 = 137;

/// One container and the inputs of its status.
struct ContainerInput<'a> {
    input: &'a StatusInput<'a>,
    shared: &'a PodFacts<'a>,
    list: List,
    container: &'a Container,
    before: Option<&'a ContainerStatus>,
    /// All containers restart: a container that is missing in the runtime was removed for the restart.
    restarting_all: bool,
}

impl ContainerInput<'_> {
    fn status(&self) -> ContainerStatus {
        let mut instances = self.input.observed.containers.named(&self.container.name);
        let newest = instances.next();
        let mut status = match newest {
            None => self.without_instance(),
            Some(newest) => {
                let mut status = self.of_instance(newest);
                if let Some(older) = instances.next() {
                    status.last_state = self.of_instance(older).state;
                }
                status
            }
        };
        self.apply_waiting(newest, &mut status);
        self.apply_probes(&mut status);
        // The container is not ready until the next instance has started.
        status.ready &= !newest.is_some_and(|newest| self.is_replaced(newest));
        if self.list == List::Main {
            status.allocated_resources_status = self.devices();
        }
        status
    }

    /// The runtime has no instance: the container waits, or its last known termination still holds.
    fn without_instance(&self) -> ContainerStatus {
        let mut status = self.blank();
        let Some(before) = self.before else { return status };
        if self.restarting_all && !matches!(before.state, Some(ContainerState::Waiting(_))) {
            let (reason, message) = (Reason::RESTARTING_ALL_CONTAINERS, REMOVED_TO_RESTART.to_owned());
            status.last_state = Some(ContainerState::Terminated(Box::new(ContainerStateTerminated {
                exit_code: LOST_EXIT_CODE,
                reason: reason.clone(),
                message: message.clone(),
                ..ContainerStateTerminated::default()
            })));
            status.state = Some(ContainerState::Waiting(ContainerStateWaiting { reason, message }));
            status.restart_count = before.restart_count.saturating_add(1);
            return status;
        }
        if matches!(before.state, Some(ContainerState::Terminated(_))) {
            return before.clone();
        }
        status.restart_count = before.restart_count;
        status.last_state.clone_from(&before.last_state);
        let ran = matches!(before.state, Some(ContainerState::Running(_)));
        if ran && !matches!(status.last_state, Some(ContainerState::Terminated(_))) {
            // It was running when last seen, so it has terminated; without this entry a waiting container would look
            // as if it had never run.
            status.last_state = Some(lost(LOST_WHEN_DELETED));
            if !self.is_deleted() {
                status.restart_count = status.restart_count.saturating_add(1);
            }
        }
        status
    }

    fn of_instance(&self, instance: &ObservedContainer) -> ContainerStatus {
        let id = [self.input.runtime_name, "://", &instance.id].concat();
        let resources = &self.container.resources;
        let mut status = ContainerStatus {
            name: instance.name.clone(),
            restart_count: i32::try_from(starts_before(instance)).unwrap_or(i32::MAX),
            image: instance.image.clone(),
            image_id: instance.image_id.clone(),
            allocated_resources: resources.requests.clone(),
            resources: Some(Box::new(self.given_resources(&id).into_owned())),
            volume_mounts: self.volume_mounts(),
            user: instance.user.as_deref().map(user),
            ..ContainerStatus::default()
        };
        let mut ended_before = false;
        if let Some(before) = self.before {
            ended_before = matches!(before.state, Some(ContainerState::Terminated(_)));
            status.restart_count = status.restart_count.max(before.restart_count);
            status.last_state = if ended_before && before.container_id != id {
                before.state.clone()
            } else {
                before.last_state.clone()
            };
        }
        let counted = self.before.map_or(0, |before| before.restart_count);
        let ran_before = self.before.is_some_and(|before| matches!(before.state, Some(ContainerState::Running(_))));
        let state = match &instance.state {
            // Upstream generates no status between CreateContainer and StartContainer: clients see the reason from before.
            pods::ContainerState::Created => self.not_started(),
            pods::ContainerState::Running { started_at } => {
                let is_another = self.before.is_some_and(|before| before.container_id != id);
                if ended_before && is_another && status.restart_count == counted {
                    // The runtime does not know the earlier instances.
                    status.restart_count = counted.saturating_add(1);
                }
                ContainerState::Running(ContainerStateRunning { started_at: Some(Time::from_unix_nanos(*started_at)) })
            }
            pods::ContainerState::Exited(exit) if self.is_replaced(instance) => {
                ContainerState::Running(ContainerStateRunning {
                    started_at: Some(Time::from_unix_nanos(exit.started_at)),
                })
            }
            pods::ContainerState::Exited(exit) => {
                let mut message = exit.message.clone();
                text::cut(&mut message, self.shared.message_limit);
                ContainerState::Terminated(Box::new(ContainerStateTerminated {
                    exit_code: exit.code,
                    started_at: Some(Time::from_unix_nanos(exit.started_at)),
                    finished_at: Some(Time::from_unix_nanos(exit.finished_at)),
                    signal: 0,
                    reason: Reason::from(exit.reason.clone()),
                    message,
                    container_id: id.clone(),
                }))
            }
            pods::ContainerState::Unknown if ran_before => {
                status.restart_count = counted.saturating_add(1);
                lost(LOST_WHEN_TERMINATED)
            }
            pods::ContainerState::Unknown => ContainerState::Waiting(ContainerStateWaiting::default()),
        };
        status.state = Some(state);
        status.container_id = id;
        status
    }

    /// Whether the worker replaces this instance although its exit would be final. As upstream, the exit is not shown:
    /// the API server accepts no other state after it, and the phase would be terminal.
    fn is_replaced(&self, instance: &ObservedContainer) -> bool {
        let is_final = instance.exit().is_some_and(|exit| !restarts(self.input.pod, self.container, exit.code));
        is_final && self.shared.replaced.contains(instance.id.as_str())
    }

    /// The container's current resources. Until a resize has taken effect, these are the resources last sent to the
    /// runtime, or those of the previous status if that is unknown.
    fn given_resources(&self, id: &str) -> Cow<'_, ResourceRequirements> {
        let allocated = &self.container.resources;
        if self.input.resize.progress == ResizeProgress::None {
            return Cow::Borrowed(allocated);
        }
        let before = self.before.filter(|before| before.container_id == id);
        let before = before.and_then(|before| before.resources.as_deref()).unwrap_or(allocated);
        let actuated = self.input.actuated.and_then(|actuated| actuated.containers.get(&self.container.name));
        let Some(actuated) = actuated else { return Cow::Borrowed(before) };
        let mut resources = allocated.clone();
        for resource in [CPU, MEMORY] {
            put_actual(&mut resources.requests, &actuated.requests, resource);
            put_actual(&mut resources.limits, &actuated.limits, resource);
        }
        Cow::Owned(resources)
    }

    /// A container that must run and failed to start is waiting, with the reason.
    fn apply_waiting(&self, newest: Option<&ObservedContainer>, status: &mut ContainerStatus) {
        if self.list == List::Init {
            if newest.and_then(ObservedContainer::exit).is_some_and(|exit| exit.code == 0) {
                return;
            }
            let is_waiting = matches!(status.state, Some(ContainerState::Waiting(_)));
            if newest.is_none()
                && is_waiting
                && !self.restarting_all
                && !self.container.is_sidecar()
                && self.has_main_instance()
            {
                // The runtime has removed it. Main containers start only after their init containers have succeeded.
                status.state = Some(ContainerState::Terminated(Box::new(ContainerStateTerminated {
                    reason: Reason::COMPLETED,
                    message: LOST_BUT_INITIALIZED.to_owned(),
                    ..ContainerStateTerminated::default()
                })));
                return;
            }
        }
        if !self.shall_start(newest) {
            return;
        }
        let backing_off = self.shared.backing_off.get(self.container.name.as_str()).copied();
        let waiting = self.input.waiting_of(&self.container.name, backing_off);
        let Some(Waiting { reason, message, .. }) = waiting else { return };
        if matches!(status.state, Some(ContainerState::Terminated(_))) {
            status.last_state = status.state.take();
        }
        status.state = Some(ContainerState::Waiting(ContainerStateWaiting { reason, message }));
    }

    fn shall_start(&self, newest: Option<&ObservedContainer>) -> bool {
        let startable = match newest.map(|seen| &seen.state) {
            None | Some(pods::ContainerState::Created | pods::ContainerState::Unknown) => true,
            Some(pods::ContainerState::Running { .. }) => false,
            Some(pods::ContainerState::Exited(exit)) => restarts(self.input.pod, self.container, exit.code),
        };
        startable && !self.is_deleted()
    }

    /// Each allocated resource with the health of its devices (`UpdateAllocatedResourcesStatus`).
    fn devices(&self) -> Vec<Value> {
        let shown = self.shared.devices(&self.container.name).map(|allocated| {
            let health = |device: &AllocatedDevice| {
                let mut shown = json!({"resourceID": device.id, "health": device.health.name()});
                if let Some(fields) = shown.as_object_mut().filter(|_| !device.message.is_empty()) {
                    fields.insert("message".to_owned(), device.message.as_str().into());
                }
                shown
            };
            json!({"name": allocated.resource, "resources": allocated.devices.iter().map(health).collect::<Value>()})
        });
        shown.collect()
    }

    /// Probe results; a missing probe counts as passed.
    fn apply_probes(&self, status: &mut ContainerStatus) {
        let running = matches!(status.state, Some(ContainerState::Running(_)));
        let probed = self.input.probed.get(&self.container.name);
        let started = running && probed.is_none_or(|probed| probed.started);
        match self.list {
            List::Ephemeral => {}
            List::Init if !self.container.is_sidecar() => {
                status.started = Some(started);
                status.ready = matches!(&status.state, Some(ContainerState::Terminated(end)) if end.exit_code == 0);
            }
            List::Init | List::Main => {
                status.started = Some(started);
                status.ready = started && probed.is_none_or(|probed| probed.ready);
            }
        }
    }

    fn not_started(&self) -> ContainerState {
        let has_init = !self.input.pod.spec.init_containers.is_empty();
        let reason = if has_init { Reason::POD_INITIALIZING } else { Reason::CONTAINER_CREATING };
        ContainerState::Waiting(ContainerStateWaiting { reason, message: String::new() })
    }

    fn blank(&self) -> ContainerStatus {
        ContainerStatus {
            name: self.container.name.clone(),
            image: self.container.image.clone(),
            state: Some(self.not_started()),
            volume_mounts: self.volume_mounts(),
            ..ContainerStatus::default()
        }
    }

    fn volume_mounts(&self) -> Vec<VolumeMountStatus> {
        // In the order of the spec, which does not change.
        let mut before = self.before.map(|before| before.volume_mounts.iter()).unwrap_or_default();
        let of = |mount: &VolumeMount| {
            let before = before.next().filter(|before| before.mount_path == mount.mount_path);
            VolumeMountStatus {
                name: mount.name.clone(),
                mount_path: mount.mount_path.clone(),
                read_only: mount.read_only,
                recursive_read_only: mount.read_only.then(|| self.recursive_read_only(mount, before).as_str().into()),
            }
        };
        self.container.volume_mounts.iter().map(of).collect()
    }

    /// The mode that the runtime was asked for: a required mode that it cannot provide starts no container.
    fn recursive_read_only(&self, mount: &VolumeMount, before: Option<&VolumeMountStatus>) -> RecursiveReadOnlyMode {
        if matches!(mount.recursive_read_only, None | Some(RecursiveReadOnlyMode::Disabled)) {
            return RecursiveReadOnlyMode::Disabled;
        }
        match self.input.recursive_read_only {
            Some(true) => RecursiveReadOnlyMode::Enabled,
            Some(false) => RecursiveReadOnlyMode::Disabled,
            None => before
                .and_then(|before| RecursiveReadOnlyMode::from_word(before.recursive_read_only.as_deref()?))
                .unwrap_or(RecursiveReadOnlyMode::Disabled),
        }
    }

    fn is_deleted(&self) -> bool {
        let ObjectMeta { deletion_timestamp, .. } = &self.input.pod.metadata;
        deletion_timestamp.is_some()
    }

    fn has_main_instance(&self) -> bool {
        *self.shared.has_main_instance.get_or_init(|| {
            let (main, observed) = (&self.input.pod.spec.containers, self.input.observed);
            main.iter().any(|container| observed.container(&container.name).is_some())
        })
    }
}

/// The restarts that clients see: an instance counts once it has started, together with its new state.
fn starts_before(observed: &ObservedContainer) -> u32 {
    match observed.state {
        pods::ContainerState::Created => observed.restart_count.saturating_sub(1),
        _ => observed.restart_count,
    }
}

/// An amount of a list that has any (`convertContainerStatusResources`).
fn put_actual(list: &mut ResourceList, actual: &ResourceList, resource: &str) {
    if let Some(amount) = actual.get(resource).filter(|_| !list.is_empty()) {
        list.insert(resource, *amount);
    }
}

/// Upstream's `MaxPodTerminationMessageLogLength`: all containers of a pod share it, so that a pod with many containers
/// stays a small object of the API server.
const POD_MESSAGE_BYTES: usize = 12 * 1024;
