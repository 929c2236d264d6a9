//! Lifecycle hooks: exec, HTTP or sleep, after the start and before the stop of a container.

use std::net::IpAddr;
use std::pin::Pin;
use std::time::Duration;

use crate::kubelet::kuberuntime::execute::Started;
use crate::kubelet::kuberuntime::kill::{Kill, Turn};
use crate::kubelet::kuberuntime::{CancelWatch, PodRuntime};
use crate::platform::net::{GetError, Headers, Purpose, TlsError, Url};
use crate::platform::rt;
use crate::protocol::grpc::Code;
use crate::state::pods::{ObservedContainer, ObservedPod, Waiting};
use crate::types::api::{
    Container, EventKind, ExecAction, HttpGetAction, LifecycleAction, LifecycleHandler, PodUid, Reason, UriScheme,
};
use crate::types::error::ErrorChain;

/// A hook of a running container.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hook<'a> {
    pub(super) pod: PodName<'a>,
    pub(super) container: &'a Container,
    /// The container instance.
    pub(super) id: &'a str,
    /// The pod's address.
    pub(super) ip: Option<IpAddr>,
    pub(super) handler: &'a LifecycleHandler,
    pub(super) limit: Duration,
}

/// A pod in the format of upstream's messages: `name_namespace(uid)`.
#[derive(Clone, Copy, Debug)]
pub(super) struct PodName<'a> {
    pub(super) name: &'a str,
    pub(super) namespace: &'a str,
    pub(super) uid: &'a PodUid,
}

/// Why a hook failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HookFailure {
    Failed(String),
    /// The timeout has passed.
    Late,
}

/// Upstream has no timeout for postStart hooks; this is a practical bound.
pub(super) const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

