//! The counters and histograms, with their names, help texts and labels. Pure.

use super::buckets::{ADMISSIONS, Bucket, DRA, OPERATIONS, PULLS, RESIZES, REST, STARTS, STATUS, USUAL};

/// A counter. Its label values are given in the order of [`FamilyDescription::labels`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Count {
    AdmissionRejections,
    AlignedResources,
    AlignedResourcesFailures,
    CpuPinnings,
    CpuPinningErrors,
    CredentialPluginErrors,
    DeferredAcceptedResizes,
    DevicePluginRegistrations,
    Evictions,
    ImagesCollected,
    ImageVolumesFailed,
    ImageVolumesMounted,
    ImageVolumesRequested,
    InfeasibleResizes,
    LoopStalls,
    MemoryPinnings,
    MemoryPinningErrors,
    MustPullChecks,
    OrphanedPods,
    PodResources,
    PodResourcesAllocatable,
    PodResourcesGet,
    PodResourcesGetErrors,
    PodResourcesList,
    Preemptions,
    RequestedResizes,
    RestartedPods,
    RestRequests,
    RuntimeErrors,
    SpansDropped,
    RuntimeOperations,
    SandboxErrors,
    StartedContainers,
    StartedContainersErrors,
    StartedPods,
    StartedPodsErrors,
    StartedUserNamespacedPods,
    StartedUserNamespacedPodsErrors,
    TerminatedContainers,
    TopologyAdmissions,
    TopologyErrors,
    HealthChecks,
    Probes,
}

/// A histogram of durations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timed {
    CredentialPlugins,
    DeviceAllocations,
    DraGrpcOperations,
    DraOperations,
    ImagePulls,
    PlegIntervals,
    PlegRelists,
    /// Shown in milliseconds, as [`Self::TopologyAdmissions`].
    PodResizes,
    PodStarts,
    PodWorkerStarts,
    PodWorkers,
    RestRequests,
    RuntimeOperations,
    Sandboxes,
    StatusSyncs,
    /// Recorded in upstream's unit: one second here is a millisecond of the duration.
    TopologyAdmissions,
    Probes,
}

/// The name, help text and labels of a family.
#[derive(Clone, Copy, Debug)]
pub(super) struct FamilyDescription {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) labels: &'static [&'static str],
}

