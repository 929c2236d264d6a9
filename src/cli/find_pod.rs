//! Finds the pod that a command is about.

use std::path::Path;

use super::local_api::get;
use super::pod_name::{PodName, names};
use crate::control::server::PodEntry;
use crate::platform::config::nearest;
use crate::types::api::{ContainerState, Pod, decode, record};
use crate::types::error::ErrorChain;
use crate::types::sorted::SortOnce;

record! {
    pub(super) struct PodListResponse {
        pub(super) pods: Vec<PodEntry>,
    }
}

/// The pod with this name and its source, or one line about why there is none.
pub(super) fn find_pod(socket: &Path, name: &str, namespace: Option<&str>) -> Result<(Pod, String), String> {
    find_entry(socket, name, namespace).map(|(pod, entry)| (pod, entry.source))
}

/// As [`find_pod`], with everything that the agent says of the pod; the entry's own `pod` is empty.
pub(super) fn find_entry(socket: &Path, name: &str, namespace: Option<&str>) -> Result<(Pod, PodEntry), String> {
    let response = get::<PodListResponse>(socket, "/pods").map_err(|error| ErrorChain(&error).to_string())?;
    choose(decoded(response), name, namespace)
}

/// The pod with this name, or all pods of the workload with this name.
pub(super) fn find_group(socket: &Path, name: &str, namespace: Option<&str>) -> Result<Vec<Pod>, String> {
    let response = get::<PodListResponse>(socket, "/pods").map_err(|error| ErrorChain(&error).to_string())?;
    let pods = decoded(response);
    let wanted = PodName::new(name, namespace);
    let is_named = |pod: &Pod| wanted.is(&pod.metadata.namespace, &pod.metadata.name, &pod.spec.node_name);
    let owned: Vec<Pod> = pods.iter().map(|(pod, _)| pod).filter(|pod| wanted.is_owner_of(pod)).cloned().collect();
    if owned.len() > 1 && !pods.iter().any(|(pod, _)| is_named(pod)) {
        return Ok(owned);
    }
    choose(pods, name, namespace).map(|(pod, _)| vec![pod])
}

fn decoded(response: PodListResponse) -> Vec<(Pod, PodEntry)> {
    let read = response.pods.into_iter().filter_map(|mut entry| {
        // The same binary wrote it.
        let pod = decode::<Pod>(entry.pod.take()).ok()?.value;
        Some((pod, entry))
    });
    read.collect()
}

/// The name in the pod's manifest; a pod of the cluster has only its own.
pub(super) fn name_in_manifest(pod: &Pod) -> &str {
    let name = &pod.metadata.name;
    let manifest_name = name.strip_suffix(&pod.spec.node_name.to_lowercase()).and_then(|name| name.strip_suffix('-'));
    manifest_name.filter(|_| pod.is_static()).unwrap_or(name)
}

fn choose<T>(pods: Vec<(Pod, T)>, name: &str, namespace: Option<&str>) -> Result<(Pod, T), String> {
    let wanted = PodName::new(name, namespace);
    let is_named = |pod: &Pod| wanted.is(&pod.metadata.namespace, &pod.metadata.name, &pod.spec.node_name);
    // A workload with this name stands for its first pod.
    let has_named = pods.iter().any(|(pod, _)| is_named(pod));
    let is_it = |pod: &Pod| if has_named { is_named(pod) } else { wanted.is_owner_of(pod) };
    let (mut matching, others): (Vec<_>, Vec<_>) = pods.into_iter().partition(|(pod, _)| is_it(pod));
    let mut namespaces: Vec<&str> = matching.iter().map(|(pod, _)| pod.metadata.namespace.as_str()).collect();
    namespaces.dedup();
    if namespaces.len() > 1 {
        let namespaces = namespaces.join(", ");
        return Err(format!("pod {name} exists in several namespaces: {namespaces}; choose one with -n"));
    }
    // A terminating pod may have a successor with the same name: the running one is chosen.
    matching.sort_once_by_key(|(pod, _)| pod.status.container_statuses.is_empty());
    matching.into_iter().next().ok_or_else(|| {
        let other_names = others.iter().flat_map(|(pod, _)| names(&pod.metadata.name, &pod.spec.node_name));
        let suggestion = nearest(wanted.parts().1, other_names)
            .map(|suggestion| format!(" (did you mean {suggestion}?)"))
            .unwrap_or_default();
        format!("no pod {name}{suggestion}; coracle pods lists all pods")
    })
}

