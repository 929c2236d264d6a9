//! Stops containers and sandboxes, with grace periods and preStop hooks.

use std::net::IpAddr;
use std::pin::Pin;
use std::time::{Duration, Instant};

use crate::kubelet::kuberuntime::cancel::unless_cancelled;
use crate::kubelet::kuberuntime::error::KillError;
use crate::kubelet::kuberuntime::grace::grace_of_kill;
use crate::kubelet::kuberuntime::hooks::{Hook, HookFailure, PodName};
use crate::kubelet::kuberuntime::network_results::{ignore_not_found, stop_sandbox};
use crate::kubelet::kuberuntime::pod_actions::KillReason;
use crate::kubelet::kuberuntime::stop_order::{TerminationTurn, stop_order};
use crate::kubelet::kuberuntime::survivor_plan::{Scope, Survivor, SurvivorSearch, has_impossible_hook, message};
use crate::kubelet::kuberuntime::{CancelWatch, ContainerIndex, PodRuntime, labels};
use crate::platform::rt;
use crate::state::pods::{ObservedContainer, ObservedPod, SandboxState};
use crate::types::api::{Container, EventKind, Pod, PodUid, Reason};
use crate::types::sorted::SortedSet;

/// The minimum time left for a container after its hook (kubelet: `minimumGracePeriodInSeconds`).
const MIN_GRACE_AFTER_HOOK: Duration = Duration::from_secs(2);
/// The API's default grace period, if nothing else is known.
const DEFAULT_GRACE_PERIOD: Duration = Duration::from_secs(30);

/// A container to stop.
pub(super) struct ContainerKill<'a> {
    pub(super) pod: PodName<'a>,
    pub(super) name: &'a str,
    pub(super) id: &'a str,
    /// The container's spec; if `None`, its annotations are used.
    pub(super) spec: Option<&'a Container>,
    /// preStop hooks run only in running containers.
    pub(super) runs: bool,
    /// The address for hooks.
    pub(super) ip: Option<IpAddr>,
    /// The grace period, which includes the hook and the wait for other containers.
    pub(super) grace: Duration,
    /// Message of the `Killing` event.
    pub(super) message: String,
    pub(super) stop_order: TerminationTurn,
    /// When cancelled, neither the hook nor the container's end is waited for: the work that follows stops the container
    /// within its own grace period.
    pub(super) cancel: Option<&'a CancelWatch>,
    /// The processes to end, which the runtime cannot stop.
    pub(super) survivor: Option<&'a Survivor<'a>>,
}

impl PodRuntime {
    /// Stops all containers of the pod concurrently, sidecars after the main containers, and then every sandbox.
    /// Afterwards no process of the pod is left, unless it belongs to no container, or the kill was cancelled. `grace`
    /// overrides the containers' annotated grace periods.
    pub(crate) async fn kill_pod(
        &self,
        pod: Option<&Pod>,
        observed: &ObservedPod,
        grace: Option<Duration>,
        cancel: Option<&CancelWatch>,
    ) -> Result<(), KillError> {
        let specs = pod.map(|pod| pod.spec.containers_by_name()).unwrap_or_default();
        let running = observed.containers.iter().filter(|container| observed.may_run(container));
        let kills = running.map(|container| {
            let grace = grace.or(container.grace).unwrap_or(DEFAULT_GRACE_PERIOD);
            let message = format!("Stopping container {}", container.name);
            let kill = self.kill_of(specs.get(container.name.as_str()).copied(), observed, container, grace, message);
            ContainerKill { cancel, ..kill }
        });
        self.kill_in_turn(pod, kills.collect()).await?;
        let is_cancelled = || cancel.is_some_and(CancelWatch::is_cancelled);
        if is_cancelled() {
            return Ok(());
        }
        // While the pod still has its network.
        let search = SurvivorSearch { pod, observed, scope: Scope::Containers, grace, cancel };
        self.end_survivors(search).await?;
        if is_cancelled() {
            return Ok(());
        }
        // Also those that are not ready: their network may still be set up, and StopPodSandbox is idempotent.
        for sandbox in &observed.sandboxes {
            if sandbox.state == SandboxState::Ready || observed.newest_sandbox() == Some(sandbox) {
                stop_sandbox(&self.cri_for(&observed.uid), &sandbox.id).await?;
            }
        }
        self.end_survivors(SurvivorSearch { scope: Scope::Pod, ..search }).await
    }

    /// Stops these containers in the same order while the pod continues.
    pub(super) async fn kill_containers(
        &self,
        pod: &Pod,
        observed: &ObservedPod,
        (ids, why): (&[String], KillReason),
        cancel: &CancelWatch,
    ) -> Result<(), KillError> {
        let indices = (0..pod.spec.init_containers.len()).map(ContainerIndex::Init);
        let indices = indices.chain((0..pod.spec.containers.len()).map(ContainerIndex::Main));
        let ids: SortedSet<&String> = ids.iter().collect();
        let kills = indices.filter_map(|index| {
            let spec = index.of(pod)?;
            let running = observed.container(&spec.name).filter(|container| ids.contains(&container.id))?;
            let message = why.message(&spec.name, index, true);
            let kill = self.kill_of(Some(spec), observed, running, grace_of_kill(pod, spec, why), message);
            Some(ContainerKill { cancel: Some(cancel), ..kill })
        });
        self.kill_in_turn(Some(pod), kills.collect()).await
    }