const fn described(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> FamilyDescription {
    FamilyDescription { name, help, labels }
}

impl Count {
    /// In the order of the page. Probes and health checks have pages of their own.
    pub(super) const ALL: [Self; 41] = [
        Self::AdmissionRejections,
        Self::AlignedResources,
        Self::AlignedResourcesFailures,
        Self::CpuPinnings,
        Self::CpuPinningErrors,
        Self::CredentialPluginErrors,
        Self::DeferredAcceptedResizes,
        Self::DevicePluginRegistrations,
        Self::Evictions,
        Self::ImagesCollected,
        Self::ImageVolumesFailed,
        Self::ImageVolumesMounted,
        Self::ImageVolumesRequested,
        Self::InfeasibleResizes,
        Self::LoopStalls,
        Self::MemoryPinnings,
        Self::MemoryPinningErrors,
        Self::MustPullChecks,
        Self::OrphanedPods,
        Self::PodResources,
        Self::PodResourcesAllocatable,
        Self::PodResourcesGet,
        Self::PodResourcesGetErrors,
        Self::PodResourcesList,
        Self::Preemptions,
        Self::RequestedResizes,
        Self::RestartedPods,
        Self::RestRequests,
        Self::RuntimeErrors,
        Self::SpansDropped,
        Self::RuntimeOperations,
        Self::SandboxErrors,
        Self::StartedContainers,
        Self::StartedContainersErrors,
        Self::StartedPods,
        Self::StartedPodsErrors,
        Self::StartedUserNamespacedPods,
        Self::StartedUserNamespacedPodsErrors,
        Self::TerminatedContainers,
        Self::TopologyAdmissions,
        Self::TopologyErrors,
    ];

    pub(super) const fn described(self) -> FamilyDescription {
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
            Self::CredentialPluginErrors => described(
                "kubelet_credential_provider_plugin_errors_total",
                "[ALPHA] Number of errors from credential provider plugin",
                &["plugin_name"],
            ),
            Self::DeferredAcceptedResizes => described(
                "kubelet_pod_deferred_accepted_resizes_total",
                "[ALPHA] Cumulative number of resizes that were accepted after being deferred.",
                &["retry_trigger"],
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
            Self::ImageVolumesFailed => described(
                "kubelet_image_volume_mounted_errors_total",
                "[BETA] Number of failed image volume mounts.",
                &[],
            ),
            Self::ImageVolumesMounted => described(
                "kubelet_image_volume_mounted_succeed_total",
                "[BETA] Number of successful image volume mounts.",
                &[],
            ),
            Self::ImageVolumesRequested => {
                described("kubelet_image_volume_requested_total", "[BETA] Number of requested image volumes.", &[])
            }
            Self::InfeasibleResizes => described(
                "kubelet_pod_infeasible_resizes_total",
                "[ALPHA] Number of infeasible resizes for pods.",
                &["reason_detail"],
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
            Self::MustPullChecks => described(
                "kubelet_imagemanager_image_mustpull_checks_total",
                "[ALPHA] Counter for how many times kubelet checked whether credentials need to be re-verified to access an \
                 image",
                &["result"],
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
            Self::Preemptions => described(
                "kubelet_preemptions",
                "[ALPHA] Cumulative number of pod preemptions by preemption resource",
                &["preemption_signal"],
            ),
            Self::RequestedResizes => described(
                "kubelet_container_requested_resizes_total",
                "[ALPHA] Number of requested resizes, counted at the container level. Different resources on the same \
                 container are counted separately. The 'requirement' label refers to 'memory' or 'limits'; the \
                 'operation' label can be one of 'add', 'remove', 'increase' or 'decrease'.",
                &["operation", "requirement", "resource"],
            ),
            Self::RestRequests => described(
                "rest_client_requests_total",
                "[ALPHA] Number of HTTP requests, partitioned by status code, method, and host.",
                &["code", "host", "method"],
            ),
            Self::AlignedResources => described(
                "kubelet_container_aligned_compute_resources_count",
                "[ALPHA] Cumulative number of aligned compute resources allocated to containers by alignment type.",
                &["scope", "boundary"],
            ),
            Self::AlignedResourcesFailures => described(
                "kubelet_container_aligned_compute_resources_failure_count",
                "[ALPHA] Cumulative number of failures to allocate aligned compute resources to containers by alignment \
                 type.",
                &["scope", "boundary"],
            ),
            Self::SpansDropped => described(
                "coracle_trace_spans_dropped_total",
                "Number of trace spans that were not sent: the queue was full, or the collector could not be reached.",
                &["reason"],
            ),
            Self::RestartedPods => described(
                "kubelet_restarted_pods_total",
                "[ALPHA] Number of pods that have been restarted because they were deleted and recreated with the same UID \
                 while the kubelet was watching them (common for static pods, extremely uncommon for API pods)",
                &["static"],
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
            Self::SandboxErrors => described(
                "kubelet_run_podsandbox_errors_total",
                "[ALPHA] Cumulative number of the run_podsandbox operation errors by RuntimeClass.Handler.",
                &["runtime_handler"],
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
            Self::StartedUserNamespacedPods => described(
                "kubelet_started_user_namespaced_pods_total",
                "[ALPHA] Cumulative number of pods with user namespaces started. This metric will only be collected on \
                 Linux.",
                &[],
            ),
            Self::StartedUserNamespacedPodsErrors => described(
                "kubelet_started_user_namespaced_pods_errors_total",
                "[ALPHA] Cumulative number of errors when starting pods with user namespaces. This metric will only be \
                 collected on Linux.",
                &[],
            ),
            Self::TerminatedContainers => described(
                "kubelet_terminated_containers_total",
                "[ALPHA] Cumulative number of container terminations.",
                &["container_type", "exit_code", "reason"],
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
            Self::HealthChecks => described(
                "kubernetes_healthchecks_total",
                "[STABLE] This metric records the results of all healthcheck.",
                &["name", "status", "type"],
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
    pub(super) const ALL: [Self; 16] = [
        Self::DraGrpcOperations,
        Self::DraOperations,
        Self::CredentialPlugins,
        Self::DeviceAllocations,
        Self::ImagePulls,
        Self::PlegIntervals,
        Self::PlegRelists,
        Self::PodResizes,
        Self::PodStarts,
        Self::PodWorkerStarts,
        Self::PodWorkers,
        Self::RestRequests,
        Self::RuntimeOperations,
        Self::Sandboxes,
        Self::StatusSyncs,
        Self::TopologyAdmissions,
    ];

    pub(super) const fn described(self) -> FamilyDescription {
        match self {
            Self::CredentialPlugins => described(
                "kubelet_credential_provider_plugin_duration",
                "[ALPHA] Duration of execution in seconds for credential provider plugin",
                &["plugin_name"],
            ),
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
            Self::PodResizes => described(
                "kubelet_pod_resize_duration_milliseconds",
                "[ALPHA] Duration in milliseconds to actuate a pod resize",
                &["success"],
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
            Self::PodResizes => &RESIZES,
            Self::PodStarts => &STARTS,
            Self::RestRequests => &REST,
            Self::RuntimeOperations => &OPERATIONS,
            Self::StatusSyncs => &STATUS,
            Self::TopologyAdmissions => &ADMISSIONS,
            Self::CredentialPlugins
            | Self::DeviceAllocations
            | Self::PlegIntervals
            | Self::PlegRelists
            | Self::PodWorkerStarts
            | Self::PodWorkers
            | Self::Sandboxes
            | Self::Probes => &USUAL,
        }
    }
}

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
