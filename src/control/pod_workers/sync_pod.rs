//! Syncs a pod: its directories and volumes, then the runtime.

use std::borrow::Cow;
use std::error::Error;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use async_channel::Sender;

use crate::control::pod_workers::error::SyncError;
use crate::control::pod_workers::resize_pod::PodResize;
use crate::kubelet::container_manager::ContainerManager;
use crate::kubelet::csi::Csi;
use crate::kubelet::devices::{DeviceError, Devices};
use crate::kubelet::dra::{DraError, DraManager};
use crate::kubelet::kuberuntime::{CancelWatch, ExecuteResult, Plan, PodRuntime, PodSync, WorkViews};
use crate::kubelet::volumes::{self, SetUpInputs};
use crate::platform::rt;
use crate::platform::tracing::{self, SpanKind};
use crate::state::pods::{ObservedPod, PodEvent, SyncEvent, WorkDone, WorkResult};
use crate::types::api::{EventKind, Pod, Reason, Volume, VolumeSource};
use crate::types::error::ErrorChain;
use crate::types::metrics::{self, Timed};
use crate::types::sorted::SortOnce;

/// The set-up of volumes goes on for longer, with a warning each time (upstream: podAttachAndMountTimeout).
const VOLUMES_WARNING_INTERVAL: Duration = Duration::from_secs(123);

/// A sync, and what it depends on.
#[derive(Clone, Copy)]
pub(super) struct SyncContext<'a> {
    pub(super) pod: &'a Arc<Pod>,
    pub(super) plan: &'a Plan,
    pub(super) observed: &'a ObservedPod,
    pub(super) inbox: &'a Sender<SyncEvent>,
    pub(super) runtime: &'a PodRuntime,
    pub(super) groups: &'a ContainerManager,
    pub(super) devices: &'a Rc<Devices>,
    pub(super) csi: &'a Rc<Csi>,
    pub(super) dra: &'a DraManager,
    pub(super) views: &'a WorkViews,
    pub(super) cancel: &'a CancelWatch,
}

pub(super) async fn sync_pod(context: SyncContext<'_>) -> WorkDone {
    let mut span = tracing::begin("syncPod", SpanKind::Internal, || {
        let meta = &context.pod.metadata;
        let full_name = format!("{}/{}", meta.namespace, meta.name);
        let attributes = [
            ("k8s.pod.uid", meta.uid.as_str()),
            ("k8s.pod", full_name.as_str()),
            ("k8s.pod.name", meta.name.as_str()),
            ("k8s.namespace.name", meta.namespace.as_str()),
        ];
        attributes.map(|(key, value)| (key, value.to_owned())).to_vec()
    });
    let done = span.around(sync_untraced(context)).await;
    if let WorkResult::Synced { failure: Some(failure), .. } = &done.result {
        span.fail(|| failure.clone());
    }
    done
}

async fn sync_untraced(context: SyncContext<'_>) -> WorkDone {
    let SyncContext { plan, observed, runtime, cancel, views, .. } = context;
    let uid = observed.uid.clone();
    let mut warnings = Vec::new();
    let prepared = match prepare_claims(context).await {
        Ok(()) => prepare_devices(context).await,
        Err(error) => Err(error),
    };
    let begun = rt::now();
    let executed = match prepared {
        Ok(()) => set_up_and_execute(context, &mut warnings).await,
        Err(error) => failed(error.reason(), &error, &mut warnings),
    };
    let ExecuteResult { containers, mut failure, resize_failure } = executed;
    if plan.resizes() {
        // Upstream's metric counts milliseconds: `pod_resize_duration_milliseconds`.
        let is_done = if failure.is_none() && resize_failure.is_none() { "true" } else { "false" };
        metrics::took_millis(Timed::PodResizes, &[is_done], rt::elapsed(begun));
    }
    let look = async { Some(runtime.observe_pod(&uid, &views.observed).await) };
    let cancelled = async {
        cancel.cancelled().await;
        None
    };
    let observation = match rt::either(cancelled, look).await {
        Some(Ok(observation)) => Some(observation),
        Some(Err(error)) => {
            // The steps may have been done, and must not be repeated without an observation. The retry starts with one.
            failure.get_or_insert_with(|| ErrorChain(&error).to_string());
            None
        }
        // The next work observes the pod itself.
        None => None,
    };
    WorkDone { uid, observation, result: WorkResult::Synced { containers, failure, resize_failure, warnings } }
}

/// Prepares the pod's claims. A pod does not start without them. The devices of a sandbox's claims stay prepared while
/// it exists.
async fn prepare_claims(context: SyncContext<'_>) -> Result<(), SyncError> {
    let SyncContext { pod, plan, .. } = context;
    if !plan.creates_sandbox() && (!plan.starts() || context.dra.is_recorded(pod)) {
        return Ok(());
    }
    let cancelled = async {
        context.cancel.cancelled().await;
        Err(DraError::PodEnds)
    };
    rt::either(cancelled, context.dra.prepare(pod, &context.views.objects)).await.map_err(SyncError::Claims)
}

/// Prepares the pod's devices. A pod does not start without them.
async fn prepare_devices(context: SyncContext<'_>) -> Result<(), SyncError> {
    let SyncContext { pod, plan, observed, inbox, .. } = context;
    if !plan.starts() {
        return Ok(());
    }
    let runs = |name: &str| observed.container(name).is_some_and(|container| container.is_running());
    let cancelled = async {
        context.cancel.cancelled().await;
        Err(DeviceError::PodEnds)
    };
    match rt::either(cancelled, context.devices.prepare(pod, &runs)).await {
        Ok(()) => Ok(()),
        // A static pod waits: nothing creates it again, and plugins are often pods that start at the same time.
        Err(error) if error.is_refusal() && !pod.is_static() => {
            let why = ErrorChain(&error).to_string();
            // The loop outlives its workers.
            let _ = inbox.send(SyncEvent::DevicesRefused(pod.metadata.uid.clone(), why)).await;
            Err(SyncError::DevicesRefused(error))
        }
        Err(error) => Err(SyncError::Devices(error)),
    }
}

