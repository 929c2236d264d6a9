//! The counters and histograms, with their names, help texts and labels. Pure.

/// A counter. Its label values are given in the order of [`Described::labels`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Count {
    AdmissionRejections,
    CpuPinnings,
    CpuPinningErrors,
    DevicePluginRegistrations,
    Evictions,
    ImagesCollected,
    LoopStalls,
    MemoryPinnings,
    MemoryPinningErrors,
    OrphanedPods,
    PodResources,
    PodResourcesAllocatable,
    PodResourcesGet,
    PodResourcesGetErrors,
    PodResourcesList,
    RestRequests,
    RuntimeErrors,
    RuntimeOperations,
    StartedContainers,
    StartedContainersErrors,
    StartedPods,
    StartedPodsErrors,
    TopologyAdmissions,
    TopologyErrors,
    Probes,
}

/// A histogram of durations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timed {
    DeviceAllocations,
    DraGrpcOperations,
    DraOperations,
    ImagePulls,
    PlegIntervals,
    PlegRelists,
    PodStarts,
    PodWorkerStarts,
    PodWorkers,
    RestRequests,
    RuntimeOperations,
    Sandboxes,
    StatusSyncs,
    /// Shown in milliseconds: its buckets take each millisecond for a second.
    TopologyAdmissions,
    Probes,
}

/// The name, help text and labels of a family.
#[derive(Clone, Copy, Debug)]
pub(super) struct Described {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) labels: &'static [&'static str],
}