/// The requested container, or kubectl's default container.
pub(super) fn container_of<'a>(pod: &'a Pod, container: Option<&str>) -> Result<&'a str, String> {
    let names: Vec<&str> = pod.spec.all_containers().map(|container| container.name.as_str()).collect();
    let default = pod.metadata.annotations.get("kubectl.kubernetes.io/default-container").map(String::as_str);
    if let Some(name) = container {
        let named = names.iter().find(|container_name| **container_name == name);
        let all = names.join(", ");
        return named.copied().ok_or_else(|| format!("pod {} has no container {name}: {all}", pod.metadata.name));
    }
    let first = pod.spec.containers.first().map(|container| container.name.as_str());
    let chosen =
        default.and_then(|name| names.iter().find(|container_name| **container_name == name).copied()).or(first);
    let chosen = chosen.ok_or_else(|| format!("pod {} has no container", pod.metadata.name))?;
    if names.len() > 1 {
        eprintln!("coracle: container {chosen} of {}; use -c to choose another", names.join(", "));
    }
    Ok(chosen)
}

/// An error with the container's state if it is not running.
pub(super) fn is_running(pod: &Pod, container: &str) -> Result<(), String> {
    let status = &pod.status;
    let mut all = status.container_statuses.iter().chain(&status.init_container_statuses);
    let state = all.find(|status| status.name == container).and_then(|status| status.state.as_ref());
    let instead = match state {
        Some(ContainerState::Running(_)) => return Ok(()),
        Some(ContainerState::Waiting(waiting)) => format!(" ({})", waiting.reason),
        Some(ContainerState::Terminated(ended)) => format!(" (ended with exit code {})", ended.exit_code),
        None => String::new(),
    };
    let name = &pod.metadata.name;
    Err(format!("container {container} of pod {name} is not running{instead}; see coracle describe {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::api::{ContainerStateRunning, ContainerStateWaiting, ContainerStatus, Reason};

    fn pod(namespace: &str, name: &str) -> (Pod, String) {
        let mut pod = Pod::default();
        pod.metadata.namespace = namespace.to_owned();
        pod.metadata.name = name.to_owned();
        pod.spec.node_name = "n1".to_owned();
        (pod, String::new())
    }

    #[test]
    fn name_in_several_namespaces_needs_a_namespace() {
        let pods = || vec![pod("a", "web-n1"), pod("b", "web-n1"), pod("b", "db-n1")];
        let name = |name: &str, namespace| {
            choose(pods(), name, namespace).map(|(pod, _)| format!("{}/{}", pod.metadata.namespace, pod.metadata.name))
        };
        assert_eq!(name("db", None).as_deref(), Ok("b/db-n1"));
        assert_eq!(name("b/web", None).as_deref(), Ok("b/web-n1"));
        assert_eq!(name("web", Some("a")).as_deref(), Ok("a/web-n1"));
        let several = "pod web exists in several namespaces: a, b; choose one with -n";
        assert_eq!(name("web", None), Err(several.to_owned()));
        let none = "no pod x; coracle pods lists all pods";
        assert_eq!(name("x", None), Err(none.to_owned()));
        let near = "no pod wev (did you mean web?); coracle pods lists all pods";
        assert_eq!(name("wev", None), Err(near.to_owned()));
    }

    #[test]
    fn stopped_container_is_reported_with_its_state() {
        let (mut pod, _) = pod("a", "web-n1");
        let status = |state| ContainerStatus { name: "main".to_owned(), state, ..ContainerStatus::default() };
        let error = |pod: &Pod| is_running(pod, "main").map_err(|line| line.split(';').next().unwrap().to_owned());
        assert_eq!(error(&pod), Err("container main of pod web-n1 is not running".to_owned()));
        let waiting = ContainerStateWaiting { reason: Reason::CRASH_LOOP_BACK_OFF, ..Default::default() };
        pod.status.container_statuses = vec![status(Some(ContainerState::Waiting(waiting)))];
        assert_eq!(error(&pod), Err("container main of pod web-n1 is not running (CrashLoopBackOff)".to_owned()));
        let running = ContainerState::Running(ContainerStateRunning::default());
        pod.status.container_statuses = vec![status(Some(running))];
        assert_eq!(error(&pod), Ok(()));
    }
}
