//! `/run/...` and `/checkpoint/...`: runs a command in a container, or checkpoints it, and returns the runtime's
//! answer.
//!
//! Paths and responses are those of pkg/kubelet/server/server.go.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::control::server::connections::Reply;
use crate::control::server::http::{Response, Status};
use crate::control::server::local_api::{LocalApi, NotFound, PodQuery};
use crate::platform::cri::RuntimeService;
use crate::platform::cri::v1::ExecSyncResponse;
use crate::platform::host::clock;
use crate::platform::rt;
use crate::protocol::http1::Request;
use crate::types::error::ErrorChain;

/// The directory of checkpoints, and the default time limit of one.
#[derive(Clone, Debug)]
pub(super) struct Checkpoints {
    pub(super) folder: PathBuf,
    pub(super) limit: Duration,
}

/// The time limit of a stream. A client that disconnects ends the command.
const MAX_RUN_TIME: Duration = Duration::from_secs(4 * 3600);
/// Bytes returned of each output of a command.
const MAX_RUN_OUTPUT_BYTES: usize = 1 << 20;
/// Takes a line of its own, as a cut output may end within a line.
const CUT_OUTPUT_NOTICE: &[u8] = b"\n[output longer than 1 MiB, the rest is left out]\n";

/// `None` for any other path.
pub(super) fn run(request: &Request, api: &dyn LocalApi, cri: &RuntimeService) -> Option<Reply> {
    let parts: Vec<&str> = request.path.strip_prefix("/run/")?.split('/').collect();
    let (pod, container) = match *parts.as_slice() {
        [namespace, pod, container] => (PodQuery::new(namespace, pod, None), container),
        [namespace, pod, uid, container] => (PodQuery::new(namespace, pod, Some(uid)), container),
        _ => return None,
    };
    if request.method != "POST" {
        return Some(Reply::Whole(Response::not_allowed()));
    }
    let Some(commands) = request.exact_form_values("cmd") else {
        return Some(Reply::Whole(Response::not_utf8("cmd")));
    };
    // Split at each space, as upstream does.
    let command: Vec<String> = commands.first().map_or("", String::as_str).split(' ').map(str::to_owned).collect();
    let id = match api.running_container(&pod, container) {
        Ok(id) => id,
        Err(NotFound::Pod) => return Some(Reply::Whole(no_pod())),
        Err(NotFound::Container(name)) => {
            return Some(Reply::Whole(internal(format!("container not found ({name:?})"))));
        }
    };
    let cri = cri.clone();
    Some(Reply::Slow(Box::pin(async move {
        // One byte more, by which a longer output is noticed.
        let most = MAX_RUN_OUTPUT_BYTES + 1;
        match cri.exec_keeping(&format!("run {id}"), &id, &command, MAX_RUN_TIME, most).await {
            Ok(output) => output_of(&command, output),
            Err(error) => internal(ErrorChain(&error).to_string()),
        }
    })))
}

/// The output of a command that has ended: as upstream, without stdout if it failed.
fn output_of(command: &[String], output: ExecSyncResponse) -> Response {
    let ExecSyncResponse { mut stdout, mut stderr, exit_code } = output;
    let is_success = exit_code == 0;
    let is_cut = stderr.len() > MAX_RUN_OUTPUT_BYTES || is_success && stdout.len() > MAX_RUN_OUTPUT_BYTES;
    if is_success {
        stdout.truncate(MAX_RUN_OUTPUT_BYTES);
    } else {
        stdout = format!("command '{}' exited with {exit_code}: ", command.join(" ")).into_bytes();
    }
    stderr.truncate(MAX_RUN_OUTPUT_BYTES);
    stdout.append(&mut stderr);
    if is_cut {
        stdout.extend_from_slice(CUT_OUTPUT_NOTICE);
    }
    if is_success {
        return Response::json(stdout);
    }
    stdout.push(b'\n');
    Response { body: stdout, ..internal(String::new()) }
}

