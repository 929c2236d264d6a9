//! `coracle restart`: restarts containers of a pod in place.

use std::process::ExitCode;
use std::thread;
use std::time::Instant;

use serde_json::Value;

use super::command_table::Restart;
use super::delete::{DELETE_MARGIN, DELETE_POLL_INTERVAL};
use super::find_pod::{find_group, find_pod};
use super::local_api::{change, escaped, pod_path};
use super::{failed, print};
use crate::types::api::{ContainerState, Pod};
use crate::types::sorted::SortedMap;

pub(super) fn run(command: &Restart) -> ExitCode {
    match find_group(&command.local_socket, &command.pod, command.namespace.as_deref()) {
        Ok(pods) => {
            pods.iter().map(|pod| restart(command, pod)).find(|code| *code != ExitCode::SUCCESS).unwrap_or_default()
        }
        Err(line) => failed(&line),
    }
}

fn restart(command: &Restart, pod: &Pod) -> ExitCode {
    let (namespace, name) = (&pod.metadata.namespace, &pod.metadata.name);
    let query = command.container.as_ref().map(|container| format!("?container={}", escaped(container)));
    let path = pod_path(namespace, name, &format!("/restart{}", query.unwrap_or_default()));
    let response = match change(&command.local_socket, "POST", &path, &[]) {
        Ok(response) => response,
        Err(refused) => return failed(&refused.line()),
    };
    let named = response.get("containers").and_then(Value::as_array).into_iter().flatten();
    let containers: Vec<&str> = named.filter_map(Value::as_str).collect();
    let done = if command.wait {
        match wait(command, pod, &containers) {
            Ok(()) => "restarted",
            Err(line) => return failed(&line),
        }
    } else {
        "restarting"
    };
    print(&format!("pod {namespace}/{name} {done}: {}\n", containers.join(", ")))
}

/// Waits until each of the containers is running again.
fn wait(command: &Restart, before: &Pod, containers: &[&str]) -> Result<(), String> {
    let (namespace, name) = (&before.metadata.namespace, &before.metadata.name);
    let counts = counts(before);
    let end = Instant::now() + before.spec.termination_grace() + DELETE_MARGIN;
    loop {
        let (now, _) = find_pod(&command.local_socket, name, Some(namespace))?;
        let late = containers.iter().find(|container| !runs_again(&now, container, counts.get(**container).copied()));
        let Some(late) = late else { return Ok(()) };
        if Instant::now() >= end {
            return Err(format!("container {late} is not running again yet, see coracle describe {name}"));
        }
        thread::sleep(DELETE_POLL_INTERVAL);
    }
}

fn counts(pod: &Pod) -> SortedMap<String, i32> {
    let statuses = pod.status.init_container_statuses.iter().chain(&pod.status.container_statuses);
    statuses.map(|status| (status.name.clone(), status.restart_count)).collect()
}

fn runs_again(pod: &Pod, container: &str, before: Option<i32>) -> bool {
    let mut statuses = pod.status.init_container_statuses.iter().chain(&pod.status.container_statuses);
    statuses.any(|status| {
        let is_new = before.is_none_or(|before| status.restart_count > before);
        status.name == container && is_new && matches!(status.state, Some(ContainerState::Running(_)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::api::{ContainerStateRunning, ContainerStatus};

    #[test]
    fn container_runs_again_after_a_counted_restart() {
        let running = || Some(ContainerState::Running(ContainerStateRunning::default()));
        for (state, count, expected) in [(running(), 1, true), (running(), 0, false), (None, 1, false)] {
            let status =
                ContainerStatus { name: "main".to_owned(), restart_count: count, state, ..ContainerStatus::default() };
            let mut pod = Pod::default();
            pod.status.container_statuses.push(status);
            assert_eq!(runs_again(&pod, "main", Some(0)), expected);
            assert!(!runs_again(&pod, "other", Some(0)));
        }
    }
}
