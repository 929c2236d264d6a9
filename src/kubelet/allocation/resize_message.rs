//! The messages of resize events. Pure.
//!
//! `podResizeMessage` in pkg/kubelet/events.

use serde_json::{Value, json};

use crate::types::api::{Container, Pod, encode};

/// `what`, followed by the resources in the pod's spec, the generation and the error, as upstream writes them.
pub(crate) fn resize_message(condition: &str, pod: &Pod, generation: i64, error: Option<&str>) -> String {
    let mut parts = Vec::new();
    for (list, containers) in [("initContainers", &pod.spec.init_containers), ("containers", &pod.spec.containers)] {
        if !containers.is_empty() {
            parts.push(format!("\"{list}\":{}", summary(containers)));
        }
    }
    parts.push(format!("\"generation\":{generation}"));
    if let Some(error) = error {
        parts.push(format!("\"error\":{}", Value::from(error)));
    }
    format!("{condition}: {{{}}}", parts.join(","))
}

fn summary(containers: &[Container]) -> Value {
    let of = |container: &Container| json!({"name": container.name, "resources": encode(&container.resources)});
    containers.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_is_upstreams() {
        let mut pod = Pod::default();
        let mut container = Container { name: "c1".to_owned(), ..Container::default() };
        container.resources.requests =
            [("cpu", "5".parse().unwrap()), ("memory", "4500Mi".parse().unwrap())].into_iter().collect();
        pod.spec.containers = vec![container];
        let error = "Node didn't have enough resource: cpu, requested: 5000, used: 0, capacity: 4000";
        assert_eq!(
            resize_message("Pod resize OutOfcpu", &pod, 2, Some(error)),
            r#"Pod resize OutOfcpu: {"containers":[{"name":"c1","resources":{"requests":{"cpu":"5","memory":"4500Mi"}}}],"generation":2,"error":"Node didn't have enough resource: cpu, requested: 5000, used: 0, capacity: 4000"}"#
        );
        pod.spec.init_containers = vec![Container { name: "c0".to_owned(), ..Container::default() }];
        pod.spec.containers.clear();
        assert_eq!(
            resize_message("Pod resize started", &pod, 1, None),
            r#"Pod resize started: {"initContainers":[{"name":"c0","resources":{}}],"generation":1}"#
        );
    }
}