/// The upper bound of a bucket: as text, and in nanoseconds.
pub(super) type Bucket = (&'static str, u64);

const fn described(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Described {
    Described { name, help, labels }
}

impl Count {
    /// In the order of the page. Probes have a page of their own.
    pub(super) const ALL: [Self; 24] = [
        Self::AdmissionRejections,
        Self::CpuPinnings,
        Self::CpuPinningErrors,
        Self::DevicePluginRegistrations,
        Self::Evictions,
        Self::ImagesCollected,
        Self::LoopStalls,
        Self::MemoryPinnings,
        Self::MemoryPinningErrors,
        Self::OrphanedPods,
        Self::PodResources,
        Self::PodResourcesAllocatable,
        Self::PodResourcesGet,
        Self::PodResourcesGetErrors,
        Self::PodResourcesList,
        Self::RestRequests,
        Self::RuntimeErrors,
        Self::RuntimeOperations,
        Self::StartedContainers,
        Self::StartedContainersErrors,
        Self::StartedPods,
        Self::StartedPodsErrors,
        Self::TopologyAdmissions,
        Self::TopologyErrors,
    ];

    pub(super) const fn described(self) -> Described {
        match self {
            Self::AdmissionRejections => described(
                "kubelet_admission_rejections_total",
                "[ALPHA] Cumulative number pod admission rejections by the Kubelet.",
                &["reason"],
            ),
            Self::CpuPinnings => described(
                "kubelet_cpu_manager_pinning_requests_total",
                "[ALPHA] The number of cpu core allocations which required pinning.",
                &[],
            ),
            Self::CpuPinningErrors => described(
                "kubelet_cpu_manager_pinning_errors_total",
                "[ALPHA] The number of cpu core allocations which required pinning failed.",
                &[],
            ),
            Self::DevicePluginRegistrations => described(
                "kubelet_device_plugin_registration_total",
                "[ALPHA] Cumulative number of device plugin registrations. Broken down by resource name.",
                &["resource_name"],
            ),
            Self::Evictions => described(
                "kubelet_evictions",
                "[ALPHA] Cumulative number of pod evictions by eviction signal",
                &["eviction_signal"],
            ),
            Self::ImagesCollected => described(
                "kubelet_image_garbage_collected_total",
                "[ALPHA] Total number of images garbage collected by the kubelet, whether through disk usage or image age.",
                &["reason"],
            ),
            Self::MemoryPinnings => described(
                "kubelet_memory_manager_pinning_requests_total",
                "[ALPHA] The number of memory pages allocations which required pinning.",
                &[],
            ),
            Self::MemoryPinningErrors => described(
                "kubelet_memory_manager_pinning_errors_total",
                "[ALPHA] The number of memory pages allocations which required pinning that failed.",
                &[],
            ),
            Self::LoopStalls => described(
                "coracle_loop_stalls_total",
                "Number of times a part of the sync loop was due and did nothing.",
                &["part"],
            ),
            Self::OrphanedPods => described(
                "kubelet_orphaned_runtime_pods_total",
                "[ALPHA] Number of pods that have been detected in the container runtime without being already known to \
                 the pod worker. This typically indicates the kubelet was restarted while a pod was force deleted in the \
                 API or in the local configuration, which is unusual.",
                &[],
            ),
            Self::PodResources => described(
                "kubelet_pod_resources_endpoint_requests_total",
                "[ALPHA] Cumulative number of requests to the PodResource endpoint. Broken down by server api version.",
                &["server_api_version"],
            ),
            Self::PodResourcesAllocatable => described(
                "kubelet_pod_resources_endpoint_requests_get_allocatable",
                "[ALPHA] Number of requests to the PodResource GetAllocatableResources endpoint. Broken down by server api \
                 version.",
                &["server_api_version"],
            ),
            Self::PodResourcesGet => described(
                "kubelet_pod_resources_endpoint_requests_get",
                "[ALPHA] Number of requests to the PodResource Get endpoint. Broken down by server api version.",
                &["server_api_version"],
            ),
            Self::PodResourcesGetErrors => described(
                "kubelet_pod_resources_endpoint_errors_get",
                "[ALPHA] Number of requests to the PodResource Get endpoint which returned error. Broken down by server api \
                 version.",
                &["server_api_version"],
            ),
            Self::PodResourcesList => described(
                "kubelet_pod_resources_endpoint_requests_list",
                "[ALPHA] Number of requests to the PodResource List endpoint. Broken down by server api version.",
                &["server_api_version"],
            ),
            Self::RestRequests => described(
                "rest_client_requests_total",
                "[ALPHA] Number of HTTP requests, partitioned by status code, method, and host.",
                &["code", "host", "method"],
            ),
            Self::RuntimeErrors => described(
                "kubelet_runtime_operations_errors_total",
                "[ALPHA] Cumulative number of runtime operation errors by operation type.",
                &["operation_type"],
            ),
            Self::RuntimeOperations => described(
                "kubelet_runtime_operations_total",
                "[ALPHA] Cumulative number of runtime operations by operation type.",
                &["operation_type"],
            ),
            Self::StartedContainers => described(
                "kubelet_started_containers_total",
                "[ALPHA] Cumulative number of containers started",
                &["container_type"],
            ),
            Self::StartedContainersErrors => described(
                "kubelet_started_containers_errors_total",
                "[ALPHA] Cumulative number of errors when starting containers",
                &["code", "container_type"],
            ),
            Self::StartedPods => {
                described("kubelet_started_pods_total", "[ALPHA] Cumulative number of pods started", &[])
            }
            Self::StartedPodsErrors => described(
                "kubelet_started_pods_errors_total",
                "[ALPHA] Cumulative number of errors when starting pods",
                &[],
            ),
            Self::TopologyAdmissions => described(
                "kubelet_topology_manager_admission_requests_total",
                "[ALPHA] The number of admission requests where resources have to be aligned.",
                &[],
            ),
            Self::TopologyErrors => described(
                "kubelet_topology_manager_admission_errors_total",
                "[ALPHA] The number of admission request failures where resources could not be aligned.",
                &[],
            ),
            Self::Probes => described(
                "prober_probe_total",
                "[BETA] Cumulative number of a liveness, readiness or startup probe for a container by result.",
                &["container", "namespace", "pod", "pod_uid", "probe_type", "result"],
            ),
        }
    }
}

impl Timed {
    /// As [`Count::ALL`].
    pub(super) const ALL: [Self; 14] = [
        Self::DraGrpcOperations,
        Self::DraOperations,
        Self::DeviceAllocations,
        Self::ImagePulls,
        Self::PlegIntervals,
        Self::PlegRelists,
        Self::PodStarts,
        Self::PodWorkerStarts,
        Self::PodWorkers,
        Self::RestRequests,
        Self::RuntimeOperations,
        Self::Sandboxes,
        Self::StatusSyncs,
        Self::TopologyAdmissions,
    ];

    pub(super) const fn described(self) -> Described {
        match self {
            Self::DeviceAllocations => described(
                "kubelet_device_plugin_alloc_duration_seconds",
                "[ALPHA] Duration in seconds to serve a device plugin Allocation request. Broken down by resource name.",
                &["resource_name"],
            ),
            Self::DraGrpcOperations => described(
                "dra_grpc_operations_duration_seconds",
                "[ALPHA] Duration in seconds of the DRA gRPC operations",
                &["driver_name", "method_name", "grpc_status_code"],
            ),
            Self::DraOperations => described(
                "dra_operations_duration_seconds",
                "[ALPHA] Latency histogram in seconds for the duration of handling all ResourceClaims referenced by a pod \
                 when the pod starts or stops. Identified by the name of the operation (PrepareResources or \
                 UnprepareResources) and separated by the success of the operation. The number of failed operations is \
                 provided through the histogram's overall count.",
                &["operation_name", "is_error"],
            ),
            Self::ImagePulls => described(
                "kubelet_image_pull_duration_seconds",
                "[ALPHA] Duration in seconds to pull an image.",
                &["image_size_in_bytes"],
            ),
            Self::PlegIntervals => described(
                "kubelet_pleg_relist_interval_seconds",
                "[ALPHA] Interval in seconds between relisting in PLEG.",
                &[],
            ),
            Self::PlegRelists => described(
                "kubelet_pleg_relist_duration_seconds",
                "[ALPHA] Duration in seconds for relisting pods in PLEG.",
                &[],
            ),
            Self::PodStarts => described(
                "kubelet_pod_start_duration_seconds",
                "[ALPHA] Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run",
                &[],
            ),
            Self::PodWorkerStarts => described(
                "kubelet_pod_worker_start_duration_seconds",
                "[ALPHA] Duration in seconds from kubelet seeing a pod to starting a worker.",
                &[],
            ),
            Self::PodWorkers => described(
                "kubelet_pod_worker_duration_seconds",
                "[ALPHA] Duration in seconds to sync a single pod. Broken down by operation type: create, update, or sync",
                &["operation_type"],
            ),
            Self::RestRequests => described(
                "rest_client_request_duration_seconds",
                "[ALPHA] Request latency in seconds. Broken down by verb, and host.",
                &["host", "verb"],
            ),
            Self::RuntimeOperations => described(
                "kubelet_runtime_operations_duration_seconds",
                "[ALPHA] Duration in seconds of runtime operations. Broken down by operation type.",
                &["operation_type"],
            ),
            Self::Sandboxes => described(
                "kubelet_run_podsandbox_duration_seconds",
                "[ALPHA] Duration in seconds of the run_podsandbox operations. Broken down by RuntimeClass.Handler.",
                &["runtime_handler"],
            ),
            Self::StatusSyncs => described(
                "kubelet_pod_status_sync_duration_seconds",
                "[ALPHA] Duration in seconds to sync a pod status update. Measures time from detection of a change to pod \
                 status until the API is successfully updated for that pod, even if multiple intevening changes to pod \
                 status occur.",
                &[],
            ),
            Self::TopologyAdmissions => described(
                "kubelet_topology_manager_admission_duration_ms",
                "[ALPHA] Duration in milliseconds to serve a pod admission request.",
                &[],
            ),
            Self::Probes => described(
                "prober_probe_duration_seconds",
                "[ALPHA] Duration in seconds for a probe response.",
                &["container", "namespace", "pod", "probe_type"],
            ),
        }
    }

    /// Upstream's bounds.
    pub(super) const fn buckets(self) -> &'static [Bucket] {
        match self {
            Self::DraGrpcOperations | Self::DraOperations => &DRA,
            Self::ImagePulls => &PULLS,
            Self::PodStarts => &STARTS,
            Self::RestRequests => &REST,
            Self::RuntimeOperations => &OPERATIONS,
            Self::StatusSyncs => &STATUS,
            Self::TopologyAdmissions => &ADMISSIONS,
            Self::DeviceAllocations
            | Self::PlegIntervals
            | Self::PlegRelists
            | Self::PodWorkerStarts
            | Self::PodWorkers
            | Self::Sandboxes
            | Self::Probes => &USUAL,
        }
    }
}

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

const USUAL: [Bucket; 11] = [
    ("0.005", 5 * MS),
    ("0.01", 10 * MS),
    ("0.025", 25 * MS),
    ("0.05", 50 * MS),
    ("0.1", 100 * MS),
    ("0.25", 250 * MS),
    ("0.5", 500 * MS),
    ("1", S),
    ("2.5", 2500 * MS),
    ("5", 5 * S),
    ("10", 10 * S),
];

const DRA: [Bucket; 15] = [
    ("0.1", 100 * MS),
    ("0.1534127404634391", 153_412_740),
    ("0.23535468936502524", 235_354_689),
    ("0.36106407876409946", 361_064_078),
    ("0.5539182980610752", 553_918_298),
    ("0.8497812409839363", 849_781_240),
    ("1.303672689737678", 1_303_672_689),
    ("1.9999999999999993", 1_999_999_999),
    ("3.068254809268781", 3_068_254_809),
    ("4.707093787300503", 4_707_093_787),
    ("7.221281575281985", 7_221_281_575),
    ("11.0783659612215", 11_078_365_961),
    ("16.995624819678717", 16_995_624_819),
    ("26.07345379475355", 26_073_453_794),
    ("39.99999999999997", 39_999_999_999),
];

const OPERATIONS: [Bucket; 14] = [
    ("0.005", 5 * MS),
    ("0.0125", 12_500_000),
    ("0.03125", 31_250_000),
    ("0.078125", 78_125_000),
    ("0.1953125", 195_312_500),
    ("0.48828125", 488_281_250),
    ("1.220703125", 1_220_703_125),
    ("3.0517578125", 3_051_757_812),
    ("7.62939453125", 7_629_394_531),
    ("19.073486328125", 19_073_486_328),
    ("47.6837158203125", 47_683_715_820),
    ("119.20928955078125", 119_209_289_550),
    ("298.0232238769531", 298_023_223_876),
    ("745.0580596923828", 745_058_059_692),
];

const REST: [Bucket; 12] = [
    ("0.005", 5 * MS),
    ("0.025", 25 * MS),
    ("0.1", 100 * MS),
    ("0.25", 250 * MS),
    ("0.5", 500 * MS),
    ("1", S),
    ("2", 2 * S),
    ("4", 4 * S),
    ("8", 8 * S),
    ("15", 15 * S),
    ("30", 30 * S),
    ("60", 60 * S),
];

const STATUS: [Bucket; 11] = [
    ("0.01", 10 * MS),
    ("0.05", 50 * MS),
    ("0.1", 100 * MS),
    ("0.5", 500 * MS),
    ("1", S),
    ("5", 5 * S),
    ("10", 10 * S),
    ("20", 20 * S),
    ("30", 30 * S),
    ("45", 45 * S),
    ("60", 60 * S),
];

const ADMISSIONS: [Bucket; 15] = [
    ("0.05", 50 * MS),
    ("0.1", 100 * MS),
    ("0.2", 200 * MS),
    ("0.4", 400 * MS),
    ("0.8", 800 * MS),
    ("1.6", 1600 * MS),
    ("3.2", 3200 * MS),
    ("6.4", 6400 * MS),
    ("12.8", 12_800 * MS),
    ("25.6", 25_600 * MS),
    ("51.2", 51_200 * MS),
    ("102.4", 102_400 * MS),
    ("204.8", 204_800 * MS),
    ("409.6", 409_600 * MS),
    ("819.2", 819_200 * MS),
];

const STARTS: [Bucket; 25] = [
    ("0.5", 500 * MS),
    ("1", S),
    ("2", 2 * S),
    ("3", 3 * S),
    ("4", 4 * S),
    ("5", 5 * S),
    ("6", 6 * S),
    ("8", 8 * S),
    ("10", 10 * S),
    ("20", 20 * S),
    ("30", 30 * S),
    ("45", 45 * S),
    ("60", 60 * S),
    ("120", 120 * S),
    ("180", 180 * S),
    ("240", 240 * S),
    ("300", 300 * S),
    ("360", 360 * S),
    ("480", 480 * S),
    ("600", 600 * S),
    ("900", 900 * S),
    ("1200", 1200 * S),
    ("1800", 1800 * S),
    ("2700", 2700 * S),
    ("3600", 3600 * S),
];

const PULLS: [Bucket; 18] = [
    ("1", S),
    ("5", 5 * S),
    ("10", 10 * S),
    ("20", 20 * S),
    ("30", 30 * S),
    ("60", 60 * S),
    ("120", 120 * S),
    ("180", 180 * S),
    ("240", 240 * S),
    ("300", 300 * S),
    ("360", 360 * S),
    ("480", 480 * S),
    ("600", 600 * S),
    ("900", 900 * S),
    ("1200", 1200 * S),
    ("1800", 1800 * S),
    ("2700", 2700 * S),
    ("3600", 3600 * S),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_bounds_ascend_and_match_their_text() {
        for timed in Timed::ALL.into_iter().chain([Timed::Probes]) {
            let buckets = timed.buckets();
            assert!(buckets.windows(2).all(|pair| pair[0].1 < pair[1].1), "{timed:?}");
            for (shown, nanos) in buckets {
                let seconds: f64 = shown.parse().unwrap();
                let nanos = std::time::Duration::from_nanos(*nanos).as_secs_f64();
                assert!((seconds - nanos).abs() < 1e-8, "{timed:?}: {shown}");
            }
        }
    }
}