impl PodRuntime {
    /// Boxed, because few containers have hooks and otherwise every pod worker's future would have room for one.
    pub(super) fn run_hook<'a>(
        &'a self,
        hook: Hook<'a>,
    ) -> Pin<Box<dyn Future<Output = Result<(), HookFailure>> + 'a>> {
        let limit = hook.limit;
        let run = async move {
            match &hook.handler.action {
                LifecycleAction::Exec(action) => self.run_command(&hook, action).await,
                LifecycleAction::HttpGet(action) => self.ask_page(&hook, action).await,
                LifecycleAction::Sleep(action) => {
                    rt::sleep(Duration::from_secs(u64::try_from(action.seconds).unwrap_or(0))).await;
                    Ok(())
                }
                LifecycleAction::TcpSocket(_) => {
                    Err(HookFailure::Failed("Cannot run handler: invalid handler: tcpSocket".to_owned()))
                }
            }
        };
        Box::pin(async move { rt::deadline(limit, run).await.unwrap_or(Err(HookFailure::Late)) })
    }

    /// Runs the postStart hook. If it fails, the container is killed and the error is its waiting reason.
    pub(super) async fn after_start(&self, started: &Started<'_>, cancel: &CancelWatch) -> Result<(), Waiting> {
        let Started { pod, container, id, sandbox } = *started;
        let Some(handler) = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.post_start.as_ref()) else {
            return Ok(());
        };
        let meta = &pod.metadata;
        let name = PodName { name: &meta.name, namespace: &meta.namespace, uid: &meta.uid };
        let ip = if pod.spec.host_network { Some(self.node.own_address()) } else { sandbox.ips.first().copied() };
        let hook = self.run_hook(Hook { pod: name, container, id, ip, handler, limit: LONGEST });
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
        self.tell(&meta.uid, &container.name, EventKind::Warning, reason, "PostStartHook failed");
        let kill = Kill {
            pod: name,
            name: &container.name,
            id,
            spec: Some(container),
            runs: true,
            ip,
            grace: pod.spec.termination_grace(),
            message: "FailedPostStartHook".to_owned(),
            turn: Turn::default(),
            cancel: Some(cancel),
        };
        if let Err(error) = self.kill_container(kill).await {
            log!(
                warn,
                "failed to kill container after its postStart hook",
                container = container.name,
                error = ErrorChain(&error)
            );
        }
        // Only the crash-loop back-off delays the restart.
        let until = Some(rt::now());
        Err(Waiting { until, ..Waiting::new(Reason::POST_START_HOOK_ERROR, message) })
    }

    async fn run_command(&self, hook: &Hook<'_>, action: &ExecAction) -> Result<(), HookFailure> {
        let command = &action.command;
        let (error, output) = match self.cri.exec_sync(hook.id, command, hook.limit).await {
            Ok(answer) if answer.exit_code == 0 => return Ok(()),
            Ok(answer) => {
                let stderr = String::from_utf8_lossy(&answer.stderr).into_owned();
                let error = format!("command '{}' exited with {}: {stderr}", command.join(" "), answer.exit_code);
                (error, String::from_utf8_lossy(&answer.stdout).into_owned() + &stderr)
            }
            Err(error) => match error.status() {
                Some(status) if status.code == Code::DeadlineExceeded => return Err(HookFailure::Late),
                Some(status) => (format!("rpc error: code = {} desc = {}", status.code, status.message), String::new()),
                None => (ErrorChain(&error).to_string(), String::new()),
            },
        };
        let what = format_args!("Exec lifecycle hook ([{}])", command.join(" "));
        Err(hook.failed(what, format_args!("{error}, message: {output:?}")))
    }

    /// Any response counts as success.
    async fn ask_page(&self, hook: &Hook<'_>, action: &HttpGetAction) -> Result<(), HookFailure> {
        let failed = |error: &dyn std::fmt::Display| {
            Err(hook.failed(format_args!("HTTP lifecycle hook ({})", action.path), format_args!("{error}")))
        };
        let host = match (action.host.as_str(), hook.ip) {
            ("", Some(ip)) => ip.to_string(),
            ("", None) => return failed(&"failed to find networking container"),
            (host, _) => host.to_owned(),
        };
        let port = match hook.container.port(&action.port) {
            Ok(port) => port,
            Err(error) => return failed(&error),
        };
        let url = Url::new(action.scheme, &host, port, &action.path);
        let headers = Headers::new(&action.http_headers, Purpose::Lifecycle);
        let error = match self.dialer.get(&url, &headers, hook.limit).await {
            Ok(_) | Err(GetError::Body(_)) => return Ok(()),
            Err(GetError::Timeout) => return Err(HookFailure::Late),
            Err(error) => error,
        };
        let is_plain = matches!(error, GetError::Tls(TlsError::Http));
        if is_plain && self.ask_in_the_open(hook, &url, headers).await {
            return Ok(());
        }
        failed(&format_args!("Get {:?}: {error}", url.to_string()))
    }

    /// Retries an HTTPS hook with HTTP, for hooks written when only HTTP was supported (kubelet: `runHTTPHandler`).
    async fn ask_in_the_open(&self, hook: &Hook<'_>, url: &Url, headers: Headers) -> bool {
        let mut open = url.clone();
        open.scheme = UriScheme::Http;
        let headers = headers.without_authorization();
        if !matches!(self.dialer.get(&open, &headers, hook.limit).await, Ok(_) | Err(GetError::Body(_))) {
            return false;
        }
        let host = url.authority();
        let told = format!("request to HTTPS lifecycle hook {host} got HTTP response, retry with HTTP succeeded");
        self.tell_of_pod(hook.pod.uid, EventKind::Warning, Reason::LIFECYCLE_HTTP_FALLBACK, told);
        true
    }

    /// The address for the hooks of a running container.
    pub(super) fn address_of(&self, observed: &ObservedPod, container: &ObservedContainer) -> Option<IpAddr> {
        let sandbox = observed.sandboxes.iter().find(|sandbox| sandbox.id == container.sandbox_id)?;
        if sandbox.host_network { Some(self.node.own_address()) } else { sandbox.ips.first().copied() }
    }
}

impl Hook<'_> {
    fn failed(&self, what: std::fmt::Arguments<'_>, why: std::fmt::Arguments<'_>) -> HookFailure {
        let PodName { name, namespace, uid } = self.pod;
        let container = &self.container.name;
        HookFailure::Failed(format!(
            "{what} for Container {container:?} in Pod \"{name}_{namespace}({uid})\" failed - error: {why}"
        ))
    }
}
