//! Runs one probe attempt: exec, HTTP, TCP or gRPC.

use std::net::IpAddr;
use std::time::Duration;

use async_channel::Sender;

use crate::kubelet::probes::outcome::Outcome;
use crate::kubelet::probes::results::seconds;
use crate::kubelet::probes::{grpc, host, http, tcp};
use crate::platform::cri::{self, RuntimeService};
use crate::platform::net::Dialer;
use crate::protocol::grpc::Code;
use crate::state::pods::SyncEvent;
use crate::types::api::{CommandTooLong, Container, ExecAction, IntOrString, Probe, ProbeHandler, expand_command};
use crate::types::error::ErrorChain;
use crate::types::sorted::SortedMap;
use crate::types::text;

pub(super) struct Prober {
    cri: RuntimeService,
    pub(super) dialer: Dialer,
    pub(super) inbox: Sender<SyncEvent>,
}

/// Output limit of exec probes, in bytes.
const MAX_PROBE_OUTPUT_BYTES: usize = 10 * 1024;

impl Prober {
    pub(super) fn new(cri: RuntimeService, dialer: Dialer, inbox: Sender<SyncEvent>) -> Self {
        Self { cri, dialer, inbox }
    }

    /// Probes the instance `id`, whose pod has the address `ip`. `dialer` is the probe's own.
    pub(super) async fn probe(
        &self,
        dialer: &Dialer,
        pod: &str,
        container: &Container,
        probe: &Probe,
        id: &str,
        ip: Option<IpAddr>,
    ) -> Outcome {
        let limit = seconds(probe.timeout_seconds).max(Duration::from_secs(1));
        match &probe.handler {
            ProbeHandler::Exec(action) => self.exec(pod, container, action, id, limit).await,
            ProbeHandler::TcpSocket(action) => match container.port(&action.port) {
                Ok(port) => tcp::probe(dialer, &host(&action.host, ip), port, limit).await,
                Err(error) => Outcome::unknown(error),
            },
            ProbeHandler::HttpGet(action) => http::probe(dialer, container, action, ip, limit).await,
            ProbeHandler::Grpc(action) => match container.port(&IntOrString::Int(action.port)) {
                Ok(port) => {
                    let service = action.service.as_deref().unwrap_or_default();
                    grpc::probe(dialer, &host("", ip), port, service, limit).await
                }
                Err(error) => Outcome::unknown(error),
            },
        }
    }

    async fn exec(&self, pod: &str, container: &Container, action: &ExecAction, id: &str, limit: Duration) -> Outcome {
        let command = match command(container, action) {
            Ok(command) => command,
            Err(error) => return Outcome::unknown(error),
        };
        match self.cri.exec_sync(pod, id, &command, limit).await {
            Ok(response) if response.exit_code == 0 => Outcome::Passed,
            Ok(response) => {
                let mut output = response.stdout;
                output.extend_from_slice(&response.stderr);
                output.truncate(MAX_PROBE_OUTPUT_BYTES);
                let mut output = String::from_utf8_lossy(&output).into_owned();
                // Each invalid byte has become three.
                text::cut(&mut output, MAX_PROBE_OUTPUT_BYTES);
                Outcome::Failed(output)
            }
            Err(error) if error.status().is_some_and(|status| status.code == Code::DeadlineExceeded) => {
                let command = command.join(" ");
                Outcome::Failed(format!("command timed out: {command:?} timed out after {}s", limit.as_secs()))
            }
            Err(error) => Outcome::unknown(exec_error(&error)),
        }
    }
}

/// The command with only literal values of the spec, without `valueFrom` and without expansion, as in the upstream
/// kubelet.
pub(crate) fn command(container: &Container, action: &ExecAction) -> Result<Vec<String>, CommandTooLong> {
    let has_references = action.command.iter().any(|word| word.contains("$("));
    let literals = container.env.iter().filter(|_| has_references);
    let literals: SortedMap<&str, &[u8]> = literals.map(|env| (env.name, env.value.as_bytes())).collect();
    expand_command(&action.command, &mut 0, &|name| literals.get(name).copied())
}

/// The runtime's error in upstream's format.
fn exec_error(error: &cri::Error) -> String {
    match error.status() {
        Some(status) => format!("rpc error: code = {} desc = {}", status.code, status.message),
        None => ErrorChain(error).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::types::api::decode;

    /// The command of as many words, each a variable of 100 KiB.
    fn expanded(words: usize) -> Result<Vec<String>, CommandTooLong> {
        let container = json!({"name": "main", "env": [{"name": "A", "value": "x".repeat(100 << 10)}]});
        let action = ExecAction { command: vec!["$(A)"; words].into_iter().collect() };
        command(&decode(container).unwrap().value, &action)
    }

    #[test]
    fn probe_command_is_expanded_to_the_kernels_limit_at_most() {
        let words = expanded(61).unwrap();
        assert!(words.iter().all(|word| word.len() == 100 << 10));
        let error = expanded(62).unwrap_err().to_string();
        assert_eq!(error, "command and args exceed the kernel's size limit");
        assert_eq!(expanded(150_000), Err(CommandTooLong));
    }

    #[test]
    fn probe_command_uses_literal_values_only() {
        let field = json!({"fieldRef": {"fieldPath": "metadata.name"}});
        let env =
            json!([{"name": "A", "value": "$(B)"}, {"name": "B", "value": "1"}, {"name": "C", "valueFrom": field}]);
        let container = decode(json!({"name": "main", "env": env})).unwrap().value;
        let words = ["sh", "$(A)$(B)", "$$(B)", "$(C)", "$(D)"];
        let command = command(&container, &ExecAction { command: words.into_iter().collect() });
        assert_eq!(command.unwrap(), ["sh", "$(B)1", "$(B)", "", "$(D)"]);
    }
}
