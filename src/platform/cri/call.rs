//! One CRI call: encode, send, decode.

use std::time::{Duration, Instant};

use super::Error;
use crate::platform::rpc;
use crate::platform::rt;
use crate::platform::tracing::{self, OpenSpan, SpanKind};
use crate::protocol::protobuf::{DecodeError, Message, decode_into};
use crate::types::error::ErrorChain;
use crate::types::metrics::{self, Count, Timed};

/// As [`call`], but keeps only the first `limit` bytes of each string in the response.
pub(super) async fn call_truncated<M: Message + Default>(
    client: &rpc::Client,
    path: &'static str,
    subject: &str,
    request: Vec<u8>,
    timeout: Duration,
    limit: usize,
) -> Result<M, Error> {
    let response = exchange(client, path, subject, request, timeout, Some(limit)).await?;
    decoded(&response, path, subject)
}

/// Calls the method `path`. Errors name `subject`.
pub(super) async fn call<M: Message + Default>(
    client: &rpc::Client,
    path: &'static str,
    subject: &str,
    request: Vec<u8>,
    timeout: Duration,
) -> Result<M, Error> {
    let response = exchange(client, path, subject, request, timeout, None).await?;
    decoded(&response, path, subject)
}

/// What all calls have in common, whatever the type of their response.
async fn exchange(
    client: &rpc::Client,
    path: &'static str,
    subject: &str,
    request: Vec<u8>,
    timeout: Duration,
    limit: Option<usize>,
) -> Result<Vec<u8>, Error> {
    let begun = rt::now();
    let span = span(path);
    let response = match limit {
        Some(limit) => client.unary_truncated(path, request, timeout, limit).await,
        None => client.unary(path, request, timeout).await,
    };
    end(span, &response);
    note(path, begun, response.is_ok());
    response.map_err(|error| Error::rpc(path, subject, error))
}

/// Named as upstream's, after the method.
fn span(path: &'static str) -> OpenSpan {
    let name = path.strip_prefix('/').unwrap_or(path);
    tracing::begin(name, SpanKind::Client, || {
        let (service, method) = name.split_once('/').unwrap_or(("", name));
        let attributes = [("rpc.system", "grpc"), ("rpc.service", service), ("rpc.method", method)];
        attributes.map(|(key, value)| (key, value.to_owned())).to_vec()
    })
}

fn end(mut span: OpenSpan, response: &Result<Vec<u8>, rpc::Error>) {
    if let Err(error) = response {
        span.fail(|| ErrorChain(error).to_string());
    }
}

fn decoded<M: Message + Default>(response: &[u8], path: &'static str, subject: &str) -> Result<M, Error> {
    let mut message = M::default();
    read(&mut message, response, path, subject)?;
    Ok(message)
}

/// Counts the call under upstream's name for it.
pub(super) fn note(path: &'static str, begun: Instant, is_good: bool) {
    let method = path.rsplit('/').next().unwrap_or(path);
    let named = CRI_OPERATION_NAMES.iter().find(|(name, _)| *name == method);
    let operation = named.map_or(method, |(_, operation)| operation);
    metrics::count(Count::RuntimeOperations, &[operation]);
    metrics::took(Timed::RuntimeOperations, &[operation], rt::elapsed(begun));
    if !is_good {
        metrics::count(Count::RuntimeErrors, &[operation]);
    }
}

/// Upstream's names (`instrumented_services.go`).
const CRI_OPERATION_NAMES: [(&str, &str); 27] = [
    ("ContainerStats", "container_stats"),
    ("ContainerStatus", "container_status"),
    ("CreateContainer", "create_container"),
    ("ExecSync", "exec_sync"),
    ("ImageFsInfo", "image_fs_info"),
    ("ImageStatus", "image_status"),
    ("ListContainerStats", "list_container_stats"),
    ("ListContainers", "list_containers"),
    ("ListImages", "list_images"),
    ("ListPodSandbox", "list_podsandbox"),
    ("ListPodSandboxStats", "list_podsandbox_stats"),
    ("PodSandboxStatus", "podsandbox_status"),
    ("PullImage", "pull_image"),
    ("RemoveContainer", "remove_container"),
    ("RemoveImage", "remove_image"),
    ("RemovePodSandbox", "remove_podsandbox"),
    ("ReopenContainerLog", "reopen_container_log"),
    ("RunPodSandbox", "run_podsandbox"),
    ("RuntimeConfig", "runtime_config"),
    ("StartContainer", "start_container"),
    ("Status", "status"),
    ("StopContainer", "stop_container"),
    ("StopPodSandbox", "stop_podsandbox"),
    ("UpdateContainerResources", "update_container"),
    ("UpdatePodSandboxResources", "update_podsandbox_resources"),
    ("UpdateRuntimeConfig", "update_runtime_config"),
    ("Version", "version"),
];

/// Decodes the response to the call `path`.
pub(super) fn read(message: &mut dyn Message, response: &[u8], path: &'static str, subject: &str) -> Result<(), Error> {
    decode_into(message, response).map_err(|error: DecodeError| Error::undecodable(path, subject, error))
}

/// Requires an id in a response.
pub(super) fn id(id: String, field: &'static str, path: &'static str, subject: &str) -> Result<String, Error> {
    if id.is_empty() { Err(Error::lacks(path, subject, field)) } else { Ok(id) }
}

/// Rounds up to whole seconds: never less than asked for, and a timeout never becomes 0, which means none.
pub(super) fn whole_seconds(duration: Duration) -> i64 {
    let seconds = duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0));
    i64::try_from(seconds).unwrap_or(i64::MAX)
}
