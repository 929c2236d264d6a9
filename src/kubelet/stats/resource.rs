//! The response of `/metrics/resource`, which metrics-server reads. Pure.

use super::snapshot::{ContainerSnapshot, PodSnapshot, Snapshot, UsageStats};
use crate::types::metrics::{Exposition, Kind, Labels, Number};

/// Upstream's metric families.
pub(super) fn resource(snapshot: &Snapshot) -> Vec<u8> {
    let mut page = Page { out: Exposition::default() };
    let containers: Vec<(Labels, &ContainerSnapshot)> = snapshot.pods.iter().flat_map(of_pod).collect();
    let pods: Vec<(Labels, &PodSnapshot)> = snapshot.pods.iter().map(|pod| (labels(pod), pod)).collect();
    let of_containers = || containers.iter().map(|(labels, container)| (labels, &container.figures));
    let of_pods = || pods.iter().map(|(labels, pod)| (labels, &pod.figures));
    let nothing = Labels::default();
    let of_node = || std::iter::once((&nothing, &snapshot.node.figures));

    let (cpu, working_set) = (
        |figures: &UsageStats| figures.cpu_nanos.map(Number::Nanos),
        |figures: &UsageStats| figures.memory.working_set.map(Number::Whole),
    );
    let swap_used = |figures: &UsageStats| figures.swap_used.map(Number::Whole);
    // Total swap available to the container, used and free.
    let swap_limit = |figures: &UsageStats| {
        let (used, available) = figures.swap_used.zip(figures.swap_available)?;
        Some(Number::Whole(used.saturating_add(available)))
    };
    page.family(
        "container_cpu_usage_seconds_total",
        Kind::Counter,
        "[STABLE] Cumulative cpu time consumed by the container in core-seconds",
        of_containers(),
        cpu,
    );
    page.family(
        "container_memory_working_set_bytes",
        Kind::Gauge,
        "[STABLE] Current working set of the container in bytes",
        of_containers(),
        working_set,
    );
    page.out.family(
        "container_start_time_seconds",
        Kind::Gauge,
        "[STABLE] Start time of the container since unix epoch in seconds",
    );
    for (labels, container) in &containers {
        let started = u64::try_from(container.started_at).unwrap_or(0);
        page.out.sample(labels, Number::Nanos(started));
    }
    page.family(
        "container_swap_limit_bytes",
        Kind::Gauge,
        "[ALPHA] Current amount of the container swap limit in bytes. Reported only on non-windows systems",
        of_containers(),
        swap_limit,
    );
    page.family(
        "container_swap_usage_bytes",
        Kind::Gauge,
        "[ALPHA] Current amount of the container swap usage in bytes. Reported only on non-windows systems",
        of_containers(),
        swap_used,
    );
    page.family(
        "node_cpu_usage_seconds_total",
        Kind::Counter,
        "[STABLE] Cumulative cpu time consumed by the node in core-seconds",
        of_node(),
        cpu,
    );
    page.family(
        "node_memory_working_set_bytes",
        Kind::Gauge,
        "[STABLE] Current working set of the node in bytes",
        of_node(),
        working_set,
    );
    page.family(
        "node_swap_usage_bytes",
        Kind::Gauge,
        "[ALPHA] Current swap usage of the node in bytes. Reported only on non-windows systems",
        of_node(),
        swap_used,
    );
    page.family(
        "pod_cpu_usage_seconds_total",
        Kind::Counter,
        "[STABLE] Cumulative cpu time consumed by the pod in core-seconds",
        of_pods(),
        cpu,
    );
    page.family(
        "pod_memory_working_set_bytes",
        Kind::Gauge,
        "[STABLE] Current working set of the pod in bytes",
        of_pods(),
        working_set,
    );
    page.family(
        "pod_swap_usage_bytes",
        Kind::Gauge,
        "[ALPHA] Current amount of the pod swap usage in bytes. Reported only on non-windows systems",
        of_pods(),
        swap_used,
    );
    page.out.family(
        "resource_scrape_error",
        Kind::Gauge,
        "[STABLE] 1 if there was an error while getting container metrics, 0 otherwise",
    );
    page.out.sample(&nothing, Number::Whole(snapshot.is_partial.into()));
    page.out.into_bytes()
}

struct Page {
    out: Exposition,
}

impl Page {
    fn family<'a>(
        &mut self,
        name: &'static str,
        kind: Kind,
        help: &'static str,
        of: impl Iterator<Item = (&'a Labels, &'a UsageStats)>,
        value: impl Fn(&UsageStats) -> Option<Number>,
    ) {
        self.out.family(name, kind, help);
        for (labels, figures) in of {
            if let Some(value) = value(figures) {
                self.out.sample_at(labels, None, value, Some(figures.at.div_euclid(1_000_000)));
            }
        }
    }
}

fn labels(pod: &PodSnapshot) -> Labels {
    Labels::of(&[("namespace", &pod.namespace), ("pod", &pod.name)])
}

fn of_pod(pod: &PodSnapshot) -> impl Iterator<Item = (Labels, &ContainerSnapshot)> {
    let labels = |container: &ContainerSnapshot| {
        Labels::of(&[("container", &container.name), ("namespace", &pod.namespace), ("pod", &pod.name)])
    };
    pod.containers.iter().map(move |container| (labels(container), container))
}
