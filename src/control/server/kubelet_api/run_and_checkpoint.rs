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
        match cri.exec_sync(&format!("run {id}"), &id, &command, MAX_RUN_TIME).await {
            Ok(mut output) if output.exit_code == 0 => {
                output.stdout.append(&mut output.stderr);
                Response::json(output.stdout)
            }
            Ok(output) => {
                let stderr = String::from_utf8_lossy(&output.stderr);
                internal(format!("command '{}' exited with {}: {stderr}", command.join(" "), output.exit_code))
            }
            Err(error) => internal(ErrorChain(&error).to_string()),
        }
    })))
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
