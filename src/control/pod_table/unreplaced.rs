//! Static pods whose manifest changed and kept its `metadata.uid`: they run on as before, as upstream. Pure.

use crate::control::pod_sources::static_pod::is_own_uid;
use crate::state::pods::ObservedPod;
use crate::types::api::{Pod, container_hash, container_spec_hash, pod_spec_hash};

/// Whether the runtime runs the pod with another spec than `pod` has, and nothing replaces it. The runtime's
/// annotations tell, so that the answer outlives the agent. Containers of another kubelet have no such annotation.
pub(super) fn runs_other_spec(pod: &Pod, observed: &ObservedPod) -> bool {
    if !pod.is_static() || is_own_uid(pod.metadata.uid.as_str()) || observed.ready_sandbox().is_none() {
        return false;
    }
    let is_other_pod = observed.spec_hash.is_some_and(|hash| hash != pod_spec_hash(pod));
    is_other_pod
        || pod.spec.containers.iter().any(|container| {
            let running = observed.container(&container.name).filter(|running| running.is_running());
            // A container with another image is about to be replaced.
            running
                .filter(|running| running.hash == Some(container_hash(container)))
                .is_some_and(|running| running.spec_hash.is_some_and(|hash| hash != container_spec_hash(container)))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::pods::{ContainerState, ObservedContainer, ObservedSandbox, SandboxState};
    use crate::types::api::annotations::CONFIG_SOURCE;
    use crate::types::api::decode;

    fn pod(image: &str, command: &str, host_network: bool) -> Pod {
        let text = serde_json::json!({
            "metadata": { "uid": "1", "annotations": { CONFIG_SOURCE: "file" } },
            "spec": {
                "hostNetwork": host_network,
                "containers": [{ "name": "a", "image": image, "command": [command] }],
            },
        });
        decode(text).unwrap().value
    }

    fn running(pod: &Pod, state: ContainerState) -> ObservedPod {
        let mut observed = ObservedPod::new(pod.metadata.uid.clone(), "default", "a");
        observed.spec_hash = Some(pod_spec_hash(pod));
        observed.sandboxes.push(ObservedSandbox {
            id: "s".to_owned(),
            attempt: 0,
            state: SandboxState::Ready,
            created_at: 1,
            host_network: false,
            ips: Vec::new(),
            has_address: false,
            pid: None,
        });
        let container = &pod.spec.containers[0];
        observed.containers.push(ObservedContainer {
            hash: Some(container_hash(container)),
            spec_hash: Some(container_spec_hash(container)),
            ..ObservedContainer::seen("c", "a", "s", state)
        });
        observed
    }

    #[test]
    fn changed_command_and_changed_pod_are_seen_and_what_takes_effect_is_not() {
        let runs = running(&pod("i:1", "one", false), ContainerState::Running { started_at: 1 });
        for (manifest, expected) in [
            (pod("i:1", "one", false), false),
            (pod("i:1", "two", false), true),
            (pod("i:1", "one", true), true),
            (pod("i:2", "two", false), false),
        ] {
            assert_eq!(runs_other_spec(&manifest, &runs), expected, "{:?}", manifest.spec);
        }
        let mut of_cluster = pod("i:1", "two", false);
        of_cluster.metadata.annotations.insert(CONFIG_SOURCE, "api".to_owned());
        assert!(!runs_other_spec(&of_cluster, &runs));
        let exited = running(&pod("i:1", "one", false), ContainerState::Exited(Box::default()));
        assert!(!runs_other_spec(&pod("i:1", "two", false), &exited), "the next container has the new command");
    }

    #[test]
    fn resized_pod_and_containers_of_another_kubelet_are_not_marked() {
        let with_memory = |amount: &str| {
            let mut pod = pod("i:1", "one", false);
            let list = serde_json::json!({ "containers": [{ "resources": { "limits": { "memory": amount } } }] });
            let decoded: crate::types::api::PodSpec = decode(list).unwrap().value;
            pod.spec.containers[0].resources = decoded.containers[0].resources.clone();
            pod
        };
        let mut runs = running(&with_memory("10Mi"), ContainerState::Running { started_at: 1 });
        assert!(!runs_other_spec(&with_memory("20Mi"), &runs));
        runs.spec_hash = None;
        for container in &mut runs.containers {
            container.spec_hash = None;
        }
        assert!(!runs_other_spec(&pod("i:1", "two", true), &runs));
    }
}
