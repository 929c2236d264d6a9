//! The values of the counters and histograms, in thread-local memory: one thread runs all asynchronous code, and so
//! nothing is locked.

use std::cell::RefCell;
use std::time::Duration;

use super::counted::{Count, FamilyDescription, Timed};
use super::{Exposition, Kind, Labels, Number};

#[derive(Default)]
struct Registry {
    counts: Vec<CounterEntry>,
    times: Vec<HistogramEntry>,
    /// Unix seconds.
    last_relist: Option<i64>,
    /// Number of CPUs in the shared pool, and of exclusively allocated CPUs.
    processors: [usize; 2],
    /// By NUMA node.
    exclusive: Vec<(u32, usize)>,
}

struct CounterEntry {
    counter: Count,
    mark: u32,
    labels: Box<[Box<str>]>,
    count: u64,
}

struct HistogramEntry {
    histogram: Timed,
    mark: u32,
    labels: Box<[Box<str>]>,
    /// Counts per bucket, not cumulative; values beyond the last bound are only in `count`.
    buckets: Box<[u32]>,
    count: u64,
    nanos: u64,
}

thread_local! {
    static REGISTRY: RefCell<Registry> = RefCell::default();
}

/// Increments a counter. Counts of other threads are not seen.
pub(crate) fn count(counter: Count, labels: &[&str]) {
    add(counter, labels, 1);
}

/// Shows a counter that was not incremented yet.
pub(crate) fn expose(counter: Count, labels: &[&str]) {
    add(counter, labels, 0);
}

/// Searches linearly through the series, hundreds of them when pods have probes, and compares the hash before the labels.
fn add(counter: Count, labels: &[&str], count: u64) {
    let mark = mark(labels);
    with(|registry| {
        let mut alike = registry.counts.iter_mut().filter(|series| (series.counter, series.mark) == (counter, mark));
        match alike.find(|series| is_of(&series.labels, labels)) {
            Some(series) => series.count = series.count.saturating_add(count),
            None => registry.counts.push(CounterEntry { counter, mark, labels: owned(labels), count }),
        }
    });
}

/// The labels of a counter's series.
#[cfg(test)]
pub(crate) fn labels_of(counter: Count) -> Vec<String> {
    let mut labels = Vec::new();
    with(|registry| {
        labels.extend(
            registry.counts.iter().filter(|series| series.counter == counter).map(|series| series.labels.join(",")),
        )
    });
    labels
}

/// Records a duration in a histogram.
pub(crate) fn took(histogram: Timed, labels: &[&str], time: Duration) {
    let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let bounds = histogram.described().buckets;
    let mark = mark(labels);
    with(|registry| {
        let is_it = |series: &HistogramEntry| {
            (series.histogram, series.mark) == (histogram, mark) && is_of(&series.labels, labels)
        };
        let position = registry.times.iter().position(is_it);
        let index = position.unwrap_or_else(|| {
            let buckets = vec![0; bounds.len()].into_boxed_slice();
            registry.times.push(HistogramEntry { histogram, mark, labels: owned(labels), buckets, count: 0, nanos: 0 });
            registry.times.len() - 1
        });
        let Some(series) = registry.times.get_mut(index) else { return };
        series.count = series.count.saturating_add(1);
        series.nanos = series.nanos.saturating_add(nanos);
        let bucket = bounds.iter().position(|(_, bound)| nanos <= *bound);
        if let Some(bucket) = bucket.and_then(|bucket| series.buckets.get_mut(bucket)) {
            *bucket = bucket.saturating_add(1);
        }
    });
}

/// Records a duration in a histogram of whole milliseconds, as two of upstream's are, unlike all others.
pub(crate) fn took_millis(histogram: Timed, labels: &[&str], time: Duration) {
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    // A page shows the unit of a histogram, the second, as 1: so it does a millisecond that is recorded as a second.
    took(histogram, labels, Duration::from_secs(millis));
}

/// Records the time of a relist of the runtime.
pub(crate) fn relisted(now: i64) {
    with(|registry| registry.last_relist = Some(now));
}

