//! Runs the `postStart` and `preStop` hooks of containers: a command, an HTTP request, a sleep.

use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use crate::kubelet::kuberuntime::record_event::EventRecorder;
use crate::kubelet::node::NodeSettings;
use crate::platform::cri::RuntimeService;
use crate::platform::net::{Dialer, GetError, Headers, Purpose, TlsError, Url};
use crate::platform::rt;
use crate::protocol::grpc::Code;
use crate::state::pods::{ObservedContainer, ObservedPod};
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

/// Runs hooks, in containers and by requests.
pub(super) struct Hooks {
    pub(super) cri: RuntimeService,
    pub(super) dialer: Dialer,
    pub(super) node: Rc<NodeSettings>,
    pub(super) recorder: EventRecorder,
}

impl Hooks {
    /// Boxed, because few containers have hooks and otherwise every pod worker's future would have room for one.
    pub(super) fn run<'a>(&'a self, hook: Hook<'a>) -> Pin<Box<dyn Future<Output = Result<(), HookFailure>> + 'a>> {
        let limit = hook.limit;
        let run = async move {
            match &hook.handler.action {
                LifecycleAction::Exec(action) => self.run_command(&hook, action).await,
                LifecycleAction::HttpGet(action) => self.get_url(&hook, action).await,
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

    async fn run_command(&self, hook: &Hook<'_>, action: &ExecAction) -> Result<(), HookFailure> {
        let command = action.command.to_vec();
        let (error, output) = match self.cri.exec_hook(hook.pod.uid.as_str(), hook.id, &command, hook.limit).await {
            Ok(response) if response.exit_code == 0 => return Ok(()),
            Ok(response) => {
                let stderr = String::from_utf8_lossy(&response.stderr).into_owned();
                let error = format!("command '{}' exited with {}: {stderr}", command.join(" "), response.exit_code);
                (error, String::from_utf8_lossy(&response.stdout).into_owned() + &stderr)
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

    /// Any response counts as success whatever its status, as in upstream's `runHTTPHandler`.
    async fn get_url(&self, hook: &Hook<'_>, action: &HttpGetAction) -> Result<(), HookFailure> {
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
        let dialer = self.dialer.of_pod(hook.pod.uid.as_str());
        let error = match dialer.get(&url, &headers, hook.limit).await {
            Ok(_) | Err(GetError::Body(_)) => return Ok(()),
            Err(GetError::Timeout) => return Err(HookFailure::Late),
            Err(error) => error,
        };
        let is_plain = matches!(error, GetError::Tls(TlsError::Http));
        if is_plain && self.get_without_tls(&dialer, hook, &url, headers).await {
            return Ok(());
        }
        failed(&format_args!("Get {:?}: {error}", url.to_string()))
    }

    /// Retries an HTTPS hook with HTTP, for hooks written when only HTTP was supported (kubelet: `runHTTPHandler`).
    async fn get_without_tls(&self, dialer: &Dialer, hook: &Hook<'_>, url: &Url, headers: Headers) -> bool {
        let mut open = url.clone();
        open.scheme = UriScheme::Http;
        // Credentials that are meant for TLS are not sent in plain text.
        let headers = headers.without_authorization();
        if !matches!(dialer.get(&open, &headers, hook.limit).await, Ok(_) | Err(GetError::Body(_))) {
            return false;
        }
        let host = url.authority();
        let message = format!("request to HTTPS lifecycle hook {host} got HTTP response, retry with HTTP succeeded");
        self.recorder.record_pod_event(hook.pod.uid, EventKind::Warning, Reason::LIFECYCLE_HTTP_FALLBACK, message);
        true
    }

    /// The address for the hooks of a running container.
    pub(super) fn address_of(&self, observed: &ObservedPod, container: &ObservedContainer) -> Option<IpAddr> {
        let sandbox = observed.sandboxes.iter().find(|sandbox| sandbox.id == container.sandbox_id)?;
        if sandbox.host_network {
            Some(self.node.node_ips.own_address())
        } else {
            self.node.node_ips.of_pod(&sandbox.ips).first().copied()
        }
    }
}

impl Hook<'_> {
    fn failed(&self, hook: std::fmt::Arguments<'_>, why: std::fmt::Arguments<'_>) -> HookFailure {
        let PodName { name, namespace, uid } = self.pod;
        let container = &self.container.name;
        HookFailure::Failed(format!(
            "{hook} for Container {container:?} in Pod \"{name}_{namespace}({uid})\" failed - error: {why}"
        ))
    }
}
