//! Resolves user requests about one pod: who owns it, and which of its containers can restart. Pure.

use crate::state::pods::{ContainerState, ObservedPod, PodAnswer, PodChange, RestartRequest, SourcePod, StopAction};
use crate::types::api::{Pod, PodPhase, RestartPolicy};

/// The pod of a manifest as the node names it.
pub(super) fn name_on_node(name: &str, node_name: &str) -> String {
    format!("{name}-{}", node_name.to_lowercase())
}

/// The answer about a pod that belongs to another source; `None` if no source has it.
pub(super) fn conflict_with_other_source<'a>(
    change: &PodChange,
    node_name: &str,
    mut pods: impl Iterator<Item = &'a SourcePod>,
) -> Option<String> {
    let PodChange { namespace, name, .. } = change;
    let on_node = name_on_node(name, node_name);
    let other_pod = pods.find(|other| {
        let metadata = &other.pod.metadata;
        metadata.namespace == *namespace
            && (metadata.name == on_node || metadata.name == *name)
            && !other.origin.starts_with(LOCAL_POD_ORIGIN_PREFIX)
    })?;
    let origin = &other_pod.origin;
    Some(if other_pod.pod.is_of_cluster() {
        format!("pod {namespace}/{name} is the cluster's: change or delete it there")
    } else {
        format!("pod {namespace}/{name} comes from {origin}: change or remove it there")
    })
}

/// Prefix of the origins of pods added through the local socket.
const LOCAL_POD_ORIGIN_PREFIX: &str = "local:";

/// The containers to restart: one, or all that can restart.
///
/// They restart in the existing sandbox, with its address and volumes, also while they wait in back-off. Init
/// containers and containers with `restartPolicy: Never` are refused: if the agent died between stop and start, the
/// next agent could not know that the container was to run again.
pub(super) fn restart(
    pod: &Pod,
    phase: PodPhase,
    observed: Option<&ObservedPod>,
    container: Option<&str>,
) -> Result<RestartRequest, PodAnswer> {
    let name = &pod.metadata.name;
    if phase.is_terminal() {
        return Err(PodAnswer::Conflict(format!("pod {name} has ended ({phase}): coracle rerun {name} runs it again")));
    }
    if pod.metadata.deletion_timestamp.is_some() {
        return Err(PodAnswer::Conflict(format!("pod {name} is terminating")));
    }
    let candidates = candidates(pod, container)?;
    let mut request = RestartRequest { uid: pod.metadata.uid.clone(), containers: Vec::new(), running: Vec::new() };
    for (candidate, policy) in candidates {
        let newest = observed.and_then(|observed| observed.container(candidate));
        let has_ended_well = newest.and_then(|newest| newest.exit()).is_some_and(|exit| exit.code == 0);
        match newest {
            _ if has_ended_well && policy == RestartPolicy::OnFailure => {}
            None => {}
            Some(newest) => {
                if let ContainerState::Running { .. } = newest.state {
                    request.running.push(newest.id.clone());
                }
                request.containers.push(candidate.to_owned());
            }
        }
    }
    if request.containers.is_empty() {
        let what = container.map_or_else(|| format!("pod {name}"), |container| format!("container {container}"));
        return Err(PodAnswer::Conflict(format!("{what} is not running: coracle describe {name} shows why")));
    }
    Ok(request)
}

/// Whether the pod can run again from its start: it has ended, and no controller of a cluster replaces it.
pub(super) fn rerun(pod: &Pod, phase: PodPhase) -> Result<(), PodAnswer> {
    let name = &pod.metadata.name;
    if pod.is_of_cluster() {
        return Err(PodAnswer::Conflict(format!("pod {name} is the cluster's: create it again there")));
    }
    if !phase.is_terminal() {
        let what = format!("pod {name} has not ended ({phase}): coracle restart {name} restarts its containers");
        return Err(PodAnswer::Conflict(what));
    }
    Ok(())
}

/// Whether a user may stop or start this pod, which is not stopped.
pub(super) fn stop(pod: &Pod, action: StopAction) -> Result<(), PodAnswer> {
    let name = &pod.metadata.name;
    let why = match action {
        _ if pod.is_of_cluster() => format!("pod {name} is the cluster's: delete it or scale its controller there"),
        StopAction::Start => format!("pod {name} is not stopped: coracle restart {name} restarts its containers"),
        StopAction::Stop => return Ok(()),
    };
    Err(PodAnswer::Conflict(why))
}

/// What a user reads about a stopped pod.
pub(super) fn still_stopped(pod: &Pod) -> String {
    let name = &pod.metadata.name;
    format!("pod {name} is stopped: coracle start {name} runs it again")
}

/// The containers that can restart, each with its effective restart policy.
fn candidates<'a>(pod: &'a Pod, container: Option<&str>) -> Result<Vec<(&'a str, RestartPolicy)>, PodAnswer> {
    let (name, spec) = (&pod.metadata.name, &pod.spec);
    let lasting = spec.init_containers.iter().filter(|candidate| candidate.is_sidecar()).chain(&spec.containers);
    let policy = |own: Option<RestartPolicy>| own.unwrap_or(spec.restart_policy);
    let lasting: Vec<(&str, RestartPolicy)> =
        lasting.map(|candidate| (candidate.name.as_str(), policy(candidate.restart_policy))).collect();
    let restartable_names = lasting.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let chosen: Vec<(&str, RestartPolicy)> = lasting
        .into_iter()
        .filter(|(candidate, _)| container.is_none_or(|container| container == *candidate))
        .collect();
    if let (Some(container), true) = (container, chosen.is_empty()) {
        let exists = spec.all_containers().any(|candidate| candidate.name == container);
        return Err(if exists {
            PodAnswer::Refused(format!(
                "container {container} of pod {name} runs once; containers that can be restarted: {restartable_names}"
            ))
        } else {
            PodAnswer::Missing(format!("pod {name} has no container {container}, only {restartable_names}"))
        });
    }
    // Requests are not stored: after a restart of the agent the policy alone would decide, and start nothing.
    match chosen.iter().find(|(_, policy)| *policy == RestartPolicy::Never) {
        Some((container, _)) => Err(PodAnswer::Refused(format!(
            "container {container} of pod {name} runs once (restartPolicy Never): to run it again, create the pod again: {CREATE_AGAIN}"
        ))),
        None => Ok(chosen),
    }
}

/// The advice for a container that does not run again by its policy.
const CREATE_AGAIN: &str = "delete it and apply it again, or remove its manifest and write it again";

/// Why a pod cannot be put under this name: a manifest of another source has it. `None` if it can.
pub(super) fn is_taken<'a>(
    change: &PodChange,
    node_name: &str,
    mut pods: impl Iterator<Item = &'a SourcePod>,
) -> Option<String> {
    let on_node = name_on_node(&change.name, node_name);
    let other = pods.find(|other| {
        let metadata = &other.pod.metadata;
        metadata.namespace == change.namespace
            && metadata.name == on_node
            && other.pod.is_static()
            && !other.origin.starts_with(LOCAL_POD_ORIGIN_PREFIX)
    })?;
    let PodChange { namespace, name, .. } = change;
    Some(format!(
        "pod {namespace}/{name} comes from {} already: change it there, remove it there, or choose another name",
        other.origin
    ))
}

#[cfg(test)]
mod tests;
