//! `coracle delete`: removes pods and workloads that were applied on this node.

use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::apply::all_parts;
use super::command_table::Delete;
use super::find_pod::{PodListResponse, find_group, name_in_manifest};
use super::local_api::{RequestFailure, change, get, pod_path};
use super::pod_name::PodName;
use super::{complain, failed, print};
use crate::control::pod_sources::static_pod::owning_workload;
use crate::types::api::{Pod, VolumeSource};
use crate::types::error::ErrorChain;

pub(super) fn run(command: &Delete) -> ExitCode {
    let of_files = match all_parts(&command.filename) {
        Ok(parts) => parts.into_iter().map(|part| match part.kind {
            "pod" => [&*part.namespace, "/", &*part.name].concat(),
            kind => [kind, "/", &*part.namespace, "/", &*part.name].concat(),
        }),
        Err(line) => return failed(&line),
    };
    let mut code = ExitCode::SUCCESS;
    let mut ending = Vec::new();
    let mut deleted = Vec::new();
    for name in command.pods.iter().cloned().chain(of_files) {
        match delete(&command.local_socket, &name, command.namespace.as_deref()) {
            Ok((full_name, pods)) => {
                deleted.push(full_name);
                ending.extend(pods);
            }
            Err(line) => {
                complain(&line);
                code = ExitCode::FAILURE;
            }
        }
    }
    if command.wait {
        for pod in &ending {
            if let Err(line) = wait_until_gone(&command.local_socket, pod) {
                return failed(&line);
            }
        }
    }
    let mut lines: String = deleted.iter().map(|name| format!("{name} deleted\n")).collect();
    ending.iter().for_each(|pod| lines.push_str(&kept_claims(pod)));
    if print(&lines) == ExitCode::SUCCESS { code } else { ExitCode::FAILURE }
}

/// What was deleted, and its pods that run.
fn delete(socket: &Path, name: &str, namespace: Option<&str>) -> Result<(String, Vec<Pod>), String> {
    let requested = PodName::new(name, namespace);
    let pods_of_name = find_group(socket, name, namespace);
    let is_cron_job = requested.kind() == Some("CronJob");
    // The pods of a CronJob belong to its Jobs.
    let owner = pods_of_name.as_ref().ok().and_then(|pods| owning_workload(pods.first()?)).filter(|_| !is_cron_job);
    let kind = owner.map(|owner| owner.kind.clone()).or_else(|| requested.kind().map(str::to_owned));
    // A pod with a corrupt manifest does not run and is known only by name, and so is a workload without pods.
    let (namespace, name) = match (&pods_of_name, requested.parts()) {
        (Ok(pods), _) if let Some(pod) = pods.first().filter(|_| !is_cron_job) => {
            let name = owner.map_or_else(|| name_in_manifest(pod), |owner| &owner.name);
            (pod.metadata.namespace.clone(), name.to_owned())
        }
        (_, (Some(namespace), name)) => (namespace.to_owned(), name.to_owned()),
        (Ok(pods), (None, name)) if let Some(pod) = pods.first() => (pod.metadata.namespace.clone(), name.to_owned()),
        (_, (None, name)) if requested.kind().is_some() => ("default".to_owned(), name.to_owned()),
        (Err(line), (None, _)) => return Err(line.clone()),
        (Ok(_), (None, name)) => return Err(format!("no pod {name}")),
    };
    match change(socket, "DELETE", &pod_path(&namespace, &name, ""), &[]) {
        Ok(_) => {}
        Err(RequestFailure::Missing(line)) => return Err(pods_of_name.err().unwrap_or(line)),
        Err(refused) => return Err(refused.line()),
    }
    let is_own = |pod: &Pod| pod.annotation(crate::types::api::annotations::CONFIG_SOURCE) == Some("local");
    let pods = pods_of_name.unwrap_or_default().into_iter().filter(is_own).collect();
    Ok((format!("{} {namespace}/{name}", kind.as_deref().unwrap_or("pod")), pods))
}

/// What happens to the data of the pod's claims.
fn kept_claims(pod: &Pod) -> String {
    let namespace = &pod.metadata.namespace;
    let claims = pod.spec.volumes.iter().filter_map(|volume| match &volume.source {
        VolumeSource::PersistentVolumeClaim(source) => Some(&source.claim_name),
        _ => None,
    });
    let line = |name| {
        format!(
            "PersistentVolumeClaim {namespace}/{name} keeps its data: remove pvc-*_{namespace}_{name} below \
             /opt/local-path-provisioner (--local-path-dir) to delete it\n"
        )
    };
    claims.map(line).collect()
}

/// Waits until the pod is gone.
fn wait_until_gone(socket: &Path, pod: &Pod) -> Result<(), String> {
    let end = Instant::now() + pod.spec.termination_grace() + DELETE_MARGIN;
    loop {
        let response = get::<PodListResponse>(socket, "/pods").map_err(|error| ErrorChain(&error).to_string())?;
        let uid = |entry: &Value| entry.pointer("/metadata/uid").and_then(Value::as_str).map(str::to_owned);
        if !response.pods.iter().any(|entry| uid(&entry.pod).as_deref() == Some(pod.metadata.uid.as_str())) {
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
pub(super) const DELETE_MARGIN: Duration = Duration::from_secs(60);
pub(super) const DELETE_POLL_INTERVAL: Duration = Duration::from_millis(300);