/// The result of a sync that failed before its first step.
fn failed(reason: Reason, error: &(dyn Error + 'static), warnings: &mut Vec<(Reason, String)>) -> ExecuteResult {
    let failure = ErrorChain(error).to_string();
    warnings.push((reason, failure.clone()));
    ExecuteResult { failure: Some(failure), ..ExecuteResult::default() }
}

/// Creates or updates the pod's cgroup, in which its sandbox is created. Returns the sandbox that runs outside of it,
/// because the cgroup was missing. The look at all pods after a relist finds only cgroups that are still missing.
async fn ensure_cgroup(context: SyncContext<'_>) -> Result<Option<String>, SyncError> {
    let SyncContext { pod, plan, observed, .. } = context;
    let is_new = context.groups.ensure_pod(pod).await.map_err(SyncError::Cgroup)?;
    // Until the runtime has told its driver, the cgroup's name is a guess, and a new one proves nothing.
    let is_outside = is_new && !plan.creates_sandbox() && context.runtime.has_reported_cgroup_driver();
    Ok(observed.ready_sandbox().filter(|_| is_outside).map(|sandbox| sandbox.id.clone()))
}

/// Names the volumes that may hang. The message is upstream's.
fn volumes_take_long(pod: &Pod) -> PodEvent {
    use VolumeSource::{Csi, Ephemeral, HostPath, Nfs, PersistentVolumeClaim};
    let may_hang = |volume: &&Volume| {
        matches!(volume.source, Csi(_) | Ephemeral(_) | HostPath(_) | Nfs(_) | PersistentVolumeClaim(_))
    };
    let mut names: Vec<&str> = pod.spec.volumes.iter().filter(may_hang).map(|volume| &*volume.name).collect();
    names.sort_once();
    let message = format!(
        "Unable to attach or mount volumes: unmounted volumes=[{}], unattached volumes=[], failed to process \
         volumes=[]: context deadline exceeded",
        names.join(" ")
    );
    PodEvent::of_pod(&pod.metadata.uid, EventKind::Warning, Reason::FAILED_MOUNT, message)
}

async fn set_up_and_execute(context: SyncContext<'_>, warnings: &mut Vec<(Reason, String)>) -> ExecuteResult {
    let SyncContext { pod, plan, observed, inbox, runtime, groups, devices, csi, dra, views, cancel } = context;
    if plan.starts() || plan.resizes() {
        // A restart must not admit the pod with other amounts than those that its containers have.
        runtime.allocations().allocated.flush().await;
    }
    if runtime.remover.is_removing_files_of(pod) {
        let error = SyncError::FormerFiles;
        return failed(error.reason(), &error, warnings);
    }
    let resize = PodResize { runtime, groups, pod, observed };
    let mut steps = None;
    let mut resize_failure = None;
    if plan.resizes() {
        match resize.begin().await {
            Ok(begun) => steps = Some(begun),
            Err(error) => resize_failure = Some(ErrorChain(&error).to_string()),
        }
    } else if !plan.resize_waits {
        match ensure_cgroup(context).await {
            Ok(None) => {}
            Ok(Some(sandbox)) => {
                // The next plan replaces the sandbox. The loop outlives its workers.
                let _ = inbox.send(SyncEvent::Groupless(pod.metadata.uid.clone(), sandbox)).await;
                return ExecuteResult::default();
            }
            Err(error) => {
                return failed(error.reason(), &error, warnings);
            }
        }
    }
    let plan = match resize_failure {
        None => Cow::Borrowed(plan),
        // The other containers are not affected.
        Some(_) => Cow::Owned(plan.without_resizes()),
    };
    let ends = cancel.to_cancelled();
    let set_up = {
        // Read before the await: the sync loop writes the objects meanwhile.
        let objects = views.objects.read();
        if let (true, Err(error)) = (plan.creates_sandbox(), volumes::check_node_affinity(pod, &objects)) {
            return failed(error.reason(), &error, warnings);
        }
        volumes::set_up(pod, SetUpInputs { dirs: &runtime.dirs, node: &runtime.node, objects: &objects }, csi, ends)
    };
    let set_up = rt::reporting(VOLUMES_WARNING_INTERVAL, set_up, || {
        let event = volumes_take_long(pod);
        // A best-effort event: dropped when the inbox is full.
        let _ = inbox.try_send(SyncEvent::PodEvent(event));
    });
    let volumes = match set_up.await {
        Ok(volumes) => volumes,
        Err(error) => return failed(error.reason(), &error, warnings),
    };
    let kept = volumes.stale_errors.iter().map(|error| (error.reason(), ErrorChain(error).to_string()));
    warnings.extend(kept);
    let sync = PodSync { pod, observed, volumes: &volumes, devices, dra, views, cancel };
    let mut executed = runtime.execute(sync, &plan).await;
    if plan.creates_sandbox() {
        runtime.resources.record_pod(pod);
    }
    executed.resize_failure = resize_failure.or(executed.resize_failure);
    if let Some(steps) = steps.filter(|_| executed.failure.is_none() && executed.resize_failure.is_none()) {
        executed.resize_failure = resize.end(steps.as_ref()).await.err().map(|error| ErrorChain(&error).to_string());
    }
    executed
}