pub(crate) fn last_relist() -> Option<i64> {
    with(|registry| registry.last_relist)
}

/// Sets the number of CPUs in the shared pool, and of exclusively allocated CPUs by NUMA node.
pub(crate) fn processors(shared: usize, exclusive: Vec<(u32, usize)>) {
    with(|registry| {
        registry.processors = [shared, exclusive.iter().map(|(_, count)| count).sum()];
        registry.exclusive = exclusive;
    });
}

/// Removes the probe series of a pod.
pub(crate) fn forget_probes(namespace: &str, pod: &str) {
    let is_its = |labels: &[Box<str>]| {
        labels.get(1).is_some_and(|label| **label == *namespace) && labels.get(2).is_some_and(|label| **label == *pod)
    };
    with(|registry| {
        registry.counts.retain(|series| series.counter != Count::Probes || !is_its(&series.labels));
        registry.times.retain(|series| series.histogram != Timed::Probes || !is_its(&series.labels));
    });
}

/// The names of all counters and histograms.
#[cfg(test)]
pub(crate) fn names() -> Vec<&'static str> {
    let counts = Count::ON_THE_PAGE.iter().map(|what| what.described().name);
    counts.chain(Timed::ON_THE_PAGE.iter().map(|what| what.described().name)).collect()
}

/// Writes all families except those of probes.
pub(crate) fn write(page: &mut Exposition) {
    with(|registry| {
        Count::ON_THE_PAGE.iter().for_each(|&what| write_count(page, registry, what));
        Timed::ON_THE_PAGE.iter().for_each(|&what| write_times(page, registry, what));
        let [shared, exclusive] = registry.processors.map(|count| u64::try_from(count).unwrap_or(u64::MAX));
        for (name, help, value) in [
            (
                "kubelet_cpu_manager_shared_pool_size_millicores",
                "[ALPHA] The size of the shared CPU pool for non-guaranteed QoS pods, in millicores.",
                shared.saturating_mul(1000),
            ),
            (
                "kubelet_cpu_manager_exclusive_cpu_allocation_count",
                "[ALPHA] The total number of CPUs exclusively allocated to containers running on this node",
                exclusive,
            ),
        ] {
            page.family(name, Kind::Gauge, help);
            page.sample(&Labels::default(), Number::Whole(value));
        }
        let per_node = "kubelet_cpu_manager_allocation_per_numa";
        page.family(per_node, Kind::Gauge, "[ALPHA] Number of CPUs allocated per NUMA node");
        for (node, count) in &registry.exclusive {
            let value = Number::Whole(u64::try_from(*count).unwrap_or(u64::MAX));
            page.sample(&Labels::of(&[("numa_node", &node.to_string())]), value);
        }
    });
}

pub(crate) fn write_health_checks(page: &mut Exposition) {
    with(|registry| write_count(page, registry, Count::HealthChecks));
}

pub(crate) fn write_probes(page: &mut Exposition) {
    with(|registry| {
        write_times(page, registry, Timed::Probes);
        write_count(page, registry, Count::Probes);
    });
}

fn write_count(page: &mut Exposition, registry: &Registry, counter: Count) {
    let described = counter.described();
    page.family(described.name, Kind::Counter, described.help);
    let mut of_it = registry.counts.iter().filter(|series| series.counter == counter).peekable();
    // A counter without labels is exposed before its first increment.
    if of_it.peek().is_none() && described.labels.is_empty() {
        page.sample(&Labels::default(), Number::Whole(0));
    }
    for series in of_it {
        page.sample(&shown(described, &series.labels), Number::Whole(series.count));
    }
}

fn write_times(page: &mut Exposition, registry: &Registry, histogram: Timed) {
    let described = histogram.described();
    page.family(described.name, Kind::Histogram, described.help);
    for series in registry.times.iter().filter(|series| series.histogram == histogram) {
        let mut sum: u64 = 0;
        let buckets = described.buckets.iter().zip(&series.buckets).map(|((bound, _), count)| {
            sum = sum.saturating_add(u64::from(*count));
            (*bound, sum)
        });
        page.histogram(&shown(described, &series.labels), buckets, series.count, Number::Nanos(series.nanos));
    }
}