    /// Concurrently, except that sidecars wait for the main containers.
    pub(super) async fn kill_in_turn(&self, pod: Option<&Pod>, kills: Vec<ContainerKill<'_>>) -> Result<(), KillError> {
        let names: Vec<&str> = kills.iter().map(|kill| kill.name).collect();
        let turns = stop_order(pod.map(|pod| &pod.spec), &names);
        let kills = kills.into_iter().zip(turns).map(|(kill, turn)| {
            Box::pin(self.kill_container(ContainerKill { stop_order: turn, ..kill }))
                as Pin<Box<dyn Future<Output = Result<(), KillError>> + '_>>
        });
        let mut result = Ok(());
        for killed in rt::all(kills.collect()).await {
            result = result.and(killed);
        }
        result
    }

    /// The kill of an observed container.
    pub(super) fn kill_of<'a>(
        &self,
        spec: Option<&'a Container>,
        observed: &'a ObservedPod,
        container: &'a ObservedContainer,
        grace: Duration,
        message: String,
    ) -> ContainerKill<'a> {
        ContainerKill {
            pod: PodName { name: &observed.name, namespace: &observed.namespace, uid: &observed.uid },
            name: &container.name,
            id: &container.id,
            spec,
            runs: container.is_running(),
            ip: self.hooks.address_of(observed, container),
            grace,
            message,
            stop_order: TerminationTurn::default(),
            cancel: None,
            survivor: None,
        }
    }

    /// The kill of a container that the runtime does not list, or of a sandbox.
    pub(super) fn kill_of_unknown<'a>(
        observed: &'a ObservedPod,
        survivor: &'a Survivor<'a>,
        grace: Duration,
    ) -> ContainerKill<'a> {
        ContainerKill {
            pod: PodName { name: &observed.name, namespace: &observed.namespace, uid: &observed.uid },
            name: "",
            id: &survivor.id,
            spec: None,
            runs: false,
            ip: None,
            grace,
            message: message(survivor, None, grace),
            stop_order: TerminationTurn::default(),
            cancel: None,
            survivor: Some(survivor),
        }
    }

    /// Runs the hook, waits for other containers and sends the signal, all within the grace period except for the
    /// minimum. As upstream, a hook that outlasts the grace period runs until its container has stopped.
    pub(super) async fn kill_container(&self, kill: ContainerKill<'_>) -> Result<(), KillError> {
        match kill.survivor {
            None => {
                self.recorder.record_event(kill.pod.uid, kill.name, EventKind::Normal, Reason::KILLING, &kill.message)
            }
            Some(survivor) => self.record_survivor(&kill, survivor),
        }
        let earlier = self.stops.end_of(kill.id);
        let end = rt::now() + kill.grace;
        let mut hook: Option<Pin<Box<dyn Future<Output = ()> + '_>>> = None;
        if kill.runs && earlier.is_none() && !kill.grace.is_zero() {
            let mut running: Pin<Box<dyn Future<Output = ()> + '_>> = Box::pin(self.before_stop(&kill));
            let in_time = async { rt::deadline(kill.grace, running.as_mut()).await.is_ok() };
            let is_over = unless_cancelled(kill.cancel, in_time).await.unwrap_or(true);
            if !is_over {
                log!(info, "preStop hook not done in time", pod = kill.pod.uid, container = kill.name);
                hook = Some(running);
            }
        }
        if kill.cancel.is_some_and(CancelWatch::is_cancelled) {
            return Ok(());
        }
        let stop = async {
            // Afterwards it stops in any case.
            let _ = rt::deadline(end.saturating_duration_since(rt::now()), kill.stop_order.wait()).await;
            let left_until = |end: Instant| end.saturating_duration_since(rt::now());
            let grace_left = left_until(end).max(MIN_GRACE_AFTER_HOOK);
            let grace_left = earlier.map_or(grace_left, |earlier| grace_left.min(left_until(earlier)));
            if let Some(survivor) = kill.survivor {
                self.end_processes(&kill, survivor, grace_left).await;
                return Ok(());
            }
            self.stops.begin(kill.id, rt::now() + grace_left, rt::now());
            let stopped = self.cri_for(kill.pod.uid).stop_container(kill.id, grace_left).await;
            self.stops.answered(kill.id);
            Ok(ignore_not_found(stopped)?)
        };
        let hook = async {
            if let Some(hook) = hook {
                hook.await;
            }
            std::future::pending().await
        };
        unless_cancelled(kill.cancel, rt::either(hook, stop)).await.unwrap_or(Ok(()))
    }

    async fn before_stop(&self, kill: &ContainerKill<'_>) {
        let ContainerKill { pod, id, ip, .. } = *kill;
        let written;
        let container = match kill.spec {
            Some(container) => container,
            None => {
                written = self.as_written(pod.uid, id).await.unwrap_or_default();
                &written
            }
        };
        if kill.survivor.is_some() && has_impossible_hook(container) {
            return;
        }
        let Some(handler) = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_stop.as_ref()) else {
            return;
        };
        // The container itself ends the hook: it is killed when its grace period has passed.
        let limit = kill.grace.saturating_add(MIN_GRACE_AFTER_HOOK * 2);
        match self.hooks.run(Hook { pod, container, id, ip, handler, limit }).await {
            Ok(()) | Err(HookFailure::Late) => {}
            Err(HookFailure::Failed(why)) => {
                // As upstream, the event has no details, because the hook's output may be secret.
                log!(debug, "preStop hook failed", pod = pod.uid, container = kill.name, error = why);
                let reason = Reason::FAILED_PRE_STOP_HOOK;
                self.recorder.record_event(pod.uid, kill.name, EventKind::Warning, reason, "PreStopHook failed");
            }
        }
    }

    /// The container from its annotations, if its pod is unknown.
    async fn as_written(&self, pod: &PodUid, id: &str) -> Option<Container> {
        let status = self.cri_for(pod).container_status(id, false).await.ok()?.status?;
        Some(labels::restored_container(&status.labels, &status.annotations))
    }
}
