//! `coracle delete`: removes a pod that was applied on this node.

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::command_table::Delete;
use super::find_pod::{PodListResponse, find_pod, name_in_manifest};
use super::local_api::{RequestFailure, change, get, pod_path};
use super::pod_name::PodName;
use super::{failed, print};
use crate::types::api::Pod;
use crate::types::error::ErrorChain;

pub(super) fn run(command: &Delete) -> ExitCode {
    let requested = PodName::new(&command.pod, command.namespace.as_deref());
    let found = find_pod(&command.local_socket, &command.pod, command.namespace.as_deref());
    // A pod with a corrupt manifest does not run and is known only by name.
    let (namespace, name) = match (&found, requested.parts()) {
        (Ok((pod, _)), _) => (pod.metadata.namespace.clone(), name_in_manifest(pod).to_owned()),
        (Err(_), (Some(namespace), name)) => (namespace.to_owned(), name.to_owned()),
        (Err(line), (None, _)) => return failed(line),
    };
    match change(&command.local_socket, "DELETE", &pod_path(&namespace, &name, ""), &[]) {
        Ok(_) => {}
        Err(RequestFailure::Missing(line)) => return failed(found.err().as_ref().unwrap_or(&line)),
        Err(refused) => return failed(&refused.line()),
    }
    let is_own = |pod: &Pod| pod.annotation(crate::types::api::annotations::CONFIG_SOURCE) == Some("local");
    if let (true, Ok((pod, _))) = (command.wait, &found) {
        if is_own(pod) {
            if let Err(line) = wait(command, pod) {
                return failed(&line);
            }
        }
    }
    print(&format!("pod {namespace}/{name} deleted\n"))
}

/// Waits until the pod is gone.
fn wait(command: &Delete, pod: &Pod) -> Result<(), String> {
    let end = Instant::now() + pod.spec.termination_grace() + MARGIN;
    loop {
        let answer =
            get::<PodListResponse>(&command.local_socket, "/pods").map_err(|error| ErrorChain(&error).to_string())?;
        let uid = |entry: &Value| entry.pointer("/metadata/uid").and_then(Value::as_str).map(str::to_owned);
        if !answer.pods.iter().any(|entry| uid(&entry.pod).as_deref() == Some(pod.metadata.uid.as_str())) {
            return Ok(());
        }
        if Instant::now() >= end {
            let name = &pod.metadata.name;
            return Err(format!("pod {name} is deleted but still terminating, see coracle describe {name}"));
        }
        thread::sleep(DELETE_POLL_INTERVAL);
    }
}

/// Time for cleanup beyond the containers' grace period.
pub(super) const MARGIN: Duration = Duration::from_secs(60);
pub(super) const DELETE_POLL_INTERVAL: Duration = Duration::from_millis(300);
