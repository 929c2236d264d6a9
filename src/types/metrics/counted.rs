//! The counters and histograms: the only declaration of their names, labels, help texts and buckets. Pure.

use super::buckets::{
    Bucket, DRA_BUCKETS, IMAGE_PULL_BUCKETS, NAME_LOOKUP_BUCKETS, POD_RESIZE_BUCKETS, POD_START_BUCKETS,
    REST_REQUEST_BUCKETS, RUNTIME_OPERATION_BUCKETS, SERVING_ROTATION_BUCKETS, STATUS_SYNC_BUCKETS,
    TOPOLOGY_ADMISSION_BUCKETS, USUAL_BUCKETS,
};

/// The name, help text, labels and buckets of a family.
#[derive(Clone, Copy, Debug)]
pub(super) struct FamilyDescription {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) labels: &'static [&'static str],
    /// Upstream's bounds; none for a counter.
    pub(super) buckets: &'static [Bucket],
}

/// Declares families in the order of the page, and then those that have a page of their own. Each one is
/// `Variant: "name", ["label", ...] in BUCKETS, "help text";`, where counters have no buckets.
macro_rules! families {
    (
        $(#[$doc:meta])* $type:ident
        on_the_page { $($(#[$note:meta])* $shown:ident: $name:literal, [$($label:literal),*] $(in $buckets:ident)?, $help:literal;)* }
        elsewhere { $($other:ident: $other_name:literal, [$($other_label:literal),*] $(in $other_buckets:ident)?, $other_help:literal;)* }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum $type {
            $($(#[$note])* $shown,)*
            $($other,)*
        }

        impl $type {
            /// In the order of the page.
            pub(super) const ON_THE_PAGE: &[Self] = &[$(Self::$shown),*];

            pub(super) const fn described(self) -> FamilyDescription {
                match self {
                    $(Self::$shown => FamilyDescription {
                        name: $name,
                        help: $help,
                        labels: &[$($label),*],
                        buckets: families!(@buckets $($buckets)?),
                    },)*
                    $(Self::$other => FamilyDescription {
                        name: $other_name,
                        help: $other_help,
                        labels: &[$($other_label),*],
                        buckets: families!(@buckets $($other_buckets)?),
                    },)*
                }
            }
        }
    };
    (@buckets) => { &[] };
    (@buckets $buckets:ident) => { &$buckets };
}

families! {
    /// A counter. Its label values are given in the order of [`FamilyDescription::labels`].
    Count
    on_the_page {
        AdmissionRejections: "kubelet_admission_rejections_total", ["reason"],
            "[ALPHA] Cumulative number pod admission rejections by the Kubelet.";
        AlignedResources: "kubelet_container_aligned_compute_resources_count", ["scope", "boundary"],
            "[ALPHA] Cumulative number of aligned compute resources allocated to containers by alignment type.";
        AlignedResourcesFailures: "kubelet_container_aligned_compute_resources_failure_count", ["scope", "boundary"],
            "[ALPHA] Cumulative number of failures to allocate aligned compute resources to containers by alignment \
             type.";
        CpuPinnings: "kubelet_cpu_manager_pinning_requests_total", [],
            "[ALPHA] The number of cpu core allocations which required pinning.";
        CpuPinningErrors: "kubelet_cpu_manager_pinning_errors_total", [],
            "[ALPHA] The number of cpu core allocations which required pinning failed.";
        CredentialPluginErrors: "kubelet_credential_provider_plugin_errors_total", ["plugin_name"],
            "[ALPHA] Number of errors from credential provider plugin";
        DeferredAcceptedResizes: "kubelet_pod_deferred_accepted_resizes_total", ["retry_trigger"],
            "[ALPHA] Cumulative number of resizes that were accepted after being deferred.";
        DevicePluginRegistrations: "kubelet_device_plugin_registration_total", ["resource_name"],
            "[ALPHA] Cumulative number of device plugin registrations. Broken down by resource name.";
        ExecPluginCalls: "rest_client_exec_plugin_call_total", ["call_status", "code"],
            "[ALPHA] Number of calls to an exec plugin, partitioned by the type of event encountered (no_error, \
             plugin_execution_error, plugin_not_found_error, client_internal_error) and an optional exit code. The \
             exit code will be set to 0 if and only if the plugin call was successful.";
        Evictions: "kubelet_evictions", ["eviction_signal"],
            "[ALPHA] Cumulative number of pod evictions by eviction signal";
        ImagesCollected: "kubelet_image_garbage_collected_total", ["reason"],
            "[ALPHA] Total number of images garbage collected by the kubelet, whether through disk usage or image \
             age.";
        ImageVolumesFailed: "kubelet_image_volume_mounted_errors_total", [],
            "[BETA] Number of failed image volume mounts.";
        ImageVolumesMounted: "kubelet_image_volume_mounted_succeed_total", [],
            "[BETA] Number of successful image volume mounts.";
        ImageVolumesRequested: "kubelet_image_volume_requested_total", [],
            "[BETA] Number of requested image volumes.";
        InfeasibleResizes: "kubelet_pod_infeasible_resizes_total", ["reason_detail"],
            "[ALPHA] Number of infeasible resizes for pods.";
        LoopStalls: "coracle_loop_stalls_total", ["part"],
            "Number of times a part of the sync loop was due and did nothing.";
        MemoryPinnings: "kubelet_memory_manager_pinning_requests_total", [],
            "[ALPHA] The number of memory pages allocations which required pinning.";
        MemoryPinningErrors: "kubelet_memory_manager_pinning_errors_total", [],
            "[ALPHA] The number of memory pages allocations which required pinning that failed.";
        MustPullChecks: "kubelet_imagemanager_image_mustpull_checks_total", ["result"],
            "[ALPHA] Counter for how many times kubelet checked whether credentials need to be re-verified to access \
             an image";
        OrphanedPods: "kubelet_orphaned_runtime_pods_total", [],
            "[ALPHA] Number of pods that have been detected in the container runtime without being already known to \
             the pod worker. This typically indicates the kubelet was restarted while a pod was force deleted in the \
             API or in the local configuration, which is unusual.";
        PodResources: "kubelet_pod_resources_endpoint_requests_total", ["server_api_version"],
            "[ALPHA] Cumulative number of requests to the PodResource endpoint. Broken down by server api version.";
        PodResourcesAllocatable: "kubelet_pod_resources_endpoint_requests_get_allocatable", ["server_api_version"],
            "[ALPHA] Number of requests to the PodResource GetAllocatableResources endpoint. Broken down by server \
             api version.";
        PodResourcesGet: "kubelet_pod_resources_endpoint_requests_get", ["server_api_version"],
            "[ALPHA] Number of requests to the PodResource Get endpoint. Broken down by server api version.";
        PodResourcesGetErrors: "kubelet_pod_resources_endpoint_errors_get", ["server_api_version"],
            "[ALPHA] Number of requests to the PodResource Get endpoint which returned error. Broken down by server \
             api version.";
        PodResourcesList: "kubelet_pod_resources_endpoint_requests_list", ["server_api_version"],
            "[ALPHA] Number of requests to the PodResource List endpoint. Broken down by server api version.";
        Preemptions: "kubelet_preemptions", ["preemption_signal"],
            "[ALPHA] Cumulative number of pod preemptions by preemption resource";
        RequestedResizes: "kubelet_container_requested_resizes_total", ["operation", "requirement", "resource"],
            "[ALPHA] Number of requested resizes, counted at the container level. Different resources on the same \
             container are counted separately. The 'requirement' label refers to 'memory' or 'limits'; the \
             'operation' label can be one of 'add', 'remove', 'increase' or 'decrease'.";
        ResourceAllocationErrors: "resource_manager_allocation_errors_total", ["resource_name", "source"],
            "[ALPHA] Number of errors encountered during exclusive resource allocation.";
        ResourceAllocations: "resource_manager_allocations_total", ["resource_name", "source"],
            "[ALPHA] Number of exclusive resource allocations performed by a resource manager.";
        ResourceAssignments: "resource_manager_container_assignments", ["assignment_type", "resource_name"],
            "[ALPHA] Number of containers with a specific type of resource assignment.";
        RestartedPods: "kubelet_restarted_pods_total", ["static"],
            "[ALPHA] Number of pods that have been restarted because they were deleted and recreated with the same \
             UID while the kubelet was watching them (common for static pods, extremely uncommon for API pods)";
        RestRetries: "rest_client_request_retries_total", ["code", "host", "verb"],
            "[ALPHA] Number of request retries, partitioned by status code, verb, and host.";
        RestRequests: "rest_client_requests_total", ["code", "host", "method"],
            "[ALPHA] Number of HTTP requests, partitioned by status code, method, and host.";
        RuntimeErrors: "kubelet_runtime_operations_errors_total", ["operation_type"],
            "[ALPHA] Cumulative number of runtime operation errors by operation type.";
        SpansDropped: "coracle_trace_spans_dropped_total", ["reason"],
            "Number of trace spans that were not sent: the queue was full, or the collector could not be reached.";
        RuntimeOperations: "kubelet_runtime_operations_total", ["operation_type"],
            "[ALPHA] Cumulative number of runtime operations by operation type.";
        SandboxErrors: "kubelet_run_podsandbox_errors_total", ["runtime_handler"],
            "[ALPHA] Cumulative number of the run_podsandbox operation errors by RuntimeClass.Handler.";
        StartedContainers: "kubelet_started_containers_total", ["container_type"],
            "[ALPHA] Cumulative number of containers started";
        StartedContainersErrors: "kubelet_started_containers_errors_total", ["code", "container_type"],
            "[ALPHA] Cumulative number of errors when starting containers";
        StartedPods: "kubelet_started_pods_total", [],
            "[ALPHA] Cumulative number of pods started";
        StartedPodsErrors: "kubelet_started_pods_errors_total", [],
            "[ALPHA] Cumulative number of errors when starting pods";
        StartedUserNamespacedPods: "kubelet_started_user_namespaced_pods_total", [],
            "[ALPHA] Cumulative number of pods with user namespaces started. This metric will only be collected on \
             Linux.";
        StartedUserNamespacedPodsErrors: "kubelet_started_user_namespaced_pods_errors_total", [],
            "[ALPHA] Cumulative number of errors when starting pods with user namespaces. This metric will only be \
             collected on Linux.";
        TerminatedContainers: "kubelet_terminated_containers_total", ["container_type", "exit_code", "reason"],
            "[ALPHA] Cumulative number of container terminations.";
        TopologyAdmissions: "kubelet_topology_manager_admission_requests_total", [],
            "[ALPHA] The number of admission requests where resources have to be aligned.";
        TopologyErrors: "kubelet_topology_manager_admission_errors_total", [],
            "[ALPHA] The number of admission request failures where resources could not be aligned.";
        WebSocketStreams: "kubelet_websocket_streaming_requests_total", ["subresource"],
            "[ALPHA] Total number of WebSocket streaming requests (exec/attach/portforward) received by the kubelet.";
    }
    elsewhere {
        HealthChecks: "kubernetes_healthchecks_total", ["name", "status", "type"],
            "[STABLE] This metric records the results of all healthcheck.";
        Probes: "prober_probe_total", ["container", "namespace", "pod", "pod_uid", "probe_type", "result"],
            "[BETA] Cumulative number of a liveness, readiness or startup probe for a container by result.";
    }
}

families! {
    /// A histogram of durations.
    Timed
    on_the_page {
        DraGrpcOperations: "dra_grpc_operations_duration_seconds", ["driver_name", "method_name", "grpc_status_code"] in DRA_BUCKETS,
            "[ALPHA] Duration in seconds of the DRA gRPC operations";
        DraOperations: "dra_operations_duration_seconds", ["operation_name", "is_error"] in DRA_BUCKETS,
            "[ALPHA] Latency histogram in seconds for the duration of handling all ResourceClaims referenced by a pod \
             when the pod starts or stops. Identified by the name of the operation (PrepareResources or \
             UnprepareResources) and separated by the success of the operation. The number of failed operations is \
             provided through the histogram's overall count.";
        CredentialPlugins: "kubelet_credential_provider_plugin_duration", ["plugin_name"] in USUAL_BUCKETS,
            "[ALPHA] Duration of execution in seconds for credential provider plugin";
        DeviceAllocations: "kubelet_device_plugin_alloc_duration_seconds", ["resource_name"] in USUAL_BUCKETS,
            "[ALPHA] Duration in seconds to serve a device plugin Allocation request. Broken down by resource name.";
        ImagePulls: "kubelet_image_pull_duration_seconds", ["image_size_in_bytes"] in IMAGE_PULL_BUCKETS,
            "[ALPHA] Duration in seconds to pull an image.";
        PlegIntervals: "kubelet_pleg_relist_interval_seconds", [] in USUAL_BUCKETS,
            "[ALPHA] Interval in seconds between relisting in PLEG.";
        PlegRelists: "kubelet_pleg_relist_duration_seconds", [] in USUAL_BUCKETS,
            "[ALPHA] Duration in seconds for relisting pods in PLEG.";
        /// Shown in milliseconds, as [`Self::TopologyAdmissions`].
        PodResizes: "kubelet_pod_resize_duration_milliseconds", ["success"] in POD_RESIZE_BUCKETS,
            "[ALPHA] Duration in milliseconds to actuate a pod resize";
        PodStarts: "kubelet_pod_start_duration_seconds", [] in POD_START_BUCKETS,
            "[ALPHA] Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run";
        PodWorkerStarts: "kubelet_pod_worker_start_duration_seconds", [] in USUAL_BUCKETS,
            "[ALPHA] Duration in seconds from kubelet seeing a pod to starting a worker.";
        PodWorkers: "kubelet_pod_worker_duration_seconds", ["operation_type"] in USUAL_BUCKETS,
            "[ALPHA] Duration in seconds to sync a single pod. Broken down by operation type: create, update, or sync";
        NameLookups: "rest_client_dns_resolution_duration_seconds", ["host"] in NAME_LOOKUP_BUCKETS,
            "[ALPHA] DNS resolver latency in seconds. Broken down by host.";
        RestRequests: "rest_client_request_duration_seconds", ["host", "verb"] in REST_REQUEST_BUCKETS,
            "[ALPHA] Request latency in seconds. Broken down by verb, and host.";
        RuntimeOperations: "kubelet_runtime_operations_duration_seconds", ["operation_type"] in RUNTIME_OPERATION_BUCKETS,
            "[ALPHA] Duration in seconds of runtime operations. Broken down by operation type.";
        Sandboxes: "kubelet_run_podsandbox_duration_seconds", ["runtime_handler"] in USUAL_BUCKETS,
            "[ALPHA] Duration in seconds of the run_podsandbox operations. Broken down by RuntimeClass.Handler.";
        ServingRotations: "kubelet_certificate_manager_server_rotation_seconds", [] in SERVING_ROTATION_BUCKETS,
            "[ALPHA] Histogram of the number of seconds the previous certificate lived before being rotated.";
        StatusSyncs: "kubelet_pod_status_sync_duration_seconds", [] in STATUS_SYNC_BUCKETS,
            "[ALPHA] Duration in seconds to sync a pod status update. Measures time from detection of a change to pod \
             status until the API is successfully updated for that pod, even if multiple intevening changes to pod \
             status occur.";
        /// Recorded in upstream's unit: one second here is a millisecond of the duration.
        TopologyAdmissions: "kubelet_topology_manager_admission_duration_ms", [] in TOPOLOGY_ADMISSION_BUCKETS,
            "[ALPHA] Duration in milliseconds to serve a pod admission request.";
    }
    elsewhere {
        Probes: "prober_probe_duration_seconds", ["container", "namespace", "pod", "probe_type"] in USUAL_BUCKETS,
            "[ALPHA] Duration in seconds for a probe response.";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_bounds_ascend_and_match_their_text() {
        for timed in Timed::ON_THE_PAGE.iter().chain([&Timed::Probes]) {
            let buckets = timed.described().buckets;
            assert!(buckets.windows(2).all(|pair| pair[0].1 < pair[1].1), "{timed:?}");
            for (shown, nanos) in buckets {
                let seconds: f64 = shown.parse().unwrap();
                let nanos = std::time::Duration::from_nanos(*nanos).as_secs_f64();
                assert!((seconds - nanos).abs() < 1e-8, "{timed:?}: {shown}");
            }
        }
    }
}
