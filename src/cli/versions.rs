//! `coracle rollback`, `hold`, `confirm`, `rerun`, `stop` and `start`: requests about the pods of one name.

use std::path::Path;
use std::process::ExitCode;

use serde_json::Value;

use super::command_table::{Confirm, Hold, Rerun, Rollback, Start, Stop};
use super::find_pod::find_group;
use super::local_api::{change, pod_path};
use super::{failed, print};

pub(super) fn rollback(command: &Rollback) -> ExitCode {
    let Rollback { pod, to, namespace, local_socket } = command;
    run(local_socket, pod, namespace.as_deref(), &format!("/rollback?to={to}"))
}

pub(super) fn hold(command: &Hold) -> ExitCode {
    run(&command.local_socket, &command.pod, command.namespace.as_deref(), "/hold")
}

pub(super) fn rerun(command: &Rerun) -> ExitCode {
    run(&command.local_socket, &command.pod, command.namespace.as_deref(), "/rerun")
}

pub(super) fn stop(command: &Stop) -> ExitCode {
    run(&command.local_socket, &command.pod, command.namespace.as_deref(), "/stop")
}

pub(super) fn start(command: &Start) -> ExitCode {
    run(&command.local_socket, &command.pod, command.namespace.as_deref(), "/start")
}

pub(super) fn confirm(command: &Confirm) -> ExitCode {
    run(&command.local_socket, &command.pod, command.namespace.as_deref(), "/confirm")
}

fn run(socket: &Path, pod: &str, namespace: Option<&str>, action: &str) -> ExitCode {
    let pods = match find_group(socket, pod, namespace) {
        Ok(pods) => pods,
        Err(line) => return failed(&line),
    };
    let mut code = ExitCode::SUCCESS;
    for pod in pods {
        let (namespace, name) = (&pod.metadata.namespace, &pod.metadata.name);
        let done = match change(socket, "POST", &pod_path(namespace, name, action), &[]) {
            Ok(response) => {
                let done = response.get("result").and_then(Value::as_str).unwrap_or_default();
                print(&format!("pod {namespace}/{name} {done}\n"))
            }
            Err(refused) => failed(&refused.line()),
        };
        code = if done == ExitCode::SUCCESS { code } else { done };
    }
    code
}
