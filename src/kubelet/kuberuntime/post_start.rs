//! The `postStart` hook of a container that has just started.

use std::net::IpAddr;
use std::time::Duration;

use crate::kubelet::kuberuntime::hooks::{Hook, HookFailure, PodName};
use crate::kubelet::kuberuntime::kill::ContainerKill;
use crate::kubelet::kuberuntime::stop_order::TerminationTurn;
use crate::kubelet::kuberuntime::{CancelWatch, PodRuntime};
use crate::platform::rt;
use crate::state::pods::Waiting;
use crate::types::api::{Container, EventKind, Pod, Reason};
use crate::types::error::ErrorChain;

/// A container that is running or about to.
pub(super) struct StartedContainer<'a> {
    pub(super) pod: &'a Pod,
    pub(super) container: &'a Container,
    pub(super) id: &'a str,
    /// `None` for a host-network pod, or if the sandbox has no address.
    pub(super) sandbox_ip: Option<IpAddr>,
}

/// Timeout of a postStart hook; upstream has none.
const POST_START_HOOK_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

impl PodRuntime {
    /// Runs the postStart hook. If it fails, the container is stopped, and the error says why it waits.
    pub(super) async fn after_start(
        &self,
        started: &StartedContainer<'_>,
        cancel: &CancelWatch,
    ) -> Result<(), Waiting> {
        let StartedContainer { pod, container, id, sandbox_ip } = *started;
        let Some(handler) = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.post_start.as_ref()) else {
            return Ok(());
        };
        let meta = &pod.metadata;
        let name = PodName { name: &meta.name, namespace: &meta.namespace, uid: &meta.uid };
        let ip = if pod.spec.host_network { Some(self.node.node_ips.own_address()) } else { sandbox_ip };
        let hook = self.hooks.run(Hook { pod: name, container, id, ip, handler, limit: POST_START_HOOK_TIMEOUT });
        // Cancelled when the pod is terminating.
        let cancelled = async {
            cancel.cancelled().await;
            Ok(())
        };
        let message = match rt::either(cancelled, hook).await {
            Ok(()) => return Ok(()),
            Err(HookFailure::Failed(message)) => message,
            Err(HookFailure::Late) => "PostStartHook not done in time".to_owned(),
        };
        log!(debug, "postStart hook failed", pod = meta.uid, container = container.name, error = message);
        // As upstream, the event has no details, because the hook's output may be secret.
        let reason = Reason::FAILED_POST_START_HOOK;
        self.recorder.record_event(&meta.uid, &container.name, EventKind::Warning, reason, "PostStartHook failed");
        let kill = ContainerKill {
            pod: name,
            name: &container.name,
            id,
            spec: Some(container),
            runs: true,
            ip,
            grace: pod.spec.termination_grace(),
            message: "FailedPostStartHook".to_owned(),
            stop_order: TerminationTurn::default(),
            cancel: Some(cancel),
            survivor: None,
        };
        if let Err(error) = self.kill_container(kill).await {
            log!(
                warn,
                "failed to kill container after its postStart hook",
                container = container.name,
                error = ErrorChain(&error)
            );
        }
        // Only the crash-loop back-off delays the next start.
        let until = Some(rt::now());
        Err(Waiting { until, ..Waiting::new(Reason::POST_START_HOOK_ERROR, message) })
    }
}