/// `None` for any other path.
pub(super) fn checkpoint(
    request: &Request,
    api: &dyn LocalApi,
    cri: &RuntimeService,
    checkpoints: &Checkpoints,
) -> Option<Reply> {
    let parts: Vec<&str> = request.path.strip_prefix("/checkpoint/")?.split('/').collect();
    let [namespace, pod, container] = *parts.as_slice() else { return None };
    if request.method != "POST" {
        return Some(Reply::Whole(Response::not_allowed()));
    }
    let container_path = format!("{namespace}/{pod}/{container}");
    let limit = match container_of(request, api, namespace, pod, container) {
        Ok(limit) => limit,
        Err(response) => return Some(Reply::Whole(response)),
    };
    let failed =
        move |why: &dyn std::fmt::Display| internal(format!("checkpointing of {container_path} failed ({why})"));
    let Ok(id) = api.running_container(&PodQuery::new(namespace, pod, None), container) else {
        return Some(Reply::Whole(failed(&format_args!("container {container} not found"))));
    };
    let file = checkpoints.folder.join(format!("checkpoint-{pod}_{namespace}-{container}-{}.tar", clock::now()));
    // As upstream does, never use less than the runtime's usual time limit.
    let (cri, limit) = (cri.clone(), limit.max(checkpoints.limit));
    Some(Reply::Slow(Box::pin(async move {
        let folder = file.parent().map(Path::to_owned).unwrap_or_default();
        if let Err(error) = rt::blocking(move || make_folder(&folder)).await {
            return failed(&ErrorChain(&error));
        }
        let location = file.display().to_string();
        match cri.of_pod(&id).checkpoint_container(&id, &location, limit).await {
            Ok(()) => Response::json(json!({ "items": [location] }).to_string().into_bytes()),
            Err(error) => failed(&ErrorChain(&error)),
        }
    })))
}

/// The named container of the pod, and the requested time limit; zero if none is given.
fn container_of(
    request: &Request,
    api: &dyn LocalApi,
    namespace: &str,
    pod: &str,
    container: &str,
) -> Result<Duration, Response> {
    let mut lookup = Err(no_pod());
    api.pods(&mut |entry| {
        let text = |pointer: &str| entry.pod.pointer(pointer).and_then(Value::as_str);
        if text("/metadata/name") == Some(pod) && text("/metadata/namespace") == Some(namespace) {
            let lists = ["/spec/containers", "/spec/initContainers", "/spec/ephemeralContainers"];
            let mut containers = lists.iter().filter_map(|list| entry.pod.pointer(list)?.as_array()).flatten();
            let is_it = |container_spec: &Value| container_spec.get("name").and_then(Value::as_str) == Some(container);
            lookup = match containers.any(is_it) {
                true => Ok(()),
                false => Err(Response::text(Status::NotFound, format!("container {container} does not exist\n"))),
            };
        }
    });
    lookup?;
    let Some(timeout) = request.query_values("timeout").pop() else { return Ok(Duration::ZERO) };
    let seconds = timeout.parse::<i64>();
    let seconds = seconds.map_err(|_| Response::text(Status::NotFound, "cannot parse value of timeout parameter\n"))?;
    let seconds = u64::try_from(seconds).map_err(|_| {
        let why = "CheckpointContainer requires the timeout value to be > 0";
        internal(format!("checkpointing of {namespace}/{pod}/{container} failed ({why})"))
    })?;
    Ok(Duration::from_secs(seconds.min(MAX_RUN_TIME.as_secs())))
}

/// Only root may read checkpoints, which contain the memory of containers. Blocking.
fn make_folder(folder: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

fn no_pod() -> Response {
    Response::text(Status::NotFound, "pod does not exist\n")
}

fn internal(text: String) -> Response {
    Response::text(Status::InternalServerError, text + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The response to `id`, with outputs of this many bytes.
    fn body(stdout: usize, stderr: usize, exit_code: i32) -> (Status, String) {
        let output = ExecSyncResponse { stdout: vec![b'o'; stdout], stderr: vec![b'e'; stderr], exit_code };
        let response = output_of(&["id".to_owned()], output);
        (response.status, String::from_utf8(response.body).unwrap())
    }

    #[test]
    fn output_is_returned_up_to_a_limit_and_says_when_there_is_more() {
        let limit = MAX_RUN_OUTPUT_BYTES;
        let notice = "\n[output longer than 1 MiB, the rest is left out]\n";
        let long = |letter: &str| letter.repeat(limit);
        assert_eq!(body(limit, limit, 0), (Status::Ok, [long("o"), long("e")].concat()));
        assert_eq!(body(limit + 1, 2, 0), (Status::Ok, [&*long("o"), "ee", notice].concat()));
        assert_eq!(body(2, limit + 1, 0), (Status::Ok, ["oo", &*long("e"), notice].concat()));
    }

    #[test]
    fn output_of_a_failed_command_is_stderr() {
        let failed = |text: &str| (Status::InternalServerError, format!("command 'id' exited with 3: {text}\n"));
        assert_eq!(body(MAX_RUN_OUTPUT_BYTES + 1, 2, 3), failed("ee"));
        let long = "e".repeat(MAX_RUN_OUTPUT_BYTES);
        let cut = failed(&format!("{long}\n[output longer than 1 MiB, the rest is left out]\n"));
        assert_eq!(body(0, MAX_RUN_OUTPUT_BYTES + 1, 3), cut);
    }
}
