//! Eviction messages, as upstream. Pure.

use std::fmt::Write as _;

use super::signals::{Observations, Starved};
use super::usage::MeasuredPod;
use crate::platform::config::Threshold;
use crate::types::api::{Container, MEMORY, Quantity};
use crate::types::sorted::SortedMap;

/// Why the pod is evicted: the starved resource, and the containers that use more than their requests.
pub(crate) fn node_was_low(
    starved: Starved,
    thresholds: &[Threshold],
    observed: &Observations,
    measured: &MeasuredPod<'_>,
) -> String {
    let resource = starved.as_str();
    let mut message = format!("The node was low on resource: {resource}. ");
    let mut of_resource = thresholds.iter().filter(|t| Starved::of(t.signal) == starved);
    if let Some((threshold, seen)) = of_resource.find_map(|t| Some((t, observed.get(&t.signal)?))) {
        let (wanted, available) = (threshold.value.of(seen.capacity), starved.quantity(seen.available));
        let _ = write!(message, "Threshold quantity: {wanted}, available: {available}. ");
    }
    let (pod, Some(usage)) = (measured.pod, measured.usage) else { return message };
    let of_pod = pod.spec.resources.as_ref().and_then(|resources| resources.requests.get(MEMORY));
    if let (Starved::Memory, Some(request), Some(used)) = (starved, of_pod, usage.memory) {
        blame(&mut message, "Pod", &pod.metadata.name, starved.quantity(used), *request, resource);
    }
    let spec = pod.spec.containers.iter().chain(&pod.spec.init_containers);
    let spec: SortedMap<&str, &Container> = spec.map(|container| (container.name.as_str(), container)).collect();
    for seen in &usage.containers {
        let Some(container) = spec.get(seen.name.as_str()) else { continue };
        let used = match starved {
            Starved::Memory => seen.memory,
            Starved::Storage => seen.layer.zip(seen.logs).map(|(layer, logs)| layer.bytes.saturating_add(logs.bytes)),
            Starved::Inodes | Starved::Pids => None,
        };
        let request = container.resources.requests.get(resource).copied().unwrap_or_default();
        let used = used.map(|used| starved.quantity(used)).filter(|used| *used > request);
        if let Some(used) = used {
            blame(&mut message, "Container", &container.name, used, request, resource);
        }
    }
    message
}

fn blame(message: &mut String, subject: &str, name: &str, used: Quantity, request: Quantity, resource: &str) {
    let _ = write!(
        message,
        "{subject} {name} was using {used}, request is {request}, has larger consumption of {resource}. "
    );
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::signals::Observation;
    use super::super::usage::{ContainerUsage, Disk, PodUsage};
    use super::*;
    use crate::platform::config::{Amount, Signal};
    use crate::types::api::{EPHEMERAL_STORAGE, Pod};

    fn threshold(signal: Signal, text: &str) -> Threshold {
        let value = Amount::Quantity(text.parse().unwrap());
        Threshold { signal, value, grace: Duration::ZERO, min_reclaim: None }
    }

    fn container(name: &str, requests: &[(&'static str, &str)]) -> Container {
        let mut container = Container { name: name.to_owned(), ..Container::default() };
        container.resources.requests = requests.iter().map(|(name, text)| (*name, text.parse().unwrap())).collect();
        container
    }

    #[test]
    fn memory_message_has_threshold_and_exceeding_containers() {
        let mut pod = Pod::default();
        pod.spec.containers = vec![container("x", &[]), container("y", &[(MEMORY, "64Mi")])];
        let of = |name: &str, memory| ContainerUsage { name: name.to_owned(), memory, ..ContainerUsage::default() };
        let containers = vec![of("x", Some(30 << 20)), of("y", Some(64 << 20)), of("debugger", Some(1 << 30))];
        let usage = PodUsage { containers, ..PodUsage::default() };
        let observed = Observations::from([
            (Signal::MemoryAvailable, Observation { available: 20 << 20, capacity: 1 << 30 }),
            (Signal::NodeFsAvailable, Observation { available: 1, capacity: 2 }),
        ]);
        let thresholds = [threshold(Signal::NodeFsAvailable, "1Gi"), threshold(Signal::MemoryAvailable, "100Mi")];
        let message =
            node_was_low(Starved::Memory, &thresholds, &observed, &MeasuredPod { pod: &pod, usage: Some(&usage) });
        assert_eq!(
            message,
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 20Mi. Container x was using \
             30Mi, request is 0, has larger consumption of memory. "
        );
    }

    #[test]
    fn disk_message_adds_layers_and_logs() {
        let mut pod = Pod::default();
        pod.spec.containers = vec![container("x", &[(EPHEMERAL_STORAGE, "1Ki")])];
        let disk = |bytes| Some(Disk { bytes, inodes: 1 });
        let seen = ContainerUsage { name: "x".to_owned(), memory: None, layer: disk(2048), logs: disk(1000) };
        let usage = PodUsage { containers: vec![seen], ..PodUsage::default() };
        let measured = MeasuredPod { pod: &pod, usage: Some(&usage) };
        let message = node_was_low(Starved::Storage, &[], &Observations::new(), &measured);
        let expected = "The node was low on resource: ephemeral-storage. Container x was using 3048, request is 1Ki, \
                        has larger consumption of ephemeral-storage. ";
        assert_eq!(message, expected);
        let inodes = node_was_low(Starved::Inodes, &[], &Observations::new(), &measured);
        assert_eq!(inodes, "The node was low on resource: inodes. ");
    }
}