fn shown(described: FamilyDescription, labels: &[Box<str>]) -> Labels {
    let labels = described.labels.iter().zip(labels);
    labels.fold(Labels::default(), |all, (name, value)| all.with(name, value))
}

fn with<T>(work: impl FnOnce(&mut Registry) -> T) -> T
where
    T: Default,
{
    // The thread-local is gone while its thread ends.
    REGISTRY.try_with(|registry| work(&mut registry.borrow_mut())).unwrap_or_default()
}

/// FNV-1a over the labels, to tell series apart quickly.
fn mark(labels: &[&str]) -> u32 {
    let bytes = labels.iter().flat_map(|label| label.bytes());
    bytes.fold(0x811c_9dc5, |mark, byte| (mark ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

fn is_of(series: &[Box<str>], labels: &[&str]) -> bool {
    series.len() == labels.len() && series.iter().zip(labels).all(|(labelled, label)| **labelled == **label)
}

fn owned(labels: &[&str]) -> Box<[Box<str>]> {
    labels.iter().map(|&label| Box::from(label)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::metrics::parsed;

    // Each test runs on its own thread and so has its own counts.
    fn page(write: fn(&mut Exposition)) -> String {
        let mut page = Exposition::default();
        write(&mut page);
        String::from_utf8(page.into_bytes()).unwrap()
    }

    #[test]
    fn counters_without_labels_start_at_zero() {
        let families = parsed::parse(&page(write));
        assert_eq!(families["kubelet_started_pods_total"].value(&[]), 0.0);
        assert!(!families.contains_key("kubelet_evictions") && !families.contains_key("prober_probe_total"));
        count(Count::Evictions, &["memory.available"]);
        count(Count::Evictions, &["nodefs.available"]);
        count(Count::Evictions, &["memory.available"]);
        let families = parsed::parse(&page(write));
        assert_eq!(families["kubelet_evictions"].value(&[("eviction_signal", "memory.available")]), 2.0);
    }

    #[test]
    fn buckets_are_cumulative_upper_bounds() {
        for millis in [1, 5, 6, 30, 60_000] {
            took(Timed::PlegRelists, &[], Duration::from_millis(millis));
        }
        let families = parsed::parse(&page(write));
        let family = &families["kubelet_pleg_relist_duration_seconds"];
        for (bound, count) in [("0.005", 2.0), ("0.01", 3.0), ("0.025", 3.0), ("0.05", 4.0), ("10", 4.0), ("+Inf", 5.0)]
        {
            assert_eq!(family.value(&[("le", bound)]), count, "{bound}");
        }
        let sum = family.samples.iter().find(|sample| sample.0.ends_with("_sum")).unwrap();
        assert_eq!(sum.2, 60.042);
    }

    #[test]
    fn labels_with_equal_concatenation_stay_apart() {
        for labels in [["main", "a"], ["mai", "na"], ["main", "a"]] {
            count(Count::Probes, &[labels[0], labels[1], "pod", "uid", "Liveness", "successful"]);
        }
        let families = parsed::parse(&page(write_probes));
        let of = |container| families["prober_probe_total"].value(&[("container", container)]);
        assert_eq!((of("main"), of("mai")), (2.0, 1.0));
    }

    #[test]
    fn probe_series_of_removed_pods_are_dropped() {
        let labels = |pod| ["main", "default", pod, "uid", "Liveness", "successful"];
        for pod in ["a", "b"] {
            count(Count::Probes, &labels(pod));
            took(Timed::Probes, &["main", "default", pod, "Liveness"], Duration::ZERO);
        }
        forget_probes("default", "a");
        let families = parsed::parse(&page(write_probes));
        assert_eq!(families["prober_probe_total"].samples.len(), 1);
        assert_eq!(families["prober_probe_total"].value(&[("pod", "b")]), 1.0);
        forget_probes("default", "b");
        assert_eq!(page(write_probes), "");
    }
}
